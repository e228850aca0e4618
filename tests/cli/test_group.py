"""What all commands have in common: help, errors in one line, exit codes, pipes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import sgdoctor as package
from sgdoctor.cli import group
from tests import pages
from tests.test_pages import wrong


def failed(done):
    """Return the one line that a failed command wrote."""
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("sgdoctor: ")
    return line


def test_version(sgdoctor):
    done = sgdoctor("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"sgdoctor {package.__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *[[name, "--help"] for name in group.COMMANDS]])
def test_help_fits_into_80_columns(sgdoctor, arguments):
    done = sgdoctor(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: sgdoctor")
    assert max(map(len, done.stdout.splitlines())) <= 80


def every(command, *words):
    """Iterate over a command and all below it, each with the words that call it."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every(command.get_command(context, name), *words, name)


HELPS = [pytest.param(command, id=" ".join(words)) for words, command in every(group.commands) if words]


@pytest.mark.parametrize("command", HELPS)
def test_every_help_has_examples_that_can_be_typed(command):
    _, _, examples = (command.epilog or "").partition("Examples:\n")
    lines = examples.partition("\n\n")[0].splitlines()
    called = [words for line in lines for words in pages.called(line)]
    assert called
    assert [problem for words in called if (problem := wrong(words))] == []


def test_the_short_helps_are_those_of_the_commands():
    for name, said in group.COMMANDS.items():
        command = group.commands.get_command(None, name)
        assert command.name == name
        assert said.endswith(".")


@pytest.mark.parametrize("repair", ["flags", "fused-MoE config", "undo"])
def test_the_overview_tells_of_every_repair(sgdoctor, repair):
    (line,) = [line for line in sgdoctor("--help").stdout.splitlines() if line.startswith("  fix ")]
    assert repair in line


def test_no_command_shows_the_help(sgdoctor):
    done = sgdoctor()
    assert done.returncode == 2
    assert "Commands:" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chekc"], "no command 'chekc'; did you mean check?"),
        (["version"], "no command 'version' (sgdoctor --help)"),
        (["check", "--lgo", "x"], "--log"),
        (["check", "--fail-on", "fatal"], "'fatal' is not one of"),
        (["check", "server.log"], "name it as --log server.log"),
        (["check", "launch.sh"], "name it as --launch launch.sh"),
        (["check", "compose.yaml"], "name it as --launch compose.yaml"),
        (["check", "Dockerfile"], "sgdoctor: Dockerfile: name it as --launch Dockerfile"),
        (["check", "http://127.0.0.1:30000"], "name it as --url http://127.0.0.1:30000"),
        (["check", "whatever"], "a launch command goes behind --"),
        (["check", "--"], "the launch command goes there"),
        (["explain"], "missing argument 'CODE'"),
        (["explain", "cfg10"], "did you mean CFG101 or CFG102 or CFG103?"),
        (["explain", "moe-config-misin"], "did you mean moe-config-missing"),
        (["explain", "CFG101", "--rules", "nowhere"], "nowhere: no such folder of rules"),
        (["configs", "explain"], "missing option '--model' (sgdoctor configs explain --help)"),
        (["check", "--log"], "sgdoctor: option '--log' requires an argument"),
        (["rules", "lst"], "lst"),
        (["snapshot"], "missing option '-o'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_2(sgdoctor, arguments, said):
    done = sgdoctor(*arguments)
    assert done.returncode == 2
    assert said in failed(done)


def test_a_bug_is_one_line_and_4_and_a_traceback_only_when_asked_for(sgdoctor, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sgdoctor.cli.explain as module\n"
        "def broken(*_args, **_options): raise KeyError('moe')\n"
        "module.command.callback = broken\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(package.__file__).parents[1])])
    done = sgdoctor("explain", "CFG101", PYTHONPATH=path)
    assert done.returncode == 4
    line = failed(done)
    assert "internal error" in line
    assert "KeyError: 'moe'" in line
    assert "SGDOCTOR_DEBUG=1" in line
    done = sgdoctor("explain", "CFG101", PYTHONPATH=path, SGDOCTOR_DEBUG="1")
    assert done.returncode == 4
    assert "Traceback" in done.stderr


def test_no_secret_gets_into_an_error(sgdoctor):
    done = sgdoctor("explain", "http://user:hunter2@host")
    assert "hunter2" not in failed(done)


def test_an_error_cannot_steer_the_terminal(sgdoctor):
    assert "\x1b" not in failed(sgdoctor("explain", "\x1b[2J"))


@pytest.mark.parametrize(
    "arguments", ["--help", "check --help", "rules list", "explain CFG101", "rules list --format json"]
)
def test_a_reader_that_goes_away_is_no_error(environment, arguments):
    script = f"set -o pipefail; {sys.executable} -m sgdoctor {arguments} | head -1"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1


def test_a_reader_that_was_never_there_is_no_error(environment):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "sgdoctor", "rules", "list"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_said(environment):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "sgdoctor", "rules", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "sgdoctor: standard output: No space left on device\n")


def test_closed_outputs_are_no_error(environment):
    script = f"{sys.executable} -m sgdoctor rules list >&- 2>&-"
    assert subprocess.run(["bash", "-c", script], env=environment, check=False).returncode == 0


def on_a_terminal(arguments, environment, columns=80):
    """Run the command on a terminal of its own and return what it wrote there."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "cols", str(columns), "rows", "40"], stdin=slave, check=True)
    with subprocess.Popen(
        [sys.executable, "-m", "sgdoctor", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
    ) as child:
        os.close(slave)
        written = bytearray()
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:
                break
            if not part:
                break
            written += part
        assert child.wait(30) == 0
    os.close(master)
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colour_and_its_own_width(sgdoctor, environment):
    written = on_a_terminal(["explain", "CFG101"], {**environment, "TERM": "xterm"}, columns=100)
    assert "\x1b[1m" in written
    piped = sgdoctor("explain", "CFG101", COLUMNS="100").stdout
    assert re.sub(r"\x1b\[[0-9;]*m", "", written) == piped


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}, {}])
def test_colour_can_be_switched_off(environment, setting):
    assert "\x1b" not in on_a_terminal(["explain", "CFG101"], {**environment, **setting})


def test_colour_can_be_forced_into_a_pipe(sgdoctor):
    assert "\x1b[" in sgdoctor("explain", "CFG101", FORCE_COLOR="1").stdout
    assert "\x1b[" not in sgdoctor("explain", "CFG101").stdout


def test_an_ascii_terminal_gets_ascii(sgdoctor):
    assert sgdoctor("explain", "CFG101", PYTHONIOENCODING="ascii").stdout.isascii()


def test_rich_is_not_imported_for_a_pipe(environment):
    code = "import sys; from sgdoctor.cli import main; main(['explain', 'CFG101']); sys.exit('rich' in "
    code += "sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "absent"), [("--version", "click"), ("--help", "msgspec"), ("--help", "yaml")]
)
def test_what_start_up_does_without(environment, arguments, absent):
    code = f"import sys; from sgdoctor.cli import main; main([{arguments!r}]); "
    code += f"sys.exit({absent!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, check=False)
    assert done.returncode == 0
