"""Servers that run on this host: real child processes whose words are those of a server."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgdoctor.collect import launch, packages, processes
from sgdoctor.facts import Facts
from tests.collect import layouts

# What a server's main process does here: it says that it is up, has a child that calls itself as the server
# does, and waits.
LAUNCH_SERVER = """
import subprocess, sys, time
if "--child" not in sys.argv:
    subprocess.Popen([sys.executable, "-m", "sglang.launch_server", "--child"])
print("up", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with a package sglang whose launch_server only waits."""
    package = layouts.sglang_sources(tmp_path / "source", "0.5.12")
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(LAUNCH_SERVER)
    return package.parent


@contextlib.contextmanager
def started(command: list[str], log: Path, **variables: str) -> Iterator[subprocess.Popen]:
    """Run a server that writes to ``log``, and end it with its children."""
    with log.open("wb") as stream:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={"PATH": os.environ["PATH"], **variables},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 30
        while log.read_bytes().count(b"up") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        yield child
    finally:
        os.killpg(child.pid, 9)
        child.wait()


def seen(pid: int) -> tuple[processes.RunningServer, list[str]]:
    running = processes.running_servers()
    (server,) = [server for server in running.servers if server.pid == pid]
    return server, [note for note in running.notes if str(pid) in note]


def test_a_running_server_is_described_once_without_its_children_and_secrets(
    source: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-u", "-m", "sglang.launch_server", "--model-path", "/m", "--port", "31234"]
    command += ["--api-key", "planted-1"]
    log = tmp_path / "server.log"
    variables = {"PYTHONPATH": str(source), "SGLANG_MOE_CONFIG_DIR": "/configs", "HF_TOKEN": "planted-2"}
    with started(command, log, **variables) as child:
        before = processes.running_servers()
        server, notes = seen(child.pid)
    assert len([s for s in before.servers if s.log == log]) == 1
    assert server.argv[-6:] == ["--model-path", "/m", "--port", "31234", "--api-key", "<redacted>"]
    assert server.port == 31234
    assert server.url == "http://127.0.0.1:31234"
    assert server.python == sys.executable
    assert server.root == Path("/")
    assert server.log == log
    assert server.variables["SGLANG_MOE_CONFIG_DIR"] == "/configs"
    assert "planted" not in repr(server)
    assert notes == []


def test_its_variables_are_known_the_unset_ones_too(source: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sglang.launch_server"]
    variables = {"PYTHONPATH": str(source), "CUDA_VISIBLE_DEVICES": "0,1"}
    with started(command, tmp_path / "log", **variables) as child:
        server, _ = seen(child.pid)
        facts = Facts()
        processes.read_process(facts, server)
    assert facts.value("env.CUDA_VISIBLE_DEVICES") == "0,1"
    assert facts.known("env.SGLANG_MOE_CONFIG_DIR")
    assert facts.value("env.SGLANG_MOE_CONFIG_DIR") is None


def test_its_packages_are_its_own_not_the_doctors(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next(venv.glob("lib/python3*/site-packages"))
    package = layouts.sglang(site, "0.5.12")
    (package / "__init__.py").write_text("")
    (package / "launch_server.py").write_text(LAUNCH_SERVER)
    layouts.triton(site, "3.6.0")
    command = ["python", "-m", "sglang.launch_server"]
    with started(command, tmp_path / "log", PATH=f"{venv}/bin:{os.environ['PATH']}") as child:
        server, _ = seen(child.pid)
        environment = processes.environment_of(server)
    facts = Facts()
    packages.read_packages(facts, environment)
    assert server.python == f"{venv}/bin/python"
    assert facts.value("triton.version") == "3.6.0"
    assert facts.value("package.msgspec", "unset") == "unset"  # the doctor's own


def test_a_log_that_was_deleted_is_read_through_the_process(source: Path, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with started([sys.executable, "-m", "sglang.launch_server"], log, PYTHONPATH=str(source)) as child:
        log.unlink()
        server, _ = seen(child.pid)
        assert server.log == Path(f"/proc/{child.pid}/fd/1")
        assert b"up" in server.log.read_bytes()


def test_a_server_that_listens_on_one_address_alone_is_not_asked_on_another(
    source: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "sglang.launch_server", "--host", "10.1.2.3", "--port", "31234"]
    with started(command, tmp_path / "log", PYTHONPATH=str(source)) as child:
        server, notes = seen(child.pid)
    assert server.url is None
    assert "pass --url http://10.1.2.3:31234" in notes[0]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_server_in_namespaces_of_its_own_is_read_through_its_root(source: Path, tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--net", sys.executable, "-m", "sglang.launch_server"]
    with started(command, tmp_path / "log", PYTHONPATH=str(source)) as child:
        server, notes = seen(child.pid)
        environment = processes.environment_of(server)
        facts = Facts()
        packages.read_packages(facts, environment)
    assert server.root == Path(f"/proc/{child.pid}/root")
    assert server.url is None
    assert "another network namespace" in notes[0]
    assert environment.interpreter is None
    assert facts.value("sglang.version") == "0.5.12"
    assert str(facts.value("sglang.path")).startswith(f"/proc/{child.pid}/root/")


def test_an_environment_that_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    server = processes.RunningServer(
        1, ["python3"], {}, "/usr/bin/python3", tmp_path / "root", 30000, denied=True
    )
    facts = Facts()
    processes.read_process(facts, server)
    assert facts.get("env.CUDA_VISIBLE_DEVICES").reason == "/proc/1/environ: permission denied"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["python3", "-m", "sglang.launch_server", "--tp", "2"], ["--tp", "2"]),
        (["/opt/venv/bin/python3.12", "-u", "-W", "ignore", "-m", "sglang.launch_server"], []),
        (["python3", "-msglang.launch_server", "--tp", "2"], ["--tp", "2"]),
        (["python", "/src/python/sglang/launch_server.py", "--tp", "2"], ["--tp", "2"]),
        (["/usr/bin/python3", "/usr/local/bin/sglang", "serve", "m", "--tp", "2"], ["m", "--tp", "2"]),
        (["sglang", "serve", "m"], ["m"]),
        (["python3", "-m", "sglang.cli.main", "serve", "m"], ["m"]),
        (["sglang::scheduler_TP0"], None),
        (["python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"], None),
        (["docker", "run", "lmsysorg/sglang", "python3", "-m", "sglang.launch_server"], None),
        (["bash", "-c", "python3 -m sglang.launch_server"], None),
        (["python3", "/usr/bin/sgdoctor", "check", "--", "python3", "-m", "sglang.launch_server"], None),
        (["python3", "-m", "sglang.bench_serving"], None),
        (["sglang", "version"], None),
        (["python3"], None),
        (["python3", "-m"], None),
        ([""], None),
        ([], None),
    ],
)
def test_servers_are_told_from_their_wrappers_and_children(words: list[str], expected) -> None:
    assert processes.server_arguments(words) == expected


@pytest.mark.parametrize(
    "words",
    [
        ["/opt/venv/bin/python3.12", "-u", "-m", "sglang.launch_server", "--model-path", "/m"],
        ["/usr/bin/python3", "/usr/local/bin/sglang", "serve", "--model-path", "/m"],
    ],
)
def test_the_words_of_a_process_are_a_launch_command(words: list[str]) -> None:
    assert launch.parse_command(words).model == "/m"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--port", "1", "--port=2"], "2"),
        (["--port"], None),
        (["--ports", "1"], None),
        ([], None),
    ],
)
def test_the_last_of_a_flag_counts(arguments: list[str], expected) -> None:
    assert processes.option(arguments, "--port") == expected
