"""The lines around those of a log on which something was found."""

from __future__ import annotations

import json

import pytest

from sgdoctor.collect import log_excerpts
from sgdoctor.facts import Excerpt, Facts
from tests.collect import logs
from tests.test_secrets import PLANTED, leaks

FOUND = {"X": "needle"}
STAMP = "[2026-11-30 05:50:01 TP0] "


def log(*texts: str, stamp: str = STAMP) -> str:
    return "".join(f"{stamp}{text}\n" for text in texts)


def around(data: bytes | str, patterns: dict[str, str] = FOUND, **options: int) -> Excerpt:
    """Return the one excerpt of a log."""
    (found,) = logs.read(data, patterns, **options).excerpts.values()
    return found


def words(excerpt: Excerpt) -> dict[int, str]:
    return {number: text.removeprefix(STAMP) for number, text in excerpt.lines}


def test_two_lines_before_and_two_after() -> None:
    found = around(log("a", "b", "c", "the needle", "d", "e", "f"))
    assert (found.place, found.line) == ("server.log:4", 4)
    assert words(found) == {2: "b", 3: "c", 4: "the needle", 5: "d", 6: "e"}
    assert found.lines[0] == (2, f"{STAMP}b")  # as it stands there


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["needle"], [1]),
        (["needle", "a", "b", "c"], [1, 2, 3]),
        (["a", "b", "c", "needle"], [2, 3, 4]),
        (["needle", "needle", "needle"], [1, 2, 3]),  # the first is the evidence
    ],
)
def test_at_the_ends_of_a_log_there_are_fewer(texts: list[str], numbers: list[int]) -> None:
    assert list(words(around(log(*texts)))) == numbers
    assert list(words(around(log(*texts).removesuffix("\n")))) == numbers


@pytest.mark.parametrize("name", ["mem-fraction-too-small", "kv-pool-full", "moe-no-config"])
@pytest.mark.parametrize("chunk", [1, 100, 5000])
def test_the_same_however_the_bytes_arrive(name: str, chunk: int) -> None:
    data = logs.captured(name)
    patterns = {"A": "RuntimeError|Retract|default MoE", "B": r"fired up|Received sigquit"}
    whole = logs.read(data, patterns).excerpts
    assert len(whole) > 1
    assert logs.read(data, patterns, chunk=chunk).excerpts == whole


def test_what_a_fact_was_read_from_has_its_neighbours_too() -> None:
    facts = logs.read(logs.captured("kv-pool-full"))
    place = facts.get("log.retractions").provenance[0].place
    found = facts.excerpts[place]
    assert "Retract requests" in dict(found.lines)[found.line]
    assert len(found.lines) == 5


def test_a_death_shows_the_frames_that_led_to_it() -> None:
    facts = logs.read(logs.captured("mem-fraction-too-small"))
    found = facts.excerpts[facts.get("log.fatal").provenance[0].place]
    assert [text.strip() for _, text in found.lines][1:3] == [
        "raise RuntimeError(msg)",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ]


def test_of_several_starts_the_last_one_is_shown() -> None:
    banner = "server_args=ServerArgs(model_path='/m', tp_size=1)"
    begin = "Load weight begin. avail mem=10.00 GB"
    data = log(banner, begin, "needle", "old") + log(banner, "new", "needle", "new")
    assert words(around(data)) == {5: banner, 6: "new", 7: "needle", 8: "new"}


def test_newest_first_is_turned_round_and_keeps_the_numbers_of_the_file() -> None:
    times = [f"[2026-11-30 05:50:{second:02} TP0] " for second in range(20)]
    texts = [f"{time}{'needle' if second == 7 else f'line {second}'}" for second, time in enumerate(times)]
    found = around("\n".join(reversed(texts)) + "\n")
    assert (found.place, found.line) == ("server.log:13", 13)
    assert [number for number, _ in found.lines] == [15, 14, 13, 12, 11]
    assert [text.rpartition("] ")[2] for _, text in found.lines] == [
        "line 5",
        "line 6",
        "needle",
        "line 8",
        "line 9",
    ]


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr", "time": logs.NANOSECONDS}),
        lambda line: f"sglang-1  | {line}",
        lambda line: f"\x1b[36m{line}\x1b[0m",
        lambda line: f"Loading:  50%|##\rLoading: 100%|####\r{line}",
    ],
    ids=["docker", "compose", "coloured", "behind a progress bar"],
)
def test_what_wraps_a_line_is_left_away(wrapped: object) -> None:
    assert callable(wrapped)
    plain = log("a", "b", "needle", "c", "d")
    found = around("".join(f"{wrapped(line)}\n" for line in plain.splitlines()))
    assert found.lines == around(plain).lines


@pytest.mark.parametrize("kind", PLANTED)
def test_no_secret_is_in_a_neighbour(kind: str) -> None:
    facts = logs.read(log("a", PLANTED[kind], "needle", f"and {PLANTED[kind]} again", "b"), FOUND)
    (found,) = facts.excerpts.values()
    assert leaks(str(found)) == []
    assert "redacted" in str(found)


@pytest.mark.parametrize("cut", range(1, 36, 5))
def test_a_secret_that_is_broken_over_two_lines_is_in_none(cut: int) -> None:
    secret = "hf_PLANTEDabcPLANTEDdefPLANTEDghiPLANTED"
    data = log("token " + secret[:cut]) + secret[cut:] + "\n" + log("needle", "c", "d")
    facts = logs.read(data, FOUND)
    assert all(leaks(str(each)) == [] for each in facts.excerpts.values())
    assert facts.matches["X"].text == "needle"


@pytest.mark.parametrize(
    "request_",
    [
        "Receive: obj=GenerateReqInput(rid='1', text='my diary', sampling_params={})",
        "Finish: obj=GenerateReqInput(rid='1', text='my diary'), out={'text': 'my diary'}",
        '{"timestamp": "2026-11-30T05:50:01", "event": "request.received", "obj": {"text": "my diary"}}',
        '{"timestamp": "2026-11-30T05:50:01", "event": "request.finished", "out": {"text": "my diary"}}',
    ],
)
def test_what_users_asked_is_not_shown(request_: str) -> None:
    found = around(log("a") + f"{request_}\n" + log("needle", "b"))
    assert "diary" not in str(found)
    assert "(a request)" in str(found)


def test_a_long_line_is_cut_and_the_one_that_counts_shows_what_matched() -> None:
    found = around(log("x" * 5000, "y" * 3000 + " needle " + "y" * 3000, "z" * 300_000))
    before, line, after = (text for _, text in found.lines)
    assert len(before) == len(after) == log_excerpts.SHOWN + 3
    assert " needle " in line
    assert len(line) < 1000


def test_a_line_without_end_takes_no_memory_and_shows_no_end_of_a_secret() -> None:
    endless = "a" * (3 << 20) + " needle hf_PLANTEDabcdefghijklmnopqrs"
    facts = logs.read(log("first") + endless, FOUND)
    assert sum(len(text) for each in facts.excerpts.values() for _, text in each.lines) < 10_000
    assert leaks(str(facts.excerpts)) == []


def test_a_log_of_nothing_but_matches_keeps_few() -> None:
    patterns = {f"P{number}": f"needle{number}x" for number in range(500)}
    data = log(
        *(f"needle{number}x" for number in range(500)), *(["KV cache pool is full. Retract requests."] * 3000)
    )
    facts: Facts = logs.read(data, patterns)
    assert len(facts.matches) == 500
    assert len(facts.excerpts) <= log_excerpts.MOST
