"""`sgdoctor fix --flags`: what a check recommends for the flags of a launch file, as changes of that file."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from sgdoctor import config, examine, gather
from sgdoctor.collect import installed_release, launch, launch_kinds
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.engine import rules as packs
from sgdoctor.engine import select as selection
from sgdoctor.engine.evaluate import subjects
from sgdoctor.engine.model import Finding
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.engine.suppress import Suppressor
from sgdoctor.errors import UsageError
from sgdoctor.fix import flags_apply, flags_wish, flags_write
from sgdoctor.fix.flags_apply import Script, Task, Use
from sgdoctor.fix.flags_plan import Change, Plan
from sgdoctor.fix.flags_wish import Wish
from sgdoctor.report.model import DeploymentReport
from sgdoctor.sources import Sources
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Release

Say = Callable[[str], None]

_WHAT = {"unit": "a systemd unit", "dockerfile": "a Dockerfile", "yaml": "a YAML file"}


class _Judged(msgspec.Struct):
    """The servers of a launch file, what is found on each, and the release whose flags it takes."""

    commands: list[LaunchCommand]
    reports: list[DeploymentReport]
    releases: list[Release]
    undecided: str | None


def plan(sources: Sources, *, unsafe: bool = False, say: Say = lambda _what: None) -> Plan:
    """Return what can be changed in the launch file of ``sources``, without writing anything.

    ``unsafe``: also what changes how the server runs. Raises UsageError for a file that cannot be read, and
    when the repaired file does not pass the check for what was repaired.
    """
    path = Path(sources.launch or "")
    flags_write.refuse_no_file(path)
    text = launch.read_text(path)
    rules, suppressor = _rules()
    judged = _judge(sources, rules, suppressor, say)
    by_hand = _by_hand(text)
    made, left, later = [], [], []
    script = Script(text, str(path), path.parent)
    for one in _tasks(judged):
        task, elsewhere = _without_configured(judged, one)
        left += elsewhere
        wish = task.wish
        if wish.kind == "leave":
            left += _told(judged, task)
        elif not (wish.safe or unsafe):
            later += _told(judged, task)
        else:
            script, parts = _carried_out(script, judged, task, by_hand)
            for part, reason in parts:
                changes = _told(judged, part)
                made += changes if reason is None else []
                left += [msgspec.structs.replace(each, why=reason) for each in changes if reason is not None]
    repaired = script.text if script.text != text else None
    found = Plan(
        path, text, _in_order(made), _in_order(left), _in_order(later), repaired, by_hand, judged.undecided
    )
    if repaired is not None:
        say("checking the repaired file")
        still = _must_pass(found, judged, _judge_text(sources, repaired, rules, suppressor))
        found = msgspec.structs.replace(found, still=still)
    return found


def _carried_out(
    script: Script, judged: _Judged, task: Task, by_hand: str | None
) -> tuple[Script, list[tuple[Task, str | None]]]:
    """Return the script with the task done, and why it is not: for each server where not for all at once."""
    if by_hand is not None:
        return script, [(task, _in_the_way(judged, task))]
    changed, reason = flags_apply.carry_out(script, task)
    if reason is None or len(task.wanted) == 1:
        return changed, [(task, reason)]
    parts = []
    for at, release in task.wanted.items():
        part = Task(task.wish, {at: release})
        script, reason = flags_apply.carry_out(script, part)
        parts.append((part, reason))
    return script, parts


def _by_hand(text: str) -> str | None:
    """Return why a launch file is not rewritten, null for one that is."""
    if "\r\n" in text:
        return "a file with Windows line ends is not rewritten (dos2unix)"
    kind = launch_kinds.kind_of(text)
    return None if kind == "script" else f"{_WHAT[kind]} is not rewritten"


# --- what is found ------------------------------------------------------------------------------------------


def _rules() -> tuple[list[CompiledRule], Suppressor | None]:
    """Return the rules that `sgdoctor check` would hold against the file here, its settings followed."""
    settings = config.found(Path())
    choice = config.chosen(settings, fail_on=None, select=(), ignore=(), rules=())
    pack = packs.load(choice.rules)
    rules = selection.select(pack, choice.select, choice.ignore)
    if settings is None:
        return list(rules), None
    return list(rules), Suppressor(settings, pack, dt.datetime.now(dt.timezone.utc).date())


def _judge(
    sources: Sources, rules: Sequence[CompiledRule], suppressor: Suppressor | None, say: Say
) -> _Judged:
    gathered = gather.gather(sources, {}, say)
    reports = [examine.judge(each, rules, sources, suppressor) for each in gathered]
    releases, undecided = [], None
    for each in gathered:
        release = installed_release.in_use(each.facts)
        if release is None:
            undecided = (
                "the release of SGLang is not known, so most rules on flags are undecided: add --python, "
                "--environment or --assume sglang.version=0.5.12"
            )
        releases.append(release or _newest())
    return _Judged([each.command for each in gathered], reports, releases, undecided)


def _newest() -> Release:
    release = catalogue.resolve(catalogue.releases()[-1])
    assert release is not None  # noqa: S101 (a release of the catalogue)
    return release


def _judge_text(
    sources: Sources, text: str, rules: Sequence[CompiledRule], suppressor: Suppressor | None
) -> _Judged:
    """Judge the repaired text as `_judge` does the file, from a copy; its neighbours are linked beside it."""
    path = Path(sources.launch or "")
    with tempfile.TemporaryDirectory(prefix="sgdoctor-fix-") as folder:
        copy = Path(folder) / path.name
        try:
            for neighbour in path.absolute().parent.iterdir():
                if neighbour.name != path.name:
                    (Path(folder) / neighbour.name).symlink_to(neighbour)
            copy.write_bytes(text.encode())
        except OSError as error:
            raise UsageError(
                f"the repaired file could not be checked: {error}; nothing was written"
            ) from None
        return _judge(
            msgspec.structs.replace(sources, launch=str(copy)), rules, suppressor, lambda _what: None
        )


def _must_pass(found: Plan, before: _Judged, after: _Judged) -> tuple[str, ...]:
    """Return the codes that were followed and are still found, for what is not changed.

    Raises UsageError when the repaired file still has what was repaired, or has what it had not.
    """
    kept = {change.code for change in (*found.left, *found.unsafe)}
    still = dict[str, None]()
    for old, new in zip(before.reports, after.reports, strict=True):
        known = {finding.code for finding in old.findings}
        followed = [finding for finding in new.findings if finding.code in found.codes]
        wrong = {finding.code for finding in new.findings if finding.code not in known}
        wrong |= {one.code for one in followed if one.code not in kept and _repaired(found, one)}
        if wrong:
            raise UsageError(
                f"{found.path}: the repaired file would have {', '.join(sorted(wrong))}; nothing was "
                "written. sgdoctor check says what to do by hand"
            )
        still.update(dict.fromkeys(finding.code for finding in followed))
    return tuple(still)


def _repaired(found: Plan, finding: Finding) -> bool:
    """Whether a finding is about something that was repaired; one that names nothing may be."""
    named = {text.partition("=")[0] for text in subjects(finding)}
    done = {change.before.split()[0].partition("=")[0] for change in found.changes if change.before}
    return not named or bool(named & done)


# --- what to do ---------------------------------------------------------------------------------------------


def _tasks(judged: _Judged) -> list[Task]:
    """Return what is to be changed, the worst first, and in which commands; one change for each flag."""
    wishes: dict[Wish, dict[int, Release]] = {}
    for at, (command, report) in enumerate(zip(judged.commands, judged.reports, strict=True)):
        release, taken = judged.releases[at], set[str]()
        written = flags_wish.written(command, release)
        for finding in (one for one in report.findings if one.confidence != "low"):
            for wish in flags_wish.of(finding, written, release):
                if wish.option not in taken:
                    taken.add(wish.option)
                    wishes.setdefault(wish, {})[at] = release
    return [Task(wish, wanted) for wish, wanted in wishes.items()]


def _without_configured(judged: _Judged, task: Task) -> tuple[Task, list[Change]]:
    """Return the task without the commands that have the flag from the file of --config, and those told."""
    wish, wanted, told = task.wish, dict(task.wanted), []
    for at, release in task.wanted.items():
        command = judged.commands[at]
        written = flags_wish.written(command, release)
        if not flags_apply.uses(command, wish, release) and any(wish.means(one, release) for one in written):
            why = "it comes from the file of --config"
            told.append(Change(command.line, wish.option, None, wish.code, _title(judged, task), why))
            del wanted[at]
    return Task(wish, wanted), told


def _told(judged: _Judged, task: Task) -> list[Change]:
    """Return the changes that a task makes in the file as it is."""
    wish, changes = task.wish, dict[tuple[int, str], Change]()
    for at, release in task.wanted.items():
        command = judged.commands[at]
        for use in flags_apply.open_uses(command, wish, release):
            line = use.line if use is not None else _end(command)
            before = use.written.text if use is not None else ""
            title = _title(judged, task)
            changes[line, before] = Change(line, before, _after(use, wish), wish.code, title, wish.why)
    return [*changes.values()]


def _title(judged: _Judged, task: Task) -> str:
    findings = (one for at in task.wanted for one in judged.reports[at].findings)
    return next(one.title for one in findings if one.code == task.wish.code)


def _end(command: LaunchCommand) -> int:
    """Return the line where the last word of a command stands, or the command itself."""
    return max((word.line for word in command.words), default=0) or command.line


def _after(use: Use | None, wish: Wish) -> str | None:
    """Return what becomes of a use, null for one that is left."""
    if use is None:
        return wish.written
    if wish.kind == "rename":
        return wish.to + use.written.text[len(use.written.option) :]
    if wish.kind == "set":
        joint = "=" if use.count == 1 else " "
        return f"{use.written.option}{joint}{wish.to}"
    return "" if wish.kind == "remove" else None


def _in_the_way(judged: _Judged, task: Task) -> str | None:
    for at, release in task.wanted.items():
        command = judged.commands[at]
        for use in flags_apply.open_uses(command, task.wish, release):
            reason = flags_apply.obstacle(command, use, task.wish, release)
            if reason is not None:
                return reason
    return None


def _in_order(changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes by their lines; what several servers share is told once."""
    return tuple(sorted(dict.fromkeys(changes), key=lambda change: change.line))
