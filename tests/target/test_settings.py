"""Defaults that change under flags that are not written."""

from __future__ import annotations

from .conftest import Move, told


def test_a_default_that_nobody_notices_is_told_with_v(move: Move) -> None:
    walk = move("0.5.17", start="0.5.16")
    assert told(walk, "flag-default") == []
    [change] = told(walk, "flag-default", minor=True)
    assert (change.subject, change.before, change.after) == (
        "--encoder-transfer-backend",
        "zmq_to_scheduler",
        "auto",
    )
    assert change.release == "0.5.17"


def test_one_that_matters_here_is_told(move: Move) -> None:
    walk = move("0.5.14", "--enable-hierarchical-cache", start="0.5.13")
    [change] = told(walk, "flag-default")
    assert (change.subject, change.before, change.after) == (
        "--hicache-mem-layout",
        "layer_first",
        "page_first",
    )
    assert (change.release, change.do) == (
        "0.5.14",
        "write --hicache-mem-layout layer_first to keep what it was",
    )


def test_a_default_under_a_flag_that_is_written_does_not_matter(move: Move) -> None:
    walk = move("0.5.14", "--enable-hierarchical-cache --hicache-mem-layout page_first", start="0.5.13")
    assert told(walk, "flag-default", minor=True) == []


def test_a_default_that_is_null_and_stands_for_the_same_is_none(move: Move) -> None:
    """--swa-full-tokens-ratio is 0.8 up to 0.5.19, and null that becomes 0.8 from 0.5.20 on."""
    walk = move("0.5.20", start="0.5.19")
    found = {each.subject for each in told(walk, "flag-default", minor=True)}
    assert not {"--swa-full-tokens-ratio", "--mamba-full-memory-ratio"} & found


def test_what_sglang_makes_of_the_same_flags(move: Move) -> None:
    """0.5.22 takes --dp-size with --enable-dp-attention for the size of the attention's groups."""
    walk = move("0.5.22", "--tp 8 --dp-size 8 --enable-dp-attention", start="0.5.21")
    [change] = [each for each in told(walk, "setting") if each.subject == "--dp-size"]
    assert (change.before, change.after, change.release) == ("8", "1", "0.5.22")
