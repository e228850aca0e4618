"""What a server says about itself, live or saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.collect import clean, server_info
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts

CAPTURES = Path(__file__).parents[1] / "captures"
BEFORE = Path(__file__).parents[1] / "scenarios" / "rtx-pro-6000" / "before.json"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
KEYS = (
    "version", "tp_size", "model_path", "served_model_name", "internal_states", "launch_command", "api_key",
    "max_total_num_tokens", "mem_fraction_static", "env_vars", "memory_usage", "error",
)  # fmt: skip


def read(payload: dict) -> Facts:
    facts = Facts()
    server_info.read_server_info(facts, payload, "/server_info")
    return facts


def test_an_answer_of_0_5_12() -> None:
    facts = Facts()
    path = CAPTURES / "kv-pool-full" / "server_info_loaded.json"
    assert server_info.read_server_info_file(facts, path) is None
    assert facts.value("sglang.version") == "0.5.12"
    assert facts.value("arg.mem_fraction_static") == 0.5
    assert facts.value("arg.attention_backend") == "triton"
    assert facts.known("arg.quantization")
    assert facts.value("arg.quantization") is None
    assert facts.value("kv.tokens") == 8192
    assert facts.value("kv.max_running_requests") == 64
    assert facts.value("memory.weights_gb") == 0.46
    assert facts.value("model.path") == "/models/dense"
    assert facts.value("model.name") == "dense"
    assert facts.get("arg.tp_size").provenance[0].place == str(path)
    assert facts.notes == []


def test_only_arguments_of_the_release_become_arg_facts() -> None:
    facts = Facts()
    server_info.read_server_info_file(facts, CAPTURES / "moe-no-config" / "server_info.json")
    names = {name for name, _ in facts.items() if name.startswith("arg.")}
    assert {"arg.cuda_graph_bs", "arg.moe_runner_backend"} <= names
    assert not {"arg.status", "arg.version", "arg.internal_states", "arg.max_total_num_tokens"} & names
    assert not {name for name in names if name.startswith("arg._")}


def test_what_the_scheduler_settled_later_is_in_effect_and_its_place_says_so() -> None:
    facts = Facts()
    server_info.read_server_info_file(facts, CAPTURES / "moe-no-config" / "server_info.json")
    assert facts.value("arg.decode_attention_backend") == "triton"  # null at the top level
    late = facts.get("arg.decode_attention_backend").provenance[0].place
    assert late.endswith(server_info.SCHEDULER)
    assert not facts.get("arg.attention_backend").provenance[0].place.endswith(server_info.SCHEDULER)


def test_schedulers_that_differ_among_themselves_leave_the_launchers_value() -> None:
    facts = read({"version": "0.5.12", "port": 1, "internal_states": [{"port": 2}, {"port": 3}]})
    assert facts.value("arg.port") == 1


def test_the_slowest_rank_says_how_many_requests_run() -> None:
    states = [{"effective_max_running_requests_per_dp": n, "memory_usage": {"weight": n}} for n in (48, 26)]
    facts = read({"version": "0.5.12", "internal_states": states})
    assert facts.value("kv.max_running_requests") == 26
    assert facts.value("memory.weights_gb") == 48


def test_the_throughput_is_that_of_all_dp_ranks_and_unknown_before_the_first_report() -> None:
    facts = read(
        {"version": "0.5.12", "internal_states": [{"last_gen_throughput": n} for n in (812.5, 790.0)]}
    )
    assert facts.value("server.decode_throughput") == 1602.5
    facts = read({"version": "0.5.12", "internal_states": [{"last_gen_throughput": 0.0}]})
    assert not facts.known("server.decode_throughput")


def test_a_rank_that_does_not_say_it_leaves_it_unknown() -> None:
    facts = read(
        {"version": "0.5.12", "internal_states": [{"effective_max_running_requests_per_dp": 48}, {}]}
    )
    assert not facts.known("kv.max_running_requests")


def test_an_answer_reduced_to_what_matters() -> None:
    facts = Facts()
    server_info.read_server_info_file(facts, BEFORE)
    assert facts.value("arg.tp_size") == 4
    assert facts.value("kv.max_running_requests") == 48


def test_memory_of_graphs_by_phase() -> None:
    """``graph`` is a number up to 0.5.16 and a mapping from 0.5.20 on."""
    usage = {"weight": 4.75, "graph": {"decode": 0.19}}
    facts = read({"version": "0.5.20", "internal_states": [{"memory_usage": usage}]})
    assert facts.value("memory.weights_gb") == 4.75
    assert facts.notes == []


def test_a_development_build_keeps_arguments_that_no_release_has() -> None:
    facts = read({"version": "0.5.24.dev7", "brand_new_flag": 3, "_private": 1, "status": "ready"})
    assert facts.value("arg.brand_new_flag") == 3
    assert not facts.known("arg._private")
    assert not facts.known("arg.status")


def test_a_value_of_another_type_is_left_out_and_noted() -> None:
    facts = read({"version": "0.5.12", "tp_size": "four", "dp_size": None, "enable_metrics": True})
    assert not facts.known("arg.tp_size")
    assert facts.value("arg.enable_metrics") is True
    assert any("arg.tp_size is of type int, not str" in note for note in facts.notes)
    assert any("arg.dp_size cannot be null" in note for note in facts.notes)


def test_a_version_that_is_none_is_noted() -> None:
    assert "does not say which SGLang release" in read({"version": "main", "tp_size": 1}).notes[0]


def test_the_command_the_server_was_started_with() -> None:
    """0.5.20's launch_command is the parsed words joined by blanks, without quotes."""
    said = '--model-path /m --json-model-override-args {"a": 1, "b": {"c": 2}} --api-key planted --tp 4'
    facts = Facts()
    words = server_info.read_server_info(facts, {"version": "0.5.20", "launch_command": said}, "/server_info")
    assert words == [
        "--model-path", "/m", "--json-model-override-args", '{"a": 1, "b": {"c": 2}}',
        "--api-key", "<redacted>", "--tp", "4",
    ]  # fmt: skip


