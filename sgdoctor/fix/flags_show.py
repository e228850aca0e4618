"""What `sgdoctor fix --flags` says: changes with their lines and rules, the diff, what is left and why."""

from __future__ import annotations

from collections.abc import Iterable

from sgdoctor import redact
from sgdoctor.fix.flags_plan import Change, Plan
from sgdoctor.fix.manifest import Record
from sgdoctor.report.layout import Line, flow, printable, words


def lines(plan: Plan, width: int = 80, encoding: str = "utf-8") -> list[Line]:
    """Return what is changed and what is not, each with its line, its rule and the reason."""
    shown: list[Line] = []
    if plan.undecided is not None:
        shown += [*_flowed(f"note: {plan.undecided}", width, encoding), []]
    parts = (
        (_made(plan), plan.changes),
        ("changes how the server runs (--unsafe does it, too)", plan.unsafe),
        ("not changed", plan.left),
    )
    for title, changes in parts:
        if changes:
            shown += [*_flowed(title, width, encoding, "title")]
            shown += [line for change in changes for line in _change(plan, change, width, encoding)]
            shown.append([])
    if not plan.changes:
        shown += _flowed(f"{plan.path}: no flag is changed", width, encoding)
    return shown


def _made(plan: Plan) -> str:
    return "to change" if plan.by_hand is None else f"to change by hand: {plan.by_hand}"


def _change(plan: Plan, change: Change, width: int, encoding: str) -> Iterable[Line]:
    what = printable(redact.text(change.what), encoding)
    said = f"{change.code}: {change.title}" + (f". {change.why}" if change.why else "")
    place = f"{plan.path}:{change.line}: "
    yield from flow([*words(place), *words(what, "command")], width, 4, [("  ", "")])
    yield from flow(words(printable(redact.text(said), encoding), "dim"), width, 4, [("    ", "")])


def _flowed(text: str, width: int, encoding: str, style: str = "") -> list[Line]:
    return flow(words(printable(text, encoding), style), width)


def end(plan: Plan, record: Record | None, encoding: str = "utf-8") -> list[Line]:
    """Return what became of the file, below the diff: what the check of it came to, written or not."""
    if plan.repaired is None:
        return []
    told = [""]
    if plan.hides():
        told.append(f"A line that holds a secret stands in the diff as {redact.REDACTED}.")
    gone = [code for code in plan.codes if code not in plan.still]
    told.append(
        "The repaired file was checked: "
        + f"{', '.join(gone)} no longer there, " * bool(gone)
        + f"{', '.join(plan.still)} still there for what is not changed, " * bool(plan.still)
        + "nothing new."
    )
    if record is None:
        told.append("Nothing was written: add --write.")
    else:
        told.append(f"Wrote {plan.path}; what it was: {record.folder}. Undo: sgdoctor fix --undo")
    return [[(printable(line, encoding), "")] for line in told]


def diff(plan: Plan, encoding: str = "utf-8") -> list[Line]:
    """Return the diff, a line each as it is: what is wrapped is no diff."""
    styles = {"+": "command", "-": "strong", "@": "dim"}
    return [[(printable(line, encoding), styles.get(line[:1], ""))] for line in plan.diff().split("\n")[:-1]]
