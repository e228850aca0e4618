"""Dockerfiles: what the image of the last stage starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgdoctor.collect import launch, launch_kinds
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.collect.launch_dockerfile import exec_form
from sgdoctor.collect.launch_dockerfile_text import instructions
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts

# What Docker's own parser makes of files, by tools/record_launch.py.
RECORDED = json.loads((Path(__file__).parent / "recorded_launch_files.json").read_text())["dockerfile"]


def image(text: str, base: str = "lmsysorg/sglang:v0.5.10") -> LaunchCommand:
    (command,) = launch_kinds.parse(f"FROM {base}\n{text}\n", "Dockerfile")
    return command


def texts(command: LaunchCommand) -> list[str]:
    return [word.text for word in command.words]


def version(command: LaunchCommand) -> tuple[str | None, str]:
    facts = Facts()
    launch.collect(facts, command)
    known = facts.roots("sglang.version").get("sglang.version")
    return facts.value("sglang.version"), known.provenance[0].place if known else ""


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["text"][:40])
def test_as_docker_itself(case: dict[str, Any]):
    found = []
    for each in instructions(case["text"]):
        words = exec_form(each) if each.name in ("CMD", "ENTRYPOINT") else None
        found.append([each.name.lower(), None if words is None else [word.text for word in words]])
    names = [
        [name.lower(), form if name.lower() in ("cmd", "entrypoint") else None]
        for name, form, _ in case["instructions"]
    ]
    assert found == names


# --- what it starts -------------------------------------------------------------------------------------


def test_exec_forms_with_the_lines_of_their_words():
    command = image(
        'ENTRYPOINT ["python3", "-m", \\\n  "sglang.launch_server"]\n# c\nCMD ["--tp", \\\n  # d\n  "4"]'
    )
    assert [(word.text, word.line) for word in command.words] == [("--tp", 5), ("4", 7)]


def test_shell_forms():
    command = image("ENV MODEL=/m TP=4\nCMD sglang serve $MODEL \\\n\n  --tp ${TP} --x $Y")
    assert [(word.text, word.line) for word in command.words] == [
        ("/m", 2),
        ("--tp", 5),
        ("4", 2),
        ("--x", 5),
        ("$Y", 5),
    ]
    entry = image('CMD ["--ignored"]\nENTRYPOINT exec sglang serve m')
    assert texts(entry) == ["m"]
    bash = image('SHELL ["/bin/bash", "-lc"]\nCMD sglang serve m')
    assert texts(bash) == ["m"]


def test_the_last_of_each_counts_and_healthchecks_do_not():
    command = image(
        'CMD ["sglang", "serve", "a"]\ncmd ["sglang", "serve", "b"]\nHEALTHCHECK CMD sglang serve c'
    )
    assert texts(command) == ["b"]


def test_the_last_stage_takes_over_what_it_is_built_from():
    text = """FROM lmsysorg/sglang:v0.5.10 AS Base
ENV TP=2
ENTRYPOINT ["sglang", "serve"]
CMD ["a"]
FROM golang AS other
CMD ["/other"]
FROM base
CMD ["b"]
"""
    (command,) = launch_kinds.parse(text, "Dockerfile")
    assert texts(command) == ["b"]
    assert version(command) == ("0.5.10", "Dockerfile:1")


def test_an_entrypoint_of_its_own_drops_the_base_s_command():
    text = 'FROM x AS a\nCMD ["--old"]\nFROM a\nENTRYPOINT ["sglang", "serve", "m"]\n'
    (command,) = launch_kinds.parse(text, "Dockerfile")
    assert texts(command) == ["m"]


def test_another_escape_character():
    text = "# escape=`\nFROM x\nCMD sglang serve m `\n  --tp 4\n"
    (command,) = launch_kinds.parse(text, "Dockerfile")
    assert texts(command) == ["m", "--tp", "4"]


def test_windows_line_ends():
    (command,) = launch_kinds.parse("FROM x\r\nCMD sglang serve m \\\r\n  --tp 4\r\n", "Dockerfile")
    assert texts(command) == ["m", "--tp", "4"]


# --- variables, release, network ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "value"),
    [
        ("ENV NCCL_X=a", "a"),
        ("ENV NCCL_X a b", "a b"),
        ("ENV OTHER=1 NCCL_X='a $b' Z=2", "a $b"),
        ('ENV A=v\nENV NCCL_X="a $A ${B:-w} \\$A"', "a v w $A"),
        ("ENV NCCL_X=a\\ b", "a b"),
        ("ARG A=v\nENV NCCL_X=$A", "v"),
        ("ENV A=v NCCL_X=${A:-w}", "w"),
    ],
)
def test_variables_of_the_image(env: str, value: str):
    assert image(f"{env}\nCMD sglang serve m").variables["NCCL_X"].value == value


def test_arguments_are_taken_at_their_defaults_with_a_note():
    text = """ARG TAG=v0.5.10
ARG NONE
FROM lmsysorg/sglang:${TAG}
ARG TAG
ENV NCCL_X=$TAG NCCL_Y=$NONE
CMD ["sglang", "serve"]
"""
    (command,) = launch_kinds.parse(text, "Dockerfile")
    assert version(command)[0] == "0.5.10"
    assert command.variables["NCCL_X"].value == "v0.5.10"
    assert not command.variables["NCCL_Y"].known
    assert command.notes == [
        "Dockerfile:1: $TAG is taken at its default there, which --build-arg may override"
    ]


@pytest.mark.parametrize(
    ("run", "release"),
    [
        ("RUN pip install nvitop", ("0.5.10", "Dockerfile:1")),
        ("RUN pip install x \\\n && pip install 'sglang[all]==0.5.12'", ("0.5.12", "Dockerfile:3")),
        ("RUN pip install -U sglang", (None, "")),
        ("RUN git clone https://github.com/sgl-project/sglang && pip install -e sglang/python", (None, "")),
    ],
)
def test_the_release_is_that_of_the_image_unless_another_is_installed(
    run: str, release: tuple[str | None, str]
):
    assert version(image(f"{run}\nCMD sglang serve m")) == release


def test_how_it_is_reached_is_not_known():
    network = image("EXPOSE 30000\nCMD sglang serve m --host 0.0.0.0").network
    assert network is not None
    assert network.reached(30000)[0] == "unknown"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM x\nCMD /start.sh\n", "Dockerfile holds no sglang.launch_server or sglang serve command"),
        ('FROM x\nCMD ["--tp", "4"]\n', "CMD gives only flags: what the base image runs is not known"),
        ("FROM x\nENV A=${1}\n", "Dockerfile:2: docker build refuses '${1}': no variable"),
        ('FROM x\nCMD ["sglang", "serve" "m"]\n', "Dockerfile holds no sglang"),
    ],
)
def test_what_starts_no_server(text: str, message: str):
    with pytest.raises(UsageError) as raised:
        launch_kinds.parse(text, "Dockerfile")
    assert message in str(raised.value)
