"""Finding the few lines of a log that matter, at the speed of the regular expression engine.

All patterns are looked for at once, in blocks of a megabyte. Only lines that hit are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from sgdoctor.errors import UsageError

# A pattern found on this many lines is only counted from there on.
DENSE = 2000

_MEMORY = 64 << 20


class Relaxed(NamedTuple):
    """A pattern for whole blocks: it matches wherever the original matches within one record."""

    pattern: bytes
    anchored: bool


def relax(pattern: bytes) -> Relaxed:
    """Return ``pattern`` without anchors and named groups (RE2 syntax)."""
    out = bytearray()
    anchored = False
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"\\":
            if pattern[at + 1 : at + 2] == b"Q":
                end = pattern.find(b"\\E", at)
                end = len(pattern) if end < 0 else end + 2
            else:
                end = at + 2
            if pattern[at:end] in (b"\\A", b"\\z"):
                anchored = True
            else:
                out += pattern[at:end]
            at = end
        elif char == b"[":
            end = _class_end(pattern, at)
            out += pattern[at:end]
            at = end
        elif char in (b"^", b"$"):
            anchored = True
            at += 1
        elif pattern.startswith((b"(?P<", b"(?<"), at):
            out += b"(?:"
            at = pattern.find(b">", at) + 1 or len(pattern)
        else:
            out += char
            at += 1
    return Relaxed(bytes(out) or b"(?:)", anchored)


def _class_end(pattern: bytes, at: int) -> int:
    """Return where the character class that begins at ``at`` ends."""
    at += 1
    if pattern[at : at + 1] == b"^":
        at += 1
    if pattern[at : at + 1] == b"]":
        at += 1
    while at < len(pattern) and pattern[at : at + 1] != b"]":
        if pattern[at : at + 1] == b"\\":
            at += 2
        elif pattern.startswith(b"[:", at) and (end := pattern.find(b":]", at)) > 0:
            at = end + 2
        else:
            at += 1
    return at + 1


def options() -> Any:
    """Return the options all patterns are compiled with: bytes, and never across a line end."""
    import re2

    chosen = re2.Options()
    chosen.encoding = re2.Options.Encoding.LATIN1
    chosen.never_nl = True
    chosen.log_errors = False
    chosen.max_mem = _MEMORY
    return chosen


def compile_pattern(code: str, pattern: str) -> Any:
    """Compile a rule's pattern as it stands; raises UsageError when RE2 has no such pattern."""
    import re2

    try:
        return re2.compile(pattern.encode(), options())
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise UsageError(f"the log pattern of {code} is not an RE2 pattern: {text}") from None


class Scanner:
    """Looks for patterns in blocks, and counts the lines on which they were found.

    ``countable`` are the codes of which only the number matters once they were found on `DENSE` lines: those
    are then counted by the engine alone, or by a function in ``in_bulk``, which is given a block and two
    places in it, in the order of the hits. While ``follow`` is set, every line is a hit.
    """

    def __init__(
        self,
        patterns: Mapping[str, bytes],
        countable: frozenset[str] = frozenset(),
        in_bulk: Mapping[str, Callable[[bytes, int, int], None]] | None = None,
    ) -> None:
        import re2

        self.counts = dict.fromkeys(patterns, 0)
        self.follow = False
        self._codes = list(patterns)
        self._relaxed = {code: relax(pattern) for code, pattern in patterns.items()}
        self._in_bulk = in_bulk or {}
        self._countable = countable | self._in_bulk.keys()
        self._dense: dict[str, Any] = {}
        self._fresh: list[str] = []
        self._in_whole_block: list[str] = []  # counted when the block that is read now was read
        self._any = self._alternation()
        self._set = re2.Set.SearchSet(options())
        for pattern in patterns.values():
            self._set.Add(pattern)
        self._set.Compile()

    def _alternation(self) -> Any:
        import re2

        chosen = options()
        chosen.never_capture = True
        sparse = [self._relaxed[code].pattern for code in self._codes if code not in self._dense]
        # Without a pattern left, one that matches nothing.
        return re2.compile(b"|".join(b"(?:%s)" % pattern for pattern in sparse) or b"[^\\x00-\\xff]", chosen)

    @property
    def dense(self) -> Collection[str]:
        """The codes that need not be looked at any more."""
        return self._dense.keys()

    def matching(self, text: bytes) -> list[str]:
        """Return the codes of the patterns that match ``text``, one record's."""
        return [self._codes[index] for index in self._set.Match(text) or ()]

    def found(self, code: str) -> None:
        """Count a line on which `matching` found this pattern; once a line, and not for `dense` codes."""
        self.counts[code] += 1
        if self.counts[code] >= DENSE and code in self._countable:
            self._make_dense(code)

    def forget(self) -> None:
        """Count from 0 again, from the line on that `hits` gave last."""
        self.counts = {code: count if code in self._in_bulk else 0 for code, count in self.counts.items()}
        self._in_whole_block = []
        self._fresh = [code for code in self._fresh if code in self._in_bulk]
        if dense := self._dense.keys() - self._in_bulk.keys():
            for code in dense:
                del self._dense[code]
            self._any = self._alternation()

    def _make_dense(self, code: str) -> None:
        import re2

        relaxed = self._relaxed[code]
        regex = re2.compile(b"(?:%s)[^\\n]*" % relaxed.pattern, options())
        if relaxed.anchored or regex.search(b""):
            self._countable -= {code}
            return
        self._dense[code] = regex
        self._fresh.append(code)
        self._any = self._alternation()

    def hits(self, block: bytes, line: int) -> Iterator[tuple[int, bytes]]:
        """Iterate over the lines of ``block`` that may match, numbered from ``line`` on."""
        self._in_whole_block = [code for code in self._dense if code not in self._in_bulk]
        bulk = dict.fromkeys(self._in_bulk.keys() & self._dense.keys(), 0)
        at = counted = 0
        while at < len(block):
            start = at
            if not self.follow:
                found = self._any.search(block, at)
                if not found:
                    break
                start = max(at, block.rfind(b"\n", at, found.start()) + 1)
            end = block.find(b"\n", start)
            end = len(block) if end < 0 else end
            line += block.count(b"\n", counted, start)
            counted = start
            for code, begin in bulk.items():
                self._in_bulk[code](block, begin, start)
                bulk[code] = start
            yield line, block[start:end]
            at = end + 1
            while self._fresh:
                code = self._fresh.pop()
                if code in self._in_bulk:
                    bulk[code] = at
                else:
                    self._count_dense(code, block, at)
        for code in self._in_whole_block:
            self._count_dense(code, block, 0)
        for code, begin in bulk.items():
            self._in_bulk[code](block, begin, len(block))

    def _count_dense(self, code: str, block: bytes, at: int) -> None:
        if at < len(block):
            self.counts[code] += sum(1 for _ in self._dense[code].finditer(block, at))
