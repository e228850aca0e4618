"""``sgdoctor check`` on servers that run: watched, and several at once."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading

import pytest

from tests.collect.servers import CAPTURES, reply, running, sglang

SECONDS = 5  # the shortest watch that is taken


@pytest.fixture
def odd():
    """Return the routes of a server like the captured one, of an older release."""
    said = json.loads((CAPTURES / "kv-pool-full" / "server_info_loaded.json").read_text())
    return {**sglang(), "/server_info": reply(200, json.dumps({**said, "version": "0.5.11"}).encode())}


def test_several_servers_in_one_report_with_a_table(sgdoctor, odd):
    with running(sglang()) as one, running(sglang()) as two, running(odd) as three:
        urls = [one.url, two.url, three.url]
        options = [word for url in urls for word in ("--url", url)]
        done = sgdoctor("check", *options, "--fail-on", "never")
        data = json.loads(sgdoctor("check", *options, "--format", "json", "--fail-on", "never").stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "info     RUN501  Of 3 servers of dense, this one differs from most:" in done.stdout
    table = done.stdout.partition("differ   sglang.version\n")[2].split()
    assert table[:4] == ["0.5.12:", f"{one.url},", two.url, "0.5.11:"]
    assert data["drift"] == [
        {
            "fact": "sglang.version",
            "model": "dense",
            "values": {"0.5.12": [one.url, two.url], "0.5.11": [three.url]},
        }
    ]


def test_one_server_of_several_that_does_not_answer_leaves_the_check_undecided(sgdoctor):
    with running(sglang()) as there:
        done = sgdoctor("check", "--url", there.url, "--url", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "http://127.0.0.1:9/v1/models: connection refused" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--watch", "60"], "--watch says how long a server is watched: name it with --url, or its --log"),
        (["--watch", "soon", "--url", "h:1"], "'soon' is not a valid float"),
        (["--watch", "1", "--url", "h:1"], "--watch 1: takes 5 to 3600 seconds"),
        (["--watch", "60", "--log", "-"], "standard input is none"),
        (["--watch", "60", "--log", "gone.log"], "gone.log: no such file"),
        (["--url", "h:1", "--url", "h:2", "--log", "x.log"], "--log is of one server, and --url names 2"),
        (["--url", "h:1", "--url", "h:0"], "--url h:0: no server has port 0"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_2(sgdoctor, arguments, said):
    done = sgdoctor("check", *arguments)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if said in line]
    assert "Traceback" not in done.stderr + line


def test_several_servers_are_nothing_for_a_snapshot(sgdoctor, tmp_path):
    done = sgdoctor("snapshot", "-o", tmp_path / "s.json", "--url", "h:1", "--url", "h:2")
    assert done.returncode == 2
    assert "this takes one server: name it with one --url" in done.stderr


def test_a_watch_shows_a_bar_on_a_terminal_and_its_numbers_in_the_report(environment, tmp_path):
    ours, theirs = pty.openpty()
    shown = []

    def look():
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:
                return
            if not data:
                return
            shown.append(data)

    with running(sglang()) as there:
        reader = threading.Thread(target=look)
        reader.start()
        done = subprocess.run(
            [sys.executable, "-m", "sgdoctor", "check", "--url", there.url, "--watch", str(SECONDS)],
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            env={**environment, "TERM": "xterm"},
            cwd=tmp_path,
            timeout=60,
            check=False,
        )
        os.close(theirs)
        reader.join()
        os.close(ours)
    said = b"".join(shown).decode()
    assert f"watching {there.url} [==" in said
    assert done.returncode == 0
    assert "in 5 s: 3.0 requests running, 0.0 waiting" in " ".join(done.stdout.split())
