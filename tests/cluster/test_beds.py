"""The beds are what they say: hosts with names, networks and clocks of their own."""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.beds import hosts

__all__ = ["hosts"]

LOOK = """
import json, os, socket, sys, time
address = socket.gethostbyname(socket.gethostname())
print(json.dumps([socket.gethostname(), address, time.monotonic(), time.time() - time.clock_gettime(11), os.getpid()]))
"""


def test_hosts_have_names_addresses_and_clocks_of_their_own(hosts: Any) -> None:
    bed = hosts("hub", "one", "two")
    bed.command("clock", "two", 37)
    seen = {name: json.loads(bed.run(name, "python3", "-c", LOOK, check=True).stdout) for name in bed.names}
    assert {name: look[:2] for name, look in seen.items()} == {name: [name, bed.address[name]] for name in bed.names}
    apart = [seen[name][2] - seen["hub"][2] for name in ("one", "two")]
    assert [round(seconds, -3) for seconds in apart] == [100_000, 200_000]
    ahead = [seen[name][3] - seen["hub"][3] for name in ("one", "two")]
    assert [round(seconds, 2) for seconds in ahead] == [0, 37]
    assert max(look[4] for look in seen.values()) < 100


def test_a_host_that_lost_its_power_comes_back_under_its_name(hosts: Any) -> None:
    bed = hosts("hub", "one")
    bed.command("kill", "one")
    assert bed.run("one", "true").returncode != 0
    bed.command("boot", "one")
    assert bed.run("one", "hostname", check=True).stdout.strip() == "one"
