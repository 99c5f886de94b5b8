"""Wait, hold a number of MB for a while, and write down the kernel's high-water mark: SECONDS MB SECONDS FILE."""

from __future__ import annotations

import os
import sys
import time

before, size, after, file = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
time.sleep(before)
held = bytearray(size * 10**6)
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
with open(file + ".pid", "w") as out:
    out.write(str(os.getpid()))
with open(file, "w") as out:
    out.write(str(peak * 1024))
time.sleep(after)
os._exit(0)
