"""Opening logs, and reading them in pieces."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdoctor.collect import log_read
from sgdoctor.collect.log_read import Blocks, source
from sgdoctor.errors import UsageError


def test_a_block_is_whole_lines_with_the_number_of_the_first() -> None:
    blocks = Blocks(io.BytesIO(b"one\ntwo\nthree\nfour"), chunk=6)
    assert list(blocks) == [(b"one\n", 1), (b"two\n", 2), (b"three\n", 3), (b"four", 4)]


@given(data=st.binary(max_size=400), chunk=st.integers(1, 50), head=st.integers(0, 60))
def test_nothing_is_lost_and_every_line_has_its_number(data: bytes, chunk: int, head: int) -> None:
    blocks = Blocks(io.BytesIO(data), chunk=chunk, head=head)
    assert data.startswith(blocks.head)
    found = list(blocks)
    assert b"".join(block for block, _ in found) == data
    at = 0
    for block, line in found:
        assert line == data.count(b"\n", 0, at) + 1
        at += len(block)


@given(chunk=st.sampled_from([1 << 14, 100_003, 1 << 20]))
@settings(max_examples=3, deadline=None)
def test_a_line_without_an_end_is_cut_at_the_same_places(chunk: int) -> None:
    bars = b"  0%|          | 0/36 [00:00<?, ?it/s]\r" * 80_000
    data = b"short\n" + bars + b"\n" + b"x" * (3 << 20) + b"\nend"
    found = list(Blocks(io.BytesIO(data), chunk=chunk))
    assert b"".join(block for block, _ in found) == data
    cut = [(block, line) for block, line in found if not block.endswith(b"\n")]
    assert max(len(block) for block, _ in cut) <= log_read.LONGEST_LINE
    assert all(block.endswith(b"\r") for block, line in cut if line == 2)
    assert [len(block) for block, line in cut if line == 3] == [log_read.LONGEST_LINE] * 2
    assert found[-1] == (b"end", 4)


def test_gzip_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"\0" * 512)
    with source(str(file)).open() as stream:
        assert [block for block, _ in Blocks(stream)] == [b"one\ntwo\n"]


@given(data=st.binary(min_size=1, max_size=3000), cut=st.integers(1, 200), chunk=st.integers(1, 4000))
@settings(deadline=None)
def test_what_comes_before_a_cut_is_read(data: bytes, cut: int, chunk: int) -> None:
    packed = gzip.compress(data, mtime=0)
    stream = log_read._uncompressed(
        io.BufferedReader(io.BytesIO(packed[: max(2, len(packed) - cut)])), "x.gz"
    )
    blocks = Blocks(stream, chunk=chunk)
    assert data.startswith(b"".join(block for block, _ in blocks))
    assert "cut off" in blocks.trouble


def test_damage_is_told(tmp_path: Path) -> None:
    file = tmp_path / "server.log.gz"
    packed = bytearray(gzip.compress(os.urandom(500_000), mtime=0))
    packed[300_000:300_020] = b"\xff" * 20
    file.write_bytes(packed)
    with source(str(file)).open() as stream:
        blocks = Blocks(stream)
        size = sum(len(block) for block, _ in blocks)
    assert 0 < size <= 500_000
    assert "damaged" in blocks.trouble


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"plain text\n", r"is named \.gz but is not gzip"),
        (b"\x28\xb5\x2f\xfd....", "is compressed with zstd"),
        (b"\xfd7zXZ\x00....", "is compressed with xz"),
        (b"PK\x03\x04....", "is compressed with zip"),
    ],
)
def test_a_file_that_is_not_what_it_was_given_as(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "server.log.gz"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        source(str(file)).open()


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        source(str(tmp_path)).open()
    with pytest.raises(UsageError, match="no such file"):
        source(str(tmp_path / "server.log")).open()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(UsageError, match="cannot be read"):
        source(str(loop)).open()


def test_an_empty_file_named_gz_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "server.log.gz"
    file.touch()
    with source(str(file)).open() as stream:
        assert list(Blocks(stream)) == []


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(pack: type) -> None:
    code = "from sgdoctor.collect.log_read import *; s = source('-'); print(s.name, list(Blocks(s.open())))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pack(b"one\ntwo\n"), capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == r"standard input [(b'one\ntwo\n', 1)]"
