"""Facts that follow from others: whole deployments through the collectors, before and after the launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgdoctor.collect.model import read_model
from sgdoctor.facts import Facts, Known, Unknown
from sgdoctor.gather import gather
from sgdoctor.sources import Sources
from sgdoctor.upstream import derive

TESTS = Path(__file__).parents[1]
SCENARIO = TESTS / "scenarios" / "rtx-pro-6000"
CAPTURES = TESTS / "captures"
H200 = {
    "packages": {"sglang": "0.5.12", "triton": "3.6.0", "torch": "2.11.0"},
    "gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 143771}],
}


def facts_of(**sources: str) -> Facts:
    return gather(Sources(**sources), {})[0].facts


def values(facts: Facts, *names: str) -> list:
    return [facts.value(name, "unknown") for name in names]


def test_the_deployment_this_began_with():
    facts = facts_of(
        launch=str(SCENARIO / "launch-fusion.sh"),
        model=str(SCENARIO / "config.json"),
        environment=str(SCENARIO / "environment.json"),
    )
    assert values(facts, "moe.runner", "moe.config_matters") == ["triton", True]
    name = "E=256,N=256,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition"
    files = values(facts, "moe.up.expected_file", "moe.down.expected_file")
    assert files == [f"{name}.json", f"{name}_down.json"]
    assert values(facts, "moe.up.source", "moe.down.source") == ["default", "default"]
    assert facts.value("moe.directories") == ["3.6.0", "3.4.0", "3.3.1", "3.2.0", "3.1.0"]
    assert values(facts, "pin.triton", "pin.kernel", "sglang.known") == ["3.5.1", "0.4.1", True]
    roots = facts.roots("moe.up.expected_file")
    assert {"model.experts", "model.moe_intermediate_size", "gpu.name", "asked.tp_size"} <= set(roots)
    assert roots["asked.tp_size"].provenance[0].place.endswith("launch-fusion.sh:10")


@pytest.fixture
def capture(tmp_path):
    """Return the facts predicted for a captured server from what was known before it was started."""

    def predicted(name: str, prefix: str = "") -> Facts:
        command = (CAPTURES / name / "command.txt").read_text().splitlines()[0]
        launch = tmp_path / "launch.sh"
        launch.write_text(f"{prefix}{command}\n")
        environment = tmp_path / "environment.json"
        environment.write_text(json.dumps(H200))
        folder = command.partition("--model-path /models/")[2].split()[0]
        model = str(CAPTURES / "models" / folder)
        return facts_of(launch=str(launch), model=model, environment=str(environment))

    return predicted


LOOKUP = (
    "moe.up.source",
    "moe.up.expected_file",
    "moe.up.triton",
    "moe.down.source",
    "moe.down.expected_file",
    "moe.local_experts",
    "moe.local_intermediate_size",
    "moe.dtype",
    "moe.block_shape",
    "moe.runner",
    "moe.config_matters",
)


@pytest.mark.parametrize("name", ["moe-no-config", "moe-fallback-config", "allreduce-fusion-tp1"])
def test_a_prediction_is_what_the_log_then_says(capture, name):
    predicted, said = capture(name), facts_of(logs=(str(CAPTURES / name / "server.log"),))
    assert "unknown" not in values(said, *LOOKUP)
    assert values(predicted, *LOOKUP) == values(said, *LOOKUP)


@pytest.mark.parametrize("name", ["moe-no-config", "moe-fallback-config"])
def test_a_running_server_gives_the_same(capture, name, tmp_path):
    environment = tmp_path / "environment.json"
    environment.write_text(json.dumps(H200))
    model = "moe-e256-n256" if name == "moe-no-config" else "moe-e128-n768"
    running = facts_of(
        server_info=str(CAPTURES / name / "server_info.json"),
        model=str(CAPTURES / "models" / model),
        environment=str(environment),
    )
    assert values(running, *LOOKUP) == values(capture(name), *LOOKUP)


def test_deepgemm_compiles_for_the_dense_layers_while_triton_serves_the_experts(capture):
    """Block FP8 on an H200: the log names the dense GEMM of the attention layers, and no grouped one."""
    log = (CAPTURES / "deepgemm-warmup-slow" / "server.log").read_text()
    assert "<GEMM_NT_F8F8BF16> N=5120, K=2048, num_groups=1" in log
    assert "GROUPED_GEMM" not in log
    facts = capture("deepgemm-warmup-slow")
    assert values(facts, "moe.runner", "moe.config_matters") == ["triton", True]
    assert values(facts, "moe.up.source", "moe.up.triton") == ["fallback", "3.2.0"]


def test_a_config_folder_of_another_machine_is_not_taken_for_a_missing_one(capture):
    facts = capture("moe-config-dir-missing", "SGLANG_MOE_CONFIG_DIR=/nowhere/moe ")
    assert facts.value("moe.config_root") == "/nowhere/moe/configs"
    for name in ("moe.up.source", "moe.lookup_error"):
        fact = facts.get(name)
        assert isinstance(fact, Unknown)
        assert "not on this machine" in fact.reason


def test_a_config_folder_here_that_lacks_configs_ends_the_server(capture, tmp_path):
    facts = capture("moe-config-dir-missing", f"SGLANG_MOE_CONFIG_DIR={tmp_path} ")
    assert values(facts, "moe.up.source", "moe.down.source") == ["error", "error"]
    expected = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/configs'"
    assert facts.value("moe.lookup_error") == expected
    assert facts.value("moe.bundled_source") == "default"


def known(model: Path, **more: object) -> Facts:
    """Return the facts of a server on one H200 that was given no flags."""
    facts = Facts()
    read_model(facts, model)
    given = {
        "sglang.version": "0.5.12",
        "triton.version": "3.6.0",
        "gpu.name": "NVIDIA H200",
        "gpu.compute_capability": "9.0",
        "gpu.vendor": "nvidia",
        "launch.flags_known": True,
    }
    for name, value in {**given, **more}.items():
        facts.set(name, value, source="launch", place="launch.sh:1")
    return facts


BF16 = CAPTURES / "models" / "moe-e256-n256"
VARIABLE = "env.SGLANG_MOE_CONFIG_DIR"


def test_a_missing_folder_is_missing_when_sglang_is_installed_here(tmp_path):
    facts = known(BF16, **{VARIABLE: "/nowhere/moe", "sglang.path": str(tmp_path), "host.container": None})
    derive.derive(facts)
    assert values(facts, "moe.up.source", "moe.directories") == ["error", ["3.6.0"]]
    assert facts.value("moe.lookup_error").startswith("FileNotFoundError")


def test_a_relative_folder_depends_on_where_the_server_was_started():
    facts = known(BF16, **{VARIABLE: "moe"})
    derive.derive(facts)
    assert "working directory" in facts.get("moe.up.source").reason


def quantized(tmp_path: Path, config: dict, **fields: object) -> Path:
    model = json.loads((CAPTURES / "models" / "moe-e128-n768" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**model, **fields, "quantization_config": config}))
    return tmp_path


def test_awq_experts_that_marlin_cannot_take_run_on_triton_with_half_the_width(tmp_path):
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    facts = known(quantized(tmp_path, awq), **{"asked.tp_size": 4})
    derive.derive(facts)
    assert values(facts, "moe.runner", "moe.up.expected_file") == [
        "triton",
        "E=128,N=96,device_name=NVIDIA_H200,dtype=int4_w4a16.json",
    ]
    facts = known(quantized(tmp_path, awq))
    derive.derive(facts)
    assert values(facts, "moe.runner", "moe.config_matters") == ["marlin", False]


def test_no_config_helps_where_triton_has_no_fp8(tmp_path):
    """On an A100 the kernel for FP8 experts is not compiled; that for BF16 experts is."""
    a100 = {"gpu.name": "NVIDIA A100-SXM4-80GB", "gpu.compute_capability": "8.0"}
    for quantization, matters in (({"quant_method": "fp8"}, False), (None, True)):
        facts = known(quantized(tmp_path, quantization), **a100)
        derive.derive(facts)
        assert values(facts, "moe.runner", "moe.config_matters") == ["triton", matters]


def test_no_config_helps_experts_that_are_no_whole_blocks(tmp_path):
    """1536 columns over 8 GPUs are 192 each: SGLang stops while it loads them."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = quantized(tmp_path, fp8, moe_intermediate_size=1536)
    for size, matters in ((8, False), (4, True)):
        facts = known(model, **{"asked.tp_size": size})
        derive.derive(facts)
        assert values(facts, "moe.runner", "moe.config_matters") == ["triton", matters]


