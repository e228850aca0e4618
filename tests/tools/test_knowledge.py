"""One command adds a release: what it says, and that nothing depends on the order in which they came."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools.catalogue import DATA, FILES, load, render
from tools.knowledge import PAGE, page, report

ROOT = Path(__file__).parents[2]


def test_a_release_that_is_added_gives_the_bytes_it_had(sglang_wheel, tmp_path):
    """The newest release is taken out and added again, as the next one will be."""
    sglang_wheel("0.5.23")
    releases = load()
    taken_out = {version: tables for version, tables in releases.items() if version != "0.5.23"}
    data = tmp_path / "data"
    shutil.copytree(DATA, data)
    for name, text in render(taken_out).items():
        (data / name).write_text(text)
    assert "0.5.23" not in load(data)
    command = [sys.executable, "-m", "tools.knowledge", "0.5.23", f"--data={data}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=900)
    assert {name: (data / name).read_bytes() for name in FILES} == {
        name: (DATA / name).read_bytes() for name in FILES
    }
    assert done.stdout.splitlines()[0] == "SGLang 0.5.23, compared with 0.5.22:"
    assert "  fused-MoE configs: " in done.stdout


def test_the_report_names_what_came_went_and_changed():
    said = "\n".join(report(load(), "0.5.14"))
    assert said.startswith("SGLang 0.5.14, compared with 0.5.13.post1:")
    assert "    - --hybrid-kvcache-ratio\n" in said
    assert "    ~ --hicache-mem-layout: default layer_first -> page_first\n" in said
    assert "    + triton_3_6_0/" in said
    assert "  flags: " in said


def test_the_oldest_has_nothing_before_it():
    assert list(report(load(), "0.5.7")) == ["SGLang 0.5.7 is the oldest release of the catalogue"]


def test_the_page_has_what_the_catalogue_has():
    text = PAGE.read_text()
    assert page(text, load()) == text  # else: make docs
