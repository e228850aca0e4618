"""The launches that docs/gate.md shows are launches."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml

from tests.cli.launches import ROOT, Deployment

PAGE = (ROOT / "docs" / "gate.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def unit() -> list[str]:
    (text,) = blocks("ini")
    return shlex.split(re.search(r"^ExecStart=(.*)$", text, re.MULTILINE).group(1))


def dockerfile() -> list[str]:
    (text,) = blocks("dockerfile")
    return [
        word for key in ("ENTRYPOINT", "CMD") for word in json.loads(re.search(f"{key} (.*)", text).group(1))
    ]


def compose() -> list[str]:
    service = yaml.safe_load(blocks("yaml")[0])["services"]["sglang"]
    return [*service["entrypoint"], *service["command"]]


def kubernetes() -> list[str]:
    (container,) = yaml.safe_load(blocks("yaml")[1])["containers"]
    return [*container["command"], *container["args"]]


def scripts() -> list[list[str]]:
    return [["bash", "-c", text] for text in blocks("sh")]


@pytest.fixture
def deployment(tmp_path):
    made = Deployment(tmp_path)
    made.program("sgdoctor", f'#!/bin/sh\nexec {sys.executable} -m sgdoctor "$@"\n')
    return made


@pytest.mark.parametrize("command", [unit(), dockerfile(), compose(), kubernetes(), *scripts()])
def test_it_launches_the_server(deployment, command):
    places = {"/usr/local/bin/sgdoctor": "sgdoctor", "/opt/sglang/bin/python3": str(deployment.python)}
    done = subprocess.run(
        [places.get(word, word) for word in command],
        env=deployment.environment(MODEL="/models/qwen", STUB_EXIT="0"),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("up ")
    assert "--model-path /models/qwen" in done.stdout
    assert re.fullmatch(r"sgdoctor gate: 0 errors, .*; launching\n", done.stderr)


def test_without_sgdoctor_the_script_that_allows_for_it_launches(deployment):
    (deployment.bin / "sgdoctor").unlink()
    done = subprocess.run(
        ["bash", "-c", blocks("sh")[1]],
        env=deployment.environment(
            MODEL="x", STUB_EXIT="0", PATH=f"{deployment.bin}{os.pathsep}/usr/bin:/bin"
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("up ")


def test_the_report_that_it_shows(deployment):
    (shown,) = blocks("console")
    command = shlex.split(shown.splitlines()[0].removeprefix("$ "))
    done = subprocess.run(
        command,
        env=deployment.environment(),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert shown[shown.index("error ") : shown.index("...\n")] in done.stderr
    assert done.stderr.endswith("(SGDOCTOR_GATE=off launches all the same); not launched\n")
