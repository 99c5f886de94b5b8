"""Names of nodes in Slurm's short form, expanded as Slurm itself does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jumper.monitor import slurm
from jumper.monitor.nodelist import expand_nodelist
from jumper.monitor.slurm import get_slurm_nodes, job_shares, nodes_of
from jumper.schema.errors import JumperError, MonitorUnavailableError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("rack[1-2]node[1-3]", "rack1node1 rack1node2 rack1node3 rack2node1 rack2node2 rack2node3"),
        ("node[1-2]-ib", "node1-ib node2-ib"),
        ("n[1-3,7],m5,k[01-02]x", "n1 n2 n3 n7 m5 k01x k02x"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-011]", "n8 n9 n10 n11"),
        ("n[1,02]", "n1 n02"),
        ("n[0-1][01-02]y[1,3]z", "n001y1z n001y3z n002y1z n002y3z n101y1z n101y3z n102y1z n102y3z"),
        ("b,a,b", "b a b"),
        ("one\n", "one"),
        ("", ""),
    ],
)
def test_fault_12_every_form_of_a_node_list_is_expanded(text: str, names: str) -> None:
    assert expand_nodelist(text) == names.split()


@pytest.mark.parametrize(
    "text", ["n[", "n[1", "n1]", "n[]", "n[3-1]", "n[a-b]", "n[1-2-3]", "n[[1]]", "n[1-9999999999]"]
)
def test_what_is_no_node_list_is_refused(text: str) -> None:
    with pytest.raises(JumperError, match="node list"):
        expand_nodelist(text)


number = st.integers(0, 120)
padded = st.tuples(number, st.integers(1, 4)).map(lambda n: str(n[0]).zfill(n[1]))
span = st.tuples(padded, st.integers(0, 12)).map(lambda r: f"{r[0]}-{int(r[0]) + r[1]}")
bracket = st.lists(padded | span, min_size=1, max_size=3).map(lambda ranges: f"[{','.join(ranges)}]")
word = st.from_regex(r"[a-z]([a-z0-9.-]{0,4}[a-z])?", fullmatch=True)
plain = st.from_regex(r"[a-z][a-z0-9.-]{0,6}", fullmatch=True)
#: what the scontrol of Slurm 22.05 knows: an item that has a bracket ends with one
item = plain | st.lists(st.tuples(word, bracket).map("".join), min_size=1, max_size=3).map("".join)
#: text behind a bracket, which it does not know
tailed = st.tuples(item, word).map("-".join)


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which the real scontrol expands names; it asks nobody for that."""
    if shutil.which("scontrol") is None:
        pytest.skip("no Slurm here; on Debian: apt install slurm-client")
    conf = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    conf.write_text("ClusterName=test\nSlurmctldHost=localhost\nNodeName=n1\n")
    return {**os.environ, "SLURM_CONF": str(conf)}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.lists(item, min_size=1, max_size=4))
def test_we_expand_as_scontrol_does(scontrol: dict[str, str], items: list[str]) -> None:
    text = ",".join(items)
    done = subprocess.run(["scontrol", "show", "hostnames", text], env=scontrol, capture_output=True, text=True)
    assert done.returncode == 0, (text, done.stderr)
    ours, its = expand_nodelist(text), done.stdout.split()
    # from three brackets on its order is odd: a1b1c1, a1b1c2, a2b1c1, ...
    many = any(one.count("[") > 2 for one in items)
    assert (sorted(ours) == sorted(its)) if many else (ours == its), text


@given(items=st.lists(item | tailed, min_size=1, max_size=4))
def test_a_list_is_its_items_one_after_the_other(items: list[str]) -> None:
    assert expand_nodelist(",".join(items)) == [name for one in items for name in expand_nodelist(one)]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of PATH; nothing else is on it but the shell's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    monkeypatch.setattr(slurm, "ASK_S", 1.0)
    return folder


def program(folder: Path, text: str) -> None:
    (folder / "scontrol").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "scontrol").chmod(0o755)


def test_where_slurm_tells_the_nodes(programs: Path) -> None:
    program(programs, '[ "$2" = hostnames ] && exit 1; echo "JobId=7 NodeList=n[3-4] BatchHost=n3"')
    job = {"SLURM_JOB_ID": "7"}
    assert get_slurm_nodes({**job, "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "m1"}) == ["n1", "n2"]
    assert get_slurm_nodes({**job, "SLURM_NODELIST": "m[1-2],m1"}) == ["m1", "m2"]
    assert get_slurm_nodes(job) == nodes_of("7") == ["n3", "n4"]


@pytest.mark.parametrize("answer", ["exit 3", "exec sleep 20", "exit 0"])
def test_a_scontrol_that_fails_or_hangs_leaves_our_own_expansion(programs: Path, answer: str) -> None:
    program(programs, answer)
    wanted = ["n1-ib", "n2-ib"]
    assert get_slurm_nodes({"SLURM_JOB_NODELIST": "n[1-2]-ib"}) == wanted


@pytest.mark.parametrize(
    ("environment", "answer", "text"),
    [
        ({}, "exit 0", "this is no job of Slurm"),
        (
            {"SLURM_JOB_ID": "7"},
            "echo 'Invalid job id specified' >&2; exit 1",
            "nodes of job 7: Invalid job id specified",
        ),
        ({"SLURM_JOB_ID": "7"}, "echo 'JobId=7 NodeList=(null)'", "job 7 has no nodes yet"),
    ],
)
def test_without_nodes_the_error_says_why(programs: Path, environment: dict[str, str], answer: str, text: str) -> None:
    program(programs, answer)
    with pytest.raises(MonitorUnavailableError, match=text):
        get_slurm_nodes(environment)


def test_what_the_job_has_of_each_node(programs: Path) -> None:
    shown = "NumNodes=3 Nodes=n[1-2] CPU_IDs=0-3,8 Mem=600 GRES=   Nodes=n3 CPU_IDs=5 Mem=0 GRES="
    program(programs, f"[ $2 = hostnames ] && exit 1; echo '{shown}'")
    whole = {"cpus": 5, "memory_bytes": 600 << 20}
    assert job_shares("7") == {"n1": whole, "n2": whole, "n3": {"cpus": 1}}
    program(programs, "echo 'slurm_load_jobs error: Invalid job id' >&2; exit 1")
    assert job_shares("7") == {}
