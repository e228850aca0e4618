"""Looking for many patterns at once, and counting."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdoctor.collect import log_scan
from sgdoctor.collect.log_scan import DENSE, Scanner, relax
from sgdoctor.errors import UsageError


@pytest.mark.parametrize(
    ("pattern", "relaxed", "anchored"),
    [
        (rb"a (?P<name>\d+)b", rb"a (?:\d+)b", False),
        (rb"a (?<name>x)", rb"a (?:x)", False),
        (rb"^a$", rb"a", True),
        (rb"\Aa\z", rb"a", True),
        (rb"\^a\$", rb"\^a\$", False),
        (rb"[^$]+[]^)$]", rb"[^$]+[]^)$]", False),
        (rb"[[:alpha:]$]x", rb"[[:alpha:]$]x", False),
        (rb"[\]^]x", rb"[\]^]x", False),
        (rb"\Qa^(?P<b>$\E$", rb"\Qa^(?P<b>$\E", True),
        (rb"(?i)a|^b", rb"(?i)a|b", True),
        (rb"^", rb"(?:)", True),
    ],
)
def test_a_pattern_for_whole_blocks(pattern: bytes, relaxed: bytes, anchored: bool) -> None:  # noqa: FBT001
    assert relax(pattern) == (relaxed, anchored)


def counted(patterns: dict[str, bytes], blocks: list[bytes]) -> dict[str, int]:
    """Count as `Reading` does."""
    scanner = Scanner(patterns, frozenset(patterns))
    line = 1
    for block in blocks:
        for number, text in scanner.hits(block, line):
            assert text == b"".join(blocks).split(b"\n")[number - 1]
            for code in scanner.matching(text):
                if code not in scanner.dense:
                    scanner.found(code)
        line += block.count(b"\n")
    return scanner.counts


PATTERNS = {
    "plain": rb"abc",
    "class": rb"a[^b]c",
    "space": rb"b\s+c",
    "start": rb"^ab",
    "end": rb"bc$",
    "whole": rb"^abc$",
    "dotall": rb"(?s)a.*c",
    "empty": rb"x*",
    "group": rb"(?P<one>a)(?P<two>b)?c",
}


@given(lines=st.lists(st.text("abcx ^$", max_size=6), max_size=30), cuts=st.sets(st.integers(0, 29)))
def test_the_counts_are_those_of_each_line_alone(lines: list[str], cuts: set[int]) -> None:
    encoded = [line.encode() + b"\n" for line in lines]
    blocks = [b""]
    for number, line in enumerate(encoded):
        blocks[-1] += line
        if number in cuts:
            blocks.append(b"")
    single = {
        code: sum(
            bool(log_scan.compile_pattern(code, pattern.decode()).search(line.encode())) for line in lines
        )
        for code, pattern in PATTERNS.items()
    }
    assert counted(PATTERNS, blocks) == single


@given(repeat=st.integers(DENSE - 3, DENSE + 3), cut=st.integers(0, 40_000))
@settings(max_examples=20, deadline=None)
def test_the_counts_stay_right_where_a_pattern_becomes_dense(repeat: int, cut: int) -> None:
    lines = [b"abc abc"] * repeat + [b"x", b"a-c", b"abc", b""] * 50
    data = b"\n".join(lines)
    end = data.rfind(b"\n", 0, cut) + 1
    assert counted({"plain": rb"abc", "dash": rb"a\Wc"}, [data[:end], data[end:]]) == {
        "plain": repeat + 50,
        "dash": 50,
    }


def test_bytes_that_are_no_utf8_are_bytes() -> None:
    assert counted({"any": rb"a.c", "word": "é".encode()}, [b"a\xffc \xc3\xa9\n"]) == {"any": 1, "word": 1}


def test_following_lines_are_hits_when_wanted() -> None:
    scanner = Scanner({"a": b"a"})
    seen = []
    for number, text in scanner.hits(b"x\na\nb\nc\nx\n", 10):
        seen.append((number, text))
        scanner.follow = text in (b"a", b"b")
    assert seen == [(11, b"a"), (12, b"b"), (13, b"c")]


def test_without_patterns_nothing_is_found() -> None:
    assert list(Scanner({}).hits(b"a\n\xff\n", 1)) == []


def test_what_re2_does_not_know_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"^the log pattern of MEM101 is not an RE2 pattern: invalid perl operator"
    ):
        log_scan.compile_pattern("MEM101", "(?=x)")
