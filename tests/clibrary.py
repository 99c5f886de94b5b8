"""A collector in C for tests, whose parts they replace by macros, and the compiler's line that builds it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jumper.config import get_include

COMPILER = shutil.which("cc")
NEEDS = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the native engine is for Linux"),
]

SOURCE = """
#include <errno.h>
#include <signal.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "jumper_collector.h"
#ifndef COLUMNS
#define COLUMNS {"answer", "1", JUMPER_GAUGE}, {"asked", "1", JUMPER_COUNTER}
#endif
#ifndef SETUP
#define SETUP
#endif
#ifndef COLLECT
#define COLLECT
#endif
#ifndef LOAD
#define LOAD
#endif
#ifndef LEVELS
#define LEVELS JUMPER_PROCESS | JUMPER_SYSTEM
#endif
#ifndef ABI
#define ABI JUMPER_COLLECTOR_ABI
#endif
struct state { double start, asked; char file[256]; };
static int setup(const char *config, unsigned level, void **out, char *reason, size_t size)
{
    (void)level, (void)reason, (void)size;
    struct state *state = calloc(1, sizeof *state);
    state->start = atof(config);
    snprintf(state->file, sizeof state->file, "%s", config);
    *out = state;
    SETUP;
    return 0;
}
static int collect(void *mine, unsigned level, const int *pids, size_t count, double *values)
{
    (void)level, (void)pids, (void)count;
    struct state *state = mine;
    values[0] = state->start;
    values[1] = ++state->asked;
    COLLECT;
    return 0;
}
static void teardown(void *state) { free(state); }
static const struct jumper_column columns[] = {COLUMNS};
static const struct jumper_collector collector = {
    .abi = ABI, .levels = LEVELS, .name = "test", .columns = columns,
    .column_count = sizeof columns / sizeof *columns, .setup = setup, .collect = collect, .teardown = teardown};
#ifndef NO_SYMBOL
const struct jumper_collector *jumper_collector(void) { LOAD; return &collector; }
#endif
"""


def build(source: Path, library: Path, **macros: str) -> Path:
    defined = [f"-D{name}={value}" for name, value in macros.items()]
    subprocess.run(
        [str(COMPILER), "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-function", "-Wno-unused-variable", "-Werror",
         "-shared", "-fPIC", f"-I{get_include()}", *defined, "-o", library, source], check=True,
    )  # fmt: skip
    return library


def maker(folder: Path) -> Callable[..., Path]:
    """Return what builds the collector there, by these macros, and the file that names it; that gives the file."""

    def make(config: str = "42", **macros: str) -> Path:
        source = folder / "mine.c"
        source.write_text(SOURCE)
        build(source, folder / "mine.so", **macros)
        file = folder / "mine.yaml"
        file.write_text(f"collectors:\n  mine:\n    library: mine.so\n    config: '{config}'\n")
        return file

    return make
