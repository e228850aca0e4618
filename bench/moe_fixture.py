"""Makes a matrix fixture and a table of the journal that `moe_matrix.py` wrote.

    python bench/moe_fixture.py RUN/journal.jsonl[.xz] --about RUN/matrix.json --out
    tests/tune/matrices/NAME.json

A point's time is the median of its calm samples: those of the second phase where it has them (three, from
batches of mixed sizes with pauses between them), else of the first. The third to sixth phases load the GPU
without pause, so that at large batches its power limit slows it down, some configurations more than others:
they give the noise, the cost of sorted output and the sustained times, and are not mixed with the calm ones.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import lzma
import statistics
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sgdoctor.tune.compile import problem_from
from sgdoctor.tune.space import Config, Problem, default_config

EXPLORE, WIDEN, REFINE, AGAIN, SORTED, SUSTAINED = range(1, 7)
RANGE_OF_THREE = 1.693  # the expected range of three normal samples, in standard deviations
Key = tuple[str, int, Config]


class Points:
    """The samples of a run, µs a launch, by product, batch size, configuration and phase."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.samples: dict[Key, dict[int, list[float]]] = {}
        self.compiled: dict[tuple[str, Config], dict[str, Any]] = {}
        self.dropped: collections.Counter[str] = collections.Counter()

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in a record of the journal."""
        if "compile" in record:
            gemm, config = record["compile"]
            if record["ending"] == "done":
                self.compiled[gemm, Config.from_list(config)] = record["result"]
            else:
                self.dropped[f"{record['ending']} while compiling"] += 1
        elif "samples" in record:
            for (gemm, tokens, config), result in zip(record["units"], record["samples"], strict=True):
                if isinstance(result, str):
                    self.dropped[result.split(":")[0]] += 1
                    continue
                key = (gemm, tokens, Config.from_list(config))
                self.samples.setdefault(key, {}).setdefault(record["phase"], []).extend(result)
        elif "ending" in record:
            self.dropped[f"{record['ending']} while timing"] += 1

    @property
    def tokens(self) -> list[int]:
        """The batch sizes timed."""
        return sorted({key[1] for key in self.samples})

    def microseconds(self, key: Key) -> float:
        """Return the calm time of a point."""
        phases = self.samples[key]
        for phase in (WIDEN, EXPLORE, SORTED, REFINE):
            if phase in phases:
                return min(phases[phase]) if phase == EXPLORE else statistics.median(phases[phase])
        raise KeyError(key)

    def ranked(self, gemm: str, tokens: int, *, tma: bool | None = None) -> list[tuple[float, Config]]:
        """Return the configurations of a product and batch size, fastest first."""
        return sorted(
            (self.microseconds(key), key[2])
            for key in self.samples
            if key[:2] == (gemm, tokens) and (tma is None or key[2].tma == tma)
        )

    def pair(self, tokens: int, up: Config, down: Config) -> tuple[float, float] | None:
        """Return the times of two configurations used together, null when one was not timed."""
        keys: list[Key] = [("up", tokens, up), ("down", tokens, down)]
        if not all(key in self.samples for key in keys):
            return None
        return self.microseconds(keys[0]), self.microseconds(keys[1])

    def sample_noise(self, gemm: str, tokens: int) -> float:
        """Return the relative standard deviation of one calm sample."""
        ranges = [
            (max(s[WIDEN]) - min(s[WIDEN])) / statistics.median(s[WIDEN])
            for (g, m, _), s in self.samples.items()
            if g == gemm and m == tokens and len(s.get(WIDEN, ())) == 3
        ]
        return round(statistics.median(ranges) / RANGE_OF_THREE, 5) if ranges else -1

    def pass_noise(self, gemm: str, tokens: int) -> float:
        """Return the median relative difference between the medians of two loaded passes."""
        pairs = [
            (statistics.median(s[REFINE]), statistics.median(s[AGAIN]))
            for (g, m, _), s in self.samples.items()
            if g == gemm and m == tokens and s.get(REFINE) and s.get(AGAIN)
        ]
        differences = [abs(a - b) / min(a, b) for a, b in pairs]
        return round(statistics.median(differences), 5) if differences else -1

    def joint(self, tokens: int) -> tuple[float, Config, Config]:
        """Return the best pair with one BLOCK_SIZE_M."""
        best: dict[int, tuple[float, Config]] = {}
        for time, config in reversed(self.ranked("down", tokens)):
            best[config.block_m] = (time, config)
        return min(
            (time + best[config.block_m][0], config, best[config.block_m][1])
            for time, config in self.ranked("up", tokens)
            if config.block_m in best
        )


def table(points: Points, bundled: Mapping[int, Mapping[str, Config]]) -> str:
    """Return a line a batch size: default, bundled files, each product's best, the best with one BM."""
    pairs_of = " | ".join(f"{name:>13s} up+down"[-19:] for name in ("default", "bundled", "best"))
    lines = [f"     M | {pairs_of} |    joint default/joint | up; down"]
    gains, against_bundled = [], []
    for m in points.tokens:
        default = default_config(points.problem, m)
        shipped = bundled.get(m, {})
        pairs = [
            points.pair(m, default, default),
            points.pair(m, shipped["up"], shipped.get("down", shipped["up"])) if shipped else None,
            (points.ranked("up", m)[0][0], points.ranked("down", m)[0][0]),
        ]
        joint, up, down = points.joint(m)
        cells = [f"{p[0]:8.2f} + {p[1]:8.2f}" if p else " " * 19 for p in pairs]
        gain = sum(pairs[0]) / joint if pairs[0] else 0.0
        gains.append(gain)
        if pairs[1]:
            against_bundled.append(sum(pairs[1]) / joint)
        lines.append(f"{m:6d} | {' | '.join(cells)} | {joint:8.2f} {gain:13.3f} | {up}; {down}")
    if gains and all(gains):
        lines.append(f"geometric mean of default / joint: {statistics.geometric_mean(gains):.4f}")
    if against_bundled:
        mean = statistics.geometric_mean(against_bundled)
        lines.append(f"geometric mean of bundled / joint: {mean:.4f} over {len(against_bundled)} batch sizes")
    return "\n".join(lines)


