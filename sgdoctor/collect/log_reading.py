"""One log, read once from its beginning to its end: what it says, and where."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sgdoctor import redact
from sgdoctor.collect import log_read, log_scan, log_text
from sgdoctor.collect.log_events import Events
from sgdoctor.collect.log_excerpts import Excerpts
from sgdoctor.collect.log_read import Blocks, LogSource
from sgdoctor.collect.log_text import Form, Record
from sgdoctor.facts import Excerpt
from sgdoctor.upstream import log_grammar
from sgdoctor.upstream.log_end import End, Line, end_of
from sgdoctor.upstream.log_release import Fit
from sgdoctor.upstream.log_stage import stage_of
from sgdoctor.upstream.log_start import Line as LineBefore
from sgdoctor.upstream.log_start import first_line

TAIL = 1 << 20
# A log that is newest first is turned round in memory, up to this size.
REVERSIBLE = 64 << 20

_EVENT = "\0"
_SHOWN = 700
# What kind of a line it is shows at its beginning.
_LOOKED_AT = 4096
_CONTEXT = 1 << 14
# Words that other programs print as well: vLLM has the same kernels, and uvicorn is everywhere.
_SHARED = frozenset({"moe", "gemm", "listening", "pause", "traceback"})
_ACCESS_LOG = re.compile(rb"INFO:     \S+ - \"")
# Events of which the lines around are worth a look, each of the first few.
_TELLING = frozenset({"weights", "capacity", "moe", "gemm", "retraction"})
_FEW = 4
_BATCHES = 1000
# What a start may print before its banner.
_BEFORE_BANNER_LINES = 1000
_BEFORE_BANNER = 1 << 16
# Where a batch's record begins, also behind the prefix of a logging configuration of one's own.
_BATCH_WITHIN = 120

# What only SGLang writes: a file without any of it is another program's log.
_OWN = re.compile(
    rb"sglang|sgl_kernel|sgl-kernel|server_args|(?:Decode|Prefill) batch|Load weight (?:begin|end)"
    rb"|KV Cache is alloc|Memory pool end|Init torch distributed|max_total_num_tokens=|fired up and ready"
    rb"|MoE kernel config"
    rb"|Capture (?:cuda|piecewise|target|draft)|[Rr]eceived sigquit|#queue-req|DeepGEMM JIT|flashinfer\.comm"
)
_BAR = re.compile(rb"\d+%\|.*[\d?:]+<[\d?:]+|\[\d\d:\d\d<|it/s\]|s/it\]")
# What begins a few lines that have no prefix: a traceback, a Python warning, argparse's usage
_OPENING = re.compile(rb"Traceback \(most recent call last\):|\.py:\d+: \w*Warning: |^usage: \S")
_USAGE_ERROR = re.compile(rb"\S[^:]*: error: ")


class First(NamedTuple):
    """The first line on which a rule's pattern was found."""

    line: int
    text: str
    groups: dict[str, str]


class Survey:
    """What a stretch of a log consists of; ranks, times and the package from line ``begins`` on."""

    def __init__(self, begins: int = 1) -> None:
        self._begins = begins
        self.lines = 0
        self.recognized = 0
        self.records = 0
        self.own = False
        self.ranks: set[str] = set()
        self.first_time = ""
        self.last_time = ""
        self.package: tuple[str, int] | None = None
        self.answers = False
        self._inside = False

    def take(self, number: int, found: list[Record]) -> None:
        """Take one physical line."""
        self.lines += 1
        known = not found
        for whole in found:
            record = whole._replace(text=whole.text[:_LOOKED_AT])
            self.own = self.own or bool(record.ranks or _OWN.search(record.text))
            known |= self._known(record)
            if number < self._begins:
                continue
            if record.time:
                self.first_time = self.first_time or _text(record.time)
                self.last_time = _text(record.time)
            if record.ranks:
                self.ranks.add(_text(record.ranks))
            self.answers = self.answers or bool(_ACCESS_LOG.match(record.text))
            if self.package is None and b"/sglang/" in record.text:
                folder = log_grammar.package_folder(_text(record.text))
                self.package = (folder, number) if folder else None
        self.recognized += known

    def _known(self, record: Record) -> bool:
        """Whether this is something that an SGLang server writes."""
        opens = bool(_OPENING.search(record.text))
        if record.stamped or opens or (record.time and _OWN.search(record.text)):
            self.records += 1
            self._inside = opens
            return True
        if self._inside and not record.time:
            # Indented lines, and the one that closes a traceback or a usage.
            self._inside = record.text[:1].isspace()
            return True
        return bool(_BAR.search(record.text) or _OWN.search(record.text) or _USAGE_ERROR.match(record.text))


