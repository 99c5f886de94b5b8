"""Workloads whose cost is known from the kernel's own word, told by the workload itself.

``python workloads.py NAME ARGUMENT ... TRUTH`` does the work and writes what it cost to
the file TRUTH as JSON. Standard library only; knows nothing of jumper.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import resource
import subprocess
import sys
import threading
import time

MIB = 1 << 20


def burn(seconds, clock=time.thread_time):
    """Use so many CPU seconds of the calling thread."""
    end = clock() + seconds
    while clock() < end:
        for _ in range(500):
            pass


def fork_burn(seconds):
    pid = os.fork()
    if pid == 0:
        # a fork starts its CPU clock at zero
        burn(seconds)
        os._exit(0)
    return pid


def used():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def high_water():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1]) * 1024


def pss(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return int(re.search(r"^Pss:\s+(\d+)", file.read(), re.M)[1]) * 1024


def allocate(mib, flags=mmap.MAP_PRIVATE):
    area = mmap.mmap(-1, mib * MIB, flags=flags | mmap.MAP_ANONYMOUS)
    chunk = b"\1" * MIB
    for _ in range(mib):
        area.write(chunk)
    return area


def children(count, seconds):
    """So many children, one after the other."""
    for _ in range(int(count)):
        os.waitpid(fork_burn(float(seconds)), 0)


def grandchildren(count, seconds):
    """A child whose children burn at once."""
    pid = os.fork()
    if pid == 0:
        for child in [fork_burn(float(seconds)) for _ in range(int(count))]:
            os.waitpid(child, 0)
        os._exit(0)
    os.waitpid(pid, 0)


def threads(count, seconds):
    """So many threads of one process."""
    running = [threading.Thread(target=burn, args=(float(seconds),)) for _ in range(int(count))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def child_of_thread(seconds):
    """A child that a thread other than the main one started."""
    thread = threading.Thread(target=lambda: os.waitpid(fork_burn(float(seconds)), 0))
    thread.start()
    thread.join()


def orphan(seconds):
    """A grandchild whose parent ends at once; it lives on for a while and ends before the command."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:
            os.setsid()
            os.close(reader)
            burn(float(seconds))
            os.write(writer, repr(used()).encode())
            os._exit(0)
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    orphan_s = float(os.read(reader, 100))
    time.sleep(0.2)
    return {"orphan_s": orphan_s}


def touch(mib, seconds):
    """Hold so much memory for so long."""
    area = allocate(int(mib))
    time.sleep(float(seconds))
    area.close()
    return {"peak": high_water()}


def run_touch(depth, mib, seconds):
    """The same by a descendant, so many generations down, each started as a program."""
    depth = int(depth)
    if depth == 0:
        return touch(mib, seconds)
    truth = f"{sys.argv[-1]}.{depth}"
    subprocess.run([sys.executable, "-S", "-E", __file__, "run_touch", str(depth - 1), mib, seconds, truth], check=True)
    with open(truth) as file:
        return json.load(file)


def beside(own_mib, mib, seconds):
    """Hold memory and start a child that holds more, both at once."""
    area = allocate(int(own_mib))
    truth = f"{sys.argv[-1]}.child"
    subprocess.run([sys.executable, "-S", "-E", __file__, "touch", mib, seconds, truth], check=True)
    with open(truth) as file:
        child = json.load(file)["peak"]
    area.close()
    return {"peak": high_water() + child}


def share(mib, processes, seconds):
    """Memory that several processes share; each touches all of it."""
    area = allocate(int(mib), mmap.MAP_SHARED)
    pids = [os.getpid()]
    for _ in range(int(processes) - 1):
        pid = os.fork()
        if pid == 0:
            for offset in range(0, int(mib) * MIB, mmap.PAGESIZE):
                area[offset]
            time.sleep(float(seconds))
            os._exit(0)
        pids.append(pid)
    time.sleep(float(seconds) * 0.8)
    total = sum(pss(pid) for pid in pids)
    for pid in pids[1:]:
        os.waitpid(pid, 0)
    return {"peak": total}


def write(path, size):
    """Write a file of exactly so many bytes."""
    chunk = b"x" * MIB
    with open(path, "wb", buffering=0) as file:
        left = int(size)
        while left:
            left -= file.write(chunk[: min(left, len(chunk))])
    return {"bytes": int(size)}


def main():
    name, *arguments, truth = sys.argv[1:]
    said = globals()[name](*arguments) or {}
    with open(truth, "w") as file:
        json.dump({"cpu": used(), **said}, file)
    os._exit(0)  # what an interpreter does at its end comes after its last word


if __name__ == "__main__":
    main()
