"""Snakemake front end: what every job of every rule costs, with no change to the Snakefile."""
