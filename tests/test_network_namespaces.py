"""Traffic of network namespaces other than the monitor's, on a real one whose bytes are known from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jumper
from jumper.monitor.backends import native_built
from jumper.monitor.metrics.context import new_context
from jumper.monitor.metrics.network import NamespaceTrafficCollector

#: two interfaces of one namespace; what is sent to the first one's network leaves it as UDP of 1,000 bytes
INSIDE = """
ip link add eth0 type veth peer name eth1 && ip link set lo up && ip link set eth0 up && ip link set eth1 up &&
ip addr add 10.9.8.1/24 dev eth0 && ip neigh add 10.9.8.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent &&
echo ready && exec "$0" -c '
import socket, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for line in sys.stdin:
    for _ in range(int(line)):
        udp.sendto(bytes(1000), ("10.9.8.2", 9))
    print("sent", flush=True)
'
"""


@pytest.fixture
def apart() -> Iterator[subprocess.Popen[str]]:
    """A process in a network namespace of its own; each number that it reads is so many datagrams sent."""
    if os.getuid() != 0:
        pytest.skip("a network namespace with interfaces is made by root only")
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("needs ip (iproute2) and unshare (util-linux), that make a network namespace")
    command = ["unshare", "--net", "sh", "-c", INSIDE, sys.executable]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        if child.stdout.readline() != "ready\n":
            child.kill()
            pytest.skip(f"the kernel gives no such namespace here: {child.stderr.read().strip()}")
        yield child
        child.kill()


def send(child: subprocess.Popen[str], count: int) -> None:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write(f"{count}\n")
    assert child.stdout.readline() == "sent\n"


def kernels(pid: int, interface: str = "eth0") -> tuple[int, int]:
    """Bytes and packets sent, as a program in that namespace sees them (ip -s link reads them over netlink)."""
    code = ["nsenter", "--net=" + f"/proc/{pid}/ns/net", "ip", "-s", "link", "show", interface]
    lines = subprocess.check_output(code, text=True).splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("TX:"))
    sent, packets, *_ = lines[at + 1].split()
    return int(sent), int(packets)


def look(collector: NamespaceTrafficCollector, second: float, *pids: int) -> dict[str, int | None] | None:
    context = new_context(round(second * 1e9), 0)
    context["process_pids"] = set(pids)
    return collector.collect("process", context)


def test_bytes_of_another_namespace_are_the_kernels(apart: subprocess.Popen[str]) -> None:
    collector = NamespaceTrafficCollector()
    first = look(collector, 0, os.getpid(), apart.pid)
    assert first == dict.fromkeys(
        ("netns_sent_bytes", "netns_recv_bytes", "netns_sent_packets", "netns_recv_packets"), 0
    )
    before = kernels(apart.pid)
    send(apart, 500)
    found = look(collector, 1, os.getpid(), apart.pid)
    assert found is not None
    sent, packets = (now - then for now, then in zip(kernels(apart.pid), before, strict=True))
    assert packets >= 500 and sent >= 500 * 1042
    # the pair's other end receives what the first sends, and both may tell the other of themselves meanwhile
    for name, least in (("sent_bytes", 521_000), ("recv_bytes", 521_000), ("sent_packets", 500), ("recv_packets", 500)):
        value = found[f"netns_{name}"]
        assert value is not None and least <= value < least * 1.05, name


def test_traffic_of_a_namespace_that_is_left_stays_counted(apart: subprocess.Popen[str]) -> None:
    collector = NamespaceTrafficCollector()
    look(collector, 0, apart.pid)
    send(apart, 100)
    most = look(collector, 1, apart.pid)
    assert look(collector, 2, os.getpid()) == most
    send(apart, 100)  # while nobody of the target is there
    assert look(collector, 3, apart.pid) == most
    send(apart, 50)
    last = look(collector, 4, apart.pid)
    assert last is not None and most is not None
    assert 50 <= (last["netns_sent_packets"] or 0) - (most["netns_sent_packets"] or 0) < 70


def test_a_process_that_changes_its_namespace_is_seen_within_ten_seconds() -> None:
    collector = NamespaceTrafficCollector()
    code = """
import ctypes, sys
print("here", flush=True); sys.stdin.readline()
assert ctypes.CDLL(None).unshare(0x50000000) == 0  # CLONE_NEWUSER | CLONE_NEWNET
print("there", flush=True); sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin and child.stdout and child.stdout.readline() == "here\n"
        assert look(collector, 20, child.pid) is None
        child.stdin.write("\n")
        child.stdin.flush()
        if child.stdout.readline() != "there\n":
            pytest.skip("the kernel gives users no namespaces here")
        assert look(collector, 21, child.pid) is None, "what is known is not asked each time"
        assert look(collector, 31, child.pid) is not None
        child.kill()


def test_in_the_monitors_own_namespace_the_nodes_columns_say_it() -> None:
    collector = NamespaceTrafficCollector()
    assert look(collector, 0, os.getpid(), os.getppid(), 1 << 22) is None
    assert collector.collect("system", new_context(0, 0)) is None


@pytest.mark.parametrize(
    "backend",
    ["native", pytest.param("thread", marks=pytest.mark.slow)] if native_built() else ["thread"],
)
def test_a_run_has_the_traffic_of_a_command_in_a_namespace_of_its_own(
    apart: subprocess.Popen[str], tmp_path: Path, backend: str
) -> None:
    code = """
import socket, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
time.sleep(1.5)  # it is seen there before
for _ in range(300):
    udp.sendto(bytes(1000), ("10.9.8.2", 9))
time.sleep(1.5)
"""
    command = ["nsenter", f"--net=/proc/{apart.pid}/ns/net", sys.executable, "-c", code]
    ours = [sys.executable, "-m", "jumper", "run", "--interval", "0.2", "--backend", backend]
    subprocess.run([*ours, "-o", str(tmp_path / "RUN"), "--", *command], check=True)
    run = jumper.open_run(tmp_path / "RUN")
    rows = run.samples("process").sort_values("mono_ns")
    sent = rows["netns_sent_packets"].dropna()
    assert 300 <= sent.iloc[-1] - sent.iloc[0] < 320
    assert rows["cpu_ns"].notna().all(), "they stand in the rows of the engine"
    assert not len(run.events[run.events["kind"] == "collector-off"])
