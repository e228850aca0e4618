"""What the gate is put in front of: a fake SGLang on PATH, and what is left of a gate that has gone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
GATE = [sys.executable, "-m", "sgdoctor", "gate"]

# What a process is to those who look at it, written to files so that it may have no output at all.
PROBE = """\
#!/bin/sh
for name in cmdline environ limits; do cat /proc/$$/$name >"$OUT.$name"; done
while read -r name value; do
  case $name in PPid:|Threads:|Umask:|Sig[PBIC]*|ShdPnd:|Cap*) echo "$name $value" ;; esac
done </proc/self/status >"$OUT.status"
cut -d' ' -f4-8,18,19 /proc/$$/stat >"$OUT.stat"
readlink /proc/$$/cwd >"$OUT.cwd"
find /proc/$$/fd -lname "$0" -o -type l -printf '%f -> %l\\n' >"$OUT.fd"
grep -H flags /proc/$$/fdinfo/* >"$OUT.fdinfo"
exit 0
"""

# A server that says that it is there, what its input holds, and which signals reach it.
SERVER = """\
import os, signal, sys, time
from pathlib import Path

def stop(number, _frame):
    os.write(1, b"got " + signal.Signals(number).name.encode())
    os._exit(0)

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, stop)
print("up", os.getpid(), *sys.argv[1:], flush=True)
if "--enable-turbo-mode" in sys.argv:
    sys.exit(2)
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
print("children:", children, flush=True)
if "STUB_INPUT" in os.environ:
    print("input:", sys.stdin.read(), flush=True)
if "STUB_EXIT" in os.environ:
    os._exit(int(os.environ["STUB_EXIT"]))
if "STUB_DIES" in os.environ:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""


class Deployment:
    """A virtual environment with an SGLang that only says that it was started, and a folder to work in."""

    def __init__(self, folder: Path, release: str = "0.5.12") -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.python = self.bin / "python3"
        self.bin.mkdir(parents=True)
        base = Path(sys.executable).resolve()
        self.python.symlink_to(base)
        (folder / "venv" / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = folder / "venv" / "lib" / name / "site-packages"
        package = site / "sglang"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "_version.py").write_text(f"__version__ = version = '{release}'\n")
        (package / "launch_server.py").write_text(SERVER)
        metadata = site / f"sglang-{release}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\nName: sglang\nVersion: {release}\n")
        self.program("sglang", f"#!{self.python}\n{SERVER}")
        self.mark = f"gate-test-{os.getpid()}-{time.monotonic_ns()}"

    def program(self, name: str, text: str) -> Path:
        """Write an executable file, in the folder that PATH begins with."""
        file = self.bin / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of a login on this machine."""
        return {
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(ROOT),
            "GATE_TEST": self.mark,
            **variables,
        }

    def start(self, *words, options=(), **settings) -> subprocess.Popen:
        """Start the gate in front of a command, as Popen does with ``settings``."""
        settings.setdefault("env", self.environment())
        settings.setdefault("cwd", self.folder)
        settings.setdefault("stdout", subprocess.PIPE)
        settings.setdefault("stderr", subprocess.PIPE)
        settings.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen([*GATE, *map(str, options), "--", *words], **settings)

    def run(self, *words, options=(), stdin=b"", **variables) -> subprocess.CompletedProcess:
        """Run the gate in front of a command and return what came of it, output as text."""
        return subprocess.run(
            [*GATE, *map(str, options), "--", *map(str, words)],
            env=self.environment(**variables),
            cwd=self.folder,
            input=stdin.decode(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def left(self) -> list[str]:
        """Return the processes that came of this deployment and are still there."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it ended meanwhile
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found


def gone(deployment: Deployment) -> list[str]:
    """Return the processes that are left; those that were ended may take a moment."""
    until = time.monotonic() + 10
    while (left := deployment.left()) and time.monotonic() < until:
        time.sleep(0.02)
    return left
