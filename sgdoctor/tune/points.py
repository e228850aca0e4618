"""What is known of candidates so far, made of the journal's records alone.

A run that resumes knows what the one before knew.
"""

from __future__ import annotations

import collections
import statistics
from collections.abc import Mapping
from typing import Any

from sgdoctor.tune.model import TOLERANCE, Pair
from sgdoctor.tune.space import Config

EXPLORE, SPREAD, RACE, FINAL = "explore", "spread", "race", "final"
PHASES = (EXPLORE, SPREAD, RACE, FINAL)

_CHANGE_OF_PACE = 0.05

Key = tuple[str, int, Config]  # product, tokens, configuration
Whole = tuple[int, Pair]  # tokens, pair


class Points:
    """Samples in µs by phase, what the compiler said, what failed.

    ``dropped`` counts candidates by the reason why they fell out; ``broken`` are those on which a worker
    crashed, hung or lost its GPU: they are never tried again.
    """

    def __init__(self) -> None:
        self.compiled: dict[tuple[str, Config, int | None], Mapping[str, Any] | None] = {}
        self.medians: dict[str, dict[tuple[str, int], dict[Config, float]]] = {p: {} for p in PHASES}
        self.failed: dict[Key, str] = {}
        self.pairs: dict[str, dict[Whole, Mapping[str, list[float]]]] = collections.defaultdict(dict)
        self.failed_pairs: dict[Whole, str] = {}
        self.errors: dict[Key, float | str] = {}
        self.broken: dict[tuple[str, Config], str] = {}
        self.dropped: collections.Counter[str] = collections.Counter()
        self.started: collections.Counter[str] = collections.Counter()
        self._references: list[float] = []

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in a record of the journal."""
        kind = next(iter(record))
        getattr(self, f"_add_{kind}")(record)

    def known(self, phase: str, key: Key) -> bool:
        """Whether a product was timed in a phase."""
        gemm, tokens, config = key
        return config in self.medians[phase].get((gemm, tokens), {})

    def times(self, gemm: str, tokens: int, *, before: str | None = None) -> dict[Config, float]:
        """Return what the last phase that timed this product and batch size found, medians in µs.

        Phases load the GPU differently: their times are not mixed. ``before`` a phase: what it has to go by,
        however much of it is known already.
        """
        phases = PHASES[: PHASES.index(before)] if before else PHASES
        found = [each for phase in phases if (each := self.medians[phase].get((gemm, tokens)))]
        return found[-1] if found else {}

    def time(self, gemm: str, tokens: int, config: Config) -> float | None:
        """Return a configuration's time of the last phase that has it."""
        found = [
            time
            for phase in PHASES
            if (time := self.medians[phase].get((gemm, tokens), {}).get(config)) is not None
        ]
        return found[-1] if found else None

    def wrong(self) -> set[tuple[str, Config]]:
        """Return the products whose output was not right, or not to be had, at some batch size."""
        return {
            (gemm.removesuffix("_sorted"), config)
            for (gemm, _, config), error in self.errors.items()
            if isinstance(error, str) or not error <= TOLERANCE
        }

    def _add_compile(self, record: Mapping[str, Any]) -> None:
        gemm, fields, tokens = record["compile"]
        config = Config.from_list(fields)
        result = record["result"]
        self.compiled[gemm, config, tokens] = result if isinstance(result, dict) else None
        if not isinstance(result, dict):
            self.dropped["does not compile"] += 1
        elif record.get("dropped"):
            self.compiled[gemm, config, tokens] = None
            self.dropped[record["dropped"]] += 1

    def _add_started(self, record: Mapping[str, Any]) -> None:
        self.started[record["started"]] += 1

    def _add_time(self, record: Mapping[str, Any]) -> None:
        self.started.pop(record.get("task", ""), None)
        pace = self._pace(record)
        for (gemm, tokens, fields), result in zip(record["units"], record["samples"], strict=True):
            key = (gemm, tokens, Config.from_list(fields))
            if isinstance(result, str):
                self.failed[key] = result
                self.dropped[result.split(":")[0]] += 1
            else:
                here = self.medians[record["time"]].setdefault((gemm, tokens), {})
                here[key[2]] = statistics.median(result) / pace

    def _pace(self, record: Mapping[str, Any]) -> float:
        """Return how slow the GPU was during a batch: 1, but where its reference shows a change of pace.

        The reference is the batch's last sample. A GPU that got hot, or another GPU, must not make the
        batch's candidates look worse than others'.
        """
        last = record["samples"][-1] if record.get("reference") else ""
        if isinstance(last, str):
            return 1.0
        here = statistics.median(last)
        self._references.append(here)
        pace = here / statistics.median(self._references)
        return pace if abs(pace - 1) > _CHANGE_OF_PACE else 1.0

    def _add_stopped(self, _record: Mapping[str, Any]) -> None:
        """Forget what was under way when a run was interrupted: it did not kill it."""
        self.started.clear()

    def _add_pairs(self, record: Mapping[str, Any]) -> None:
        self.started.pop(record.get("task", ""), None)
        for (tokens, up, down), result in zip(record["units"], record["samples"], strict=True):
            key = (tokens, Pair.from_list((up, down)))
            if isinstance(result, str):
                self.failed_pairs[key] = result
            else:
                self.pairs[record["pairs"]][key] = result

    def _add_verify(self, record: Mapping[str, Any]) -> None:
        self.started.pop(record.get("task", ""), None)
        for (gemm, tokens, fields), error in zip(record["units"], record["errors"], strict=True):
            self.errors[gemm, tokens, Config.from_list(fields)] = error

    def _add_broken(self, record: Mapping[str, Any]) -> None:
        self.started.pop(record.get("task", ""), None)
        for gemm, fields in record["broken"]:
            key = (gemm, Config.from_list(fields).tile)
            if key not in self.broken:
                self.broken[key] = record["why"]
                self.dropped[record["ending"]] += 1

    def _add_finished(self, record: Mapping[str, Any]) -> None:
        """Nothing is learnt from the end of a run."""
