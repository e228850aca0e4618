"""A real MoE server before and after `sgdoctor fix --tune-moe`, on a GPU machine.

    python3 bench/moe_server.py --out DIR [--seconds 570] [--only PHASE]... [--rehearse]

SGLang 0.5.12 with random weights: E=256, N=256, K=3072, topk 8, bf16, 16 layers. Phases, each done once:

    before   start, `sgdoctor check`, answers, throughput, stop
    fix      `sgdoctor fix --tune-moe` with the log and the launch command, on the idle GPU
    after    the same as before; the log must name our files, and CFG101 must be gone
    dense    a healthy dense server: log and answers

A phase begins only when there is time for it before ``--seconds`` are over; the same command then goes on
where this one stopped (the tuner from its journal). Everything is in ``--work`` and, packed after each phase
under other names (no paths, hosts or UUIDs), in DIR/moe-server.tar.xz; DIR/moe-server.log says what happens.
SGLang is expected in ``--site``. ``--rehearse`` puts the stand-in of stand_in_server.py in place of SGLang
and of the tuner, and needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import served
import throughput

REPOSITORY = Path(__file__).parents[1]
STAND_IN = Path(__file__).parent / "stand_in_server.py"
CAPTURE = REPOSITORY / "tests/captures/moe-no-config"
CONFIGS = "sglang/srt/layers/moe/moe_runner/triton_utils/configs"  # 0.5.12
FILES = [f"E=256,N=256,device_name=NVIDIA_H200{end}.json" for end in ("", "_down")]
STAND_IN_CONFIGS = f"{CONFIGS}/triton_3_6_0"
MOE, DENSE = "moe-e256-n256-l16", "dense"

# Triton attention: sgl_kernel without FlashAttention 3 is enough. Fewer graphs than by default, in steps that
# serve the load: they are captured in seconds. No line a request in the log.
FLAGS = (
    "--load-format dummy --attention-backend triton --grammar-backend none --enable-metrics "
    "--mem-fraction-static 0.5 --cuda-graph-bs 1 2 4 8 16 32 64 128 256 "
    "--piecewise-cuda-graph-tokens 64 256 512 1024 2048 4096 8192 --log-level-http warning"
).split()
EXPECT = """\
# {what}: nothing is to be found.
reports:
  - name: log
    sources: {{logs: [server.log]}}
  - name: all
    sources: {{logs: [server.log], server_info: server_info_loaded.json, metrics: metrics.txt, \
launch: command.txt, model: ../models/{model}, environment: ../environment.json}}
"""


@dataclass(frozen=True)
class Run:
    """Where things are, and until when (monotonic seconds) this call may take."""

    work: Path
    out: Path
    site: Path
    port: int
    until: float
    rehearse: bool

    @property
    def left(self) -> float:
        """How many seconds this call has left."""
        return self.until - time.monotonic()

    @property
    def url(self) -> str:
        """Where the server listens."""
        return f"http://127.0.0.1:{self.port}"

    def say(self, text: str) -> None:
        """Print a line, and keep it where it survives this process."""
        line = f"{time.strftime('%H:%M:%S')} {text}"
        print(line, flush=True)
        with (self.out / "moe-server.log").open("a") as file:
            file.write(line + "\n")

    def environment(self, *paths: Path) -> dict[str, str]:
        """Return the environment of a child that imports from ``paths``."""
        return os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "100",
        }

    def fresh(self, name: str) -> Path:
        """Return an empty folder for a phase."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def doctor(self, folder: Path, output: str, *arguments: str, seconds: float) -> int | None:
        """Run sgdoctor in ``folder``, its output in a file there; null when it was interrupted in the end."""
        command = [sys.executable, "-m", "sgdoctor", *arguments]
        if self.rehearse and arguments[0] == "fix":
            command = [sys.executable, str(STAND_IN), "tune", "--configs", str(self.site / STAND_IN_CONFIGS)]
        env = self.environment(REPOSITORY, self.site) | {"XDG_CACHE_HOME": str(self.work / served.CACHE)}
        with (folder / output).open("wb") as file, (folder / f"{output}.err").open("wb") as errors:
            process = subprocess.Popen(
                command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=errors
            )
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return None


def launch(run: Run, model: str) -> list[str]:
    """Return the launch command as an operator writes it."""
    path = str(run.work / "models" / model)
    return ["python3", "-m", "sglang.launch_server", "--port", str(run.port), "--model-path", path, *FLAGS]


