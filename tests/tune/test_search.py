"""The search on matrices measured on an H200: real worker processes, times replayed with noise.

Every fault that a GPU and a host can have is put in: what comes out stays right, and nothing is lost.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgdoctor.errors import Undecided, UsageError
from sgdoctor.tune import search, tuner, workers
from sgdoctor.tune.compile import problem_from
from sgdoctor.tune.model import Job, Pair
from sgdoctor.tune.replay import REST
from sgdoctor.tune.space import Config, default_config

HERE = Path(__file__).parent
NAMES = ("e128", "e128_fp8", "e256", "e8")


def file_of(name):
    return HERE / "matrices" / f"{name}.json.xz"


def job_of(matrix, kernel, *, today=None):
    problem = problem_from(matrix.problem)
    default = {m: Pair(*[default_config(problem, m)] * 2) for m in matrix.tokens}
    return Job(
        problem=problem,
        capability=(9, 0),
        device="NVIDIA H200",
        release="0.5.13",
        triton="3.6.0",
        kernel=str(kernel),
        up_file="up.json",
        down_file="up_down.json",
        today=today or default,
        source="fallback" if today else "default",
        today_is="the file for Triton 3.2.0" if today else "the built-in default",
        default=default,
    )


def whole(matrix, tokens, pair):
    up = "up_sorted" if pair.down.tma else "up"
    return matrix.microseconds(up, tokens, pair.up) + matrix.microseconds("down", tokens, pair.down) + REST


def best_of(matrix, tokens):
    """Return the best pair of the matrix with one BLOCK_SIZE_M."""
    best = {"up": {}, "down": {}}
    for (gemm, m, config), micro in matrix.times.items():
        if m == tokens and gemm in best:
            known = best[gemm].get(config.block_m, (math.inf, config))
            best[gemm][config.block_m] = min(known, (micro, config))
    block = min(best["up"].keys() & best["down"].keys(), key=lambda b: best["up"][b][0] + best["down"][b][0])
    return Pair(best["up"][block][1], best["down"][block][1])


def losses(matrix, tuning):
    return [
        whole(matrix, line.tokens, line.tuned) / whole(matrix, line.tokens, best_of(matrix, line.tokens)) - 1
        for line in tuning.lines
    ]


def tune(name, job, journal, *, effort="balanced", gpus=({},), listen=None):
    with workers.replayed(file_of(name), gpus=gpus) as crew:
        return tuner.tune(job, crew, effort=effort, journal=journal, listen=listen)


@pytest.mark.parametrize("name", NAMES)
def test_finds_what_the_whole_matrix_holds(matrices, kernel_file, tmp_path, name):
    matrix = matrices[name]
    tuning = tune(name, job_of(matrix, kernel_file), tmp_path / "journal", gpus=[{"noise": 0.005, "seed": 1}])
    found = losses(matrix, tuning)
    assert statistics.median(found) <= 0.01
    assert max(found) <= 0.02
    assert tuning.about["timed"] < 0.55 * len(matrix.times)
    assert [line.tokens for line in tuning.lines] == matrix.tokens
    assert tuning.worth_installing
    assert tuning.gain > 1.1


def test_a_quick_search_times_a_fraction_and_still_gains(matrices, kernel_file, tmp_path):
    matrix = matrices["e256"]
    tuning = tune("e256", job_of(matrix, kernel_file), tmp_path / "journal", effort="quick")
    assert tuning.about["compiled"] < 600
    assert tuning.gain > 1.1


def test_a_noisy_gpu_costs_little(matrices, kernel_file, tmp_path):
    matrix = matrices["e128"]
    tuning = tune(
        "e128", job_of(matrix, kernel_file), tmp_path / "journal", gpus=[{"noise": 0.03, "seed": 2}]
    )
    assert statistics.median(losses(matrix, tuning)) <= 0.02
    assert 0.015 < tuning.about["noise"] < 0.06


def test_a_gpu_that_slows_down_half_way_misleads_nobody(matrices, kernel_file, tmp_path):
    """Heat, a power limit, a neighbour: batches are judged within themselves, and phases are not mixed."""
    matrix = matrices["e256"]
    faults = {"slower": [700, 1.3]}
    tuning = tune(
        "e256", job_of(matrix, kernel_file), tmp_path / "journal", gpus=[{"seed": 3, "faults": faults}]
    )
    assert statistics.median(losses(matrix, tuning)) <= 0.01
    assert max(losses(matrix, tuning)) <= 0.03
    assert tuning.gain == pytest.approx(1.24, abs=0.03)


def test_gpus_of_one_host_share_the_work(matrices, kernel_file, tmp_path):
    matrix = matrices["e128"]
    gpus = [{"seed": 1}, {"seed": 2, "speed": 1.03}, {"seed": 3, "speed": 0.98}]
    tuning = tune("e128", job_of(matrix, kernel_file), tmp_path / "journal", gpus=gpus)
    assert statistics.median(losses(matrix, tuning)) <= 0.01
    assert max(losses(matrix, tuning)) <= 0.03


def test_what_is_the_best_already_stays(matrices, kernel_file, tmp_path):
    matrix = matrices["e8"]
    today = {m: best_of(matrix, m) for m in matrix.tokens}
    tuning = tune("e8", job_of(matrix, kernel_file, today=today), tmp_path / "journal")
    assert not tuning.worth_installing
    assert (
        sum("the best already" in line.kept or "no more than 1%" in line.kept for line in tuning.lines) >= 16
    )
    assert sum(tuning.table[m] == today[m] for m in today) >= len(today) - 2
    assert tuning.gain < 1.002
    assert tuning.gain_over_default > 1.4


def test_both_files_have_one_block_size_m_at_every_key(matrices, kernel_file, tmp_path):
    """Releases up to 0.5.12 die of a difference."""
    tuning = tune("e128_fp8", job_of(matrices["e128_fp8"], kernel_file), tmp_path / "journal")
    assert all(pair.up.block_m == pair.down.block_m for pair in tuning.table.values())
    assert all(pair.up.tma is False for pair in tuning.table.values())
    assert any(pair.down.tma for pair in tuning.table.values())


def test_a_wrong_result_is_never_installed(matrices, kernel_file, tmp_path):
    matrix = matrices["e128"]
    wrong = {
        tuple(dataclasses.replace(best_of(matrix, m).up.tile, tma=False).to_list()) for m in (1, 64, 4096)
    }
    faults = {"wrong": [list(fields) for fields in wrong]}
    tuning = tune("e128", job_of(matrix, kernel_file), tmp_path / "journal", gpus=[{"faults": faults}])
    plain = {
        tuple(dataclasses.replace(c.tile, tma=False).to_list())
        for pair in tuning.table.values()
        for c in (pair.up, pair.down)
    }
    assert not plain & wrong
    assert tuning.worth_installing
    assert any("relative error 0.5" in text for text in tuning.about["rejected"])


def test_what_computes_wrong_results_today_is_replaced_whatever_it_gains(matrices, kernel_file, tmp_path):
    matrix = matrices["e8"]
    best = {m: best_of(matrix, m) for m in matrix.tokens}
    broken = best[64]
    faults = {"wrong": [dataclasses.replace(broken.up.tile, tma=False).to_list()]}
    tuning = tune(
        "e8", job_of(matrix, kernel_file, today=best), tmp_path / "journal", gpus=[{"faults": faults}]
    )
    line = next(line for line in tuning.lines if line.tokens == 64)
    assert "relative error" in line.wrong_today
    assert line.pair != broken
    assert not line.kept
    assert tuning.worth_installing


@pytest.mark.parametrize(("fault", "said"), [("crash", "crashed"), ("hang", "hung")])
def test_a_candidate_that_kills_its_worker_is_never_tried_again(
    matrices, kernel_file, tmp_path, monkeypatch, fault, said
):
    matrix = matrices["e256"]
    bad = dataclasses.replace(best_of(matrix, 256).up.tile, tma=False)
    job, journal = job_of(matrix, kernel_file), tmp_path / "journal"
    with workers.replayed(file_of("e256"), gpus=[{"faults": {fault: [bad.to_list()]}}]) as crew:
        crew.measure.timeout = 1.0
        tuning = tuner.tune(job, crew, effort="balanced", journal=journal)
    assert tuning.dropped[said] >= 1
    assert all(c.tile != bad for pair in tuning.table.values() for c in (pair.up, pair.down))
    assert tuning.worth_installing
    told = [json.loads(line) for line in journal.read_text().splitlines()]
    broken = [record for record in told if "broken" in record]
    assert len(broken) <= 3  # the tile of the up product, of the down product, and through TMA


def test_an_interrupted_search_goes_on_where_it_was(matrices, kernel_file, tmp_path):
    matrix = matrices["e256"]
    job, journal = job_of(matrix, kernel_file), tmp_path / "journal"

    def interrupt(progress):
        if "every batch size" in progress.doing:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune("e256", job, journal, listen=interrupt)
    before = [json.loads(line) for line in journal.read_text().splitlines()]
    tuning = tune("e256", job, journal)
    after = [json.loads(line) for line in journal.read_text().splitlines()]
    assert after[: len(before)] == before
    again = after[len(before) :]
    assert sum("compile" in record for record in before) > 900
    assert not any("compile" in record and record["compile"][2] is None for record in again)
    assert not any(record.get("time") == "explore" for record in again)
    assert max(losses(matrix, tuning)) <= 0.02


def test_a_killed_tuner_leaves_no_process_and_loses_nothing(matrices, kernel_file, tmp_path):
    journal = tmp_path / "journal"
    script = tmp_path / "run.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(HERE)!r})\n"
        "from pathlib import Path\n"
        "import test_search as t\nfrom sgdoctor.tune.replay import Matrix\n"
        f"journal, kernel = Path({str(journal)!r}), Path({str(kernel_file)!r})\n"
        "job = t.job_of(Matrix(t.file_of('e256')), kernel)\n"
        "t.tune('e256', job, journal, gpus=[{'pause': 0.01}])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    process = subprocess.Popen([sys.executable, str(script)], env=environment, start_new_session=True)
    until = time.monotonic() + 60
    while time.monotonic() < until and (not journal.exists() or journal.stat().st_size < 200_000):
        assert process.poll() is None
        time.sleep(0.05)
    children = _children(process.pid)
    process.kill()
    process.wait()
    assert children
    until = time.monotonic() + 20
    while any(map(_alive, children)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in children if _alive(pid)]
    tuning = tune("e256", job_of(matrices["e256"], kernel_file), journal)
    assert max(losses(matrices["e256"], tuning)) <= 0.02


def test_a_task_that_twice_killed_the_tuner_is_left_out(matrices, kernel_file, tmp_path):
    matrix = matrices["e256"]
    job, journal = job_of(matrix, kernel_file), tmp_path / "journal"

    def stop(progress):
        if progress.done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune("e256", job, journal, listen=stop)
    with journal.open("a") as file:
        file.write(2 * (json.dumps({"started": under_way(journal)}) + "\n"))
    tuning = tune("e256", job, journal)
    assert tuning.dropped["killed the tuner"] == 1


def under_way(journal):
    """Return a task that had not ended when the tuner did."""
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    ended = {record["task"] for record in records if "task" in record}
    return next(r["started"] for r in records if "started" in r and r["started"] not in ended)


def test_who_stops_the_tuner_again_and_again_loses_no_candidate(matrices, kernel_file, tmp_path):
    """The same tasks are under way each time; only a tuner that was killed suspects them."""
    job, journal = job_of(matrices["e128_fp8"], kernel_file), tmp_path / "journal"

    def stop(_progress):
        if "started" in journal.read_text().splitlines()[-1]:
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            tune("e128_fp8", job, journal, effort="quick", gpus=[{"pause": 0.3}], listen=stop)
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    started = [record["started"] for record in records if "started" in record]
    assert max(map(started.count, started)) == 3
    tuning = tune("e128_fp8", job, journal, effort="quick")
    assert "killed the tuner" not in tuning.dropped
    assert tuning.worth_installing


def test_a_finished_run_is_not_gone_on_with(matrices, kernel_file, tmp_path):
    job, journal = job_of(matrices["e128_fp8"], kernel_file), tmp_path / "journal"
    first = tune("e128_fp8", job, journal, effort="quick")
    second = tune("e128_fp8", job, journal, effort="quick")
    assert second.about["timed"] == pytest.approx(first.about["timed"], rel=0.2)
    assert sum("finished" in json.loads(line) for line in journal.read_text().splitlines()) == 1


def test_two_tuners_do_not_share_a_journal(matrices, kernel_file, tmp_path):
    job, journal = job_of(matrices["e256"], kernel_file), tmp_path / "journal"

    def second(_progress):
        with pytest.raises(UsageError, match="another tuner"):
            tune("e256", job, journal)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune("e256", job, journal, listen=second)


def test_a_full_disk_is_told_and_what_was_measured_is_kept(matrices, kernel_file, tmp_path):
    job, journal = job_of(matrices["e256"], kernel_file), tmp_path / "journal"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(Undecided, match="make room and run the same command again"):
            tune("e256", job, journal)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert all(json.loads(line) for line in journal.read_text().splitlines())
    assert tune("e256", job, journal, effort="quick").worth_installing


def test_no_memory_on_the_gpu_is_told_in_a_line(matrices, kernel_file, tmp_path):
    job = job_of(matrices["e256"], kernel_file)
    with pytest.raises(Undecided, match="CUDA out of memory"):
        tune("e256", job, tmp_path / "journal", gpus=[{"faults": {"memory": True}}])


def test_a_table_of_another_tuner_is_judged_alike(matrices, kernel_file, tmp_path):
    """It is good at one batch size, wrong at a second, slower at a third."""
    matrix = matrices["e128"]
    job = job_of(matrix, kernel_file)
    wrong = Config(16, 128, 64, 1, 4, 3)
    slow = Config(128, 32, 64, 1, 4, 2)
    table = {2048: best_of(matrix, 2048), 64: Pair(wrong, wrong), 1: Pair(slow, slow)}
    with workers.replayed(file_of("e128"), gpus=[{"faults": {"wrong": [wrong.to_list()]}}]) as crew:
        tuning = tuner.judge(job, table, crew, effort="balanced", journal=tmp_path / "journal")
    lines = {line.tokens: line for line in tuning.lines}
    assert tuning.tuner == "sglang"
    assert lines[2048].gain > 1.4
    assert lines[64].kept == lines[2].kept == "no candidate ran and was right"
    assert lines[1].pair == job.today[1]
    assert lines[1].kept


def test_what_sglangs_tuner_wrote_on_an_h200_is_judged_by_the_times_of_that_gpu(
    matrices, kernel_file, tmp_path
):
    """Its real script found a configuration for 64 tokens; the matrix holds what it and today's take."""
    results = HERE.parents[1] / "bench" / "results" / "upstream" / "tuner-check.json"
    found = json.loads(results.read_text())["table"]
    table = {int(tokens): Pair.from_list(pair) for tokens, pair in found.items()}
    job = job_of(matrices["e256"], kernel_file)
    with workers.replayed(file_of("e256")) as crew:
        tuning = tuner.judge(job, table, crew, effort="balanced", journal=tmp_path / "journal")
    lines = {line.tokens: line for line in tuning.lines}
    assert list(table) == [64]
    assert lines[64].pair == table[64]
    assert 1.05 < lines[64].gain < 1.15
    assert lines[1].kept == "no candidate ran and was right"
    assert not tuning.worth_installing


def test_progress_tells_what_is_done_and_what_is_gained(matrices, kernel_file, tmp_path):
    heard = []
    tune(
        "e128",
        job_of(matrices["e128"], kernel_file),
        tmp_path / "journal",
        gpus=[{"pause": 0.002}],
        listen=heard.append,
    )
    assert {"compiling and timing", "timing the good ones at every batch size"} <= {p.doing for p in heard}
    assert all(0 <= p.done <= p.total for p in heard)
    assert heard[-1].best[2048] > 1.4
    assert heard[-1].seconds_left is not None


def test_anchors_follow_the_tokens_an_expert_has(matrices, kernel_file):
    assert search.anchors(job_of(matrices["e256"], kernel_file)) == [1, 16, 64, 256, 512, 1024, 4096]
    assert search.anchors(job_of(matrices["e8"], kernel_file)) == [1, 8, 16, 32, 64, 128, 512, 4096]


def _children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
