"""docs/kubernetes.md: what stands in front of the server checks the command that it is launched with."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from tests.cli.launches import Deployment
from tests.pages import DOCS, blocks

YAML = [block for block in blocks(DOCS / "kubernetes.md") if block.language == "yaml"]


@pytest.fixture
def init() -> list[str]:
    """Return the command of the init container."""
    (container,) = yaml.safe_load(YAML[1].text)["initContainers"]
    return [*container["command"], *container["args"]]


def test_the_init_container_checks_what_the_manifest_launches(init):
    manifest = yaml.safe_load(YAML[0].text)
    (server,) = manifest["spec"]["template"]["spec"]["containers"]
    words = [*server["command"], *server["args"]]
    checked = init[init.index("--") + 1 :]
    assert set(checked) <= set(words)


@pytest.mark.parametrize(("more", "code"), [([], 0), (["--enable-turbo-mode"], 1)])
def test_the_pod_is_held_back_by_an_error_alone(tmp_path, init, more, code):
    deployment = Deployment(tmp_path)
    deployment.program("sgdoctor", f'#!/bin/sh\nexec {sys.executable} -m sgdoctor "$@"\n')
    done = subprocess.run(
        [*init, *more],
        env=deployment.environment(),
        cwd=deployment.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert "SGLang 0.5.12" in done.stdout
