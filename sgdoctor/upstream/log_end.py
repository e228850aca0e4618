"""How a server's log ends: running, stopped on request, or dead, and of what.

Read from the end of a log: its last megabyte, record by record. The words were looked up in the sources of
0.5.7 to 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_LONGEST = 1000

_TRACEBACK = "Traceback (most recent call last):"
# run_scheduler_process, run_detokenizer_process, ...: the process ends and sends SIGQUIT to its parent
# _execute_server_warmup in http_server.py: the server kills itself and all its processes
_ENDS_A_PROCESS = re.compile(
    r"(?:\b\w+ hit an exception|Initialization failed\. warmup error): Traceback \(most recent call last\):"
)
# What Python, uvicorn and asyncio print in the line before of exceptions that end a request or a thread
_HANDLED = re.compile(
    r"Exception in ASGI application|Exception ignored in|Exception in thread"
    r"|Task exception was never retrieved|--- Logging error ---"
)
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::.*)?\Z", re.DOTALL)
_LOOKUP_FRAME = re.compile(
    r"fused_moe_triton_config\.py\", line \d+, in (?:try_get_optimal_moe_config|get_moe_configs)"
)

_CHILD_FAILED = re.compile(r"Received sigquit from a child process\.|SIGQUIT received\. ?signum=")
_CAUSE = re.compile(
    r"Subprocess \S+ \(pid=\d+\) crashed with exit code -?\d+"  # utils/watchdog.py, 0.5.10 and newer
    r"|Rank \d+ scheduler is dead\..*"  # entrypoints/engine.py, up to 0.5.9
    r"|Rank \d+ scheduler died during initialization .*"  # 0.5.10 and newer
    r"|\w+ watchdog timeout \(self\.watchdog_timeout=[\d.]+, self\.soft=False\)"  # utils/watchdog.py
    r"|Watchdog timeout \(self\.watchdog_timeout=[\d.]+\)"  # before 0.5.7
    r"|Fatal Python error: .*"
    r"|terminate called after throwing an instance of .*"
)
# The shell's last words: Killed; start.sh: line 3: 17 Killed python3 -m sglang.launch_server ...
_KILLED = re.compile(
    r"(?:(?:Killed|Segmentation fault|Aborted|Bus error)(?: \(core dumped\))?"
    r"|\S+: line \d+: +\d+ (?:Killed|Segmentation fault|Aborted|Bus error) .*)\Z"
)
# argparse: the last line of its usage
_USAGE = re.compile(r"usage: \S")
_USAGE_ERROR = re.compile(r"(?P<prog>\S[^:]*): error: \S.*\Z")
_OWN_PROGRAM = re.compile(r"sglang|launch_server")

_STOPPED = re.compile(r"SIGTERM received|INFO:     Shutting down\Z|INFO:     Finished server process")
_START = re.compile(r"server_args=(?:ServerArgs\(|\{)|'sglang serve' is the recommended entrypoint")
_ALIVE = re.compile(
    r"(?:Prefill|Decode) batch|The server is fired up|Load weight (?:begin|end)\.|Uvicorn running on"
    r"|\" 200(?: OK)?\Z"
)

_DEEPGEMM = re.compile(
    r"DeepGEMM warmup: |Entering DeepGEMM JIT Pre-Compile session|Try DeepGEMM JIT Compiling for"
    r"|Required memory for warmup: "
)
_ACCESS_LOG = re.compile(r"INFO:     \S+ - \"")
_BATCH = ("Decode batch", "Prefill batch")


class Line(NamedTuple):
    """One record, or one line without a prefix."""

    number: int
    text: str
    stamped: bool


class End(NamedTuple):
    """How a log ends.

    ``fatal`` is the exception, or else the last word, that ended the server, read at ``line``; ``early`` that
    it ended before its processes were up; ``deepgemm`` that it was pre-compiling DeepGEMM kernels.
    """

    died: bool = False
    stopped: bool = False
    fatal: str | None = None
    line: int | None = None
    early: bool = False
    in_moe_lookup: bool = False
    deepgemm: bool = False


class _Traceback:
    """A traceback, with those it is chained to."""

    def __init__(self, line: Line) -> None:
        self.ends_a_process = bool(_ENDS_A_PROCESS.search(line.text))
        self.bare = not line.stamped
        self.exceptions: list[tuple[str, int]] = []
        self.in_moe_lookup = False
        self.open = True
        self._chained = False

    def take(self, line: Line) -> bool:
        """Take the next line; False when it is not part of the traceback."""
        text = line.text.rstrip()
        if line.stamped:
            return False
        if text.strip() in _CHAINED:
            self._chained = True
        elif _TRACEBACK in text:
            if not self._chained:
                return False
            self.open, self._chained = True, False
        elif not self.open:
            return not _is_sign(text)
        elif text[:1] in " \t|+":
            self.in_moe_lookup |= bool(_LOOKUP_FRAME.search(text))
        elif text.endswith("RemoteTraceback:"):  # the other process's own traceback follows in quotes
            self.open, self._chained = False, True
        elif _EXCEPTION.match(text):
            self.exceptions.append((text[:_LONGEST], line.number))
            self.open = False
        return True

    def cause(self) -> tuple[str, int]:
        """Return the root cause and its line; where something else was raised because of it, that too."""
        (first, line), (last, _) = self.exceptions[0], self.exceptions[-1]
        return (first if first == last else f"{first}; then {last}"), line


def _is_sign(text: str) -> bool:
    signs = (_CHILD_FAILED, _CAUSE, _STOPPED, _START, _ALIVE)
    return bool(_KILLED.match(text) or _USAGE.match(text)) or any(sign.search(text) for sign in signs)


class _Reader:
    """Reads the end of a log line by line."""

    def __init__(self) -> None:
        self._handled = False
        self._open: _Traceback | None = None
        self._deepgemm = False
        self._start()

    def _start(self) -> None:
        """Forget what came before: a server starts."""
        self._tracebacks: list[_Traceback] = []
        self._causes: list[tuple[str, int]] = []
        self._child_failed: int | None = None
        self._stopped = False
        self._usage = False

    def read(self, line: Line) -> None:
        """Take one line."""
        text = line.text
        if not text.strip() or (self._open and self._open.take(line)):
            return
        if self._open and not self._open.open:
            self._open = None
        if text.startswith(_BATCH):
            self._alive()
            self._handled = self._deepgemm = False
            return
        if _START.search(text):
            self._start()
        elif _TRACEBACK in text:
            self._open = _Traceback(line)
            if not self._handled:
                self._tracebacks.append(self._open)
        elif _CHILD_FAILED.search(text):
            self._child_failed = self._child_failed or line.number
        elif _STOPPED.search(text):
            self._stopped |= not self._dying()
        elif _ALIVE.search(text):
            self._alive()
        else:
            self._cause(line)
        self._handled = bool(_HANDLED.search(text))
        if _DEEPGEMM.search(text):
            self._deepgemm = True
        elif line.stamped and not _ACCESS_LOG.match(text):
            self._deepgemm = False

    def _alive(self) -> None:
        """Forget what did not end the server."""
        if self._tracebacks:
            self._tracebacks = [one for one in self._tracebacks if one.ends_a_process]

    def _cause(self, line: Line) -> None:
        text = line.text.strip()
        if found := _CAUSE.search(text):
            self._causes.append((found[0][:_LONGEST], line.number))
        elif line.stamped:
            return
        elif _USAGE.match(text):
            self._usage = True
        elif (found := _USAGE_ERROR.match(text)) and (self._usage or _OWN_PROGRAM.search(found["prog"])):
            self._causes.insert(0, (found[0][:_LONGEST], line.number))
        elif _KILLED.match(text):
            self._causes.append((text[:_LONGEST], line.number))

    def _dying(self) -> bool:
        return bool(self._child_failed or self._causes or any(one.ends_a_process for one in self._tracebacks))

    def end(self) -> End:
        """Say how the log ends."""
        if self._stopped:
            return End(stopped=True)
        ends_here = self._open is not None and self._open in self._tracebacks and self._open.bare
        guilty = self._guilty()
        if not self._dying() and not (ends_here and guilty):
            return End(deepgemm=self._deepgemm)
        if guilty:
            fatal, line = guilty[0].cause()
            early = not guilty[0].ends_a_process
            return End(died=True, fatal=fatal, line=line, early=early, in_moe_lookup=guilty[0].in_moe_lookup)
        if self._causes:
            fatal, line = self._causes[0]
            return End(died=True, fatal=fatal, line=line, early=bool(_USAGE_ERROR.match(fatal)))
        return End(died=True, line=self._child_failed)

    def _guilty(self) -> list[_Traceback]:
        """Return the tracebacks that can have ended the server, the first one first."""
        whole = [one for one in self._tracebacks if one.exceptions]
        of_processes = [one for one in whole if one.ends_a_process]
        return of_processes or ([] if self._causes else [one for one in whole if one.bare])


def end_of(lines: Iterable[Line]) -> End:
    """Say how a log ends whose last lines are ``lines``."""
    reader = _Reader()
    for line in lines:
        reader.read(line)
    return reader.end()