def test_the_one_shipped_file_that_computes_wrong(tmp_path):
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = quantized(tmp_path, fp8, num_experts=512, moe_intermediate_size=512)
    more = {"sglang.version": "0.5.10", "triton.version": "3.5.1", "gpu.name": "NVIDIA H100 80GB HBM3"}
    facts = known(model, **more, **{"asked.tp_size": 2})
    derive.derive(facts)
    assert values(facts, "moe.up.source", "moe.block_m_mismatch") == ["exact", False]
    (problem,) = facts.value("moe.config_problems")
    assert "has BLOCK_SIZE_K 256 at M = 64, 128, 256, 512" in problem
    assert values(facts, "moe.config_warnings", "moe.config_remarks") == [[], "unknown"]


def test_a_dispatcher_keeps_the_configs_out_of_it(tmp_path):
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    facts = known(quantized(tmp_path, fp8), **{"arg.moe_a2a_backend": "deepep", "arg.ep_size": 8})
    derive.derive(facts)
    assert values(facts, "moe.runner", "moe.config_matters") == ["deep_gemm", False]
    assert values(facts, "moe.local_experts", "moe.up.source") == ["unknown", "unknown"]


def test_a_folder_inside_a_container_is_read_where_it_is_mounted_from(tmp_path):
    facts, inside = (known(BF16, **{VARIABLE: "/configs"}) for _ in range(2))
    folder = tmp_path / "configs" / "triton_3_6_0"
    folder.mkdir(parents=True)
    (folder / "E=256,N=256,device_name=NVIDIA_H200.json").write_text(json.dumps({"1": tile(16)}))
    derive.derive(facts, lambda path: path.replace("/configs", str(tmp_path)))
    assert values(facts, "moe.up.source", "moe.config_root") == ["exact", "/configs/configs"]
    derive.derive(inside, lambda _path: None)
    assert "inside the container" in inside.get("moe.up.source").reason


