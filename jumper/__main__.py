"""`python -m jumper` is the command line too."""

from __future__ import annotations

import sys

from jumper.cli import main

if __name__ == "__main__":
    sys.exit(main())
