"""What is tuned and what came of it: the words that the tuner's parts and the repair share."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sgdoctor.tune.space import Capability, Config, Problem

Effort = Literal["quick", "balanced", "full"]
EFFORTS: tuple[Effort, ...] = ("quick", "balanced", "full")

# What a new configuration must win to take the place of another, and a file to be worth installing.
WORTH = 0.01

# Of all kinds and releases the largest relative error of a right result was 0.0023 (docs/benchmarks.md); a
# wrong scale, row or expert makes it some ten times this.
TOLERANCE = 0.01


@dataclass(frozen=True)
class Pair:
    """The configurations of both products at one batch size; one BLOCK_SIZE_M, or releases to 0.5.12 die."""

    up: Config
    down: Config

    def __post_init__(self) -> None:
        if self.up.block_m != self.down.block_m:
            raise ValueError(f"BLOCK_SIZE_M differs: up {self.up}, down {self.down}")

    def to_list(self) -> list[list[int]]:
        """Return both as JSON takes them."""
        return [self.up.to_list(), self.down.to_list()]

    @classmethod
    def from_list(cls, fields: Any) -> Pair:
        """Read what ``to_list`` wrote."""
        up, down = fields
        return cls(Config.from_list(up), Config.from_list(down))


Table = Mapping[int, Pair]  # by number of tokens, the keys of a config file


@dataclass(frozen=True)
class Job:
    """One shape to tune: the experts of one GPU, the kernel that computes them, the files that are missing.

    ``today`` is what SGLang would use at each batch size now; ``source`` where that comes from: ``default``
    (built in), ``fallback`` (a file of another Triton) or ``exact`` (a file that is to be replaced).
    ``up_tma``: the release reads USE_TMA in an up file. ``low_shared_memory``: the release has a default of
    its own for this GPU (space.default_config).
    """

    problem: Problem
    capability: Capability
    device: str
    release: str
    triton: str
    kernel: str
    up_file: str
    down_file: str
    today: Table
    source: str
    today_is: str  # in words: "the built-in default", "the file for Triton 3.2.0"
    default: Table
    up_tma: bool = False
    low_shared_memory: bool = False
    batch_sizes: tuple[int, ...] = ()

    @property
    def tokens(self) -> tuple[int, ...]:
        """The batch sizes to tune for."""
        return self.batch_sizes or tuple(sorted(self.today))


@dataclass(frozen=True)
class Times:
    """Microseconds of one batch.

    ``whole`` is the expert computation (align, up, activation, down, sum) with the standard ``error`` of its
    mean; ``up`` and ``down`` the two products alone.
    """

    whole: float
    error: float
    up: float
    down: float


@dataclass(frozen=True)
class Line:
    """One batch size: what goes into the file and what it was measured against.

    ``new`` are the times of the best pair found, ``tuned``; where it does not win, ``pair`` is what SGLang
    uses today and ``kept`` says why. ``wrong_today`` says why what SGLang uses today computes wrong results,
    which then is replaced whatever the times. Times of what does not run on this GPU are NaN.
    """

    tokens: int
    pair: Pair
    tuned: Pair
    today: Times
    default: Times
    new: Times
    kept: str = ""
    wrong_today: str = ""

    @property
    def runs_today(self) -> bool:
        """Whether what SGLang uses today runs on this GPU at all."""
        return not math.isnan(self.today.whole)

    @property
    def gain(self) -> float:
        """How many times faster than today the file is at this batch size; 1 where it was kept.

        NaN where today's does not run, and the file does.
        """
        return 1.0 if self.kept else self.today.whole / self.new.whole

    @property
    def gain_over_default(self) -> float:
        """The same over the built-in default; NaN where that, or what goes into the file, does not run."""
        return self.default.whole / (self.today if self.kept else self.new).whole


@dataclass(frozen=True)
class Tuning:
    """What tuning one shape gave. ``about``: GPU, UUID, driver, torch, Triton, kernel, routing, clocks, date.

    ``tuner`` is ``sgdoctor`` or ``sglang``; ``dropped`` counts the candidates that fell out, by reason.
    """

    job: Job
    lines: tuple[Line, ...]
    effort: Effort
    tuner: str
    seconds: float
    about: Mapping[str, Any] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def table(self) -> dict[int, Pair]:
        """What goes into the files."""
        return {line.tokens: line.pair for line in self.lines}

    @property
    def gain(self) -> float:
        """Geometric mean of today's time over the file's, of batch sizes that run today; 1 without any."""
        return _mean(line.gain for line in self.lines)

    @property
    def gain_over_default(self) -> float:
        """The same over the built-in default, of the batch sizes that it runs."""
        return _mean(line.gain_over_default for line in self.lines)

    @property
    def worth_installing(self) -> bool:
        """Whether the whole gains enough, or today's results are wrong, or it does not run today."""
        repaired = any(not line.kept and (line.wrong_today or not line.runs_today) for line in self.lines)
        return repaired or self.gain >= 1 + WORTH


def _mean(factors: Iterable[float]) -> float:
    """Return the geometric mean of those that are numbers; 1 where none is: there is nothing to compare."""
    numbers = [factor for factor in factors if not math.isnan(factor)]
    return statistics.geometric_mean(numbers) if numbers else 1.0


@dataclass(frozen=True)
class Progress:
    """Where a tuner is: what it does, how far it is, and the best so far over the default by batch size."""

    doing: str
    done: int
    total: int
    best: Mapping[int, float] = field(default_factory=dict)
    seconds_left: float | None = None


Listener = Callable[[Progress], None]
