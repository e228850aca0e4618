"""Launch scripts and commands: which files are taken, what is said of them, and that no secret gets out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgdoctor.collect import launch
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Known

TESTS = Path(__file__).parents[1]
SCENARIO = TESTS / "scenarios" / "rtx-pro-6000"
# Launch lines of real servers, SGLang 0.5.12 on an H200; a second line is a comment.
COMMANDS = sorted((TESTS / "captures").glob("*/command.txt"))


def collected(script: str, name: str = "launch.sh") -> Facts:
    facts = Facts()
    (command,) = launch.parse_script(script, name)
    launch.collect(facts, command)
    return facts


def known(facts: Facts, name: str) -> tuple[Any, str]:
    fact = facts.get(name)
    assert isinstance(fact, Known), fact
    return fact.value, fact.provenance[0].place


def test_the_scenario_s_script():
    (command,) = launch.read_script(SCENARIO / "launch-fusion.sh")
    texts = [word.text for word in command.words]
    assert texts[:6] == [
        "--model-path",
        "/models/Qwen3.5-122B-A10B",
        "--served-model-name",
        "qwen3.5-122b",
        "--tp-size",
        "4",
    ]
    assert {word.text: word.line for word in command.words}["--enable-flashinfer-allreduce-fusion"] == 15
    assert (command.model, command.port, command.complete) == ("/models/Qwen3.5-122B-A10B", "30000", True)
    assert command.variables["NCCL_P2P_LEVEL"].value == "SYS"


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.parent.name)
def test_launch_lines_of_real_servers(path: Path):
    (command,) = launch.read_script(path)
    line = path.read_text().splitlines()[0]
    assert command.port == "31000"
    assert command.complete
    assert [word.text for word in command.words if word.text != "<redacted>"] == [
        word for word in line.split()[3:] if word != "k"
    ]


def test_all_servers_of_a_script_in_their_order():
    script = "for port in 30000 30001; do sglang serve m --port $port & done\nsglang serve n --port=30002\n"
    commands = launch.parse_script(script, "launch.sh")
    assert [(command.model, command.port, command.line) for command in commands] == [
        ("m", "30000", 1),
        ("m", "30001", 1),
        ("n", "30002", 2),
    ]


def test_a_command_of_the_command_line():
    command = launch.parse_command(["python3", "-m", "sglang.launch_server", "--model", "a b", "--x=$HOME"])
    assert [word.text for word in command.words] == ["--model", "a b", "--x=$HOME"]
    assert (command.source, command.place(3)) == ("command", "command line")
    assert launch.parse_command(["--model", "m"]).model == "m"
    assert launch.parse_command(["bash", "-c", "sglang serve m"]).model == "m"


# --- files that cannot be read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"echo hello\n", "holds no sglang.launch_server or sglang serve command (looked for "),
        (b"", "holds no sglang.launch_server or sglang serve command"),
        (b"\x7fELF\0\0", "is a binary file, not a launch script"),
        ("sglang serve \xe9".encode("latin-1"), "is not UTF-8 text (byte 13)"),
        (b"sglang serve 'm\n", ":1: the command that starts SGLang is not understood as bash near"),
        (b"if true\nsglang serve m\n", ":1: not understood as bash, and an SGLang command stands there"),
    ],
)
def test_what_is_no_launch_script(tmp_path: Path, content: bytes, message: str):
    path = tmp_path / "launch.sh"
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        launch.read_script(path)
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)


def test_what_is_no_file(tmp_path: Path):
    with pytest.raises(UsageError, match="is a directory, not a launch script"):
        launch.read_script(tmp_path)
    with pytest.raises(UsageError, match="No such file or directory"):
        launch.read_script(tmp_path / "none.sh")
    with pytest.raises(UsageError, match="null"):
        launch.read_script("a\0b")


def test_a_command_line_without_a_server():
    with pytest.raises(UsageError, match=r"^the command line holds no sglang"):
        launch.parse_command(["ls", "-l"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=80), st.binary(max_size=40).map(lambda data: b"sglang serve m " + data)))
def test_any_file_is_read_or_refused_in_a_line(tmp_path: Path, data: bytes):
    path = tmp_path / "launch.sh"
    path.write_bytes(data)
    try:
        commands = launch.read_script(path)
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert commands


def test_windows_line_ends_are_said():
    (command,) = launch.parse_script("A=1\r\nsglang serve m \\\r\n  --tp 4\r\n", "launch.sh")
    assert [word.text for word in command.words] == ["m", "--tp", "4"]
    assert command.notes[0].startswith("launch.sh has Windows line ends")


def test_a_byte_order_mark_is_no_part_of_the_script(tmp_path: Path):
    path = tmp_path / "launch.sh"
    path.write_bytes(b"\xef\xbb\xbfsglang serve m\n")
    assert launch.read_script(path)[0].model == "m"


# --- facts ----------------------------------------------------------------------------------------------


def test_the_arguments_and_whether_all_could_be_expanded():
    facts = collected("sglang serve m --tp $TP\n")
    assert known(facts, "launch.command") == (["m", "--tp", "$TP"], "launch.sh:1")
    assert known(facts, "launch.complete") == (False, "launch.sh:1")


def test_environment_variables_and_where_they_were_set():
    facts = collected("export SGLANG_MOE_CONFIG_DIR=/cfg\nOTHER=1 CUDA_VISIBLE_DEVICES=0,1 sglang serve m\n")
    assert known(facts, "env.SGLANG_MOE_CONFIG_DIR") == ("/cfg", "launch.sh:1")
    assert known(facts, "env.CUDA_VISIBLE_DEVICES") == ("0,1", "launch.sh:2")
    assert not facts.known("env.OTHER")


def test_what_a_script_does_not_set_may_come_from_its_environment():
    facts = collected("export CUDA_VISIBLE_DEVICES=$(pick)\nunset SGLANG_MOE_CONFIG_DIR\nsglang serve m\n")
    assert facts.get("env.SGLANG_ENABLE_JIT_DEEPGEMM").reason == (  # type: ignore[union-attr]
        "launch.sh does not set it; the environment may set it"
    )
    assert facts.get("env.CUDA_VISIBLE_DEVICES").reason == "launch.sh:1: a command's output"  # type: ignore[union-attr]
    assert known(facts, "env.SGLANG_MOE_CONFIG_DIR") == (None, "launch.sh:3")


def test_in_a_container_it_may_come_from_the_image():
    facts = collected("docker run -e CUDA_VISIBLE_DEVICES=0 img sglang serve m\n")
    assert facts.get("env.SGLANG_MOE_CONFIG_DIR").reason == (  # type: ignore[union-attr]
        "launch.sh does not set it; the image may set it"
    )


def test_env_i_says_of_every_variable_that_it_is_not_set():
    facts = collected("env -i PATH=/bin sglang serve m\n")
    assert known(facts, "env.SGLANG_MOE_CONFIG_DIR") == (None, "launch.sh:1")


def test_a_container_tells_its_shared_memory_and_an_official_image_its_release():
    facts = collected("docker run \\\n  lmsysorg/sglang:v0.5.12.post1-cu130 sglang serve m\n")
    assert known(facts, "host.shm_mib") == (64, "launch.sh:1")
    assert known(facts, "sglang.version") == ("0.5.12.post1", "launch.sh:1")
    assert not collected("docker run lmsysorg/sglang:latest sglang serve m\n").known("sglang.version")
    assert not collected("docker run me/sglang:v0.5.12 sglang serve m\n").known("sglang.version")


def test_paths_in_a_container_lead_to_the_host():
    (command,) = launch.parse_script("docker run -v /data:/models img sglang serve /models/q\n", "launch.sh")
    assert command.host_path("/models/q") == "/data/q"
    assert command.host_path("org/name") == "org/name"


# --- secrets --------------------------------------------------------------------------------------------

SECRETS = """export HF_TOKEN=SECRET NCCL_PASSWORD=SECRET
KEY=SECRET
ARGS="--api-key SECRET"
python3 -m sglang.launch_server $ARGS --admin-api-key "$KEY" --api-key=SECRET --admin-api SECRET \\
  --ssl-keyfile-password SECRET --ssl-keyfile /etc/key --model-path https://user:SECRET@host/m \\
  --api-key ${API_KEY:-SECRET} --watermark-key $'SECRET'
"""


def test_no_secret_gets_out():
    (command,) = launch.parse_script(SECRETS, "launch.sh")
    facts = collected(SECRETS)
    everything = [repr(command), repr(dict(facts.items())), repr(facts.notes)]
    assert not any("SECRET" in part for part in everything)
    assert "/etc/key" in [word.text for word in command.words]
    assert known(facts, "env.NCCL_PASSWORD")[0] == "<redacted>"


def test_json_stays_json():
    written = ["--x", '{"api_key": "SECRET", "n": 1}', '["https://u:SECRET@h"]', '{"n":1}']
    command = launch.parse_command(written)
    assert [word.text for word in command.words] == [
        "--x",
        '{"api_key": "<redacted>", "n": 1}',
        '["https://u:<redacted>@h"]',
        '{"n":1}',
    ]


def test_words_are_not_mistaken_for_the_secret_before_them():
    command = launch.parse_command(["--api-key", "k", "--port", "1", "--", "x"])
    assert [word.text for word in command.words] == ["--api-key", "<redacted>", "--port", "1", "--", "x"]
