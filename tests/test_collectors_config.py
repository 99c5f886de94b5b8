"""collectors.yaml: where it is found, how files are merged, and what each mistake in one says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jumper.config import CollectorConfig
from jumper.monitor.common import CollectorConfigError, JumperError
from jumper.monitor.pipeline import build_pipeline, load_config, load_config_text

SCALAR = "handler: {_target_: jumper.monitor.metrics.handlers.ScalarHandler, column: %s}"
BUILT_IN = ["process", "node", "cpu", "memory", "io", "network", "gpu_counters", "gpu", "energy", "cgroup",
            "network_namespaces"]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home folder without configuration, and no variable that names one."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("JUMPER_COLLECTORS", raising=False)
    return folder


def entry(column, name="mine", target="os.getpid"):
    return f"collectors: {{{name}: {{_target_: {target}, {SCALAR % column}}}}}\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(config):
    return [entry.name for entry in config.entries]


def test_the_built_in_file_comes_with_the_documents_columns():
    config = load_config()
    assert names(config) == BUILT_IN
    by_name = {entry.name: entry for entry in config.entries}
    assert by_name["cpu"].handler_kwargs == {"prefix": "cpu_util_"}
    assert by_name["process"].inject == ("pid", "process", "uid", "slurm_job")
    assert by_name["network"].handler_kwargs["columns"] == [
        "net_bytes_sent", "net_bytes_recv", "net_packets_sent", "net_packets_recv",
    ]  # fmt: skip


def test_the_users_folder_may_be_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write(tmp_path / "jumper/collectors.yaml", entry("a"))
    assert names(load_config()) == [*BUILT_IN, "mine"]


def test_files_are_merged_by_name_and_the_last_one_wins(home, tmp_path, monkeypatch):
    write(home / ".config/jumper/collectors.yaml", entry("a", "one") + "  \n")
    env = write(tmp_path / "env.yaml", f"collectors:\n  one: {{_target_: os.getuid, {SCALAR % 'b'}}}\n  io: null\n")
    monkeypatch.setenv("JUMPER_COLLECTORS", str(env))
    argument = write(tmp_path / "arg.yaml", entry("c", "two"))
    config = load_config(argument)
    assert names(config) == ["process", "node", "cpu", "memory", *BUILT_IN[5:], "one", "two"]
    one, two = config.entries[-2:]
    assert one.target == "os.getuid"
    assert str(env) in one.origin
    assert "JUMPER_COLLECTORS" in one.origin
    assert two.origin == str(argument)


def test_the_variable_is_read_when_asked_not_at_import(tmp_path, monkeypatch):
    assert names(load_config()) == BUILT_IN
    monkeypatch.setenv("JUMPER_COLLECTORS", str(write(tmp_path / "env.yaml", entry("a"))))
    assert "mine" in names(load_config())


def test_a_file_in_the_current_folder_is_not_read(tmp_path, monkeypatch):
    write(tmp_path / "collectors.yaml", "collectors: {process: null}")
    monkeypatch.chdir(tmp_path)
    assert names(load_config()) == BUILT_IN


def test_a_replaced_process_stays_first(tmp_path):
    text = f"collectors:\n  other: {{_target_: os.getpid, {SCALAR % 'a'}}}\n"
    text += f"  process: {{_target_: os.getpid, {SCALAR % 'b'}}}\n"
    assert names(load_config(write(tmp_path / "c.yaml", text)))[0] == "process"


def test_nothing_listed_changes_nothing(tmp_path):
    assert names(load_config(write(tmp_path / "c.yaml", "collectors:\n"))) == BUILT_IN


MISTAKES = {
    "a file that is not there": (None, r"c\.yaml.*: cannot be read: No such file"),
    "an empty file": ("", r"expected a mapping with the key `collectors`, found nothing"),
    "a list": ("[1]", r"expected a mapping with the key `collectors`, found \[1\]"),
    "another top key": ("collectors: {}\ncolectors: {}", r"unknown key 'colectors'"),
    "collectors as a list": ("collectors: [cpu]", r"collectors: expected a mapping of name to entry"),
    "an entry that is a word": ("collectors: {mine: yes}", r"collectors\.mine: expected a mapping"),
    "no handler": ("collectors: {mine: {_target_: os.getpid}}", r"collectors\.mine\.handler: missing; .*NoOpHandler"),
    "no target": (f"collectors: {{mine: {{{SCALAR % 'a'}}}}}", r"collectors\.mine: .*missing.*_target_"),
    "a handler without target": (
        "collectors: {mine: {_target_: os.getpid, handler: {column: a}}}",
        r"collectors\.mine\.handler: .*missing.*_target_",
    ),
    "a target without module": (entry("a", target="getpid"), r"mine\._target_: expected package\.module\.Class"),
    "a module that is not there": (
        entry("a", target="no_such.thing.Mine"),
        r"mine\._target_: cannot import no_such\.thing: ModuleNotFoundError.*put it beside",
    ),
    "a class that is not there": (
        entry("a", target="jumper.monitor.metrics.io.counters.IoColector"),
        r"mine\._target_: .*has no class IoColector; its classes: IoCollector",
    ),
    "a handler that is not there": (
        "collectors: {mine: {_target_: os.getpid, handler: {_target_: jumper.monitor.metrics.handlers.Scalar}}}",
        r"mine\.handler\._target_: .*has no class Scalar; its classes: .*ScalarHandler",
    ),
    "a handler that is none": (
        "collectors: {mine: {_target_: os.getpid, handler: {_target_: builtins.dict}}}",
        r"mine\.handler\._target_: builtins\.dict has no transform",
    ),
    "a handler's unknown key": (
        "collectors: {mine: {_target_: os.getpid, "
        "handler: {_target_: jumper.monitor.metrics.handlers.ScalarHandler, colunm: a}}}",
        r"mine\.handler: .*ScalarHandler refuses its keys \(colunm\)",
    ),
    "an unknown inject": (
        f"collectors: {{mine: {{_target_: os.getpid, inject: [pids], {SCALAR % 'a'}}}}}",
        r"mine\.inject: unknown name 'pids'; known are pid, process, uid, slurm_job, node_info, interval",
    ),
    "an inject that is no list": (
        f"collectors: {{mine: {{_target_: os.getpid, inject: pid, {SCALAR % 'a'}}}}}",
        r"mine\.inject: expected a list",
    ),
    "a column of another entry": (
        entry("memory"),
        r"mine\.handler: the column 'memory' is written by collectors\.memory",
    ),
    "a column of a device": (entry("cpu_util_3"), r"the column 'cpu_util_3' is written by collectors\.cpu of built-in"),
    "a column of our own": (entry("rss_bytes"), r"the column 'rss_bytes' is one of jumper's own"),
    "a column that every row has": (entry("time"), r"the column 'time' is one of jumper's own"),
    "one column twice": (
        "collectors: {mine: {_target_: os.getpid, "
        "handler: {_target_: jumper.monitor.metrics.handlers.CumulativeRateHandler, columns: [a, a]}}}",
        r"mine\.handler: the column 'a' is named twice",
    ),
    "no process": ("collectors: {process: null}", r"collectors\.process: missing"),
    "a name given twice": ("collectors:\n  a: null\n  a: null\n", r"line 3, column 3: .*key 'a' given twice"),
    "broken YAML": ("collectors:\n  a: [1\n", r"line 3, column 1: no valid YAML"),
    "an object in YAML": (
        "collectors: !!python/object/apply:os.getpid []",
        r"line 1, .*could not determine",
    ),
    "a date": (
        f"collectors: {{mine: {{_target_: os.getpid, since: 2020-01-01, {SCALAR % 'a'}}}}}",
        r"mine\.since: expected text, numbers, lists and mappings",
    ),
    "bytes that are no text": (b"\xff\xfe\x00", r"expected YAML in UTF-8"),
    "an anchor to itself": ("collectors: &a {x: *a}", r"no valid YAML: .*recursive"),
    "a list as key": ("? [1]\n: 2\n", r"no valid YAML"),
}


CASES = [
    pytest.param(found_by, text, message, id=f"{found_by}: {name}")
    for name, (text, message) in MISTAKES.items()
    for found_by in ("argument", "variable", *(["home"] if text is not None else []))
]


@pytest.mark.parametrize(("found_by", "text", "message"), CASES)
def test_a_mistake_names_the_key_and_the_file(found_by, text, message, home, tmp_path, monkeypatch):
    file = home / ".config/jumper/collectors.yaml" if found_by == "home" else tmp_path / "c.yaml"
    if text is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    if found_by == "variable":
        monkeypatch.setenv("JUMPER_COLLECTORS", str(file))
    with pytest.raises(CollectorConfigError, match=message) as caught:
        load_config(file if found_by == "argument" else None)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, JumperError)


def test_a_module_that_raises_while_it_is_imported_is_named(tmp_path):
    write(tmp_path / "broken_one.py", "1 / 0\n")
    file = write(tmp_path / "c.yaml", entry("a", target="broken_one.Mine"))
    with pytest.raises(CollectorConfigError, match=r"mine\._target_: cannot import broken_one: ZeroDivisionError"):
        load_config(file)


def test_two_files_whose_entries_write_one_column_are_both_named(tmp_path, monkeypatch):
    first = write(tmp_path / "first.yaml", entry("heat", "one"))
    monkeypatch.setenv("JUMPER_COLLECTORS", str(first))
    second = write(tmp_path / "second.yaml", entry("heat", "two"))
    with pytest.raises(CollectorConfigError) as caught:
        load_config(second)
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)


def test_text_from_elsewhere_joins_the_built_in_and_imports_nothing(home):
    write(home / ".config/jumper/collectors.yaml", entry("a", "here"))
    config = load_config_text(entry("b", target="only.on.the.Worker"), "mine.yaml")
    assert names(config) == [*BUILT_IN, "mine"]
    with pytest.raises(CollectorConfigError, match=r"mine\.yaml: collectors\.mine\._target_"):
        build_pipeline(config, Host(), ["process"])


class Host:
    pid = os.getpid()
    process = None
    uid = os.getuid()
    slurm_job = None
    node_info = None
    interval = 1.0


def test_a_module_beside_the_file_is_found_after_all_others(tmp_path, monkeypatch):
    write(
        tmp_path / "beside_it.py",
        "import colorsys\nclass Mine:\n    def collect(self, level, context):\n        pass\n",
    )
    write(tmp_path / "colorsys.py", "raise RuntimeError('a file of the user hides the standard library')\n")
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    before = list(sys.path)
    config = load_config(write(tmp_path / "c.yaml", entry("a", target="beside_it.Mine")))
    assert build_pipeline(config, Host(), ["process"]).names[-1] == "mine"
    assert sys.path == before


def test_a_configuration_travels_as_json_to_a_process_that_cannot_find_the_module_itself(tmp_path, monkeypatch):
    write(tmp_path / "package/far_away.py", "class Mine:\n    def collect(self, level, context):\n        return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "package"))
    config = load_config(write(tmp_path / "c.yaml", entry("a", target="far_away.Mine")))
    text = json.dumps(config.to_json())
    assert CollectorConfig.from_json(json.loads(text)).entries == config.entries
    code = (
        "import json, sys\n"
        "from jumper.monitor.pipeline import CollectorConfig, build_pipeline\n"
        "class Host: pid = uid = 1; process = slurm_job = node_info = None; interval = 1.0\n"
        "config = CollectorConfig.from_json(json.loads(sys.stdin.read()))\n"
        "print(build_pipeline(config, Host(), ['process']).names)\n"
        "assert not {'yaml', 'msgspec', 'pandas'} & set(sys.modules)\n"
    )
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.stderr == ""
    assert "'mine'" in done.stdout


def test_json_that_is_no_configuration_is_refused():
    with pytest.raises(CollectorConfigError, match=r"expected what CollectorConfig\.to_json gives"):
        CollectorConfig.from_json({"collectors": [{"name": "x"}]})
    with pytest.raises(CollectorConfigError, match="expected `process` as the first entry, found none"):
        build_pipeline(CollectorConfig(()), Host(), ["process"])
