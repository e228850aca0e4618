"""`sgdoctor fix` as it is run: child processes, a real release's files, measured times replayed for a GPU."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest

from sgdoctor.cli import tuning
from sgdoctor.tune.model import Progress
from tests.cli.conftest import ROOT
from tests.fix.conftest import nvml  # noqa: F401 (a fixture)
from tests.fix.installed import install
from tests.fix.models import DENSE, QWEN35

UP = "E=256,N=256,device_name=NVIDIA_H200.json"
DOWN = "E=256,N=256,device_name=NVIDIA_H200_down.json"
MATRIX = Path(ROOT) / "tests" / "tune" / "matrices" / "e256.json.xz"
SCHEMA = json.loads((Path(ROOT) / "docs" / "fix.schema.json").read_text(encoding="utf-8"))
IDLE = "NVIDIA H200;143771;143163;0;0;0;0;0"
LOG = Path(ROOT) / "tests" / "captures" / "moe-no-config" / "server.log"


class Host:
    """A machine with one idle H200 and SGLang 0.5.12 on Triton 3.6.0, whose tuner replays measured times."""

    def __init__(self, folder: Path, wheel: Path, nvml: Path, environment: dict[str, str]) -> None:  # noqa: F811
        self.folder = folder
        self.installed = install(folder / "venv", wheel, "0.5.12")
        (folder / "m").mkdir()
        (folder / "m" / "config.json").write_text(json.dumps(QWEN35))
        self.environment = environment | {
            "LD_LIBRARY_PATH": str(nvml),
            "NVML_GPUS": IDLE,
            "MATRIX": str(MATRIX),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_STATE_HOME": str(folder / "state"),
            "CUDA_VISIBLE_DEVICES": "0",
            "COLUMNS": "400",
        }

    @property
    def configs(self) -> Path:
        return self.installed.folder("3.6.0")

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, f"{ROOT}/tests/fix/replaying.py", "fix", *map(str, arguments)]

    def run(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def tune(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        model = ("--model", "m", "--tp", "4", "--python", self.installed.python)
        return self.run("--tune-moe", *model, "--effort", "quick", *arguments, **variables)

    def files(self) -> set[str]:
        """Return every file below the folder, with its size."""
        return {f"{path} {path.stat().st_size}" for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture
def host(tmp_path, sglang_wheel, nvml, environment) -> Host:  # noqa: F811
    return Host(tmp_path, sglang_wheel("0.5.12"), nvml, environment)


def refused(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Return the one line that a command which did nothing wrote."""
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("sgdoctor: ")
    return line


def test_a_missing_configuration_is_tuned_installed_and_taken_back(host):
    before = {path.name for path in host.configs.glob("*")}
    done = host.tune()
    assert done.returncode == 0, done.stderr
    assert {path.name for path in host.configs.glob("*")} == before | {UP, DOWN}
    up, down = (json.loads((host.configs / name).read_text()) for name in (UP, DOWN))
    assert list(up) == list(down)
    assert len(up) == 18
    assert all(up[key]["BLOCK_SIZE_M"] == down[key]["BLOCK_SIZE_M"] for key in up)
    for said in ("it runs on the built-in", "GPU 0 NVIDIA H200, 143163 of 143771 MiB free, idle", "(quick)"):
        assert said in done.stdout
    for said in (
        "in geometric mean over the built-in default",
        "up: the next start loads",
        "Restart the server",
    ):
        assert said in done.stdout
    assert "over the default at" in done.stderr

    again = host.tune()
    assert again.returncode == 0
    assert "nothing is missing" in again.stdout
    shown = host.run("--undo", "--dry-run")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "SGLang 0.5.12 · Triton 3.6.0\n" in shown.stdout
    assert f"will     remove {host.configs / DOWN}\n         remove {host.configs / UP}\n" in shown.stdout
    assert (host.configs / UP).exists()
    undone = host.run("--undo")
    assert undone.returncode == 0
    assert shown.stdout.endswith("\nNothing was undone: --dry-run.\n")
    assert undone.stdout.startswith(shown.stdout.partition("Nothing was undone")[0])
    assert f"removed {host.configs / UP}" in undone.stdout
    assert {path.name for path in host.configs.glob("*")} == before
    assert "nothing to undo" in refused(host.run("--undo"), 2)


