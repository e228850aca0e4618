"""What the gate's other process does: the check itself, and what it comes to for a launch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sgdoctor import config, redact, what_if
from sgdoctor.collect import inherited, launch
from sgdoctor.engine import rules as packs
from sgdoctor.engine import select as selection
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.examine import check
from sgdoctor.facts import Facts
from sgdoctor.gate.guard import INTERNAL, UNDECIDED, USAGE, Answer, Progress
from sgdoctor.report.model import CLEAN, FOUND, FailOn, Report, exit_code
from sgdoctor.sources import Sources
from sgdoctor.vocabulary import rules_root

_SWITCH_OFF = "SGDOCTOR_GATE=off launches all the same"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of the gate, save what it does with the answer."""

    command: tuple[str, ...]
    fail_on: FailOn | None = None
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    rules: Sequence[Path] = ()
    config: Path | None = None
    sources: Sources = Sources()


def judge(asked: Asked, say: Progress) -> Answer:
    """Check the command on this machine. Options that cannot be meant block, files that are wrong do not."""
    say("reading the command")
    words = inherited.written_out(asked.command, os.environ)
    try:
        launch.parse_command(words)
    except UsageError as error:
        return Answer(UNDECIDED, f"nothing checked: {_said(error).partition(' (looked for')[0]}")
    sources = msgspec.structs.replace(asked.sources, command=words, inherits=True)
    try:
        settings, choice = _chosen(asked)
        report = check(
            sources,
            select=choice.select,
            ignore=choice.ignore,
            rules=choice.rules,
            config=settings,
            progress=say,
        )
    except packs.RulePackError as error:
        own = error.path.is_relative_to(rules_root())
        return Answer(INTERNAL if own else USAGE, f"nothing checked: {_said(error)}")
    except UsageError as error:
        return Answer(USAGE, _said(error), blocks=_wrong_words(asked))
    except Undecided as nothing:
        return Answer(UNDECIDED, f"nothing checked: {_said(nothing)}")
    return _weighed(report, choice.fail_on)


def _chosen(asked: Asked) -> tuple[config.Config | None, config.Choice]:
    """Return the settings that were named, and what holds of them and of the command line."""
    settings = None if asked.config is None else config.read(asked.config)
    return settings, config.chosen(
        settings, fail_on=asked.fail_on, select=asked.select, ignore=asked.ignore, rules=asked.rules
    )


def _wrong_words(asked: Asked) -> bool:
    """Whether the options are wrong whatever this machine is like: then they were never right."""
    try:
        pack = packs.load(_chosen(asked)[1].rules)
    except UsageError:
        return False
    try:
        selection.select(pack, asked.select, asked.ignore)
        what_if.apply(Facts(), gpu=asked.sources.gpu, assumptions=asked.sources.assume)
    except UsageError:
        return True
    return False


def _weighed(report: Report, fail_on: FailOn) -> Answer:
    from sgdoctor.report import terminal

    code = exit_code(report, fail_on)
    counts = terminal.counted(report.summary).rstrip(".")
    if code == FOUND:
        return Answer(code, f"{counts} ({_SWITCH_OFF})", _shown(report), blocks=True)
    if code == CLEAN:
        return Answer(code, _passed(report, counts))
    return Answer(code, f"could not decide: {_why(report)} ({counts})")


def _passed(report: Report, counts: str) -> str:
    if any(each.findings for each in report.deployments):
        return f"{counts} (`sgdoctor check -- ...` shows them)"
    summary = report.summary
    left = f", {summary.unknown} could not be decided" if summary.unknown else ""
    known = f" but {summary.suppressed} suppressed by {report.settings}" if summary.suppressed else ""
    passed = f"{summary.passed} rule{'' if summary.passed == 1 else 's'} passed"
    return f"nothing found{known}, {passed}{left}"


def _why(report: Report) -> str:
    broken = [each for deployment in report.deployments for each in deployment.broken]
    if broken:
        return f"rule {broken[0].code} broke: {_printable(broken[0].reason)}"
    lost = [look for each in report.deployments for look in each.looked_at if look.state == "nothing"]
    return _printable(lost[0].said) if lost else "no rule could be decided"


def _shown(report: Report) -> str:
    from sgdoctor.cli.terminal import show
    from sgdoctor.report import terminal

    return show(lambda width, encoding: terminal.render(report, width=width, encoding=encoding))


def _said(error: Exception) -> str:
    return _printable(str(error))


def _printable(text: str) -> str:
    from sgdoctor.report.layout import printable

    return printable(redact.text(" ".join(text.split())))
