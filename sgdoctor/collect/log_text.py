"""From the bytes of a log to records: what wraps a line is taken off, what is glued together is taken apart.

Bytes, not text, because a log is as large as a disk and most of it is never looked at: a pattern's `.` is a
byte, and only what reaches a fact is decoded.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import NamedTuple

# SGLang's own prefix, configure_logger in srt/utils/common.py (0.5.7 to 0.5.23): [time.ms ranks], no level.
# The encoder's processes have a name in place of ranks; a pasted first line often lacks its bracket.
_STAMP = re.compile(
    rb"(?:\[|^)(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)"
    rb"((?: (?:DP|PP|ATTN_CP|MOE_DP|DCP|TP|EP)\d+)*)(?: encode_(?:server|dp_worker\[\d+\]))?\] ?"
)
_DP_WORKER = re.compile(rb"(?<![A-Z_])DP\d+")  # not MOE_DP
# Records from before configure_logger: WARNING server_args.py:1543: text
_LEVEL_AND_FILE = re.compile(rb"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w./-]+\.py:\d+: ")
# A time of another logging configuration (SGLANG_LOGGING_CONFIG_PATH), at the start of a line
_OTHER_STAMP = re.compile(rb"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\s")

# What --log-requests prints, as text and as JSON (srt/utils/request_logger.py, 0.5.7 to 0.5.23). The rest of
# the line is what a client sent, perhaps a part of a log.
REQUEST = r'(?:Receive(?: OpenAI)?|Finish): obj=|"event": ?"request\.[a-z.]+"'
_REQUEST = re.compile(REQUEST.encode())

_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\^_])")

_RFC3339 = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_TRANSPORT = re.compile(
    rb"(?:"
    rb"[\w.-]+ +\| ?"  # docker compose: sglang-1  | text
    rb"|\[pod/[^\]\n]+\] ?"  # kubectl logs --prefix
    rb"|" + _RFC3339 + rb" (?:stdout|stderr) [FP] ?"  # CRI: /var/log/pods
    rb"|(?:DEFAULT|DEBUG|INFO|NOTICE|WARNING|ERROR|CRITICAL|ALERT|EMERGENCY) "
    + _RFC3339
    + rb" ?"  # Google Cloud
    rb"|" + _RFC3339 + rb" [\w.-]+ [\w./@:-]+\[\d+\]: ?"  # journalctl -o short-iso
    rb"|" + _RFC3339 + rb" ?"  # docker logs -t, kubectl logs --timestamps
    rb"|[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? (?:[\w.-]+ [\w./@:-]+\[\d+\]: ?)?"  # journalctl, ts
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} - \S+ - [A-Z]+ - ?"  # a Python program that passes the log on
    rb"|\([\w.: ]*pid=\d+(?:, ip=[\d.]+)?\) ?"  # Ray
    rb")"
)

# The member that holds the text, in the JSON lines of Docker's json-file driver, Google Cloud and formatters
_JSON_MEMBERS = ("log", "message", "msg", "textPayload", "text")
_JSON_LINE = re.compile(rb'^\s*\{.*?"(?:%s)" ?: ?"' % b"|".join(name.encode() for name in _JSON_MEMBERS))


class Record(NamedTuple):
    """One record, or one line without a prefix (then ``time`` is empty)."""

    time: bytes
    ranks: bytes  # b"DP0 TP1"
    text: bytes
    stamped: bool  # with SGLang's own prefix


class Form(NamedTuple):
    """How a log is written, as its beginning shows."""

    json: bool = False
    newest_first: bool = False


def detect(head: bytes) -> Form:
    """Tell how the log that begins with ``head`` is written."""
    filled = [line for line in head.split(b"\n", 200)[:200] if line.strip()]
    is_json = bool(filled) and 2 * sum(bool(_JSON_LINE.match(line)) for line in filled) > len(filled)
    form = Form(json=is_json)
    times = [stamp[1] for stamp in _STAMP.finditer(head) if stamp[0].startswith(b"[")]
    up = sum(earlier < later for earlier, later in pairwise(times))
    down = sum(earlier > later for earlier, later in pairwise(times))
    # Ranks that wait for one another write a second out of turn; a log that was appended to goes back once.
    return form._replace(newest_first=bool(times) and times[-1] < times[0] and down > 3 * up)


def plain(block: bytes, form: Form) -> bytes:
    """Return ``block`` without colours and NUL bytes, and JSON's escapes undone; it keeps its line ends.

    What a pattern finds in one of the records it must also find here.
    """
    if form.json:
        block = block.replace(b'\\"', b'"').replace(b"\\r", b"\r").replace(b"\\n", b"\r")
        block = block.replace(b"\\t", b"\t").replace(b"\\u001b", b"\x1b").replace(b"\\\\", b"\\")
    if b"\0" in block:
        block = block.translate(None, b"\0")
    if b"\x1b" in block:
        block = _ANSI.sub(b"", block)
    return block


def records(line: bytes, form: Form) -> list[Record]:
    """Take a physical line (as it is in the file) apart into its records.

    A progress bar rewrites its line with carriage returns, and the next record is glued behind it.
    """
    line = _unwrapped(line, form)
    if request := _REQUEST.search(line):
        line = line[: request.end()]
    segments = re.split(rb"[\r\n]", line) if b"\r" in line or b"\n" in line else [line]
    stamp = _STAMP.match(line) if line.startswith(b"[2") else None
    if (
        stamp
        and len(segments) == 1
        and line.find(b"[2", 1) < 0
        and not _LEVEL_AND_FILE.match(line, stamp.end())
    ):
        return [Record(stamp[1], stamp[2].strip(), line[stamp.end() :], stamped=True)]
    found: list[Record] = []
    for number, segment in enumerate(segments):
        if segment and not segment.isspace():
            _split(segment, found, first=number == 0)
    return found


def unwrapped(line: bytes, form: Form) -> list[bytes]:
    """Return the parts of a physical line between carriage returns, without what container runtimes add."""
    return [without_transport(part) for part in re.split(rb"[\r\n]", _unwrapped(line, form))]


def _unwrapped(line: bytes, form: Form) -> bytes:
    return plain(_unwrap_json(line) if form.json else line, Form())


def _split(segment: bytes, found: list[Record], *, first: bool) -> None:
    stamps = list(_STAMP.finditer(segment))
    lead = segment[: stamps[0].start()] if stamps else segment
    if first:
        lead = without_transport(lead)
    if lead and not lead.isspace():
        other = _OTHER_STAMP.match(lead)
        found.append(Record(other[1].replace(b"T", b" ") if other else b"", b"", lead, stamped=False))
    for number, stamp in enumerate(stamps):
        end = stamps[number + 1].start() if number + 1 < len(stamps) else len(segment)
        start = stamp.end()
        if level := _LEVEL_AND_FILE.match(segment, start, end):
            start = level.end()
        found.append(Record(stamp[1], stamp[2].strip(), segment[start:end], stamped=True))


def dp_worker(ranks: bytes) -> bytes:
    """Return the data-parallel worker among a record's ranks, empty where there is one server alone."""
    found = _DP_WORKER.search(ranks)
    return found[0] if found else b""


def without_transport(line: bytes) -> bytes:
    """Return ``line`` without what container runtimes, journals and wrapping programs put in front of it."""
    for _ in range(3):
        found = _TRANSPORT.match(line)
        if not found:
            break
        line = line[found.end() :]
    return line


def _unwrap_json(line: bytes) -> bytes:
    try:
        members = json.loads(line)
    except (ValueError, RecursionError):  # cut off, or no log's
        start = _JSON_LINE.match(line)
        return plain(line[start.end() :] if start else line, Form(json=True))
    if isinstance(members, dict):
        for name in _JSON_MEMBERS:
            if isinstance(text := members.get(name), str):
                return text.encode(errors="replace")
    return line
