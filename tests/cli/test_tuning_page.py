"""What docs/tuning.md and README show is run: each command and the Job as dry runs; refusals as they are."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import ROOT
from tests.cli.test_fix import UP, Host
from tests.fix.conftest import nvml  # noqa: F401 (a fixture)

PAGE = (Path(ROOT) / "docs" / "tuning.md").read_text(encoding="utf-8")
README = (Path(ROOT) / "README.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands(what: str) -> list[list[str]]:
    """Return the arguments of each command `sgdoctor fix ...` that does ``what``, comments aside."""
    lines = dict.fromkeys(line for block in blocks("sh", PAGE + README) for line in block.splitlines())
    found = [shlex.split(line, comments=True) for line in lines if line.startswith("sgdoctor fix")]
    return [words[2:] for words in found if what in words]


JOB, SERVER = (yaml.safe_load(text) for text in blocks("yaml"))


@pytest.fixture
def host(tmp_path, sglang_wheel, nvml, environment) -> Host:  # noqa: F811
    made = Host(tmp_path, sglang_wheel("0.5.12"), nvml, environment)
    (tmp_path / "server.log").symlink_to(Path(ROOT) / "tests/captures/moe-no-config/server.log")
    return made


def here(words: list[str], host: Host) -> list[str]:
    """Return a command's words with the page's places replaced by those of this host."""
    checkout = Path(ROOT) / "tests/fix/stand_in_checkout"
    places = {"/models/m": "m", "/shared": str(host.folder), "/src/sglang": str(checkout)}
    for place, ours in places.items():
        words = [re.sub(rf"^{place}(?=/|$)", ours, word) for word in words]
    return words


def dry(words: list[str], host: Host) -> subprocess.CompletedProcess[str]:
    """Run a command of the page as a dry run, with this host's Python."""
    named = ["--dry-run", "--python", host.installed.python]
    if "--" not in words and "--model" not in words:  # what is looked for on a host has no server here
        named += ["--model", "m", "--tp", "4"]
    at = words.index("--") if "--" in words else len(words)
    return host.run(*words[:at], *named, *words[at:])


@pytest.mark.parametrize("words", commands("--tune-moe"), ids=" ".join)
def test_each_command_has_a_plan(host: Host, words: list[str]) -> None:
    done = dry(here(words, host), host)
    assert (done.returncode, done.stderr) == (0, "")
    assert UP in done.stdout
    assert "\nbut " not in done.stdout  # nothing is in its way


@pytest.mark.parametrize("words", commands("--undo"), ids=" ".join)
def test_what_undoes_is_understood(host: Host, words: list[str]) -> None:
    done = host.run(*words)
    assert done.returncode == 2
    assert "nothing to undo" in done.stderr


def test_the_job_plans_an_overlay_that_the_server_reads(host: Host) -> None:
    spec = JOB["spec"]["template"]["spec"]
    (tune,) = spec["containers"]
    words = [*tune["command"], *tune["args"]]
    assert words[:2] == ["sgdoctor", "fix"]
    done = dry(here(words[2:], host), host)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{host.folder}/moe/configs/triton_3_6_0" in done.stdout

    (serve,) = SERVER["containers"]
    assert serve["env"] == [{"name": "SGLANG_MOE_CONFIG_DIR", "value": words[words.index("--overlay") + 1]}]
    assert serve["command"] == words[words.index("--") + 1 :]
    assert serve["image"] == tune["image"]
    mounted = {each["name"] for each in tune["volumeMounts"]}
    assert mounted == {each["name"] for each in spec["volumes"]}


def test_the_job_is_a_manifest_that_check_reads(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(blocks("yaml")[0])
    done = subprocess.run(
        [sys.executable, "-m", "sgdoctor", "check", "--launch", path, "--fail-on", "never"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("m · TP 4\n")


def test_the_image_gets_the_files_where_the_release_reads_them(host: Host) -> None:
    (text,) = blocks("dockerfile")
    source, target = re.search(r"^COPY (\S+) (\S+)$", text, re.MULTILINE).groups()
    done = host.tune("--output", Path(source).parent)
    assert done.returncode == 0, done.stderr
    into = host.installed.root.relative_to(host.installed.package.parent) / Path(target).name
    assert target.endswith(f"python/{into}")
    shutil.copytree(host.folder / source, host.installed.prefix.parent / "image" / into)
    assert (host.folder / "image" / into / UP).is_file()


def test_each_refusal_is_worded_as_the_program_words_it() -> None:
    (table,) = re.findall(r"^\| what it says \|.*\n\|.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    folders = (Path(ROOT) / "sgdoctor" / name for name in ("fix", "tune"))
    code = "".join(path.read_text() for folder in folders for path in sorted(folder.glob("*.py")))
    said = re.sub(r'"\s*f?"', "", code)  # texts that go over several lines
    for row in table.splitlines():
        text = row.split("|")[1]
        for part in text.replace("...", "(").split("("):  # what is put in differs
            assert part.strip(" )") in said, text
