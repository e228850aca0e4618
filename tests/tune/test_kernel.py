"""SGLang's kernels loaded without SGLang: in Triton's interpreter against float32, compiled without a GPU.

Needs torch and Triton: `make test-kernels`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest

torch = pytest.importorskip("torch", reason="no torch in this environment: `make test-kernels` has one")
pytest.importorskip("triton", reason="no Triton in this environment: `make test-kernels` has one")

from sgdoctor.tune import kernel, operands  # noqa: E402
from sgdoctor.tune.align import align, capacity  # noqa: E402
from sgdoctor.tune.align_kernel import Aligned  # noqa: E402
from sgdoctor.tune.experts import WholeUnit  # noqa: E402
from sgdoctor.tune.measure import Bench, HostClock, Unit, Worker  # noqa: E402
from sgdoctor.tune.model import Pair  # noqa: E402
from sgdoctor.tune.pool import Pool  # noqa: E402
from sgdoctor.tune.routing import launches, uniform  # noqa: E402
from sgdoctor.tune.space import KINDS, Config, Problem, fits_quantization, shared_memory, takes_tma  # noqa: E402

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),  # Triton's interpreter
    # The activation also does the padding between experts, which nobody wrote and nobody reads.
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),
]

RELEASES = ("0.5.9", "0.5.10", "0.5.11", "0.5.13", "0.5.16", "0.5.20", "0.5.23")
OLDEST, NEWEST = RELEASES[0], RELEASES[-1]
BLOCKS = {"fp8_block": (128, 128), "int8_block": (128, 128), "int4": (0, 64)}
SMALL = Config(16, 64, 64, 1, 4, 2)
TALL = Config(64, 32, 64, 4, 4, 2)


def problem(kind, **changes):
    """Return a shape that the interpreter does in a second."""
    return Problem(
        **{"experts": 4, "width": 128, "hidden": 256, "topk": 2, "kind": kind, "block": BLOCKS.get(kind)}
        | changes
    )


@pytest.fixture(scope="session")
def loaded(sglang_wheel):
    """Give a function that loads a release's kernel as a GPU of capability 9.0 sees it, without PDL."""

    def load(release, **options):
        path = kernel.find(sglang_wheel(release) / "sglang")
        return kernel.load(path, (9, 0), pdl=False, **options)

    return load


def bench(module, shape, tokens=5):
    return Bench(module, HostClock(), operands.make(shape, tokens, device="cpu", half=True))


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_loads_without_sglang(loaded, release):
    module = loaded(release)
    assert kernel.takes(module, "filter_expert")
    assert kernel.takes(module, "router_topk") is (release != "0.5.9")
    assert module.fused_moe_kernel.fn.__code__.co_filename == module.__file__


def test_a_folder_without_the_kernel_is_told_apart(tmp_path):
    with pytest.raises(kernel.KernelNotLoaded, match=r"0\.5\.9 to 0\.5\.23"):
        kernel.find(tmp_path)
    file = tmp_path / kernel.PLACES[0]
    file.parent.mkdir(parents=True)
    file.write_text(
        "from sglang.srt.utils import is_npu, magic\nmagic()\ndef invoke_fused_moe_kernel(): pass\n"
    )
    with pytest.raises(kernel.KernelNotLoaded, match="magic of sglang"):
        kernel.load(kernel.find(tmp_path), (9, 0))


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_what_the_reference_says(loaded, release, kind):
    timer = bench(loaded(release), problem(kind))
    for gemm, config in (("up", SMALL), ("down", TALL)):
        assert timer.error(Unit(gemm, 5, config)) < 1e-3


@pytest.mark.parametrize("kind", ["bf16", "fp8_block", "int4"])
def test_a_run_time_group_changes_no_result(loaded, kind):
    timer = bench(loaded(NEWEST, runtime_group=True), problem(kind))
    for group in (1, 2, 4):
        assert timer.error(Unit("up", 5, dataclasses.replace(SMALL, group_m=group))) < 1e-3


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_experts_of_other_gpus_are_left_out(loaded, release):
    shape = problem("bf16", routed=12)
    timer = bench(loaded(release), shape)
    ids = timer.routings("up", 5)[0].ids
    assert (ids == -1).any()
    assert (ids >= 0).any()
    assert timer.error(Unit("up", 5, SMALL)) < 1e-3
    assert timer.error(Unit("down", 5, SMALL)) < 1e-3