class Reading:
    """What one log says. Line numbers count the physical lines of the file, from 1.

    A log often holds several starts of the server. What a rule's pattern finds, and every other fact, is that
    of the last one, which begins on line ``begins``; of a log that shows no start everything counts.
    """

    def __init__(self, name: str, patterns: Mapping[str, str]) -> None:
        self.name = name
        self.form = Form()
        self.total = 0
        self.begins = 1
        self.trouble = ""
        self.events = Events()
        self.matches: dict[str, First] = {}
        self.ranks: dict[str, set[str]] = {}
        self.head = Survey()
        self.tail = Survey()
        self.end = End()
        self.stage: str | None = None
        self.fit = Fit()
        self.decoded: list[tuple[int, str, dict[str, str]]] = []
        self.releases: list[str] = []
        self._own = False
        self._reversed = False
        self._excerpts = Excerpts()
        self._told: Counter[str] = Counter()
        self._exact = {code: log_scan.compile_pattern(code, pattern) for code, pattern in patterns.items()}
        sought = {code: pattern.encode() for code, pattern in patterns.items()}
        events = {_EVENT + name: pattern for name, pattern in log_grammar.INTERESTING.items()}
        in_bulk = {_EVENT + "retraction": self.events.retractions_in}
        self._scanner = log_scan.Scanner({**sought, **events}, frozenset(patterns), in_bulk)

    @property
    def usable(self) -> bool:
        """Whether anything in it is SGLang's."""
        return self._own or self.head.own or self.tail.own

    @property
    def records(self) -> int:
        """How many records were recognized in what was read line by line."""
        return self.head.records + self.tail.records if self.usable else 0

    def place(self, line: int) -> str:
        """Return the place of a line as a report gives it."""
        return f"{self.name}:{self._in_file(line)}"

    def _in_file(self, line: int) -> int:
        return self.total + 1 - line if self._reversed else line

    def excerpts(self) -> Iterator[Excerpt]:
        """Iterate over the lines that became matches or facts, each with those around it."""
        shown = {first.line: first.text for first in self.matches.values()}
        for number, texts in self._excerpts.texts.items():
            if texts[number].endswith("...") and number in shown:
                texts[number] = shown[number]  # it shows what matched
            lines = [(self._in_file(at), text) for at, text in texts.items()]
            yield Excerpt(self.place(number), self._in_file(number), lines)

    def count(self, code: str) -> int:
        """Return on how many lines a rule's pattern was found."""
        return self._scanner.counts[code]

    def read(self, source: LogSource, chunk: int = log_read.CHUNK) -> None:
        """Read the log; raises UsageError when it cannot be opened."""
        with source.open() as stream:
            blocks = Blocks(stream, chunk=chunk)
            self.form = log_text.detect(blocks.head)
            head, pieces = self._in_order(blocks)
            end = b""
            for raw, line in pieces:
                self.total = line + raw.count(b"\n") - raw.endswith(b"\n")
                self._scan(raw, line, end)
                end = raw[-TAIL:] if len(raw) >= TAIL else (end + raw)[-TAIL:]
                cut = len(end) == TAIL
            self.trouble = blocks.trouble
        self.events.close()
        tail = end[end.find(b"\n") + 1 :] if end and cut else end
        self._survey(head, tail)

    def _in_order(self, blocks: Blocks) -> tuple[bytes, Iterable[tuple[bytes, int]]]:
        """Return the beginning of the log and its blocks, oldest first where the log fits into memory."""
        if self.form.newest_first and (data := blocks.rest(REVERSIBLE)) is not None:
            self._reversed = True
            data = b"\n".join(reversed(data.removesuffix(b"\n").split(b"\n"))) + b"\n"
            return log_read.whole_lines(data[: log_read.HEAD]), [(data, 1)]
        return blocks.head, blocks

    def _scan(self, raw: bytes, line: int, before: bytes) -> None:
        block = log_text.plain(raw, self.form)
        lines = _Lines(raw, line, before)
        for number, text in self._scanner.hits(block, line):
            starts = self.events.starts
            self._look(number, log_text.records(lines[number] if self.form.json else text, self.form))
            self._scanner.follow = self.events.waiting
            if self.events.starts > starts and (self._reversed or not self.form.newest_first):
                self._start_over(lines, number)
        self._excerpts.take(lines, self.total, self.form)

    def _start_over(self, lines: _Lines, number: int) -> None:
        """Keep of what was found up to line ``number`` only what belongs to the start that shows there."""
        shown = self.events.run.line
        earlier: dict[int, list[Record]] = {}

        def back() -> Iterator[LineBefore]:
            for at, line in lines.back_from(shown):
                earlier[at] = log_text.records(line, self.form)
                for record in reversed(earlier[at]):
                    yield LineBefore(at, _text(record.text[:_LOOKED_AT]), bool(record.ranks))

        self.begins = first_line(shown, back())
        self._scanner.forget()
        self.matches.clear()
        self.ranks.clear()
        self._excerpts.forget()
        self._told.clear()
        for at in range(self.begins, shown):
            self._match(at, earlier[at])
        for at in range(shown, number + 1):
            self._match(at, log_text.records(lines[at], self.form))

    def _look(self, number: int, found: list[Record]) -> None:
        if self.events.waiting:
            self.events.go_on(found)
        for record, code in self._match(number, found):
            name = code.removeprefix(_EVENT)
            self.events.take(name, number, record)
            self._scanner.found(code)
            self._own |= record.stamped or name not in _SHARED
            if name in _TELLING and self._told[name] < _FEW:
                self._told[name] += 1
                self._excerpts.want(number)

    def _match(self, number: int, found: list[Record]) -> list[tuple[Record, str]]:
        """Note where rules' patterns were found; return the records that set facts."""
        seen: set[str] = set()
        events = []
        for record in found:
            for code in self._scanner.matching(record.text):
                if code in self._scanner.dense:
                    continue
                if code.startswith(_EVENT):
                    events.append((record, code))
                elif code not in seen:
                    seen.add(code)
                    self._found(code, number, record)
        return events

    def _found(self, code: str, number: int, record: Record) -> None:
        self._own |= record.stamped
        self._scanner.found(code)
        if record.ranks:
            self.ranks.setdefault(code, set()).add(_text(record.ranks))
        if code not in self.matches:
            self.matches[code] = self._first(code, number, record.text)
            self._excerpts.want(number)

    def _first(self, code: str, number: int, text: bytes) -> First:
        """Describe a match. Groups come from the redacted text: a pattern may catch a secret."""
        found = self._exact[code].search(text)
        start = max(0, (found.start() if found else 0) - _CONTEXT)
        clean = redact.text(_text(text[start : start + 2 * _CONTEXT]))
        again = self._exact[code].search(clean.encode())
        names = self._exact[code].groupindex
        groups = {
            _text(name): _text(again[index] or b"") if again else redact.REDACTED
            for name, index in names.items()
            if found is not None and found[index] is not None
        }
        if len(clean) > _SHOWN:
            start = max(0, (again.start() if again else 0) - _SHOWN // 4)
            clean = ("..." if start else "") + clean[start : start + _SHOWN] + "..."
        return First(number, clean.strip(), groups)

    def _survey(self, head: bytes, tail: bytes) -> None:
        """Look at the beginning and the end line by line."""
        whole = len(head) <= len(tail) and self.total <= tail.count(b"\n") + 1
        last: list[tuple[int, list[Record]]] = list(self._lines(tail, self.total - _count(tail) + 1))
        self.head, self.tail = Survey(self.begins), Survey(self.begins)
        seen = 0
        if not whole:
            for number, found in self._lines(head, 1):
                seen = number
                self.head.take(number, found)
                self._fit(number, found)
        rest = self.head if whole else self.tail
        for number, found in last:
            if number > seen:
                rest.take(number, found)
                self._fit(number, found)
        last = [(number, found) for number, found in last if number >= self.begins]
        self.end = end_of(
            Line(number, _text(record.text[:_LOOKED_AT]), record.stamped or bool(record.time))
            for number, found in last
            for record in found
        )
        self.stage = stage_of(_text(record.text[:_LOOKED_AT]) for _, found in last for record in found)
        self._load(last)
        if self.end.line and len(tail) < TAIL:  # else it is one line without its beginning
            self._excerpts.want(self.end.line)
            self._excerpts.take(_Lines(tail, self.total - _count(tail) + 1, b""), self.total, self.form)
        self._excerpts.close(self.form)

    def _fit(self, number: int, found: list[Record]) -> None:
        for record in found if number >= self.begins else ():
            self.fit.see(_text(record.text[:_LOOKED_AT]))

    def _lines(self, data: bytes, first: int) -> Iterator[tuple[int, list[Record]]]:
        for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], first):
            yield number, log_text.records(line[: log_read.LONGEST_LINE], self.form)

    def _load(self, lines: list[tuple[int, list[Record]]]) -> None:
        """Keep the numbers of the last decode batches."""
        for number, found in reversed(lines):
            for record in found:
                if b"Decode batch" in record.text[:_BATCH_WITHIN]:
                    self.decoded.append(
                        (number, _text(record.time)[:19], log_grammar.batch(_text(record.text[:_LOOKED_AT])))
                    )
            if len(self.decoded) >= _BATCHES:
                break
        self.decoded.reverse()


