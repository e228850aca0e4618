"""How fast a large log is read, beside ripgrep with the same patterns: those of all rules.

    python bench/log_speed.py [--megabytes 1000] [--rounds 3] [--dense]

Writes a log like a busy server's (the start of a captured one, then decode and prefill records with changing
values) into a temporary folder, runs `read_logs`, ripgrep and `sgdoctor check --log` over it in turn, and
prints CPU seconds and the peak of resident memory. Needs `rg` on the PATH; it gets --no-unicode: the classes
of characters are ASCII in the rules' RE2, too. With --dense every tenth record also matches a pattern.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
START = ROOT / "tests/captures/kv-pool-full/server.log"
LINES_OF_START = 65

# ruff: noqa: E501
DENSE = r"Prefill batch.*cuda graph: (?P<graph>\w+)"

CHILD = """
import json, resource, sys, time
from sgdoctor.collect.log import read_logs, source
from sgdoctor.facts import Facts
name, patterns = sys.argv[1], json.loads(sys.argv[2])
facts = Facts()
before = time.process_time()
read_logs(facts, [source(name)], patterns)
seconds = time.process_time() - before
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
found = {code: match.count for code, match in facts.matches.items()}
print(json.dumps({"seconds": seconds, "total": time.process_time(), "peak": peak, "found": found}))
"""


def write_log(path: Path, size: int) -> None:
    """Write about ``size`` bytes of a busy server's log."""
    rng = random.Random(1)  # noqa: S311 (numbers to look at, no secrets)
    clock = dt.datetime(2026, 11, 30, 6)  # noqa: DTZ001 (SGLang logs local time)
    with path.open("wb") as out:
        out.writelines(START.read_bytes().splitlines(keepends=True)[:LINES_OF_START])
        step = 0
        while out.tell() < size:
            lines = []
            for _ in range(20000):
                step += 1
                stamp = (clock + dt.timedelta(seconds=step // 20)).strftime("%Y-%m-%d %H:%M:%S")
                lines.append(record(rng, stamp))
            out.write("".join(lines).encode())


def record(rng: random.Random, stamp: str) -> str:
    """Return a decode record, or every tenth time a prefill record."""
    running, queued, usage, speed = rng.randint(1, 64), rng.randint(0, 60), rng.random(), rng.random() * 9000
    if rng.random() < 0.9:
        return (
            f"[{stamp}] Decode batch, #running-req: {running}, #token: {rng.randint(100, 90000)}, token usage: "
            f"{usage:.2f}, cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: {queued}\n"
        )
    return (
        f"[{stamp}] Prefill batch, #new-seq: {rng.randint(1, 9)}, #new-token: {rng.randint(1, 8000)}, #cached-token: "
        f"{rng.randint(0, 8000)}, token usage: {usage:.2f}, #running-req: {running}, #queue-req: {queued}, "
        f"#pending-token: {rng.randint(0, 9000)}, cuda graph: True, input throughput (token/s): {speed:.2f}\n"
    )


def ours(log: Path, patterns: list[str]) -> dict[str, float]:
    """Run `read_logs` in a process of its own."""
    sought = json.dumps({f"P{number}": pattern for number, pattern in enumerate(patterns)})
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(log), sought], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def seconds_of(*command: str) -> float:
    """Return the CPU seconds of a command."""
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    sys.path.insert(0, str(ROOT))
    from sgdoctor.engine import rules

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dense", action="store_true")
    asked = parser.parse_args()
    patterns = [*rules.load().patterns().values(), *([DENSE] if asked.dense else [])]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "patterns"
        # ripgrep has one name space for the groups of all patterns.
        file.write_text("".join(re.sub(r"\(\?P<\w+>", "(", pattern) + "\n" for pattern in patterns))
        for megabytes in sorted({100, asked.megabytes}):
            log = Path(folder) / "server.log"
            write_log(log, megabytes * 1000 * 1000)
            subprocess.run(["cat", str(log)], check=True, stdout=subprocess.DEVNULL)
            rounds = [
                (
                    ours(log, patterns),
                    seconds_of("rg", "--no-unicode", "-c", "-f", str(file), str(log)),
                    seconds_of(sys.executable, "-m", "sgdoctor", "check", "--log", str(log)),
                )
                for _ in range(asked.rounds)
            ]
            mine = min((each[0] for each in rounds), key=lambda one: one["seconds"])
            theirs = min(each[1] for each in rounds)
            check = min(each[2] for each in rounds)
            print(
                f"{megabytes} MB, {len(patterns)} patterns: read_logs {mine['seconds']:.2f} s CPU (with the start of "
                f"Python {mine['total']:.2f} s), ripgrep {theirs:.2f} s, ratio {mine['total'] / theirs:.2f}, "
                f"peak memory {mine['peak']:.0f} MiB, lines matched {sum(mine['found'].values())}; "
                f"`sgdoctor check --log` {check:.2f} s, ratio {check / theirs:.2f}"
            )


if __name__ == "__main__":
    main()
