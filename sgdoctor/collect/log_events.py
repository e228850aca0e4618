"""The records of a log that set facts, gathered per server start: a log can hold several."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from sgdoctor.collect import log_text
from sgdoctor.collect.log_text import Record
from sgdoctor.upstream import log_grammar, server_args_text
from sgdoctor.upstream.server_args_text import Banner

# An engine that is started from Python prints its banner twice; no server starts again this fast.
_SAME_START_SECONDS = 5
# How many more lines a record may take that a terminal or a container runtime has broken up.
_BANNER_LINES = 1000
_PATH_LINES = 8
_LONGEST_BANNER = 1 << 18
_LONGEST_PATH = 1 << 14
_KEYS = ("api_key", "admin_api_key")
_RETRACTIONS = re.compile(rb"Retract requests\. #retracted_reqs: (\d{1,9})")


class Seen(msgspec.Struct):
    """A value, the line on which it was read first, and on how many lines (one a rank)."""

    value: Any
    line: int
    count: int = 1


class Retractions(msgspec.Struct):
    """What one rank wrote about requests that had to leave the KV cache; ``line`` 0: not looked up."""

    line: int
    requests: int = 0
    peak: int = 0
    minute: bytes = b""
    in_minute: int = 0


class Run:
    """What one start of a server has said so far."""

    def __init__(self, line: int = 0) -> None:
        self.line = line  # on which the start shows first
        self.launched = False  # whether that is a line from before the banner
        self.refused = False  # whether it ended while SGLang was imported, or at its arguments
        self.nodes: list[Any] = []  # whose banners there were: nodes can share a log
        self.banner: Seen | None = None  # Banner
        self.banner_time = ""
        self.began = False
        self.weights: dict[Hashable, Seen] = {}  # log_grammar.Weights
        self.capacities: dict[Hashable, Seen] = {}  # log_grammar.Capacity
        self.moe: dict[Hashable, Seen] = {}  # log_grammar.MoeLine
        self.gemm: dict[Hashable, Seen] = {}  # path
        self.deterministic: Seen | None = None
        self.listening: int | None = None
        self.ready: int | None = None
        self.retractions: dict[bytes, Retractions] = {}  # by the ranks that wrote
        self.paused = 0  # how many requests stopped its scheduler
        self.pauses: dict[str, int] = {}  # those that are not taken back, with their lines

    @property
    def went_on(self) -> bool:
        """Whether anything came that follows a banner."""
        return bool(self.began or self.weights or self.capacities or self.moe or self.ready or self.listening)


def requests_retracted(retractions: Iterable[tuple[bytes, Retractions]]) -> int:
    """Return how many requests were retracted: the ranks of one DP worker retract the same ones."""
    workers: dict[bytes, int] = {}
    for ranks, seen in retractions:
        key = log_text.dp_worker(ranks)
        workers[key] = max(workers.get(key, 0), seen.requests)
    return sum(workers.values())


class _Found(NamedTuple):
    """A record that sets facts."""

    line: int
    record: Record
    whole: bool = False  # nothing more is to come

    @property
    def text(self) -> str:
        return self.record.text[:_LONGEST_PATH].decode(errors="replace")

    @property
    def long_text(self) -> str:
        return self.record.text[:_LONGEST_BANNER].decode(errors="replace")

    def with_more(self, text: bytes) -> _Found:
        return self._replace(record=self.record._replace(text=self.record.text + text))


class _Broken(msgspec.Struct):
    """A record whose end is in the next lines, at most so many."""

    name: str
    found: _Found
    left: int


class Events:
    """Takes the records that set facts, in the order of the log."""

    def __init__(self) -> None:
        self.run = Run()
        self.starts = 0
        self.key: int | None = None  # the first banner of any start that shows a key
        self._broken: _Broken | None = None
        self._traceback = 0  # the line on which the last one begins
        self._refused_in = 0  # the one in which a start was last seen to end
        self._takers: dict[str, Callable[[_Found], bool]] = {
            "entrypoint": self._entrypoint,
            "refused": self._refused,
            "entering": self._entering,
            "traceback": self._traced,
            "banner": self._banner,
            "begin": self._begin,
            "weights": self._weights,
            "capacity": self._capacity,
            "moe": self._moe,
            "gemm": self._gemm,
            "listening": self._listening,
            "ready": self._ready,
            "retraction": self._retraction,
            "pause": self._pause,
        }

    def take(self, name: str, line: int, record: Record) -> None:
        """Take a record in which the pattern ``name`` of `log_grammar.INTERESTING` was found."""
        found = _Found(line, record)
        if not self._takers[name](found) and self._broken is None:
            self._broken = _Broken(name, found, _BANNER_LINES if name == "banner" else _PATH_LINES)

    @property
    def waiting(self) -> bool:
        """Whether the next line may go on with the last record."""
        return self._broken is not None

    def go_on(self, records: list[Record]) -> None:
        """Take the line that follows a record that was not whole."""
        broken = self._broken
        if broken is None:
            return
        if not records or records[0].stamped:
            self.close()
            return
        text = records[0].text
        broken.found = broken.found.with_more(text)
        broken.left -= 1
        closes = broken.name != "banner" or text.rstrip()[-1:] in (b")", b"}")
        if closes and self._takers[broken.name](broken.found):
            self._broken = None
        elif broken.left <= 0:
            self.close()

    def close(self) -> None:
        """Give up waiting for the rest of a record: what is there is taken."""
        broken, self._broken = self._broken, None
        if broken:
            self._takers[broken.name](broken.found._replace(whole=True))

    def _banner(self, found: _Found) -> bool:
        banner = server_args_text.parse(found.long_text)
        if banner is None or not (banner.complete or found.whole):
            return False
        self._start(found, banner)
        return True

    def _begins(self, line: int) -> None:
        self.run = Run(line)
        self.starts += 1

    def _entrypoint(self, found: _Found) -> bool:
        run = self.run
        if not run.launched or run.refused or run.banner or run.went_on:
            self._begins(found.line)
            self.run.launched = True
        return True

    def _refused(self, found: _Found) -> bool:
        """Take the end of a start before its banner; it may be the first that is seen of it."""
        inside = 0 if "usage: " in found.text else self._traceback
        if not inside or self._refused_in != inside:
            self._entrypoint(found)
        self.run.refused = True
        self._refused_in = inside
        return True

    def _entering(self, found: _Found) -> bool:
        """Take a frame of the main process with the line after it: an import there is one that failed."""
        code = found.text.partition(", in ")[2].partition(" ")[2].strip()
        if not code and not found.whole:
            return False
        if code.startswith(("from ", "import ")) and self._traceback:
            self._refused(found)
        return True

    def _traced(self, found: _Found) -> bool:
        # A process that SGLang spawns imports the main module again.
        self._traceback = found.line if "Traceback" in found.text else 0
        return True

    def _start(self, found: _Found, banner: Banner) -> None:
        time = found.record.time.decode()
        node = banner.values.get("node_rank", 0)
        if not self._same_start(node, time):
            self._begins(found.line)
        if self.key is None and any(_clear(banner.values.get(name)) for name in _KEYS):
            self.key = found.line
        if self.run.banner is None or node in self.run.nodes or node == 0:
            self.run.banner = Seen(banner, found.line)
        if not self.run.nodes:
            self.run.banner_time = time
        self.run.nodes.append(node)

    def _same_start(self, node: Any, time: str) -> bool:
        """Whether a node's banner belongs to the start that is being read."""
        if self.run.banner is None:
            return self.run.launched and not (self.run.refused or self.run.went_on)
        if node not in self.run.nodes:
            return True
        return not self.run.went_on and _within(self.run.banner_time, time, _SAME_START_SECONDS)

    def _begin(self, _: _Found) -> bool:
        self.run.began = True
        return True

    def _weights(self, found: _Found) -> bool:
        weights = log_grammar.weights(found.text)
        if weights is None or (weights.gigabytes is None and not found.whole):
            return False
        _count(self.run.weights, weights, weights, found.line)
        return True

    def _capacity(self, found: _Found) -> bool:
        capacity = log_grammar.capacity(found.text)
        if capacity is None or (capacity.available_gb is None and not found.whole):
            return False
        _count(self.run.capacities, capacity, capacity, found.line)
        return True

    def _moe(self, found: _Found) -> bool:
        text = found.text
        if log_grammar.MOE_DETERMINISTIC in text:
            self.run.deterministic = self.run.deterministic or Seen(True, found.line)
            return True
        if (lookup := log_grammar.moe(text)) is None:
            return False
        _count(self.run.moe, (lookup.source, lookup.looked_for.file), lookup, found.line)
        return True

    def _gemm(self, found: _Found) -> bool:
        if (path := log_grammar.gemm(found.text)) is None:
            return False
        _count(self.run.gemm, path, path, found.line)
        return True

    def _listening(self, found: _Found) -> bool:
        self.run.listening = self.run.listening or found.line
        return True

    def _ready(self, found: _Found) -> bool:
        self.run.ready = self.run.ready or found.line
        return True

    def _pause(self, found: _Found) -> bool:
        what = log_grammar.pause(found.text)
        for stops, goes_on in log_grammar.PAUSES.items():
            if what == stops:
                self.run.paused += 1
                self.run.pauses[stops] = found.line
            elif what == goes_on:
                self.run.pauses.pop(stops, None)
        return True

    def _retraction(self, found: _Found) -> bool:
        ranks, minute = found.record.ranks, found.record.time[:16]
        self._retracted(ranks, minute, log_grammar.retracted(found.text), found.line)
        return True

    def retractions_in(self, block: bytes, start: int, end: int) -> None:
        """Take all retractions between two places of a block, of a log that has very many."""
        for found in _RETRACTIONS.finditer(block, start, end):
            line = block.rfind(b"\n", 0, found.start()) + 1
            stamp = block.rfind(b"[2", line, found.start()) + 1 or line
            ranks = block[stamp + 19 : found.start()].partition(b"]")[0].partition(b" ")[2]
            self._retracted(ranks, block[stamp : stamp + 16], int(found[1]))

    def _retracted(self, ranks: bytes, minute: bytes, requests: int, line: int = 0) -> None:
        seen = self.run.retractions.setdefault(ranks, Retractions(line))
        seen.requests += requests
        seen.in_minute = 1 + (seen.in_minute if minute == seen.minute else 0)
        seen.minute = minute
        seen.peak = max(seen.peak, seen.in_minute)


def _count(seen: dict[Hashable, Seen], key: Hashable, value: Any, line: int) -> None:
    if key in seen:
        seen[key].count += 1
    else:
        seen[key] = Seen(value, line)


def _clear(key: object) -> bool:
    """Whether a key is there, and not what somebody put in its place, *** or <redacted>."""
    return isinstance(key, str) and key[:1] not in ("", "*", "<")


def _within(earlier: str, later: str, seconds: int) -> bool:
    try:
        gap = datetime.fromisoformat(later[:19]) - datetime.fromisoformat(earlier[:19])
    except ValueError:
        return False
    return abs(gap.total_seconds()) <= seconds
