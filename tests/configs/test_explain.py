"""Which file a deployment would use, explained."""

from __future__ import annotations

import json

import pytest

from sgdoctor.configs import explain, places
from sgdoctor.configs.explain import Folder, Question
from sgdoctor.errors import UsageError
from tests.configs.conftest import table, write

QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "torch_dtype": "bfloat16",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "max_position_embeddings": 40960,
}
BLOCK_FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
H200 = "E=128,N=768,device_name=NVIDIA_H200.json"
DOWN = "E=128,N=768,device_name=NVIDIA_H200_down.json"


@pytest.fixture
def qwen(tmp_path):
    """Write a model's config.json; returns what makes a question about it."""

    def question(changes=None, **more):
        folder = tmp_path / "qwen3"
        write(folder, {"config.json": json.dumps({**QWEN, **(changes or {})})})
        return Question(**{"model": str(folder), "gpu": "H200", **more})

    return question


def explained(question, path=None):
    (only,) = explain.explain(question, None if path is None else places.find(str(path)))
    return only


def test_the_files_that_a_release_ships(qwen):
    result = explained(qwen(sglang="0.5.12"))
    assert result.title == ("qwen3", "SGLang 0.5.12", "Triton 3.6.0", "1 x NVIDIA H200", "TP 1")
    assert (result.up_file, result.down_file) == (H200, DOWN)
    assert (result.up, result.up_triton, result.down) == ("fallback", "3.2.0", "up")
    assert [folder.triton for folder in result.folders] == [
        "3.6.0", "3.5.1", "3.4.0", "3.3.1", "3.3.0", "3.2.0", "3.1.0"
    ]  # fmt: skip
    assert result.folders[5] == Folder(triton="3.2.0", up=True, down=False)
    assert (result.unread, result.undecided, result.error, result.problems) == (None, None, None, ())


def test_flags_and_a_command_say_the_same(qwen):
    flags = explained(qwen(sglang="0.5.12", flags=("--tp-size", "2", "--ep-size", "2")))
    command = ("python3", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", "2", "--ep=2")
    asked = explained(qwen(sglang="0.5.12", command=command))
    assert flags.up_file == asked.up_file == "E=64,N=768,device_name=NVIDIA_H200.json"
    assert flags.title[-2:] == asked.title[-2:] == ("TP 2", "EP 2")
    with pytest.raises(UsageError, match="either as options or in the launch command"):
        explained(qwen(sglang="0.5.12", command=command, flags=("--tp-size", "2")))


def test_every_server_of_a_script(qwen, tmp_path):
    script = tmp_path / "launch.sh"
    script.write_text(
        "python3 -m sglang.launch_server --model-path /a --tp 1 --port 1 &\n"
        "python3 -m sglang.launch_server --model-path /b --tp 2 --port 2\n"
    )
    found = explain.explain(qwen(sglang="0.5.12", launch=str(script)), None)
    assert [each.up_file for each in found] == [H200, "E=128,N=384,device_name=NVIDIA_H200.json"]


def test_an_installed_sglang_and_its_triton(qwen, installed):
    files = {f"moe/triton_3_6_0/{H200}": table(), f"moe/triton_3_4_0/{DOWN}": table()}
    result = explained(qwen(), installed("0.5.12", files, triton="3.6.0"))
    assert (result.up, result.down, result.down_triton) == ("exact", "fallback", "3.4.0")
    assert result.folders == (
        Folder(triton="3.6.0", up=True, down=False),
        Folder(triton="3.4.0", up=False, down=True),
    )
    assert result.root.endswith("site-packages/sglang/srt/layers/moe/moe_runner/triton_utils/configs")
    other = explained(qwen(triton="3.4.0"), installed("0.5.12", files, triton="3.6.0"))
    assert (other.up, other.down) == ("fallback", "exact")


def test_a_folder_that_a_release_does_not_look_into(qwen, installed):
    site = installed("0.5.11", {f"moe/triton_3_5_1/{H200}": table()}, triton="3.6.0")
    result = explained(qwen(), site)
    assert result.up == "default"
    assert result.folders[-1] == Folder(triton="3.5.1", up=True, down=False, searched=False)


def test_a_folder_in_place_of_sglangs_own(qwen, tmp_path):
    write(tmp_path / "mine", {f"configs/triton_3_6_0/{H200}": {"triton_version": "3.6.0"}})
    for path in (tmp_path / "mine", tmp_path / "mine" / "configs"):
        result = explained(qwen(sglang="0.5.12"), path)
        assert (result.up, result.root) == ("exact", f"{tmp_path}/mine/configs")
        assert result.problems == (
            ("error", f"{H200} has the key triton_version, which vLLM writes and SGLang cannot read"),
        )
    with pytest.raises(UsageError, match="name it with --sglang"):
        explained(qwen(), tmp_path / "mine")
    with pytest.raises(UsageError, match="from a folder called configs"):
        explained(qwen(sglang="0.5.12"), tmp_path / "mine" / "configs" / "triton_3_6_0")


def test_a_lookup_that_ends_the_server(qwen, installed):
    files = {f"moe/triton_3_6_0/{H200}": table(), "moe/triton_old/x.json": "{}"}
    result = explained(qwen(), installed("0.5.12", files))
    assert (result.up, result.down) == ("exact", "error")
    assert "invalid literal for int() with base 10: 'old'" in result.error


def test_experts_that_read_no_file(qwen):
    runner = explained(
        qwen({"quantization_config": BLOCK_FP8}, gpu="B200", sglang="0.5.23", flags=("--tp-size", "2"))
    )
    assert runner.unread.startswith(
        "The experts run on flashinfer_trtllm, which SGLang chooses here by itself"
    )
    assert runner.up == "fallback"  # what it would be
    command = (
        "python3",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/m",
        "--enable-deterministic-inference",
    )
    deterministic = explained(qwen(sglang="0.5.12", command=command))
    assert deterministic.unread.startswith("With --enable-deterministic-inference SGLang looks for no file")
    dense = explained(qwen({"architectures": ["LlamaForCausalLM"]}, sglang="0.5.12"))
    assert dense.unread == "The model has no routed experts: no fused-MoE config is read."


def test_what_cannot_be_told_says_why(qwen):
    result = explained(qwen({"architectures": ["NobodysMoeForCausalLM"]}, sglang="0.5.12"))
    assert "NobodysMoeForCausalLM" in result.undecided
    assert result.up_file == ""
