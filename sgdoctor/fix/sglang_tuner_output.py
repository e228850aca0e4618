"""What SGLang's tuner prints: how far it is, and why it failed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from sgdoctor.errors import DoctorError, Undecided, UsageError

# tuning_fused_moe_triton.py of 0.5.9 to 0.5.23
_START = re.compile(r"Start tuning over (\d+) configurations to create (.+?)\.\.\.\s*$")
# tqdm's bar: " 5%|5   | 96/1920 [02:10<39:00, 1.30s/it]"; as Ray 2.60 draws it, " 5%|5   | 96.0/1.92k [...".
_BAR = re.compile(r"(\d[\d.]*)(k?)/(\d[\d.]*)(k?) \[")
# ray.experimental.tqdm_ray writes this, one line a step, where no driver draws the bar.
_RAY_BAR = re.compile(r"__ray_tqdm_magic_token__(\{.*\})")
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LAST_ERROR = re.compile(r"^(?:.*pid=\d+[^)]*\)\s*)?((?:\w+\.)*\w*(?:Error|Exception|error)\b.*)$")

_SAME = "use a checkout of the installed SGLang's own release, or sgdoctor's own tuner"
_OURS = "sgdoctor's own tuner needs no such thing: leave out --tuner sglang"

# What the output says, what that means, and whether the operator can change it. The first that is found.
_CAUSES: tuple[tuple[re.Pattern[str], str, type[DoctorError]], ...] = (
    (re.compile(r"No module named 'ray'"), f"Ray is not installed; {_OURS}", UsageError),
    (
        re.compile(r"(?:ModuleNotFoundError|ImportError): (.{1,200})"),
        f"it cannot be imported with this interpreter ({{0}}); {_SAME}",
        UsageError,
    ),
    (
        re.compile(r"object has no attribute '(num_local_experts)'"),
        f"it does not know this model's architecture (no {{0}}); {_OURS}",
        UsageError,
    ),
    (
        re.compile(r"error: (argument .{1,200}|unrecognized arguments: .{1,200})"),
        f"this checkout's tuner does not take what is asked of it ({{0}}); {_SAME}",
        UsageError,
    ),
    (
        re.compile(r"KeyError: 'GPU'"),
        "Ray found no GPU; give it one that the driver shows (nvidia-smi -L)",
        UsageError,
    ),
    (
        re.compile(r"(?:OutOfMemoryError|CUDA out of memory)"),
        "the GPU's memory is full; stop what else runs on it, or name another with --gpu",
        Undecided,
    ),
    (
        re.compile(r"(CUDA error: [^\n]{1,150}|Triton Error \[CUDA\][^\n]{0,150})"),
        "the GPU failed under it ({0}); sgdoctor's own tuner leaves out what breaks: try that",
        Undecided,
    ),
    (
        re.compile(r"assert best_config is not None"),
        "none of its configurations ran; sgdoctor's own tuner says why each does not",
        Undecided,
    ),
)


@dataclass
class Reading:
    """What a run has printed so far: configurations done and in all, the file it will write."""

    done: int = 0
    total: int = 0
    file: str = ""
    _rest: str = field(default="", repr=False)

    def feed(self, text: str) -> bool:
        """Read what was printed next; whether it said how far the tuner is."""
        *lines, self._rest = re.split(r"[\r\n]", self._rest + text)
        self._rest = self._rest[-4096:]
        before = (self.done, self.total)
        for line in lines:
            self._line(_COLOURS.sub("", line))
        return (self.done, self.total) != before

    def _line(self, line: str) -> None:
        if start := _START.search(line):
            self.total, self.file = int(start.group(1)), start.group(2)
        elif token := _RAY_BAR.search(line):
            self._bar(*_ray_bar(token.group(1)))
        elif bar := _BAR.search(line):
            self._bar(_number(*bar.group(1, 2)), _number(*bar.group(3, 4)))

    def _bar(self, done: float, total: float) -> None:
        if self.total and abs(total - self.total) <= self.total / 100:  # rounded to three digits
            self.done = round(done)


def _number(digits: str, thousands: str) -> float:
    try:
        return float(digits) * (1000 if thousands else 1)
    except ValueError:
        return 0.0


def _ray_bar(text: str) -> tuple[int, int]:
    try:
        state = json.loads(text)
        return int(state["x"]), int(state["total"])
    except (ValueError, KeyError, TypeError):
        return 0, 0


def why(status: int, output: str) -> tuple[str, type[DoctorError]]:
    """Return why a run failed, in a clause with the way out, and the error to raise.

    ``status`` is the exit status (negative: the signal), ``output`` the end of what it printed.
    """
    output = _COLOURS.sub("", output)
    last = output[output.rfind("Traceback (most recent call last)") :] if "Traceback" in output else output
    for pattern, text, kind in _CAUSES:
        if found := list(pattern.finditer(last)):
            return text.format(*found[-1].groups()), kind
    if status == -9:
        return "it was killed (SIGKILL): the host's memory may be full", Undecided
    if status < 0:
        return f"it died of signal {-status}", Undecided
    if status == 0:
        return "it ended without writing a file", Undecided
    said = [match.group(1) for line in output.splitlines() if (match := _LAST_ERROR.match(line))]
    return f"it ended with status {status}" + (f" ({said[-1][:200]})" if said else ""), Undecided
