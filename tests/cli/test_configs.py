"""``sgdoctor configs``: list, lint and explain, as an operator sees them at 80 columns."""

from __future__ import annotations

import json
import re

import pytest

TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4}
TABLE = dict.fromkeys(("1", "16", "256", "1024"), TILE)
H200 = "E=128,N=768,device_name=NVIDIA_H200.json"
FP8 = "E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128, 128].json"
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


@pytest.fixture
def here(tmp_path):
    """Write config files and a model; returns the folder for commands to run in."""
    files = {
        f"mine/configs/triton_3_6_0/{H200}": TABLE,
        f"mine/configs/triton_3_6_0/{H200.replace('.json', '_down.json')}": {**TABLE, "64": TILE},
        f"mine/configs/triton_3_5_1/{FP8}": {**TABLE, "256": {**TILE, "BLOCK_SIZE_K": 256}},
        "mine/configs/triton_3_5_1/E=8,N=8,device_name=X,block_shape=[128,128].json": TABLE,
        "qwen3/config.json": QWEN,
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


def out(done, code=0):
    assert (done.returncode, done.stderr) == (code, "")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    return done.stdout


# --- list -----------------------------------------------------------------------------------------------


def test_the_files_of_a_folder(sgdoctor, here):
    assert (
        out(sgdoctor("configs", "list", "mine", cwd=here))
        == """\
NVIDIA_H100_80GB_HBM3
  family  triton  shape        dtype     block       files
  moe     3.5.1   E=128 N=768  fp8_w8a8  [128, 128]  up

NVIDIA_H200
  family  triton  shape        files
  moe     3.6.0   E=128 N=768  up, down

mine/configs/triton_3_5_1/E=8,N=8,device_name=X,block_shape=[128,128].json is a
name that SGLang never looks for: it asks for
E=8,N=8,device_name=X,block_shape=[128, 128].json

4 files
"""
    )


def test_what_a_release_ships(sgdoctor):
    asked = ("configs", "list", "--sglang", "0.5.12", "--device", "h200", "--triton", "3.5.1")
    assert "  lora    3.5.1   K=4096 R=64 S=3  expand\n" in out(sgdoctor(*asked, "--family", "lora"))
    shown = out(sgdoctor(*asked, "--family", "moe"))
    assert shown.startswith(
        "NVIDIA_H200\n  family  triton  shape        dtype                 block       files\n"
    )
    assert "  moe     3.5.1   E=257 N=256  fp8_w8a8              [128, 128]  up, down\n" in shown
    gemm = out(sgdoctor("configs", "list", "--sglang", "0.5.23", "--device", "L40S", "--family", "gemm"))
    assert (
        gemm
        == """\
NVIDIA_L40S
  family  shape           dtype
  gemm    N=4096 K=4096   fp8_w8a8_channelwise
  gemm    N=4096 K=12288  fp8_w8a8_channelwise
  gemm    N=6144 K=4096   fp8_w8a8_channelwise
  gemm    N=24576 K=4096  fp8_w8a8_channelwise

4 files
"""
    )


def test_nothing_of_that_device(sgdoctor):
    assert out(sgdoctor("configs", "list", "--sglang", "0.5.12", "--device", "TPU")) == "0 files\n"


# --- lint -----------------------------------------------------------------------------------------------


def test_a_lint_exits_with_1_and_says_why(sgdoctor, here):
    assert (
        out(sgdoctor("configs", "lint", "mine", cwd=here), code=1)
        == """\
mine as SGLang 0.5.23 reads it (the newest known; --sglang names another)
moe      4 files in configs

error    block-k
  triton_3_5_1/E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,
  block_shape=[128, 128].json
         has BLOCK_SIZE_K 256 at M = 256, which does not divide the quantization
         block of 128: wrong scales are applied there, so the results are wrong

warning  name-never-read
  triton_3_5_1/E=8,N=8,device_name=X,block_shape=[128,128].json
         is a name that SGLang never looks for: it asks for
         E=8,N=8,device_name=X,block_shape=[128, 128].json

1 error, 1 warning, 1 info (-v shows it).
"""
    )


def test_what_is_only_worth_knowing_with_v(sgdoctor, here):
    path = f"mine/configs/triton_3_6_0/{H200}"
    done = sgdoctor("configs", "lint", "mine/configs/triton_3_6_0", "--sglang", "0.5.12", "-v", cwd=here)
    assert (
        out(done)
        == """\
mine/configs/triton_3_6_0 as SGLang 0.5.12 reads it
moe      2 files in mine/configs/triton_3_6_0

info     keys-differ
  E=128,N=768,device_name=NVIDIA_H200_down.json
         has other keys than the up file beside it (in one of the two: M = 64)

0 errors, 0 warnings, 1 info.
"""
    )
    assert (
        out(sgdoctor("configs", "lint", path, "--sglang", "0.5.12", cwd=here))
        == f"""\
{path} as SGLang
0.5.12 reads it

0 errors, 0 warnings, 0 infos.
"""
    )


def test_a_release_that_is_not_known_is_judged_by_the_one_before_it(sgdoctor, here):
    done = sgdoctor("configs", "lint", "mine/configs/triton_3_6_0", "--sglang", "0.5.14.dev3", cwd=here)
    first, second, *_ = out(done).splitlines()
    assert f"{first} {second}" == (
        "mine/configs/triton_3_6_0 as SGLang 0.5.13.post1 reads it (the newest release known that is not "
        "after 0.5.14.dev3)"
    )


@pytest.mark.parametrize(
    ("path", "fail_on", "code"),
    [
        ("mine", "error", 1),
        ("mine", "never", 0),
        ("mine/configs/triton_3_6_0", "error", 0),
        ("mine/configs/triton_3_6_0", "warning", 0),
        ("mine/configs/triton_3_6_0", "info", 1),
    ],
)
def test_exit_codes_follow_fail_on(sgdoctor, here, path, fail_on, code):
    assert sgdoctor("configs", "lint", path, "--fail-on", fail_on, cwd=here).returncode == code


def test_a_file_that_cannot_be_read_is_3_unless_something_is_wrong(sgdoctor, here):
    (here / "mine" / "configs" / "triton_3_6_0" / "E=1,N=1,device_name=X.json").mkdir()
    done = sgdoctor("configs", "lint", "mine/configs/triton_3_6_0", cwd=here)
    assert "could not be read: mine/configs/triton_3_6_0/E=1,N=1,device_name=X.json:" in done.stdout
    assert done.returncode == 3
    assert sgdoctor("configs", "lint", "mine", cwd=here).returncode == 1


def test_a_lint_as_json(sgdoctor, here):
    done = sgdoctor("configs", "lint", "mine", "--sglang", "0.5.12", "--format", "json", cwd=here)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert {key: told[key] for key in ("schema", "path", "sglang", "sglang_assumed", "files", "summary")} == {
        "schema": "sgdoctor-configs-lint-1",
        "path": "mine",
        "sglang": "0.5.12",
        "sglang_assumed": False,
        "files": 4,
        "summary": {"errors": 1, "warnings": 1, "infos": 1},
    }
    assert [each["code"] for each in told["problems"]] == ["block-k", "name-never-read", "keys-differ"]
    assert told["problems"][0]["file"] == f"mine/configs/triton_3_5_1/{FP8}"


# --- explain --------------------------------------------------------------------------------------------


def test_which_file_and_why(sgdoctor, here):
    done = sgdoctor(
        "configs",
        "explain",
        "--sglang",
        "0.5.12",
        "--model",
        "qwen3",
        "--gpu",
        "H200:2",
        "--tp",
        "2",
        cwd=here,
    )
    assert (
        out(done)
        == """\
qwen3 · SGLang 0.5.12 · Triton 3.6.0 · 2 x NVIDIA H200 · TP 2

up       E=128,N=384,device_name=NVIDIA_H200.json
down     E=128,N=384,device_name=NVIDIA_H200_down.json
in       sglang/srt/layers/moe/moe_runner/triton_utils/configs

     folder        up       down
  1  triton_3_6_0  has not  has not               the installed Triton's
  2  triton_3_5_1  has not  has not
  3  triton_3_4_0  has not  has not
  4  triton_3_3_1  has not  has not
  5  triton_3_3_0  has not  has not
  6  triton_3_2_0  has it   has not  used for up
  7  triton_3_1_0  has not  has not

up       from triton_3_2_0, tuned with another Triton than the installed one
down     the up projection's config: no folder that this release looks into has
         the file
"""
    )


def test_a_folder_of_ones_own(sgdoctor, here):
    done = sgdoctor(
        *("configs", "explain", "mine", "--sglang", "0.5.12", "--model", "qwen3", "--gpu", "H200"),
        *("--", "python3", "-m", "sglang.launch_server", "--model-path", "/models/m"),
        cwd=here,
    )
    assert done.returncode == 0
    assert (
        re.sub(r"in\s+/\S+", "in FOLDER", done.stdout)
        == """\
m · SGLang 0.5.12 · Triton 3.6.0 · 1 x NVIDIA H200 · TP 1

up       E=128,N=768,device_name=NVIDIA_H200.json
down     E=128,N=768,device_name=NVIDIA_H200_down.json
in FOLDER

     folder        up       down
  1  triton_3_6_0  has it   has it   used for up and down  the installed Triton's
  2  triton_3_5_1  has not  has not

up       from triton_3_6_0, the installed Triton's
down     from triton_3_6_0, the installed Triton's

info     E=128,N=768,device_name=NVIDIA_H200_down.json has other keys than the
         up file in use (in one of the two: M = 64)
"""
    )


def test_experts_that_read_no_file(sgdoctor, here):
    config = {**QWEN, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    (here / "qwen3" / "config.json").write_text(json.dumps(config))
    done = sgdoctor("configs", "explain", "--sglang", "0.5.23", "--model", "qwen3", "--gpu", "B200", cwd=here)
    assert done.returncode == 0
    assert done.stdout.startswith("""\
qwen3 · SGLang 0.5.23 · Triton 3.8.0 · 1 x NVIDIA B200 · TP 1

The experts run on flashinfer_trtllm, which SGLang chooses here by itself: it
reads none of these files. With --moe-runner-backend triton the lookup would be
this.
""")


def test_what_cannot_be_told_is_3(sgdoctor, here):
    (here / "qwen3" / "config.json").write_text(json.dumps({"architectures": ["Nobodys"], "num_experts": 8}))
    done = sgdoctor("configs", "explain", "--sglang", "0.5.12", "--model", "qwen3", "--gpu", "H200", cwd=here)
    assert done.returncode == 3
    assert "Which file it would be cannot be told: " in done.stdout


@pytest.mark.parametrize("name", ["list", "lint", "explain"])
def test_help_fits_into_80_columns(sgdoctor, name):
    assert out(sgdoctor("configs", name, "--help")).startswith(f"Usage: sgdoctor configs {name}")


# --- mistakes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("lint", "nowhere"), "nowhere: no such file, folder or program"),
        (("lint", "qwen3"), "qwen3: neither a virtual environment nor a folder of installed packages"),
        (("lint", "mine", "--sglang", "x"), "--sglang x: no release that sgdoctor knows (0.5.7 to "),
        (("list", "--sglang", "0.4.6"), "--sglang 0.4.6: no release that sgdoctor knows"),
        (("explain", "mine", "--model", "qwen3", "--gpu", "H200"), "name it with --sglang"),
        (("explain", "--sglang", "0.5.12", "--model", "nowhere", "--gpu", "H200"), "nowhere: No such file"),
        (("explain", "--sglang", "0.5.12", "--gpu", "H200"), "missing option '--model'"),
        (("explain", "--sglang", "0.5.12", "--model", "qwen3", "--gpu", "H200", "--"), "nothing behind --"),
        (("explain", "--sglang", "0.5.12", "--model", "qwen3", "--gpu", "H"), "--gpu H: "),
    ],
)
def test_mistakes_are_2_in_one_line(sgdoctor, here, arguments, said):
    done = sgdoctor("configs", *arguments, cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_an_sglang_here_there_is_nothing_to_look_at(sgdoctor, here):
    done = sgdoctor("configs", "lint", cwd=here, PATH=str(here), VIRTUAL_ENV="", CONDA_PREFIX="")
    assert (done.returncode, done.stdout) == (3, "")
    assert "python3 on PATH has no SGLang" in done.stderr
