"""What another machine has, from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor import snapshot
from sgdoctor.collect import environment
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Unknown

SCENARIO = Path(__file__).parents[1] / "scenarios" / "rtx-pro-6000" / "environment.json"
GPU = {"name": "NVIDIA H200", "compute_capability": "9.0", "memory_mib": 143771}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
PARTS = ("packages", "gpus", "env", "host", "complete")


def read(said: object) -> Facts:
    facts = Facts()
    environment.read_environment(facts, said, "environment.json")
    return facts


def test_the_file_of_a_deployment() -> None:
    facts = Facts()
    environment.read_environment_file(facts, SCENARIO)
    assert facts.value("sglang.version") == "0.5.10"
    assert facts.value("triton.version") == "3.6.0"
    assert facts.value("package.sglang_kernel") == "0.4.1"
    assert facts.value("gpu.name") == "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert facts.value("gpu.count") == 4
    assert facts.value("gpu.shared_memory_bytes") == 101376
    assert facts.get("gpu.name").provenance[0].place == str(SCENARIO)


def test_what_a_partial_list_does_not_name_is_unknown() -> None:
    facts = read({"packages": {"sglang": "0.5.12"}})
    assert facts.value("packages.complete") is False
    assert isinstance(facts.get("package.kernels"), Unknown)
    assert isinstance(facts.get("triton.version"), Unknown)


def test_what_a_complete_list_does_not_name_is_absent() -> None:
    facts = read({"packages": {"sglang": "0.5.12"}, "complete": True})
    assert facts.value("packages.complete") is True
    assert facts.value("package.kernels", "unset") is None
    assert facts.value("triton.version", "unset") is None


def test_null_is_known_not_to_be_installed() -> None:
    facts = read({"packages": {"kernels": None, "sglang": None}})
    assert facts.known("package.kernels")
    assert facts.value("package.kernels") is None
    assert "SGLang is not installed" in facts.get("sglang.version").reason


@pytest.mark.parametrize(
    ("torch", "cuda"),
    [("2.11.0+cu130", "13.0"), ("2.9.1+cu128", "12.8"), ("2.9.1+cpu", None), ("2.9.1+rocm6.4", None)],
)
def test_the_local_part_of_torch_says_what_it_was_built_for(torch: str, cuda: str | None) -> None:
    assert read({"packages": {"torch": torch}}).value("torch.cuda", "unset") == cuda


def test_a_torch_without_local_part_does_not_say_it() -> None:
    assert not read({"packages": {"torch": "2.11.0"}}).known("torch.cuda")


def test_host_and_variables() -> None:
    host = {"driver": "580.159.04", "cuda": "13.0", "shm_mib": 64, "python": "3.12.3", "arch": "aarch64"}
    facts = read({"host": host, "env": {"SGLANG_MOE_CONFIG_DIR": "/configs", "NCCL_DEBUG": None}})
    assert {name: facts.value(f"host.{name}") for name in host} == host
    assert facts.value("env.SGLANG_MOE_CONFIG_DIR") == "/configs"
    assert facts.value("env.NCCL_DEBUG", "unset") is None


def test_variables_that_sgdoctor_does_not_read_and_secrets_are_not_kept() -> None:
    facts = read({"env": {"AWS_REGION": "eu-1", "SGLANG_API_KEY": "planted", "SGLANG_X": "hf_" + "a" * 30}})
    assert not facts.known("env.AWS_REGION")
    assert facts.notes == [
        "environment.json: env.AWS_REGION is no variable that sgdoctor reads; it was left out"
    ]
    assert facts.value("env.SGLANG_API_KEY") == "<redacted>"
    assert facts.value("env.SGLANG_X") == "<redacted>"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([], "the file: expected a mapping, got array"),
        ({}, "describes nothing"),
        ({"package": {}}, "package: no such key"),
        ({"packages": ["sglang"]}, "packages: expected a mapping, got array"),
        ({"packages": {"triton": 3.6}}, 'packages.triton: a version is text ("3.6.0"), not 3.6'),
        ({"packages": {"triton": "latest"}}, "packages.triton: 'latest' is no version"),
        ({"packages": {"a-b": "1", "A_B": "2"}}, "packages.A_B: a-b is listed twice"),
        ({"gpus": GPU}, "gpus: expected array, got object"),
        ({"gpus": [{**GPU, "memory": 1}]}, "gpus[0].memory: no such key"),
        ({"gpus": [GPU, {"name": "X", "memory_mib": 1}]}, "gpus[1].compute_capability: missing"),
        ({"gpus": [{**GPU, "compute_capability": 9.0}]}, "gpus[0].compute_capability: expected str | null"),
        ({"gpus": [{**GPU, "compute_capability": "sm_90"}]}, "'sm_90' is not like \"9.0\""),
        ({"gpus": [{**GPU, "memory_mib": 0}]}, "gpus[0].memory_mib: 0 is no size"),
        ({"gpus": [{**GPU, "index": 0}, {**GPU, "index": 0}]}, "gpus[1].index: 0 is given twice"),
        ({"host": {"shm": 64}}, "host.shm: no such key"),
        ({"host": {"driver": "R580"}}, "host.driver: 'R580' is no version"),
        ({"host": {"shm_mib": "64"}}, "host.shm_mib: expected int"),
        ({"env": {"SGLANG_X": 1}}, "env.SGLANG_X: a variable is text or null, not 1"),
        ({"packages": {"sglang": "0.5.12"}, "complete": "yes"}, "complete: expected bool, got str"),
    ],
)
def test_a_mistake_is_named_with_its_key(said: object, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(said)
    assert str(raised.value).startswith("environment.json: ")
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["{", "packages: {}", "\x00", "[" * 5000])
def test_a_file_that_is_no_json_is_a_usage_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "environment.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"environment\.json: not JSON"):
        environment.read_environment_file(Facts(), file)


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        environment.read_environment_file(Facts(), tmp_path / "gone.json")
    with pytest.raises(UsageError, match="Is a directory; name the file in it"):
        environment.read_environment_file(Facts(), tmp_path)


def test_a_file_that_is_empty_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "environment.json").write_text("\n")
    with pytest.raises(UsageError, match=r"environment\.json: is empty: no description of an environment"):
        environment.read_environment_file(Facts(), tmp_path / "environment.json")


@given(JSON | st.dictionaries(st.sampled_from(PARTS), JSON))
def test_any_json_is_taken_or_is_a_usage_error(said: object) -> None:
    facts = Facts()
    try:
        environment.read_environment(facts, said, "f")
    except UsageError as error:
        assert str(error).startswith("f: ")  # noqa: PT017


def test_a_snapshot_gives_what_it_says_about_the_machine(tmp_path: Path) -> None:
    facts = read({"packages": {"sglang": "0.5.12", "triton": "3.6.0"}, "gpus": [GPU]})
    facts.set("arg.tp_size", 4, source="server_info", place="/server_info")
    facts.set_unknown("host.shm_mib", "permission denied")
    snapshot.save(facts, tmp_path / "snapshot.json")
    there = Facts()
    environment.read_environment_file(there, tmp_path / "snapshot.json")
    assert there.value("triton.version") == "3.6.0"
    assert there.value("gpu.name") == "NVIDIA H200"
    assert there.get("host.shm_mib") == Unknown("permission denied")
    assert not there.known("arg.tp_size")
    assert there.get("gpu.name").provenance[0].place == f"{tmp_path}/snapshot.json: environment.json"


def test_a_snapshot_of_a_server_alone_is_no_environment(tmp_path: Path) -> None:
    facts = Facts()
    facts.set("arg.tp_size", 4, source="server_info", place="/server_info")
    snapshot.save(facts, tmp_path / "snapshot.json")
    with pytest.raises(UsageError, match="says nothing about packages"):
        environment.read_environment_file(Facts(), tmp_path / "snapshot.json")


def test_json_that_only_looks_like_a_snapshot(tmp_path: Path) -> None:
    file = tmp_path / "environment.json"
    file.write_text(json.dumps({"format": "sgdoctor-snapshot", "version": 1}))
    with pytest.raises(UsageError, match="not a snapshot: Object missing required field"):
        environment.read_environment_file(Facts(), file)
