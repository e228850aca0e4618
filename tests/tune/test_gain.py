"""What a tuning gains, also where what SGLang uses today cannot be timed: it does not run on this GPU."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from sgdoctor.tune import tuner, workers
from sgdoctor.tune.compile import problem_from
from sgdoctor.tune.model import Job, Pair, Times
from sgdoctor.tune.replay import Matrix
from sgdoctor.tune.space import Config, default_config
from tests.fix import made

MATRIX = Path(__file__).parent / "matrices" / "e8.json.xz"
NONE = Times(math.nan, math.nan, math.nan, math.nan)


def broken(tuning, *tokens):
    """Return a tuning in which today's configurations do not run at these batch sizes."""
    lines = (replace(line, today=NONE) if line.tokens in tokens else line for line in tuning.lines)
    return replace(tuning, lines=tuple(lines))


def test_batch_sizes_that_do_not_run_today_are_no_part_of_the_mean():
    tuning = made.tuning(measured={1: (20.0, 30.0, 10.0, ""), 64: (80.0, 90.0, 10.0, "")})
    assert tuning.gain == pytest.approx(4.0)
    assert broken(tuning, 64).gain == pytest.approx(2.0)
    assert broken(tuning, 64).gain_over_default == pytest.approx((3 * 9) ** 0.5)


def test_what_makes_them_run_is_worth_installing_whatever_the_others_gain():
    slight = made.tuning(measured={1: (10.0, 10.0, 10.0, "not faster"), 64: (80.0, 90.0, 80.0, "")})
    assert not slight.worth_installing
    assert broken(slight, 64).worth_installing
    assert broken(slight, 64).gain == 1.0


def test_without_anything_to_compare_with_there_is_no_gain_and_a_file_all_the_same():
    tuning = broken(made.tuning(measured={1: (20.0, 30.0, 10.0, "")}), 1)
    assert (tuning.gain, tuning.worth_installing) == (1.0, True)


def test_where_nothing_new_runs_either_nothing_is_repaired():
    tuning = broken(made.tuning(measured={1: (20.0, 30.0, 10.0, "no candidate ran and was right")}), 1)
    assert (tuning.gain, tuning.worth_installing) == (1.0, False)
    assert tuning.gain_over_default == 1.0


def test_a_file_in_use_that_this_gpu_cannot_run_is_replaced(tmp_path):
    """At 256 tokens and more today's tile takes more shared memory than there is: the matrix lacks it."""
    matrix = Matrix(MATRIX)
    problem = problem_from(matrix.problem)
    kernel = tmp_path / "kernel.py"
    kernel.write_text("def invoke_fused_moe_kernel(): ...\n")
    default = {m: Pair(*[default_config(problem, m)] * 2) for m in matrix.tokens}
    large = Config(256, 256, 256, 1, 8, 5)
    today = {m: Pair(large, large) if m >= 256 else pair for m, pair in default.items()}
    job = Job(
        problem=problem,
        capability=(9, 0),
        device="NVIDIA H200",
        release="0.5.13",
        triton="3.6.0",
        kernel=str(kernel),
        up_file="up.json",
        down_file="up_down.json",
        today=today,
        source="fallback",
        today_is="the file for Triton 3.2.0",
        default=default,
    )
    with workers.replayed(MATRIX) as crew:
        tuning = tuner.tune(job, crew, effort="quick", journal=tmp_path / "journal")
    assert {line.tokens for line in tuning.lines if not line.runs_today} == {m for m in today if m >= 256}
    assert all(line.pair == line.tuned != today[line.tokens] for line in tuning.lines if not line.runs_today)
    assert tuning.worth_installing
    assert tuning.gain > 1.0
    assert tuning.gain_over_default > 1.1
