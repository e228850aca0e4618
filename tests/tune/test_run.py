"""One run: what becomes of its tasks, what it goes by, and what a journal may hold; times from a replay."""

from __future__ import annotations

import dataclasses
import json

import pytest

from sgdoctor.errors import UsageError
from sgdoctor.tune import roofline, tuner, workers
from sgdoctor.tune.journal import Journal
from sgdoctor.tune.model import Pair
from sgdoctor.tune.run import Run
from sgdoctor.tune.run import _name as name_of
from sgdoctor.tune.space import Config
from tests.tune.test_search import best_of, file_of, job_of, tune


def test_of_a_batch_that_twice_killed_the_tuner_the_innocent_are_tried_alone(kernel_file, matrices, tmp_path):
    job, journal = job_of(matrices["e128"], kernel_file), tmp_path / "journal"
    units = [("up", 64, config) for config in (Config(16, 64, 64), Config(16, 64, 128), Config(16, 128, 64))]
    with workers.replayed(file_of("e128")) as crew, Journal(journal, {}) as opened:
        task = Run(job, crew, opened).task("race", units, 3)
        opened.append({"started": name_of(task)})
        opened.append({"started": name_of(task)})
        run = Run(job, crew, opened)
        run.time("race", [units], 3, "timing")
        assert all(run.points.known("race", key) for key in units)
        assert not run.points.broken


def test_pairs_beside_one_that_crashes_are_timed_together_again(kernel_file, matrices, tmp_path):
    """Times of other rounds do not compare; and what crashed is not tried again, in no phase."""
    matrix = matrices["e128"]
    job, journal = job_of(matrix, kernel_file), tmp_path / "journal"
    bad = Config(16, 128, 64, 1, 4, 3)
    pairs = [job.default[64], best_of(matrix, 64), Pair(bad, bad)]
    faults = {"crash_whole": [bad.to_list()]}
    with workers.replayed(file_of("e128"), gpus=[{"faults": faults}]) as crew, Journal(journal, {}) as opened:
        run = Run(job, crew, opened)
        for phase in ("contest", "again"):
            run.pairs(phase, [(64, pair) for pair in pairs], 5, "timing")
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    timed = {(r["pairs"], len(r["units"])) for r in records if "pairs" in r and r["pairs"] != "alone"}
    assert timed == {("contest", 2), ("again", 2)}
    assert list(run.points.failed_pairs) == [(64, pairs[2])]
    assert sum("started" in record for record in records) == 1 + 3 + 1 + 1


@pytest.mark.parametrize("record", ['{"dance": 1}', '{"compile": 1}', '{"time": "spread", "units": []}'])
def test_a_record_that_nobody_knows_is_told_in_a_line(matrices, kernel_file, tmp_path, record):
    job, journal = job_of(matrices["e256"], kernel_file), tmp_path / "journal"
    Journal(journal, tuner.identity(job)).close()
    with journal.open("a") as file:
        file.write(f"{record}\n")
    with pytest.raises(
        UsageError, match="line 2 is no record of this release of sgdoctor; move the file away"
    ):
        tune("e256", job, journal)
    assert journal.read_text().endswith(f"{record}\n")


def test_what_is_as_fast_as_memory_is_not_raced(matrices, kernel_file, tmp_path):
    """The best pair counts: the best of each product may differ in BLOCK_SIZE_M."""
    job = job_of(matrices["e256"], kernel_file)
    speeds = {"bandwidth": 4e12, "flops": 8e14}
    bound = roofline.microseconds(job.problem, 64, **speeds)
    low, high = Config(16, 64, 64), Config(64, 64, 64)
    rows = [["up", 64, low.to_list()], ["up", 64, high.to_list()], ["down", 64, high.to_list()]]
    gpus = [{"speeds": speeds}]
    with workers.replayed(file_of("e256"), gpus=gpus) as crew, Journal(tmp_path / "journal", {}) as journal:
        assert crew.measure.wait_ready(60)
        run = Run(job, crew, journal)
        for slow, reached in ((1.1, False), (0.6, True)):
            samples = [[0.5 * bound], [slow * bound], [0.4 * bound]]
            run.keep({"time": "spread", "units": rows, "samples": samples})
            assert roofline.reached(run, 64, before="race") is reached
        assert not roofline.reached(run, 128, before="race")


def test_a_large_batch_may_take_its_time(matrices, kernel_file):
    job = job_of(matrices["e8"], kernel_file)
    wide = dataclasses.replace(job.problem, width=14336)
    large = dataclasses.replace(job, problem=wide, batch_sizes=(1, 16384))
    assert 90 < workers.measuring_seconds(job) < 100
    assert 150 < workers.measuring_seconds(large) < 200
