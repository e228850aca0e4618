"""A log while it is written: what is added after its end, also when it is rotated or cut short meanwhile."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import BinaryIO

import msgspec

from sgdoctor.collect import log_read, log_text
from sgdoctor.collect.log_text import Form, Record
from sgdoctor.errors import UsageError
from sgdoctor.upstream import log_grammar

# What is read at once: a log that grows faster than this is followed at its end.
MOST = 16 << 20
_BATCH_WITHIN = 120
_LOOKED_AT = 4096
# uvicorn's access log, and what health_generate in srt/entrypoints/http_server.py writes (0.5.7 to 0.5.23):
# a server whose schedulers hang writes these too.
_ANSWERS = re.compile(rb"INFO:     \S+ - \"|Health check (?:failed\.|request received during shutdown)")
# Requests that stop the scheduler, let it go on, or bring other weights: no log with one tells a hang.
_PAUSES = re.compile(
    rb"/(?:pause|continue)_generation|/(?:release|resume)_memory_occupation|/update_weights_"
)
_BANNER = re.compile(log_grammar.INTERESTING["banner"])
# What decode lines say, by the name of the measure; beside these how full the KV cache is.
_MEASURES = {
    "running_requests": "#running-req",
    "queued_requests": "#queue-req",
    "accept_length": "accept len",
    "decode_throughput": "gen throughput (token/s)",
}


def can_grow(name: str) -> None:
    """Raise UsageError when ``name`` is no log that a server writes at."""
    if name == "-":
        raise UsageError("--watch follows a log file, and standard input is none: name the file")
    if name.endswith(".gz"):
        raise UsageError(f"--watch: {name} is compressed and does not grow: name the log itself")


class Numbers(msgspec.Struct):
    """What several lines say of a measure: how many they are, their sum, the largest."""

    count: int = 0
    total: float = 0.0
    largest: float = 0.0

    @property
    def mean(self) -> float:
        """The mean of at least one."""
        return self.total / self.count

    def add(self, value: float) -> None:
        """Take one more line."""
        self.count += 1
        self.total += value
        self.largest = max(self.largest, value)


class Batches:
    """What the batch lines of one rank add up to.

    ``decode`` holds what the decode lines say of each measure, added up by the time at which they were read:
    a server may write hundreds of them a second.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.decode: dict[str, dict[float, Numbers]] = {}
        self.new_tokens = 0.0
        self.cached_tokens = 0.0

    def decoded(self, at: float, values: dict[str, float]) -> None:
        """Take a decode line."""
        told = {measure: values[name] for measure, name in _MEASURES.items() if name in values}
        used = [value for name, value in values.items() if name.endswith("usage")]
        if used:  # hybrid models report one for each pool, and the fullest counts
            told["token_usage"] = max(used)
        for measure, value in told.items():
            self.decode.setdefault(measure, {}).setdefault(at, Numbers()).add(value)