class _Lines:
    """The physical lines of a block, by their numbers in the file, and some of what comes before it."""

    def __init__(self, block: bytes, first: int, before: bytes) -> None:
        self._block, self._first, self._before = block, first, before
        self._split: list[bytes] = []
        # Of the first line the beginning is missing where it is cut off, or was in the block before.
        self._cut = len(before) >= TAIL or (bool(before) and not before.endswith(b"\n"))

    def __getitem__(self, number: int) -> bytes:
        index = self._index(number)
        return self._split[index][: log_read.LONGEST_LINE] if 0 <= index < len(self._split) else b""

    def whole(self, number: int) -> bytes | None:
        """Return a line, None where it is not among these from its beginning on."""
        index = self._index(number)
        return self._split[index] if self._cut <= index < len(self._split) else None

    def _index(self, number: int) -> int:
        if not self._split:
            whole = self._before.endswith(b"\n")
            before = self._before.removesuffix(b"\n").split(b"\n") if whole else []
            self._first -= len(before)
            self._split = before + self._block.removesuffix(b"\n").split(b"\n")
        return number - self._first

    def back_from(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Iterate over the lines before a line, the nearest first, as far as a start's own may reach."""
        room = _BEFORE_BANNER
        for at in range(number - 1, max(0, number - 1 - _BEFORE_BANNER_LINES), -1):
            line = self[at]
            room -= len(line) + 1
            if room < 0:
                return
            yield at, line


def _count(data: bytes) -> int:
    """Return the number of lines in ``data``, with one that lacks its line end."""
    return data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
