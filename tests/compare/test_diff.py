"""What `sgdoctor diff` finds between two recordings, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import sgdoctor
from sgdoctor import examine
from sgdoctor.compare.model import Diff, Difference, exit_code
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.sources import Sources
from tests.compare.recordings import CAPTURES, SCENARIO, answer, recorded


def of(diff: Diff, kind: str, subject: str = "") -> Difference:
    [found] = [each for each in diff.differences if each.kind == kind and subject in each.subject]
    return found


# --- the deployment this project was born from --------------------------------------------------------------


def test_the_second_attempt_made_it_worse_and_no_cause_is_made_up():
    found = sgdoctor.diff(SCENARIO / "before.json", SCENARIO / "after.json")
    running = of(found, "capacity", "kv.max_running_requests")
    assert (running.before, running.after, running.verdict) == ("48", "26", "worse")
    assert running.percent == pytest.approx(-45.83)
    assert of(found, "capacity", "kv.tokens").verdict == "worse"
    assert of(found, "graphs").verdict == "worse"
    assert of(found, "flag").subject == "--enable-flashinfer-allreduce-fusion"
    assert [each.together_with for each in found.differences] == [[], [], [], []]
    assert [each.verdict for each in found.differences] == ["worse", "worse", "worse", "changed"]
    assert exit_code(found) == 1


def test_back_again_it_is_better():
    found = sgdoctor.diff(SCENARIO / "after.json", SCENARIO / "before.json")
    assert (found.totals.worse, found.totals.better) == (0, 3)
    assert exit_code(found) == 0


@pytest.mark.parametrize("name", ["moe-no-config", "kv-pool-full", "allreduce-fusion-tp1"])
def test_a_file_against_itself(name: str):
    file = CAPTURES / name / "server_info.json"
    found = sgdoctor.diff(file, file)
    assert found.differences == []
    assert found.notes == []
    assert exit_code(found) == 0


def test_two_models_on_one_machine():
    """The random seed differs, too, and is no change; 0.1% more KV cache is within the tolerance."""
    found = sgdoctor.diff(
        CAPTURES / "moe-no-config" / "server_info.json", CAPTURES / "moe-fallback-config" / "server_info.json"
    )
    assert [each.subject for each in found.differences if not each.minor] == ["model.path"]
    assert any("different models" in note for note in found.notes)
    assert of(found, "capacity").minor
    assert exit_code(found) == 0


def test_a_tolerance_of_nothing_takes_every_loss():
    before = CAPTURES / "moe-fallback-config" / "server_info.json"
    after = CAPTURES / "moe-no-config" / "server_info.json"
    assert exit_code(sgdoctor.diff(before, after)) == 0
    assert exit_code(sgdoctor.diff(before, after, tolerance=0)) == 1


# --- causes that SGLang's source knows ----------------------------------------------------------------------


def test_what_is_computed_from_a_flag_is_told_with_it(tmp_path: Path):
    before = answer(tmp_path, "before", max_total_num_tokens=9000, mem_fraction_static=0.5)
    after = answer(tmp_path, "after", max_total_num_tokens=7000, mem_fraction_static=0.4)
    found = sgdoctor.diff(before, after)
    assert of(found, "capacity").together_with == ["--mem-fraction-static 0.5 to 0.4"]


def test_not_set_to_64_is_not_how_a_flag_that_was_set_reads():
    found = sgdoctor.diff(
        CAPTURES / "dense-healthy" / "server_info.json", CAPTURES / "kv-pool-full" / "server_info.json"
    )
    flag = of(found, "flag", "--max-running-requests")
    assert flag.message == "--max-running-requests: not set before, now 64."
    running = of(found, "capacity", "kv.max_running_requests")
    assert running.together_with == ["--max-running-requests not set before, now 64"]


def test_a_flag_that_has_no_part_in_it_is_not_told_with_it(tmp_path: Path):
    before = answer(tmp_path, "before", max_total_num_tokens=9000, log_level="info")
    after = answer(tmp_path, "after", max_total_num_tokens=7000, log_level="warning")
    found = sgdoctor.diff(before, after)
    assert of(found, "capacity").together_with == []
    assert of(found, "flag").subject == "--log-level"


def test_what_switches_piecewise_graphs_off_by_itself(tmp_path: Path):
    before = answer(tmp_path, "before", disable_piecewise_cuda_graph=False)
    after = answer(tmp_path, "after", disable_piecewise_cuda_graph=True, enable_torch_compile=True)
    assert of(sgdoctor.diff(before, after), "graphs").together_with == [
        "--enable-torch-compile (SGLang 0.5.12 then does without)"
    ]


# --- flags: asked for, changed by themselves, or nobody knows -----------------------------------------------


def launched(folder: Path, name: str, words: str, **changes: object) -> Path:
    """Write an answer as of 0.5.20, which gives the launch command."""
    return answer(
        folder, name, version="0.5.20", launch_command=f"--model-path /models/dense {words}", **changes
    )


def test_a_flag_asked_for(tmp_path: Path):
    before = launched(tmp_path, "before", "--schedule-policy fcfs", schedule_policy="fcfs")
    after = launched(tmp_path, "after", "--schedule-policy lpm", schedule_policy="lpm")
    found = of(sgdoctor.diff(before, after), "flag-asked")
    assert found.message == "--schedule-policy, asked for: fcfs to lpm."


def test_a_flag_asked_for_without_effect(tmp_path: Path):
    before = launched(tmp_path, "before", "", schedule_policy="fcfs")
    after = launched(tmp_path, "after", "--schedule-policy fcfs", schedule_policy="fcfs")
    found = of(sgdoctor.diff(before, after), "flag-asked")
    assert (
        found.message
        == "--schedule-policy, asked for: not written before, now fcfs; in effect it is fcfs as before."
    )


def test_a_flag_that_changed_by_itself(tmp_path: Path):
    before = launched(tmp_path, "before", "", disable_overlap_schedule=False)
    after = launched(tmp_path, "after", "", disable_overlap_schedule=True)
    found = of(sgdoctor.diff(before, after), "flag-itself")
    assert found.message == "--disable-overlap-schedule: off to on with the same launch command."


def test_a_flag_that_changed_by_itself_is_told_with_the_one_that_does_that(tmp_path: Path):
    """Deterministic inference over several GPUs switches custom all-reduce off."""
    asked = {"asked__disable_custom_all_reduce": None, "asked__tp_size": 2, "gpu__name": "NVIDIA H200"}
    before, after = (
        recorded(
            tmp_path,
            name,
            sglang__version="0.5.12",
            arg__enable_deterministic_inference=on,
            arg__disable_custom_all_reduce=on,
            **asked,
        )
        for name, on in (("before", False), ("after", True))
    )
    found = of(sgdoctor.diff(before, after), "flag-itself", "--disable-custom-all-reduce")
    assert found.together_with == ["--enable-deterministic-inference off to on"]


def test_graphs_switched_off_in_a_newer_release(tmp_path: Path):
    on = {"decode": {"backend": "full"}, "prefill": {"backend": "breakable"}}
    off = {"decode": {"backend": "disabled"}, "prefill": {"backend": "breakable"}}
    before = launched(tmp_path, "before", "", cuda_graph_config=on)
    after = launched(tmp_path, "after", "--disable-decode-cuda-graph", cuda_graph_config=off)
    found = of(sgdoctor.diff(before, after), "graphs")
    assert found.message == "CUDA graphs for decode: switched off (--cuda-graph-config)."
    assert found.together_with == ["--disable-decode-cuda-graph, asked for"]


def test_graphs_of_two_releases_that_have_different_flags_for_them(tmp_path: Path):
    config = {"decode": {"backend": "full"}, "prefill": {"backend": "breakable"}}
    before = answer(tmp_path, "before", disable_piecewise_cuda_graph=False)
    after = launched(tmp_path, "after", "", cuda_graph_config=config)
    assert not [each for each in sgdoctor.diff(before, after).differences if each.kind == "graphs"]


def test_an_older_release_against_a_newer_one(tmp_path: Path):
    """The fusion flag of 0.5.9 is folded into another in 0.5.16 and reads false there: no change."""
    before = recorded(
        tmp_path,
        "before",
        sglang__version="0.5.9",
        arg__tp_size=4,
        arg__enable_flashinfer_allreduce_fusion=True,
        arg__moe_runner_backend="auto",
    )
    after = recorded(
        tmp_path,
        "after",
        sglang__version="0.5.16",
        arg__tp_size=4,
        arg__enable_flashinfer_allreduce_fusion=False,
        arg__moe_runner_backend="triton",
    )
    found = sgdoctor.diff(before, after)
    assert of(found, "version").message == "SGLang: 0.5.9 to 0.5.16."
    assert not [each for each in found.differences if "allreduce" in each.subject]
    assert of(found, "flag", "--moe-runner-backend").minor


def test_what_the_scheduler_settled_is_not_held_against_a_banner(tmp_path: Path):
    """The banner of one server has what the launcher printed, /server_info what the scheduler made of it."""
    banner = recorded(tmp_path, "banner", "log", sglang__version="0.5.12", arg__attention_backend="triton")
    settled = answer(tmp_path, "settled", attention_backend="triton")
    said = json.loads(settled.read_text())
    said["internal_states"][0]["attention_backend"] = "fa3"
    settled.write_text(json.dumps(said))
    assert not [each for each in sgdoctor.diff(banner, settled).differences if each.kind == "flag"]
    other = answer(tmp_path, "other", attention_backend="flashinfer")
    assert of(sgdoctor.diff(banner, other), "flag").subject == "--attention-backend"


# --- snapshots ----------------------------------------------------------------------------------------------


def test_a_snapshot_against_an_answer(tmp_path: Path):
    before = recorded(tmp_path, "before", sglang__version="0.5.12", kv__tokens=16384, arg__tp_size=1)
    found = sgdoctor.diff(before, CAPTURES / "kv-pool-full" / "server_info.json")
    assert (found.before.kind, found.after.kind) == ("snapshot", "server_info")
    assert of(found, "capacity").percent == -50


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ("exact", "default", "worse"),
        ("fallback", "default", "worse"),
        ("default", "fallback", "better"),
        ("default", "exact", "better"),
    ],
)
def test_where_the_kernel_config_comes_from(tmp_path: Path, before: str, after: str, verdict: str):
    files = [
        recorded(tmp_path, name, "log", sglang__version="0.5.12", moe__up__source=source)
        for name, source in (("before", before), ("after", after))
    ]
    assert of(sgdoctor.diff(*files), "config").verdict == verdict


def speed(folder: Path, name: str, throughput: float, running: float) -> Path:
    return recorded(
        folder,
        name,
        "log",
        sglang__version="0.5.12",
        kv__tokens=100_000,
        log__decode_throughput=throughput,
        log__running_requests=running,
        log__token_usage=0.01 * running,
    )


def test_slower_at_the_same_load(tmp_path: Path):
    found = sgdoctor.diff(speed(tmp_path, "before", 2000.0, 32.0), speed(tmp_path, "after", 1500.0, 31.0))
    assert of(found, "speed").verdict == "worse"


def test_fewer_tokens_a_second_for_fewer_requests_is_not_slower(tmp_path: Path):
    found = sgdoctor.diff(speed(tmp_path, "before", 2000.0, 32.0), speed(tmp_path, "after", 150.0, 1.0))
    assert of(found, "speed").verdict == "changed"
    assert exit_code(found) == 0


def test_parts_that_changed(tmp_path: Path):
    before = recorded(
        tmp_path,
        "before",
        "environment",
        sglang__version="0.5.12",
        triton__version="3.5.1",
        host__driver="570.86.10",
        gpu__name="NVIDIA H100 80GB HBM3",
        package__flashinfer_python="0.6.7",
        package__numpy="2.2.0",
        env__CUDA_VISIBLE_DEVICES="0,1",
    )
    after = recorded(
        tmp_path,
        "after",
        "environment",
        sglang__version="0.5.12",
        triton__version="3.6.0",
        host__driver="580.65.6",
        gpu__name="NVIDIA H200",
        package__flashinfer_python="0.6.8",
        package__numpy="2.3.0",
        env__CUDA_VISIBLE_DEVICES="2,3",
    )
    found = sgdoctor.diff(before, after)
    plain = [each for each in found.differences if not each.kind.startswith("finding")]
    assert [each.message for each in plain if not each.minor] == [
        "GPU: H100 80GB HBM3 to H200.",
        "Triton: 3.5.1 to 3.6.0.",
        "FlashInfer: 0.6.7 to 0.6.8.",
        "NVIDIA driver: 570.86.10 to 580.65.6.",
        "CUDA_VISIBLE_DEVICES: 0,1 to 2,3.",
    ]
    assert [each.message for each in plain if each.minor] == ["numpy: 2.2.0 to 2.3.0."]


def test_a_finding_that_appeared_and_one_that_went_away(tmp_path: Path):
    facts = {"sglang__version": "0.5.12", "log__died": False}
    good = recorded(tmp_path, "good", "log", **facts, kv__tokens=50_000, kv__context_length=40_960)
    bad = recorded(tmp_path, "bad", "log", **facts, kv__tokens=49_000, kv__context_length=65_536)
    found = of(sgdoctor.diff(good, bad), "finding-appeared", "MEM103")
    assert (found.verdict, found.before, found.after) == ("worse", "passed", "found")
    gone = of(sgdoctor.diff(bad, good), "finding-gone", "MEM103")
    assert gone.verdict == "better"
    assert gone.message.startswith("MEM103 (warning): No longer found: ")


def test_a_finding_that_could_not_be_decided_before_is_no_change_for_the_worse(tmp_path: Path):
    before = recorded(tmp_path, "before", "log", sglang__version="0.5.12", arg__tp_size=1)
    after = recorded(
        tmp_path, "after", "log", sglang__version="0.5.12", kv__tokens=8192, kv__context_length=40_960
    )
    found = of(sgdoctor.diff(before, after), "finding-appeared", "MEM103")
    assert found.verdict == "changed"
    assert "could not be decided" in found.message


# --- files that are none ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("garbage", "not JSON"),
        ('{"version": "0.5.12", "tp_', "not JSON"),
        ("[1, 2]", "neither a snapshot nor an answer of /server_info"),
        ('{"schema": "sgdoctor-report-1"}', "neither a snapshot nor an answer of /server_info"),
        ('{"format": "sgdoctor-snapshot", "version": 99}', "written by a newer sgdoctor"),
        ('{"format": "sgdoctor-snapshot", "version": 1}', "missing required field"),
        ("\xff\x00", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_that_is_neither(tmp_path: Path, text: str, message: str):
    file = tmp_path / "after.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as raised:
        sgdoctor.diff(SCENARIO / "before.json", file)
    assert str(raised.value).startswith(str(file))


def test_a_truncated_snapshot(tmp_path: Path):
    file = recorded(tmp_path, "after", sglang__version="0.5.12", arg__tp_size=1)
    file.write_text(file.read_text()[:-40])
    with pytest.raises(UsageError, match="not JSON"):
        sgdoctor.diff(file, file)


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(UsageError, match="No such file"):
        sgdoctor.diff(tmp_path / "gone.json", SCENARIO / "after.json")


def test_a_refusal_is_no_answer():
    with pytest.raises(Undecided, match="needs its API key"):
        sgdoctor.diff(CAPTURES / "api-key-set" / "server_info.json", SCENARIO / "after.json")


@pytest.mark.parametrize("tolerance", [-1, 100, float("nan")])
def test_a_tolerance_that_is_none(tolerance: float):
    with pytest.raises(UsageError, match="--tolerance"):
        sgdoctor.diff(SCENARIO / "before.json", SCENARIO / "after.json", tolerance=tolerance)


def test_nothing_in_common(tmp_path: Path):
    before = recorded(tmp_path, "before", "host", host__arch="x86_64")
    found = sgdoctor.diff(before, SCENARIO / "after.json")
    assert found.totals.compared == 0
    assert exit_code(found) == 3


def test_a_copy_under_another_name_is_the_same(tmp_path: Path):
    shutil.copy(SCENARIO / "before.json", tmp_path / "copy.json")
    assert sgdoctor.diff(SCENARIO / "before.json", tmp_path / "copy.json").differences == []


def test_a_config_that_was_installed_between_two_snapshots(tmp_path: Path):
    """A snapshot holds what lay in the folder when it was taken, not what lies there when it is read."""
    configs = tmp_path / "moe" / "configs" / "triton_3_6_0"
    configs.mkdir(parents=True)
    script = tmp_path / "launch.sh"
    script.write_text(
        f"export SGLANG_MOE_CONFIG_DIR={tmp_path / 'moe'}\n{(SCENARIO / 'launch.sh').read_text()}"
    )
    sources = Sources(
        launch=str(script),
        model=str(SCENARIO / "config.json"),
        environment=str(SCENARIO / "environment.json"),
    )
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(examine.snapshot(sources))
    name = "E=256,N=256,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition{}.json"
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    for down in ("", "_down"):
        (configs / name.format(down)).write_text(
            json.dumps({"1": {**config, "num_warps": 4, "num_stages": 2}})
        )
    after.write_text(examine.snapshot(sources))
    found = sgdoctor.diff(before, after)
    up = of(found, "config", "moe.up.source")
    assert up.verdict == "better"
    assert up.after == "a file for this Triton (Triton 3.6.0)"
    assert of(found, "finding-gone", "CFG101").verdict == "better"
    assert exit_code(found) == 0
    assert exit_code(sgdoctor.diff(after, before)) == 1


def test_the_throughput_of_an_answer_says_nothing_of_the_load(tmp_path: Path):
    """SGLang divides by the time since its report before: a pause makes the first one after it tiny."""
    before = recorded(tmp_path, "before", sglang__version="0.5.12", server__decode_throughput=2000.0)
    after = recorded(tmp_path, "after", sglang__version="0.5.12", server__decode_throughput=80.0)
    found = sgdoctor.diff(before, after)
    assert of(found, "speed").verdict == "changed"
    assert exit_code(found) == 0


@pytest.mark.parametrize(
    ("running", "prompts", "verdict"),
    [(32.0, 6400, "worse"), (80.0, 6400, "changed"), (32.0, 64000, "changed")],
)
def test_slower_answers_at_the_same_load_and_at_another(
    tmp_path: Path, running: float, prompts: int, verdict: str
):
    before, after = (
        recorded(
            tmp_path,
            name,
            "metrics",
            sglang__version="0.5.12",
            kv__tokens=100_000,
            window__first_token_seconds=seconds,
            window__running_requests=requests,
            window__token_usage=0.01 * requests,
            window__prompt_tokens=tokens,
            window__finished_requests=64,
        )
        for name, seconds, requests, tokens in (
            ("before", 0.25, 32.0, 6400),
            ("after", 0.5, running, prompts),
        )
    )
    found = of(sgdoctor.diff(before, after), "speed", "window.first_token_seconds")
    assert found.verdict == verdict
    assert found.message.startswith("Time to the first token: 0.25 to 0.5 s (+100.0%)")
