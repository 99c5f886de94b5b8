"""The native engine: compiled from `ext/`, optional; `jumper doctor` says whether it is there."""