def test_sorted_order_through_tma(loaded):
    """Upstream's kernel asserts, where the interpreter checks it, that TMA comes with block-wise fp8."""
    timer = bench(loaded("0.5.13"), problem("fp8_block"))
    assert timer.error(Unit("up_sorted", 5, SMALL)) < 1e-3
    assert timer.error(Unit("down", 5, dataclasses.replace(SMALL, tma=True))) < 1e-3


def test_a_step_deeper_than_the_quantization_block_is_wrong(loaded):
    shape, deep = problem("fp8_block"), Config(16, 64, 256, 1, 4, 2)
    assert not fits_quantization(deep, shape)
    assert bench(loaded("0.5.13"), shape).error(Unit("up", 5, deep)) > 0.05


def test_a_scale_for_every_token_does_not_go_with_tma():
    assert not takes_tma(problem("fp8_channel"))


def test_what_cannot_be_launched_is_a_result_beside_the_others(loaded):
    timer = bench(loaded(NEWEST), problem("bf16"))
    odd = Config(16, 48, 64)  # no power of two: Triton refuses it
    samples, trouble = timer.time([Unit("up", 1, SMALL), Unit("up", 1, odd)], rounds=2)
    assert len(samples) == 2
    assert all(sample > 0 for sample in samples)
    assert isinstance(trouble, str)
    assert "Error" in trouble


