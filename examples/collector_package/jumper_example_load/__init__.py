"""An example of a package that brings a collector; light, since jumper imports it to read the next line."""

from __future__ import annotations

COLLECTORS = "collectors.yaml"  # beside this file