def notes(points: Points) -> str:
    """Return the noise, what sorted output costs, and how the best fares under sustained load."""
    lines = []
    for gemm in ("up", "down"):
        noise = {m: (points.sample_noise(gemm, m), points.pass_noise(gemm, m)) for m in points.tokens}
        lines.append(f"noise of a sample, of a pass, {gemm}: {noise}")
    ratios = [
        statistics.median(s[SORTED]) / statistics.median(points.samples["up", m, c][SORTED])
        for (g, m, c), s in points.samples.items()
        if g == "up_sorted" and SORTED in points.samples.get(("up", m, c), {})
    ]
    if len(ratios) > 1:
        deciles = [round(q, 4) for q in statistics.quantiles(ratios, n=10)]
        lines.append(f"up in sorted order / up, deciles of {len(ratios)}: {deciles}")
    for gemm in ("up", "down"):
        for m in points.tokens:
            loaded = {
                k: statistics.median(s[SUSTAINED])
                for k, s in points.samples.items()
                if k[:2] == (gemm, m) and SUSTAINED in s
            }
            if not loaded:
                continue
            hot, calm = min(loaded, key=loaded.__getitem__), min(loaded, key=points.microseconds)
            lines.append(
                f"sustained {gemm} {m}: best {loaded[hot]:.1f} us ({hot[2]}); the calm best of those timed "
                f"so: {points.microseconds(calm):.1f} us calm, {loaded[calm]:.1f} us sustained ({calm[2]})"
            )
    return "\n".join(lines)


def fixture(points: Points, about: Mapping[str, Any], bundled: Mapping[int, Mapping[str, Config]]) -> str:
    """Return the matrix as JSON: times in units of 10 ns, 0 where a point was not timed.

    A row of `up`, `down` and `up_sorted` is [configuration, a time for each of `tokens`]; of `compiled`,
    [product, configuration, shared memory, registers, stack bytes, seconds]; of `sustained`,
    [product, tokens, configuration, time].
    """
    head = {
        "about": about,
        "problem": _fields(points.problem),
        "tokens": points.tokens,
        "sample_noise": {g: [points.sample_noise(g, m) for m in points.tokens] for g in ("up", "down")},
        "pass_noise": {g: [points.pass_noise(g, m) for m in points.tokens] for g in ("up", "down")},
        "bundled": {m: {g: c.to_list() for g, c in e.items()} for m, e in bundled.items()},
    }
    parts = [f"{json.dumps(k)}:{json.dumps(v)}" for k, v in head.items()]
    for gemm in ("up", "down", "up_sorted"):
        configs = sorted({k[2] for k in points.samples if k[0] == gemm})
        rows = (
            [
                c.to_list(),
                [
                    round(points.microseconds((gemm, m, c)) * 100) if (gemm, m, c) in points.samples else 0
                    for m in points.tokens
                ],
            ]
            for c in configs
        )
        parts.append(f'"{gemm}":{_rows(rows)}')
    compiled = (
        [g, c.to_list(), r["shared"], r["registers"], r["stack"], round(r["seconds"], 2)]
        for (g, c), r in sorted(points.compiled.items())
    )
    parts.append(f'"compiled":{_rows(compiled)}')
    sustained = (
        [g, m, c.to_list(), round(statistics.median(s[SUSTAINED]) * 100)]
        for (g, m, c), s in sorted(points.samples.items())
        if SUSTAINED in s
    )
    parts.append(f'"sustained":{_rows(sustained)}')
    return "{" + ",\n".join(parts) + "}\n"


def _rows(rows: Iterable[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "]"


def _fields(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in problem.__dataclass_fields__}


def main() -> None:
    """Read a journal, write the fixture, print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("journal", type=Path)
    parser.add_argument(
        "--about", type=Path, required=True, help="the matrix.json of the same run, or a fixture made of it"
    )
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    run = json.loads(arguments.about.read_text())
    points = Points(problem_from(run["problem"]))
    opened: Any = {".gz": gzip.open, ".xz": lzma.open}.get(arguments.journal.suffix, open)
    with opened(arguments.journal, "rt") as lines:
        for line in lines:
            points.add(json.loads(line))
    bundled = {int(m): {g: Config.from_list(c) for g, c in e.items()} for m, e in run["bundled"].items()}
    if arguments.out:
        arguments.out.write_text(fixture(points, run["about"], bundled))
    print(table(points, bundled))
    print(notes(points))
    print(json.dumps(run["about"], indent=1))


if __name__ == "__main__":
    main()
