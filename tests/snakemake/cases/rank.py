"""Use CPU, hold memory, and write down what the kernel says of both: SECONDS MB FILE, the node's name behind it."""

from __future__ import annotations

import os
import sys

held = bytearray(int(sys.argv[2]) * 10**6)
while sum(os.times()[:2]) < float(sys.argv[1]):
    pass
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
del held
with open(f"{sys.argv[3]}.{os.environ['SLURMD_NODENAME']}", "w") as out:
    out.write(f"{sum(os.times()[:2])} {peak * 1024}")
os._exit(0)
