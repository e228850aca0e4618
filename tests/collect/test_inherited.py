"""What a command gets from the process that becomes it, and which Python it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdoctor.collect import inherited, launch
from sgdoctor.facts import Facts

SERVE = ["sglang", "serve", "--model-path", "x"]
LAUNCH = ["python3", "-m", "sglang.launch_server", "--model-path", "x"]
HERE = {"CUDA_VISIBLE_DEVICES": "1", "NCCL_DEBUG": "INFO", "HF_TOKEN": "hf_secret", "EDITOR": "vi"}


def environment(argv: list[str]) -> Facts:
    facts = Facts()
    command = launch.parse_command(argv)
    launch.collect(facts, command)
    inherited.read_environment(facts, command, argv, HERE)
    return facts


def test_what_is_set_here_is_set_there_and_nothing_else_is() -> None:
    facts = environment(SERVE)
    assert facts.value("env.CUDA_VISIBLE_DEVICES") == "1"
    assert facts.get("env.CUDA_VISIBLE_DEVICES").provenance[0].place == "this process's environment"
    assert facts.value("env.NCCL_DEBUG") == "INFO"
    assert facts.known("env.SGLANG_MOE_CONFIG_DIR")
    assert facts.value("env.SGLANG_MOE_CONFIG_DIR") is None
    assert not facts.known("env.HF_TOKEN")
    assert not facts.known("env.EDITOR")


def test_what_the_command_sets_itself_goes_before() -> None:
    facts = environment(["env", "-u", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES=3", *SERVE])
    assert facts.value("env.CUDA_VISIBLE_DEVICES") == "3"
    assert facts.value("env.NCCL_DEBUG", "unset") is None


@pytest.mark.parametrize(
    "wrapper", ["sudo", "sudo -u sglang", "ssh gpu1", "docker run image", "su sglang -c"]
)
def test_what_a_wrapper_passes_on_is_not_guessed_at(wrapper: str) -> None:
    words = [*wrapper.split(), " ".join(SERVE)] if wrapper.endswith("-c") else [*wrapper.split(), *SERVE]
    assert not environment(words).known("env.SGLANG_MOE_CONFIG_DIR")


def test_a_command_with_an_environment_of_its_own_inherits_nothing() -> None:
    assert environment(["env", "-i", "A=b", *SERVE]).value("env.CUDA_VISIBLE_DEVICES", "1") is None


@pytest.mark.parametrize(
    ("wrapper", "here"),
    [
        ([], True),
        (["numactl", "-N", "0"], True),
        (["sudo"], True),
        (["bash", "-c", "exec sglang serve --model-path x"], True),
        (["docker", "run", "image"], False),
        (["ssh", "gpu1"], False),
        (["srun", "-N1"], False),
        (["apptainer", "exec", "image.sif"], False),
    ],
)
def test_where_it_runs(wrapper: list[str], here: bool) -> None:  # noqa: FBT001
    argv = wrapper if "-c" in wrapper else [*wrapper, *SERVE]
    assert inherited.runs_here(launch.parse_command(argv), argv) is here


# --- the command of a shell ---------------------------------------------------------------------------------


def test_variables_of_a_shells_command_are_written_out() -> None:
    argv = ["bash", "-c", 'sglang serve --model-path "$MODEL" --tp ${TP:-2} $MORE']
    written = inherited.written_out(argv, {"MODEL": "a b", "TP": "4", "OTHER": "x"})
    assert written == ("env", "-u", "MORE", "MODEL=a b", "TP=4", *argv)
    words = [word.text for word in launch.parse_command(written).words]
    assert words == ["--model-path", "a b", "--tp", "4"]


def test_secrets_are_not_written_out() -> None:
    argv = ["sh", "-c", "sglang serve --model-path x --api-key $SERVER_API_KEY"]
    assert "hunter2" not in " ".join(inherited.written_out(argv, {"SERVER_API_KEY": "hunter2"}))


@pytest.mark.parametrize(
    "argv",
    [["bash", "-lc", "sglang serve $A"], ["sglang", "serve", "$A"], ["bash", "-c", "sglang serve"], []],
)
def test_other_commands_stay_as_they_are(argv: list[str]) -> None:
    assert inherited.written_out(argv, {"A": "b"}) == tuple(argv)


# --- which Python -------------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with python3, and with scripts of sglang as pip and others write them."""
    for name, text in {
        "python3": "",
        "sglang": f"#!{tmp_path}/python3\n",
        "env-sglang": "#!/usr/bin/env -S python3 -s\n",
        "long-sglang": f"#!/bin/sh\n'''exec' {tmp_path}/python3 \"$0\" \"$@\"\n' '''\n",
        "quoted-sglang": f"#!/bin/sh\n'''exec' \"{tmp_path}/python3\" \"$0\" \"$@\"\n' '''\n",
        "shell-sglang": '#!/bin/bash\nexec python3 -m sglang.launch_server "$@"\n',
        "binary-sglang": "\x7fELF\0\0",
    }.items():
        folder = tmp_path / name.partition("-")[0] if "-" in name else tmp_path
        folder.mkdir(exist_ok=True)
        (folder / name.rpartition("-")[2]).write_text(text)
        (folder / name.rpartition("-")[2]).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m sglang.launch_server",
        "python3 -u -msglang.launch_server",
        "python3 /src/sglang/launch_server.py",
        "sglang serve",
        "nice -n 5 env A=b sglang serve",
        "bash -c 'exec python3 -m sglang.launch_server --tp 2; true'",
        "{0}/sglang serve",
        "{0}/env/sglang serve",
        "{0}/long/sglang serve",
        "{0}/quoted/sglang serve",
        "sudo {0}/python3 -m sglang.launch_server",
        "conda run -n x {0}/sglang serve",
        "bash -c 'source /opt/venv/bin/activate && exec {0}/sglang serve'",
    ],
)
def test_the_python_of_a_command(programs: Path, command: str) -> None:
    import shlex

    argv = shlex.split(command.format(programs))
    assert inherited.interpreter(argv, f"/nonexistent:{programs}") == programs / "python3"


@pytest.mark.parametrize(
    "command",
    [
        "sudo python3 -m sglang.launch_server",
        "conda run -n sglang sglang serve",
        "uv run sglang serve",
        "bash -lc 'sglang serve'",
        "bash -c 'source /opt/venv/bin/activate && python3 -m sglang.launch_server'",
        "bash -c 'export PATH=/opt/bin; sglang serve'",
        "apptainer exec image.sif {0}/python3 -m sglang.launch_server",
        "{0}/shell/sglang serve",
        "{0}/binary/sglang serve",
        "{0}/none/sglang serve",
        "none-such/python3.99x -m sglang.launch_server",
        "bash start.sh",
    ],
)
def test_a_python_that_cannot_be_told(programs: Path, command: str) -> None:
    import shlex

    argv = shlex.split(command.format(programs))
    assert inherited.interpreter(argv, str(programs)) is None


def test_without_a_path_only_a_full_path_tells(programs: Path) -> None:
    assert inherited.interpreter(SERVE, None) is None
    assert inherited.interpreter([f"{programs}/python3", *LAUNCH[1:]], None) == programs / "python3"
