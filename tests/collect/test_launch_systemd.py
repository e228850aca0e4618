"""Service units: the words and the environment that systemd gives the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdoctor.collect import launch_kinds
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.collect.launch_systemd_words import Variables, expanded, specified, unit_words
from sgdoctor.collect.launch_words import Piece, Value
from sgdoctor.errors import UsageError


def unit(service: str, name: str = "llm.service") -> LaunchCommand:
    (command,) = launch_kinds.parse(f"[Unit]\nDescription=x\n[Service]\n{service}\n", name)
    return command


def words(command: LaunchCommand) -> list[tuple[str, int]]:
    return [(word.text, word.line) for word in command.words]


def value(text: str) -> Value:
    return (Piece(text, 1),)


def split(line: str, **variables: str) -> list[list[str]]:
    """Return the words of an ExecStart= line, the program's own name left out."""
    known = Variables({name: value(text) for name, text in variables.items()})
    return [[word.text for word in expanded(each, known)[1:]] for each in unit_words(value(line))]


# --- words ----------------------------------------------------------------------------------------------


def test_the_examples_of_systemd_s_manual():
    # systemd.service(5) of 252, "Command lines"
    assert split("echo $ONE $TWO ${TWO}", ONE="one", TWO="two two") == [["one", "two", "two", "two two"]]
    variables = {"ONE": "one", "TWO": "'two two' too", "THREE": ""}
    assert split("/bin/echo ${ONE} ${TWO} ${THREE}", **variables) == [["one", "'two two' too", ""]]
    assert split("/bin/echo $ONE $TWO $THREE", **variables) == [["one", "two two", "too"]]
    assert split("/bin/echo one ; /bin/echo 'two two'") == [["one"], ["two two"]]
    assert split("/bin/echo / >/dev/null & \\; /bin/ls") == [["/", ">/dev/null", "&", ";", "/bin/ls"]]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x a\\x20b \"c d\"'e f'g", ["a b", "c de fg"]),
        ("x a\\sb \\101 \\u00e9 \\q", ["a b", "A", "é", "\\q"]),
        ("x '' $NONE ${NONE}", ["", ""]),
        ("x $$A a$A ${A}b", ["$A", "a$A", "vb"]),
        ("-@/bin/x name a", ["a"]),
        (":/bin/x $A ${A}", ["$A", "${A}"]),
    ],
)
def test_quotes_escapes_and_variables(line: str, expected: list[str]):
    assert split(line, A="v") == [expected]


def test_specifiers():
    words = unit_words(value("x %% %n %N %i %H"))[0].words
    found = [specified(word, "llm@2.service") for word in words]
    assert [(word.text, word.known) for word in found[1:]] == [
        ("%", True),
        ("llm@2.service", True),
        ("llm@2", True),
        ("2", True),
        ("%H", False),
    ]


def test_lines_that_go_on_keep_their_numbers_and_comments_between_them_are_left_out():
    command = unit(
        "ExecStart=/opt/venv/bin/python -m sglang.launch_server \\\n  --tp 4 \\\n# no\n;no\n  --dp 2"
    )
    assert words(command) == [("--tp", 5), ("4", 5), ("--dp", 8), ("2", 8)]
    assert (command.line, command.end_line) == (4, 8)


def test_an_empty_assignment_forgets_the_ones_before():
    command = unit("ExecStart=/bin/sglang serve a\nExecStart=\nExecStart=/bin/sglang serve b")
    assert words(command) == [("b", 6)]


def test_all_commands_of_a_unit():
    text = "[Service]\nType=oneshot\nExecStart=/bin/sglang serve a ; /bin/sglang serve b\n"
    text += "ExecStart=/bin/sglang serve c\n"
    commands = launch_kinds.parse(text, "llm.service")
    assert [each.model for each in commands] == ["a", "b", "c"]
    assert commands[0].notes == []
    refused = launch_kinds.parse(text.replace("Type=oneshot\n", ""), "llm.service")
    assert refused[0].notes == ["llm.service:3: systemd refuses a second ExecStart= unless Type=oneshot"]


