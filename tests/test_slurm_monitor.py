"""The monitor of all nodes of a job: a stand-in for `srun` runs the real agents; tests/cluster has the real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jumper.adapters.data import NodeDataStore, NodeInfo
from jumper.monitor.agent_process import AgentProcess, agent_environment
from jumper.monitor.backends import create_monitor, native_built
from jumper.monitor.backends.slurm_multinode import SlurmMultinodeMonitor
from jumper.monitor.common import MonitorProtocol
from jumper.monitor.slurm import step_command, step_environment
from jumper.schema.errors import JumperError, MonitorUnavailableError

JOB = f"77{os.getpid()}"
#: Runs what it was asked to run on this host, as Slurm would on a node; a file named after the node says what else.
SRUN = """#!/bin/sh
[ "$1" = --version ] && echo slurm 23.02.1 && exit
echo "$@" >>"$(dirname "$0")/asked"
while case $1 in --*) true ;; *) false ;; esac; do
    case $1 in --nodelist=*) node=${1#*=} ;; --jobid=*) job=${1#*=} ;; esac
    shift
done
export SLURMD_NODENAME=$node SLURM_JOB_ID=$job
[ -f "$(dirname "$0")/$node" ] && . "$(dirname "$0")/$node"
exec "$@"
"""
#: A process of the job: holds memory, uses CPU time, says how much, and waits.
BURNER = """
import time
held = bytearray(b"x") * (200 << 20)
while time.process_time() < 0.5:
    pass
print(int(time.process_time() * 1e9), flush=True)
time.sleep(600)
"""


class Job:
    """The nodes of a job, and what is wrong with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\nexit 1\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def let(self, node: str, script: str) -> None:
        """Run a line of shell before the agent of a node."""
        new = self.folder / f"{node}.new"
        new.write_text(script + "\n")
        new.rename(self.folder / node)

    @property
    def asked(self) -> list[str]:
        """The arguments of each `srun` so far."""
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", JOB)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    return Job(folder)


@pytest.fixture
def started() -> Iterator[Callable[..., SlurmMultinodeMonitor]]:
    """Makes monitors and starts them; they are stopped at the end."""
    made: list[SlurmMultinodeMonitor] = []

    def start(interval: float = 0.1, **keywords: Any) -> SlurmMultinodeMonitor:
        made.append(SlurmMultinodeMonitor(**{"levels": ["process"], "ready_s": 60.0, **keywords}))
        made[-1].start(interval)
        return made[-1]

    yield start
    for monitor in made:
        monitor.stop()


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait for something; return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.02)
    return found


def kinds(monitor: SlurmMultinodeMonitor) -> list[tuple[str, str]]:
    return [(event["kind"], event["node"]) for event in monitor.events]


def test_it_is_a_monitor_of_the_documents(job: Job, started: Any) -> None:
    monitor = create_monitor("slurm_multinode")
    assert isinstance(monitor, SlurmMultinodeMonitor)
    assert isinstance(monitor, MonitorProtocol)
    monitor.stop()
    assert not monitor.running
    monitor = started(levels=["process", "system"])
    assert monitor.nodes.node_names() == ["n1", "n2", "n3"]
    infos = monitor.nodes.hardware.values()
    assert monitor.num_cpus == sum(info.num_cpus for info in infos) == 3 * len(os.sched_getaffinity(0))
    assert monitor.memory_limits["system"] == pytest.approx(sum(info.memory_limits["system"] for info in infos))
    assert len(monitor.cpu_handles) == monitor.num_cpus
    assert all(len(monitor.nodes.view("system", node)) for node in monitor.nodes.node_names()), "before start() returns"
    until(lambda: len(monitor.data) >= 4)
    monitor.stop()
    monitor.stop()
    assert not monitor.running
    for level in ("process", "system"):
        assert monitor.data.view(level).equals(monitor.nodes.view(level))
        times = monitor.data.view(level)["time"]
        assert times.between(monitor.start_time, monitor.stop_time).all()
        assert times.is_monotonic_increasing
    before = len(monitor.data)
    monitor.start(0.1)
    assert 0 < len(monitor.data) < before, "a new start begins anew"


