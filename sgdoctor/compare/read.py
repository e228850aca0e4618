"""The two files: snapshots or saved answers of /server_info, told apart by what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from sgdoctor import gather, snapshot
from sgdoctor.collect import launch, server_info
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts
from sgdoctor.gather import Gathered
from sgdoctor.input_file import read_bytes
from sgdoctor.report.model import Looked
from sgdoctor.settle import settle

_NEITHER = "neither a snapshot nor an answer of /server_info"


class Recording(msgspec.Struct):
    """The facts that one file tells, and nothing else: this machine is not looked at."""

    file: str
    kind: Literal["snapshot", "server_info"]
    gathered: Gathered

    @property
    def facts(self) -> Facts:
        """What is known of the deployment."""
        return self.gathered.facts


def read(path: Path) -> Recording:
    """Return what the file tells.

    It is read once, so a pipe will do. Raises UsageError for a file that cannot be read or is neither of the
    two kinds, Undecided when it is a server's refusal to answer.
    """
    raw = read_bytes(path, snapshot.MAX_BYTES, _NEITHER)
    if not raw.strip():
        raise UsageError(f"{path}: is empty: {_NEITHER}")
    try:
        said = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON, so {_NEITHER}: {error}") from None
    if snapshot.is_snapshot(said):
        gathered = Gathered(snapshot.decode(raw, path))
        kind: Literal["snapshot", "server_info"] = "snapshot"
    else:
        gathered, kind = _server_info(said, path), "server_info"
    gathered.looked.append(Looked(kind, str(path)))
    settle(gathered.facts, gathered.command)
    return Recording(str(path), kind, gathered)


def _server_info(said: Any, path: Path) -> Gathered:
    if server_info.is_refusal(said):
        raise Undecided(f"{path}: holds a refusal: /server_info of this server needs its API key")
    reason = server_info.objection(said)
    if reason is not None:
        raise UsageError(f"{path}: {_NEITHER}: {reason}")
    gathered = Gathered(Facts())
    words = server_info.read_server_info(gathered.facts, said, str(path), source="server_info")
    gather.launched(gathered, words)
    if gathered.command is not None:
        launch.collect(gathered.facts, gathered.command)
    return gathered
