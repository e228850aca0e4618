"""A server for an experiment: its model, its life, its answers, and captures of them under other names."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import urllib3

CAPTURED_MODELS = Path(__file__).parents[1] / "tests/captures/models"
READY = "The server is fired up and ready to roll!"
# /health makes an idle server generate: last.
ENDPOINTS = ("server_info", "model_info", "v1/models", "get_load", "metrics", "health")
CACHE = "cache"  # a folder of the experiment's that is not packed: compiled kernels
PACKAGES = "/usr/local/lib/python3.12/dist-packages"
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class NotStarted(Exception):  # noqa: N818 (says what happened)
    """The server ended, or was not ready in time; the text has the end of its log."""


def write_model(captured: str, folder: Path, **changes: object) -> None:
    """Write a model folder without weights: the config.json of a captured model, and a toy tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((CAPTURED_MODELS / captured / "config.json").read_text()) | changes
    words = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"t{i}" for i in range(256)),
        *"abcdefghijklmnopqrstuvwxyz0123456789 .,!?",
    ]
    vocabulary = {word: i for i, word in enumerate(words)}
    unset = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    files = {
        "config": config,
        "generation_config": {"eos_token_id": 2, "bos_token_id": 1},
        "tokenizer": {
            "version": "1.0",
            **dict.fromkeys(unset),
            "added_tokens": [],
            "pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        },
        "tokenizer_config": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": "<unk>",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": "{% for m in messages %}{{ m['content'] }} {% endfor %}",
        },
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


@contextlib.contextmanager
def running(command: Sequence[str], folder: Path, env: dict[str, str], seconds: float) -> Iterator[float]:
    """Start a server, its output in ``folder/server.log``; give the seconds it took to be ready; stop it.

    Raises NotStarted when it ends, or is not ready after ``seconds``.
    """
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=folder, start_new_session=True
        )
    began = time.monotonic()
    try:
        while READY not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() - began > seconds:
                how = f"ended with {process.returncode}" if process.returncode is not None else "not ready"
                end = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
                raise NotStarted(f"{how} after {time.monotonic() - began:.0f} s: {log}:\n{end}")
            time.sleep(0.5)
        yield round(time.monotonic() - began, 1)
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and its children, and wait until the GPU's memory is free again."""
    for number, seconds in ((signal.SIGTERM, 15), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    if shutil.which("nvidia-smi") is None:
        return
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    until = time.monotonic() + 15
    while time.monotonic() < until:
        used = subprocess.run(query, capture_output=True, text=True, check=False).stdout
        if all(int(line) < 2000 for line in used.split() if line.isdigit()):
            return
        time.sleep(0.5)


def keep_answers(url: str, folder: Path, *, loaded: bool) -> dict[str, int | None]:
    """Save what the server answers, after the load /server_info and the metrics; return the statuses."""
    statuses: dict[str, int | None] = {}
    for name in ("server_info", "metrics") if loaded else ENDPOINTS:
        file = f"{name.replace('/', '_')}{'_loaded' if loaded and name == 'server_info' else ''}"
        try:
            answer = urllib3.request("GET", f"{url}/{name}", timeout=30, retries=False)
        except urllib3.exceptions.HTTPError:
            statuses[name] = None
            continue
        statuses[name] = answer.status
        if name != "health":
            (folder / f"{file}.{'txt' if name == 'metrics' else 'json'}").write_bytes(answer.data)
    return statuses


def capture(folder: Path, target: Path, outcome: dict[str, object], expect: str) -> None:
    """Make a capture as in tests/captures of what a server said."""
    target.mkdir(parents=True, exist_ok=True)
    names = "server_info server_info_loaded model_info v1_models get_load".split()
    for name in ["command.txt", "server.log", "metrics.txt", *(f"{name}.json" for name in names)]:
        if (folder / name).is_file():
            shutil.copy(folder / name, target / name)
    (target / "outcome.json").write_text(json.dumps(outcome) + "\n")
    (target / "expect.yaml").write_text(expect)


def renamed(text: str, models: Path, site: Path) -> str:
    """Return ``text`` without the names of this machine: paths, its own name, the UUIDs of its GPUs."""
    repository = str(Path(__file__).parents[1])
    places = {
        str(models): "/models",
        str(site): PACKAGES,
        sysconfig.get_paths()["purelib"]: PACKAGES,
        repository: "/opt/sgdoctor",
        sys.executable: "python3",
    }
    for place, name in places.items():
        text = text.replace(place, name)
    host = platform.node()
    if len(host) > 3 and host != "localhost":
        text = re.sub(rf"\b{re.escape(host)}\b", "gpu-host", text)
    return _UUID.sub(r"\1-00000000-0000-0000-0000-000000000000", text)


def pack(work: Path, target: Path, site: Path) -> None:
    """Pack ``work``, but not the cache, into ``target`` (.tar.xz) under other names; replaces it at once."""
    parts = target.with_name(target.name + ".part")
    with tarfile.open(parts, "w:xz") as archive:
        for path in sorted(work.rglob("*")):
            if not path.is_file() or path.is_symlink() or (work / CACHE) in path.parents:
                continue
            text = path.read_bytes().decode(errors="surrogateescape")
            content = renamed(text, work / "models", site).encode(errors="surrogateescape")
            entry = tarfile.TarInfo(str(path.relative_to(work)))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    parts.replace(target)
