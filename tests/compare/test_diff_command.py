"""The command as people run it, and its two formats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.compare.recordings import CAPTURES, SCENARIO, answer

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs" / "diff.schema.json").read_text(encoding="utf-8"))


def run(*arguments: object, cwd: Path | None = None, columns: str = "80") -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "SGDOCTOR_DEBUG")
    }
    return subprocess.run(
        [sys.executable, "-m", "sgdoctor", "diff", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(ROOT), "COLUMNS": columns, "LANG": "C.UTF-8"},
        timeout=60,
        check=False,
    )


def test_the_page_of_the_first_deployment():
    ended = run("before.json", "after.json", cwd=SCENARIO)
    assert ended.returncode == 1
    assert ended.stdout.startswith("before.json to after.json · SGLang 0.5.10 · TP 4\n\nworse    ")
    assert "(max_running_requests): 48 to 26 (-45.8%)." in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 80
    assert ended.stdout.endswith("3 worse, 1 changed, 0 better.\n")
    assert ended.stderr == ""


@pytest.mark.parametrize("columns", ["40", "60", "120"])
def test_no_line_is_wider_than_the_terminal(columns: str):
    ended = run("before.json", "after.json", "-v", cwd=SCENARIO, columns=columns)
    assert max(map(len, ended.stdout.splitlines())) <= int(columns)


def test_nothing_changed():
    ended = run("before.json", "before.json", cwd=SCENARIO)
    assert ended.returncode == 0
    assert "same     Nothing changed in " in ended.stdout


def test_what_is_within_the_tolerance_is_shown_when_asked_for():
    pair = [CAPTURES / name / "server_info.json" for name in ("moe-no-config", "moe-fallback-config")]
    short, long = run(*pair), run(*pair, "-v")
    assert "KV cache" not in short.stdout
    assert "2 more within 5% or for completeness, with -v." in short.stdout
    assert "(+0.1%)" in long.stdout


def test_json_keeps_to_its_schema():
    ended = run("before.json", "after.json", "--format", "json", cwd=SCENARIO)
    assert ended.returncode == 1
    told = json.loads(ended.stdout)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(told, SCHEMA)
    assert told["totals"] == {"worse": 3, "changed": 1, "better": 0, "minor": 0, "compared": 7}
    assert [each["verdict"] for each in told["differences"]] == ["worse", "worse", "worse", "changed"]


@pytest.mark.parametrize("harm", [{"schema": "sgdoctor-diff-2"}, {"totals": {}}, {"differences": [{}]}])
def test_the_schema_refuses_what_is_no_diff(harm: dict):
    told = json.loads(run("before.json", "after.json", "--format", "json", cwd=SCENARIO).stdout)
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid({**told, **harm})


def test_secrets_in_both_are_never_printed(tmp_path: Path):
    words = "--model-path /models/dense --admin-api-key planted-{0} --api-key planted-{0}"
    files = [
        answer(
            tmp_path,
            name,
            version="0.5.20",
            api_key=f"planted-{name}",
            admin_api_key=f"planted-{name}",
            model_path=f"https://me:planted-{name}@models/dense",
            internal_states=[{"env_vars": {"SGLANG_X_TOKEN": f"planted-{name}"}}],
            launch_command=words.format(name),
        )
        for name in ("before", "after")
    ]
    for more in ([], ["-v"], ["--format", "json"]):
        ended = run(*files, *more)
        assert ended.returncode in (0, 1), ended.stderr
        assert "planted" not in ended.stdout + ended.stderr


def test_a_pipe_is_read_once(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", f"cat '{SCENARIO}/after.json' > '{pipe}'"]) as writer:
        ended = run(SCENARIO / "before.json", pipe)
        writer.wait(10)
    assert ended.returncode == 1, ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["before.json", "gone.json"], "sgdoctor: gone.json: No such file or directory"),
        (["before.json", "."], "sgdoctor: .: Is a directory; name the file in it"),
        (["before.json", "/dev/null"], "sgdoctor: /dev/null: is empty: neither a snapshot nor"),
        (["before.json", "launch.sh"], "sgdoctor: launch.sh: not JSON"),
        (["before.json", "config.json"], "sgdoctor: config.json: neither a snapshot nor"),
        (["before.json"], "missing argument"),
        (
            ["before.json", "after.json", "--tolerance", "120"],
            "sgdoctor: --tolerance 120: a number of percent",
        ),
        (["before.json", "after.json", "--tolerance", "few"], "sgdoctor: invalid value"),
    ],
)
def test_what_cannot_be_compared_gets_one_line(arguments: list[str], said: str):
    ended = run(*arguments, cwd=SCENARIO)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert said.lower() in ended.stderr.lower()
    assert len(ended.stderr.splitlines()) == 1
    assert "Traceback" not in ended.stderr
