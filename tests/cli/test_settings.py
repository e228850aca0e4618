"""``sgdoctor check`` with settings and a baseline, from the outside, on a launch file that has findings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "tests" / "scenarios" / "rtx-pro-6000"
RULE = """\
code: {code}
name: rule-{code}
title: More layers than fit
severity: warning
impact: performance
confidence: high
case: M01
when: model.layers > 40
message: "More than 40 layers."
why: For this test.
recommend:
  - {{do: what {code} wants}}
{more}verified: in this test
sources: [https://github.com/sgl-project/sglang/pull/5955]
tests: []
"""
GATEWAY = '[[suppress]]\ncode = "SEC101"\nreason = "the gateway asks for the key"\n'


@pytest.fixture
def check(sgdoctor, tmp_path):
    """Return what checks a launch that listens beyond its machine (SEC101) and asks for fusion (ARG103)."""
    for name in ("launch-fusion.sh", "config.json", "environment.json"):
        shutil.copy(SCENARIO / name, tmp_path)
    files = ["--launch", "launch-fusion.sh", "--model", "config.json", "--environment", "environment.json"]

    def run(*arguments, settings=None, select="SEC101,ARG103", **options):
        if settings is not None:
            (tmp_path / "sgdoctor.toml").write_text(settings)
        chosen = ["--select", select] if select else []
        return sgdoctor("check", *files, *chosen, *arguments, **options)

    return run


def codes(done):
    """Return the codes of what was found and of what was suppressed."""
    (deployment,) = json.loads(done.stdout)["deployments"]
    return (
        [each["code"] for each in deployment["findings"]],
        [each["finding"]["code"] for each in deployment["suppressed"]],
    )


def words(done):
    return " ".join(done.stdout.split())


# --- suppressions -------------------------------------------------------------------------------------------


def test_a_suppressed_finding_is_counted_and_decides_nothing(check):
    done = check("--fail-on", "warning", settings=GATEWAY, select="SEC101")
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing more found in launch-fusion.sh" in words(done)
    assert "0 errors, 0 warnings, 0 info, 1 suppressed (-v)." in words(done)
    assert "gateway" not in done.stdout


def test_v_shows_it_with_its_reason(check):
    done = check("-v", settings=GATEWAY + "until = 2999-12-31\n")
    assert "off SEC101 The server listens on 0.0.0.0:30000 without an API key" in words(done)
    assert "suppressed the gateway asks for the key (until 2999-12-31)" in words(done)
    assert "note settings of sgdoctor.toml" in words(done)


def test_json_has_it_with_its_reason(check):
    done = check("--format", "json", settings=GATEWAY)
    told = json.loads(done.stdout)
    jsonschema.validate(told, json.loads((ROOT / "docs" / "report.schema.json").read_text()))
    assert codes(done) == (["ARG103"], ["SEC101"])
    (muted,) = told["deployments"][0]["suppressed"]
    assert (muted["reason"], muted["until"]) == ("the gateway asks for the key", None)
    assert (told["settings"], told["notes"], told["summary"]["suppressed"]) == ("sgdoctor.toml", [], 1)


def test_one_that_ended_fails_again_and_says_so(check):
    done = check("--fail-on", "warning", settings=GATEWAY + "until = 2020-01-31\n", select="SEC101")
    assert done.returncode == 1
    assert "warning SEC101" in words(done)
    said = "sgdoctor.toml: the suppression of SEC101 (the gateway asks for the key) ended on 2020-01-31: it"
    assert said in words(done)


def test_one_that_matches_nothing_is_told_and_changes_no_exit_code(check):
    done = check(settings=GATEWAY.replace("SEC101", "ARG101"), select=None)
    assert done.returncode == 0
    assert "sgdoctor.toml: the suppression of ARG101 (the gateway asks for the key) matches" in words(done)


@pytest.mark.parametrize(
    ("scope", "suppressed"),
    [
        ('file = "*-fusion.sh"', True),
        ('file = "other.sh"', False),
        ("port = 30000", True),
        ("port = 30001", False),
        ('model = "qwen3.5*"', True),
        ('deployment = "qwen*"', True),
        ('deployment = "other"', False),
    ],
)
def test_its_scope_is_the_deployment_that_was_read(check, scope, suppressed):
    found, muted = codes(check("--format", "json", settings=GATEWAY + scope, select="SEC101"))
    assert (found, muted) == (([], ["SEC101"]) if suppressed else (["SEC101"], []))


def test_what_follows_from_a_suppressed_finding_stands_for_itself(sgdoctor, tmp_path):
    for code, more in (("MEM901", "explains: [MEM902]\n"), ("MEM902", "")):
        (tmp_path / f"{code}-r-{code.lower()}.yaml").write_text(RULE.format(code=code, more=more))
    run = ["check", "--assume", "model.layers=48", "--rules", tmp_path, "--select", "MEM9"]
    assert "do what MEM901 says: this follows from it" in words(sgdoctor(*run))
    (tmp_path / "sgdoctor.toml").write_text('[[suppress]]\ncode = "MEM901"\nreason = "known"\n')
    assert "do what MEM902 wants" in words(sgdoctor(*run))
    (tmp_path / "sgdoctor.toml").unlink()
    sgdoctor(*run, "--write-baseline", "known.json")
    everything = json.loads((tmp_path / "known.json").read_text())
    everything["findings"] = [each for each in everything["findings"] if each["code"] == "MEM901"]
    (tmp_path / "known.json").write_text(json.dumps(everything))
    assert "do what MEM902 wants" in words(sgdoctor(*run, "--baseline", "known.json"))


# --- the other settings -------------------------------------------------------------------------------------


def test_a_severity_of_ones_own_decides(check):
    done = check(settings='[severity]\nSEC101 = "error"\n')
    assert done.returncode == 1
    assert "1 error, 1 warning, 0 info." in words(done)


@pytest.mark.parametrize("rule", ["SEC101", "exposed-without-key"])
def test_with_v_a_severity_says_which_file_set_it(check, rule):
    settings = f'[severity]\n{rule} = "error"\n'
    assert words(check("-v", settings=settings)).count("severity set by sgdoctor.toml") == 1
    assert "set by" not in words(check(settings=settings))
    assert "set by" not in words(check("-v", settings=""))


def test_options_of_the_file_hold_unless_the_command_line_says_otherwise(check):
    settings = 'fail-on = "warning"\nselect = ["SEC"]\nignore = ["ARG"]\n'
    done = check("--format", "json", settings=settings, select=None)
    assert (done.returncode, codes(done)[0]) == (1, ["SEC101"])
    done = check("--format", "json", "--fail-on", "error", "--ignore", "SEC", select="ARG103")
    assert (done.returncode, codes(done)[0]) == (0, ["ARG103"])


def test_a_folder_of_rules_is_seen_from_the_file(check, tmp_path):
    rule = next((ROOT / "rules").rglob("SEC101*.yaml")).read_text()
    (tmp_path / "etc" / "ours").mkdir(parents=True)
    own = rule.replace("code: SEC101", "code: SEC901", 1)
    own = own.replace(next(line for line in rule.splitlines() if line.startswith("name:")), "name: ours")
    (tmp_path / "etc" / "ours" / "SEC901-ours.yaml").write_text(own)
    (tmp_path / "etc" / "doctor.toml").write_text('rules = ["ours"]\n')
    done = check("--config", "etc/doctor.toml", "--format", "json", select="SEC901")
    assert codes(done)[0] == ["SEC901"]


def test_a_file_that_is_named_takes_the_place_of_the_folders(check, tmp_path):
    (tmp_path / "other.toml").write_text("")
    done = check("--config", "other.toml", "--format", "json", settings=GATEWAY)
    assert codes(done) == (["SEC101", "ARG103"], [])
    assert json.loads(done.stdout)["settings"] == "other.toml"


def test_the_change_that_a_suppressed_finding_is_new_is_left_out(check):
    target = ["--target", "sglang=0.5.20", "--format", "json"]
    fatal = '[[suppress]]\ncode = "ARG104"\nreason = "the flag goes with the upgrade"\n'

    def entered(done):
        (deployment,) = json.loads(done.stdout)["deployments"]
        return {each["subject"] for each in deployment["changes"] if each["kind"] == "rule-entered"}

    done = check(*target, select="ARG104")
    assert (done.returncode, "ARG104" in entered(done)) == (1, True)
    done = check(*target, settings=fatal, select="ARG104")
    assert codes(done) == ([], ["ARG104"])
    assert "ARG104" not in entered(done)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("selct = []\n", "sgdoctor: sgdoctor.toml: unknown key selct; did you mean select?\n"),
        (
            GATEWAY.replace("SEC101", "moe-config-mising"),
            "sgdoctor: sgdoctor.toml: no rule is named moe-config-mising; did you mean moe-config-missing?\n",
        ),
        (
            '[severity]\nmoe-confg-missing = "info"\n',
            "sgdoctor: sgdoctor.toml: no rule is named moe-confg-missing; did you mean moe-config-missing?\n",
        ),
        ('ignore = ["XYZ"]\n', "sgdoctor: sgdoctor.toml: no rule is named XYZ; see `sgdoctor rules list`\n"),
        ('rules = ["nowhere"]\n', "sgdoctor: sgdoctor.toml: rules[0]: no folder nowhere\n"),
    ],
)
def test_settings_that_cannot_be_used_are_2_in_a_line(check, settings, said):
    done = check(settings=settings)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


# --- the baseline -------------------------------------------------------------------------------------------


def test_what_is_known_is_counted_and_what_is_new_fails(check, tmp_path):
    written = check("--fail-on", "warning", "--write-baseline", "known.json", select="SEC101")
    assert written.returncode == 1
    assert "warning SEC101" in words(written)
    (entry,) = json.loads((tmp_path / "known.json").read_text())["findings"]
    assert (entry["code"], entry["deployment"]) == ("SEC101", "qwen3.5-122b")

    known = check("--fail-on", "warning", "--baseline", "known.json", select="SEC101")
    assert known.returncode == 0
    assert "nothing more found" in words(known)
    assert "0 errors, 0 warnings, 0 info, 1 in the baseline." in words(known)

    more = check("--fail-on", "warning", "--baseline", "known.json", "--format", "json")
    assert (more.returncode, codes(more)[0]) == (1, ["ARG103"])
    assert json.loads(more.stdout)["deployments"][0]["in_baseline"] == ["SEC101"]


def test_a_line_that_moves_is_still_known(check, tmp_path):
    check("--write-baseline", "known.json")
    launch = tmp_path / "launch-fusion.sh"
    launch.write_text(launch.read_text().replace("\n", "\n# a line more\n", 1))
    done = check("--fail-on", "info", "--baseline", "known.json")
    assert (done.returncode, "2 in the baseline" in words(done)) == (0, True)


def test_a_second_misspelt_flag_is_not_hidden_by_the_first(sgdoctor, tmp_path):
    """Nor by a suppression that names the first one."""
    launch, release = tmp_path / "run.sh", "sglang.version=0.5.20"
    launch.write_text("python3 -m sglang.launch_server --model-path /m --in-house 1\n")
    run = ("check", "--launch", "run.sh", "--assume", release, "--select", "ARG101")
    sgdoctor(*run, "--write-baseline", "known.json")
    accepted = '[[suppress]]\ncode = "ARG101"\nreason = "our build has it"\nabout = ["--in-house*"]\n'
    (tmp_path / "accepted.toml").write_text(accepted)
    ways = [("--baseline", "known.json"), ("--config", "accepted.toml")]

    assert [sgdoctor(*run, *way).returncode for way in ways] == [0, 0]
    launch.write_text("# moved\npython3 -m sglang.launch_server --in-house 2 --model-path /m\n")
    assert [sgdoctor(*run, *way).returncode for way in ways] == [0, 0]
    launch.write_text("python3 -m sglang.launch_server --model-path /m --in-house 1 --tensor-parralel 2\n")
    assert [sgdoctor(*run, *way).returncode for way in ways] == [1, 1]


def test_writing_it_anew_keeps_what_it_knows_and_leaves_out_what_is_suppressed(check, tmp_path):
    check("--write-baseline", "known.json", select="ARG103")
    check("--baseline", "known.json", "--write-baseline", "known.json", settings=GATEWAY)
    assert [each["code"] for each in json.loads((tmp_path / "known.json").read_text())["findings"]] == [
        "ARG103"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such baseline; --write-baseline known.json makes it"),
        ("{", "not JSON: Input data was truncated"),
        ("{}", "no baseline: Object missing required field `schema`; --write-baseline known.json writes it"),
        ('{"schema": "sgdoctor-report-1", "findings": []}', "no baseline but 'sgdoctor-report-1'"),
        ('{"schema": "sgdoctor-baseline-1", "findings": []}', "a baseline of an earlier sgdoctor, which"),
        ('{"schema": "sgdoctor-baseline-3", "findings": []}', "a baseline of a newer sgdoctor (version 3"),
        ('{"schema": "sgdoctor-baseline-2", "findings": [7]}', "no baseline: Expected `object`, got `int`"),
    ],
)
def test_a_baseline_that_cannot_be_used_is_2_in_a_line(check, tmp_path, text, said):
    if text is not None:
        (tmp_path / "known.json").write_text(text)
    done = check("--baseline", "known.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"sgdoctor: known.json: {said}")
    assert len(done.stderr.splitlines()) == 1


def test_a_baseline_that_cannot_be_written_is_2_before_anything_is_looked_at(check):
    done = check("--write-baseline", "nowhere/known.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "sgdoctor: nowhere/known.json: no folder nowhere\n"


def test_what_the_settings_take_away_is_said(check):
    """A file that lies in the folder must not silence an error without a word."""
    settings = 'ignore = ["ARG"]\n[severity]\nSEC101 = "info"\n'
    done = check(settings=settings, select=None)
    assert "sgdoctor.toml: ignore leaves out " in done.stdout
    assert "sgdoctor.toml: SEC101 with a severity of its own" in done.stdout
    own = check("--ignore", "ARG", settings="", select=None)
    assert "leaves out" not in own.stdout
