"""What the repair says: before, the files, why, where, on what; after, what was installed; what it undoes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sgdoctor.fix import install, moe_report
from sgdoctor.fix.manifest import Record
from sgdoctor.fix.moe_plan import Plan
from sgdoctor.fix.tune_moe import Done, Task, Wish
from sgdoctor.report.layout import Line, flow, printable, words

_INDENT = 9


def before(
    plan: Plan, tasks: Iterable[Task], wish: Wish, width: int = 80, encoding: str = "utf-8"
) -> list[Line]:
    """Return what is going to be done for every task, and why other deployments are left alone."""
    shown: list[Line] = []
    for task in tasks:
        shown += flow(words(printable(_title(task), encoding), "title"), width)
        for label, text in _about(task, wish):
            shown += _labelled(label, text, width, encoding)
        shown.append([])
    for text in (*plan.complete, *plan.refused):
        shown += flow(words(printable(text, encoding)), width)
    return shown


def _title(task: Task) -> str:
    job = task.planned.job
    return (
        f"{', '.join(task.planned.deployments)} · SGLang {job.release} · Triton {job.triton} · {job.device}"
    )


def _about(task: Task, wish: Wish) -> list[tuple[str, str]]:
    job = task.planned.job
    up, down = task.files
    told = [("why", task.planned.why), ("makes", up.name), ("", down.name)]
    whose = f"the installed SGLang's folder for Triton {job.triton}: " if task.target.way == "install" else ""
    told.append(("in", f"{whose}{up.parent}"))
    first, *_, last = job.tokens
    told.append(("for", f"{len(job.tokens)} batch sizes, {first} to {last} tokens, against {job.today_is}"))
    if wish.ray is not None:
        told.append(("on", f"the free GPUs of the Ray cluster at {wish.ray}"))
    told += [("on", str(gpu)) for gpu in task.gpus]
    told.append(("takes", _takes(task, wish)))
    if task.obstacle is not None:
        told.append(("but", task.obstacle))
    return told


def _takes(task: Task, wish: Wish) -> str:
    memory = f"up to {task.needed_mib / 1024:.1f} GiB of memory on a GPU"
    if wish.tuner == "sglang":
        return f"hours: SGLang's own tuner tries every configuration; {memory}"
    return f"about {minutes(task.seconds)} ({wish.effort}); {memory}"


def minutes(seconds: float) -> str:
    """Return a time as people say it."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def after(done: Done, width: int = 80, encoding: str = "utf-8") -> list[Line]:
    """Return the report on one tuning and what became of its files."""
    shown = moe_report.lines(done.tuning, width, encoding)
    for note in done.notes:
        shown += _labelled("note", note, width, encoding)
    shown.append([])
    for label, text in _outcome(done):
        shown += _labelled(label, text, width, encoding)
    return shown


def _outcome(done: Done) -> list[tuple[str, str]]:
    if done.record is None:
        gain = (done.tuning.gain - 1) * 100
        return [("result", f"nothing was installed: {gain:.1f}% is less than the 1% that a file must gain")]
    names = [Path(file.path).name for file in done.record.manifest.files]
    told = [("wrote" if number == 0 else "", name) for number, name in enumerate(names)]
    if done.next_start is not None:
        told += [("next", sentence) for sentence in done.next_start.sentences]
    told.append(("undo", _undo(done)))
    return told


def _undo(done: Done) -> str:
    target = done.task.target
    folder = {
        "install": "",
        "output": f" --output {target.root}",
        "overlay": f" --overlay {target.root.parent}",
    }
    return f"sgdoctor fix --undo{folder[target.way]}"


def undoing(record: Record, width: int = 80, encoding: str = "utf-8") -> list[Line]:
    """Return what is going to be undone: when and for what it was installed, and each file."""
    job = record.manifest.about.get("job")
    what = job if isinstance(job, Mapping) else {}
    known = [
        f"{label}{what[name]}"
        for name, label in (("device", ""), ("release", "SGLang "), ("triton", "Triton "))
        if name in what
    ]
    title = " · ".join([f"undo the repair of {record.manifest.date}", *known])
    shown = flow(words(printable(title, encoding), "title"), width)
    for number, text in enumerate(install.would_undo(record)):
        shown += _labelled("will" if number == 0 else "", text, width, encoding)
    return [*shown, []]


def _labelled(label: str, text: str, width: int, encoding: str) -> list[Line]:
    return flow(words(printable(text, encoding)), width, _INDENT, [(label, "label")])


def planned_json(plan: Plan, tasks: Iterable[Task], wish: Wish) -> dict[str, Any]:
    """Return the plan as JSON takes it."""
    return {
        "planned": [_task_json(task, wish) for task in tasks],
        "complete": list(plan.complete),
        "refused": list(plan.refused),
    }


def _task_json(task: Task, wish: Wish) -> dict[str, Any]:
    return {
        "deployments": list(task.planned.deployments),
        "why": task.planned.why,
        "files": [str(file) for file in task.files],
        "batch_sizes": list(task.planned.job.tokens),
        "today": {"source": task.planned.job.source, "is": task.planned.job.today_is},
        "gpus": [gpu.uuid for gpu in task.gpus],
        "seconds": round(task.seconds, 1),
        "gpu_memory_mib": task.needed_mib,
        "effort": wish.effort,
        "obstacle": task.obstacle,
    }


def done_json(done: Done) -> dict[str, Any]:
    """Return one tuning and what became of it as JSON takes it."""
    next_start = done.next_start
    return {
        **moe_report.to_json(done.tuning),
        "deployments": list(done.task.planned.deployments),
        "installed": [file.path for file in done.record.manifest.files] if done.record else [],
        "next_start": None
        if next_start is None
        else {
            "ours": next_start.ours,
            "problems": list(next_start.problems),
            "sentences": list(next_start.sentences),
        },
        "notes": list(done.notes),
    }
