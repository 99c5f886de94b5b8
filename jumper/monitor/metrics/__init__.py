"""The built-in collectors, a folder each, and what a collector of your own needs; see docs/collectors.md."""
