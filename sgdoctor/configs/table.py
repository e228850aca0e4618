"""Rows in columns."""

from __future__ import annotations

from collections.abc import Sequence

from sgdoctor.report.layout import Line, columns, printable

Row = tuple[str, ...]


def table(head: Row, rows: Sequence[Row], encoding: str) -> list[Line]:
    """Return rows under their head, each column as wide as its widest cell; empty columns are left out."""
    kept = [column for column in range(len(head)) if any(row[column] for row in rows)]
    cells = [tuple(printable(row[column], encoding) for column in kept) for row in (head, *rows)]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    lines: list[Line] = []
    for number, row in enumerate(cells):
        padded = [cell + " " * (width - columns(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append([("  ", ""), ("  ".join(padded).rstrip(), "label" if number == 0 else "")])
    return lines


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
