"""What `sgdoctor check` does, as Python calls."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sgdoctor import gather
from sgdoctor import snapshot as snapshots
from sgdoctor.config import Config
from sgdoctor.engine import evaluate, recommend
from sgdoctor.engine import rules as packs
from sgdoctor.engine import select as selection
from sgdoctor.engine.model import Result
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.engine.suppress import Muted, Subject, Suppressor
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.report import build
from sgdoctor.report.model import DeploymentReport, Report, Suppressed, without_entered
from sgdoctor.sources import Sources
from sgdoctor.target import path

Progress = Callable[[str], None]


def check(
    sources: Sources | None = None,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    rules: Iterable[Path] = (),
    target: str | None = None,
    from_version: str | None = None,
    config: Config | None = None,
    progress: Progress | None = None,
) -> Report:
    """Examine the deployments that ``sources`` name (by default those on this machine) and return the report.

    ``select`` and ``ignore`` take codes, beginnings of codes and names of rules; ``rules`` folders of more
    rules. ``target`` (``sglang=0.5.23``, ``sglang=latest``): the report is about the deployments at that
    release, with what changes on the way from the one in use, or from ``from_version``. Of ``config`` the
    severities and suppressions are followed; the options in it are for the caller to take up
    (:func:`sgdoctor.config.chosen`). Raises UsageError for what the operator must mend,
    Undecided when there is nothing to check.
    """
    sources = sources or Sources()
    if target is not None:
        path.wanted(target)
    elif from_version is not None:
        raise UsageError("--from-version says what --target compares with; name the release with --target")
    pack = packs.load([Path(folder) for folder in rules])
    if config is not None:
        _names_known(pack, config)
    chosen = selection.select(pack, select, ignore)
    suppressor = None
    told: list[str] = []
    if config is not None:
        told = _settings_told(config, select, ignore, len(pack.rules) - len(chosen))
        chosen = selection.with_severities(chosen, config.settings.severity)
        suppressor = Suppressor(config, pack, dt.datetime.now(dt.timezone.utc).date())
    patterns = {
        code: text for code, text in pack.patterns().items() if code in {rule.code for rule in chosen}
    }
    if sources.urls:
        report = _fleet(sources, chosen, patterns, target, config, suppressor, progress)
        return msgspec.structs.replace(report, notes=[*told, *report.notes])
    gathered = gather.gather(sources, patterns, progress)
    if target is not None:
        judged = [moved(each, chosen, sources, target, from_version, suppressor) for each in gathered]
    else:
        judged = [judge(each, chosen, sources, suppressor) for each in gathered]
    if config is None or suppressor is None:
        return Report.of(judged)
    return Report.of(judged, str(config.file), [*told, *suppressor.notes()])


def _settings_told(config: Config, select: Iterable[str], ignore: Iterable[str], left_out: int) -> list[str]:
    """Return what the settings took away from this report: nobody may have looked at the file for long."""
    settings, told = config.settings, []
    by = [
        name
        for name, used, set_ in (("select", select, settings.select), ("ignore", ignore, settings.ignore))
        if set_ and list(used) == set_
    ]
    if by and left_out:
        told.append(f"{config.file}: {' and '.join(by)} leaves out {left_out} rule{'s' * (left_out > 1)}")
    if settings.severity:
        told.append(f"{config.file}: {', '.join(settings.severity)} with a severity of its own")
    return told


def _fleet(
    sources: Sources,
    chosen: Sequence[CompiledRule],
    patterns: Mapping[str, str],
    target: str | None,
    config: Config | None,
    suppressor: Suppressor | None,
    progress: Progress | None,
) -> Report:
    """Examine several servers at once, and compare them."""
    from sgdoctor import fleet

    if target is not None:
        raise UsageError("--target is about one deployment: name one server with --url")

    def judged(each: gather.Gathered, rules: Sequence[CompiledRule]) -> DeploymentReport:
        return judge(each, rules, sources, suppressor)

    reports, drift = fleet.check(sources, chosen, patterns, judged, progress or (lambda _what: None))
    file, notes = (str(config.file), suppressor.notes()) if config and suppressor else (None, [])
    return msgspec.structs.replace(Report.of(reports, file, notes), drift=drift)


def _names_known(pack: packs.Pack, config: Config) -> None:
    """Raise UsageError, with the file, when the settings name a rule that there is not."""
    settings = config.settings
    try:
        selection.select(pack, settings.select, settings.ignore)
        selection.must_exist(pack, [*settings.severity, *(each.code for each in settings.suppress)])
    except UsageError as error:
        raise UsageError(f"{config.file}: {error}") from None


def judge(
    gathered: gather.Gathered,
    rules: Sequence[CompiledRule],
    sources: Sources,
    suppressor: Suppressor | None = None,
) -> DeploymentReport:
    """Hold the facts of one deployment against ``rules``."""
    return _reported(gathered, evaluate.evaluate(rules, gathered.facts), rules, sources, suppressor)


def moved(
    gathered: gather.Gathered,
    rules: Sequence[CompiledRule],
    sources: Sources,
    target: str,
    from_version: str | None = None,
    suppressor: Suppressor | None = None,
) -> DeploymentReport:
    """Hold one deployment against ``rules`` as it is at the release ``target``, and say what changes."""
    from sgdoctor.target import compare, walk

    way = walk.Walk(gathered, rules, sources, target, from_version)
    there = msgspec.structs.replace(gathered, facts=way.end.facts)
    report = _reported(there, list(way.end.results.values()), rules, sources, suppressor)
    changes = without_entered(compare.changes(way), {each.finding.code for each in report.suppressed})
    return msgspec.structs.replace(report, moved_from=way.version, changes=changes)


def _reported(
    gathered: gather.Gathered,
    results: Sequence[Result],
    rules: Sequence[CompiledRule],
    sources: Sources,
    suppressor: Suppressor | None = None,
) -> DeploymentReport:
    muted: list[Muted] = []
    if suppressor is not None:
        results, muted = suppressor.split(results, _subject(gathered, sources))
    found = [result.finding for result in results if result.finding is not None]
    report = build.deployment(
        gathered.name,
        gathered.facts,
        results,
        {rule.code: rule.rule for rule in rules},
        looked_at=gathered.looked,
        given=sources.named(),
        consequences=recommend.consequences(found, rules),
        python=gathered.python,
    )
    return msgspec.structs.replace(report, suppressed=[_told(each) for each in muted])


def _subject(gathered: gather.Gathered, sources: Sources) -> Subject:
    """Return what the scope of a suppression is held against."""
    named = (sources.launch, *sources.logs, sources.snapshot, sources.environment, sources.server_info)
    return Subject(
        deployment=gathered.name,
        model=gathered.facts.value("model.name"),
        port=gathered.facts.value("arg.port"),
        files=tuple(str(file) for file in named if file is not None),
    )


def _told(muted: Muted) -> Suppressed:
    until = muted.suppression.until
    return Suppressed(muted.finding, muted.suppression.reason, until.isoformat() if until else None)


def snapshot(sources: Sources | None = None, *, progress: Progress | None = None) -> str:
    """Return the facts of one deployment as a snapshot: JSON, secrets redacted.

    Raises UsageError when this machine runs several servers and none was named.
    """
    pack = packs.load()
    gathered = gather.gather(sources or Sources(), pack.patterns(), progress)
    if len(gathered) > 1:
        names = ", ".join(each.name for each in gathered)
        raise UsageError(
            f"a snapshot holds one deployment, and these were found: {names}; name one with --url"
        )
    return snapshots.dump(gathered[0].facts, dt.datetime.now(dt.timezone.utc))


def facts_from_case(case: Mapping[str, Any], patterns: Mapping[str, str]) -> Facts:
    """Return the facts of a rule's test case that is given as raw input.

    ``log``, ``launch`` and ``metrics`` are texts; ``server_info``, ``model`` and ``environment`` mappings, as
    in the JSON files; ``assume`` and ``gpu`` as on the command line. ``files`` maps paths to the contents
    of a folder that ``@files@`` in the launch text and ``python`` name. This machine is not looked at.
    """
    with tempfile.TemporaryDirectory(prefix="sgdoctor-case-") as folder:
        root = Path(folder)
        for name, text in (case.get("files") or {}).items():
            file = root / "files" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        given: dict[str, Any] = {"assume": tuple(case.get("assume") or ()), "gpu": case.get("gpu")}
        for key, name in _CASE_FILES.items():
            if key in case:
                file = root / name
                value = case[key]
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                file.write_text(text.replace("@files@", str(root / "files")), encoding="utf-8")
                given[key] = str(file)
        if "python" in case:
            given["python"] = str(root / "files" / case["python"])
        if "log" in given:
            given["logs"] = (given.pop("log"),)
        return gather.named(Sources(**given), patterns, lambda _what: None, here=False)[0].facts


_CASE_FILES = {
    "log": "server.log",
    "launch": "launch.sh",
    "server_info": "server_info.json",
    "metrics": "metrics.txt",
    "model": "config.json",
    "environment": "environment.json",
}
