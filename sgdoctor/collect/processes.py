"""The SGLang servers that run on this host, from the process list."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sgdoctor import redact
from sgdoctor.collect import clean, python_env
from sgdoctor.collect.python_env import PythonEnvironment
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts

if TYPE_CHECKING:
    import psutil

DEFAULT_PORT = 30000  # ServerArgs.port, 0.5.7 to 0.5.23
SOURCE = "process"

_PYTHON = re.compile(r"python[\d.]*t?\Z")
_SITE = re.compile(r"\s(/.*?/(?:site|dist)-packages)/")
_MODULES = ("sglang.launch_server", "sglang.cli.main", "sglang.cli")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # options of Python itself


class RunningServer(msgspec.Struct, frozen=True):
    """A server's main process.

    ``argv`` are its words, ``variables`` the environment it was started with (empty and ``denied`` when it
    may not be read), both without secrets. ``root`` is "/" or, for another mount namespace, /proc/PID/root.
    ``url`` is its loopback address, null when that is not known to reach it; ``log`` the file it writes to.
    """

    pid: int
    argv: list[str]
    variables: dict[str, str]
    python: str
    root: Path
    port: int | None
    url: str | None = None
    log: Path | None = None
    denied: bool = False


class Running(msgspec.Struct, frozen=True):
    """The servers of this host, and what could not be seen of them."""

    servers: list[RunningServer]
    notes: list[str]


def running_servers() -> Running:
    """Return the SGLang servers that run on this host; their own children are not listed. Never raises."""
    import psutil

    found: dict[int, psutil.Process] = {}
    parents: dict[int, int] = {}
    for process in psutil.process_iter(["ppid", "cmdline"]):
        parents[process.pid] = process.info["ppid"] or 0
        if server_arguments(process.info["cmdline"] or []) is not None:
            found[process.pid] = process
    servers: list[RunningServer] = []
    notes: list[str] = []
    for pid, process in sorted(found.items()):
        if _has_ancestor(pid, parents, found):
            continue
        try:
            servers.append(_describe(process, notes))
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        except (psutil.Error, OSError) as error:
            notes.append(f"process {pid}: {error}")
    return Running(servers, notes)


def _has_ancestor(pid: int, parents: dict[int, int], among: dict[int, psutil.Process]) -> bool:
    seen = {pid}
    while (pid := parents.get(pid, 0)) and pid not in seen:
        if pid in among:
            return True
        seen.add(pid)
    return False


def server_arguments(words: Sequence[str]) -> list[str] | None:
    """Return a server's own arguments when the words of a process start one, else null.

    ``python -m sglang.launch_server ...``, ``python .../sglang/launch_server.py ...``, ``sglang serve ...``.
    The children call themselves ``sglang::scheduler_TP0`` and the like, or run ``python -c``.
    """
    if not words:
        return None
    if Path(words[0]).name == "sglang":
        return list(words[2:]) if words[1:2] == ["serve"] else None
    if not _PYTHON.match(Path(words[0]).name):
        return None
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        if rest[0].startswith("-m"):
            rest[:1] = ["-m", rest[0].removeprefix("-m")]
            break
        del rest[: 2 if rest[0] in _WITH_VALUE else 1]
    if rest[:1] == ["-m"] and len(rest) > 1:
        return _of_module(rest[1], rest[2:])
    if not rest or rest[0] in ("-c", "-", "-m"):
        return None
    script = Path(rest[0])
    if script.parts[-2:] == ("sglang", "launch_server.py"):
        return rest[1:]
    return rest[2:] if script.name == "sglang" and rest[1:2] == ["serve"] else None


def _of_module(module: str, rest: list[str]) -> list[str] | None:
    if module not in _MODULES:
        return None
    if module == "sglang.launch_server":
        return rest
    return rest[1:] if rest[:1] == ["serve"] else None


def _describe(process: psutil.Process, notes: list[str]) -> RunningServer:
    import psutil

    pid = process.pid
    words = process.cmdline()
    arguments = server_arguments(words) or []
    try:
        raw, denied = process.environ(), False
    except (psutil.AccessDenied, PermissionError):
        raw, denied = {}, True
        what = "its environment, packages and log could not be read"
        notes.append(f"process {pid}: {what}: permission denied (run sgdoctor as its user or as root)")
    port = _port(process, arguments)
    root = _root(pid)
    return RunningServer(
        pid=pid,
        argv=clean.words(words),
        variables=clean.value(redact.environment(raw)),
        python=_interpreter(process, words[0], raw, root),
        root=root,
        port=port,
        url=_url(pid, arguments, port, notes),
        log=_log(pid, root),
        denied=denied,
    )


def option(arguments: Sequence[str], *names: str) -> str | None:
    """Return the value of a flag as argparse takes it, the last one that is given; null when none is."""
    value = None
    for number, word in enumerate(arguments):
        name, equals, rest = word.partition("=")
        if name in names:
            value = rest if equals else next(iter(arguments[number + 1 : number + 2]), None)
    return value


def _port(process: psutil.Process, arguments: Sequence[str]) -> int | None:
    given = option(arguments, "--port")
    if given is not None:
        return int(given) if given.isdecimal() and 0 < int(given) < 65536 else None
    if option(arguments, "--config") is None:
        return DEFAULT_PORT
    import psutil

    try:  # the port may stand in the configuration file
        connections = process.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    listening = {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN and c.laddr}
    return listening.pop() if len(listening) == 1 else None


def _url(pid: int, arguments: Sequence[str], port: int | None, notes: list[str]) -> str | None:
    """Return the loopback address of a server that listens there, in this network namespace."""
    if port is None:
        notes.append(f"process {pid}: its port is not known; pass --url")
        return None
    if _namespace(pid, "net") not in (None, _namespace(os.getpid(), "net")):
        notes.append(f"process {pid}: runs in another network namespace (a container); pass --url")
        return None
    host = (option(arguments, "--host") or "127.0.0.1").strip("[]")
    scheme = "http" if option(arguments, "--ssl-certfile") is None else "https"
    if host == "::1":
        return f"{scheme}://[::1]:{port}"
    if host in ("0.0.0.0", "::", "localhost") or host.startswith("127."):  # noqa: S104 (read, not bound)
        return f"{scheme}://{host if host.startswith('127.') else '127.0.0.1'}:{port}"
    notes.append(f"process {pid}: listens on {host} alone; pass --url {scheme}://{host}:{port}")
    return None


def _namespace(pid: int, kind: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115
    except OSError:
        return None


def _root(pid: int) -> Path:
    """Return the root folder as seen from here: /proc/PID/root where it is another one or cannot be told."""
    link = Path(f"/proc/{pid}/root")
    try:
        same = link.readlink() == Path("/") and _namespace(pid, "mnt") == _namespace(os.getpid(), "mnt")
    except OSError:
        same = False
    return Path("/") if same else link


def _interpreter(process: psutil.Process, word: str, variables: dict[str, str], root: Path) -> str:
    """Return the interpreter by the name it was started with, which tells its virtual environment."""
    import psutil

    if "/" not in word:
        folders = [f for f in variables.get("PATH", "").split(os.pathsep) if f.startswith("/")]
        found = (f"{folder}/{word}" for folder in folders)
        word = next((p for p in found if os.path.exists(root / p.lstrip("/"))), word)  # noqa: PTH110
    elif not word.startswith("/"):
        with contextlib.suppress(psutil.Error, OSError):  # its folder may be gone or closed to us
            word = os.path.normpath(f"{process.cwd()}/{word}")
    if word.startswith("/") and _PYTHON.match(Path(word).name):
        return word
    try:
        return process.exe() or word
    except (psutil.Error, OSError):
        return word


def _log(pid: int, root: Path) -> Path | None:
    """Return the regular file that standard output or error goes to."""
    for number in (1, 2):
        descriptor = Path(f"/proc/{pid}/fd/{number}")
        try:
            if not stat.S_ISREG(descriptor.stat().st_mode):
                continue
            target = descriptor.readlink()
        except OSError:
            continue
        named = root == Path("/") and target.is_file()  # not renamed or deleted since
        return target if named else descriptor
    return None


def read_process(facts: Facts, server: RunningServer) -> None:
    """Set server.process, and env.* from the environment that it was started with. Never raises."""
    facts.set("server.process", True, source=SOURCE, place=f"/proc/{server.pid}")
    place = f"/proc/{server.pid}/environ"
    names = {name for name in facts.vocabulary.specs if name.startswith("env.")}
    if server.denied:
        for name in names:
            facts.set_unknown(name, f"{place}: permission denied")
        return
    for name in sorted(names | {f"env.{variable}" for variable in server.variables}):
        facts.set(name, server.variables.get(name.removeprefix("env.")), source=SOURCE, place=place)


def environment_of(server: RunningServer) -> PythonEnvironment:
    """Return the Python environment that the process runs in.

    That of its interpreter, unless the process has loaded libraries from other package folders. Nothing is
    run in another mount namespace. Never raises; what cannot be found is said in the result's problems.
    """
    python_path = [folder for folder in server.variables.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if server.root == Path("/") and shutil.which(server.python) is not None:
        try:
            found = python_env.locate(server.python, python_path=python_path)
        except UsageError as error:
            return PythonEnvironment(server.python, (), problems=(str(error),))
    else:
        found = python_env.under_root(server.python, server.root, python_path=python_path)
    loaded = _loaded_from(server)
    if not loaded or any(folder in found.search for folder in loaded):
        return found
    version = next((m.group(1) for f in loaded if (m := re.search(r"/python(\d+\.\d+)/", str(f)))), None)
    return PythonEnvironment(
        server.python,
        python_env.with_pth(loaded, server.root),
        version,
        root=server.root,
    )


def _loaded_from(server: RunningServer) -> list[Path]:
    """Return the package folders that libraries were loaded from, the most used first."""
    try:
        text = Path(f"/proc/{server.pid}/maps").read_text(errors="replace")
    except OSError:
        return []
    used = Counter(_SITE.findall(text))
    return [
        server.root / folder.lstrip("/") if server.root != Path("/") else Path(folder)
        for folder, _ in used.most_common()
    ]
