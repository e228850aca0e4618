"""The journal: on disk before it counts, and never another run's."""

from __future__ import annotations

import json
import resource
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.errors import UsageError
from sgdoctor.tune.journal import Journal

IDENTITY = {"kernel": "7824012dddde0b19", "gpu": "NVIDIA H200", "problem": {"experts": 256, "block": None}}


def test_a_run_goes_on_where_it_was(tmp_path):
    path = tmp_path / "folder" / "journal.jsonl"
    with Journal(path, IDENTITY) as journal:
        assert journal.records == []
        journal.append({"config": [16, 64, 128], "samples": [1.5, 1.25]})
    with Journal(path, IDENTITY) as journal:
        assert journal.records == [{"config": [16, 64, 128], "samples": [1.5, 1.25]}]
        journal.append({"config": [64, 64, 64]})
        assert len(journal.records) == 2


@given(cut=st.integers(min_value=0))
def test_cut_off_anywhere_it_keeps_what_was_whole(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    with Journal(path, IDENTITY) as journal:
        for i in range(3):
            journal.append({"number": i})
    content = path.read_bytes()
    kept = content[: cut % (len(content) + 1)]
    path.write_bytes(kept)
    with Journal(path, IDENTITY) as journal:
        assert journal.records == [{"number": i} for i in range(max(0, kept.count(b"\n") - 1))]
        journal.append({"number": "next"})
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_another_gpu_is_another_journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, IDENTITY).close()
    with pytest.raises(UsageError, match="another kernel, GPU or shape"):
        Journal(path, {**IDENTITY, "gpu": "NVIDIA H100"})


def test_two_tuners_do_not_write_to_one_journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, IDENTITY), pytest.raises(UsageError, match="another tuner"):
        Journal(path, IDENTITY)
    Journal(path, IDENTITY).close()


@pytest.mark.parametrize("line", ["not a journal", "17", "[]", "{}", "\0\0\0\0"])
def test_a_file_of_something_else_is_refused(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(UsageError, match="line 1 is no record of a tuner; move the file away"):
        Journal(path, IDENTITY)
    assert path.read_text() == f"{line}\n"


def test_a_full_disk_leaves_no_half_record(tmp_path):
    """A limit on the size of files stands in for the disk's end."""
    path = tmp_path / "journal.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Journal(path, IDENTITY) as journal:
        journal.append({"number": 1})
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
            with pytest.raises(OSError, match="File too large"):
                journal.append({"number": 2, "samples": [1.0] * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        journal.append({"number": 3})
    with Journal(path, IDENTITY) as journal:
        assert journal.records == [{"number": 1}, {"number": 3}]
