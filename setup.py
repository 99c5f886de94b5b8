"""The optional native pieces of the build; everything else stands in pyproject.toml.

Two things are compiled from ``ext/``: the extension modules of the native engine
and the small programs that start what is measured. Where that fails (no compiler, no
Cython, no Linux) the install goes on without, and ``jumper doctor`` says so.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from glob import glob
from pathlib import Path
from platform import machine
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, CompileError, ExecError

#: source -> program: the launcher of `jumper run`, and what starts the jobs of a workflow
PROGRAMS = {"ext/shim.c": "jumper/monitor/_shim", "ext/spawn.c": "jumper/monitor/_spawn"}
#: How a program is compiled and linked, best first. Static: smaller, and no loader that would obey the command's
#: LD_PRELOAD in here.
WAYS = [(["-O2", "-Wall"], ["-static", "-s"]), (["-O2", "-Wall"], ["-s"])]
#: Without a C library, where the program knows how: see ext/spawn.c.
BARE = (["-O2", "-Wall", "-DBARE", "-ffreestanding", "-fno-stack-protector"], ["-static", "-nostdlib", "-s"])
#: The stable ABI from this version on: one wheel for all later ones. Free-threaded builds have none.
STABLE_ABI = None if sysconfig.get_config_var("Py_GIL_DISABLED") else ("0x030B0000", "cp311")

#: Flags of code objects, which the headers of the stable ABI leave out: those of `inspect`, alike in all versions.
CODE_FLAGS = [
    ("CO_OPTIMIZED", "0x1"),
    ("CO_NEWLOCALS", "0x2"),
    ("CO_VARARGS", "0x4"),
    ("CO_VARKEYWORDS", "0x8"),
    ("CO_GENERATOR", "0x20"),
    ("CO_COROUTINE", "0x80"),
    ("CO_ASYNC_GENERATOR", "0x200"),
]


class BuildNative(build_ext):
    """Build the extension modules, then the programs beside the package that starts them."""

    def run(self) -> None:
        super().run()
        if sys.platform.startswith("linux") and self.compiler is not None:
            for source, program in PROGRAMS.items():
                self._build_program(source, program)

    def build_extension(self, ext: Any) -> None:
        try:
            super().build_extension(ext)
        except OSError as error:  # no compiler at all; only a failing one is tolerated by `optional`
            raise CompileError(str(error)) from error

    def get_outputs(self) -> list[str]:
        built = (Path(self.build_lib, program) for program in PROGRAMS.values())
        return [*super().get_outputs(), *(str(program) for program in built if program.exists())]

    def _build_program(self, source: str, program: str) -> None:
        target = Path(program) if self.inplace else Path(self.build_lib, program)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        compiler: Any = self.compiler
        for flags, link in [BARE, *WAYS] if "BARE" in Path(source).read_text() and machine() == "x86_64" else WAYS:
            try:
                objects = compiler.compile([source], output_dir=self.build_temp, extra_preargs=flags)
                compiler.link_executable(objects, target.name, output_dir=str(target.parent), extra_postargs=link)
                return
            except (CCompilerError, ExecError, OSError) as error:
                self.warn(f"the program {target.name} was not built ({' '.join(link)}): {error}")


class Wheel(bdist_wheel):
    """Name the wheel for one platform only where something was compiled for it."""

    def run(self) -> None:
        self.run_command("build")
        if not any(map(os.path.exists, self.get_finalized_command("build_ext").get_outputs())):
            self.distribution.ext_modules = None
            self.root_is_pure = True
        super().run()


def extensions() -> list[Extension]:
    """Return the extension modules, or none where Cython is missing."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    macros = [("Py_LIMITED_API", STABLE_ABI[0])] if STABLE_ABI else []
    modules = [
        Extension(
            "jumper.monitor.backends.native._engine",
            ["ext/engine.pyx", *sorted(glob("ext/native/*.c"))],
            depends=[*sorted(glob("ext/native/*.h")), "jumper/include/jumper_collector.h"],
            include_dirs=["ext", "jumper/include"],
            libraries=["pthread", "dl"],
            define_macros=macros,
            py_limited_api=bool(STABLE_ABI),
        ),
        Extension(
            "jumper.monitor._brief",
            ["ext/brief.pyx", "ext/native/parse.c"],
            depends=["ext/native/parse.h"],
            include_dirs=["ext"],
            define_macros=macros,
            py_limited_api=bool(STABLE_ABI),
        ),
        Extension(
            "jumper_dask._boundary",
            ["ext/boundary.pyx", "ext/native/parse.c"],
            depends=["ext/native/parse.h"],
            include_dirs=["ext"],
            define_macros=macros,
            py_limited_api=bool(STABLE_ABI),
        ),
    ]
    built: list[Extension] = cythonize(modules, build_dir="build/cython", language_level=3)
    for module in built:
        module.optional = True  # not a setting that cythonize carries over
        if STABLE_ABI:
            module.define_macros += CODE_FLAGS
            _ask_no_inspect(module.sources[0])
    return built


def _ask_no_inspect(source: str) -> None:
    """Let C that Cython made take CODE_FLAGS as they are: the import of `inspect` costs an agent 10 ms of its start."""
    path = Path(source)
    asking, not_asking = (f'PyImport_ImportModule("{module}")' for module in ("inspect", "sys"))
    if path.suffix == ".c" and asking in (text := path.read_text()):
        path.write_text(text.replace(asking, not_asking))


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildNative, "bdist_wheel": Wheel},
    options={"bdist_wheel": {"py_limited_api": STABLE_ABI[1]}} if STABLE_ABI else {},
)
