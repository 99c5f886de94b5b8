"""What can go wrong around `jumper run`: the command never notices, the run says what it lost."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import jumper
from jumper.core.run import merge
from tests.truth.conftest import Runner

#: counts the interrupts that it gets, and says so
COUNTER = """
import signal, sys, time
count = 0
def more(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, more)
signal.signal(signal.SIGTERM, more)
print("ready", flush=True)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    time.sleep(0.05)
print("count", count, flush=True)
"""


def test_a_signal_to_jumper_alone_reaches_the_command_once(me: Runner) -> None:
    command = me.jumper("run", "-o", str(me.folder / "run"), "--", me.python, "-c", COUNTER)
    process = me.popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == b"count 1\n"
    assert process.wait() == 0


def test_ctrl_c_of_a_terminal_reaches_the_command_once(me: Runner) -> None:
    """The terminal sends it to the whole group: forwarding it would send it twice."""
    command = me.jumper("run", "-o", str(me.folder / "run"), "--", me.python, "-c", COUNTER)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(me.folder)
        os.execve(command[0], command, {**os.environ, "PYTHONPATH": me.path})
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    try:
        while chunk := os.read(terminal, 1024):
            said += chunk
    except OSError:  # the terminal's other end is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"count 1" in said
    assert b"jumper summary" in said, "on a terminal it says where the run is"


def test_inherited_descriptors_environment_and_folder_are_untouched(me: Runner) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    names = "sorted(k for k in os.environ if 'JUMPER' in k)"
    code = f"import os; os.write({writer}, b'through'); print({names}); print(os.getcwd())"
    command = me.jumper("run", "-o", str(me.folder / "run"), "--", me.python, "-c", code)
    process = me.popen(command, stdout=subprocess.PIPE, pass_fds=[writer])
    os.close(writer)
    output, _ = process.communicate(timeout=60)
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert output.decode().splitlines() == ["['JUMPER_SPOOL']", str(me.folder)]


def test_a_command_in_the_locale_c_keeps_it(me: Runner) -> None:
    """Python sets LC_CTYPE for itself and its children (PEP 538); `env` shall see what it would see without us."""
    where = {"PATH": os.environ["PATH"], "PYTHONPATH": me.path, "LANG": "C"}
    command = me.jumper("run", "-o", str(me.folder / "run"), "--", "env")
    measured = subprocess.run(command, env=where, cwd=me.folder, stdout=subprocess.PIPE, check=True).stdout
    assert measured == subprocess.run(["env"], env=where, stdout=subprocess.PIPE, check=True).stdout


def test_signals_that_were_ignored_or_default_stay_so(me: Runner) -> None:
    # 32 and 33 are the C library's own; its posix_spawn ignores them for every program that it starts
    code = (
        "import re\nfor word in re.findall(r'Sig(?:Ign|Blk):\\s+(\\w+)', open('/proc/self/status').read()):"
        " print(hex(int(word, 16) & ~(3 << 31)))"
    )
    plain = [me.python, "-S", "-c", code]
    direct = subprocess.run(["nohup", *plain], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True).stdout
    command = me.jumper("run", "-o", str(me.folder / "run"), "--", *plain)
    measured = me.popen(["nohup", *command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert measured.communicate(timeout=60)[0] == direct
    assert len(direct.split()) == 2


@pytest.mark.parametrize("name", ["a b) (c", "x\ny", "((((", "ü"])
def test_a_hostile_name_is_measured_like_any(me: Runner, name: str) -> None:
    program = me.folder / name
    program.symlink_to(me.python)
    code = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    out = me.folder / "run"
    me.popen(me.jumper("run", "-o", str(out), "--", str(program), "-S", "-c", code)).wait(timeout=60)
    run = jumper.open_run(out)
    (task,) = run.tasks.to_dict("records")
    assert 0.3 <= task["cpu_s"] < 0.5
    assert run.samples("process")["cpu_ns"].iloc[-1] > 0.28e9
    assert task["group"] == name


def test_processes_that_vanish_between_two_reads_cost_nothing(me: Runner) -> None:
    """300 short children beside 20 Hz sampling: nothing raises, the sum is the wait's."""
    out = me.folder / "run"
    script = "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done"
    command = me.jumper("run", "--interval", "0.05", "-o", str(out), "--", "sh", "-c", script)
    process = me.popen(command, stderr=subprocess.PIPE)
    assert process.communicate(timeout=120)[1] == b""
    run = jumper.open_run(out)
    (task,) = run.tasks.to_dict("records")
    assert run.events.empty
    assert "estimated" not in task["flags"]
    ledger = run.samples("process")["cpu_ns"].iloc[-1] / 1e9
    assert abs(ledger - task["cpu_s"]) < max(0.02, 0.01 * task["cpu_s"])