class Follower:
    """Reads what a log gets from now on.

    ``batches`` holds what each rank wrote, ``retracted`` how many requests each rank says had to leave
    the KV cache, both since ``since``, the time of the last start; ``lines`` how many lines there were,
    ``spoke`` whether any was more than an answer to a request or a failed health check, ``notes`` what
    happened to the file. Raises UsageError when there is no such file, or it is none that grows.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0
        self.spoke = False
        self.since = 0.0
        self.batches: dict[bytes, Batches] = {}
        self.retracted: dict[bytes, int] = {}
        self.notes: list[str] = []
        self._path = Path(name)
        self._rest = b""
        self._at = 0.0
        can_grow(name)
        self._form = self._head()
        self._file = self._opened()
        if self._file is None:
            raise UsageError(f"{name}: cannot be read")
        self._file.seek(0, os.SEEK_END)

    def _head(self) -> Form:
        with log_read.source(self.name).open() as stream:
            return log_text.detect(stream.read(log_read.HEAD) or b"")

    def _opened(self) -> BinaryIO | None:
        try:
            return self._path.open("rb")
        except OSError:
            return None

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def read_on(self, at: float = 0.0) -> None:
        """Take what was added since the last time, ``at`` seconds after the beginning; never raises."""
        self._at = at
        if self._file is None:
            self._file = self._opened()
            if self._file is None:
                return
        try:
            self._read_file(self._file)
            if self._rotated(self._file):
                self._note("was rotated while it was watched; both files were read")
                self.close()
                self._take(b"\n")
                self._file = self._opened()
                if self._file is not None:
                    self._read_file(self._file)
        except OSError as error:
            self._note(f"could not be read on ({error.strerror or error})")

    def _read_file(self, file: BinaryIO) -> None:
        size, here = os.fstat(file.fileno()).st_size, file.tell()
        if size < here:
            self._note("was cut short while it was watched; what came between may be missing")
            file.seek(0)
            self._rest, here = b"", 0
        if size - here > MOST:
            self._note("grows faster than it is read; only the end of each part was")
            file.seek(size - MOST)
            self._rest = b""
        self._take(file.read(MOST))

    def _rotated(self, file: BinaryIO) -> bool:
        """Whether the name now stands for another file."""
        try:
            now = self._path.stat()
        except OSError:
            return False  # moved away, and the new one is not there yet
        mine = os.fstat(file.fileno())
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def _note(self, said: str) -> None:
        note = f"{self.name}: {said}"
        if note not in self.notes:
            self.notes.append(note)

    def _take(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-log_read.LONGEST_LINE :]
        # A progress bar rewrites its line and does not end it for minutes.
        self.spoke |= b"\r" in self._rest
        for line in whole:
            if not line:
                continue
            self.lines += 1
            self.spoke |= not _ANSWERS.search(line) or bool(_PAUSES.search(line))
            if b" batch" in line or b"Retract requests" in line or _BANNER.search(line):
                for record in log_text.records(line[: log_read.LONGEST_LINE], self._form):
                    self._record(record)

    def _start_over(self) -> None:
        """Forget what an earlier start did."""
        if self.batches or self.retracted:
            self._note("the server was started again while it was watched; what it did before is left out")
        self.since = self._at
        self.batches.clear()
        self.retracted.clear()

    def _record(self, record: Record) -> None:
        text = record.text[:_LOOKED_AT]
        if _BANNER.search(text):
            self._start_over()
            return
        if b"Retract requests" in text:
            requests = log_grammar.retracted(text.decode(errors="replace"))
            self.retracted[record.ranks] = self.retracted.get(record.ranks, 0) + requests
            return
        seen = self.batches.setdefault(record.ranks, Batches())
        seen.lines += 1
        values = {
            name: number
            for name, said in log_grammar.batch(text.decode(errors="replace")).items()
            if (number := _number(said)) is not None
        }
        if b"Decode batch" in text[:_BATCH_WITHIN]:
            seen.decoded(self._at, values)
        elif b"Prefill batch" in text[:_BATCH_WITHIN]:
            seen.new_tokens += values.get("#new-token", 0.0)
            seen.cached_tokens += values.get("#cached-token", 0.0)


def workers(logs: Iterable[Follower]) -> list[Batches]:
    """Return the batches of each DP worker, as the one rank tells that wrote the most lines.

    Its others, on any node, write of the same batches: a rank of each pipeline stage does, the one that
    is_stats_logging_rank is true of (0.5.10, 0.5.12, 0.5.13 and 0.5.23).
    """
    found: dict[bytes, Batches] = {}
    for ranks, batches in (told for log in logs for told in log.batches.items()):
        worker = log_text.dp_worker(ranks)
        if worker not in found or batches.lines > found[worker].lines:
            found[worker] = batches
    return [*found.values()]


def retractions(logs: Iterable[Follower]) -> int:
    """Return how many requests were retracted: the ranks of one DP worker, on any node, retract the same."""
    workers: dict[bytes, int] = {}
    for ranks, number in (told for log in logs for told in log.retracted.items()):
        worker = log_text.dp_worker(ranks)
        workers[worker] = max(workers.get(worker, 0), number)
    return sum(workers.values())


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
