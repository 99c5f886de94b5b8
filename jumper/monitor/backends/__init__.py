"""The monitors, by where their engine is hosted: a thread, a child process, one agent a node."""
