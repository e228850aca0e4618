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
from sgdoctor.engine import evaluate, recommend
from sgdoctor.engine import rules as packs
from sgdoctor.engine import select as selection
from sgdoctor.engine.model import Result
from sgdoctor.engine.rules import CompiledRule
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.report import build
from sgdoctor.report.model import DeploymentReport, Report
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
    progress: Progress | None = None,
) -> Report:
    """Examine the deployments that ``sources`` name (by default those on this machine) and return the report.

    ``select`` and ``ignore`` take codes, beginnings of codes and names of rules; ``rules`` folders of more
    rules. ``target`` (``sglang=0.5.23``, ``sglang=latest``): the report is about the deployments at that
    release, with what changes on the way from the one in use, or from ``from_version``. Raises UsageError for
    what the operator must mend, Undecided when there is nothing to check.
    """
    sources = sources or Sources()
    if target is not None:
        path.wanted(target)
    elif from_version is not None:
        raise UsageError("--from-version says what --target compares with; name the release with --target")
    pack = packs.load([Path(folder) for folder in rules])
    chosen = selection.select(pack, select, ignore)
    patterns = {
        code: text for code, text in pack.patterns().items() if code in {rule.code for rule in chosen}
    }
    gathered = gather.gather(sources, patterns, progress)
    if target is not None:
        return Report.of(moved(each, chosen, sources, target, from_version) for each in gathered)
    return Report.of(judge(each, chosen, sources) for each in gathered)


def judge(gathered: gather.Gathered, rules: Sequence[CompiledRule], sources: Sources) -> DeploymentReport:
    """Hold the facts of one deployment against ``rules``."""
    return _reported(gathered, evaluate.evaluate(rules, gathered.facts), rules, sources)


def moved(
    gathered: gather.Gathered,
    rules: Sequence[CompiledRule],
    sources: Sources,
    target: str,
    from_version: str | None = None,
) -> DeploymentReport:
    """Hold one deployment against ``rules`` as it is at the release ``target``, and say what changes."""
    from sgdoctor.target import compare, walk

    way = walk.Walk(gathered, rules, sources, target, from_version)
    there = msgspec.structs.replace(gathered, facts=way.end.facts)
    report = _reported(there, list(way.end.results.values()), rules, sources)
    return msgspec.structs.replace(report, moved_from=way.version, changes=compare.changes(way))


def _reported(
    gathered: gather.Gathered, results: Sequence[Result], rules: Sequence[CompiledRule], sources: Sources
) -> DeploymentReport:
    found = [result.finding for result in results if result.finding is not None]
    return build.deployment(
        gathered.name,
        gathered.facts,
        results,
        {rule.code: rule.rule for rule in rules},
        looked_at=gathered.looked,
        given=sources.named(),
        consequences=recommend.consequences(found, rules),
        python=gathered.python,
    )


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
