"""Four children that read one array of so many MB."""

from __future__ import annotations

import os
import sys
import time

held = bytearray(b"1") * (int(sys.argv[1]) * 10**6)
for _ in range(4):
    if os.fork() == 0:
        time.sleep(1.5)
        os._exit(0)
for _ in range(4):
    os.wait()