def tile(block_m: int, block_k: int = 64) -> dict[str, int]:
    return {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": 1}


def test_the_files_of_a_folder_here_are_read(capture, tmp_path):
    folder = tmp_path / "moe" / "configs" / "triton_3_6_0"
    folder.mkdir(parents=True)
    name = "E=256,N=256,device_name=NVIDIA_H200"
    (folder / f"{name}.json").write_text(json.dumps({"1": tile(16), "64": tile(64)}))
    (folder / f"{name}_down.json").write_text(json.dumps({"1": tile(16)}))
    facts = capture("moe-no-config", f"SGLANG_MOE_CONFIG_DIR={tmp_path}/moe ")
    assert values(facts, "moe.up.source", "moe.down.source") == ["exact", "exact"]
    assert values(facts, "moe.block_m_mismatch", "moe.config_problems", "moe.lookup_error") == [
        True,
        [],
        None,
    ]
    assert values(facts, "moe.config_warnings") == [[]]
    assert len(facts.value("moe.config_remarks")) == 3  # batches far from every key
    (folder / f"{name}_down.json").write_text('{"triton_version": "3.6.0"}')
    facts = capture("moe-no-config", f"SGLANG_MOE_CONFIG_DIR={tmp_path}/moe ")
    assert facts.value("moe.lookup_error").startswith("ValueError: invalid literal for int()")
    assert facts.value("moe.config_problems") == [
        f"{name}_down.json has the key triton_version, which vLLM writes and SGLang cannot read"
    ]


def test_deterministic_inference_reads_no_config(capture, tmp_path):
    launch = tmp_path / "launch.sh"
    launch.write_text("python3 -m sglang.launch_server --model-path /m --enable-deterministic-inference\n")
    environment = tmp_path / "environment.json"
    environment.write_text(json.dumps(H200))
    facts = facts_of(
        launch=str(launch), model=str(CAPTURES / "models" / "moe-e128-n768"), environment=str(environment)
    )
    assert values(facts, "moe.runner", "moe.config_matters", "moe.up.source") == ["triton", False, "default"]
    assert facts.value("moe.directories") == []


def test_a_dense_model_has_no_experts(capture):
    facts = capture("kv-pool-full")
    assert values(facts, "model.is_moe", "moe.config_matters", "moe.runner") == [False, False, "unknown"]


def test_files_beside_the_triton_folders_are_never_read(tmp_path):
    root = tmp_path / "site" / "sglang"
    configs = root / "srt/layers/moe/moe_runner/triton_utils/configs"
    older = root / "srt/layers/moe/fused_moe_triton/configs/triton_3_6_0"
    (configs / "triton_3_6_0").mkdir(parents=True)
    older.mkdir(parents=True)
    for folder in (configs, configs / "triton_3_6_0", older):
        (folder / "E=8,N=8,device_name=X.json").write_text("{}")
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="packages", place="site")
    facts.set("sglang.path", str(root), source="packages", place="site")
    derive.derive(facts)
    assert facts.value("moe.misplaced_files") == [
        "E=8,N=8,device_name=X.json",
        "srt/layers/moe/fused_moe_triton/configs/triton_3_6_0/E=8,N=8,device_name=X.json",
    ]


