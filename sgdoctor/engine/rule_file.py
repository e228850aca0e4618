"""A rule file: YAML without its traps, decoded into a Rule, with the line of every value for errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from sgdoctor.engine.expr_types import nearest
from sgdoctor.engine.model import Recommendation, Rule
from sgdoctor.errors import UsageError

ACTIONS = ("run", "remove", "set", "env", "install", "do")

_TESTS = re.compile(r"^tests:", re.MULTILINE)
_KEY = re.compile(r"^[^\s#]", re.MULTILINE)
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_BOOLEANS = {"true": True, "false": False, "True": True, "False": False}
_AMBIGUOUS = frozenset(
    form for word in ("on", "off", "yes", "no") for form in (word, word.title(), word.upper())
)


class RulePackError(UsageError):
    """A rule file that cannot be used; one line with file, line, reason and way out. ``detail`` has more."""

    def __init__(self, path: Path | str, line: int, reason: str, detail: str = "") -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path = Path(path)
        self.line = line
        self.reason = reason
        self.detail = detail


class RuleFile(msgspec.Struct, frozen=True):
    """A decoded rule, where it stands, the lines of its values by path (`$.tests[0].name`), and its keys.

    Without its tests it has none, and ``keys`` ends before them.
    """

    rule: Rule
    path: Path
    lines: dict[str, int]
    keys: tuple[str, ...]

    def error(self, place: str, reason: str, detail: str = "", offset: int = 0) -> RulePackError:
        """Return the error for the value at ``place``, ``offset`` lines below its first.

        What has no line of its own (a key that is missing, or merged in) is told of what it is a part of.
        """
        where = f"$.{place}"
        while where and where not in self.lines:
            where = where[: max(where.rfind("."), where.rfind("["), 0)]
        return RulePackError(self.path, self.lines.get(where, 1) + offset, reason, detail)


def read(path: Path, *, tests: bool = True) -> RuleFile:
    """Read one rule file; raises RulePackError. Without ``tests`` they are skipped, which is much faster."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RulePackError(path, 1, f"cannot be read as UTF-8 text: {error}") from None
    head = None if tests else _without_tests(text)
    raw, lines = _parse(path, text if head is None else head)
    if not isinstance(raw, dict):
        raise RulePackError(path, 1, "a rule file is a mapping that begins with `code: ABC123`")
    keys = tuple(raw)
    _known_keys(path, raw, lines)
    if head is not None:
        raw["tests"] = []
    try:
        rule = msgspec.convert(raw, Rule)
    except msgspec.ValidationError as error:
        raise _invalid(path, str(error), lines) from None
    found = RuleFile(rule, path, lines, keys)
    _consistent(found)
    return found


def _without_tests(text: str) -> str | None:
    """Return the text before the tests, or None when something follows them (then all must be parsed)."""
    found = _TESTS.search(text)
    if found is None or _KEY.search(text, found.end()):
        return None
    return text[: found.start()]


def _parse(path: Path, text: str) -> tuple[Any, dict[str, int]]:
    import yaml

    lines: dict[str, int] = {}
    try:
        node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise RulePackError(path, mark.line + 1 if mark else 1, f"not YAML: {problem}") from None
    return (None if node is None else _plain(node, path, "$", lines)), lines


def _plain(node: Any, path: Path, place: str, lines: dict[str, int]) -> Any:
    """Return the plain value of a YAML node, noting the line where each begins."""
    line = lines[place] = node.start_mark.line + 1
    if node.id == "scalar":
        if node.style in ("|", ">"):
            lines[place] += 1  # the text begins below its indicator
        return _scalar(node, path, line)
    if node.id == "sequence":
        return [_plain(child, path, f"{place}[{at}]", lines) for at, child in enumerate(node.value)]
    found: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key_node, child in node.value:
        key = key_node.value
        key_line = key_node.start_mark.line + 1
        if key_node.id != "scalar":
            raise RulePackError(path, key_line, "a key is a plain word")
        value = _plain(child, path, f"{place}.{key}", lines)
        if key == "<<" and not key_node.style:
            if not isinstance(value, dict):
                raise RulePackError(path, key_line, "`<<` takes the alias of a mapping: `<<: *name`")
            merged.update(value)
        elif key in found:
            raise RulePackError(path, key_line, f"`{key}` is given twice; keep one")
        else:
            found[key] = value
    return {**merged, **found}


def _scalar(node: Any, path: Path, line: int) -> Any:
    text: str = node.value
    kind = node.tag.rpartition(":")[2]
    if node.style or kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool":
        if text in _AMBIGUOUS:
            raise RulePackError(path, line, f"`{text}` without quotes is a boolean to YAML; quote it")
        return _BOOLEANS.get(text, text)
    if kind == "int" and _INTEGER.match(text):
        return int(text)
    if kind == "float":
        return float(text.replace("_", ""))
    return text  # dates, numbers to the base 60: never meant in a rule


def _known_keys(path: Path, raw: dict[str, Any], lines: dict[str, int]) -> None:
    for key in raw:
        if key not in Rule.__struct_fields__:
            reason = f"unknown key `{key}`{nearest(key, Rule.__struct_fields__)}"
            raise RulePackError(path, lines[f"$.{key}"], reason)


def _invalid(path: Path, message: str, lines: dict[str, int]) -> RulePackError:
    reason, _, place = message.partition(" - at ")
    place = place.strip("`")
    where = place.removeprefix("$.")
    return RulePackError(path, lines.get(place, 1), f"{where}: {reason}" if where else reason)


def _consistent(file: RuleFile) -> None:
    rule = file.rule
    if rule.when is None and rule.match is None:
        raise file.error("code", "a rule has a condition (`when`), a log pattern (`match`), or both")
    for at, one in enumerate(rule.recommend):
        if len(given(one)) != 1:
            raise file.error(f"recommend[{at}]", f"a recommendation has exactly one of {', '.join(ACTIONS)}")
        if one.safe and one.remove is None and one.set is None:
            raise file.error(f"recommend[{at}]", "`safe` is for a flag: `remove` or `set`")


def given(recommendation: Recommendation) -> list[str]:
    """Return which of the actions a recommendation names."""
    return [action for action in ACTIONS if getattr(recommendation, action) is not None]
