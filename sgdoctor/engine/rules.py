"""Rule packs: the rules that come with sgdoctor, and those of `--rules`, ready to be evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from sgdoctor import vocabulary
from sgdoctor.engine import releases, rule_file
from sgdoctor.engine.expr import Condition, compile_condition
from sgdoctor.engine.expr_tree import compile_pattern
from sgdoctor.engine.expr_types import ExprError
from sgdoctor.engine.model import Rule
from sgdoctor.engine.rule_file import RulePackError
from sgdoctor.errors import UsageError
from sgdoctor.vocabulary import Vocabulary

__all__ = ["CompiledRule", "Pack", "RulePackError", "compile_rule", "find", "load"]


class CompiledRule(msgspec.Struct, frozen=True):
    """A rule with its conditions checked and its release range parsed."""

    rule: Rule
    file: rule_file.RuleFile
    releases: releases.Range | None = None
    applies: Condition | None = None
    when: Condition | None = None

    @property
    def code(self) -> str:
        """The rule's code."""
        return self.rule.code

    @property
    def names(self) -> tuple[str, ...]:
        """The facts that its conditions name."""
        conditions = [condition for condition in (self.applies, self.when) if condition]
        return tuple(dict.fromkeys(name for condition in conditions for name in condition.names))


class Pack(msgspec.Struct, frozen=True):
    """All rules in use, in the order of their codes, and the vocabulary that they are written in."""

    rules: tuple[CompiledRule, ...]
    vocabulary: Vocabulary

    def __iter__(self) -> Iterator[CompiledRule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def get(self, code: str) -> CompiledRule | None:
        """Return the rule with this code or name."""
        return next((one for one in self.rules if code in (one.rule.code, one.rule.name)), None)

    def patterns(self) -> dict[str, str]:
        """Return the log patterns to look for, by the codes of their rules."""
        return {one.code: one.rule.match for one in self.rules if one.rule.match is not None}


def find(folder: Path) -> list[Path]:
    """Return the rule files in a folder (or the one file), in the order of their names.

    Raises UsageError where there is none: whoever names an empty folder believes that its rules count.
    """
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of rules")
    found = sorted(
        path
        for suffix in ("yaml", "yml")
        for path in folder.rglob(f"*.{suffix}")
        if path.name != "facts.yaml"
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
    if not found:
        raise UsageError(f"{folder}: no rule in it: a rule is a file CODE-name.yaml")
    return found


def load(extra: Sequence[Path] = (), *, root: Path | None = None, tests: bool = False) -> Pack:
    """Load the rules of ``root`` (those that come with sgdoctor) and, added, those of the folders ``extra``.

    ``tests`` loads their test cases too, which takes much longer. Raises RulePackError for a file that cannot
    be used, UsageError for a folder that does not exist.
    """
    names = vocabulary.load()
    compiled: dict[str, CompiledRule] = {}
    for folder in (root or vocabulary.rules_root(), *extra):
        for path in find(folder):
            one = compile_rule(rule_file.read(path, tests=tests), names)
            other = compiled.setdefault(one.code, one)
            if other is not one:
                raise one.file.error("code", f"{one.code} is taken by {other.file.path}; take another code")
            if folder in extra:
                for key, problem in bad_patterns(one):
                    raise one.file.error(key, f"{key}: {problem}")
    return Pack(tuple(compiled[code] for code in sorted(compiled)), names)


def compile_rule(file: rule_file.RuleFile, names: Vocabulary) -> CompiledRule:
    """Check the conditions and the release range of a rule; raises RulePackError."""
    rule = file.rule
    try:
        covered = None if rule.releases is None else releases.parse(rule.releases)
    except ValueError as error:
        raise file.error("releases", f"releases: {error}") from None
    return CompiledRule(
        rule,
        file,
        covered,
        _condition(file, "applies", rule.applies, names),
        _condition(file, "when", rule.when, names),
    )


def _condition(file: rule_file.RuleFile, key: str, text: str | None, names: Vocabulary) -> Condition | None:
    if text is None:
        return None
    try:
        return compile_condition(text, names)
    except ExprError as error:
        reason = f"{key}: column {error.column + 1}: {error.reason}"
        raise file.error(key, reason, error.show(), error.line) from None


def bad_patterns(rule: CompiledRule) -> Iterator[tuple[str, str]]:
    """Iterate over the patterns of a rule that are not RE2: the key they stand in, and why."""
    patterns = [("match", rule.rule.match)] if rule.rule.match is not None else []
    for key, condition in (("applies", rule.applies), ("when", rule.when)):
        patterns += [(key, pattern) for pattern in (condition.patterns if condition else ())]
    for key, pattern in patterns:
        problem = _pattern_problem(pattern)
        if problem is not None:
            yield key, problem


def _pattern_problem(pattern: str) -> str | None:
    try:
        compile_pattern(pattern)
    except ValueError as error:
        return f"not an RE2 pattern (no look-around): {error}"
    return None
