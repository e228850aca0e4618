"""What is planned for a deployment, and each reason for planning nothing, by example."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgdoctor import gather
from sgdoctor.errors import DoctorError, Undecided, UsageError
from sgdoctor.fix import moe_plan
from sgdoctor.fix.moe_plan import Plan
from sgdoctor.sources import Sources
from sgdoctor.tune.model import Pair
from sgdoctor.tune.space import BATCH_SIZES, Config, Problem
from tests.fix.installed import Installation, install
from tests.fix.models import DENSE, QWEN3, QWEN35

CAPTURES = Path(__file__).parents[1] / "captures"
SERVER = ("python3", "-m", "sglang.launch_server", "--model-path", "/models/m")


@pytest.fixture
def model(tmp_path):
    """Return what writes a config.json and gives its path."""

    def write(config: dict, **changes: object) -> str:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config | changes))
        return str(file)

    return write


@pytest.fixture
def installed(tmp_path, sglang_wheel):
    """Return what lays out an environment with a release."""

    def make(version: str = "0.5.12", triton: str = "3.6.0") -> Installation:
        return install(tmp_path / "venv", sglang_wheel(version), version, triton)

    return make


def planned(sources: Sources, **options: bool) -> Plan:
    return moe_plan.plan(gather.gather(sources, {}), **options)


def refused(sources: Sources) -> DoctorError:
    with pytest.raises((Undecided, UsageError)) as caught:
        planned(sources)
    return caught.value


def launched(here: Installation, config: str, *flags: str, gpu: str = "H200:4") -> Sources:
    return Sources(command=(*SERVER, *flags), model=config, python=here.python, gpu=gpu)


def test_a_missing_configuration_becomes_a_job(installed, model):
    here = installed()
    (one,) = planned(launched(here, model(QWEN35), "--tp", "4")).planned
    job = one.job
    assert job.problem == Problem(256, 256, 3072, 8)
    assert (job.capability, job.device, job.release, job.triton) == ((9, 0), "NVIDIA H200", "0.5.12", "3.6.0")
    assert job.up_file == "E=256,N=256,device_name=NVIDIA_H200.json"
    assert job.down_file == "E=256,N=256,device_name=NVIDIA_H200_down.json"
    assert (job.source, job.today_is, job.up_tma) == ("default", "the built-in default", False)
    assert job.tokens == BATCH_SIZES
    assert job.today[256] == Pair(Config(16, 32, 64), Config(16, 32, 64))
    assert job.today[512] == job.default[512] == Pair(Config(64, 64, 32, 8), Config(64, 64, 32, 8))
    assert Path(job.kernel).is_relative_to(here.package)
    assert (one.root, one.python) == (here.root, here.python)
    assert "runs on the built-in default" in one.why


def test_the_file_of_another_triton_is_todays(installed, model):
    here = installed()
    (one,) = planned(launched(here, model(QWEN3))).planned
    entries = json.loads((here.folder("3.2.0") / one.job.up_file).read_text())
    assert one.job.source == "fallback"
    assert one.job.today_is == "the file for Triton 3.2.0"
    today = Config.from_sglang(entries["24"])
    assert one.job.today[24] == Pair(today, today)
    assert one.job.default[24] == Pair(Config(16, 32, 64), Config(16, 32, 64))


def test_a_down_file_is_todays_with_the_block_size_of_the_up_file(installed, model):
    here = installed("0.5.13")
    entry = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    folder = here.folder("3.5.1")
    folder.mkdir(exist_ok=True)
    up = "E=256,N=256,device_name=NVIDIA_H200"
    (folder / f"{up}.json").write_text(json.dumps({"1": entry, "64": entry | {"num_warps": 8}}))
    down = {"8": entry | {"BLOCK_SIZE_M": 32, "USE_TMA": True}}
    (folder / f"{up}_down.json").write_text(json.dumps(down))
    (one,) = planned(launched(here, model(QWEN35), "--tp", "4")).planned
    assert one.job.today[1] == Pair(Config(16, 64, 64), Config(16, 64, 64, tma=True))
    assert one.job.today[4096].up == Config(16, 64, 64, warps=8)


@pytest.mark.parametrize(("version", "tma"), [("0.5.13", False), ("0.5.16", True)])
def test_without_a_down_file_the_up_file_is_used_with_its_tma_from_0_5_16_on(installed, model, version, tma):
    here = installed(version)
    entry = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "USE_TMA": True}
    here.folder("3.5.1").mkdir(exist_ok=True)
    (here.folder("3.5.1") / "E=256,N=256,device_name=NVIDIA_H200.json").write_text(json.dumps({"1": entry}))
    (one,) = planned(launched(here, model(QWEN35), "--tp", "4")).planned
    assert one.job.today[1] == Pair(Config(16, 64, 64), Config(16, 64, 64, tma=tma))


def test_experts_of_other_gpus_are_routed_over_too(installed, model):
    (one,) = planned(launched(installed(), model(QWEN35), "--tp", "4", "--ep", "4")).planned
    assert one.job.problem == Problem(64, 1024, 3072, 8, routed=256)


def test_block_wise_fp8_has_its_block(installed, model):
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    config = model(QWEN35, quantization_config=quantized)
    (one,) = planned(launched(installed(), config, "--tp", "4")).planned
    assert one.job.problem == Problem(256, 256, 3072, 8, "fp8_block", (128, 128))
    assert one.job.default[1].up == Config(64, 128, 128, 32, 4, 3)


def test_two_int4_weights_in_a_byte_halve_the_width_of_the_name(installed, model):
    quantized = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
    config = model(QWEN35, quantization_config=quantized)
    flags = ("--tp", "4", "--quantization", "moe_wna16")
    (one,) = planned(launched(installed(), config, *flags)).planned
    assert one.job.up_file == "E=256,N=128,device_name=NVIDIA_H200,dtype=int4_w4a16.json"
    assert one.job.problem == Problem(256, 256, 3072, 8, "int4", (0, 128))


def test_a_small_gpu_has_another_default_for_fp8_from_0_5_14_on(installed, model):
    quantized = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    config = model(QWEN35, quantization_config=quantized)
    sources = launched(installed("0.5.16"), config, "--tp", "4", gpu="RTX 4090:4")
    (one,) = planned(sources).planned
    assert one.job.problem.kind == "fp8_tensor"
    assert one.job.default[1].up == Config(32, 64, 256, 1, 4, 4)
    assert one.job.default[4096].up == Config(64, 128, 256, 64, 4, 2)


def test_long_chunks_get_keys_of_their_own(installed, model):
    config = model(QWEN35)
    here = installed("0.5.20")
    (one,) = planned(launched(here, config, "--tp", "4", "--chunked-prefill-size", "8192")).planned
    assert one.job.tokens == (*BATCH_SIZES, 8192)
    assert one.job.up_tma
    (one,) = planned(launched(here, config, "--tp", "4", "--chunked-prefill-size", "32768")).planned
    assert one.job.tokens == (*BATCH_SIZES, 8192, 16384)
    assert set(one.job.today) == set(one.job.tokens)


def test_a_log_names_the_shape_and_the_model_the_rest(installed):
    """The log of a real server; its installation is laid out where this machine has it."""
    here = installed()
    log = CAPTURES / "moe-no-config" / "server.log"
    config = str(CAPTURES / "models" / "moe-e256-n256")
    (one,) = planned(Sources(logs=(str(log),), model=config, python=here.python)).planned
    assert one.job.up_file == "E=256,N=256,device_name=NVIDIA_H200.json"
    assert (one.job.problem.hidden, one.job.problem.topk, one.job.triton) == (3072, 8, "3.6.0")
    assert one.root == here.root  # not that of the log, which is another machine's


def test_a_log_alone_says_what_it_lacks(installed):
    log = CAPTURES / "moe-no-config" / "server.log"
    said = str(refused(Sources(logs=(str(log),), python=installed().python)))
    assert said == (
        "not known: the model's hidden size, how many experts a token takes, whether the experts are bf16 or "
        "fp16; --model DIR names the model's folder or its config.json"
    )


def test_a_log_of_another_triton_than_the_one_here_is_refused(installed):
    log = CAPTURES / "moe-no-config" / "server.log"
    here = installed(triton="3.5.1")
    config = str(CAPTURES / "models" / "moe-e256-n256")
    said = str(refused(Sources(logs=(str(log),), model=config, python=here.python)))
    assert "SGLang 0.5.12 with Triton 3.6.0 is not on this machine at /usr/local/lib/" in said
    assert f"{here.python} has 0.5.12 with 3.5.1" in said


# --- nothing to tune --------------------------------------------------------------------------------------


def test_with_both_files_there_nothing_is_missing(installed, model):
    here = installed()
    sources = launched(here, model(QWEN35), "--tp", "4")
    (one,) = planned(sources).planned
    entry = json.dumps({"1": one.job.default[1].up.to_sglang()})
    here.folder("3.6.0").mkdir(exist_ok=True)
    for name in (one.job.up_file, one.job.down_file):
        (here.folder("3.6.0") / name).write_text(entry)
    found = planned(sources)
    assert found.planned == ()
    assert "nothing is missing" in found.complete[0]
    assert "--retune" in found.complete[0]
    (again,) = planned(sources, again=True).planned
    assert (again.job.source, again.job.today_is) == ("exact", "the file for Triton 3.6.0")
    assert again.job.today[4096] == Pair(one.job.default[1].up, one.job.default[1].up)


def test_a_down_file_alone_may_be_missing(installed, model):
    here = installed()
    sources = launched(here, model(QWEN35), "--tp", "4")
    (one,) = planned(sources).planned
    here.folder("3.6.0").mkdir(exist_ok=True)
    entry = json.dumps({"1": one.job.default[1].up.to_sglang()})
    (here.folder("3.6.0") / one.job.up_file).write_text(entry)
    (one,) = planned(sources).planned
    assert "its _down file is not" in one.why


def test_files_that_do_not_fit_one_another_are_tuned_anew(installed, model):
    here = installed()
    sources = launched(here, model(QWEN35), "--tp", "4")
    (one,) = planned(sources).planned
    here.folder("3.6.0").mkdir(exist_ok=True)
    for name, block_m in ((one.job.up_file, 16), (one.job.down_file, 32)):
        entry = one.job.default[1].up.to_sglang() | {"BLOCK_SIZE_M": block_m}
        (here.folder("3.6.0") / name).write_text(json.dumps({"1": entry}))
    (one,) = planned(sources).planned
    assert one.why == f"{one.job.up_file} and its _down file differ in BLOCK_SIZE_M"
    assert one.job.source == "exact"


def test_a_file_whose_results_are_wrong_is_tuned_anew(installed, model):
    """A file that SGLang ships: its BLOCK_SIZE_K of 256 reads scales of other blocks of 128."""
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    config = model(QWEN35 | {"num_experts": 512}, quantization_config=quantized)
    sources = launched(installed(triton="3.5.1"), config, "--tp", "4", gpu="H100:4")
    (one,) = planned(sources).planned
    assert one.job.source == "exact"
    assert one.why.startswith("E=512,N=256,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=")
    assert "BLOCK_SIZE_K" in one.why


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--enable-deterministic-inference",), "deterministic inference is on: SGLang reads no config file"),
        (("--moe-runner-backend", "flashinfer_cutlass"), "flashinfer_cutlass serves these experts"),
        (("--dtype", "float32"), "experts stored as float32 are not covered: the tuner knows bf16, fp16"),
    ],
)
def test_flags_that_leave_nothing_to_tune(installed, model, flags, words):
    error = refused(launched(installed(), model(QWEN35), "--tp", "4", *flags))
    assert words in str(error)
    assert error.exit_code == 3


def test_a_runner_that_is_not_known_is_not_taken_for_triton(installed, model):
    deepep = ("--tp", "4", "--ep", "4", "--moe-a2a-backend", "deepep")
    said = str(refused(launched(installed(), model(QWEN35), *deepep)))
    assert said.startswith("which runner serves the experts is not known: ")
    assert "--moe-a2a-backend deepep" in said


def test_a_dense_model_has_nothing_to_tune(installed, model):
    assert "no routed experts" in str(refused(launched(installed(), model(DENSE))))


def test_another_vendors_gpu_is_refused(installed, model):
    said = str(refused(launched(installed(), model(QWEN35), "--tp", "4", gpu="MI300X:4")))
    assert "AMD Instinct MI300X is not one of NVIDIA's" in said


def test_a_release_without_a_kernel_that_is_known_is_refused(installed, model):
    here = installed()
    sources = launched(here, model(QWEN35), "--tp", "4")
    for version in ("0.5.8", "0.5.24"):
        text = (here.package / "_version.py").read_text().replace("0.5.12", version)
        (here.package / "_version.py").write_text(text)
        said = str(refused(sources))
        assert f"SGLang {version} is installed: the tuner knows the kernels of 0.5.9 to 0.5.23" in said
        (here.package / "_version.py").write_text(text.replace(version, "0.5.12"))


def test_a_post_release_is_the_release(installed, model):
    here = installed()
    text = (here.package / "_version.py").read_text().replace("0.5.12", "0.5.12.post1")
    (here.package / "_version.py").write_text(text)
    (one,) = planned(launched(here, model(QWEN35), "--tp", "4")).planned
    assert one.job.release == "0.5.12.post1"


def test_an_installation_without_the_kernel_is_refused(installed, model):
    here = installed()
    for kernel in here.package.rglob("fused_moe_triton_kernels.py"):
        kernel.unlink()
    assert "has no fused-MoE kernel where SGLang" in str(refused(launched(here, model(QWEN35), "--tp", "4")))


def test_an_installation_of_another_machine_is_refused(model):
    environment = Path(__file__).parents[1] / "healthy" / "qwen3-moe-h100-tp2" / "environment.json"
    sources = Sources(command=(*SERVER, "--tp", "2"), model=model(QWEN3), environment=str(environment))
    said = str(refused(sources))
    assert "is not on this machine, and the tuner needs its kernel" in said
    assert "--python PATH" in said


def test_a_lookup_that_kills_the_server_comes_first(installed, model):
    here = installed()
    (here.root / "triton_custom").mkdir()
    assert "the config lookup ends the server" in str(refused(launched(here, model(QWEN35), "--tp", "4")))


def test_a_broken_file_in_use_is_named(installed, model):
    here = installed()
    folder = here.folder("3.5.1")
    folder.mkdir(exist_ok=True)
    file = folder / "E=256,N=256,device_name=NVIDIA_H200.json"
    file.write_text('{"1": {"BLOCK_SIZE_M": 16}}')
    error = refused(launched(here, model(QWEN35), "--tp", "4"))
    assert str(error) == f"{file} has an entry without 'BLOCK_SIZE_N'; move it away, and tune again"
    assert error.exit_code == 2


def test_the_same_missing_file_of_two_servers_is_tuned_once(installed, model):
    here = installed()
    sources = launched(here, model(QWEN35), "--tp", "4")
    other = replace_flags(sources, "--tp", "4", "--port", "30001")
    dense = replace_flags(sources, "--tp", "4", "--moe-runner-backend", "flashinfer_cutlass")
    gathered = [one for each in (sources, other, dense) for one in gather.gather(each, {})]
    found = moe_plan.plan(gathered)
    assert len(found.planned) == 1
    assert len(found.planned[0].deployments) == 2
    assert "flashinfer_cutlass serves these experts" in found.refused[0]


def replace_flags(sources: Sources, *flags: str) -> Sources:
    return Sources(command=(*SERVER, *flags), model=sources.model, python=sources.python, gpu=sources.gpu)
