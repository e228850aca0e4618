"""What a tuning came to: a table for the terminal, JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sgdoctor.report.layout import Line as Text
from sgdoctor.report.layout import Span, flow, printable, words
from sgdoctor.tune.model import Line, Times, Tuning
from sgdoctor.upstream.config_problem import at_keys

_INDENT = 9
_ABOUT = ("gpu", "uuid", "driver", "torch", "triton", "routing")
KEPT = "kept"
_NONE = "-"  # in place of a time or a ratio, where something does not run


@dataclass(frozen=True)
class Row:
    """One batch size in the table: µs of the whole expert computation and of both products.

    ``default`` is null where it is what is used today; ``gain`` reads ``kept`` where the file has today's
    entries. What does not run on this GPU has a dash.
    """

    tokens: str
    today: str
    default: str | None
    new: str
    gain: str
    up_today: str
    up_new: str
    down_today: str
    down_new: str

    def cells(self) -> list[str]:
        """Return the cells from left to right."""
        cells = [
            self.tokens,
            self.today,
            self.default,
            self.new,
            self.gain,
            self.up_today,
            self.up_new,
            self.down_today,
            self.down_new,
        ]
        return [cell for cell in cells if cell is not None]


def today_is_default(tuning: Tuning) -> bool:
    """Whether SGLang runs on its built-in config today, so that there is nothing to show beside it."""
    return tuning.job.today == tuning.job.default


def head(tuning: Tuning) -> Row:
    """Return the heads of the columns."""
    default = None if today_is_default(tuning) else "default"
    return Row("tokens", "today", default, "new", "gain", "today", "new", "today", "new")


def rows(tuning: Tuning) -> list[Row]:
    """Return a row for each batch size; times in µs."""
    without_default = today_is_default(tuning)
    return [
        Row(
            str(line.tokens),
            _us(line.today.whole),
            None if without_default else _us(line.default.whole),
            _us(line.new.whole),
            KEPT if line.kept else times(line.gain),
            _us(line.today.up),
            _us(line.new.up),
            _us(line.today.down),
            _us(line.new.down),
        )
        for line in tuning.lines
    ]


def _us(microseconds: float) -> str:
    if math.isnan(microseconds):
        return _NONE
    return f"{microseconds:.1f}" if microseconds < 1000 else f"{microseconds:.0f}"


def times(factor: float) -> str:
    """Return a ratio of times: ``1.12x``."""
    return _NONE if math.isnan(factor) else f"{factor:.2f}x"


def title(tuning: Tuning) -> str:
    """Return what was tuned, in a line."""
    job, problem = tuning.job, tuning.job.problem
    shape = (
        f"{problem.experts} experts of {problem.hidden} x {problem.width}, top {problem.topk}, {problem.kind}"
    )
    return f"{job.device} · SGLang {job.release} · Triton {job.triton} · {shape}"


def facts(tuning: Tuning) -> list[tuple[str, str]]:
    """Return what the table comes to, each with its label: gain, worst case, what was kept, what fell out."""
    told = [("gain", _gain(tuning)), *_range(tuning)]
    told += [("repairs", text) for text in _repaired(tuning)]
    told += [(KEPT, text) for text in _kept(tuning.lines)]
    if tuning.dropped:
        counts = sorted(tuning.dropped.items(), key=lambda item: -item[1])
        listed = ", ".join(f"{count:,} {reason}" for reason, count in counts)
        told.append(("dropped", f"{sum(tuning.dropped.values()):,} candidates: {listed}"))
    told.append(("tuned", f"by {_tuner(tuning)} in {_duration(tuning.seconds)}"))
    about = [f"{name} {tuning.about[name]}" for name in _ABOUT if tuning.about.get(name) is not None]
    return [*told, *([("on", ", ".join(about))] if about else [])]


def _gain(tuning: Tuning) -> str:
    if not any(line.runs_today for line in tuning.lines):
        return f"none to tell: {tuning.job.today_is}, which is used today, does not run on this GPU"
    over_today = f"{times(tuning.gain)} in geometric mean over {tuning.job.today_is}, which is used today"
    more = (
        "" if today_is_default(tuning) else f"; {times(tuning.gain_over_default)} over the built-in default"
    )
    return f"{over_today}{more}{'' if tuning.worth_installing else ': not worth a file'}"


def _range(tuning: Tuning) -> list[tuple[str, str]]:
    """Return the best and the worst batch size over today, of those that run today."""
    compared = [line for line in tuning.lines if line.runs_today]
    if not compared:
        return []
    best = max(compared, key=lambda line: line.gain)
    worst = min(compared, key=lambda line: line.gain)
    kept = sum(bool(line.kept) for line in tuning.lines)
    as_today = f"{times(1)}: {kept} of {len(tuning.lines)} batch sizes keep what they have today"
    lowest = as_today if worst.kept else f"{times(worst.gain)} at M = {worst.tokens}"
    return [("best", f"{times(best.gain)} at M = {best.tokens}"), ("worst", lowest)]


def _repaired(tuning: Tuning) -> list[str]:
    """Return at which batch sizes the file replaces what does not run or computes wrong, by the reason."""
    reasons: dict[str, list[int]] = {}
    for line in tuning.lines:
        if line.kept or (line.runs_today and not line.wrong_today):
            continue
        what = "computes wrong results today" if line.runs_today else "does not run today"
        why = f" ({line.wrong_today})" if line.wrong_today else ""
        reasons.setdefault(f"{what}{why}", []).append(line.tokens)
    return [f"{at_keys(tokens)}: {tuning.job.today_is} {reason}" for reason, tokens in reasons.items()]


def _kept(lines: Sequence[Line]) -> list[str]:
    """Return at which batch sizes the file has what is used today, by the reason."""
    reasons: dict[str, list[int]] = {}
    for line in lines:
        if line.kept:
            reasons.setdefault(line.kept, []).append(line.tokens)
    return [f"{at_keys(tokens)}: {reason}" for reason, tokens in reasons.items()]


def _tuner(tuning: Tuning) -> str:
    return "SGLang's own tuner" if tuning.tuner == "sglang" else f"sgdoctor, effort {tuning.effort}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def lines(tuning: Tuning, width: int = 80, encoding: str = "utf-8") -> list[Text]:
    """Return the report for a terminal: the table (80 columns at most) and what it comes to."""
    shown = flow(words(printable(title(tuning), encoding), "title"), width)
    shown += [[], *_table(tuning, encoding), []]
    for label, text in facts(tuning):
        style = "strong" if label == "gain" else ""
        shown += flow(words(printable(text, encoding), style), width, _INDENT, [(label, "label")])
    return shown


def _table(tuning: Tuning, encoding: str) -> list[Text]:
    """Return the table, numbers flush right; the group of columns that a head belongs to is above it."""
    table = [head(tuning).cells(), *(row.cells() for row in rows(tuning))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    whole = len(widths) - 5  # the columns of the whole computation, after that of the batch size
    starts = [0, 1, 1 + whole, 3 + whole]
    ends = [*starts[1:], len(widths)]
    groups = []
    for name, start, end in zip(("", "whole, µs", "up, µs", "down, µs"), starts, ends, strict=True):
        room = sum(widths[start:end]) + 2 * (end - start - 1)
        groups.append(printable(name, encoding).rjust(room))
    gain = 1 + whole - 1
    shown: list[Text] = [[("  ".join(groups).rstrip(), "label")]]
    for number, cells in enumerate(table):
        pieces: list[Span] = []
        for column, (cell, room) in enumerate(zip(cells, widths, strict=True)):
            style = "label" if number == 0 else _style(cell) if column == gain else ""
            pieces.append((("  " if column else "") + cell.rjust(room), style))
        shown.append(pieces)
    return shown


def _style(gain: str) -> str:
    return "dim" if gain in (KEPT, _NONE) else "ok"


def to_json(tuning: Tuning) -> dict[str, Any]:
    """Return the report as JSON takes it; times in µs, ``entries`` are [up, down] as `Config.to_list`.

    Times and gains of what does not run on this GPU are null.
    """
    job = tuning.job
    return {
        "problem": asdict(job.problem),
        "device": job.device,
        "capability": list(job.capability),
        "release": job.release,
        "triton": job.triton,
        "kernel": job.kernel,
        "files": [job.up_file, job.down_file],
        "today": {"source": job.source, "is": job.today_is},
        "tuner": tuning.tuner,
        "effort": tuning.effort,
        "seconds": tuning.seconds,
        "gain": tuning.gain,
        "gain_over_default": tuning.gain_over_default,
        "worth_installing": tuning.worth_installing,
        "dropped": dict(tuning.dropped),
        "about": dict(tuning.about),
        "batch_sizes": [_line_to_json(line) for line in tuning.lines],
    }


def _line_to_json(line: Line) -> dict[str, Any]:
    measured: dict[str, Times] = {"today": line.today, "default": line.default, "new": line.new}
    return {
        "tokens": line.tokens,
        "entries": line.pair.to_list(),
        "tuned": line.tuned.to_list(),
        "gain": _number(line.gain),
        "kept": line.kept or None,
        "wrong_today": line.wrong_today or None,
        **{
            name: {part: _number(value) for part, value in asdict(each).items()}
            for name, each in measured.items()
        },
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
