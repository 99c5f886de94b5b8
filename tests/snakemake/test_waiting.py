"""Who waits for a job's process: whatever other threads, signals and a fork do meanwhile, the status is the job's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jumper_snakemake import hook
from jumper_snakemake.attempt import Attempt
from jumper_snakemake.settings import Settings
from jumper_snakemake.site import Site

Start = Callable[[str], hook._JobProcess]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "spool").mkdir()
    made = Site(lambda: Settings(str(tmp_path), interval=60.0))
    yield made
    made.close()


@pytest.fixture
def attempt(site: Site) -> Attempt:
    return Attempt(site, {"key": "one", "group": "one"}, 1, 1, in_process=False)


@pytest.fixture
def start(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that starts a command as a process of that attempt."""

    def started(command: str) -> hook._JobProcess:
        monkeypatch.setattr(hook._local, "attempt", attempt)
        return hook._JobProcess(command, shell=True, executable="/bin/bash", env=dict(os.environ))

    return started


def test_a_poll_of_another_thread_makes_no_success_of_a_failure(start: Start, attempt: Attempt) -> None:
    child = start("exit 3")
    polls, waited = threading.Event(), threading.Event()

    def slow_waitpid(pid: int, options: int) -> tuple[int, int]:
        polls.set()
        waited.wait(0.5)  # enough for a wait that does not care
        return os.waitpid(pid, options)

    poller = threading.Thread(target=lambda: child._internal_poll(_waitpid=slow_waitpid))  # type: ignore[attr-defined]
    poller.start()
    assert polls.wait(10)
    status = child.wait()
    waited.set()
    poller.join()
    assert (status, child.returncode) == (3, 3)
    assert attempt.children[0].ended is not None


def test_two_threads_that_wait_for_it_take_its_readings_once(start: Start, attempt: Attempt) -> None:
    child = start("sleep 0.2; kill -9 $$")
    (known,) = attempt.children
    taken = []
    watch = known.watch
    assert watch is not None
    finish = watch.finish

    def slow_finish() -> object:
        taken.append(threading.get_ident())
        time.sleep(0.1)
        return finish()

    watch.finish = slow_finish  # type: ignore[method-assign, assignment]
    said: list[int] = []
    waiters = [threading.Thread(target=lambda: said.append(child.wait())) for _ in range(2)]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join()
    assert said == [-9, -9]
    assert len(taken) == 1


def test_who_reaps_a_job_first_leaves_it_without_a_cost_but_not_without_an_end(start: Start, attempt: Attempt) -> None:
    child = start("exit 4")
    os.waitpid(child.pid, 0)
    assert child.wait() == 0  # what Python says of a status that is lost
    attempt.end(None)
    assert attempt.children[0].until_ns is not None


def test_an_interrupt_ends_the_wait_and_leaves_the_job_to_its_waiter(start: Start) -> None:
    child = start("read -t 30 < <(sleep 30); exit 5")
    ours = threading.get_ident()
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(ours, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        child.wait()
    timer.join()
    assert child.returncode is None
    child.kill()
    assert child.wait() == -signal.SIGKILL


def test_a_run_that_cannot_be_written_costs_no_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(lambda: Settings(str(tmp_path / "gone"), interval=60.0))
    monkeypatch.setattr(site, "warn", lambda text: None)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        attempt = Attempt(site, {"key": "one", "group": "one"}, 1, 1, in_process=False)
        monkeypatch.setattr(hook._local, "attempt", attempt)
        child = hook._JobProcess("exit 3", shell=True, executable="/bin/bash", env=dict(os.environ))
        assert child.wait() == 3
        attempt.end(None)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_fork_while_another_job_begins_does_not_wait_for_it(site: Site) -> None:
    site.ready()
    pids: list[int] = []

    def forks() -> None:
        pids.append(os.fork())
        if pids[0] == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)  # a child that hangs is ended by it
            site.note({"type": "task"})
            os._exit(0)

    with site._lock:
        forker = threading.Thread(target=forks)
        forker.start()
        forker.join()
    assert os.waitpid(pids[0], 0)[1] == 0
