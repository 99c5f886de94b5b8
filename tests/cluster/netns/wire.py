"""A bad network cable: relays frames between a veth end and a tap device, late and with losses.

    python3 wire.py VETH TAP DELAY_MS JITTER_MS LOSS_PERCENT PIDFILE

Used by hosts.sh on kernels without the netem queueing discipline.  It creates TAP (to be
put into the bridge in VETH's stead) and keeps frames in order.  Frames travel with their
virtio-net header, so that checksum and segmentation offload keep working.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import itertools
import os
import random
import select
import signal
import socket
import struct
import sys
import time

ETH_P_ALL = 0x0003
SOL_PACKET, PACKET_VNET_HDR, PACKET_OUTGOING = 263, 15, 4
TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 0x0002, 0x1000, 0x4000
LIMIT = 10_000  # frames under way, each direction


def main() -> None:
    veth, tap, delay, jitter, loss, pidfile = sys.argv[1:]
    delay, jitter, loss = float(delay) / 1e3, float(jitter) / 1e3, float(loss) / 100
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    # The hub's own stack must not answer ARP requests that arrive on the bare veth end.
    with open(f"/proc/sys/net/ipv4/conf/{veth}/arp_ignore", "w") as f:
        f.write("8")
    packet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packet.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    packet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    packet.bind((veth, ETH_P_ALL))
    packet.setblocking(False)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", tap.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))

    under_way: list = []  # heap of (release time, number, towards the host?, frame)
    number = itertools.count()
    last = [0.0, 0.0]
    count = [0, 0]

    def take(frame: bytes, to_host: bool) -> None:
        if random.random() < loss or count[to_host] >= LIMIT:
            return
        late = max(0.0, delay + random.uniform(-jitter, jitter))
        last[to_host] = max(last[to_host], time.monotonic() + late)
        count[to_host] += 1
        heapq.heappush(under_way, (last[to_host], next(number), to_host, frame))

    with open(pidfile, "w") as f:
        f.write(f"{os.getpid()}\n")
    while True:
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select([packet, tun], [], [], wait)
        if packet in readable:
            for _ in range(64):
                try:
                    frame, address = packet.recvfrom(1 << 17)
                except BlockingIOError:
                    break
                except OSError:  # the cable or the host went away
                    sys.exit(0)
                if address[2] != PACKET_OUTGOING:
                    take(frame, False)
        if tun in readable:
            for _ in range(64):
                try:
                    take(os.read(tun, 1 << 17), True)
                except BlockingIOError:
                    break
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, to_host, frame = heapq.heappop(under_way)
            count[to_host] -= 1
            with contextlib.suppress(OSError):  # full, or the other end is down: a lost frame
                packet.send(frame) if to_host else os.write(tun, frame)


if __name__ == "__main__":
    main()
