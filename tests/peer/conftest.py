"""What runs in the other environment is no test of this one."""

from __future__ import annotations

collect_ignore = ["inside.py"]
