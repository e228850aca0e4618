"""``configs explain``: which file is used and why, with the folders in the order of the search."""

from __future__ import annotations

from sgdoctor.configs.explain import Explained, Folder
from sgdoctor.configs.table import Row, table
from sgdoctor.report.layout import Line, flow, printable, words
from sgdoctor.upstream.moe_config import folder_of

_INDENT = 9
_FOUND = ("exact", "fallback")


def lines(result: Explained, width: int, encoding: str) -> list[Line]:
    """Return the explanation of one deployment."""

    def told(text: str, label: str = "", style: str = "label") -> list[Line]:
        opening = [(label, style)] if label else []
        return flow(words(printable(text, encoding)), width, _INDENT if label else 0, opening)

    shown = flow(words(printable(" · ".join(result.title), encoding), "title"), width)
    if result.unread is not None:
        shown += [[], *told(result.unread)]
    if result.undecided is not None:
        return [*shown, [], *told(f"Which file it would be cannot be told: {result.undecided}.")]
    if not result.up_file:
        return shown
    shown += [[], *told(result.up_file, "up"), *told(result.down_file, "down"), *told(result.root, "in")]
    if result.folders:
        shown += [[], *table(("", "folder", "up", "down", "", ""), _rows(result), encoding)]
    shown += [[], *told(_up(result), "up", "strong"), *told(_down(result), "down", "strong")]
    for severity, problem in result.problems:
        shown += [[], *told(problem, severity, severity)]
    return shown


def _rows(result: Explained) -> list[Row]:
    rows = []
    for number, folder in enumerate(result.folders, 1):
        has = ["has it" if there else "has not" for there in (folder.up, folder.down)]
        place = str(number) if folder.searched else "-"
        own = "the installed Triton's" if folder.searched and number == 1 else ""
        rows.append((place, folder_of(folder.triton), *has, _used(result, folder), own))
    return rows


def _used(result: Explained, folder: Folder) -> str:
    if not folder.searched:
        return "not looked into"
    used = [
        label
        for label, triton, source in (
            ("up", result.up_triton, result.up),
            ("down", result.down_triton, result.down),
        )
        if triton == folder.triton and source in _FOUND
    ]
    return f"used for {' and '.join(used)}" if used else ""


def _up(result: Explained) -> str:
    if result.up == "error":
        return f"the lookup ends the server: {result.error}"
    if result.up in _FOUND:
        return _from(result.up, result.up_triton)
    return _built_in(result)


def _down(result: Explained) -> str:
    if result.down == "error":
        return f"the lookup ends the server: {result.error}"
    if result.down in _FOUND:
        return _from(result.down, result.down_triton)
    if result.down == "up":
        return "the up projection's config: no folder that this release looks into has the file"
    return _built_in(result)


def _built_in(result: Explained) -> str:
    if not any(folder.searched for folder in result.folders):
        return "the built-in config, without a lookup"
    return "the built-in config: no folder that this release looks into has the file"


def _from(source: str, triton: str | None) -> str:
    which = (
        "the installed Triton's" if source == "exact" else "tuned with another Triton than the installed one"
    )
    return f"from {folder_of(triton or '')}, {which}"