def test_fault_2_the_process_level_is_the_job_on_the_node_and_not_the_agent(job: Job, started: Any) -> None:
    monitor = started()
    environment = {**os.environ, "SLURM_JOB_ID": JOB}
    with subprocess.Popen([sys.executable, "-S", "-c", BURNER], env=environment, stdout=subprocess.PIPE) as burner:
        try:
            assert burner.stdout is not None
            used_ns = int(burner.stdout.readline())
            wanted = len(monitor.data) + 3
            until(lambda: len(monitor.data) > wanted)
        finally:
            burner.kill()
    wanted = len(monitor.data) + 3
    until(lambda: len(monitor.data) > wanted)
    monitor.stop()
    for node in monitor.nodes.node_names():
        frame = monitor.nodes.view("process", node)
        assert frame["processes"].max() == 1, "three agents have the job's id too"
        assert frame["processes"].iloc[[0, -1]].tolist() == [0, 0]
        assert 200 / 1024 < frame["memory"].max() < 230 / 1024
        assert used_ns <= frame["cpu_ns"].max() < used_ns + 2e8


#: Starts a process of the job as Slurm does: it has forked for a while before it has its own program and environment.
LATE = """
import os, sys, time
if os.fork() == 0:
    time.sleep(1.5)
    code = "import time; print(time.monotonic(), flush=True); time.sleep(600)"
    os.execve(sys.executable, [sys.executable, "-S", "-c", code], {**os.environ, "SLURM_JOB_ID": sys.argv[1]})
os.wait()
"""


@pytest.mark.parametrize("engine", ["python", *(["native"] if native_built() else [])])
def test_a_process_is_seen_as_soon_as_it_has_the_environment_of_the_job(engine: str) -> None:
    rows: dict[str, list[Any]] = {"process": [], "slurm": []}
    agent = AgentProcess(
        0, 0.1, list(rows), tag=f"SLURM_JOB_ID={JOB}", engine=engine,
        stream=lambda stream, row: rows.get(stream, []).append(row),
        environment=agent_environment({**os.environ, "SLURM_JOB_ID": JOB}),
    )  # fmt: skip
    agent.start(60)
    tagged = {"SLURM_JOB_ID": JOB}
    of_another_monitor = subprocess.Popen(["/bin/sleep", "600"], env=step_environment({}) | tagged)
    command = ["/usr/bin/env", *(f"{name}={value}" for name, value in tagged.items()), "/bin/sleep", "600"]
    late = subprocess.Popen(["/bin/sh", "-c", 'read start && exec "$@"', "sh", *command], stdin=subprocess.PIPE)
    agent.configure([late.pid])
    assert late.stdin is not None
    late.stdin.write(b"go\n")
    late.stdin.close()
    command = [sys.executable, "-S", "-c", LATE, JOB]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as starter:
        try:
            assert starter.stdout is not None
            began = float(starter.stdout.readline())
            for level, found in rows.items():
                first = until(lambda found=found: next((row for row in tuple(found) if row["processes"]), None))
                assert first["mono_ns"] / 1e9 - began < 5, f"{level}: not only at the next look at all processes"
        finally:
            os.killpg(starter.pid, signal.SIGKILL)
            for ours in (of_another_monitor, late):
                ours.kill()
                ours.wait()
    agent.stop()
    assert {row["processes"] for found in rows.values() for row in found} <= {0, 1}


#: Plays an agent that has 100,000 ticks to tell, and a line on stderr for each.
FLOOD = """
import json, os, sys, time
config = json.loads(sys.stdin.readline())
def say(**message):
    os.write(1, (json.dumps(message) + "\\n").encode())
say(status="ready", num_cpus=2, num_system_cpus=2, memory_limits={}, cpu_handles=[0, 1])
asked = json.loads(sys.stdin.readline())
say(status="clock", number=asked["number"], mono_ns=time.monotonic_ns())
out, err = open(1, "w", closefd=False), open(2, "w", closefd=False)
for tick in range(100_000):
    row = {"mono_ns": time.monotonic_ns(), "memory": 1.0, "cpu_ns": tick}
    out.write('{"stream": "process", "row": %s}\\n' % json.dumps(row))
    err.write("a line for each sample and level, as the collector of faults wrote it, into a pipe of 64 KiB\\n")
    err.flush()
out.flush()
for line in sys.stdin:
    if json.loads(line)["cmd"] == "stop":
        break
say(status="stopped", reason=None)
"""


