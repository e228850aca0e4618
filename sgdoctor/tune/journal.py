"""What was measured, a JSON line a record, on disk before it counts: a tuner that is killed goes on later."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from sgdoctor.errors import UsageError


class Journal:
    """A file of records that belong to one ``identity``: kernel, Triton, GPU, driver, problem, routing.

    Opening it reads what is there. A last line cut off by a kill is dropped. Raises UsageError when the file
    belongs to another identity, or another tuner has it open.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.identity = dict(identity)
        self.records: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("a+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise UsageError(f"another tuner writes to {path}") from error
        self._read()

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record; on disk when this returns. Raises OSError (a full disk) with nothing half-written."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        end = self._file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            raise
        self.records.append(dict(record))

    def restart(self) -> None:
        """Forget all records."""
        self._file.truncate(0)
        self.append({"identity": self.identity})
        self.records.clear()

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def __enter__(self) -> Journal:  # noqa: PYI034 (typing has Self from 3.11 on)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        records: list[dict[str, Any]] = []
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict) or not record:
                self._file.close()
                raise UsageError(
                    f"{self.path}: line {len(records) + 1} is no record of a tuner; move the file away, and "
                    "tune anew"
                )
            records.append(record)
            whole += len(line)
        self._file.truncate(whole)
        if not records:
            self.append({"identity": self.identity})
            self.records.clear()
            return
        if records[0].get("identity") != json.loads(json.dumps(self.identity)):
            self._file.close()
            raise UsageError(
                f"{self.path} was measured with another kernel, GPU or shape; move it away, and tune anew"
            )
        self.records = records[1:]
