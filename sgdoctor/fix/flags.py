"""`sgdoctor fix --flags`: what a check recommends for the flags of a launch file, as changes of that file."""

from __future__ import annotations

import datetime as dt
import difflib
import io
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from sgdoctor import config, examine, gather, redact
from sgdoctor.collect import installed_release, launch, launch_kinds
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.engine import rules as packs
from sgdoctor.engine import select as selection
from sgdoctor.engine.model import Finding
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.engine.suppress import Suppressor
from sgdoctor.errors import UsageError
from sgdoctor.fix import flags_apply, flags_secrets, flags_wish, install, manifest
from sgdoctor.fix.flags_apply import Script, Use
from sgdoctor.fix.flags_wish import Wish
from sgdoctor.fix.manifest import Record
from sgdoctor.report.model import DeploymentReport
from sgdoctor.sources import Sources
from sgdoctor.target import command as commands
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.catalogue import Release

Say = Callable[[str], None]

_WHAT = {"unit": "a systemd unit", "dockerfile": "a Dockerfile", "yaml": "a YAML file"}


class Change(msgspec.Struct, frozen=True):
    """One change: the line where the flag stands, what is done to it, the rule that asks for it, a remark."""

    line: int
    what: str
    code: str
    title: str
    why: str = ""


class Plan(msgspec.Struct, frozen=True):
    """What can be done for a launch file.

    ``repaired`` is its new text, null where nothing is changed; ``changes`` are in it, or, where ``by_hand``
    says why the file is not written, to be made by hand. ``left`` are changes that are not made, with the
    reason; ``unsafe`` those that --unsafe makes. ``undecided``: why rules on flags could not be decided.
    """

    path: Path
    text: str
    changes: tuple[Change, ...]
    left: tuple[Change, ...] = ()
    unsafe: tuple[Change, ...] = ()
    repaired: str | None = None
    by_hand: str | None = None
    undecided: str | None = None

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the rules whose advice is followed, each once."""
        return tuple(dict.fromkeys(change.code for change in self.changes))

    def diff(self) -> str:
        """Return the change of the file as a unified diff without its secrets, empty when there is none."""
        if self.repaired is None:
            return ""
        name = str(self.path)
        texts = [Script(text, name, self.path.parent) for text in (self.text, self.repaired)]
        before, after = map(_shown, texts)
        found = difflib.unified_diff(before, after, name, name)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found
        )


def _shown(script: Script) -> list[str]:
    """Return the lines of a script without secrets: a line with one that only its reader sees is hidden."""
    whole = flags_secrets.lines(script.text.encode())
    secret = {
        word.line for command in script.commands() for word in command.words if redact.REDACTED in word.text
    }
    shown = []
    for number, line in enumerate(io.StringIO(script.text), 1):  # splitlines() knows other ends of lines
        told = redact.text(line)
        hidden = number in whole or (told == line and number in secret)
        shown.append(f"{redact.REDACTED}\n" if hidden else told)
    return shown


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
    text = launch.read_text(path)
    rules, suppressor = _rules()
    judged = _judge(sources, rules, suppressor, say)
    wishes = _wishes(judged)
    kind = launch_kinds.kind_of(text)
    by_hand = f"{_WHAT[kind]} is not rewritten" if kind != "script" else None
    if "\r\n" in text:
        by_hand = "a file with Windows line ends is not rewritten (dos2unix)"
    made, left, later = [], [], []
    script = Script(text, str(path), path.parent)
    for wish, wanted in wishes.items():
        changes = _told(judged, wish, wanted)
        if not changes:
            left += _elsewhere(judged, wish, wanted)
            continue
        if wish.kind != "leave" and not (wish.safe or unsafe):
            later += changes
            continue
        reason: str | None = wish.why if wish.kind == "leave" else None
        if reason is None and by_hand is not None:
            reason = _in_the_way(judged, wish, wanted)
        elif reason is None:
            script, reason = flags_apply.carry_out(script, wish, wanted)
        if reason is None:
            made += changes
        else:
            left += [msgspec.structs.replace(change, why=reason) for change in changes]
    repaired = script.text if script.text != text else None
    found = Plan(
        path, text, _in_order(made), _in_order(left), _in_order(later), repaired, by_hand, judged.undecided
    )
    if repaired is not None:
        say("checking the repaired file")
        _must_pass(found, judged, _judge_text(sources, repaired, rules, suppressor))
    return found


def write(found: Plan) -> Record:
    """Write the repaired file, all of it or nothing, and record what was there; return the record.

    Raises UsageError when the file was changed meanwhile or cannot be written.
    """
    assert found.repaired is not None  # noqa: S101 (the caller asks before)
    path = Path(os.path.realpath(found.path))
    try:
        before = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{found.path}: {error.strerror or error}; nothing was written") from None
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    if before != mark + found.text.encode():
        raise UsageError(
            f"{found.path} was changed while it was looked at; nothing was written, run it again"
        )
    about = {"flags": {"file": str(path), "codes": list(found.codes)}}
    return install.install({path: mark + found.repaired.encode()}, manifest.state_folder(), about)


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


def _must_pass(found: Plan, before: _Judged, after: _Judged) -> None:
    """Raise UsageError when the repaired file still has what was repaired, or has what it had not."""
    for old, new in zip(before.reports, after.reports, strict=True):
        known = {finding.code for finding in old.findings}
        wrong = {finding.code for finding in new.findings if finding.code not in known}
        wrong |= {finding.code for finding in new.findings if finding.code in _followed(found, old)}
        if wrong:
            raise UsageError(
                f"{found.path}: the repaired file would have {', '.join(sorted(wrong))}; nothing was "
                "written. sgdoctor check says what to do by hand"
            )


def _followed(found: Plan, report: DeploymentReport) -> set[str]:
    """Return the codes of which all that was found on a server was repaired."""
    kept = {change.code for change in (*found.left, *found.unsafe)}
    return {finding.code for finding in report.findings if finding.code in found.codes} - kept


# --- what to do ---------------------------------------------------------------------------------------------


def _wishes(judged: _Judged) -> dict[Wish, dict[int, Release]]:
    """Return what is to be changed, the worst first, and in which commands; one change for each flag."""
    wishes: dict[Wish, dict[int, Release]] = {}
    for at, (command, report) in enumerate(zip(judged.commands, judged.reports, strict=True)):
        release, taken = judged.releases[at], set[str]()
        written = commands.read(command, release).written
        for finding in (one for one in report.findings if one.confidence != "low"):
            for wish in flags_wish.of(finding, written, release):
                if wish.option not in taken:
                    taken.add(wish.option)
                    wishes.setdefault(wish, {})[at] = release
    return wishes


def _told(judged: _Judged, wish: Wish, wanted: Mapping[int, Release]) -> list[Change]:
    """Return the changes that a wish makes in the file as it is."""
    title = _finding(judged, wish, wanted).title

    def tell(use: Use) -> str:
        if wish.kind == "remove":
            return f"remove {use.written.text}"
        if wish.kind == "rename":
            return f"{use.written.option} becomes {wish.to}"
        return f"{use.written.text} becomes {use.written.option} {wish.to}" if wish.to else use.written.text

    found = flags_apply.each_use(judged.commands, wish, wanted, tell)
    return [Change(line, what, wish.code, title, wish.why) for line, what in found]


def _elsewhere(judged: _Judged, wish: Wish, wanted: Mapping[int, Release]) -> list[Change]:
    """Return what a wish asks of a flag that the file does not have: a configuration file may, or none."""
    title = _finding(judged, wish, wanted).title
    for at, release in wanted.items():
        command = judged.commands[at]
        if any(wish.means(each, release) for each in commands.read(command, release).written):
            why = "it comes from the file of --config"
            return [Change(command.line, f"{wish.kind} {wish.option}", wish.code, title, why)]
        if wish.kind == "set":
            what = f"add {wish.option} {wish.to}"
            return [Change(command.line, what, wish.code, title, "flags are not added")]
    return []


def _finding(judged: _Judged, wish: Wish, wanted: Mapping[int, Release]) -> Finding:
    return next(one for at in wanted for one in judged.reports[at].findings if one.code == wish.code)


def _in_the_way(judged: _Judged, wish: Wish, wanted: Mapping[int, Release]) -> str | None:
    for at, release in wanted.items():
        for use in flags_apply.uses(judged.commands[at], wish, release):
            reason = flags_apply.obstacle(judged.commands[at], use, wish, release)
            if reason is not None:
                return reason
    return None


def _in_order(changes: Sequence[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: change.line))
