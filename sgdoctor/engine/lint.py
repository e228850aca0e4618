"""What a rule must have beyond being usable: cases, sources, and words that can be filled in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sgdoctor import vocabulary
from sgdoctor.engine import releases, rule_file
from sgdoctor.engine.expr_tree import compile_pattern
from sgdoctor.engine.expr_types import nearest
from sgdoctor.engine.messages import placeholders
from sgdoctor.engine.rules import CompiledRule, Pack, RulePackError, bad_patterns, compile_rule, find
from sgdoctor.vocabulary import Vocabulary

FAMILIES: Final = ("cfg", "arg", "env", "hw", "mem", "net", "run", "sec", "qnt")

_CODE = re.compile(r"[A-Z]{2,3}[0-9]{3}\Z")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\Z")


def lint(pack: Pack) -> list[str]:
    """Return what is wrong with the rules of a pack that was loaded with its tests, a line each."""
    found = [problem for rule in pack for problem in lint_rule(rule, pack.vocabulary)]
    return [*found, *_taken_names(pack), *_explanations(pack)]


def lint_folder(folder: Path) -> list[str]:
    """Return all that is wrong with the rules of a folder, those that cannot be loaded included."""
    names = vocabulary.load()
    compiled: dict[str, CompiledRule] = {}
    found = [problem for path in find(folder) if (problem := _add(path, compiled, names))]
    return found + lint(Pack(tuple(compiled[code] for code in sorted(compiled)), names))


def _add(path: Path, compiled: dict[str, CompiledRule], names: Vocabulary) -> str | None:
    """Add the rule of one file; return what keeps it from being used, None when nothing does."""
    try:
        one = compile_rule(rule_file.read(path), names)
        other = compiled.setdefault(one.code, one)
        if other is not one:
            raise one.file.error("code", f"{one.code} is taken by {other.file.path}; take another code")
    except RulePackError as error:
        return f"{error}\n{error.detail}" if error.detail else str(error)
    return None


def _taken_names(pack: Pack) -> Iterator[str]:
    users: dict[str, CompiledRule] = {}
    for rule in pack:
        other = users.setdefault(rule.rule.name, rule)
        if other is not rule:
            yield _at(rule, "name", f"the name {rule.rule.name} is taken by {other.code}")


def _explanations(pack: Pack) -> Iterator[str]:
    codes = [rule.code for rule in pack]
    for rule in pack:
        for code in rule.rule.explains:
            if code not in codes:
                yield _at(rule, "explains", f"explains {code}, which is no rule{nearest(code, codes)}")


def lint_rule(rule: CompiledRule, names: Vocabulary) -> Iterator[str]:
    """Iterate over what is wrong with one rule."""
    checks = (_naming, _sources, _releases, _pattern, _cases, _order)
    for check in checks:
        for place, problem in check(rule):
            yield _at(rule, place, problem)
    for place, problem in [*_texts(rule, names), *_case_facts(rule, names)]:
        yield _at(rule, place, problem)


def _at(rule: CompiledRule, place: str, problem: str) -> str:
    return str(rule.file.error(place, problem))


def _naming(rule: CompiledRule) -> Iterator[tuple[str, str]]:
    code, name, path = rule.code, rule.rule.name, rule.file.path
    if not _CODE.match(code):
        yield "code", f"{code} is not a code: two or three capitals of the family and three digits"
    elif code[:-3].lower() not in FAMILIES:
        yield "code", f"{code[:-3]} is no family; there are {', '.join(FAMILIES).upper()}"
    elif path.parent.name != code[:-3].lower():
        yield "code", f"{code} belongs into the folder {code[:-3].lower()}/, not {path.parent.name}/"
    if not _NAME.match(name):
        yield "name", f"{name} is not lower case words joined by dashes"
    if path.name != f"{code}-{name}.yaml":
        yield "code", f"the file is {path.name}; call it {code}-{name}.yaml"


def _sources(rule: CompiledRule) -> Iterator[tuple[str, str]]:
    told = rule.rule
    if not any(source.strip() for source in told.sources):
        yield "sources", "no source; name where the claim can be checked"
    for key in ("title", "message", "why", "verified"):
        if not getattr(told, key).strip():
            yield key, f"`{key}` is empty"
    if not told.case:
        yield "case", "`case` is empty"


def _releases(rule: CompiledRule) -> Iterator[tuple[str, str]]:
    text = rule.rule.releases
    if text is None:
        return
    for bound in re.findall(r"[0-9][^\s,<>=]*", text):
        if not re.match(r"[0-9]+\.[0-9]+\.[0-9]+(\.post[0-9]+)?\Z", bound):
            yield "releases", f"{bound} is not a full release; write it as in {releases.FORM}"


def _pattern(rule: CompiledRule) -> Iterator[tuple[str, str]]:
    bad = list(bad_patterns(rule))
    yield from bad
    if not bad and rule.rule.match is not None and compile_pattern(rule.rule.match).search("") is not None:
        yield "match", "the pattern matches every record"


def _cases(rule: CompiledRule) -> Iterator[tuple[str, str]]:
    told = rule.rule
    expected = {case.expect for case in told.tests}
    for outcome in ("fail", "pass", "unknown"):
        if outcome not in expected:
            yield "tests", f"no case expects {outcome}"
    if not any(case.input is not None for case in told.tests):
        yield "tests", "no case has `input`; one must go through the real collectors"
    if "not_applicable" in expected and told.releases is None and told.applies is None:
        yield "tests", "a case expects not_applicable, but the rule has neither `releases` nor `applies`"
    for name, count in Counter(case.name for case in told.tests).items():
        if count > 1:
            yield "tests", f"two cases are named {name}"
    for at, case in enumerate(told.tests):
        if (case.input is None) is (case.facts is None and case.match is None):
            yield f"tests[{at}]", f"{case.name}: a case has `facts` (with `match`), or `input`"
        if case.match is not None and told.match is None:
            yield f"tests[{at}]", f"{case.name}: gives `match`, but the rule has no pattern"


def _order(rule: CompiledRule) -> Iterator[tuple[str, str]]:
    if "tests" in rule.file.keys and rule.file.keys[-1] != "tests":
        yield "tests", "`tests` comes last: what follows it makes every start slower"


def _texts(rule: CompiledRule, names: Vocabulary) -> Iterator[tuple[str, str]]:
    told = rule.rule
    texts = [("message", told.message)]
    for at, one in enumerate(told.recommend):
        parts = [getattr(one, field) for field in (*rule_file.ACTIONS, "note", "value")]
        texts += [(f"recommend[{at}]", part) for part in parts if isinstance(part, str)]
    groups = _groups(told.match)
    read = {*rule.names, *(["sglang.version"] if told.releases else [])}
    for place, text in texts:
        for name, fallback in placeholders(text):
            if name in groups:
                continue
            if name not in names:
                yield (
                    place,
                    f"{{{name}}} is neither a fact nor a group{nearest(name, [*names.specs, *groups])}",
                )
            elif fallback is None and not _known_with(name, read, in_log=told.match is not None):
                yield place, f"{{{name}}} may be unknown here; write {{{name}|words for want of it}}"


def _known_with(name: str, read: set[str], *, in_log: bool) -> bool:
    """Whether a fact is known where those ``read`` are: read itself, or set together with one of them.

    Facts that share two parts of their names (moe.up.*) are set together, and so are those of a log.
    """
    group = name.rpartition(".")[0]
    groups = {other.rpartition(".")[0] for other in read}
    if group == "log":
        return in_log or group in groups
    return name in read or ("." in group and group in groups)


def _groups(pattern: str | None) -> set[str]:
    if pattern is None:
        return set()
    try:
        return set(compile_pattern(pattern).groupindex)
    except ValueError:
        return set()


def _case_facts(rule: CompiledRule, names: Vocabulary) -> Iterator[tuple[str, str]]:
    groups = _groups(rule.rule.match)
    for at, case in enumerate(rule.rule.tests):
        for name, value in (case.facts or {}).items():
            place = f"tests[{at}].facts.{name}"
            if name not in names:
                yield place, f"{case.name}: unknown fact {name}{nearest(name, names.specs)}"
                continue
            try:
                names.check(name, value)
            except vocabulary.FactTypeError as error:
                yield place, f"{case.name}: {error}"
        for name in case.match or {}:
            if name not in groups:
                yield f"tests[{at}].match", f"{case.name}: {name} is no group of the pattern"