def test_fault_10_a_hundred_thousand_ticks_pass_without_a_stall(job: Job, started: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n1")
    (job.folder / "flood.py").write_text(FLOOD)
    job.let("n1", f"exec {sys.executable} -S {job.folder}/flood.py")
    monitor = started()
    until(lambda: len(monitor.data) == 100_000, 120)
    assert monitor.running
    monitor.stop()
    assert monitor.data.view("process")["cpu_ns"].tolist() == list(range(100_000))
    assert monitor.data.view("process")["time"].between(monitor.start_time, monitor.stop_time).all()


def test_fault_11_a_node_that_does_not_answer_holds_nobody_up(job: Job, started: Any) -> None:
    job.let("n2", "exec sleep 600")
    began = time.monotonic()
    monitor = started(ready_s=4.0)
    assert 4.0 <= time.monotonic() - began < 30.0
    until(lambda: monitor.nodes.node_names() == ["n1", "n3"])
    assert ("node-missing", "n2") in kinds(monitor)
    assert monitor.coverage["missing"] == ["n2: no answer within 4 s"]
    assert (monitor.coverage["expected"], monitor.coverage["came"]) == (3, 2)
    assert monitor.coverage["gap_s"] >= 4.0
    monitor.stop()
    assert time.monotonic() - began < 60, "and stop() does not wait for it"


def test_fault_11_the_step_overlaps_those_of_the_job_and_takes_nothing_from_them() -> None:
    words = set(step_command("7", ["n1"], "m"))
    assert words > {
        "--overlap",
        "--mem=0",
        "--gres=none",
        "--cpu-bind=none",
        "--ntasks=1",
        "--jobid=7",
        "--nodelist=n1",
    }


def test_a_node_that_refuses_is_told_at_once_and_tried_again(job: Job, started: Any, caplog: Any) -> None:
    job.let("n3", 'echo "srun: error: n3 is down" >&2; exit 1')
    monitor = started()
    assert monitor.nodes.node_names() == ["n1", "n2"]
    (event,) = monitor.events
    assert (event["kind"], event["node"]) == ("node-missing", "n3")
    assert "srun: error: n3 is down" in event["text"]
    assert [record.getMessage() for record in caplog.records] == [f"node-missing: {event['text']}"]
    job.let("n3", ":")
    until(lambda: ("node-back", "n3") in kinds(monitor))
    until(lambda: "n3" in monitor.nodes.node_names())
    assert monitor.coverage["came"] == 3
    assert monitor.coverage["gap_s"] > 0


def test_an_agent_that_dies_is_told_and_followed_by_another(job: Job, started: Any) -> None:
    monitor = started()
    until(lambda: len(monitor.data) > 3)
    killed = os.path.join("/proc", str(monitor._nodes[1]._agent.agent.ready["pid"]))
    os.kill(int(os.path.basename(killed)), signal.SIGKILL)
    until(lambda: kinds(monitor) == [("node-lost", "n2"), ("node-back", "n2")])
    samples = len(monitor.nodes.view("process", "n2"))
    until(lambda: len(monitor.nodes.view("process", "n2")) > samples + 2)
    assert monitor.coverage["missing"] == []
    assert monitor.coverage["nodes"]["n2"]["gap_s"] == monitor.coverage["gap_s"] > 0


def test_an_agent_that_is_stopped_is_silent_until_it_goes_on(job: Job, started: Any) -> None:
    monitor = started()
    until(lambda: len(monitor.data) > 3)
    pid = monitor._nodes[0]._agent.agent.ready["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: kinds(monitor) == [("node-lost", "n1")])
        others = len(monitor.nodes.view("process", "n2"))
        assert "no sample for" in monitor.events[0]["text"]
        until(lambda: len(monitor.nodes.view("process", "n2")) > others)
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: kinds(monitor)[1:] == [("node-back", "n1")])


def test_a_job_without_any_node_that_answers_says_why(job: Job) -> None:
    for node in ("n1", "n2", "n3"):
        job.let(node, f"echo 'srun: error: {node} is down' >&2; exit 1")
    monitor = SlurmMultinodeMonitor()
    with pytest.raises(MonitorUnavailableError, match=r"no node of the job answered: n1: .*n1 is down.*n3 is down"):
        monitor.start()
    assert not monitor.running
    for node in ("n1", "n2", "n3"):
        job.let(node, ":")
    with pytest.raises(MonitorUnavailableError, match="/no/such/python: not found"):
        SlurmMultinodeMonitor(python_executable="/no/such/python").start()


def test_when_the_last_node_is_gone_the_monitor_ends_with_its_reason(job: Job, started: Any) -> None:
    monitor = started()
    for node in ("n1", "n2", "n3"):
        job.let(node, "echo 'srun: error: job is over' >&2; exit 1")
    for node in monitor._nodes:
        os.kill(node._agent.agent.ready["pid"], signal.SIGKILL)
    until(lambda: not monitor.running)
    assert "no node answers any more" in monitor.reason
    assert "job is over" in monitor.reason


def test_fault_13_agents_of_two_users_on_a_node_leave_each_other_alone(tmp_path_factory: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("becoming other users needs root")
    shared = tmp_path_factory.mktemp("tmp")
    for folder in (shared, *shared.parents):
        if os.stat(folder).st_uid == 0 and folder.is_relative_to("/tmp"):
            folder.chmod(0o1777)
    agents = []
    for uid in ("54321", "54322"):
        command = ["setpriv", "--reuid", uid, "--clear-groups", sys.executable, "-P", "-m", "jumper.monitor.agent"]
        environment = {
            **os.environ,
            "TMPDIR": str(shared),
            "HOME": str(shared),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        environment.pop("JUMPER_SPOOL", None)
        rows: list[Any] = []
        agent = AgentProcess(
            0, 0.1, ["process"], tag=f"SLURM_JOB_ID={JOB}", command=command, environment=environment,
            stream=lambda stream, row, rows=rows: rows.append(row),
        )  # fmt: skip
        agent.start(60)
        agents.append((agent, rows))
    for agent, rows in agents:
        until(lambda rows=rows: len(rows) > 3)
        agent.stop()
        assert agent.reason is None
    assert list(shared.iterdir()) == [], "nothing of a name that another user could have taken, or linked elsewhere"


def test_fault_14_nodes_are_joined_by_time_with_the_columns_of_all() -> None:
    store = NodeDataStore()
    data = store.joined()
    for name, first in (("early", 0), ("late", 100)):
        store.register_node(NodeInfo(name, 2, 2))
        for second in range(first, first + 10):
            store.add_sample(name, "process", {"time": float(second), "memory": 1.0, "net": 100.0})
    store.register_node(NodeInfo("wide", 2, 2))
    for second in range(10):
        store.add_sample("wide", "process", {"time": second + 0.2, "memory": 2.0, "net": 900.0, "io": 5.0})
    frame = data.view("process")
    assert frame.equals(store.view("process"))
    assert len(frame) == len(data.view("process", slice_=(0, 19))) == 20
    both, alone = frame[frame["time"] < 50], frame[frame["time"] > 50]
    assert both[["memory", "net", "io"]].to_numpy().tolist() == [[3.0, 1000.0, 5.0]] * 10
    assert alone[["memory", "net"]].to_numpy().tolist() == [[1.0, 100.0]] * 10
    assert alone["time"].tolist() == [float(second) for second in range(100, 110)]
    assert data.view("process", slice_=(2, 4))["time"].tolist() == [2.0, 3.0, 4.0]
    with pytest.raises(JumperError, match="added to a node"):
        data.add_sample("process", {"time": 0.0})


COLLECTOR = """
from jumper.monitor.metrics.common import CollectorBackend

class Answer(CollectorBackend):
    name = "answer"
    def collect(self, level, context):
        return 42.0
"""
ENTRY = """
collectors:
  answer:
    _target_: answer.Answer
    handler:
      _target_: jumper.monitor.metrics.handlers.ScalarHandler
      column: answer
"""


def test_the_log_says_itself_what_it_holds(job: Job, started: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "answer.py").write_text(COLLECTOR)
    (tmp_path / "collectors.yaml").write_text(ENTRY)
    monkeypatch.syspath_prepend(str(tmp_path))
    log = tmp_path / "runs" / "today" / "nodes.jsonl"
    job.let("n3", "exit 1")
    monitor = started(log_path=log, collectors=tmp_path / "collectors.yaml", levels=["process", "system"])
    until(lambda: len(monitor.data) >= 3)
    monitor.stop()
    header, *lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert (header["type"], header["job"], header["interval"], header["nodes"]) == (
        "header",
        JOB,
        0.1,
        ["n1", "n2", "n3"],
    )
    assert {line["node"]: line["num_cpus"] for line in lines if line["type"] == "node"} == {
        node: len(os.sched_getaffinity(0)) for node in ("n1", "n2")
    }
    assert next(line["kind"] for line in lines if line["type"] == "event") == "node-missing"
    samples = [line for line in lines if line["type"] == "sample"]
    for node in ("n1", "n2"):
        frame = monitor.nodes.view("system", node)
        mine = [line for line in samples if (line["node"], line["level"]) == (node, "system")]
        assert [line["perf_time"] for line in mine] == frame["time"].tolist()
        assert [line["memory"] for line in mine] == frame["memory"].tolist()
        assert [line["sample_index"] for line in mine] == list(range(len(mine)))
        assert abs(mine[0]["timestamp"] - monitor.wallclock_start_time) < 60
        assert len(mine[-1]["cpu_util"]) == os.cpu_count()
        assert [len(line["io_counters"]) for line in mine] == [4] * len(mine)
        told = [line["columns"]["answer"] for line in mine if "answer" in line["columns"]]  # a late tick has none
        assert set(told) == {42.0}
    assert set(samples[0]) - {"type"} == set(header["fields"])
    assert header["units"]["cpu_ns"] == "ns"
    assert monitor.nodes.view("process")["answer"].max() == 84.0, "the columns of all nodes"


def test_a_log_that_cannot_be_written_stops_nobody(job: Job, started: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JumperError, match=r"cannot write .*give another log_path"):
        SlurmMultinodeMonitor(log_path=tmp_path / "file" / "log.jsonl").start()
    assert not (job.folder / "asked").exists(), "and no step was started"
    monitor = started(log_path="/dev/full")
    until(lambda: "log-lost" in [event["kind"] for event in monitor.events])
    before = len(monitor.data)
    until(lambda: len(monitor.data) > before)


SIGNALLED = """
import os, signal, sys, threading, time
from jumper.monitor.backends.slurm_multinode import SlurmMultinodeMonitor

monitor = SlurmMultinodeMonitor(levels=["process"], ready_s=600)
signal.signal(signal.SIGTERM, lambda *_: monitor.stop())
when = sys.argv[1]
if when == "starting":
    asked = sys.argv[2]
    def send():
        while not os.path.exists(asked):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=send).start()
    monitor.start(0.1)
else:
    monitor.start(0.1)
    monitor.data.view("process")
    os.kill(os.getpid(), signal.SIGTERM)
    monitor.stop()
print(monitor.running, len(monitor.data) > 0, flush=True)
"""


@pytest.mark.parametrize(("when", "said"), [("starting", "False False"), ("running", "False True")])
def test_a_signal_handler_may_stop_it(job: Job, when: str, said: str) -> None:
    if when == "starting":
        for node in ("n1", "n2", "n3"):
            job.let(node, "exec sleep 600")
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, when, str(job.folder / "asked")],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.stdout.strip(), done.stderr) == (said, "")


def test_starts_and_stops_leave_nothing_behind(job: Job) -> None:
    monitor = SlurmMultinodeMonitor(levels=["process"])

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = held()
    for stopped_by_another_thread in (False, True, False):
        stop = threading.Timer(0.1, monitor.stop)
        if stopped_by_another_thread:
            stop.start()
        monitor.start(0.05)
        if stopped_by_another_thread:
            stop.join()
            until(lambda: not monitor.running)
        monitor.stop()
        assert not monitor.running
    until(lambda: held() == before)


def test_agents_end_with_a_monitor_that_is_killed(job: Job, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import time
        from jumper.monitor.backends.slurm_multinode import SlurmMultinodeMonitor
        monitor = SlurmMultinodeMonitor(levels=["process"])
        monitor.start(0.1)
        print(*[node._agent.agent.ready["pid"] for node in monitor._nodes], flush=True)
        time.sleep(600)
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pids = process.stdout.readline().split()
        process.kill()
    assert len(pids) == 3
    until(lambda: not any(os.path.exists(f"/proc/{int(pid)}") for pid in pids))
