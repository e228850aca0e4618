"""A tuning as a picture: time over today's by batch size, of the whole computation and of both products."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sgdoctor.errors import UsageError
from sgdoctor.fix import manifest, moe_report
from sgdoctor.tune.model import Line, Times, Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING = "no picture: matplotlib is not installed here (pip install 'sgdoctor[plot]')"

# Colours that differ in brightness, too, and can be seen on white and on black.
_TODAY, _DEFAULT, _NEW = "#808080", "#d98324", "#2a8fbd"
_WIDTH, _HEIGHT = 7.2, 6.2  # inches
_DPI = 150

# What stands for the page's own text colour until the picture is text.
_INK = "#010203"


class _Panel(NamedTuple):
    title: str
    of: Callable[[Times], float]


_PANELS = (
    _Panel("whole expert computation", lambda times: times.whole),
    _Panel("up product", lambda times: times.up),
    _Panel("down product", lambda times: times.down),
)


def available() -> bool:
    """Whether matplotlib can be imported here."""
    try:
        import matplotlib.figure  # noqa: F401 (only whether it works)
    except ImportError:
        return False
    return True


def png(tuning: Tuning, path: Path) -> str | None:
    """Draw the picture into ``path``; return why there is none, in a line, where matplotlib is missing.

    Raises UsageError when the file cannot be written.
    """
    if not available():
        return MISSING
    drawn = io.BytesIO()
    _figure(tuning, ink="black").savefig(drawn, format="png", dpi=_DPI, facecolor="white")
    try:
        manifest.write(path, drawn.getvalue())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    return None


def svg(tuning: Tuning) -> str | None:
    """Return the picture as an ``<svg>`` element in the page's text colour, null without matplotlib.

    It is as wide as the page lets it, and the same for the same tuning.
    """
    if not available():
        return None
    import matplotlib as mpl

    drawn = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "sgdoctor"}):
        _figure(tuning, ink=_INK).savefig(
            drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    element = drawn.getvalue().partition("<svg")
    text = re.sub(r'<svg (.*?)\bwidth="[^"]*"', r"<svg \1", f"<svg{element[2]}", count=1, flags=re.DOTALL)
    text = re.sub(r'(<svg [^>]*?)\bheight="[^"]*"', r"\1", text, count=1)
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    label = f'role="img" aria-label="{_SAYS}" '
    return text.replace("<svg ", f"<svg {label}", 1).replace(_INK, "currentColor").strip() + "\n"


_SAYS = "Time over today's by number of tokens, for the new file and the built-in default"


def _figure(tuning: Tuning, *, ink: str) -> Figure:
    """Return the figure; the upper panel has the whole computation, the lower two the products."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "font.family": "sans-serif",
        "font.size": 9.5,
        "text.parse_math": False,  # a GPU's name is no formula
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        panels = figure.subplot_mosaic([["whole", "whole"], ["up", "down"]], height_ratios=[1.5, 1])
        for panel, axes in zip(_PANELS, panels.values(), strict=True):
            _draw(axes, tuning, panel)
        _same_height(panels["up"], panels["down"])
        job = tuning.job
        shape = f"E={job.problem.experts} N={job.problem.width} {job.problem.kind} on {job.device}"
        panels["whole"].set_title(shape, loc="right", fontsize="medium")
        panels["whole"].set_ylabel("time (today = 1, lower is faster)")
        panels["up"].set_ylabel("time (today = 1)")
        for name in ("up", "down"):
            panels[name].set_xlabel("tokens in a batch")
        handles, labels = panels["whole"].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=4, frameon=False)
    return figure


def _draw(axes: Axes, tuning: Tuning, panel: _Panel) -> None:
    """Draw one panel: below 1 is faster than today; where today's entries were kept the file is at 1.

    There is no point where something does not run.
    """
    lines = tuning.lines
    tokens = [line.tokens for line in lines]
    new = [_relative(line, line.new, panel) if not line.kept else 1.0 for line in lines]
    axes.axhline(1, color=_TODAY, linewidth=1.2, linestyle="--", label=f"today: {tuning.job.today_is}")
    shown = list(new)
    if not moe_report.today_is_default(tuning):
        default = [_relative(line, line.default, panel) for line in lines]
        shown += default
        axes.plot(tokens, default, color=_DEFAULT, linewidth=1.6, marker=".", label="built-in default")
    axes.plot(tokens, new, color=_NEW, linewidth=2, marker="o", markersize=4.5, label="new file")
    kept = [line.tokens for line in lines if line.kept]
    if kept:
        axes.plot(
            kept,
            [1.0] * len(kept),
            linestyle="none",
            marker="o",
            markersize=5.5,
            markerfacecolor="white",
            markeredgecolor=_NEW,
            label="kept as today",
        )
    _scale(axes, tokens, shown)
    axes.set_title(panel.title, loc="left", fontsize="medium", fontweight="bold")


def _relative(line: Line, times: Times, panel: _Panel) -> float:
    return panel.of(times) / panel.of(line.today)


def _scale(axes: Axes, tokens: list[int], values: list[float]) -> None:
    """Label the batch sizes with plain numbers, powers of four, and leave room around the values."""
    axes.set_xscale("log", base=2)
    powers = [4**n for n in range(9) if min(tokens) <= 4**n <= max(tokens)]
    axes.set_xticks(powers or tokens, labels=[str(each) for each in powers or tokens])
    axes.minorticks_off()
    drawn = [1.0, *(value for value in values if math.isfinite(value))]
    low, high = min(drawn), max(drawn)
    spare = max(high - low, 0.05) * 0.08
    axes.set_ylim(low - spare, high + spare)
    axes.grid(visible=True, axis="y", color=_TODAY, alpha=0.25, linewidth=0.6)


def _same_height(*panels: Axes) -> None:
    """Give panels side by side the same range of values."""
    ranges = [axes.get_ylim() for axes in panels]
    for axes in panels:
        axes.set_ylim(min(low for low, _ in ranges), max(high for _, high in ranges))
