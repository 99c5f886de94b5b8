"""`python -m jumper_snakemake` is `jumper-snakemake`."""

from __future__ import annotations

from jumper_snakemake.cli import main

if __name__ == "__main__":
    main(prog_name="jumper-snakemake")
