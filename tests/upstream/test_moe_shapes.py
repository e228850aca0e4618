"""E, N, topk and the file name's parts; fused shared experts are held against SGLang's own source."""

from __future__ import annotations

import ast
import types
import zipfile
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.version import Version

from sgdoctor.upstream import architectures, moe_shapes
from sgdoctor.upstream.asked_view import Open
from sgdoctor.upstream.moe_shapes import Layout, Model


def layout(release: str = "0.5.12", capability: str = "9.0", **more) -> Layout:
    return Layout(release=Version(release), vendor="nvidia", capability=Version(capability), **more)


def qwen3(**more) -> Model:
    given = {"architecture": "Qwen3MoeForCausalLM", "experts": 128, "per_token": 8, "width": 768}
    return Model(**{**given, **more})


def keys(model: Model, spread: Layout) -> tuple[int, int, int]:
    found = moe_shapes.on_one_gpu(model, spread)
    return found.shape.experts, found.shape.width, found.topk


def test_tensor_parallelism_divides_the_width_and_expert_parallelism_the_number():
    assert keys(qwen3(), layout(tp=4)) == (128, 192, 8)
    assert keys(qwen3(), layout(tp=4, ep=4)) == (32, 768, 8)
    assert keys(qwen3(), layout(tp=8, ep=2)) == (64, 192, 8)
    assert keys(qwen3(), layout(tp=8, ep=2, moe_dp=2)) == (64, 384, 8)
    assert keys(qwen3(), layout("0.5.8", tp=8, ep=2, moe_dp=2)) == (64, 192, 8)  # no MoE DP before 0.5.9


def test_redundant_experts_add_to_the_routed_ones_where_the_model_asks_for_them():
    assert keys(qwen3(), layout(tp=8, ep=8, redundant=16)) == (18, 768, 8)
    mixtral = Model(architecture="MixtralForCausalLM", experts=8, per_token=2, width=14336)
    assert keys(mixtral, layout(tp=2, redundant=16)) == (8, 7168, 2)


def test_deepseek_v3_carries_its_shared_expert_with_the_routed_ones():
    model = Model(
        architecture="DeepseekV3ForCausalLM",
        experts=256,
        per_token=8,
        width=2048,
        shared=1,
        quantization="fp8",
        weights="fp8_block",
        block=(128, 128),
    )
    assert keys(model, layout(tp=8)) == (257, 256, 9)
    assert keys(model, layout(tp=8, ep=8)) == (32, 2048, 8)
    assert keys(model, layout(tp=8, fusion_disabled=True)) == (256, 256, 8)
    assert keys(model, layout("0.5.12", tp=8, batch_overlap=True)) == (256, 256, 8)
    assert keys(model, layout("0.5.10", tp=8, batch_overlap=True)) == (257, 256, 9)


def test_qwen3_next_does_so_from_0_5_14_on():
    model = Model(
        architecture="Qwen3NextForCausalLM", experts=512, per_token=10, width=512, shared=1, shared_width=512
    )
    assert keys(model, layout("0.5.13", tp=4)) == (512, 128, 10)
    assert keys(model, layout("0.5.14", tp=4)) == (513, 128, 11)


@pytest.mark.parametrize(
    ("weights", "dtype", "block", "channel", "width"),
    [
        (None, None, None, False, 192),
        ("fp8_tensor", "fp8_w8a8", None, False, 192),
        ("fp8_channel", "fp8_w8a8", None, True, 192),
        ("fp8_block", "fp8_w8a8", (128, 128), False, 192),
        ("int8_channel", "int8_w8a8", None, True, 192),
        ("int4_weight", "int4_w4a16", None, False, 96),  # two weights a byte
        ("int8_weight", "int8_w8a16", None, False, 192),
    ],
)
def test_how_weights_are_stored_is_part_of_the_name(weights, dtype, block, channel, width):
    model = qwen3(weights=weights, block=(128, 128) if weights == "fp8_block" else None)
    shape = moe_shapes.on_one_gpu(model, layout(tp=4)).shape
    assert (shape.dtype, shape.block_shape, shape.per_channel, shape.width) == (dtype, block, channel, width)


