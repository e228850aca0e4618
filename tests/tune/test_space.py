"""The candidates, held against what the compiler said of them and what SGLang ships."""

from __future__ import annotations

import json
import re

import pytest

from sgdoctor.tune.compile import problem_from
from sgdoctor.tune.space import (
    BATCH_SIZES,
    Config,
    Problem,
    candidates,
    default_config,
    fits_quantization,
    grid,
    shared_memory,
    shared_memory_limit,
    spills,
    takes_tma,
    why_not,
)

BF16 = Problem(256, 256, 3072, 8)
FP8 = Problem(128, 768, 2048, 8, "fp8_block", (128, 128))
HOPPER = (9, 0)


def swept(sweeps):
    """Yield every compiled configuration with the problem and the capability it was compiled for."""
    for name, rows in sweeps.items():
        capability, kind = name.split("_")
        for m, n, k, warps, stages, shared, _, stack, _ in rows:
            problem = BF16 if kind == "bf16" else FP8
            yield (
                (int(capability) // 10, int(capability) % 10),
                problem,
                Config(m, n, k, 1, warps, stages),
                shared,
                stack,
            )


def test_the_grid_is_upstreams():
    assert len(grid()) == 1920
    assert len(grid(groups=(1,))) == 480


def test_shared_memory_is_what_the_compiler_takes(sweeps):
    points = list(swept(sweeps))
    assert len(points) == 1340
    for capability, problem, config, shared, _ in points:
        assert 0 <= shared - shared_memory(config, problem, capability) <= 16, (
            capability,
            problem.kind,
            config,
        )


def test_what_the_spill_rule_drops_does_spill(sweeps):
    dropped = [
        stack
        for capability, problem, config, shared, stack in swept(sweeps)
        if shared <= shared_memory_limit(capability) and spills(config, problem, capability)
    ]
    assert len(dropped) > 90
    assert all(stack > 0 for stack in dropped)


@pytest.mark.parametrize(
    ("name", "problem", "spared"), [("90_bf16", BF16, 8), ("90_fp8b", FP8, 0)], ids=["bf16", "fp8_block"]
)
def test_what_passes_on_hopper_seldom_spills(sweeps, name, problem, spared):
    passed = {
        tuple(row[:5]): row[7]
        for row in sweeps[name]
        if why_not(Config(*row[:3], 1, *row[3:5]), problem, "up", HOPPER) is None
    }
    assert len(passed) == len(candidates(problem, "up", HOPPER, groups=(1,)))
    assert sum(stack > 0 for stack in passed.values()) <= spared


def test_why_not():
    assert "232448" in (why_not(Config(256, 256, 128, 1, 8, 4), BF16, "up", HOPPER) or "")
    assert "registers" in (why_not(Config(256, 128, 64, 1, 4, 2), BF16, "up", HOPPER) or "")
    assert "[128, 128]" in (why_not(Config(16, 64, 256, 1, 4, 2), FP8, "up", HOPPER) or "")
    narrow = Problem(8, 64, 2048, 2)
    assert "larger than the matrix" in (why_not(Config(16, 64, 128), narrow, "down", HOPPER) or "")
    assert why_not(Config(16, 64, 128), narrow, "up", HOPPER) is None


def test_a_gpu_not_known_here_gets_the_least_shared_memory():
    assert shared_memory_limit((99, 0)) == 65536


@pytest.mark.parametrize(
    ("block_n", "block_k", "fits"), [(64, 128, True), (256, 64, True), (96, 64, False), (64, 256, False)]
)
def test_a_tile_must_fit_the_quantization_block(block_n, block_k, fits):
    assert fits_quantization(Config(16, block_n, block_k), FP8) is fits
    assert fits_quantization(Config(16, block_n, block_k), BF16)


def test_tma_not_with_a_scale_for_every_token():
    kinds = {"bf16": None, "fp8_tensor": None, "fp8_block": (128, 128), "fp8_channel": None, "int4": (0, 64)}
    taken = {kind for kind, block in kinds.items() if takes_tma(Problem(8, 512, 512, 2, kind, block))}
    assert taken == {"bf16", "fp8_tensor", "fp8_block"}


def test_a_problem_says_what_does_not_belong_together():
    with pytest.raises(ValueError, match="do not belong together"):
        Problem(8, 512, 512, 2, "fp8_block")
    with pytest.raises(ValueError, match="none of"):
        Problem(8, 512, 512, 2, "fp9")


def test_a_configuration_goes_through_a_file_and_through_json():
    config = Config(16, 64, 128, 8, 8, 5, tma=True)
    assert Config.from_sglang({**config.to_sglang(), "USE_TMA": True}) == config
    assert Config.from_list(json.loads(json.dumps(config.to_list()))) == config
    assert str(config) == "16x64x128 group 8, 8 warps, 5 stages TMA"
    unnamed = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
    assert Config.from_sglang(unnamed) == default_config(BF16, 4096)


def shipped(root, pattern):
    """Yield every entry of the config files of a release whose names match."""
    for file in root.rglob("configs/triton_*/E=*.json"):
        if re.search(pattern, file.name):
            for key, entry in json.loads(file.read_text()).items():
                if key.isdecimal():
                    yield file.name, entry


def test_what_upstream_tuned_for_hopper_passes(sglang_wheel):
    """Of the winners that SGLang ships for Hopper, two of about 1,900 (tuned with Triton 3.1) are refused."""
    root = sglang_wheel("0.5.23") / "sglang"
    entries = list(shipped(root, r"device_name=NVIDIA_H(100_80GB_HBM3|200|20)(_down)?\.json"))
    assert len(entries) > 1000
    problem = Problem(8, 4096, 4096, 2)
    refused = [
        (name, entry) for name, entry in entries if why_not(Config.from_sglang(entry), problem, "up", HOPPER)
    ]
    assert len(refused) <= 2, refused


def test_the_default_was_timed_at_every_batch_size(matrix):
    problem = problem_from(matrix["problem"])
    assert matrix["tokens"] == list(BATCH_SIZES)
    for gemm in ("up", "down"):
        rows = {tuple(config): times for config, times in matrix[gemm]}
        for i, tokens in enumerate(BATCH_SIZES):
            assert rows[tuple(default_config(problem, tokens).to_list())][i] > 0


def test_every_candidate_was_timed_or_spilt(matrix):
    problem = problem_from(matrix["problem"])
    for gemm in ("up", "down"):
        timed = {Config.from_list(config).tile for config, times in matrix[gemm] if all(times)}
        spilt = {Config.from_list(row[1]) for row in matrix["compiled"] if row[0] == gemm and row[4]}
        missing = set(candidates(problem, gemm, HOPPER, groups=(1,))) - timed - spilt
        assert not missing


def test_the_filters_drop_nothing_that_ran_best(matrix):
    problem = problem_from(matrix["problem"])
    for gemm in ("up", "down"):
        for i in range(len(BATCH_SIZES)):
            best = Config.from_list(min((times[i], config) for config, times in matrix[gemm] if times[i])[1])
            assert why_not(best, problem, gemm, HOPPER) is None
