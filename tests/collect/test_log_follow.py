"""A log that is written, rotated and cut short while it is followed."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgdoctor.collect import log_follow, window, window_facts
from sgdoctor.collect.log_follow import Follower
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts

OLD = (
    "[2026-11-30 05:49:00] Decode batch, #running-req: 60, #token: 8000, token usage: 0.98, #queue-req: 40\n"
)
DECODE = (
    "[2026-11-30 05:50:0{}{}] Decode batch, #running-req: {}, #token: 2000, token usage: 0.24, "
    "accept len: 2.50, accept rate: 0.60, cuda graph: True, gen throughput (token/s): 500.00, #queue-req: 4\n"
)
PREFILL = (
    "[2026-11-30 05:50:01] Prefill batch, #new-seq: 1, #new-token: 300, #cached-token: 100, "
    "token usage: 0.10, #running-req: 3, #queue-req: 0, \n"
)
RETRACT = (
    "[2026-11-30 05:50:02{}] KV cache pool is full. Retract requests. #retracted_reqs: 2, "
    "#new_tokens_gained: 333, #new_token_ratio: 0.0980 -> 0.5883\n"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "server.log"
    file.write_text(OLD)
    return file


@pytest.fixture
def follower(log: Path) -> Iterator[Follower]:
    with contextlib.closing(Follower(str(log))) as opened:
        yield opened


def add(file: Path, text: str) -> None:
    with file.open("a") as stream:
        stream.write(text)


def decode(rank: str = "", running: int = 3) -> str:
    return DECODE.format(1, rank, running)


def facts_of(follower: Follower, seconds: float = 60.0) -> Facts:
    facts = Facts()
    window_facts.set_facts(facts, window.Window(seconds, logs=[follower]))
    return facts


def test_only_what_comes_after_the_beginning_counts(follower: Follower, log: Path) -> None:
    follower.read_on()
    assert follower.batches == {}
    add(log, decode(running=3) + decode(running=5) + PREFILL + RETRACT.format(""))
    follower.read_on()
    facts = facts_of(follower)
    assert facts.value("window.running_requests") == 4
    assert facts.value("window.queued_requests") == 4
    assert facts.value("window.token_usage") == 0.24
    assert facts.value("window.decode_throughput") == 500
    assert facts.value("window.accept_length") == 2.5
    assert facts.value("window.cache_hit_rate") == 0.25
    assert facts.value("window.retractions_per_minute") == 2
    assert facts.get("window.token_usage").provenance[0].place == f"{log}: its last 60 s"


def test_dp_workers_are_added_up_and_their_ranks_say_the_same_thing(follower: Follower, log: Path) -> None:
    add(log, decode(" DP0 TP0") + decode(" DP1 TP4"))
    for rank in (" DP0 TP0", " DP0 TP1", " DP1 TP4"):
        add(log, RETRACT.format(rank))
    follower.read_on()
    facts = facts_of(follower)
    assert facts.value("window.running_requests") == 6
    assert facts.value("window.retractions_per_minute") == 4


@pytest.mark.parametrize(
    ("line", "spoke"),
    [
        ('[2026-11-30 05:50:01] INFO:     127.0.0.1:36844 - "GET /health HTTP/1.1" 503\n', False),
        (
            "[2026-11-30 05:50:01] Health check failed. Server couldn't get a response from detokenizer\n",
            False,
        ),
        (
            '[2026-11-30 05:50:01] INFO:     127.0.0.1:36844 - "POST /pause_generation HTTP/1.1" 200 OK\n',
            True,
        ),
        (DECODE.format(1, "", 3), True),
        ("DeepGEMM warmup:   0%|          | 0/16384\rDeepGEMM warmup:   5%|5 ", True),
    ],
)
def test_a_log_that_only_answers_is_silent(follower: Follower, log: Path, line: str, *, spoke: bool) -> None:
    add(log, line)
    follower.read_on()
    assert follower.spoke == spoke
    assert facts_of(follower).value("window.log_silent") is not spoke


def test_a_line_is_taken_once_it_is_whole(follower: Follower, log: Path) -> None:
    line = decode()
    for part in (line[:40], line[40:-1]):
        add(log, part)
        follower.read_on()
        assert follower.lines == 0
    add(log, "\n")
    follower.read_on()
    assert follower.lines == 1


def test_a_log_that_is_rotated_is_read_on_in_the_new_file(follower: Follower, log: Path) -> None:
    add(log, decode(running=1))
    follower.read_on()
    add(log, decode(running=2))  # written after the last look, before the move
    log.rename(log.with_suffix(".log.1"))
    add(log.with_suffix(".log.1"), decode(running=3))  # the server still has the old file open
    log.write_text(decode(running=4))
    follower.read_on()
    (running,) = follower.batches[b""].decode["running_requests"].values()
    assert (running.count, running.total, running.largest) == (4, 1 + 2 + 3 + 4, 4)
    assert follower.notes == [f"{log}: was rotated while it was watched; both files were read"]


def test_a_log_that_is_moved_away_for_a_while(follower: Follower, log: Path) -> None:
    log.rename(log.with_suffix(".log.1"))
    follower.read_on()
    assert follower.notes == []
    log.write_text(decode())
    follower.read_on()
    assert follower.lines == 1


def test_a_log_that_is_copied_and_cut_short_is_read_from_its_new_beginning(
    follower: Follower, log: Path
) -> None:
    add(log, decode(running=1))
    follower.read_on()
    os.truncate(log, 0)
    add(log, decode(running=2))
    follower.read_on()
    (running,) = follower.batches[b""].decode["running_requests"].values()
    assert (running.count, running.total) == (2, 1 + 2)
    assert "cut short" in follower.notes[0]
    assert facts_of(follower).notes[0] == follower.notes[0]


def test_a_log_that_grows_faster_than_it_is_read_is_followed_at_its_end(
    follower: Follower, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follow, "MOST", 1000)
    add(log, decode() * 100)
    follower.read_on()
    assert 1 < follower.lines < 10
    assert "grows faster" in follower.notes[0]


def test_bytes_that_are_no_text_and_lines_without_end_do_no_harm(follower: Follower, log: Path) -> None:
    with log.open("ab") as stream:
        stream.write(b"\xff\x00 batch \xfe\n" + b"Decode batch" * 200_000)
    follower.read_on()
    assert follower.lines == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("-", "standard input is none"),
        ("gone.log", "no such file"),
        ("folder", "is a directory"),
        ("server.log.gz", "is compressed"),
    ],
)
def test_what_cannot_be_followed_is_refused(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "server.log.gz").write_bytes(gzip.compress(b"[2026-11-30 05:50:01] Decode batch\n"))
    with pytest.raises(UsageError, match=said):
        Follower(name if name == "-" else str(tmp_path / name))


def test_what_the_server_did_before_it_was_started_again_is_left_out(follower: Follower, log: Path) -> None:
    add(log, decode(running=60) + RETRACT.format(""))
    follower.read_on()
    add(log, "[2026-11-30 05:50:05] server_args=ServerArgs(model_path='/m', tp_size=1)\n" + decode(running=2))
    follower.read_on()
    facts = facts_of(follower)
    assert facts.value("window.running_requests") == 2
    assert facts.value("window.retractions_per_minute") == 0
    assert any("started again while it was watched" in note for note in follower.notes)


def test_the_stages_of_a_pipeline_write_of_the_same_batches(follower: Follower, log: Path) -> None:
    for stage in (" PP0 TP0", " PP1 TP0"):
        add(log, decode(stage) + PREFILL.replace("05:50:01]", f"05:50:01{stage}]"))
    follower.read_on()
    facts = facts_of(follower)
    assert facts.value("window.running_requests") == 3
    assert facts.value("window.prompt_tokens") == 400


def test_the_nodes_of_a_server_retract_the_same_requests(
    follower: Follower, log: Path, tmp_path: Path
) -> None:
    other = tmp_path / "node1.log"
    other.write_text(OLD)
    with contextlib.closing(Follower(str(other))) as second:
        add(log, decode(" TP0") + RETRACT.format(" TP0"))
        add(other, decode(" PP1 TP8") + RETRACT.format(" PP1 TP8"))
        facts = Facts()
        for each in (follower, second):
            each.read_on()
        window_facts.set_facts(facts, window.Window(60.0, logs=[follower, second]))
    assert facts.value("window.retractions_per_minute") == 2
    assert facts.value("window.running_requests") == 3


BANNER = "[2026-11-30 05:50:05] server_args=ServerArgs(model_path='/m', tp_size=1)\n"


def test_what_happens_in_a_minute_is_told_of_the_time_since_the_start(follower: Follower, log: Path) -> None:
    add(log, decode() + RETRACT.format(""))
    follower.read_on(10.0)
    add(log, BANNER)
    follower.read_on(30.0)
    add(log, decode() + RETRACT.format(""))
    follower.read_on(60.0)
    facts = facts_of(follower)
    assert facts.value("window.seconds") == 30
    assert facts.value("window.retractions_per_minute") == 4
    assert not facts_of(follower, 32.0).known("window.retractions_per_minute")  # 2 s tell no rate
    assert facts_of(follower, 29.9).value("window.seconds") == 0  # the last reading is after the end


def test_a_client_that_sends_a_log_starts_no_server(follower: Follower, log: Path) -> None:
    """With --log-requests-level 3 the whole of what was asked stands in the log."""
    add(log, decode(running=5))
    add(log, f"[2026-11-30 05:50:04] Receive: obj=GenerateReqInput(text={BANNER.strip()!r})\n")
    follower.read_on()
    assert facts_of(follower).value("window.running_requests") == 5
    assert follower.notes == []


def test_a_server_that_writes_a_line_a_step_takes_no_more_memory(follower: Follower, log: Path) -> None:
    """--decode-log-interval 1: what is kept grows with the time, and not with the lines."""
    for at in range(3):
        add(log, decode(running=at) * 500)
        follower.read_on(float(at))
    (worker,) = follower.batches.values()
    assert {measure: len(told) for measure, told in worker.decode.items()} == dict.fromkeys(
        ("running_requests", "queued_requests", "accept_length", "decode_throughput", "token_usage"), 3
    )
    assert facts_of(follower).value("window.running_requests") == 1