def test_a_shell_and_a_container_within():
    shell = unit("ExecStart=/bin/bash -c 'exec sglang serve m --tp $$TP \"$${X}\"'\nEnvironment=TP=4 X=y")
    assert [word.text for word in shell.words] == ["m", "--tp", "4", "y"]
    docker = unit(
        "ExecStart=/usr/bin/docker run -p 127.0.0.1:30000:30000 lmsysorg/sglang:v0.5.10 sglang serve m"
    )
    assert docker.container is not None
    assert docker.container.image == "lmsysorg/sglang:v0.5.10"


# --- the environment ------------------------------------------------------------------------------------


def test_variables_and_that_there_are_no_others():
    command = unit(
        "Environment=NCCL_DEBUG=INFO \"SGLANG_X=a b\"\nEnvironment='NCCL_ALGO=%%'\n"
        "UnsetEnvironment=NCCL_P2P_LEVEL\nExecStart=/bin/sglang serve m"
    )
    assert {name: (each.value, each.line) for name, each in command.variables.items()} == {
        "NCCL_DEBUG": ("INFO", 4),
        "SGLANG_X": ("a b", 4),
        "NCCL_ALGO": ("%", 5),
        "NCCL_P2P_LEVEL": (None, 7),
    }
    assert command.closed


def test_files_of_variables_win_over_the_unit(tmp_path: Path):
    file = tmp_path / "llm.env"
    file.write_text("# c\nTP=8\nNCCL_DEBUG=\"WARN\"\nMODEL='a b'\nEXTRA=--dp \\\n2\n")
    command = unit(
        f"Environment=TP=4\nEnvironmentFile={file}\nExecStart=/bin/sglang serve ${{MODEL}} --tp $TP $EXTRA"
    )
    assert [word.text for word in command.words] == ["a b", "--tp", "8", "--dp", "2"]
    assert command.variables["NCCL_DEBUG"].value == "WARN"
    assert command.closed


def test_a_file_that_is_not_here_leaves_every_variable_open():
    command = unit(
        "Environment=TP=4\nEnvironmentFile=-/none/x\nExecStart=/bin/sglang serve m --tp ${TP} $EXTRA"
    )
    assert [(word.text, word.known, word.many) for word in command.words[2:]] == [
        ("$TP", False, False),
        ("${EXTRA}", False, True),
    ]
    assert command.words[2].reason == "EnvironmentFile=-/none/x may set it"
    assert not command.closed
    assert command.notes == [
        "llm.service:5: -/none/x could not be read: No such file or directory (it need not exist)"
    ]


def test_what_systemd_sets_itself_is_not_known():
    command = unit("ExecStart=/bin/sglang serve ${HOME}/m --x ${STATE_DIRECTORY}")
    assert [word.known for word in command.words] == [False, True, False]


def test_where_relative_paths_start():
    assert unit("ExecStart=/bin/sglang serve m").folder == Path("/")
    assert unit("WorkingDirectory=-/srv\nExecStart=/bin/sglang serve m").folder == Path("/srv")


@pytest.mark.parametrize("fence", ["PrivateNetwork=yes", "IPAddressDeny=any\nIPAddressAllow=localhost"])
def test_a_unit_that_is_fenced_in(fence: str):
    command = unit(f"{fence}\nExecStart=/bin/sglang serve m --host 0.0.0.0")
    assert command.network is not None
    assert command.network.reached(30000)[0] == "no"
    assert unit("ExecStart=/bin/sglang serve m").network is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[Service]\nExecStart=/bin/sglang serve 'm\n",
            "llm.service:2: systemd cannot split this ExecStart=",
        ),
        ("[Unit]\nDescription=x\n", "llm.service holds no sglang.launch_server or sglang serve command"),
        ("[Container]\nImage=x\n", "llm.service is a Podman quadlet, which is not read"),
    ],
)
def test_what_starts_no_server(text: str, message: str):
    with pytest.raises(UsageError) as raised:
        launch_kinds.parse(text, "llm.service")
    assert str(raised.value).startswith(message)
