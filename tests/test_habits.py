"""What docs/habits.md shows, run: pre-commit in a git repository, the action's steps, the CI scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.launches import Deployment

ROOT = Path(__file__).parents[1]
HOOKS = ROOT / ".pre-commit-hooks.yaml"
BIN = Path(sys.executable).parent

EXPOSED = "python3 -m sglang.launch_server --model-path /models/qwen --host 0.0.0.0\n"
CLOSED = "python3 -m sglang.launch_server --model-path /models/qwen\n"
ENVIRONMENT = '{"packages": {"sglang": "0.5.12"}, "gpus": []}\n'


def shown(page: str) -> list[Any]:
    """Return what the YAML blocks of a page hold."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [
        yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


PRE_COMMIT, WORKFLOW, GITLAB = shown("habits.md")
(INIT,) = [each["initContainers"] for each in shown("kubernetes.md") if "initContainers" in each]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


@pytest.fixture
def run(tmp_path):
    """Return what runs a command in the folder of the test, with sgdoctor on its PATH."""
    home = tmp_path.parent / f"{tmp_path.name}-home"
    environment = {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "PRE_COMMIT_HOME": str(home / "pre-commit"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "LC_ALL": "C.UTF-8",
    }

    def ran(*words, **variables):
        return subprocess.run(
            [str(word) for word in words],
            cwd=tmp_path,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return ran


def files(folder: Path, **texts: str) -> None:
    """Write the files of a deployment into deploy/; their names have `_` for the dot."""
    for name, text in texts.items():
        file = folder / "deploy" / name.replace("_", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)


# --- pre-commit ---------------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path, run):
    """Return what commits all files in a git repository that has the hook, with this sgdoctor."""
    (hook,) = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    (wanted,) = PRE_COMMIT["repos"][0]["hooks"]
    local = {"repo": "local", "hooks": [{**hook, **wanted, "language": "system"}]}
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [local]}))
    assert run("git", "init", "-q").returncode == 0
    assert run("pre-commit", "install").returncode == 0

    def commit():
        run("git", "add", ".")
        return run("git", "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-m", "A launch")

    return commit


def test_the_manifest_is_what_pre_commit_takes(run, tmp_path):
    done = run("pre-commit", "validate-manifest", HOOKS)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / ".pre-commit-config.yaml").write_text(yaml.safe_dump(PRE_COMMIT))
    done = run("pre-commit", "validate-config")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_launch_that_is_too_much_for_the_settings_is_not_committed(repository, run, tmp_path):
    files(tmp_path, run_sh=EXPOSED, other_sh=CLOSED)
    (tmp_path / "sgdoctor.toml").write_text('fail-on = "warning"\n')
    done = repository()
    assert done.returncode == 1
    assert "SEC101" in done.stdout + done.stderr
    assert run("git", "rev-parse", "HEAD").returncode != 0


def test_what_the_settings_suppress_is_committed(repository, run, tmp_path):
    files(tmp_path, run_sh=EXPOSED)
    (tmp_path / "sgdoctor.toml").write_text(
        'fail-on = "warning"\n[[suppress]]\ncode = "SEC101"\nreason = "a test"\nfile = "deploy/*"\n'
    )
    assert repository().returncode == 0
    assert run("git", "rev-parse", "HEAD").returncode == 0


def test_a_script_that_starts_no_sglang_is_none_of_its_business(repository, tmp_path):
    files(tmp_path, build_sh="make\n", values_yaml="replicas: 3\n")
    assert repository().returncode == 0


# --- the action ---------------------------------------------------------------------------------------------


def step(name: str) -> dict[str, Any]:
    (found,) = [each for each in ACTION["runs"]["steps"] if each["name"] == name]
    assert found["shell"] == "bash"
    return found


def inputs(**given: str) -> dict[str, str]:
    """Return the environment of the step that checks, for the inputs of a workflow."""
    whole = {name: setting.get("default", "") for name, setting in ACTION["inputs"].items()} | given
    return {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: whole[found[1]], value)
        for name, value in step("Check the launch files")["env"].items()
    }


def checked(run, **given):
    """Run the step as a runner does."""
    script = step("Check the launch files")["run"]
    return run("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script, **inputs(**given))


def test_the_workflow_gives_what_the_action_takes():
    used = WORKFLOW["jobs"]["sgdoctor"]["steps"][-1]["with"]
    needed = {name for name, setting in ACTION["inputs"].items() if setting.get("required")}
    assert needed <= set(used) <= set(ACTION["inputs"])


def test_the_workflow_of_the_page_annotates_and_fails(run, tmp_path):
    compose = "services: {sglang: {image: 'lmsysorg/sglang:v0.5.12', command: sglang serve --model-path m}}\n"
    files(tmp_path, run_sh=EXPOSED, compose_yaml=compose, environment_json=ENVIRONMENT)
    done = checked(run, **WORKFLOW["jobs"]["sgdoctor"]["steps"][-1]["with"])
    assert done.stderr == ""
    assert re.search(r"^::warning .*file=deploy/run\.sh,.*SEC101", done.stdout, re.MULTILINE)
    assert done.stdout.count("rules passed") == 2
    assert done.returncode == 1


def test_a_launch_without_findings_passes_and_a_missing_file_does_not(run, tmp_path):
    files(tmp_path, run_sh=CLOSED)
    assert checked(run, launch="deploy/run.sh\n").returncode == 0
    assert checked(run, launch="deploy/nowhere.sh\ndeploy/run.sh\n").returncode == 2


def test_no_name_of_a_file_is_run_as_a_command(run, tmp_path):
    done = checked(run, launch="$(touch here) `touch here`; touch here")
    assert done.returncode == 2
    assert not (tmp_path / "here").exists()


@pytest.mark.slow
def test_the_action_installs_sgdoctor(run, tmp_path):
    path = tmp_path / "path"
    script = step("Install sgdoctor")["run"]
    given = {"RUNNER_TEMP": str(tmp_path), "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_PATH": str(path)}
    index = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
    done = run("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script, **given, **index)
    assert done.returncode == 0, done.stderr
    assert run(Path(path.read_text().strip()) / "sgdoctor", "--version").stdout.startswith("sgdoctor ")


# --- GitLab, Kubernetes -------------------------------------------------------------------------------------


def test_the_gitlab_job_writes_the_report_that_it_keeps(run, tmp_path):
    job = GITLAB["sgdoctor"]
    files(tmp_path, run_sh=EXPOSED)
    (script,) = job["script"]
    done = run("bash", "-c", script)
    assert done.returncode == 0
    report = (tmp_path / job["artifacts"]["reports"]["junit"]).read_text()
    assert report.startswith("<?xml")
    assert "SEC101" in report


def test_the_init_container_checks_the_launch(tmp_path):
    (container,) = INIT
    deployment = Deployment(tmp_path)
    deployment.program("sgdoctor", f'#!/bin/sh\nexec {sys.executable} -m sgdoctor "$@"\n')

    def code(*more: str) -> int:
        words = [*container["command"], *container["args"], *more]
        return subprocess.run(
            words,
            cwd=tmp_path,
            env=deployment.environment(),
            stdout=subprocess.DEVNULL,
            check=False,
        ).returncode

    assert code() == 0
    assert code("--enable-turbo-mode") == 1