def test_a_server_made_in_python_has_no_command() -> None:
    facts = Facts()
    said = "Engine(model_path='/m', api_key='planted')"
    assert server_info.read_server_info(facts, {"version": "0.5.20", "launch_command": said}, "p") is None
    assert "was made in Python" in facts.notes[0]
    assert "planted" not in facts.notes[0]


def test_secrets_do_not_become_facts() -> None:
    payload = {
        "version": "0.5.12",
        "api_key": "planted-1",
        "admin_api_key": "planted-2",
        "ssl_keyfile_password": "planted-3",
        "model_loader_extra_config": {"api_key": "planted-4"},
        "warmups": ["--api-key", "planted-5"],
        "otlp_traces_endpoint": "http://me:planted-6@host",
        "internal_states": [
            {"api_key": "planted-1", "env_vars": {"SGLANG_X_TOKEN": "planted-7", "SECRET": "planted-8"}}
        ],
    }
    facts = read(payload)
    assert "planted" not in repr(list(facts.items())) + repr(facts.notes) + repr(facts.conflicts)
    assert facts.value("arg.api_key") == "<redacted>"
    assert facts.value("env.SGLANG_X_TOKEN") == "<redacted>"


def test_variables_that_the_server_shows() -> None:
    state = {"env_vars": {"SGLANG_MOE_CONFIG_DIR": "/configs", "AWS_REGION": "x"}}
    facts = read({"version": "0.5.20", "internal_states": [state]})
    assert facts.value("env.SGLANG_MOE_CONFIG_DIR") == "/configs"
    assert not facts.known("env.AWS_REGION")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: no answer of /server_info"),
        ("<html>", "not JSON"),
        ("[" * 5000, "not JSON"),
        ("[]", "a JSON list"),
        ("3", "a JSON number"),
        ('{"object": "list", "data": []}', "it is a listing, like that of /v1/models"),
        ('{"model_path": "/m", "is_generation": true}', "it is an answer of /model_info"),
        ('{"detail": "Not Found"}', "neither version nor internal_states"),
    ],
)
def test_a_file_that_is_no_answer_of_server_info(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "info.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        server_info.read_server_info_file(Facts(), file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        server_info.read_server_info_file(Facts(), tmp_path / "gone.json")


def test_a_saved_refusal_says_that_the_key_is_needed() -> None:
    with pytest.raises(Undecided, match="needs its API key; save the answer with curl"):
        server_info.read_server_info_file(Facts(), CAPTURES / "api-key-set" / "server_info.json")


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(), JSON))
def test_any_json_is_taken(payload: dict) -> None:
    facts = Facts()
    if server_info.objection(payload) is None:
        words = server_info.read_server_info(facts, payload, "/server_info")
        assert words is None or all(isinstance(word, str) for word in words)
    json.dumps(clean.value(payload))


@given(JSON)
def test_anything_is_an_answer_or_has_an_objection(payload: object) -> None:
    assert server_info.objection(payload) is not None or isinstance(payload, dict)
    assert isinstance(server_info.is_refusal(payload), bool)


@pytest.mark.parametrize(
    ("words", "clean_words"),
    [
        (["--api-key", "s"], ["--api-key", "<redacted>"]),
        (["--api-key=s"], ["--api-key=<redacted>"]),
        (["--api-k", "s"], ["--api-k", "<redacted>"]),
        (["--admin", "s", "--tp", "2"], ["--admin", "<redacted>", "--tp", "2"]),
        (["--ssl-keyfile", "/key.pem"], ["--ssl-keyfile", "/key.pem"]),
        (["--ssl-keyfile-password", "s"], ["--ssl-keyfile-password", "<redacted>"]),
        (["--api-key", "--port", "1"], ["--api-key", "--port", "1"]),
        (["HF_TOKEN=abc"], ["HF_TOKEN=<redacted>"]),
        (["--model-path", "/m"], ["--model-path", "/m"]),
    ],
)
def test_words_of_a_command_are_cleaned(words: list[str], clean_words: list[str]) -> None:
    assert clean.words(words) == clean_words