def test_a_parent_that_ignores_sigchld_gives_a_flagged_lower_bound(me: Runner) -> None:
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n    end = time.process_time() + 0.6\n"
        "    while time.process_time() < end: pass\n"
        "    time.sleep(2)\n    os._exit(0)\n"  # long enough to be seen with all of it
        "try:\n    os.wait()\nexcept ChildProcessError:\n    pass\n"
    )
    out = me.folder / "run"
    command = me.jumper("run", "--interval", "0.1", "-o", str(out), "--", me.python, "-S", "-c", code)
    assert me.popen(command).wait(timeout=60) == 0
    (task,) = jumper.open_run(out).tasks.to_dict("records")
    assert 0.6 <= task["cpu_s"] < 0.75
    assert "estimated" in task["flags"]


def test_a_folder_that_cannot_be_written_does_not_stop_the_command(me: Runner) -> None:
    blocker = me.folder / "file"
    blocker.write_text("")
    command = me.jumper("run", "-o", str(blocker / "run"), "--", "echo", "worked")
    process = me.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, b"worked\n")
    first, second = errors.decode().splitlines()
    assert first.startswith(f"jumper: cannot make the run {blocker / 'run'}")
    assert first.endswith("the command runs all the same")
    place = Path(second.removeprefix("jumper: the run goes to "))
    assert len(jumper.open_run(place).tasks) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="a small file system can only be mounted by root")
def test_a_full_disk_does_not_stop_the_command(me: Runner) -> None:
    small = me.folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False).returncode:
        pytest.skip("this machine forbids mounting")
    try:
        (small / "ballast").write_bytes(b"x" * (40 << 10))
        out = small / "run"
        script = "import time\nfor _ in range(30): time.sleep(0.05)\nprint('worked')"
        command = me.jumper("run", "--interval", "0.005", "-o", str(out), "--", me.python, "-c", script)
        process = me.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, b"worked\n")
        assert "blocks of samples were lost" in errors.decode() or "No space left" in errors.decode(), errors
        copy = me.folder / "copy"
        subprocess.run(["cp", "-r", str(out), str(copy)], check=True)
        assert len(jumper.open_run(out).samples("process")) > 3, "it opens where it is all the same"
    finally:
        subprocess.run(["umount", str(small)], check=True)
    run = jumper.open_run(copy)
    assert len(run.samples("process")) > 3
    assert run.info["coverage"]["torn"] == 0


def test_jumper_killed_leaves_the_command_and_the_samples(me: Runner) -> None:
    out = me.folder / "run"
    done = me.folder / "done"
    script = f"sleep 1.5; echo yes > {done}"
    process = me.popen(me.jumper("run", "--interval", "0.05", "-o", str(out), "--", "sh", "-c", script))
    deadline = time.monotonic() + 20
    while not list(out.glob("spool/*.seg")) and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.6)
    process.kill()
    process.wait()
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert done.read_text() == "yes\n"
    run = jumper.open_run(out)
    assert len(run.samples("process")) >= 5
    (task,) = run.tasks.to_dict("records")
    assert (task["state"], "truncated" in task["flags"]) == ("lost", True)


def test_a_command_that_runs_is_not_lost_until_its_monitor_is(me: Runner) -> None:
    out = me.folder / "run"
    process = me.popen(me.jumper("run", "--interval", "0.05", "-o", str(out), "--", "sleep", "60"))
    deadline = time.monotonic() + 30
    while not list(out.glob("spool/*.seg")) or jumper.open_run(out).tasks.empty:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGSTOP)  # nothing new is written from here on
    run = jumper.open_run(out)
    assert run.tasks["state"].isna().all()
    assert list(run.tasks["reason"]) == ["it ran when the run was read"]
    assert run.findings() == []
    process.kill()
    process.wait()
    assert list(jumper.open_run(out).tasks["state"]) == ["lost"]
    os.kill(int(run.tasks["pid"].iloc[0]), signal.SIGKILL)


