"""What `sgdoctor fix --flags --format json` says: docs/fix-flags.schema.json is made from these structs."""

from __future__ import annotations

from typing import Literal

import msgspec

from sgdoctor import redact
from sgdoctor.fix.flags_plan import Change, Plan
from sgdoctor.fix.manifest import Record

SCHEMA: Literal["sgdoctor-fix-flags-1"] = "sgdoctor-fix-flags-1"

State = Literal["repaired", "by-hand", "unsafe", "left"]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One change of one flag, asked for by ``rule``; ``line`` is where it stands, or where it is to stand.

    ``before`` is the flag as it stands there (null: it is added), ``after`` what it becomes (null: it is
    taken out, or nothing is done). ``state``: repaired, in the text that --write writes; by-hand, as this
    file is not rewritten; unsafe, what only --unsafe does; left, with the reason in ``why``. ``written``:
    whether it is in the file now.
    """

    rule: str
    title: str
    line: int
    before: str | None
    after: str | None
    state: State
    written: bool
    why: str


class FlagsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What can be done for a launch file, and whether it was.

    ``diff`` is that of the file without its secrets, empty where nothing is repaired. ``backup`` is the
    folder that keeps what the file was. ``still_found`` are rules that were followed and find something in
    the repaired text, too: what is not changed. ``by_hand`` says why the file is not rewritten,
    ``undecided`` why rules on flags could not be decided.
    """

    schema: Literal["sgdoctor-fix-flags-1"]
    file: str
    written: bool
    backup: str | None
    by_hand: str | None
    undecided: str | None
    edits: tuple[Edit, ...]
    still_found: tuple[str, ...]
    diff: str


def report(plan: Plan, record: Record | None) -> FlagsReport:
    """Return the report of a plan; ``record`` is that of the repair where it was written."""
    parts: tuple[tuple[State, tuple[Change, ...]], ...] = (
        ("repaired" if plan.by_hand is None else "by-hand", plan.changes),
        ("unsafe", plan.unsafe),
        ("left", plan.left),
    )
    return FlagsReport(
        schema=SCHEMA,
        file=str(plan.path),
        written=record is not None,
        backup=str(record.folder) if record is not None else None,
        by_hand=plan.by_hand,
        undecided=plan.undecided,
        edits=tuple(
            _edit(change, state, written=record is not None and state == "repaired")
            for state, changes in parts
            for change in changes
        ),
        still_found=plan.still,
        diff=plan.diff(),
    )


def _edit(change: Change, state: State, *, written: bool) -> Edit:
    before, after = (redact.text(text) if text else None for text in (change.before, change.after))
    return Edit(
        rule=change.code,
        title=change.title,
        line=change.line,
        before=before,
        after=after,
        state=state,
        written=written,
        why=redact.text(change.why),
    )
