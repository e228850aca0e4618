"""``sgdoctor gate`` as a process: what the server finds is what it would find without it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.launches import GATE, PROBE, ROOT, Deployment, gone

SERVE = ("sglang", "serve", "--model-path", "dense")
ONLY = ("--select", "ARG101")
NVML = ROOT / "tests" / "collect" / "nvml.c"


@pytest.fixture
def deployment(tmp_path):
    return Deployment(tmp_path)


@pytest.fixture
def hung(deployment):
    """Return options with which the check never ends: to read the model it waits for somebody to write it."""
    os.mkfifo(deployment.folder / "config.json")
    return ("--model", deployment.folder / "config.json")


def waited(child, seconds=60):
    """Return the exit code and what was written."""
    out, err = child.communicate(timeout=seconds)
    return child.returncode, out.decode(), err.decode()


# --- the same process ---------------------------------------------------------------------------------------


def seen(folder: Path, name: str) -> dict[str, bytes]:
    """Return what the probe wrote down."""
    return {file.suffix: file.read_bytes() for file in folder.glob(f"{name}.*")}


WORDS = [
    b"sglang",
    b"serve",
    b"--model-path",
    b"m\xff\xfe",
    b"",
    b" two  words ",
    b"$HOME 'q' \"d\"",
    "ä中".encode(),
]
STARTS = {
    "a login": "exec",
    "no output": "exec >&- 2>&-;exec",
    "no input": "exec <&-;exec",
    "nothing open": "exec <&- >&- 2>&-;exec",
    "more open": "exec 3</dev/null 7>>/dev/null 200</etc/hosts;exec",
    "signals ignored": "trap '' HUP INT QUIT USR1 CHLD TERM;exec",
    "limits": "umask 027;ulimit -c 0 -n 200;exec",
    "in the root": "cd /;exec",
}


@pytest.mark.parametrize("start", STARTS)
def test_all_that_a_process_has_is_what_the_server_has(deployment, start):
    deployment.program("sglang", PROBE)
    variables = {f"VARIABLE_{number}": "x" * number for number in range(200)}
    environment = {os.fsencode(k): os.fsencode(v) for k, v in deployment.environment(**variables).items()}
    environment |= {b"BYTES": b"\xff\xfe", b"BASH_FUNC_f%%": b"() {  :\n}", b"EMPTY": b""}
    found = []
    for gate in ([], [*GATE, *ONLY, "--"]):
        subprocess.run(
            [b"bash", b"-c", STARTS[start].encode() + b' "$@"', b"bash", *map(os.fsencode, gate), *WORDS],
            env={**environment, b"OUT": os.fsencode(deployment.folder / "out")},
            cwd=deployment.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        found.append(seen(deployment.folder, "out"))
        for file in deployment.folder.glob("out.*"):
            file.unlink()
    pids = [re.search(rb"/proc/([0-9]+)/", each[".fdinfo"]).group(1) for each in found]
    bare, gated = (
        {k: v.replace(b"/proc/" + p, b"") for k, v in each.items()}
        for p, each in zip(pids, found, strict=True)
    )
    assert bare[".environ"].count(b"VARIABLE_") == 200
    assert gated == bare


@pytest.mark.parametrize(
    "locale", [{}, {"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LANG": "none_such"}, {"LC_ALL": "C.UTF-8"}]
)
def test_pythons_own_locale_is_kept_from_the_server(deployment, locale):
    deployment.program("sglang", "#!/bin/sh\ncat /proc/$$/environ\n")
    environment = {"PATH": f"{deployment.bin}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), **locale}
    child = deployment.start(*SERVE, "m\udcff", options=ONLY, env=environment)
    _, out, _ = waited(child)
    assert sorted(out.rstrip("\0").split("\0")) == sorted(
        f"{name}={value}" for name, value in environment.items()
    )


def test_what_sitecustomize_does_to_the_environment_is_kept_from_the_server(deployment):
    (deployment.folder / "sitecustomize.py").write_text("import os\nos.environ.pop('PYTHONPATH')\n")
    deployment.program("sglang", "#!/bin/sh\ncat /proc/$$/environ\n")
    path = f"{deployment.folder}:{ROOT}"
    _, out, _ = waited(deployment.start(*SERVE, options=ONLY, env=deployment.environment(PYTHONPATH=path)))
    assert f"PYTHONPATH={path}\0" in out


def test_input_is_left_for_the_server(deployment):
    done = deployment.run(*SERVE, options=ONLY, stdin=b"for the server", STUB_INPUT="1", STUB_EXIT="0")
    assert "input: for the server\n" in done.stdout


def test_a_file_that_can_be_read_once_is_left_for_the_server(deployment):
    """Bash gives ``<(...)`` as /dev/fd/63."""
    deployment.program("sglang", '#!/bin/sh\ncat "$3"\n')
    script = f"{' '.join(GATE)} -- sglang serve --config <(echo model-path: dense)"
    done = subprocess.run(
        ["bash", "-c", script], env=deployment.environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "model-path: dense\n")


def test_a_systemd_unit_has_neither_home_nor_much_of_an_environment(deployment):
    """IgnoreSIGPIPE is systemd's default; a Python server sets it so itself."""
    for environment in ({"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "INVOCATION_ID": "0" * 32}, {}):
        child = deployment.start(
            deployment.python, "-m", "sglang.launch_server", "--model-path", "dense",
            options=ONLY,
            env={**environment, "STUB_EXIT": "4", "PYTHONPATH": str(ROOT)},
            cwd="/",
            preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN),
        )  # fmt: skip
        code, out, err = waited(child)
        assert (code, out.splitlines()[0]) == (4, f"up {child.pid} --model-path dense")
        assert err == "sgdoctor gate: nothing found, 1 rule passed; launching\n"


@pytest.mark.parametrize("off", [{}, {"SGDOCTOR_GATE": "off"}])
def test_a_working_folder_that_is_gone_is_no_reason_not_to_launch(deployment, off):
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {' '.join(GATE)} -- sglang serve --model-path x"
    done = subprocess.run(
        ["sh", "-c", script],
        env=deployment.environment(STUB_EXIT="6", **off),
        cwd=deployment.folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 6


# --- signals ------------------------------------------------------------------------------------------------


def not_ignored():
    """Set the signals that end a process to what a login has, also where nohup or ``&`` had them ignored."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_gates_process_is_one_to_the_server(deployment, number):
    with deployment.start(*SERVE, options=ONLY, preexec_fn=not_ignored) as child:
        assert child.stdout.readline().decode().split()[:2] == ["up", str(child.pid)]
        child.stdout.readline()
        child.send_signal(number)
        code, out, _ = waited(child)
    assert (code, out) == (0, f"got {number.name}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_during_the_check_ends_it_and_nothing_is_launched(deployment, hung, number):
    with deployment.start(*SERVE, options=hung, preexec_fn=not_ignored) as child:
        while len(deployment.left()) < 2:
            time.sleep(0.02)
        child.send_signal(number)
        code, out, err = waited(child)
    assert (code, out, err) == (-number, "", "")
    assert gone(deployment) == []


def on_a_terminal(deployment, *words, options):
    """Start the gate as the foreground process of a terminal; return its number and the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            not_ignored()
            os.chdir(deployment.folder)
            os.execve(GATE[0], [*GATE, *map(str, options), "--", *words], deployment.environment())  # noqa: S606
        os._exit(99)
    return pid, terminal


def read_until(terminal, text):
    written = b""
    while text not in written:
        assert select.select([terminal], [], [], 30)[0], written
        written += os.read(terminal, 4096)
    return written


def test_ctrl_c_reaches_the_server(deployment):
    pid, terminal = on_a_terminal(deployment, *SERVE, options=ONLY)
    read_until(terminal, b"children:")
    os.write(terminal, b"\x03")
    read_until(terminal, b"got SIGINT")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)


def test_ctrl_c_during_the_check_launches_nothing(deployment, hung):
    pid, terminal = on_a_terminal(deployment, *SERVE, options=hung)
    while len(deployment.left()) < 2:
        time.sleep(0.02)
    os.write(terminal, b"\x03")
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGINT
    os.close(terminal)
    assert gone(deployment) == []


def test_a_report_on_a_terminal_is_in_colour(deployment):
    pid, terminal = on_a_terminal(deployment, *SERVE, "--enable-turbo-mode", options=ONLY)
    assert b"error" in read_until(terminal, b"not launched")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    os.close(terminal)


# --- a check that hangs -------------------------------------------------------------------------------------


def launched(deployment, *, within, **variables):
    """Start a gate whose check hangs; return its line. The server has no child, dead or alive."""
    options = ("--deadline", within)
    if "model" in variables:
        options += ("--model", variables.pop("model"))
    done = deployment.run(*SERVE, options=options, STUB_EXIT="0", **variables)
    assert (done.returncode, done.stdout[:3]) == (0, "up ")
    assert "children: \n" in done.stdout
    assert gone(deployment) == []
    (said,) = done.stderr.splitlines()
    return said


def test_past_the_deadline_the_server_is_launched(deployment, hung):
    said = launched(deployment, within=4, model=hung[1])
    assert said == "sgdoctor gate: no result within 4 s (reading the model and judging); launching"


def test_past_the_deadline_nothing_is_launched_where_that_is_wanted(deployment, hung):
    done = deployment.run(*SERVE, options=[*hung, "--deadline", "1", "--require-known"])
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("; not launched (--require-known)\n")
    assert gone(deployment) == []


def test_a_tool_that_hangs_is_ended_with_what_it_started(deployment):
    deployment.program("nvidia-smi", "#!/bin/sh\ntouch $HOME/asked\nsleep 600 & sleep 600\n")
    assert "asking the driver for the GPUs" in launched(deployment, within=4)
    assert (deployment.folder / "asked").exists()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_an_nvml_that_hangs_is_left_behind(deployment, tmp_path):
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", NVML], check=True)
    said = launched(deployment, within=4, LD_LIBRARY_PATH=str(tmp_path), NVML_STUB="hang")
    assert "asking the driver for the GPUs" in said


def test_a_binding_that_hangs_with_the_interpreters_lock_is_left_behind(deployment):
    (deployment.folder / "pynvml.py").write_text("import ctypes\nctypes.PyDLL(None).sleep(600)\n")
    path = f"{deployment.folder}:{ROOT}"
    assert "asking the driver for the GPUs" in launched(deployment, within=4, PYTHONPATH=path)


@pytest.mark.parametrize("hangs", [True, False])
def test_the_first_process_of_a_container_is_left_no_orphans(deployment, hangs):
    """Orphans become children of the first process, as of one that asks for them (PR_SET_CHILD_SUBREAPER)."""
    deployment.program("nvidia-smi", f"#!/bin/sh\n{'sleep 600 & sleep 600' if hangs else 'exit 1'}\n")
    adopt = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1); os.execvp(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", adopt, *GATE, "--deadline", "4", "--", *SERVE],
        env=deployment.environment(STUB_EXIT="0"),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert ("no result" in done.stderr) is hangs
    assert "children: \n" in done.stdout


def test_children_that_were_there_before_are_left_alone(deployment):
    script = f"sleep 30 >/dev/null & exec {' '.join(GATE)} --select ARG101 -- sglang serve --model-path dense"
    done = subprocess.run(
        ["sh", "-c", script],
        env=deployment.environment(STUB_EXIT="0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    )
    (children,) = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("children:")]
    (sleeping,) = children
    assert Path(f"/proc/{sleeping}/comm").read_text() == "sleep\n"
    os.kill(int(sleeping), signal.SIGTERM)