def test_what_was_not_verified_is_not_said():
    for model, spread in [
        (qwen3(architecture="SomeMoeForCausalLM"), layout()),
        (qwen3(), layout(a2a="deepep")),
        (qwen3(), layout(tp=5)),
        (qwen3(weights="mixed"), layout()),
        (qwen3(architecture="Glm4MoeForCausalLM", shared=1), Layout(
            release=Version("0.5.12"), vendor="amd", capability=None
        )),
    ]:  # fmt: skip
        with pytest.raises(Open):
            moe_shapes.on_one_gpu(model, spread)


# --- SGLang's own decision ------------------------------------------------------------------------------

DECISIONS = {
    "deepseek_v2.py": "DeepseekV2ForCausalLM",
    "glm4_moe.py": "Glm4MoeForCausalLM",
    "glm4v_moe.py": "Glm4vMoeForConditionalGeneration",
    "glm4_moe_lite.py": "Glm4MoeLiteForCausalLM",
}
ARCHITECTURES = {
    "DeepseekV2ForCausalLM": "deepseek_v2.py",
    "DeepseekV3ForCausalLM": "deepseek_v2.py",
    "DeepseekV32ForCausalLM": "deepseek_v2.py",
    "GlmMoeDsaForCausalLM": "deepseek_v2.py",
    "Glm4MoeForCausalLM": "glm4_moe.py",
    "Glm4vMoeForConditionalGeneration": "glm4v_moe.py",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite.py",
}


class Decision:
    """The release's own method that decides whether shared experts are fused, cut out of its class."""

    def __init__(self, source: str, owner: str) -> None:
        methods = {
            node.name: node
            for parent in ast.parse(source.removeprefix("\ufeff")).body
            if isinstance(parent, ast.ClassDef) and parent.name == owner
            for node in parent.body
            if isinstance(node, ast.FunctionDef)
        }
        self.by_reason = "shared_experts_fusion_disable_reason" in methods
        name = (
            "shared_experts_fusion_disable_reason" if self.by_reason else "determine_num_fused_shared_experts"
        )
        method = methods[name]
        method.decorator_list = []
        # The one import in it: a writer of settings, which is left out.
        method = ast.fix_missing_locations(_WithoutImports().visit(method))
        self.name = name
        self.code = compile(ast.Module(body=[method], type_ignores=[]), "sglang", "exec")

    def fused(self, case: dict[str, Any]) -> int:
        namespace = _platform(case)
        exec(self.code, namespace)  # noqa: S102
        decide = namespace[self.name]
        quantization = case["quantization"]
        quant = None if quantization is None else types.SimpleNamespace(get_name=lambda: quantization)
        config = types.SimpleNamespace(
            architectures=[case["architecture"]],
            n_routed_experts=case["experts"],
            n_shared_experts=case["shared"] or None,
        )
        expected = _own_name(case["architecture"])
        if self.by_reason:
            owner = types.SimpleNamespace(fused_shared_experts_architecture=expected)
            refused = case["disabled"] or decide(owner, config, quant)
            return 0 if refused else config.n_shared_experts or 0
        model = types.SimpleNamespace(config=config, quant_config=quant, num_fused_shared_experts=0)
        takes_name = ARCHITECTURES[case["architecture"]] in ("deepseek_v2.py", "glm4_moe_lite.py")
        decide(model, *([expected] if takes_name else []))
        return model.num_fused_shared_experts or 0


class _WithoutImports(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)


def _own_name(architecture: str) -> str:
    keep = ("GlmMoeDsaForCausalLM", "Glm4MoeLiteForCausalLM")
    return architecture if architecture in keep else "DeepseekV3ForCausalLM"