def process_of(run: Run, command: list[str]) -> list[str]:
    """Return the command that is really run."""
    if run.rehearse:
        where = ["--capture", str(CAPTURE), "--configs", str(run.site / STAND_IN_CONFIGS)]
        return [sys.executable, str(STAND_IN), "serve", *where, *command[3:]]
    return [sys.executable, *command[1:]]


def examine(run: Run, folder: Path) -> list[str]:
    """Run `sgdoctor check` on the running server, for people and for programs; return the codes found."""
    sources = ["--log", "server.log", "--url", run.url, "--fail-on", "never"]
    run.doctor(folder, "check.txt", "check", *sources, seconds=60)
    run.doctor(folder, "check.json", "check", *sources, "--format", "json", seconds=60)
    try:
        [deployment] = json.loads((folder / "check.json").read_text())["deployments"]
    except ValueError:
        run.say(f"no report: {(folder / 'check.json.err').read_text()[-600:]}")
        return ["none"]
    return [finding["code"] for finding in deployment["findings"]]


def loads(run: Run, *, load: bool) -> tuple[Sequence[throughput.Load], int]:
    """Return the loads to measure with and how often: all of them, or a little to have been busy."""
    if run.rehearse:
        return [part.part(100) for part in throughput.LOADS[:2]], 2
    return (throughput.LOADS, throughput.REPEATS) if load else (throughput.LOADS[:2], 1)


def measure(run: Run, name: str, model: str, *, load: bool) -> dict[str, Any]:
    """Start a server, examine it, measure it, keep log and answers; return what was seen."""
    folder = run.fresh(name)
    command = launch(run, model)
    (folder / "command.txt").write_text(" ".join(command) + "\n")
    chosen, repeats = loads(run, load=load)
    patience = min(270, run.left - 20)
    with served.running(process_of(run, command), folder, run.environment(run.site), patience) as seconds:
        run.say(f"{name}: ready after {seconds} s")
        statuses = served.keep_answers(run.url, folder, loaded=False)
        codes = examine(run, folder)
        run.say(f"{name}: sgdoctor check finds {', '.join(codes) or 'nothing'}")
        budget = min(100, run.left - 30)
        results = throughput.sweep(run.url, chosen, repeats=repeats, seconds=budget, say=run.say)
        (folder / "throughput.json").write_text(json.dumps([r.to_json() for r in results], indent=1) + "\n")
        served.keep_answers(run.url, folder, loaded=True)
    answered = sum(result.load.requests - len(result.failures) for result in results)
    log = (folder / "server.log").read_text(errors="replace")
    return {
        "codes": codes,
        "config_files": re.findall(r"Using MoE kernel config from (\S.*?\.json)", log),
        "loads_left_out": repeats * len(chosen) - len(results),
        "outcome": {"ready": True, "seconds": seconds, "rc": None, **statuses, "gen": answered},
    }


def capture(run: Run, name: str, model: str, what: str, outcome: dict[str, Any]) -> None:
    """Make a capture of a phase, for tests/captures."""
    target = run.work / "captures" / f"{model}-healthy"
    served.capture(run.work / name, target, outcome, EXPECT.format(what=what, model=model))


def before(run: Run) -> dict[str, Any]:
    """Measure the server as it is."""
    seen = measure(run, "before", MOE, load=True)
    if "CFG101" not in seen["codes"]:
        run.say("before: CFG101 was not found: there is no gap here, or it was not seen")
    return seen


def fix(run: Run) -> dict[str, Any] | None:
    """Tune what is missing; null when it ran out of time, or refused."""
    folder = run.work / "fix"
    folder.mkdir(exist_ok=True)
    log = str(run.work / "before/server.log")
    # SGLang is on PYTHONPATH, so no interpreter has it among its own packages: which one is meant is said.
    sources = ["--log", log, "--python", sys.executable]
    arguments = ["fix", "--tune-moe", *sources, "--report", "report.html", "--", *launch(run, MOE)]
    number = len(list(folder.glob("fix-*.txt"))) + 1
    began = time.monotonic()
    code = run.doctor(folder, f"fix-{number}.txt", *arguments, seconds=run.left - 25)
    seconds = round(time.monotonic() - began, 1)
    for path in (run.work / served.CACHE).rglob("journal.jsonl"):
        shutil.copy(path, folder / path.name)
    for line in (folder / f"fix-{number}.txt").read_text(errors="replace").splitlines()[-40:]:
        run.say(f"fix: {line}")
    for line in (folder / f"fix-{number}.txt.err").read_text(errors="replace").splitlines()[-20:]:
        run.say(f"fix (stderr): {line}")
    run.say(f"fix: exit code {code} after {seconds} s")
    if code != 0:
        return None
    installed = [path for name in FILES for path in (run.site / CONFIGS).rglob(name)]
    for path in installed:
        shutil.copy(path, folder / path.name)
    return {"seconds": seconds, "call": number, "files": [path.name for path in installed]}


