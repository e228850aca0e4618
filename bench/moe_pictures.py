"""Draws the pictures of docs/benchmarks.md ("MoE tuner: live") from what is committed in bench/results.

    python bench/moe_pictures.py

`docs/pictures/moe-live.png`: one panel a tuned shape, time over today's, of the whole expert computation.
`docs/pictures/moe-server.png`: tokens per second of a server with the new files over those without, one dot a
repeat.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
SHAPES = {
    "0-e256": "256 experts of 3072 x 256, bf16: there is no file today",
    "1-e128": "128 experts of 2048 x 768, bf16: today the file for Triton 3.2.0",
    "3-e128_fp8": "128 experts of 2048 x 768, fp8 in blocks: today the file for Triton 3.2.0",
    "4-e8": "8 experts of 4096 x 4096, bf16: today the file for Triton 3.1.0",
}
TODAY, DEFAULT, NEW = "#808080", "#d98324", "#2a8fbd"
DPI = 110


def live(axes: Axes, run: dict[str, Any], title: str) -> None:
    """Draw one tuning; where today's entries were kept the file is at 1."""
    lines = run["lines"]
    tokens = [line["tokens"] for line in lines]
    today, default, new = ([line["us"][place][0] for line in lines] for place in range(3))
    kept = [bool(line["kept"]) for line in lines]
    axes.axhline(1, color=TODAY, linewidth=1.2, linestyle="--", label="today")
    if default != today:
        over = [d / t for d, t in zip(default, today, strict=True)]
        axes.plot(tokens, over, color=DEFAULT, marker=".", linewidth=1.6, label="built-in default")
    over = [1.0 if k else n / t for n, t, k in zip(new, today, kept, strict=True)]
    axes.plot(tokens, over, color=NEW, marker="o", markersize=4.5, linewidth=2, label="new file")
    axes.plot(
        [m for m, k in zip(tokens, kept, strict=True) if k],
        [1.0] * sum(kept),
        linestyle="none",
        marker="o",
        markersize=5.5,
        markerfacecolor="white",
        markeredgecolor=NEW,
        label="kept as today",
    )
    axes.set_xscale("log", base=2)
    powers = [4**n for n in range(7)]
    axes.set_xticks(powers, labels=[str(each) for each in powers])
    axes.minorticks_off()
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_ylabel("time (today = 1)")
    axes.set_ymargin(0.2)
    axes.legend(loc="upper center", ncols=4, frameon=False, fontsize="small")


def throughput(axes: Axes, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    """Draw the ratio of every repeat after to the mean of those before, as those before to it."""
    loads = list(dict.fromkeys((each["load"]["name"], each["load"]["concurrency"]) for each in before))
    for row, load in enumerate(reversed(loads)):
        speeds = [[speed(each) for each in side if kind(each) == load] for side in (before, after)]
        mean = sum(speeds[0]) / len(speeds[0])
        for values, colour, label in zip(speeds, (TODAY, NEW), ("before", "after"), strict=True):
            dots = [value / mean for value in values]
            axes.plot(dots, [row] * len(dots), "o", color=colour, label=None if row else label)
    axes.axvline(1, color=TODAY, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(loads)), labels=[f"{name}, {n} at a time" for name, n in reversed(loads)])
    axes.set_xlabel("tokens per second (mean before = 1, two repeats of one start each)")
    axes.legend(loc="lower center", frameon=False, fontsize="small")


def kind(result: dict[str, Any]) -> tuple[str, int]:
    """Return the load of a result."""
    return result["load"]["name"], result["load"]["concurrency"]


def speed(result: dict[str, Any]) -> float:
    """Return its tokens per second: generated ones when decoding, read ones when prefilling."""
    side = "output" if result["load"]["name"] == "decode" else "input"
    return float(result[f"{side}_tokens_per_second"])


def read(path: str) -> Any:
    """Read a committed result."""
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


def save(figure: Figure, name: str) -> None:
    """Write a PNG on white, of so few colours that it is small."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=DPI, facecolor="white")
    Image.open(drawn).convert("RGB").quantize(64).save(PICTURES / name, optimize=True)
    print(PICTURES / name)


def main() -> None:
    """Draw both."""
    style: Any = {"font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False}
    grid = {"color": TODAY, "alpha": 0.25, "linewidth": 0.6}
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.2, 2.9 * len(SHAPES)), layout="constrained")
        panels = figure.subplots(len(SHAPES), 1)
        for axes, (name, title) in zip(panels, SHAPES.items(), strict=True):
            live(axes, read(f"moe-live/{name}.json"), title)
            axes.grid(visible=True, axis="y", **grid)
        panels[-1].set_xlabel("tokens in a batch")
        save(figure, "moe-live.png")
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        axes = figure.subplots()
        throughput(axes, *(read(f"moe-server/{side}/throughput.json") for side in ("before", "after")))
        axes.grid(visible=True, axis="x", **grid)
        save(figure, "moe-server.png")


if __name__ == "__main__":
    main()
