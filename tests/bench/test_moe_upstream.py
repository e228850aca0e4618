"""What SGLang's own tuner takes: the sample, its extrapolation and the stand-in for Ray."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "bench" / "moe_upstream.py"
RESULTS = ROOT / "bench" / "results" / "upstream"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("moe_upstream", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["moe_upstream"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["moe_upstream"]


def tried(bench, tokens: int, seconds: float):
    return [bench.Tried(tokens, {}, seconds, 10.0), bench.Tried(tokens, {}, seconds, None, "OutOfResources")]


def test_compiling_is_paid_for_once_a_specialisation(bench) -> None:
    kinds = [bench.specialisation(tokens) for tokens in bench.BATCH_SIZES]
    assert kinds == [(False, True)] + [(True, True)] * 6 + [(True, False)] * 11  # 1; 2 to 32; from 48 on
    cold = tried(bench, 1, 1.0) + tried(bench, 16, 0.9) + tried(bench, 64, 1.1)
    whole = bench.extrapolate(cold + tried(bench, 512, 0.1) + tried(bench, 4096, 0.2), 1920)
    assert whole["compiling"] == [1, 16, 64]
    # Of the 15 others the four from 1,536 tokens on are nearer to 4,096.
    assert whole["hours"] == pytest.approx(1920 * (1.0 + 0.9 + 1.1 + 11 * 0.1 + 4 * 0.2) / 3600)
    assert whole["warm_measured"]


def test_a_specialisation_that_was_not_sampled_costs_what_the_nearest_does(bench) -> None:
    whole = bench.extrapolate(tried(bench, 1, 1.0) + tried(bench, 64, 2.0), 1920)
    assert not whole["warm_measured"]
    # 2 tokens compile at the cost of 1; then 1 token stands in up to 4 tokens (8 is as near to 1 as to 64).
    assert whole["hours"] == pytest.approx(1920 * (1.0 + 1.0 + 2.0 + 2 * 1.0 + 13 * 2.0) / 3600)


def test_the_committed_figure_is_what_its_sample_comes_to(bench) -> None:
    seen = json.loads((RESULTS / "upstream.json").read_text())
    whole = bench.extrapolate([bench.Tried(**each) for each in seen["tried"]], seen["configurations"])
    assert seen["hours"] == pytest.approx(whole["hours"])
    assert (whole["compiling"], whole["specialisations"]) == ([1, 16, 64], 3)
    assert 2.5 < whole["hours"] < 2.6


def test_nothing_is_begun_when_the_time_is_up(bench) -> None:
    seen = []
    timed = bench.recorder(lambda *_, **__: 12.5, seen, until=float("inf"))
    assert timed({"BLOCK_SIZE_M": 16}, 64, num_iters=10) == 12.5
    late = bench.recorder(lambda *_, **__: 12.5, seen, until=0.0)
    with pytest.raises(RuntimeError):  # upstream's tune() passes over it
        late({"BLOCK_SIZE_M": 16}, 64)
    assert [(each.tokens, each.microseconds) for each in seen] == [(64, 12.5)]


def test_a_failure_is_noted_and_handed_on(bench) -> None:
    seen = []

    def fail(*_, **__):
        raise RuntimeError("out of resource: shared memory")

    with pytest.raises(RuntimeError, match="shared memory"):
        bench.recorder(fail, seen, until=float("inf"))({}, 1)
    assert seen[0].failure == "RuntimeError: out of resource: shared memory"


def test_the_stand_in_for_ray_works_as_the_tuner_uses_it(bench, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.syspath_prepend(str(bench.write_stub(tmp_path)))
    for name in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    ray = importlib.import_module("ray")
    bar = importlib.import_module("ray.experimental.tqdm_ray").tqdm

    @ray.remote(num_gpus=1)
    class Worker:
        def __init__(self, seed: int) -> None:
            self.device = ray.get_gpu_ids()[seed]

        def tune(self, items: list[int]) -> int:
            return max(bar(items))

    ray.init()
    assert ray.available_resources()["GPU"] == 1
    assert ray.get([Worker.remote(0).tune.remote([1, 3, 2])]) == [3]
    assert "\r 3/3 [" in capsys.readouterr().err
    for name in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        del sys.modules[name]


def test_the_search_space_is_cut_in_a_copy(bench, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "tuning_fused_moe_triton.py").write_text("")
    space = "def get_configs_compute_bound():\n    return [{'BLOCK_SIZE_M': m} for m in range(1920)]\n"
    (folder / "common_utils.py").write_text(space)
    small = bench.cut(bench.sglang_tuner.find(folder, None), tmp_path / "cut", 100, seed=1)
    spec = importlib.util.spec_from_file_location("cut_utils", small.folder / "common_utils.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(module.get_configs_compute_bound()) == 100
    assert (folder / "common_utils.py").read_text() == space
