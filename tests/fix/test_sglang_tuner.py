"""SGLang's own tuner found, run, watched and ended; a stand-in checkout does what the real one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from sgdoctor.errors import Undecided, UsageError
from sgdoctor.fix import sglang_tuner
from sgdoctor.fix.sglang_tuner import Checkout, Model, find, run, visible
from sgdoctor.fix.sglang_tuner_output import Reading
from tests.fix.jobs import INT4, fp8_job, int4_job, job

CHECKOUT = Path(__file__).parent / "stand_in_checkout"
STAND_IN = Checkout(CHECKOUT / sglang_tuner.FOLDER, "--sglang-source")


def tune(output: Path, what=None, model: Model | None = None, gpus=("0",), **options):
    return run(
        STAND_IN, what or job(), model or Model(), gpus=gpus, python=sys.executable, output=output, **options
    )


def asked(output: Path, tokens: int = 1) -> dict:
    (found,) = output.glob(f"sglang-*/tokens-{tokens}/asked.json")
    return json.loads(found.read_text())


def test_the_checkout_is_found_where_it_is_named() -> None:
    for named in (CHECKOUT, CHECKOUT / sglang_tuner.FOLDER):
        assert find(named, None).script == STAND_IN.script


def test_an_editable_install_has_its_tuner_beside_it(tmp_path: Path) -> None:
    package = CHECKOUT / "python" / "sglang"  # as the fact sglang.path names it
    assert find(None, package).script == STAND_IN.script
    with pytest.raises(
        UsageError, match=r"no wheel has it.*--sglang-source DIR, or leave out --tuner sglang"
    ):
        find(None, tmp_path / "site-packages" / "sglang")


def test_a_folder_without_the_tuner_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no source checkout of SGLang"):
        find(tmp_path, None)


def test_every_batch_size_is_tuned_and_its_file_kept(tmp_path: Path) -> None:
    said = []
    written = tune(tmp_path, listen=said.append)
    assert [file.name for file in written.files] == ["E=256,N=256,device_name=NVIDIA_H200.json"] * 3
    assert [list(json.loads(file.read_text())) for file in written.files] == [["1"], ["16"], ["64"]]
    assert not written.notes
    assert (said[-1].done, said[-1].total) == (3 * 1920, 3 * 1920)
    done = [progress.done for progress in said]
    assert done == sorted(done)
    assert said[-1].seconds_left == 0
    log = written.files[0].with_name("log.txt").read_text()
    assert log.startswith("Start tuning over 1920 configurations")


def test_the_child_gets_one_gpu_and_a_ray_of_its_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # a cluster that is somebody else's
    monkeypatch.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    tune(tmp_path, gpus=["2", "5"])
    environment = asked(tmp_path)["environment"]
    assert environment == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "2",
        "RAY_ADDRESS": "local",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    assert asked(tmp_path, 16)["environment"]["CUDA_VISIBLE_DEVICES"] == "5"


def test_the_flags_are_those_of_the_deployment(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    config = {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 128, "moe_intermediate_size": 1536}
    config["quantization_config"] = {"weight_block_size": [128, 128]}
    (model / "config.json").write_text(json.dumps(config))
    written = tune(tmp_path / "out", fp8_job(), Model(model, tp=2))
    expected = f"--model {model} --tp-size 2 --ep-size 1 --dtype fp8_w8a8 --tune --batch-size 1"
    assert asked(tmp_path / "out")["flags"] == expected.split(" ")
    assert written.files[0].name == fp8_job().up_file


def test_without_a_model_one_of_just_this_shape_is_made(tmp_path: Path) -> None:
    written = tune(tmp_path, fp8_job())
    assert written.files[0].name == fp8_job().up_file
    made = json.loads(next(tmp_path.glob("sglang-*/model/config.json")).read_text())
    assert (made["num_experts"], made["num_experts_per_tok"], made["moe_intermediate_size"]) == (128, 8, 768)
    group = sglang_tuner.made_config(INT4)["quantization_config"]["config_groups"]["group_0"]
    assert group["weights"]["group_size"] == 128


@pytest.mark.parametrize(("experts", "apart"), [(256, True), (257, False)])
def test_a_shared_expert_is_counted_as_the_server_counts_it(tmp_path: Path, experts, apart) -> None:
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "n_routed_experts": 256,
        "moe_intermediate_size": 256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    problem = sglang_tuner.Problem(experts=experts, width=256, hidden=7168, topk=8)
    what = job(problem, f"E={experts},N=256,device_name=NVIDIA_H200", batch_sizes=(1,))
    written = tune(tmp_path / "out", what, Model(tmp_path / "config.json"))
    assert ("--disable-shared-experts-fusion" in asked(tmp_path / "out")["flags"]) == apart
    assert written.files[0].name == what.up_file


@pytest.mark.parametrize(
    ("trouble", "kind", "text"),
    [
        (
            "import",
            UsageError,
            r"cannot be imported .*No module named 'sglang_of_another_release'.*checkout of",
        ),
        ("ray", UsageError, "Ray is not installed; .*leave out --tuner sglang"),
        ("no GPU", UsageError, "Ray found no GPU"),
        ("out of memory", Undecided, "memory is full; stop what else runs on it"),
        ("CUDA error", Undecided, r"CUDA error: an illegal memory access was encountered\)"),
        ("killed", Undecided, "was killed .SIGKILL.: the host's memory may be full"),
        ("nothing ran", Undecided, "none of its configurations ran"),
        ("no file", Undecided, "ended without writing a file"),
        ("half a file", Undecided, "ended without writing a file"),
        ("strange", Undecided, r"ended with status 1 \(ZeroDivisionError: division by zero\)"),
    ],
)
def test_a_failure_is_one_line_with_its_cause_and_the_log(tmp_path, monkeypatch, trouble, kind, text) -> None:
    monkeypatch.setenv("STAND_IN", trouble)
    with pytest.raises(kind, match=text) as caught:
        tune(tmp_path)
    assert "at batch size 1: " in str(caught.value)
    log = Path(str(caught.value).rpartition("(log: ")[2].rstrip(")"))
    assert log.is_file()
    assert "\n" not in str(caught.value)


def test_an_architecture_that_the_tuner_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["NewMoeForCausalLM"]}))
    with pytest.raises(UsageError, match="does not know this model's architecture"):
        tune(tmp_path / "out", model=Model(tmp_path))


def test_a_dtype_that_the_checkout_does_not_take(tmp_path: Path) -> None:
    folder = tmp_path / sglang_tuner.FOLDER
    folder.mkdir(parents=True)
    for file in STAND_IN.folder.glob("*.py"):
        (folder / file.name).write_text(file.read_text().replace(', "int4_w4a16"]', "]"))
    old = find(tmp_path, None)
    with pytest.raises(
        UsageError, match=r"does not take what is asked of it \(argument --dtype: invalid choice"
    ):
        run(old, int4_job(), Model(), gpus=["0"], python=sys.executable, output=tmp_path / "out")


def test_what_went_well_before_a_failure_is_kept_and_not_run_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("STAND_IN", "CUDA error")
    monkeypatch.setenv("FAILS_AT", "16")
    written = tune(tmp_path)
    assert [list(json.loads(file.read_text())) for file in written.files] == [["1"], ["64"]]
    assert [note.partition(": ")[0] for note in written.notes] == ["SGLang's tuner failed at batch size 16"]
    first = asked(tmp_path)["pid"]
    monkeypatch.setenv("STAND_IN", "")
    assert len(tune(tmp_path).files) == 3
    assert asked(tmp_path)["pid"] == first


def test_another_kernel_is_not_resumed(tmp_path: Path, monkeypatch) -> None:
    tune(tmp_path)
    monkeypatch.setenv("STAND_IN", "killed")
    assert len(tune(tmp_path).files) == 3  # nothing was run
    with pytest.raises(Undecided, match="killed"):
        tune(tmp_path, job(kernel="fused_moe_triton_kernels.py 5678"))


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("STAND_IN", "hang")
    with pytest.raises(Undecided, match="printed nothing for 3 s and was ended"):
        tune(tmp_path, patience=3.0)
    assert not psutil.pid_exists(asked(tmp_path)["pid"])


@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "we are killed"])
def test_no_child_outlives_us(tmp_path: Path, signalled) -> None:
    program = f"""
        from pathlib import Path
        from tests.fix.test_sglang_tuner import tune
        tune(Path({str(tmp_path)!r}), listen=lambda progress: print(progress.done, flush=True))
    """
    us = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "STAND_IN": "hang"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with us:
        assert us.stdout is not None
        assert us.stdout.readline()  # the tuner is at work
        child = psutil.Process(asked(tmp_path)["pid"])
        us.send_signal(signalled)
        assert us.wait(60) == -signalled
        psutil.wait_procs([child], timeout=60)
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_child_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        run(STAND_IN, job(), Model(), gpus=["0"], python=str(tmp_path / "python"), output=tmp_path)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written: Not a directory"):
        tune(tmp_path / "file")


def test_gpus_are_named_by_index_whatever_they_are_called_here(tmp_path: Path, monkeypatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '0, GPU-aaaa'; echo '1, GPU-bbbb'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert visible(["GPU-bbbb", "0"]) == ["1", "0"]
    with pytest.raises(UsageError, match=r"which GPU GPU-cccc is .it is not listed.: name it by its index"):
        visible(["GPU-cccc"])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=r"which GPU GPU-bbbb is .nvidia-smi: No such file"):
        visible(["GPU-bbbb"])


@pytest.mark.parametrize(
    "printed",
    [
        " 25%|##   | 480/1920 [02:10<39:00,  1.30s/it]\r",
        "\x1b[2m\x1b[36m(pid=7) \x1b[0m:  25%|##   | 480.0/1.92k [02:10<39:00, 1.3it/s]\n",
        '__ray_tqdm_magic_token__{"x": 480, "total": 1920, "desc": "", "pid": 7}\n',
    ],
    ids=["tqdm", "Ray's tqdm", "Ray's own lines"],
)
def test_progress_is_read_from_every_kind_of_bar(printed: str) -> None:
    reading = Reading()
    reading.feed("Start tuning over 1920 configurations to create E=1,N=2.json...\n")
    assert reading.file == "E=1,N=2.json"
    assert reading.feed(printed[:20]) is False  # half a line says nothing
    assert reading.feed(printed[20:]) is True
    assert reading.done == 480
    assert reading.feed("Loading shards:  3/7 [00:01<00:01]\n__ray_tqdm_magic_token__{}\n") is False