@pytest.mark.parametrize(
    ("version", "known", "between"),
    [
        ("0.5.12", True, False),
        ("0.5.12.post1", True, False),
        ("0.5.13.post7", True, False),
        ("0.5.12+cu129", True, False),
        ("0.5.14.dev3", False, True),
        ("0.0.0.dev1+g1a2b3c4d5", False, True),
        ("0.5.12+g1a2b3c4d5", False, True),
        ("0.4.6", False, False),
        ("9.9.9", False, False),
    ],
)
def test_releases(version, known, between):
    facts = Facts()
    facts.set("sglang.version", version, source="packages", place="x")
    derive.machine(facts)
    assert values(facts, "sglang.known", "sglang.development") == [known, between]


def test_pins_of_a_release():
    facts = Facts()
    facts.set("sglang.version", "0.5.23", source="packages", place="x")
    derive.machine(facts)
    assert values(facts, "pin.torch", "pin.flashinfer_cubin", "pin.kernel_minimum") == [
        "2.14.1",
        None,
        "0.4.9",
    ]
    assert facts.value("pin.triton") == "3.8.0"  # the least that ~=3.8.0 takes


def test_gpus_that_differ_are_no_one_gpu():
    facts = Facts()
    gpus = [
        {"index": 0, "name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 143771},
        {"index": 1, "name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "memory_mib": 81559},
    ]
    facts.set("gpus", gpus, source="assume", place="--assume")
    derive.machine(facts)
    assert values(facts, "gpu.count", "gpu.compute_capability", "gpu.name") == [2, "9.0", "unknown"]
    assert facts.value("gpu.shared_memory_bytes") == 232448


@pytest.mark.parametrize(
    ("asked", "checkpoint", "expected"),
    [(None, None, None), ("fp8", None, "fp8"), (None, "fp8", "fp8"), ("moe_wna16", "gptq", "moe_wna16")],
)
def test_quantization_is_that_of_the_flag_over_that_of_the_checkpoint(tmp_path, asked, checkpoint, expected):
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="packages", place="x")
    facts.set("asked.quantization", asked, source="launch", place="launch.sh:1")
    config: dict = {"architectures": ["LlamaForCausalLM"]}
    if checkpoint:
        bits = {"bits": 4, "group_size": 128, "sym": True, "desc_act": False}
        config["quantization_config"] = {"quant_method": checkpoint, **bits}
    (tmp_path / "config.json").write_text(json.dumps(config))
    read_model(facts, tmp_path)
    derive.derive(facts)
    fact = facts.get("model.quantization")
    assert isinstance(fact, Known)
    assert fact.value == expected


def test_nothing_known_says_why():
    facts = Facts()
    derive.machine(facts)
    derive.derive(facts)
    for name in ("sglang.known", "pin.torch", "moe.runner", "moe.up.source", "model.quantization"):
        fact = facts.get(name)
        assert isinstance(fact, Unknown)
        assert fact.missing


@pytest.mark.parametrize(
    ("flag", "vendor", "capability"),
    [
        ("", "nvidia", "9.0"),
        ("--device cuda", "nvidia", "9.0"),
        ("--device cpu", "other", None),
        ("--device xpu", "other", None),
    ],
)
def test_the_gpus_of_a_server_that_runs_on_something_else(tmp_path, flag, vendor, capability):
    environment = tmp_path / "environment.json"
    environment.write_text(json.dumps(H200))
    launch = tmp_path / "run.sh"
    launch.write_text(f"python3 -m sglang.launch_server --model-path m {flag}\n")
    facts = facts_of(launch=str(launch), environment=str(environment))
    assert values(facts, "gpu.vendor", "gpu.compute_capability") == [vendor, capability]
    assert facts.known("gpu.name") == (vendor == "nvidia")
    if vendor == "other":
        device = flag.removeprefix("--device ")
        assert facts.get("gpu.count") == Unknown(f"the server runs on {device}", ("asked.device",))