def _platform(case: dict[str, Any]) -> dict[str, Any]:
    """Return what the method asks about the server and the GPU: NVIDIA, no all-to-all backend."""

    class Backend:
        def __getattr__(self, name: str):
            return lambda: name in ("is_none", "is_auto")

    flags = types.SimpleNamespace(
        disable_shared_experts_fusion=case["disabled"], enforce_shared_experts_fusion=case["enforced"]
    )
    major, minor = case["capability"]
    return {
        "Optional": Optional,
        "get_global_server_args": lambda: flags,
        "get_server_args": lambda: flags,
        "get_flags": lambda: flags,
        "get_exec": lambda: types.SimpleNamespace(moe=flags),
        "_is_cuda": True,
        "_is_hip": False,
        "_is_musa": False,
        "_device_sm": major * 10 + minor,
        "torch": types.SimpleNamespace(
            cuda=types.SimpleNamespace(get_device_capability=lambda _device: (major, minor))
        ),
        "get_moe_expert_parallel_world_size": lambda: case["ep"],
        "get_parallel": lambda: types.SimpleNamespace(moe_ep_size=case["ep"]),
        "get_moe_a2a_backend": Backend,
        "get_moe_runner_backend": Backend,
        "is_deepep_class_backend": lambda: False,
        "is_sbo_enabled": lambda: case["overlap"],
        "is_tbo_enabled": lambda: False,
        "is_sm90_supported": lambda: major == 9,
        "is_wint4afp8_or_wint4a16_config": lambda quant: quant is not None and quant.get_name() == "w4afp8",
        "quant_blocks_shared_experts_fusion": lambda _quant: False,
        "declare_load_time_override": lambda _owner, _values: None,
        "log_info_on_rank0": lambda _logger, _text: None,
        "logger": None,
    }


def model_source(wheel: Path, name: str) -> str:
    inner = f"sglang/srt/models/{name}"
    if wheel.is_dir():
        return (wheel / inner).read_text()
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(inner).decode()


@pytest.fixture(scope="module", params=["0.5.9", "0.5.10", "0.5.12", "0.5.23"])
def decisions(request, sglang_wheel) -> tuple[Version, dict[str, Decision]]:
    wheel = sglang_wheel(request.param)
    found = {name: Decision(model_source(wheel, name), owner) for name, owner in DECISIONS.items()}
    return Version(request.param), found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=st.fixed_dictionaries(
        {
            "architecture": st.sampled_from(sorted(ARCHITECTURES)),
            "experts": st.sampled_from([64, 256, 256, 384]),
            "shared": st.sampled_from([0, 1, 1, 2]),
            "capability": st.sampled_from([(7, 5), (8, 0), (9, 0), (12, 0)]),
            "ep": st.sampled_from([1, 1, 2]),
            "quantization": st.sampled_from([None, "fp8", "w4afp8", "quark", "modelopt_fp4"]),
            "disabled": st.integers(0, 4).map(lambda drawn: drawn == 0),
            "enforced": st.integers(0, 4).map(lambda drawn: drawn == 0),
            "overlap": st.integers(0, 3).map(lambda drawn: drawn == 0),
        }
    )
)
def test_sglang_itself_agrees_on_fused_shared_experts(decisions, case):
    release, by_file = decisions
    if release < Version("0.5.11"):
        case["enforced"] = False  # no such flag
    model = Model(
        architecture=case["architecture"],
        experts=case["experts"],
        per_token=8,
        width=512,
        shared=case["shared"],
        quantization=case["quantization"],
    )
    major, minor = case["capability"]
    spread = Layout(
        release=release,
        vendor="nvidia",
        capability=Version(f"{major}.{minor}"),
        tp=8,
        ep=case["ep"],
        fusion_disabled=case["disabled"],
        fusion_enforced=case["enforced"],
        batch_overlap=case["overlap"],
    )
    try:
        real = by_file[ARCHITECTURES[case["architecture"]]].fused(case)
    except AssertionError:  # two shared experts where it can fuse one only: the server stops
        return
    try:
        mine = moe_shapes.fused_shared_experts(
            architectures.ARCHITECTURES[case["architecture"]], model, spread
        )
    except Open:
        assert case["quantization"] in ("quark", "modelopt_fp4")
        return
    assert mine == real
