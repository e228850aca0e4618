"""What a launch command asks for, as the SGLang release in use reads it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sgdoctor.collect import launch
from sgdoctor.collect.launch_asked import interpret
from sgdoctor.facts import Facts, Known, Unknown

TESTS = Path(__file__).parents[1]


def asked(script: str, version: str | None = "0.5.12", **files: str) -> Facts:
    facts = Facts()
    if version is not None:
        facts.set("sglang.version", version, source="assume", place="--assume")
    (command,) = launch.parse_script(script, "launch.sh", Path("/w"))
    launch.collect(facts, command)
    interpret(facts, command, reader(files))
    return facts


def reader(files: dict[str, str]) -> Callable[[Path], bytes]:
    def read(path: Path) -> bytes:
        if path.stem not in files:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return files[path.stem].encode()

    return read


def value(facts: Facts, name: str) -> Any:
    fact = facts.get(name)
    assert isinstance(fact, Known), fact
    return fact.value


def place(facts: Facts, name: str) -> str:
    fact = facts.get(name)
    assert isinstance(fact, Known), fact
    return fact.provenance[0].place


def reason(facts: Facts, name: str) -> str:
    fact = facts.get(name)
    assert isinstance(fact, Unknown), fact
    return fact.reason


def test_each_flag_has_its_value_and_its_line():
    facts = Facts()
    facts.set("sglang.version", "0.5.10", source="packages", place="metadata")
    (command,) = launch.read_script(TESTS / "scenarios" / "rtx-pro-6000" / "launch-fusion.sh")
    interpret(facts, command)
    assert value(facts, "asked.enable_flashinfer_allreduce_fusion") is True
    assert place(facts, "asked.enable_flashinfer_allreduce_fusion").endswith("launch-fusion.sh:15")
    assert value(facts, "asked.tp_size") == 4
    assert place(facts, "asked.tp_size").endswith("launch-fusion.sh:10")
    assert value(facts, "asked.mem_fraction_static") == 0.85
    assert value(facts, "asked.enable_mixed_chunk") is None
    assert place(facts, "asked.enable_mixed_chunk").endswith("launch-fusion.sh:17")
    assert value(facts, "launch.flags_known") is True
    assert value(facts, "model.path") == "/models/Qwen3.5-122B-A10B"


def test_a_real_server_s_refusal_is_foreseen():
    # SGLang 0.5.12 ended with "error: unrecognized arguments: --enable-turbo-mode"
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="packages", place="metadata")
    (command,) = launch.read_script(TESTS / "captures" / "unknown-flag" / "command.txt")
    interpret(facts, command)
    assert value(facts, "launch.unrecognized") == ["--enable-turbo-mode"]
    log = (TESTS / "captures" / "unknown-flag" / "server.log").read_text()
    assert "error: unrecognized arguments: --enable-turbo-mode" in log


# --- what cannot be told --------------------------------------------------------------------------------


def test_a_word_that_could_be_any_flag_leaves_the_others_open():
    facts = asked(
        "A=(--tp 4)\nif $X; then A+=(--dp 2); fi\nsglang serve --model-path m ${A[@]} $EXTRA --port 1\n"
    )
    assert value(facts, "asked.tp_size") == 4
    assert value(facts, "asked.port") == 1
    assert reason(facts, "asked.dp_size") == "launch.sh:2: $A could be any flag (A depends on line 2)"
    assert value(facts, "launch.flags_known") is False
    assert reason(facts, "launch.unrecognized").endswith("could be any flag (A depends on line 2)")


def test_an_unknown_value_leaves_only_its_flag_open():
    facts = asked('sglang serve --model-path "$M" --tp $(nproc) --dp=$DP\n')
    assert (
        reason(facts, "asked.model_path")
        == "launch.sh:1: $M could not be expanded (M is not set in the script)"
    )
    assert (
        reason(facts, "asked.tp_size") == "launch.sh:1: $(nproc) could not be expanded (a command's output)"
    )
    assert reason(facts, "asked.dp_size").startswith("launch.sh:1: --dp=$DP could not be expanded")
    assert value(facts, "asked.host") is None
    assert value(facts, "launch.unrecognized") == []


def test_without_a_release_only_what_all_releases_agree_on():
    facts = asked(
        "sglang serve --model-path m --tp 4 --cuda-graph-max-bs 8 --mem-frac 0.8 --foo\n", version=None
    )
    assert value(facts, "asked.tp_size") == 4
    assert value(facts, "asked.mem_fraction_static") == 0.8
    assert value(facts, "asked.host") is None
    assert reason(facts, "asked.cuda_graph_max_bs_decode") == "the SGLang version is not known"
    for name in ("unrecognized", "ambiguous", "abbreviated", "deprecated", "invalid"):
        assert reason(facts, f"launch.{name}") == "the SGLang version is not known"


def test_a_build_between_releases_may_know_more_flags():
    facts = asked("sglang serve --model-path m --brand-new 1\n", version="0.5.24.dev1")
    assert reason(facts, "launch.unrecognized") == (
        "0.5.24.dev1 is not in the catalogue, and 0.5.23 does not know --brand-new"
    )


# --- what the release says ------------------------------------------------------------------------------


def test_flags_that_mean_several_others():
    facts = asked("sglang serve --model-path m --cuda-graph-max-bs 32\n", version="0.5.20")
    assert value(facts, "launch.ambiguous") == ["--cuda-graph-max-bs"]
    assert value(facts, "launch.unrecognized") == []
    assert value(facts, "launch.invalid") is None
    assert reason(facts, "asked.cuda_graph_max_bs_decode") == "--cuda-graph-max-bs is ambiguous"


def test_abbreviations_but_not_the_usual_ones():
    facts = asked("sglang serve --model-path m --tp 4 --mem-frac 0.8\n")
    assert value(facts, "launch.abbreviated") == [{"written": "--mem-frac", "flag": "--mem-fraction-static"}]
    assert value(facts, "asked.tp_size") == 4


def test_deprecated_flags_are_asked_for_under_both_names():
    facts = asked("sglang serve --model-path m --disable-piecewise-cuda-graph\n", version="0.5.14")
    assert value(facts, "launch.deprecated") == [
        {"flag": "--disable-piecewise-cuda-graph", "effect": "read as --cuda-graph-backend-prefill=disabled"}
    ]
    assert value(facts, "asked.cuda_graph_backend_prefill") == "disabled"
    assert value(facts, "asked.disable_piecewise_cuda_graph") is True


def test_an_ignored_flag_was_still_asked_for():
    facts = asked("sglang serve --model-path m --enable-piecewise-cuda-graph\n")
    assert value(facts, "launch.deprecated") == [
        {"flag": "--enable-piecewise-cuda-graph", "effect": "ignored"}
    ]
    assert value(facts, "asked.enable_piecewise_cuda_graph") is True


def test_so_was_a_flag_that_only_other_releases_have():
    facts = asked(
        "sglang serve --model-path m --enable-piecewise-cuda-graph --attn-dp-size 2\n", version="0.5.14"
    )
    assert value(facts, "launch.unrecognized") == ["--enable-piecewise-cuda-graph", "--attn-dp-size"]
    assert place(facts, "launch.unrecognized") == "launch.sh:1"
    assert value(facts, "asked.enable_piecewise_cuda_graph") is True
    assert reason(facts, "asked.attn_dp_size") == "launch.sh:1: this release has no --attn-dp-size"


def test_a_value_that_the_parser_refuses():
    facts = asked("sglang serve --model-path m --tp four --port 1\n")
    assert value(facts, "launch.invalid") == (
        "argument --tensor-parallel-size/--tp-size: invalid int value: 'four'"
    )
    assert reason(facts, "asked.tp_size") == "launch.sh:1: SGLang's parser refuses the value"
    assert value(facts, "asked.port") == 1


NO_MODEL = "Error: --model-path is required. Please provide the path to the model"


@pytest.mark.parametrize(
    ("command", "version", "invalid"),
    [
        ("sglang serve m", "0.5.15", NO_MODEL),
        ("sglang serve m", "0.5.16", None),
        ("sglang serve --model m", "0.5.10", NO_MODEL),
        ("sglang serve --model m", "0.5.11", None),
        ("sglang serve --model-type llm --model-path m", "0.5.10", None),
        (
            "sglang serve --model-path m --model-type x",
            "0.5.17",
            "Error: invalid --model-type 'x'. Valid values are: auto, llm, diffusion",
        ),
        (
            "python3 -m sglang.launch_server --tp 2",
            "0.5.16",
            "the following arguments are required: --model-path/--model",
        ),
    ],
)
def test_where_the_model_stands(command: str, version: str, invalid: str | None):
    facts = asked(command, version=version)
    assert value(facts, "launch.invalid") == invalid
    if invalid is None:
        assert value(facts, "asked.model_path") == "m"


@pytest.mark.parametrize(
    ("command", "version"),
    [
        ("sglang serve --model-path black-forest-labs/FLUX.1-dev --num-gpus 2 --ulysses-degree=2", "0.5.9"),
        ("sglang serve --model-type diffusion --model-path=m --output-path out", "0.5.12"),
        ("sglang serve --model-type diffusion $ARGS --output-path out", "0.5.12"),
    ],
)
def test_a_diffusion_server_has_other_flags(command: str, version: str):
    facts = asked(command, version=version)
    for name in ("launch.unrecognized", "launch.abbreviated", "launch.invalid", "asked.tp_size"):
        assert not facts.known(name), name
    assert facts.value("asked.model_path") in ("black-forest-labs/FLUX.1-dev", "m", None)
    assert "launch.sh:1: starts a server of type diffusion, which is not looked at" in facts.notes


@pytest.mark.parametrize(
    ("command", "version", "invalid"),
    [
        ("sglang serve --model-type llm --tp 8", "0.5.17", NO_MODEL),
        ("sglang serve org/model --tp 8", "0.5.15", NO_MODEL),
        ("sglang serve --tp 8 --model-path m --model-type", "0.5.17", "Error: --model-type requires a value"),
        ("sglang serve --model-type mine --pipeline p.yaml", "0.5.17", "Error: invalid --model-type 'mine'"),
    ],
)
def test_a_refused_command_has_the_type_all_the_same(command: str, version: str, invalid: str):
    """What ends the start is named; --model-type and a model in its place are no unknown flags."""
    facts = asked(command, version=version)
    assert value(facts, "launch.invalid").startswith(invalid)
    assert not {"--model-type", "org/model"} & set(value(facts, "launch.unrecognized"))


def test_an_installed_type_of_server_may_need_no_model():
    """From 0.5.18 on other packages bring types of their own."""
    facts = asked("sglang serve --model-type mine --pipeline p.yaml", version="0.5.18")
    assert not facts.known("launch.invalid")
    assert not facts.known("launch.unrecognized")
    assert "launch.sh:1: starts a server of type mine, which is not looked at" in facts.notes


def test_a_language_model_server_has_no_such_flags():
    """`python -m sglang.launch_server` starts no other server, and neither does --model-type llm."""
    for command in (
        "python3 -m sglang.launch_server --model-path m --num-gpus 2",
        "sglang serve --model-type llm --model-path m --num-gpus 2",
    ):
        assert value(asked(command), "launch.unrecognized") == ["--num-gpus"]


def test_a_model_that_is_known_to_be_a_language_model_gets_no_diffusion_server():
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="assume", place="--assume")
    facts.set("model.architecture", "LlamaForCausalLM", source="model", place="config.json")
    (command,) = launch.parse_script("sglang serve --model-path m --num-gpus 2", "launch.sh", Path("/w"))
    launch.collect(facts, command)
    interpret(facts, command, reader({}))
    assert value(facts, "launch.unrecognized") == ["--num-gpus"]


# --- configuration files --------------------------------------------------------------------------------

CONFIG = """
model-path: /models/m
tp-size: 8   # the command line wins
enable-metrics: true
disable-radix-cache: false
cuda-graph-bs: [1, 2, 4]
api-key: SECRET
"""


def test_a_configuration_file_goes_before_the_command_line():
    facts = asked("python3 -m sglang.launch_server --config server.yaml --tp 4\n", server=CONFIG)
    assert value(facts, "asked.model_path") == "/models/m"
    assert place(facts, "asked.model_path") == "server.yaml:2"
    assert value(facts, "asked.tp_size") == 4
    assert place(facts, "asked.tp_size") == "launch.sh:1"
    assert value(facts, "asked.enable_metrics") is True
    assert value(facts, "asked.disable_radix_cache") is None
    assert value(facts, "asked.cuda_graph_bs") == [1, 2, 4]
    assert value(facts, "asked.api_key") == "<redacted>"
    assert "SECRET" not in repr(dict(facts.items()))


def test_one_that_cannot_be_read_may_hold_any_flag():
    facts = asked("python3 -m sglang.launch_server --model-path m --config /etc/none.yaml\n")
    assert value(facts, "asked.model_path") == "m"
    assert "the configuration file /etc/none.yaml could not be read" in reason(facts, "asked.tp_size")
    assert any("/etc/none.yaml could not be read" in note for note in facts.notes)


def test_one_given_with_an_equals_sign_is_ignored_by_sglang():
    facts = asked("python3 -m sglang.launch_server --model-path m --config=server.yaml\n", server=CONFIG)
    assert value(facts, "asked.tp_size") is None
    (note,) = facts.notes
    assert note.startswith("launch.sh:1: SGLang ignores --config=server.yaml")


@pytest.mark.parametrize(
    ("content", "invalid"),
    [
        ("- a\n", "Config file must contain a dictionary at root level"),
        ("a: [\n", "server.yaml: "),
        ("lora-paths: [x]\n", "Unsupported config option 'lora_paths' with action 'LoRAPathAction'"),
    ],
)
def test_one_that_sglang_refuses(content: str, invalid: str):
    facts = asked("python3 -m sglang.launch_server --model-path m --config server.yaml\n", server=content)
    assert value(facts, "launch.invalid").startswith(invalid)
    assert "SGLang ends before it reads its flags" in reason(facts, "asked.tp_size")


def test_one_that_is_not_called_yaml_is_refused_unread():
    facts = asked("python3 -m sglang.launch_server --model-path m --config server.json\n", server="{}")
    assert value(facts, "launch.invalid") == "Config file must be YAML format, got: .json"


def test_one_that_is_no_file_is_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * 2**21)
    for name in ("pipe.yaml", "large.yaml", "none.yaml"):
        facts = Facts()
        (command,) = launch.parse_script(f"sglang serve m --config {name}\n", "launch.sh", tmp_path)
        interpret(facts, command)
        assert value(facts, "launch.flags_known") is False


def test_one_in_a_container_is_looked_for_on_the_host(tmp_path: Path):
    (tmp_path / "server.yaml").write_text("tp-size: 8\n")
    script = f"docker run -v {tmp_path}:/cfg img sglang serve --model-path m --config /cfg/server.yaml\n"
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="assume", place="--assume")
    (command,) = launch.parse_script(script, "launch.sh")
    interpret(facts, command)
    assert value(facts, "asked.tp_size") == 8


def test_values_that_are_no_plain_text():
    sampling = """--preferred-sampling-params '{"n": {"api_key": "x"}}'"""
    facts = asked(f"sglang serve --model-path m {sampling} --lora-paths a b")
    assert json.dumps(value(facts, "asked.preferred_sampling_params")) == '{"n": {"api_key": "<redacted>"}}'
    assert value(facts, "asked.lora_paths") == ["a", "b"]
