"""How long a fleet takes, and how much memory: `sgdoctor check --url A --url B ...` against stand-in servers.

    python bench/fleet.py

One child process plays all servers, each on a port of its own on loopback, with the answers of a captured
server; like SGLang's, its /health takes a second. Prints the wall time, the processor time and the peak
memory of the doctor for each number of servers, and the peak with --format json, whose text is 30 KiB a
server: the memory should not grow with what was asked, by the reports alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

CAPTURE = Path(__file__).parents[1] / "tests" / "captures" / "kv-pool-full"
SIZES = (1, 50, 100, 200, 400)
HEALTH_SECONDS = 1.0  # health_generate sleeps that long before it looks, 0.5.7 to 0.5.23
BODIES = {
    "/v1/models": "v1_models.json",
    "/server_info": "server_info_loaded.json",
    "/model_info": "model_info.json",
    "/metrics": "metrics.txt",
}


async def play(servers: int) -> None:
    """Listen on so many ports, print them, and answer until standard input ends."""
    answers = {path: (CAPTURE / name).read_bytes() for path, name in BODIES.items()}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].decode()
        if path == "/health":
            await asyncio.sleep(HEALTH_SECONDS)
        body = answers.get(path, b"")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    listening = [await asyncio.start_server(answer, "127.0.0.1", 0, backlog=64) for _ in range(servers)]
    print(json.dumps([each.sockets[0].getsockname()[1] for each in listening]), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def measure(ports: list[int], *more: str) -> tuple[float, float, float, bytes]:
    """Return what one check took (seconds, those of the processor, MiB at the peak) and printed."""
    command = [sys.executable, "-m", "sgdoctor", "check", "--fail-on", "never", *more]
    for port in ports:
        command += ["--url", f"http://127.0.0.1:{port}"]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        report = child.stdout.read()
        _, _, used = os.wait4(child.pid, 0)
        child.returncode = 0
    seconds = time.monotonic() - started
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, report


def main() -> None:
    """Start the servers, measure and print the table."""
    with subprocess.Popen(
        [sys.executable, __file__, "play"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as servers:
        assert servers.stdout is not None
        ports = json.loads(servers.stdout.readline())
        print(f"{'servers':>8}{'answered':>10}{'seconds':>9}{'CPU s':>7}{'peak MiB':>10}{'as JSON':>9}")
        for size in SIZES:
            seconds, busy, memory, _ = measure(ports[:size])
            _, _, as_json, report = measure(ports[:size], "--format", "json")
            ready = sum(each["summary"]["sglang"] is not None for each in json.loads(report)["deployments"])
            print(
                f"{size:>8}{ready:>10}{seconds:>9.1f}{busy:>7.1f}{memory:>10.0f}{as_json:>9.0f}", flush=True
            )
        assert servers.stdin is not None
        servers.stdin.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["play"]:
        asyncio.run(play(max(SIZES)))
    else:
        main()
