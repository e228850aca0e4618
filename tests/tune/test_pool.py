"""Worker processes that answer, fail, hang, die and never start."""

from __future__ import annotations

import signal
import time

import pytest

from sgdoctor.tune.pool import Pool, WorkersFailed


def finish(pool, seconds=30):
    """Return the outcomes of all tasks."""
    outcomes = []
    until = time.monotonic() + seconds
    while pool.unfinished and time.monotonic() < until:
        outcomes += pool.outcomes(wait=1.0)
    assert not pool.unfinished
    return outcomes


def test_every_task_is_answered_once():
    with Pool("echo", {}, size=2, depth=2) as pool:
        for i in range(20):
            pool.submit({"say": i})
        outcomes = finish(pool)
    assert sorted(o.value for o in outcomes) == list(range(20))
    assert {o.ending for o in outcomes} == {"done"}
    assert all(o.task == {"say": o.value} for o in outcomes)


def test_an_error_is_a_result_and_the_worker_goes_on():
    with Pool("echo", {}) as pool:
        pool.submit({"raise": "out of resources"})
        pool.submit({"say": "still here"})
        error, answer = finish(pool)
    assert (error.ending, error.text) == ("error", "ValueError: out of resources")
    assert answer.value == "still here"


def test_a_crash_is_told_of_its_task_and_another_worker_takes_over():
    with Pool("echo", {}) as pool:
        pool.submit({"signal": int(signal.SIGSEGV)})
        pool.submit({"say": "after"})
        crash, answer = finish(pool)
    assert (crash.ending, crash.text) == ("crashed", "died of SIGSEGV")
    assert crash.task == {"signal": int(signal.SIGSEGV)}
    assert answer.value == "after"


def test_a_hang_is_ended():
    with Pool("echo", {}, timeout=2.0) as pool:
        pool.submit({"sleep": 600})
        pool.submit({"say": "after"})
        hang, answer = finish(pool)
    assert (hang.ending, hang.text) == ("timeout", "no answer within 2 s")
    assert answer.value == "after"


def test_a_worker_without_a_task_may_wait_longer_than_the_time_out():
    with Pool("echo", {}, timeout=1.0) as pool:
        pool.submit({"say": 1})
        finish(pool)
        child = pool._workers[0].process
        list(pool.outcomes(wait=1.5))
        time.sleep(1.0)
        list(pool.outcomes())
        assert child.poll() is None


def test_a_role_that_cannot_start_says_why():
    with Pool("compile", {"path": "/nowhere", "problem": {}, "capability": [9, 0]}) as pool:
        pool.submit({"say": 1})
        with pytest.raises(WorkersFailed, match=r"ModuleNotFoundError|TypeError|FileNotFoundError"):
            finish(pool)


def test_an_interpreter_that_dies_at_once_is_not_started_for_ever(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with Pool("echo", {}, python=str(broken)) as pool:
        pool.submit({"say": 1})
        with pytest.raises(WorkersFailed, match="exited with 3 before it was ready"):
            finish(pool)


def test_closing_leaves_no_process():
    pool = Pool("echo", {}, size=2)
    pool.submit({"sleep": 600})
    list(pool.outcomes(wait=1.0))
    processes = [child.process for child in pool._workers]
    pool.close()
    assert all(process.poll() is not None for process in processes)
