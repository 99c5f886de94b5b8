"""The sentences of the page: key figures, what the pictures show, and what the page leaves out."""

from __future__ import annotations

from typing import Any

import numpy as np

from jumper.analysis.tables import times
from jumper.analysis.timeline import FAR_NS, OUTSIDE
from jumper.analysis.units import counted, digits, human_bytes, human_seconds, percent
from jumper.report.data import RunRows, Stack
from jumper.report.elements import MOST_BARS
from jumper.report.theme import Theme


def key_figures(rows: RunRows, key: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the key figures of a run and what they are; those that are not known are left out."""
    bad = key["failed"] + key["lost"]
    words = ("task, " if key["attempts"] == 1 else "tasks, ") + (f"{bad:,} failed or lost" if bad else "none failed")
    words += f", {key['running']:,} running" if key["running"] else ""
    out = [(human_seconds(key["wall_s"]), "wall time"), (f"{key['attempts']:,}", words)]
    if key["nodes"]:
        memory = sum(float(node.get("memory_bytes") or 0) for node in rows.run.nodes.values())
        parts = ["node" if key["nodes"] == 1 else "nodes", f"{key['cores']:,} CPUs" if key["cores"] else "",
                 human_bytes(memory) if memory else "", f"{len(rows.gpus)} GPUs" if rows.gpus else ""]  # fmt: skip
        out.append((f"{key['nodes']:,}", ", ".join(part for part in parts if part)))
    outside = key["tasks_cpu_s"] is not None and key["cpu_s"] > 1.05 * key["tasks_cpu_s"]
    inside = f", {human_seconds(key['tasks_cpu_s'])} of it in tasks" if outside else ""
    out.append((human_seconds(key["cpu_s"]), f"CPU time{inside}"))
    if key["busy_cores"] is not None:
        part = key["busy_cores"] / key["cores"] if key["cores"] else None
        out.append((digits(key["busy_cores"]), "cores busy" + (f", {part:.0%} of all" if part is not None else "")))
    if key["memory_used_share"] is not None:
        out.append((percent(key["memory_used_share"]), "of the memory asked for was used"))
    out.append((human_bytes(key["memory_peak_bytes"]), "highest memory peak of a task"))
    if rows.gpus:
        with np.errstate(all="ignore"):
            out.append((f"{np.nanmean(np.vstack(list(rows.gpus.values()))):.0f} %", "mean GPU utilisation"))
    for name, words in (("read", "read"), ("write", "written")):
        stored, called = key[f"{name}_bytes"], key[f"{name}_chars"]
        if stored or called:
            out.append((human_bytes(stored or called), f"{words} {'on storage' if stored else 'through system calls'}"))
    return [(figure, words) for figure, words in out if figure]


def calm(key: dict[str, Any]) -> str:
    """Return the first sentence of a run in which nothing is to be changed."""
    if not key["attempts"]:
        return "This run has no tasks."
    bad = key["failed"] + key["lost"]
    return "Nothing stands out that a change would mend" + ("." if bad else ", and no task failed.")


def marks(rows: RunRows, theme: Theme) -> dict[str, str]:
    """Return what else the colours of the timeline mean, as far as it is there."""
    out = {}
    stacks = [stack for stack in (rows.cpu, rows.memory) if stack is not None]
    if any(OUTSIDE in stack.layers for stack in stacks):
        out[OUTSIDE] = theme.outside
    unseen = any(stack.missing is not None and stack.missing.any() for stack in stacks)
    if unseen or any(np.isnan(line).any() for line in (*rows.node_cpu.values(), *rows.gpus.values())):
        out["no samples"] = theme.gap
    return out


def in_words(rows: RunRows) -> list[str]:
    """Return what each picture of the timeline shows as one sentence."""
    out = []
    if len(rows.bars):
        out.append(f"Tasks: {counted(len(rows.bars), 'attempt')} on {counted(len(rows.node_rows), 'node')}; up to "
                   f"{rows.running.max():.0f} at once, {int(rows.bars['bad'].sum()):,} failed or lost.")  # fmt: skip
    for title, stack, say in (("CPU", rows.cpu, _cores), ("Memory", rows.memory, human_bytes)):
        if stack is not None:
            out.append(f"{title}: {_of_stack(rows, stack, say)}.")
    for title, source in (("Storage I/O", ("process", "read_bytes", "write_bytes")),
                          ("I/O through system calls", ("process", "read_chars", "write_chars")),
                          ("Network", ("system", "net_recv_bytes", "net_sent_bytes"))):  # fmt: skip
        moved = rows.transfer(*source)
        if moved is not None:
            inward, outward = (f"{human_bytes(line.max())}/s at {_at(rows, line)}" for line in moved)
            out.append(f"{title}: in at most {inward}, out at most {outward}.")
    for title, lines in (("GPUs", rows.gpus), ("CPU of the nodes", rows.node_cpu)):
        for name, line in list(lines.items())[:MOST_LINES]:
            missing = np.isnan(line)
            known = "no samples at all" if missing.all() else f"busy {np.nanmean(line):.0f} % on average{_gap(missing)}"
            out.append(f"{title}, {name}: {known}.")
        if len(lines) > MOST_LINES:
            out.append(f"{title}: {len(lines) - MOST_LINES:,} more.")
    return out


#: Nodes and devices that are told one by one.
MOST_LINES = 20


def _of_stack(rows: RunRows, stack: Stack, say: Any) -> str:
    total = np.sum(list(stack.layers.values()), axis=0)
    share = {name: float(line.sum() / total.sum()) for name, line in stack.layers.items() if total.sum()}
    parts = [f"{name} {part:.0%}" for name, part in sorted(share.items(), key=lambda item: -item[1])[:3]]
    mean = float(total.mean() if stack.missing is None else total[~stack.missing].mean())
    text = f"at most {say(total.max())} at {_at(rows, total)}, {say(mean)} on average ({', '.join(parts)})"
    if stack.asked is not None:
        text += f"; at most {say(stack.asked.max())} asked for"
    if stack.missing is not None:
        text += _gap(stack.missing)
    return text + (f"; {stack.capacity_label}" if stack.capacity_label else "")


def _gap(missing: Any) -> str:
    """Return how much of the time has no samples, or nothing where that is little."""
    share = float(missing.mean())
    return f", no samples in {share:.0%} of the time" if share > 0.005 else ""


def _cores(value: float) -> str:
    return f"{digits(value)} cores"


def _at(rows: RunRows, line: Any) -> str:
    return str(rows.time[int(np.nanargmax(line))])[11:19]


def notes(rows: RunRows, attempts: dict[str, Any]) -> list[str]:
    """Return what the page leaves out."""
    notes = []
    total, drawn = attempts["total"], len(rows.bars)
    if rows.folded:
        lanes = max(end for _, end in rows.node_rows.values())
        notes.append(f"{drawn:,} attempts on {lanes:,} lanes: a row stands for several lanes and shows the group that "
                     "held them longest; those that failed are drawn one by one.")  # fmt: skip
    elif drawn > MOST_BARS:
        notes.append(f"The {MOST_BARS:,} longest and failed of {drawn:,} attempts are drawn one by one; for the others "
                     "each lane shows the group that held it longest.")  # fmt: skip
    if drawn < total:
        notes.append(f"{total - drawn:,} attempts have no start time and are not drawn.")
    start = times(rows.run.tasks, "start_ns")
    far = int(((start > 0) & ((start < rows.grid.start_ns - FAR_NS) | (start > rows.grid.stop_ns + FAR_NS))).sum())
    if far:
        notes.append(f"{far:,} attempts lie more than a month from the others, by a clock that jumped; they are in the "
                     "tables, and not drawn.")  # fmt: skip
    if rows.silent and len(rows.silent) < node_count(rows):
        names = ", ".join(rows.silent[:5]) + (f" and {len(rows.silent) - 5:,} more" if len(rows.silent) > 5 else "")
        notes.append(f"No samples came from {names}.")
    elif rows.silent and total:
        notes.append("This run has no samples: what is shown comes from the records of its tasks alone.")
    if len(attempts["number"]) < total:
        notes.append(f"The table holds the {len(attempts['number']):,} longest and failed of {total:,} attempts; "
                     "all of them are in tasks.parquet of the run.")  # fmt: skip
    return notes


def left_out(total: int, shown: int, what: str, which: str) -> str:
    """Return what a table leaves out, or nothing."""
    return f"{shown:,} of {total:,} {what}: those with {which}." if shown < total else ""


def node_count(rows: RunRows) -> int:
    """Return how many nodes are known or ran attempts."""
    return len({*rows.run.nodes, *rows.node_rows} - {"", "(no node)"}) if len(rows.bars) else len(rows.run.nodes)
