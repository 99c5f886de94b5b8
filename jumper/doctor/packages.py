"""Checks of what is installed beside jumper: its extras, and Snakemake with our plugins and hook."""

from __future__ import annotations

import importlib.metadata
import pkgutil
import re

from jumper.doctor.check import Check

#: extra -> what it brings
EXTRAS = {
    "base": ("psutil", "pyyaml", "msgspec", "click", "rich"),
    "report": ("pandas", "pyarrow", "jinja2", "holoviews", "bokeh", "matplotlib"),
    "dask": ("dask", "distributed", "cloudpickle"),
    "snakemake": ("snakemake",),
    "gpu": ("nvidia-ml-py",),
    "ipython": ("ipython",),
}


def extra(name: str) -> Check:
    """Whether the packages of an extra are installed, with their versions."""
    found: list[str] = []
    lacking: list[str] = []
    for package in EXTRAS[name]:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            lacking.append(package)
    if not lacking:
        return Check("packages", name, "ok", ", ".join(found))
    install = "jumper-workflows" if name == "base" else f"'jumper-workflows[{name}]'"
    text = f"without {', '.join(lacking)}" + (f"; {', '.join(found)}" if found else "")
    return Check("packages", name, "missing", text, f"pip install {install}")


def snakemake_way() -> Check:
    """Which way measures the jobs of the Snakemake that is installed here."""
    version = _snakemake_version()
    if version is None:
        return Check("snakemake", "way", "none", "Snakemake is not installed here")
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found >= (9, 0):
        return Check("snakemake", "way", "ok", f"{version}: snakemake --logger jumper")
    if found >= (8, 30):
        return Check(
            "snakemake", "way", "ok", f"{version} has no logger plugins: jumper-snakemake run -- snakemake ..."
        )
    return Check("snakemake", "way", "missing", f"{version} is older than what we know", "upgrade it to 8.30 or newer")


def snakemake_plugins() -> Check:
    """Whether Snakemake finds our plugins: it walks sys.path, and does not see what an import hook serves."""
    if _snakemake_version() is None:
        return Check("snakemake", "plugins", "none", "Snakemake is not installed here")
    packages = {module.name for module in pkgutil.iter_modules() if module.ispkg}
    wanted = ("snakemake_logger_plugin_jumper", "snakemake_report_plugin_jumper")
    lacking = [name for name in wanted if name not in packages]
    if lacking:
        return Check(
            "snakemake", "plugins", "missing", f"not on sys.path: {', '.join(lacking)}",
            "install jumper-workflows in this environment; a development install with --config-settings "
            "editable_mode=compat",
        )  # fmt: skip
    return Check("snakemake", "plugins", "ok", "--logger jumper, --reporter jumper")


def snakemake_hook() -> Check:
    """Whether each name of Snakemake that ours stand in for is there and as expected."""
    if _snakemake_version() is None:
        return Check("snakemake", "hook", "none", "Snakemake is not installed here")
    from jumper_snakemake.hook import PATCHES, fault_of

    faults = [f"{fault}: {patch.without}" for patch in PATCHES if (fault := fault_of(patch)) is not None]
    if faults:
        return Check(
            "snakemake", "hook", "limited", "; ".join(faults), "upgrade jumper-workflows, or take an older Snakemake"
        )
    return Check("snakemake", "hook", "ok", ", ".join(patch.name for patch in PATCHES))


def _snakemake_version() -> str | None:
    try:
        return importlib.metadata.version("snakemake")
    except importlib.metadata.PackageNotFoundError:
        return None
