"""The children in which SGLang's tuner runs: one a batch size, one at a time on each GPU, ended with us."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sgdoctor.errors import DoctorError, Undecided, UsageError
from sgdoctor.fix.sglang_tuner_output import Reading, why
from sgdoctor.tune.model import Listener, Progress

_GRACE = 5.0
_TAIL = 65536
_POLL = 1.0


def _environment(folder: Path, gpu: str, python_path: Sequence[Path]) -> dict[str, str]:
    """Return the child's environment: one GPU, a Ray of its own, nothing sent anywhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {
        **kept,
        # Ray's workers import common_utils, too
        "PYTHONPATH": os.pathsep.join(map(str, (folder, *python_path))),
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": gpu,
        "RAY_ADDRESS": "local",  # never a cluster that happens to run here
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
    }


@dataclass
class _Run:
    """A child process that tunes one batch size."""

    tokens: int
    gpu: str
    folder: Path
    process: subprocess.Popen[bytes]
    exited: bool = False
    heard: float = field(default_factory=time.monotonic)
    reading: Reading = field(default_factory=Reading)
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    @property
    def log(self) -> Path:
        """All that it printed."""
        return self.folder / "log.txt"

    @property
    def output(self) -> int:
        """The file descriptor that it prints to."""
        return self.process.stdout.fileno() if self.process.stdout else -1

    def read(self) -> bool | None:
        """Take what it printed into the log; whether it got further, or null when there is no more."""
        data = os.read(self.output, 1 << 16)
        if not data:
            return None
        self.heard = time.monotonic()
        with self.log.open("ab") as log:
            log.write(data)
        return self.reading.feed(self.decoder.decode(data))


@dataclass
class Crew:
    """The children of one call, their files and their failures.

    ``arguments`` are the script's, all but the batch size; ``folder`` gets a folder a batch size;
    ``python_path`` are the folders that ``python`` needs in PYTHONPATH.
    """

    script: Path
    python: str
    arguments: Sequence[str]
    folder: Path
    listen: Listener
    patience: float
    python_path: Sequence[Path] = ()
    files: dict[int, Path] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _running: dict[str, _Run] = field(default_factory=dict)  # by GPU
    _configurations: int = 0
    _ended: int = 0

    def tune(self, batch_sizes: Iterable[int], gpus: Sequence[str]) -> None:
        """Run all batch sizes that have no file yet, as many at a time as there are GPUs.

        Raises UsageError or Undecided for a failure before there is any file; the children have ended then.
        """
        places = {m: self.folder / f"tokens-{m}" for m in batch_sizes}
        self.files = {m: file for m, place in places.items() if (file := _result(place))}
        waiting = [m for m in places if m not in self.files]
        began, todo = time.monotonic(), len(waiting)
        try:
            while waiting or self._running:
                for gpu in gpus:
                    if waiting and gpu not in self._running:
                        self._running[gpu] = self._start(waiting.pop(0), gpu)
                if run := self._watch():
                    self._tell(run, todo, time.monotonic() - began)
        finally:
            for run in self._running.values():
                _stop(run.process)

    def _start(self, tokens: int, gpu: str) -> _Run:
        place = self.folder / f"tokens-{tokens}"
        starter = Path(__file__).with_name("sglang_tuner_child.py")
        command = [self.python, str(starter), str(os.getpid()), str(self.script), *self.arguments]
        try:
            place.mkdir(exist_ok=True)
            (place / "log.txt").write_bytes(b"")
            process = subprocess.Popen(
                [*command, "--batch-size", str(tokens)],
                cwd=place,
                env=_environment(self.script.parent, gpu, self.python_path),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"{error.filename or self.python}: {error.strerror or error}") from error
        return _Run(tokens, gpu, place, process)

    def _watch(self) -> _Run | None:
        """Read what the children print for a second; return one that got further or ended."""
        moved = None
        with selectors.DefaultSelector() as selector:
            for run in self._running.values():
                selector.register(run.output, selectors.EVENT_READ, run)
            ready = [key.data for key, _ in selector.select(_POLL)]
        for run in ready:
            further = run.read()
            if further is None:
                self._end(run, *_outcome(run, run.process.wait()))
            if further is not False:
                moved = run
        for run in [each for each in self._running.values() if each not in ready]:
            if run.exited:  # what it left behind holds its output open
                self._end(run, *_outcome(run, run.process.wait()))
                moved = run
            elif time.monotonic() - run.heard > self.patience:
                self._end(run, f"it printed nothing for {self.patience:g} s and was ended", Undecided)
                moved = run
            run.exited = run.process.poll() is not None
        return moved

    def _end(self, run: _Run, failure: str, kind: type[DoctorError]) -> None:
        """Keep a run's file, or raise when there is none of any."""
        _stop(run.process)
        del self._running[run.gpu]
        self._ended += 1
        file = None if failure else _result(run.folder)
        if file is not None:
            self.files[run.tokens] = file
            return
        text = f"SGLang's tuner failed at batch size {run.tokens}: {failure} (log: {run.log})"
        if not self.files:
            raise kind(text)
        self.notes.append(text)

    def _tell(self, run: _Run, todo: int, seconds: float) -> None:
        """Say how far all are; the runs to come have as many configurations as this one."""
        self._configurations = run.reading.total or self._configurations
        done = self._ended * self._configurations + sum(r.reading.done for r in self._running.values())
        total = todo * self._configurations
        left = seconds / done * (total - done) if done else None
        self.listen(Progress(f"SGLang's tuner, batch size {run.tokens}", done, total, {}, left))


def _outcome(run: _Run, status: int) -> tuple[str, type[DoctorError]]:
    """Return why a run that ended failed; an empty text when it did not."""
    if status == 0 and _result(run.folder):
        return "", Undecided
    with run.log.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
        return why(status, log.read().decode(errors="replace"))


def _result(folder: Path) -> Path | None:
    """Return the file that the tuner wrote into a folder; a half-written one is none."""
    for file in sorted(folder.glob("E=*.json")):
        with contextlib.suppress(OSError, ValueError):
            if json.loads(file.read_bytes()):
                return file
    return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a run with all that it started: Ray's processes are in sessions of their own."""
    if process.poll() is not None:
        if process.stdout:
            process.stdout.close()
        return
    import psutil

    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        family = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for each in family:
        with contextlib.suppress(psutil.Error):
            each.kill()
    process.wait()
    if process.stdout:
        process.stdout.close()
