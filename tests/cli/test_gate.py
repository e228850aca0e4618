"""``sgdoctor gate`` in front of a launch: what is launched, what is not, and what is said."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.launches import GATE, ROOT, Deployment

SERVE = ("sglang", "serve", "--model-path", "dense")
LAUNCH = ("python3", "-m", "sglang.launch_server", "--model-path", "dense")
BROKEN = "--enable-turbo-mode"  # a flag that SGLang does not have
EXPOSED = ("--host", "0.0.0.0")
ONLY = ("--select", "ARG101,SEC101")


@pytest.fixture
def deployment(tmp_path):
    return Deployment(tmp_path)


def line(done):
    """Return the only line on standard error."""
    (said,) = done.stderr.splitlines()
    assert said.startswith("sgdoctor gate: ")
    return said.removeprefix("sgdoctor gate: ")


# --- launched and not launched ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [SERVE, LAUNCH])
def test_a_command_with_nothing_wrong_is_launched(deployment, command):
    done = deployment.run(*command, options=ONLY, STUB_EXIT="0")
    assert done.returncode == 0
    assert done.stdout.startswith("up ")
    assert line(done) == "nothing found, 2 rules passed; launching"


@pytest.mark.parametrize("command", [SERVE, LAUNCH])
def test_a_command_that_cannot_start_is_not_launched(deployment, command):
    done = deployment.run(*command, BROKEN)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error    ARG101  SGLang 0.5.12 does not know --enable-turbo-mode" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("sgdoctor gate: 1 error, ")
    assert last.endswith("(SGDOCTOR_GATE=off launches all the same); not launched")


def test_findings_below_the_level_are_counted_and_launched(deployment):
    done = deployment.run(*SERVE, *EXPOSED, options=ONLY, STUB_EXIT="0")
    assert (done.returncode, done.stdout[:3]) == (0, "up ")
    assert line(done) == "0 errors, 1 warning, 0 info (`sgdoctor check -- ...` shows them); launching"


def test_the_level_is_the_operators(deployment):
    done = deployment.run(*SERVE, *EXPOSED, options=[*ONLY, "--fail-on", "warning"])
    assert (done.returncode, done.stdout) == (1, "")
    assert "SEC101" in done.stderr
    done = deployment.run(*SERVE, BROKEN, options=["--fail-on", "never"])
    assert (done.returncode, done.stdout[:3]) == (2, "up ")


@pytest.mark.parametrize("code", [0, 3, 137])
def test_the_exit_code_is_the_servers(deployment, code):
    assert deployment.run(*SERVE, options=ONLY, STUB_EXIT=str(code)).returncode == code


def test_a_server_that_is_killed_is_seen_as_killed(deployment):
    assert deployment.run(*SERVE, options=ONLY, STUB_DIES="1").returncode == -9


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize(
    ("flags", "variables", "code", "after"),
    [
        ("", {"STUB_EXIT": "0"}, 0, True),
        ("", {"STUB_EXIT": "3"}, 3, False),
        ("", {"STUB_DIES": "1"}, 137, False),
        (BROKEN, {}, 1, False),
    ],
)
def test_a_script_with_set_e_ends_as_without_the_gate(deployment, shell, flags, variables, code, after):
    script = f"set -e\n{' '.join(GATE)} --select ARG101 -- {' '.join(SERVE)} {flags}\necho after\n"
    done = subprocess.run(
        [shell, "-c", script],
        env=deployment.environment(**variables),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert ("after" in done.stdout) is after


# --- what the command will have is what is checked ----------------------------------------------------------

MODEL = ROOT / "tests" / "captures" / "models" / "dense" / "config.json"
TOO_LONG = ("--context-length", "9999999")


def test_a_variable_that_is_not_set_here_is_known_not_to_be_set(deployment):
    done = deployment.run(*SERVE, *TOO_LONG, options=["--model", MODEL, "--select", "ARG116"])
    assert (done.returncode, done.stdout) == (1, "")


def test_a_variable_that_is_set_here_is_the_commands(deployment):
    done = deployment.run(
        *SERVE,
        *TOO_LONG,
        options=["--model", MODEL, "--select", "ARG116"],
        SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN="1",
        STUB_EXIT="0",
    )
    assert (done.returncode, done.stdout[:3]) == (0, "up ")


def test_variables_are_written_out_in_the_command_of_a_shell(deployment):
    command = 'exec sglang serve --model-path "$MODEL" $FLAGS $UNSET'
    done = deployment.run("bash", "-c", command, options=ONLY, MODEL="dense", FLAGS=BROKEN)
    assert (done.returncode, done.stdout) == (1, "")
    done = deployment.run("bash", "-c", command, options=ONLY, MODEL="dense", FLAGS="", STUB_EXIT="0")
    assert (done.returncode, line(done)) == (0, "nothing found, 2 rules passed; launching")


def test_the_python_is_that_of_the_command_not_the_first_on_path(deployment, tmp_path):
    other = Deployment(tmp_path / "other", release="0.5.7")
    command = [other.python, *LAUNCH[1:], "--cuda-graph-bs", "1", "--disable-cuda-graph-padding"]
    done = deployment.run(*command, BROKEN)
    assert done.returncode == 1
    assert "SGLang 0.5.7 does not know" in done.stderr


def test_another_python_can_be_named(deployment, tmp_path):
    other = Deployment(tmp_path / "other", release="0.5.7")
    done = deployment.run(*SERVE, BROKEN, options=["--python", other.python])
    assert "SGLang 0.5.7 does not know" in done.stderr


def test_a_machine_that_is_described_is_taken_for_this_one(deployment, tmp_path):
    described = tmp_path / "environment.json"
    described.write_text('{"packages": {"sglang": "0.5.20"}, "gpus": []}')
    done = deployment.run(*SERVE, BROKEN, options=["--environment", described])
    assert done.returncode == 1
    assert "SGLang 0.5.20 does not know" in done.stderr


# --- nothing known: launched, unless that is not wanted -----------------------------------------------------


@pytest.mark.parametrize(
    "command", [("bash", "start.sh"), ("sh", "-c", "echo up; exit 5"), ("env", "A=b", "sh", "start.sh")]
)
def test_a_command_that_is_not_sglangs_is_launched(deployment, command):
    (deployment.folder / "start.sh").write_text("echo up; exit 5\n")
    done = deployment.run(*command)
    assert (done.returncode, done.stdout) == (5, "up\n")
    assert line(done).startswith("nothing checked: the command line holds no sglang.launch_server or ")
    done = deployment.run(*command, options=["--require-known"])
    assert (done.returncode, done.stdout) == (3, "")
    assert line(done).endswith("; not launched (--require-known)")


def test_what_cannot_be_decided_is_launched(deployment):
    options = ["--select", "ARG116"]  # needs the model, which is not here
    done = deployment.run(*SERVE, *TOO_LONG, options=options, STUB_EXIT="0")
    assert (done.returncode, done.stdout[:3]) == (0, "up ")
    assert line(done).startswith("could not decide: no rule could be decided (0 errors, ")
    done = deployment.run(*SERVE, *TOO_LONG, options=[*options, "--require-known"])
    assert (done.returncode, done.stdout) == (3, "")


# --- settings -----------------------------------------------------------------------------------------------

SUPPRESSED = '[[suppress]]\ncode = "ARG101"\nreason = "a build of ours has the flag"\n'


def test_settings_that_lie_in_the_working_folder_silence_nothing(deployment):
    (deployment.folder / "sgdoctor.toml").write_text(SUPPRESSED)
    done = deployment.run(*SERVE, BROKEN, options=ONLY)
    assert (done.returncode, done.stdout) == (1, "")


def test_settings_that_are_named_do_and_the_line_says_so(deployment):
    (deployment.folder / "ours.toml").write_text(SUPPRESSED)
    done = deployment.run(*SERVE, BROKEN, options=[*ONLY, "--config", "ours.toml"], STUB_EXIT="0")
    assert done.stdout.startswith("up ")
    assert line(done) == "nothing found but 1 suppressed by ours.toml, 1 rule passed; launching"


def test_options_may_stand_in_the_settings(deployment):
    (deployment.folder / "ours.toml").write_text('fail-on = "warning"\nselect = ["SEC101"]\n')
    done = deployment.run(*SERVE, *EXPOSED, options=["--config", "ours.toml"])
    assert (done.returncode, done.stdout) == (1, "")
    done = deployment.run(
        *SERVE, *EXPOSED, options=["--config", "ours.toml", "--fail-on", "error"], STUB_EXIT="0"
    )
    assert done.stdout.startswith("up ")


@pytest.mark.parametrize("text", ["selct = []", 'select = ["XYZ"]', SUPPRESSED.replace("ARG101", "ARG999")])
def test_settings_that_are_wrong_are_a_file_that_is_wrong(deployment, text):
    (deployment.folder / "ours.toml").write_text(text)
    done = deployment.run(*SERVE, options=["--config", "ours.toml"], STUB_EXIT="0")
    assert (done.returncode, done.stdout[:3]) == (0, "up ")
    assert line(done).startswith("ours.toml: ") or line(done).startswith("nothing checked: ours.toml: ")


@pytest.mark.parametrize("option", ["--model", "--environment", "--python", "--rules", "--config"])
def test_a_file_that_is_missing_or_broken_is_no_reason_not_to_launch(deployment, tmp_path, option):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "XYZ.yaml").write_text("code: [")
    for place in (tmp_path / "nowhere", tmp_path / "broken"):
        done = deployment.run(*SERVE, options=[option, place], STUB_EXIT="0")
        assert (done.returncode, done.stdout[:3]) == (0, "up ")
        assert line(done).endswith("; launching")
        assert place.name in done.stderr
        done = deployment.run(*SERVE, options=[option, place, "--require-known"])
        assert (done.returncode, done.stdout) == (2, "")
        assert line(done).endswith("; not launched (--require-known)")


@pytest.fixture
def copy(tmp_path):
    """Return a copy of sgdoctor to break, and the variables that make it the one that runs."""
    for name in ("sgdoctor", "rules"):
        shutil.copytree(ROOT / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


def test_a_rule_that_comes_with_sgdoctor_and_is_broken_launches(deployment, copy):
    next((copy / "rules").rglob("ARG101*.yaml")).write_text("code: ARG101\nname: [\n")
    done = deployment.run(*SERVE, PYTHONPATH=str(copy), STUB_EXIT="7")
    assert (done.returncode, done.stdout[:3]) == (7, "up ")
    assert "ARG101" in line(done)
    done = deployment.run(*SERVE, options=["--require-known"], PYTHONPATH=str(copy))
    assert (done.returncode, done.stdout) == (4, "")


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("rules/facts.yaml", "a: [", "the check broke: "),
        ("sgdoctor/settle.py", "raise RuntimeError('moe')", "the check broke: RuntimeError: moe at sgdoctor"),
        ("sgdoctor/settle.py", "raise SystemExit(1)", "the check broke: SystemExit: 1"),
        ("sgdoctor/settle.py", "import os; os.abort()", "the check died"),
        ("sgdoctor/examine.py", "def check(", "the check broke: SyntaxError"),
        ("sgdoctor/gate/asking.py", "import none_such", "the check did not start"),
        ("sgdoctor/cli/group.py", "import none_such", "sgdoctor does not work here: ModuleNotFoundError"),
        ("click/__init__.py", "import none_such", "sgdoctor does not work here: ModuleNotFoundError"),
    ],
)
def test_an_sgdoctor_that_is_broken_launches(deployment, copy, module, text, said):
    (copy / module).parent.mkdir(exist_ok=True)
    (copy / module).write_text(text)
    done = deployment.run(*SERVE, PYTHONPATH=str(copy), STUB_EXIT="7")
    assert (done.returncode, done.stdout[:3]) == (7, "up ")
    assert line(done).startswith(said)
    assert line(done).endswith("; launching")
    done = deployment.run(*SERVE, options=["--require-known"], PYTHONPATH=str(copy))
    assert (done.returncode, done.stdout) == (4, "")


def test_a_home_that_cannot_be_read_is_no_reason_not_to_launch(deployment, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for home in (loop, tmp_path / "nowhere", Path("/proc/self/mem"), Path("relative")):
        done = deployment.run(*SERVE, options=ONLY, HOME=str(home), STUB_EXIT="0")
        assert (done.returncode, line(done)) == (0, "nothing found, 2 rules passed; launching")


def test_a_home_that_is_closed_to_this_user_is_no_reason_not_to_launch(deployment, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0)
    drop = "-dac_override,-dac_read_search"
    plain = ["setpriv", "--bounding-set", drop] if os.geteuid() == 0 else []
    command = [*plain, *GATE, *ONLY, "--", *SERVE]
    done = subprocess.run(
        command,
        env=deployment.environment(HOME=str(home), STUB_EXIT="0"),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, line(done)) == (0, "nothing found, 2 rules passed; launching")


# --- the switch and mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["off", "OFF", "0"])
def test_switched_off_it_launches_without_a_word(deployment, value):
    done = deployment.run(*SERVE, BROKEN, options=["--fail-on", "info"], SGDOCTOR_GATE=value)
    assert (done.returncode, done.stdout[:3], done.stderr) == (2, "up ", "")


def test_switched_off_it_needs_nothing_of_sgdoctor_but_the_launch(deployment, copy):
    for folder in (copy / "sgdoctor").iterdir():
        if folder.is_dir() and folder.name not in ("gate", "cli"):
            shutil.rmtree(folder)
    done = deployment.run(*SERVE, PYTHONPATH=str(copy), SGDOCTOR_GATE="off", STUB_EXIT="0")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("value", ["", "on", "1"])
def test_other_values_do_not_switch_it_off(deployment, value):
    assert deployment.run(*SERVE, BROKEN, SGDOCTOR_GATE=value).returncode == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--fail-on", "fatal"], "'fatal' is not one of"),
        (["--deadline", "soon"], "'soon' is not a valid float"),
        (["--deadline", "0"], "0.0 is not in the range"),
        (["--url", "http://127.0.0.1:30000"], "--url"),
        (["sglang"], "a launch command goes behind --"),
        (["--select", "XYZ999"], "no rule is named XYZ999"),
        (["--gpu", "H9000"], "H9000"),
        (["--assume", "model.layerz=48"], "no such fact"),
    ],
)
def test_an_option_that_is_wrong_is_2_and_launches_nothing(deployment, options, said):
    done = deployment.run(*SERVE, options=options)
    assert (done.returncode, done.stdout) == (2, "")
    (told,) = done.stderr.splitlines()
    assert said.lower() in told.lower()


@pytest.mark.parametrize("words", [[], ["--"], ["--fail-on", "error"], ["sglang", "serve"]])
def test_a_gate_without_a_command_is_2(deployment, words):
    done = subprocess.run(
        [*GATE, *words], env=deployment.environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("off", [{}, {"SGDOCTOR_GATE": "off"}])
@pytest.mark.parametrize(
    "command",
    ["missing", "./missing", "", "./folder", "plain", "./plain", "loose", "binary", "lost"],
)
def test_what_cannot_be_executed_ends_as_in_a_shell(deployment, command, off):
    (deployment.folder / "folder").mkdir()
    (deployment.bin / "plain").write_text("not executable")
    (deployment.folder / "plain").write_text("not executable")
    deployment.program("loose", 'echo "a script without a first line: $1"; exit 9')
    deployment.program("binary", "\x7fELF\0 and nothing more")
    deployment.program("lost", "#!/nonexistent\n")
    done = deployment.run(command, "word", **off)
    shell = subprocess.run(
        ["bash", "-c", 'exec "$0" word', command],
        env=deployment.environment(),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (shell.returncode, shell.stdout)
    assert len(done.stderr.splitlines()) == (0 if command == "loose" else 1) + (not off)


def test_a_program_further_down_path_is_found_behind_one_that_is_not_executable(deployment):
    (deployment.bin / "true").write_text("not executable")
    assert deployment.run("true", SGDOCTOR_GATE="off").returncode == 0
