"""Reading logs as streams: files, gzip and standard input, in pieces cut at line ends, in constant memory."""

from __future__ import annotations

import io
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from sgdoctor.errors import UsageError

STANDARD_INPUT = "standard input"
CHUNK = 1 << 20
HEAD = 1 << 18
# A longer line is cut, so that a file without line ends does not end up in memory.
LONGEST_LINE = 1 << 20

_COMPRESSED = 1 << 16
_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}


class LogSource(msgspec.Struct, frozen=True):
    """One log, usually of one node: its name in reports, and how to open it for reading bytes."""

    name: str
    open: Callable[[], BinaryIO]


def source(argument: str) -> LogSource:
    """Return the log that ``--log`` names: a file, gzipped or not, or ``-`` for standard input.

    Opening it raises UsageError when there is no such file or it cannot be read as a log.
    """
    if argument == "-":
        return LogSource(STANDARD_INPUT, _standard_input)
    return LogSource(argument, lambda: _open_file(argument))


def _standard_input() -> BinaryIO:
    if sys.stdin is None:  # closed (<&-), or a service without one
        raise UsageError("--log -: standard input is closed: pipe the log in, or name its file")
    return _uncompressed(sys.stdin.buffer, STANDARD_INPUT)


def _open_file(name: str) -> BinaryIO:
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{name} is a directory; name the log file in it")
    try:
        raw = path.open("rb")
    except FileNotFoundError:
        raise UsageError(f"{name}: no such file") from None
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from None
    try:
        return _uncompressed(raw, name)
    except BaseException:
        raw.close()
        raise


def _uncompressed(raw: BinaryIO, name: str) -> BinaryIO:
    try:
        start = raw.peek(8)[:8]  # type: ignore[attr-defined]  # both callers pass buffered readers
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from None
    if start.startswith(_GZIP):
        return cast("BinaryIO", _Gzip(raw))
    for magic, kind in _OTHERS.items():
        if start.startswith(magic):
            raise UsageError(f"{name} is compressed with {kind}: unpack it, or pipe it in with --log -")
    if name.endswith(".gz") and start:
        raise UsageError(f"{name} is named .gz but is not gzip")
    return raw


class _Gzip(io.RawIOBase):
    """A gzip stream that gives everything up to where it is cut off or damaged, and only then raises."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._member = zlib.decompressobj(wbits=31)
        self._input = b""

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; raises EOFError at a cut, and zlib.error where it is damaged."""
        while True:
            self._input = self._input or self._raw.read(_COMPRESSED)
            if not self._input:
                if self._member.eof:
                    return b""
                raise EOFError
            if self._member.eof:  # what follows is another member, or the zeros of a tape
                self._input = self._input.lstrip(b"\0")
                if not self._input:
                    continue
                self._member = zlib.decompressobj(wbits=31)
            output = self._member.decompress(self._input, max(size, 0) or _COMPRESSED)
            self._input = self._member.unconsumed_tail or self._member.unused_data
            if output:
                return output

    def close(self) -> None:
        """Close the file under it too."""
        super().close()
        self._raw.close()


class Blocks:
    """The bytes of a log in blocks of whole lines, each with the number of its first line.

    ``head`` is the beginning of the log, read ahead. ``trouble`` says, once all was read, why the end is
    missing, if it is. What comes out depends on the bytes alone, not on how they arrive.
    """

    def __init__(self, stream: BinaryIO, *, chunk: int = CHUNK, head: int = HEAD) -> None:
        self.trouble = ""
        self._stream = stream
        self._chunk = min(chunk, LONGEST_LINE)
        pieces: list[bytes] = []
        size = 0
        while size < head and (piece := self._read()):
            pieces.append(piece)
            size += len(piece)
        self._ahead = b"".join(pieces)
        self.whole = size < head
        self.head = self._ahead if self.whole else whole_lines(self._ahead[:head])

    def _read(self) -> bytes:
        try:
            return self._stream.read(self._chunk) or b""
        except EOFError:
            self.trouble = "the gzip file is cut off; what comes before was read"
        except zlib.error as error:
            self.trouble = f"the gzip file is damaged ({error}); what comes before was read"
        except OSError as error:
            self.trouble = f"reading stopped ({error.strerror or error}); what comes before was read"
        return b""

    def _chunks(self) -> Iterator[bytes]:
        ahead = io.BytesIO(self._ahead)
        self._ahead = b""
        while piece := ahead.read(self._chunk):
            yield piece
        while piece := self._read():
            yield piece

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Iterate over blocks, each with the number of its first line; they end in line ends."""
        line = 1
        rest = b""
        for chunk in self._chunks():
            end = chunk.rfind(b"\n") + 1
            if not end:
                rest += chunk
                while len(rest) > LONGEST_LINE:
                    piece, rest = _cut(rest)
                    yield piece, line
                continue
            block = b"".join((rest, memoryview(chunk)[:end]))
            rest = chunk[end:]
            while block.find(b"\n", 0, LONGEST_LINE + 1) < 0 and len(block) > LONGEST_LINE:
                piece, block = _cut(block)
                yield piece, line
            yield block, line
            line += block.count(b"\n")
        if rest:
            yield rest, line

    def rest(self, limit: int) -> bytes | None:
        """Read everything at once; None when it is more than ``limit`` bytes (then iterate)."""
        pieces = [self._ahead]
        size = len(self._ahead)
        while size <= limit and (piece := self._read()):
            pieces.append(piece)
            size += len(piece)
        self._ahead = b"".join(pieces)
        return self._ahead if size <= limit else None


def whole_lines(data: bytes) -> bytes:
    """Return ``data`` up to its last line end (all of it when it has none)."""
    return data[: data.rfind(b"\n") + 1] or data


def _cut(line: bytes) -> tuple[bytes, bytes]:
    """Cut a line that is too long, at a carriage return if there is one."""
    end = line.rfind(b"\r", 0, LONGEST_LINE) + 1 or LONGEST_LINE
    return line[:end], line[end:]
