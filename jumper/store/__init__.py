"""Runs on disk: reading segments, the run directory, merging."""
