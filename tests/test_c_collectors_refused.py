"""Which libraries are no collectors in C, and which entries name none: each refused with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jumper.config.libraries import LEVELS, describe
from jumper.monitor.common import CollectorConfigError
from jumper.monitor.pipeline import CollectorConfig, load_config, load_config_text
from tests.clibrary import NEEDS, maker

pytestmark = NEEDS


@pytest.fixture
def entry(tmp_path: Path) -> Any:
    """See :func:`tests.clibrary.maker`."""
    return maker(tmp_path)


REFUSED = {
    "crashes on load": ({"LOAD": "raise(SIGSEGV)"}, r"mine\.library: .*mine\.so: load: it crashes \(SIGSEGV\)"),
    "ends the process": ({"LOAD": "_exit(7)"}, r"load: it ends the process \(status 7\)"),
    "has no symbol": ({"NO_SYMBOL": "1"}, r"does not export the function jumper_collector"),
    "is of another version": ({"ABI": "9"}, r"built for version 9 of jumper_collector\.h; this jumper has 1"),
    "returns nothing": ({"LOAD": "return NULL"}, r"jumper_collector\(\) returned NULL"),
    "serves no level": ({"LEVELS": "16"}, r"expected a sum of jumper_level as levels, found 16"),
    "crashes at setup": ({"SETUP": "abort()"}, r"setup: it crashes \(SIGABRT\)"),
    "fails at setup": ({"SETUP": "return ENODEV"}, r"setup: No such device"),
    "says why": ({"SETUP": 'snprintf(reason,size,"no meter"); return 1'}, r"setup: no meter"),
    "crashes at collect": ({"COLLECT": "raise(SIGBUS)"}, r"collect: it crashes \(SIGBUS\)"),
    "fails at collect": ({"COLLECT": "return EACCES"}, r"collect: Permission denied"),
    "writes too much": ({"COLLECT": "values[2]=0"}, r"collect: it writes more than its 2 values"),
    "has a column of ours": (
        {"COLUMNS": '{"rss_bytes","1",0},{"b","1",0}'},
        r"mine\.library: the column 'rss_bytes' is one of jumper's own",
    ),
    "has a column of a device": (
        {"COLUMNS": '{"cpu_util_3","1",0},{"b","1",0}'},
        r"the column 'cpu_util_3' is written by collectors\.cpu of built-in",
    ),
    "has a column twice": ({"COLUMNS": '{"a","1",0},{"a","1",0}'}, r"mine\.library: the column 'a' is named twice"),
    "has a column without a name": ({"COLUMNS": '{"a b","1",0},{"b","1",0}'}, r"as name of column 0, found 'a b'"),
    "has an unknown kind": ({"COLUMNS": '{"a","1",7},{"b","1",0}'}, r"a jumper_kind for the column a, found 7"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_library_is_refused_that(what: str, entry: Any) -> None:
    macros, said = REFUSED[what]
    with pytest.raises(CollectorConfigError, match=rf"mine\.yaml.*: collectors\.{said}" if "mine" in said else said):
        load_config(entry(**macros))


def test_a_library_that_hangs_is_refused(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumper.config.libraries.PATIENCE_S", 1.0)
    with pytest.raises(CollectorConfigError, match=r"setup: it gives no answer within 1 s"):
        load_config(entry(SETUP="pause()"))


def test_what_it_prints_is_no_answer(entry: Any) -> None:
    config = load_config(entry(SETUP='printf("half a line"); fflush(stdout)'))
    said = describe(config.entries[-1])
    assert (said.name, said.names, said.levels) == ("test", ("answer", "asked"), LEVELS["process"] | LEVELS["system"])


KEYS = {
    "a path that is not there": ("library: gone.so", r"mine\.library: .*gone\.so: No such file"),
    "a file that is no library": ("library: mine.yaml", r"mine\.library: .*mine\.yaml: .*(invalid ELF|too short)"),
    "a number": ("library: 3", r"mine\.library: expected text"),
    "nothing": ("library: ''", r"mine\.library: expected text|mine\.library: .*length"),
    "a target too": ("library: a.so, _target_: os.getpid", r"mine\._target_: a collector in C has none"),
    "a handler too": ("library: a.so, handler: {}", r"mine\.handler: a collector in C has none"),
    "an unknown key": ("library: a.so, confg: x", r"mine\.confg: unknown key; beside `library` there is `config`"),
    "a config that is no text": ("library: a.so, config: [1]", r"mine\.config: expected text"),
}


@pytest.mark.parametrize("what", KEYS)
def test_an_entry_is_refused_with(what: str, tmp_path: Path) -> None:
    keys, said = KEYS[what]
    file = tmp_path / "mine.yaml"
    file.write_text(f"collectors: {{mine: {{{keys}}}}}")
    with pytest.raises(CollectorConfigError, match=rf"mine\.yaml: collectors\.(?:{said})"):
        load_config(file)


def test_a_text_from_elsewhere_needs_a_whole_path() -> None:
    with pytest.raises(CollectorConfigError, match=r"mine\.library: expected an absolute path"):
        load_config_text("collectors: {mine: {library: mine.so}}", "elsewhere")
    with pytest.raises(CollectorConfigError, match=r"process.*cannot"):
        load_config_text("collectors: {process: {library: /mine.so}}", "elsewhere")
    config = load_config_text("collectors: {mine: {library: /no/such/mine.so}}", "elsewhere")
    assert CollectorConfig.from_json(config.to_json()).entries == config.entries
