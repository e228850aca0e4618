"""Logs for tests: real ones, and the ways in which they reach an operator's hands."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

from sgdoctor.collect.log import LogSource, read_logs
from sgdoctor.errors import Undecided
from sgdoctor.facts import Facts, Known

TESTS = Path(__file__).parents[1]
CAPTURED = {folder.parent.name: folder for folder in sorted((TESTS / "captures").glob("*/server.log"))}
SCENARIO = TESTS / "scenarios/rtx-pro-6000/server.log"

NANOSECONDS = "2026-11-30T05:07:50.123456789Z"


def captured(name: str) -> bytes:
    """Return the log of a server that ran SGLang 0.5.12 on an H200."""
    return CAPTURED[name].read_bytes()


def of_bytes(data: bytes, name: str = "server.log") -> LogSource:
    return LogSource(name, lambda: io.BytesIO(data))


def read(data: bytes | str, patterns: dict[str, str] | None = None, *, chunk: int = 1 << 20) -> Facts:
    """Read one log; one that holds nothing gives what facts there are."""
    facts = Facts()
    data = data.encode() if isinstance(data, str) else data
    try:
        read_logs(facts, [of_bytes(data)], patterns or {}, chunk=chunk)
    except Undecided:
        assert facts.value("log.records") == 0
    return facts


def values(facts: Facts, *, places: bool = True) -> dict[str, object]:
    """Return what is known, with the place in the log."""
    known = {name: fact for name, fact in facts.items() if isinstance(fact, Known)}
    return {
        name: (fact.value, fact.count, fact.provenance[0].place if places else None)
        for name, fact in known.items()
    }


def each_line(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Return a function that changes every physical line of a log."""

    def changed(log: bytes) -> bytes:
        return b"".join(change(line) + b"\n" for line in log.removesuffix(b"\n").split(b"\n"))

    return changed


def before(prefix: str) -> Callable[[bytes], bytes]:
    return each_line(lambda line: prefix.encode() + line)


def docker_json(line: bytes) -> bytes:
    """Return a line as Docker's json-file driver stores it."""
    text = line.decode(errors="replace") + "\n"
    return json.dumps({"log": text, "stream": "stderr", "time": NANOSECONDS}, ensure_ascii=False).encode()


def formatter_json(line: bytes) -> bytes:
    """Return a line as a JSON formatter of one's own may write it."""
    return json.dumps(
        {"ts": NANOSECONDS, "severity": "INFO", "message": line.decode(errors="replace")}
    ).encode()


def cri(log: bytes, longest: int = 4096) -> bytes:
    """Return a log as containerd stores it under /var/log/pods: long lines in parts, marked P."""
    out = []
    for line in log.removesuffix(b"\n").split(b"\n"):
        parts = [line[at : at + longest] for at in range(0, len(line), longest)] or [b""]
        marks = [b"P"] * (len(parts) - 1) + [b"F"]
        out += [
            f"{NANOSECONDS} stderr ".encode() + mark + b" " + part
            for part, mark in zip(parts, marks, strict=True)
        ]
    return b"".join(part + b"\n" for part in out)


def wrapped(log: bytes, columns: int) -> bytes:
    """Return a log as it is copied out of a terminal that is so many columns wide."""
    out = []
    for physical in log.removesuffix(b"\n").split(b"\n"):
        line = physical.rpartition(b"\r")[2]
        out += [line[at : at + columns] for at in range(0, len(line), columns)] or [b""]
    return b"".join(part + b"\n" for part in out)


def milliseconds(log: bytes) -> bytes:
    """Return a log as SGLANG_LOG_MS=1 writes it."""
    return re.sub(rb"\[(2026-\d\d-\d\d \d\d:\d\d:\d\d)", rb"[\1.042", log)


def coloured(line: bytes) -> bytes:
    return b"\x1b[36m" + line.replace(b"MoE", b"\x1b[1;31mMoE\x1b[0m\x1b[36m") + b"\x1b[0m"


# Those that leave the line numbers as they are.
SAME_LINES: dict[str, Callable[[bytes], bytes]] = {
    "docker compose": before("sglang-1  | "),
    "docker compose, coloured": before("\x1b[36msglang-1  | \x1b[0m"),
    "kubectl logs --prefix": before("[pod/sglang-0/server] "),
    "kubectl logs --timestamps": before(f"{NANOSECONDS} "),
    "kubectl logs --prefix --timestamps": before(f"[pod/sglang-0/server] {NANOSECONDS} "),
    "CRI": lambda log: cri(log, 1 << 20),
    "journalctl": before("Nov 30 05:07:50 gpu01 python3[1234]: "),
    "journalctl -o short-iso": before("2026-11-30T05:07:50+0000 gpu01 python3[1234]: "),
    "ts": before("Nov 30 05:07:50 "),
    "Google Cloud": before(f"ERROR {NANOSECONDS} "),
    "a Python program around it": before("2026-11-30 05:07:50,727 - __main__ - INFO - "),
    "Ray": before("(SGLangWorker pid=38135) "),
    "Ray, of another node": before("(SGLangWorker pid=38135, ip=10.0.0.7) "),
    "Windows line ends": lambda log: log.replace(b"\n", b"\r\n"),
    "colours": each_line(coloured),
    "NUL bytes": lambda log: log.replace(b"oE", b"o\0E"),
    "invalid UTF-8": lambda log: log.replace(b"Tokenizer loaded", b"Tokenizer \xff\xfe loaded"),
    "json-file": each_line(docker_json),
    "JSON of a formatter": each_line(formatter_json),
}