def test_a_dry_run_needs_no_gpu_and_writes_nothing(host):
    before = host.files()
    done = host.tune("--dry-run", "--assume", "gpu.name=NVIDIA H200", LD_LIBRARY_PATH="")
    assert (done.returncode, done.stderr) == (0, "")
    assert UP in done.stdout
    assert DOWN in done.stdout
    assert "but      no GPU to tune on (NVML:" in done.stdout
    assert done.stdout.endswith("\nNothing was written: --dry-run.\n")
    assert "name it: --assume 'gpu.name=NVIDIA H200'" in refused(host.tune(LD_LIBRARY_PATH=""), 3)
    assert host.files() == before


def test_a_dry_run_on_a_narrow_terminal(host):
    with tempfile.TemporaryDirectory() as short:  # pytest's own folders fill a line
        shown = host.tune("--dry-run", "--output", short, COLUMNS="80").stdout.replace(short, "/here")
    assert shown == (
        "m · SGLang 0.5.12 · Triton 3.6.0 · NVIDIA H200\n"
        "why      no Triton folder that this server reads has\n"
        "         E=256,N=256,device_name=NVIDIA_H200.json: it runs on the built-in\n"
        "         default\n"
        "makes    E=256,N=256,device_name=NVIDIA_H200.json\n"
        "         E=256,N=256,device_name=NVIDIA_H200_down.json\n"
        "in       /here/triton_3_6_0\n"
        "for      18 batch sizes, 1 to 4096 tokens, against the built-in default\n"
        "on       GPU 0 NVIDIA H200, 143163 of 143771 MiB free, idle\n"
        f"{re.search('takes .*', shown)[0]}\n"
        "\n"
        "Nothing was written: --dry-run.\n"
    )
    in_place = host.tune("--dry-run", COLUMNS="80").stdout
    assert "in       the installed SGLang's folder for Triton 3.6.0:\n" in in_place
    assert max(map(len, in_place.splitlines())) <= 80


def test_a_dry_run_in_json(host):
    done = host.tune("--dry-run", "--format", "json")
    said = json.loads(done.stdout)
    jsonschema.validate(said, SCHEMA)
    assert said["tuned"] == []
    (task,) = said["planned"]
    assert task["files"] == [str(host.configs / UP), str(host.configs / DOWN)]
    assert task["today"] == {"source": "default", "is": "the built-in default"}
    assert (task["gpus"], task["obstacle"]) == (["GPU-00000000-0000-0000-0000-000000000000"], None)
    assert task["seconds"] > 0


