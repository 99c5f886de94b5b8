"""Use a number of seconds of CPU."""

from __future__ import annotations

import sys
import time

while time.process_time() < float(sys.argv[1]):
    pass