def test_a_place_that_holds_a_run_is_not_overwritten(me: Runner) -> None:
    out = me.folder / "run"
    assert me.popen(me.jumper("run", "-o", str(out), "--", "true")).wait(timeout=60) == 0
    before = sorted(p.name for p in out.rglob("*"))
    again = me.popen(me.jumper("run", "-o", str(out), "--", "true"), stderr=subprocess.PIPE)
    _, errors = again.communicate(timeout=60)
    assert again.returncode == 2
    assert "holds a run already" in errors.decode()
    assert sorted(p.name for p in out.rglob("*")) == before


def test_ranks_share_one_run(me: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    out = me.folder / "run"
    processes = []
    for rank in range(3):
        monkeypatch.setenv("SLURM_PROCID", str(rank))
        monkeypatch.setenv("SLURM_NTASKS", "3")
        processes.append(me.popen(me.jumper("run", "-o", str(out), "--", "sh", "-c", "sleep 0.2")))
    assert [p.wait(timeout=60) for p in processes] == [0, 0, 0]
    run = jumper.open_run(out)
    assert sorted(name.split(".")[0] for name in run.tasks["attempt_id"]) == ["0", "1", "2"]
    assert len(list(out.glob("spool/*.seg"))) == 3


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "x"])
def test_a_wrong_interval_is_said_before_anything_runs(me: Runner, interval: str) -> None:
    marker = me.folder / "ran"
    command = me.jumper("run", f"--interval={interval}", "--", "touch", str(marker))
    process = me.popen(command, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "interval" in errors.decode().splitlines()[-1]
    assert not marker.exists()


def test_without_the_launcher_it_is_measured_all_the_same(me: Runner) -> None:
    """No compiler, no launcher: exact CPU, and a peak that never comes from the process that started it."""
    out = me.folder / "run"
    code = (
        "import sys; from jumper.monitor import launcher; from pathlib import Path\n"
        "launcher.SHIM = Path('/nonexistent'); launcher.Launcher.__init__.__defaults__ = (None, None)\n"
        "from jumper.core.command import run; sys.exit(run(sys.argv[2:], output=sys.argv[1], interval=0.1))"
    )
    workload = me.workload("touch", "200", "0.3")
    assert me.popen([me.python, "-c", code, str(out), *workload]).wait(timeout=60) == 0
    (task,) = jumper.open_run(out).tasks.to_dict("records")
    assert task["memory_peak_bytes"] == pytest.approx(210 << 20, rel=0.04)


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1, 2]], ids=str)
def test_standard_streams_that_are_closed_stay_the_commands(me: Runner, closed: list[int]) -> None:
    out = me.folder / "run"
    shell = " ".join(["exec", '"$@"', *(f"{fd}>&-" for fd in closed)])
    code = (
        "import os\nfound = []\nfor fd in (0, 1, 2):\n try: os.fstat(fd); found.append(fd)\n except OSError: pass\n"
        f"open(r'{me.folder}/open', 'w').write(str(found))"
    )
    command = me.jumper("run", "-o", str(out), "--", me.python, "-S", "-c", code + "\nos._exit(3)")
    assert me.popen(["sh", "-c", shell, "sh", *command]).wait(timeout=60) == 3
    assert (me.folder / "open").read_text() == str([fd for fd in (0, 1, 2) if fd not in closed])
    assert jumper.open_run(out).tasks["exit_code"].tolist() == [3]


def test_a_command_line_that_is_not_utf8_is_measured_like_any(me: Runner) -> None:
    out = me.folder / "run"
    process = me.popen(me.jumper("run", "-o", str(out), "--", "echo", os.fsdecode(b"\xff")), stdout=subprocess.PIPE)
    assert process.communicate(timeout=60)[0] == b"\xff\n"
    run = jumper.open_run(out)
    assert run.tasks["key"].tolist() == ["echo '\\xff'"]
    assert run.info["command"] == "echo '\\xff'"


def test_folders_that_were_there_stay_when_the_command_is_not_found(me: Runner) -> None:
    (me.folder / "kept" / "empty").mkdir(parents=True)
    for place in ("kept/empty", "kept/new", "made/deep/new"):
        assert me.popen(me.jumper("run", "-o", place, "--", "no-such-command")).wait(timeout=60) == 127
    assert [p.name for p in (me.folder / "kept").iterdir()] == ["empty"]
    assert not (me.folder / "made").exists()