def after(run: Run) -> dict[str, Any]:
    """Measure the server with what was installed."""
    seen = measure(run, "after", MOE, load=True)
    capture(run, "after", MOE, "With the files that `sgdoctor fix --tune-moe` made", seen["outcome"])
    run.say(
        f"after: {len(seen['config_files'])} config files used: {', '.join(seen['config_files']) or 'none'}"
    )
    if len(seen["config_files"]) < 2 or "CFG101" in seen["codes"]:
        run.say("after: the gap is still there")
    both = [json.loads((run.work / name / "throughput.json").read_text()) for name in ("before", "after")]
    seen["compared"] = throughput.compare(*both)
    for line in seen["compared"]:
        run.say(
            f"{line['load']} at {line['concurrency']}: {line['before']:.0f} -> {line['after']:.0f} tokens/s, "
            f"x {line['ratio']:.3f} (repeats differ by {100 * line['spread']:.1f}%)"
        )
    return seen


def dense(run: Run) -> dict[str, Any]:
    """Keep what a healthy dense server says."""
    seen = measure(run, "dense", DENSE, load=False)
    capture(run, "dense", DENSE, "A dense model", seen["outcome"])
    return seen


# What each needs at least, in seconds: less is not worth beginning.
PHASES: dict[str, tuple[Callable[[Run], dict[str, Any] | None], float]] = {
    "before": (before, 270),
    "fix": (fix, 100),
    "after": (after, 190),
    "dense": (dense, 110),
}


def go(run: Run, wanted: list[str]) -> int:
    """Do what is not done yet and return the exit code: 0 all done, 3 there is more to do."""
    summary_file = run.work / "summary.json"
    summary = json.loads(summary_file.read_text()) if summary_file.is_file() else {}
    served.write_model("moe-e256-n256", run.work / "models" / MOE, num_hidden_layers=16, max_window_layers=16)
    served.write_model("dense", run.work / "models" / DENSE)
    for name in wanted:
        phase, seconds = PHASES[name]
        if name in summary:
            continue
        if name == "after" and not summary.get("fix", {}).get("files"):
            run.say("after: left out, nothing was installed")
            continue
        if run.left < seconds and not run.rehearse:
            run.say(
                f"{name}: {run.left:.0f} s left, it takes {seconds:.0f}: the same command goes on with it"
            )
            return 3
        run.say(f"{name}: begins, {run.left:.0f} s left")
        try:
            seen = phase(run)
        except served.NotStarted as error:
            run.say(f"{name}: {error}")
            return 3
        finally:
            served.pack(run.work, run.out / "moe-server.tar.xz", run.site)
        if seen is None or seen.get("loads_left_out"):
            run.say(f"{name}: not finished; the same command goes on with it")
            return 3
        summary[name] = seen
        summary_file.write_text(json.dumps(summary, indent=1) + "\n")
        served.pack(run.work, run.out / "moe-server.tar.xz", run.site)
    return 0


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "moe-server")
    parser.add_argument("--site", type=Path, default=Path("/opt/site"))
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("--only", action="append", choices=PHASES)
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    for folder in (arguments.out, arguments.work):
        folder.mkdir(parents=True, exist_ok=True)
    run = Run(
        work=arguments.work.resolve(),
        out=arguments.out.resolve(),
        site=arguments.site.resolve(),
        port=free_port() if arguments.rehearse else 31000,
        until=time.monotonic() + arguments.seconds,
        rehearse=arguments.rehearse,
    )
    # So that a server is stopped when this is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(124))
    sys.exit(go(run, arguments.only or list(PHASES)))


if __name__ == "__main__":
    main()