@pytest.mark.parametrize(("tokens", "absent"), [(1, False), (7, False), (33, True)])
def test_alignment_groups_tokens_by_expert(tokens, absent):
    ids = torch.stack([torch.randperm(8)[:3] for _ in range(tokens)]).to(torch.int32)
    if absent:
        ids[ids > 4] = -1
    sorted_ids, expert_ids, padded = align(ids, 16, 8)
    assert len(sorted_ids) == capacity(ids.numel(), 8, 16)
    flat = ids.flatten().tolist()
    seen = []
    for block in range(int(padded) // 16):
        members = [i for i in sorted_ids[block * 16 : block * 16 + 16].tolist() if i < len(flat)]
        assert {flat[i] for i in members} == {int(expert_ids[block])}
        seen += members
    assert sorted(seen) == list(range(len(flat)))


def test_routings_follow_one_another_on_other_experts():
    shape = Problem(256, 256, 3072, 8)
    count = launches(shape, "up", 1)
    used = [set(r.ids.flatten().tolist()) for r in uniform(shape, 1, count, device="cpu")]
    assert 16 <= count <= 32
    assert all(len(experts) == 8 for experts in used)
    assert sum(len(a & b) for a, b in itertools.pairwise(used)) <= 2
    assert launches(shape, "up", 4096) == 2


def compile_all(path, shape, capability, tasks, *, cache):
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    settings = {"path": str(path), "problem": dataclasses.asdict(shape), "capability": capability}
    with Pool("compile", settings, timeout=300, environment=environment) as pool:
        for gemm, config in tasks:
            pool.submit({"gemm": gemm, "config": config.to_list()})
        outcomes = []
        while pool.unfinished:
            outcomes += pool.outcomes(wait=5)
    assert [o.ending for o in outcomes] == ["done"] * len(tasks), outcomes
    return [o.value for o in outcomes]


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_compiles_for_a_gpu_that_is_not_here(sglang_wheel, tmp_path, capability):
    path = kernel.find(sglang_wheel("0.5.13") / "sglang")
    kinds = ["bf16"] if capability == (8, 0) else ["bf16", "fp8_block"]
    for kind in kinds:
        shape = Problem(128, 768, 2048, 8, kind, BLOCKS.get(kind))
        config = Config(64, 64, 64, 16, 4, 3)
        (built,) = compile_all(path, shape, capability, [("up", config)], cache=tmp_path)
        assert 0 <= built["shared"] - shared_memory(config, shape, capability) <= 16
        assert built["stack"] == 0
        assert 32 <= built["registers"] <= 255


def test_int4_takes_no_less_shared_memory_than_the_filter_says(sglang_wheel, tmp_path):
    path = kernel.find(sglang_wheel("0.5.13") / "sglang")
    shape = problem("int4", block=(0, 128))
    for capability in ((8, 0), (9, 0)):
        tiles = [Config(256, 64, 64, 1, 8, 5), Config(64, 128, 64, 1, 8, 3), Config(16, 32, 64)]
        built = compile_all(path, shape, capability, [("up", tile) for tile in tiles], cache=tmp_path)
        for tile, result in zip(tiles, built, strict=True):
            assert shared_memory(tile, shape, capability) <= result["shared"]


def test_one_binary_serves_every_group(sglang_wheel, tmp_path):
    path = kernel.find(sglang_wheel(NEWEST) / "sglang")
    tasks = [("down", Config(16, 64, 64, group, 4, 3)) for group in (1, 8, 16, 64)]
    built = compile_all(path, Problem(128, 768, 2048, 8), (9, 0), tasks, cache=tmp_path)
    assert len({result["hash"] for result in built}) == 1
    assert len(list(tmp_path.glob("*/fused_moe_kernel.cubin"))) == 1


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
def test_tma_compiles_for_hopper(sglang_wheel, tmp_path, release):
    path = kernel.find(sglang_wheel(release) / "sglang")
    tasks = [("down", Config(16, 64, 64, 1, 4, 3, tma=True)), ("up_sorted", SMALL)]
    compile_all(path, Problem(128, 768, 2048, 8), (9, 0), tasks, cache=tmp_path)


def test_the_measuring_worker_in_the_interpreter(sglang_wheel):
    """All that happens on a GPU happens here, but for the times."""
    shape = problem("bf16")
    settings = {
        "path": str(kernel.find(sglang_wheel("0.5.13") / "sglang")),
        "problem": dataclasses.asdict(shape),
        "tokens": 5,
        "device": "cpu",
    }
    units = [("up", 5, SMALL.to_list()), ("down", 5, TALL.to_list())]
    with Pool("measure", settings, depth=2, timeout=300, environment={"TRITON_INTERPRET": "1"}) as pool:
        pool.submit({"do": "verify", "units": units})
        pool.submit({"do": "time", "units": units, "rounds": 1})
        outcomes = []
        while pool.unfinished:
            outcomes += pool.outcomes(wait=5)
        assert pool.about["capability"] == [9, 0]
    errors, samples = (o.value for o in outcomes)
    assert max(errors) < 1e-3
    assert [len(s) for s in samples] == [1, 1]


def whole(release, shape, pair, sglang_wheel):
    """Do the whole computation of 5 tokens once; return what did it and its routing."""
    path = kernel.find(sglang_wheel(release) / "sglang")
    worker = Worker(str(path), dataclasses.asdict(shape), 5, device="cpu")
    task = {"do": "pairs", "pairs": [[5, *(c.to_list() for c in pair)]], "rounds": 2, "parts": True}
    (samples,) = worker.finish(worker.start(task))
    assert isinstance(samples, dict), samples
    assert {name: len(values) for name, values in samples.items()} == {"whole": 2, "up": 2, "down": 2}
    # What the products left, timed after the whole, is none of its results: once more.
    experts = worker.experts
    unit = WholeUnit(5, Pair(*pair))
    (chosen,) = experts.routings("up", 5)
    experts.launcher(unit, chosen, 0)()
    return experts, chosen


def check_whole(experts, chosen, down):
    """Compute in float32 what was activated and summed; quantized kinds read rows quantized beforehand."""
    made, shape = experts.operands, experts.problem
    position = operands._positions(down, chosen)
    activated = experts.activated.view(-1, shape.width)
    expected = torch.zeros(5, shape.hidden)
    differ = []
    for slot, expert in enumerate(chosen.ids.flatten().tolist()):
        if expert < 0:
            continue
        token, place = divmod(slot, shape.topk)
        row = int(position[slot]) if down.tma else slot

        def plain(matrix, index, k):
            return operands._dequantized(matrix, index, k, shape, weight=matrix.data.ndim == 3)

        hidden = plain(made.activations["up"], torch.tensor([token]), shape.hidden)[0]
        gate, value = (plain(made.weights["up"][0], expert, shape.hidden) @ hidden).chunk(2)
        between = torch.nn.functional.silu(gate) * value
        differ.append(float((activated[row].float() - between).norm() / between.norm()))
        if made.activations["down"].scale is not None:
            between = plain(made.activations["down"], torch.tensor([row]), shape.width)[0]
        out = plain(made.weights["down"][0], expert, shape.width) @ between
        expected[token] += out * chosen.weights[token, place]
    assert differ
    assert max(differ) < 2e-3
    assert (experts.summed[:5].float() - expected).norm() / expected.norm() < 2e-3


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
@pytest.mark.parametrize("kind", ["bf16", "fp8_block", "fp8_channel", "int8_channel", "int4"])
def test_whole_expert_computations_in_the_interpreter(sglang_wheel, release, kind):
    """Align, up, activation, down and sum on the true kernel; what comes out is what torch computes."""
    down = dataclasses.replace(SMALL, block_n=32)
    check_whole(*whole(release, problem(kind), (SMALL, down), sglang_wheel), down)


@pytest.mark.parametrize("release", [OLDEST, "0.5.20", NEWEST])
@pytest.mark.parametrize("tma", [False, True])
def test_whole_computations_where_most_experts_are_on_other_gpus(sglang_wheel, release, tma):
    down = dataclasses.replace(SMALL, tma=tma)
    experts, chosen = whole(release, problem("fp8_block", routed=12), (SMALL, down), sglang_wheel)
    assert (chosen.ids == -1).any()
    check_whole(experts, chosen, down)


@pytest.mark.parametrize("topk", [1, 2, 3])
def test_whole_computations_of_one_and_of_few_experts(sglang_wheel, topk):
    for experts in {1, 4} if topk == 1 else {4}:
        shape = problem("bf16", experts=experts, topk=topk, width=96)
        check_whole(*whole(NEWEST, shape, (SMALL, SMALL), sglang_wheel), SMALL)


@pytest.mark.parametrize("release", [OLDEST, NEWEST])
@pytest.mark.parametrize("kind", ["bf16", "fp8_block", "fp8_channel", "int8_channel", "int4"])
@pytest.mark.parametrize("routed", [None, 12])
def test_the_true_kernel_is_verified_on_ragged_batches(sglang_wheel, release, kind, routed):
    """A batch whose tokens all went to other GPUs has nothing to be wrong about."""
    shape = problem(kind, routed=routed)
    path = kernel.find(sglang_wheel(release) / "sglang")
    worker = Worker(str(path), dataclasses.asdict(shape), 33, device="cpu")
    units = [[gemm, tokens, SMALL.to_list()] for gemm in ("up", "up_sorted", "down") for tokens in (1, 33)]
    errors = worker.start({"do": "verify", "units": units, "exact": True})
    assert all(error < 1e-3 for error in errors), errors


def test_nothing_but_zeros_is_right_where_no_expert_is_here(loaded):
    timer = bench(loaded(NEWEST), problem("bf16", routed=400), tokens=1)
    unit = Unit("up", 1, SMALL)
    (chosen,) = timer.routings("up", 1)
    assert (chosen.ids == -1).all()
    assert timer.error(unit) == 0.0
    timer.operands.output.fill_(1.0)
    assert operands.relative_error(timer.operands, "up", SMALL, chosen) == float("inf")


def test_what_is_not_written_is_wrong(loaded):
    timer = bench(loaded(NEWEST), problem("bf16"))
    (chosen,) = timer.routings("up", 5)
    timer.operands.output.fill_(float("nan"))
    for gemm in ("up", "up_sorted", "down"):
        assert math.isnan(operands.relative_error(timer.operands, gemm, SMALL, chosen))


def test_the_launched_alignment_is_that_of_the_reference():
    for tokens, absent in ((1, False), (7, False), (33, True)):
        ids = torch.stack([torch.randperm(8)[:3] for _ in range(tokens)]).to(torch.int32)
        if absent:
            ids[ids > 4] = -1
        made = Aligned(ids, 8, 16)
        made.run()
        sorted_ids, expert_ids, padded = align(ids, 16, 8)
        blocks = int(padded) // 16
        assert int(made.padded) == int(padded)
        assert (made.expert_ids[:blocks] == expert_ids[:blocks]).all()
        for block in range(blocks):
            rows = slice(16 * block, 16 * block + 16)
            assert sorted(made.sorted_ids[rows].tolist()) == sorted(sorted_ids[rows].tolist())