def test_the_report_is_json_and_a_page(host):
    done = host.tune("--format", "json", "--output", "out", "--report", "report.html")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(said, SCHEMA)
    for harm in ({"schema": "sgdoctor-fix-report-2"}, {"planned": [{}]}, {"tuned": [{}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(said | harm, SCHEMA)
    (tuned,) = said["tuned"]
    assert tuned["gain"] > 1.1
    assert tuned["installed"] == [str(host.folder / "out/triton_3_6_0" / name) for name in (UP, DOWN)]
    assert "Copy the folder" in tuned["next_start"]["sentences"][0]
    assert not (host.configs / UP).exists()
    assert (host.folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    undone = host.run("--undo", "--output", "out")
    assert undone.returncode == 0
    assert not (host.folder / "out/triton_3_6_0").exists()


def test_the_report_is_a_picture(host):
    done = host.tune("--output", "out", "--report", "report.png")
    assert done.returncode == 0, done.stderr
    assert (host.folder / "report.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_without_matplotlib_the_files_are_installed_all_the_same(host):
    """A matplotlib that cannot be imported stands in for one that is not installed."""
    (host.folder / "matplotlib.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(host.folder), ROOT])
    done = host.tune("--output", "out", "--report", "report.png", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    said = "no picture: matplotlib is not installed here (pip install 'sgdoctor[plot]')"
    assert done.stderr.splitlines()[-1] == said
    assert (host.folder / "out/triton_3_6_0" / UP).is_file()
    assert not (host.folder / "report.png").exists()


def test_a_folder_that_was_moved_is_not_undone(host):
    assert host.tune("--output", "out").returncode == 0
    (host.folder / "out").rename(host.folder / "moved")
    said = refused(host.run("--undo", "--output", "moved"), 2)
    assert f"names {host.folder}/out/triton_3_6_0/{UP}, which is not in {host.folder}/moved" in said
    assert (host.folder / "moved/triton_3_6_0" / UP).is_file()


def test_sglangs_own_tuner_is_judged_as_ours(host):
    """A checkout whose tuner answers at once; its files are for the up product alone."""
    checkout = Path(ROOT) / "tests" / "fix" / "stand_in_checkout"
    done = host.tune("--tuner", "sglang", "--sglang-source", checkout)
    assert done.returncode == 0, done.stderr
    assert "by SGLang's own tuner" in done.stdout
    assert "no _down file: the down product gets the up product's configurations" in done.stdout
    assert list(json.loads((host.configs / UP).read_text())) == list(
        json.loads((host.configs / DOWN).read_text())
    )
    assert "is no source checkout of SGLang" in refused(
        host.tune("--tuner", "sglang", "--sglang-source", host.folder, "--retune"), 2
    )


def test_a_terminal_sees_a_display_in_place(host):
    ours, theirs = pty.openpty()
    model = ("--model", "m", "--tp", "4", "--python", host.installed.python)
    child = subprocess.Popen(
        host.command("--tune-moe", *model, "--effort", "quick"),
        cwd=host.folder,
        env=host.environment | {"TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        said += part
        if not part:
            break
    os.close(ours)
    assert child.wait(timeout=60) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    assert "best so far over the built-in default, by tokens" in text
    assert re.search(r"4096 +\d\.\d\dx", text)


def test_where_a_tuner_is_in_a_line():
    progress = Progress("timing", 3, 18, {1: 1.02, 64: 1.31}, 100.0)
    assert tuning.line(progress) == (
        "timing: 3 of 18; 2 batch sizes, best 1.31x over the default at 64 tokens; about 1:40 left"
    )
    assert tuning.line(Progress("compiling", 0, 944)) == "compiling: 0 of 944"


def test_lines_come_when_something_else_is_done(capsys):
    with tuning.Tuning(interactive=False) as display:
        for done in range(100):
            display.show(Progress("compiling", done, 100))
        display.show(Progress("timing", 1, 18))
    assert capsys.readouterr().err.splitlines() == ["compiling: 0 of 100", "timing: 1 of 18"]


def test_an_overlay_holds_the_bundled_files_too(host):
    done = host.tune("--overlay", "moe")
    assert done.returncode == 0, done.stderr
    folder = host.folder / "moe/configs"
    assert (folder / "triton_3_6_0" / DOWN).is_file()
    names = {str(path.relative_to(host.installed.root)) for path in host.installed.root.glob("triton_*/E=*")}
    assert names <= {str(path.relative_to(folder)) for path in folder.glob("triton_*/*")}
    assert f"SGLANG_MOE_CONFIG_DIR={host.folder / 'moe'}" in done.stdout


def test_an_interrupted_run_goes_on_where_it_was(host):
    model = ("--model", "m", "--tp", "4", "--python", host.installed.python)
    child = subprocess.Popen(
        host.command("--tune-moe", *model, "--effort", "quick"),
        cwd=host.folder,
        env=host.environment | {"PAUSE": "0.05"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journal = wait_for_journal(host, child)
    at_once = host.tune()
    assert at_once.returncode == 2
    assert f"another tuner writes to {journal}" in at_once.stderr
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 3
    assert "interrupted: what was measured is kept in" in err
    assert "Traceback" not in out + err
    kept = journal.read_bytes()
    done = host.tune()
    assert done.returncode == 0, done.stderr
    assert journal.read_bytes().startswith(kept)
    assert (host.configs / UP).exists()


def wait_for_journal(host: Host, child: subprocess.Popen[str]) -> Path:
    """Return the journal once something measured is in it."""
    while child.poll() is None:
        for journal in host.folder.glob("cache/sgdoctor/tune/*/journal.jsonl"):
            if journal.read_bytes().count(b"\n") > 40:
                return journal
        time.sleep(0.05)
    raise AssertionError(child.communicate()[1])


def test_a_busy_gpu_is_left_alone_unless_it_is_named(host):
    busy = f"NVIDIA H200;143771;90000;97;{os.getpid()};50000;4;0"
    said = refused(host.tune(NVML_GPUS=busy), 3)
    assert "no NVIDIA H200 is idle: GPU 0 is in use by" in said
    assert "--share" in said
    for option in (("--gpu", "0"), ("--share",)):
        done = host.tune("--dry-run", *option, NVML_GPUS=busy)
        assert "in use by" in done.stdout
        assert "slowed: power cap" in done.stdout
        assert "but " not in done.stdout


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ("NVIDIA L4;23034;22000;0;0;0;0;0", "is an NVIDIA L4, and the missing file is for NVIDIA H200"),
        ("NVIDIA H200;143771;2000;0;0;0;0;0", "2000 MiB are free, and tuning this shape takes up to"),
        ("NVIDIA H200;143771;143163;0;0;0;0;1", "MIG is on"),
    ],
)
def test_a_gpu_that_cannot_tune_this_file(host, gpus, said):
    known = ("--assume", "gpu.name=NVIDIA H200", "--assume", "gpu.compute_capability=9.0")
    assert said in refused(host.tune(*known, NVML_GPUS=gpus), 3)


def test_a_folder_that_cannot_be_written_names_the_way_out(host):
    (host.folder / "taken").write_text("")
    said = refused(host.tune("--output", "taken"), 2)
    assert "give another --output DIR" in said


def test_a_cache_that_cannot_be_written_names_the_way_out(host):
    (host.folder / "cache").write_text("")
    done = host.tune()
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("set XDG_CACHE_HOME to another folder")


def test_packages_on_pythonpath_are_examined_and_used_alike(host):
    """python3 finds the deployment's packages in a folder of PYTHONPATH; no other Python has them."""
    site = host.installed.package.parent.rename(host.folder / "site")
    own = host.folder / "bin"
    own.mkdir()
    (own / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (own / "python3").chmod(0o755)
    model = ("--tune-moe", "--dry-run", "--model", "m", "--tp", "4")
    path = f"{own}{os.pathsep}{os.environ['PATH']}"
    done = host.run(*model, PATH=path, PYTHONPATH=os.pathsep.join([ROOT, str(site)]))
    assert (done.returncode, done.stderr) == (0, "")
    assert str(site / "sglang") in done.stdout
    assert "but " not in done.stdout  # torch and Triton are found, in a child with the same PYTHONPATH
    assert "sglang.version is not known; name the Python that has SGLang with --python PATH" in refused(
        host.run(*model, PATH=path, PYTHONPATH=ROOT), 3
    )


def test_a_named_python_does_not_get_the_packages_of_this_shell(host):
    """Examined without PYTHONPATH, it is run without: here torch is in that folder alone."""
    site = host.folder / "site"
    site.mkdir()
    (host.installed.package.parent / "torch").rename(site / "torch")
    done = host.tune(PYTHONPATH=os.pathsep.join([ROOT, str(site)]))
    assert "torch" in refused(done, 3)


def test_an_interpreter_without_torch_is_refused(host):
    for file in (host.installed.package.parent / "torch").iterdir():
        file.unlink()
    (host.installed.package.parent / "torch").rmdir()
    said = refused(host.tune(), 3)
    assert "torch" in said
    assert "--python PATH" in said


def test_a_dense_model_is_refused(host):
    (host.folder / "m/config.json").write_text(json.dumps(DENSE))
    assert "no routed experts" in refused(host.tune(), 3)


def test_a_log_names_what_is_missing(host):
    done = host.run(
        "--tune-moe", "--dry-run", "--log", LOG, "--model", "m", "--python", host.installed.python
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert UP in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "sgdoctor fix --tune-moe tunes a missing fused-MoE config, sgdoctor fix --undo takes"),
        (("--tune-moe", "--undo"), "say what to do"),
        (("--tune-moe", "--output", "a", "--overlay", "b"), "two places for the same files"),
        (("--tune-moe", "--tp", "4"), "--tp says how a model is served: name it with --model DIR"),
        (("--tune-moe", "--model", "m", "--ep", "2", "--log", "x"), "--ep is for --model alone: --log says"),
        (("--tune-moe", "--tp", "0"), "0 is not in the range"),
        (("--tune-moe", "--executor", "ray"), "--executor ray and --ray-address HOST:PORT belong together"),
        (
            ("--tune-moe", "--ray-address", "a:1"),
            "--executor ray and --ray-address HOST:PORT belong together",
        ),
        (
            ("--tune-moe", "--executor", "ray", "--ray-address", "a:1", "--gpu", "0"),
            "--gpu names GPUs of this",
        ),
        (("--tune-moe", "--sglang-source", "x"), "--sglang-source is for --tuner sglang"),
        (("--tune-moe", "--report", "x.pdf", "--model", "m"), "a name that ends in .png or .html"),
        (("--tune-moe", "--report", "no/x.png", "--model", "m"), "no folder no"),
        (("--tune-moe", "--log", "gone.log"), "gone.log"),
        (("--tune-moe", "--model", "gone"), "gone"),
        (("--undo", "--output", "gone"), "nothing to undo"),
        (("--undo", "--effort", "quick"), "--effort is for --tune-moe: --undo takes back the newest repair"),
        (("--undo", "--gpu", "0"), "--gpu is for --tune-moe"),
        (("--undo", "--model", "m"), "--model is for --tune-moe"),
        (("--undo", "--format", "json"), "--format is for --tune-moe"),
        (("--undo", "--", "sglang", "serve"), "the command behind -- is for --tune-moe"),
    ],
)
def test_what_the_operator_must_change(sgdoctor, arguments, said):
    done = sgdoctor("fix", *arguments)
    assert said in refused(done, 2)
