"""``sgdoctor check`` from the outside, with a rule of its own so that no other rule's change matters."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from sgdoctor.report.formats import FORMATS

ROOT = Path(__file__).parents[2]

RULE = """\
code: MEM901
name: many-layers
title: More layers than fit
severity: {severity}
impact: performance
confidence: high
case: M01
when: model.layers > 40
message: "The model has {{model.layers}} layers: more than 40."
why: For this test.
recommend:
  - {{run: sgdoctor explain MEM901}}
verified: in this test
sources: [https://github.com/sgl-project/sglang/pull/5955]
tests: []
"""

REPORT = """\
this installation

{severity} MEM901  The model has 48 layers: more than 40.
         known from  --assume model.layers  48 layers
         do          sgdoctor explain MEM901
"""


@pytest.fixture
def judge(sgdoctor, tmp_path):
    """Return what checks a deployment of so many layers with one rule of the given severity."""

    def run(*arguments, layers=48, severity="warning", **options):
        (tmp_path / "MEM901-many-layers.yaml").write_text(RULE.format(severity=severity))
        assumed = [] if layers is None else ["--assume", f"model.layers={layers}"]
        return sgdoctor("check", *assumed, "--rules", tmp_path, "--select", "MEM901", *arguments, **options)

    return run


@pytest.mark.parametrize("form", ["terminal", "json"])
@pytest.mark.parametrize(
    ("layers", "severity", "fail_on", "code"),
    [
        (48, "error", "error", 1),
        (48, "warning", "error", 0),
        (48, "warning", "warning", 1),
        (48, "info", "info", 1),
        (48, "error", "never", 0),
        (4, "error", "info", 0),
    ],
)
def test_the_exit_code_is_the_same_in_every_format(judge, tmp_path, form, layers, severity, fail_on, code):
    options = ["--format", form, "--fail-on", fail_on]
    done = judge(*options, layers=layers, severity=severity)
    assert (done.returncode, done.stderr) == (code, "")
    done = judge(*options, "--output", tmp_path / "report", layers=layers, severity=severity)
    assert (done.returncode, done.stdout) == (code, "")


@pytest.mark.parametrize("form", FORMATS)
def test_a_format_goes_to_a_file_as_it_goes_to_a_pipe_with_the_same_exit_code(judge, tmp_path, form):
    shown = judge("--format", form, severity="error")
    assert (shown.returncode, shown.stderr) == (1, "")
    assert "MEM901" in shown.stdout
    path = tmp_path / "report"
    written = judge("--format", form, "--output", path, severity="error")
    assert (written.returncode, written.stdout) == (1, "")
    assert written.stderr == f"{path}: 1 error, 0 warnings, 0 info.\n"
    assert path.read_text() == shown.stdout


@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 1)])
def test_a_case_of_junit_fails_with_the_command(judge, fail_on, code):
    done = judge("--format", "junit", "--fail-on", fail_on)
    assert done.returncode == code
    assert f'tests="1" failures="{code}"' in done.stdout


def test_a_format_that_there_is_not_is_2_and_names_those_that_there_are(judge):
    done = judge("--format", "xml")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert all(form in done.stderr for form in FORMATS)


def test_plain_has_no_colour_and_no_width(judge):
    done = judge("--format", "plain", FORCE_COLOR="1", COLUMNS="40")
    assert "\nwarning  MEM901  The model has 48 layers: more than 40.\n" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_report(judge):
    done = judge(severity="warning")
    assert done.stdout.startswith(REPORT.format(severity="warning "))
    assert done.stdout.endswith("0 errors, 1 warning, 0 info.  0 rules passed.  sgdoctor explain MEM901\n")


def test_json_keeps_to_the_schema(judge):
    told = json.loads(judge("--format", "json").stdout)
    jsonschema.validate(told, json.loads((ROOT / "docs" / "report.schema.json").read_text()))
    (finding,) = told["deployments"][0]["findings"]
    assert finding["code"] == "MEM901"
    assert finding["evidence"] == [
        {
            "fact": "model.layers",
            "value": 48,
            "source": "assume",
            "place": "--assume model.layers",
            "count": 1,
        }
    ]


def test_output_goes_into_the_file_and_a_line_says_what_was_found(judge, tmp_path):
    done = judge("--output", tmp_path / "report.txt")
    assert done.stderr == f"{tmp_path / 'report.txt'}: 0 errors, 1 warning, 0 info.\n"
    assert (tmp_path / "report.txt").read_text().startswith(REPORT.format(severity="warning "))


@pytest.mark.parametrize("place", ["nowhere/report.json", "."])
def test_an_output_that_cannot_be_written_is_2(judge, place):
    done = judge("--output", place)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["check --output", "check --write-baseline", "snapshot --output"])
@pytest.mark.parametrize("name", ["run.sh", "link.sh"])
def test_a_file_that_is_read_is_not_overwritten(sgdoctor, tmp_path, command, name):
    """An operator's launch script must survive a slip of the keyboard."""
    script = tmp_path / "run.sh"
    script.write_text("sglang serve --model-path /m\n")
    (tmp_path / "link.sh").symlink_to("run.sh")

    done = sgdoctor(*command.split(), name, "--launch", "run.sh")

    assert (done.returncode, done.stdout) == (2, "")
    option = command.split()[1]
    assert done.stderr == (
        f"sgdoctor: {option} {name} would overwrite the file of --launch: name another one\n"
    )
    assert script.read_text() == "sglang serve --model-path /m\n"


def test_a_baseline_is_renewed_in_place_and_nothing_goes_nowhere_twice(judge, tmp_path):
    known = tmp_path / "known.json"
    assert judge("--write-baseline", known).returncode == 0
    assert judge("--baseline", known, "--write-baseline", known).returncode == 0
    assert judge("--config", os.devnull, "--output", os.devnull).returncode == 0
    done = judge("--baseline", known, "--output", known)
    assert (done.returncode, done.stderr.count("would overwrite the file of --baseline")) == (2, 1)


def test_a_rule_that_cannot_be_decided_is_3_and_no_tick(judge):
    done = judge("--assume", "model.kv_heads=2", layers=None)
    assert done.returncode == 3
    assert "Nothing could be decided" in done.stdout
    assert not done.stdout.startswith("ok")
    assert "1 could not be decided (all with --model)" in " ".join(done.stdout.split())


def test_v_lists_what_could_not_be_decided(judge):
    shown = judge("-v", "--assume", "model.kv_heads=2", layers=None).stdout
    assert "unknown  MEM901  More layers than fit\n         missing     model.layers (--model)\n" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--select", "XYZ999"], "no rule is named XYZ999"),
        (["--rules", "nowhere"], "nowhere: no such folder of rules"),
        (["--assume", "model.layerz=48"], "model.layerz: no such fact"),
        (["--sample", "none-such"], "no such sample"),
        (["--launch", "launch.sh"], "launch.sh"),
        (["--model", "config.json"], "config.json"),
        (["--log", "server.log"], "server.log"),
        (["--server-info", "server_info.json"], "server_info.json"),
        (["--metrics", "metrics.txt"], "metrics.txt"),
        (["--environment", "environment.json"], "environment.json"),
        (["--snapshot", "snapshot.json"], "snapshot.json"),
    ],
)
def test_what_the_operator_must_change_is_one_line_and_2(sgdoctor, arguments, said):
    done = sgdoctor("check", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert said in line


def test_a_closed_standard_input_is_no_bug(environment, tmp_path):
    command = f"{sys.executable} -m sgdoctor check --log - <&-"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "sgdoctor: --log -: standard input is closed: pipe the log in, or name its file\n"


def test_without_a_model_a_report_is_named_after_what_was_read(sgdoctor, tmp_path):
    (tmp_path / "server.log").touch()
    assert sgdoctor("check", "--log", "server.log").stdout.startswith("server.log\n")
    done = sgdoctor("check", "--url", "http://127.0.0.1:9", "--log", "server.log")
    assert done.stdout.startswith("http://127.0.0.1:9 · unreachable\n")
    assert "note     server.log: is empty\n" in done.stdout


def test_a_snapshot_brings_its_model_along(sgdoctor, tmp_path):
    assert sgdoctor("snapshot", "--sample", "moe-no-config", "-o", "with.json").returncode == 0
    assert "--model" not in sgdoctor("check", "--snapshot", "with.json").stdout
    log = Path(__file__).parents[1] / "captures" / "dense-healthy" / "server.log"
    assert sgdoctor("snapshot", "--log", log, "-o", "without.json").returncode == 0
    shown = sgdoctor("check", "--snapshot", "without.json").stdout
    assert shown.count("is not on this machine: pass its config.json with --model") == 1


def test_a_reader_that_goes_away_does_not_change_the_exit_code(judge, environment, tmp_path):
    judge(severity="error")
    command = (
        f"{sys.executable} -m sgdoctor check --assume model.layers=48 --rules {tmp_path} --select MEM901"
    )
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -1"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "this installation\n", "")


def test_a_line_says_what_takes_long_and_an_interrupt_is_one_too(environment):
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "sgdoctor", "check", "--log", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**environment, "TERM": "xterm"},
    ) as child:
        os.close(slave)
        seen = b""
        while b"reading" not in seen:
            seen += os.read(master, 1024)
        child.send_signal(signal.SIGINT)
        while b"interrupted" not in seen:
            seen += os.read(master, 1024)
        assert child.wait() == 3
    os.close(master)
    assert seen.startswith(b"\rsgdoctor: reading ")
    assert seen.endswith(b"\r\x1b[Ksgdoctor: interrupted\r\n")
