"""The magics of a notebook: ``%load_ext jumper``."""