def test_a_place_that_may_not_be_looked_into_does_not_stop_the_command(runner: Runner) -> None:
    if runner.uid is None:
        pytest.skip("the runner `ordinary` is this case")
    closed = Path(tempfile.mkdtemp())
    try:
        command = runner.jumper("run", "-o", str(closed / "run"), "--", "echo", "through")
        process = runner.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (0, b"through\n")
        assert "the command runs all the same" in errors.decode()
        assert "the run goes to" in errors.decode()
    finally:
        closed.rmdir()


def test_the_same_command_measured_twice_is_two_attempts_when_merged(me: Runner) -> None:
    for name in ("a", "b"):
        assert me.popen(me.jumper("run", "-o", name, "--", "true")).wait(timeout=60) == 0
    run = merge([me.folder / "a", me.folder / "b"], me.folder / "both")
    assert run.tasks["attempt"].tolist() == [1, 2]
    assert run.tasks["wall_s"].max() < 5


HOSTILE = """
from jumper.monitor.metrics.common import CollectorBackend
class Exit(CollectorBackend):
    name = "exit"
    def collect(self, level, context):
        raise SystemExit(3)
class Huge(CollectorBackend):
    name = "huge"
    def collect(self, level, context):
        return {"huge": 10**400, "huge_ns": 10**30, "cpu_99_ns": 10**30, "fine": 7}
"""


def test_a_collector_that_exits_or_returns_the_absurd_does_not_touch_the_command(me: Runner) -> None:
    (me.folder / "hostile.py").write_text(HOSTILE)
    handlers = "jumper.monitor.metrics.handlers"
    entries = "".join(
        f"  {name.lower()}:\n    _target_: hostile.{name}\n    handler: {{_target_: {handlers}.{handler}}}\n"
        for name, handler in (("Exit", "NoOpHandler"), ("Huge", "CountersHandler"))
    )
    (me.folder / "c.yaml").write_text("collectors:\n" + entries)
    out = me.folder / "run"
    arguments = ["--backend", "thread", "--interval", "0.1", "--collectors", "c.yaml", "-o", str(out)]
    assert me.popen(me.jumper("run", *arguments, "--", "sh", "-c", "sleep 0.5; exit 5")).wait(timeout=60) == 5
    run = jumper.open_run(out)
    assert run.tasks["exit_code"].tolist() == [5]
    samples = run.samples("process")
    assert len(samples) >= 5
    assert (samples["fine"] == 7).all()
    assert samples["huge_ns"].tolist() == [1e30] * len(samples)
    assert samples["cpu_99_ns"].isna().all()
    assert run.events["kind"].tolist() == ["collector-off"]
    assert "SystemExit: 3" in run.events["text"][0]


def test_a_mistake_of_ours_is_said_and_the_command_runs(me: Runner) -> None:
    code = (
        "import sys; from jumper.core import command\n"
        "def broken(*_, **__): raise RuntimeError('no sampler')\n"
        "command.sampling = broken\n"
        "sys.exit(command.run(sys.argv[2:], output=sys.argv[1]))"
    )
    process = me.popen(
        [me.python, "-c", code, str(me.folder / "run"), "echo", "worked"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, b"worked\n")
    assert errors.decode().splitlines() == [
        "jumper: not measured: RuntimeError: no sampler; the command runs all the same"
    ]


def test_a_place_that_fails_late_leaves_the_spool_to_measure_in(me: Runner) -> None:
    """The first start has taken over the command's I/O file already when it fails."""
    code = (
        "import os, sys; from jumper.core import command\n"
        "made = command.sampling\n"
        "class Failing:\n"
        "    def start(self, root_io_fd):\n"
        "        os.close(root_io_fd); command.sampling = made; raise OSError(28, 'No space left on device')\n"
        "command.sampling = lambda *_, **__: Failing()\n"
        "sys.exit(command.run(sys.argv[2:], output=sys.argv[1]))"
    )
    process = me.popen(
        [me.python, "-c", code, str(me.folder / "run"), "sleep", "0.3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    place = Path(errors.decode().splitlines()[-1].removeprefix("jumper: the run goes to "))
    assert len(jumper.open_run(place).tasks) == 1
