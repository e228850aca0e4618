"""`sgdoctor fix --flags` on real scripts: what it changes, what it leaves alone and why, and the way back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sgdoctor.collect import launch_kinds
from sgdoctor.errors import UsageError
from sgdoctor.fix import flags, flags_write
from sgdoctor.fix.flags_plan import Plan
from sgdoctor.sources import Sources
from tests import pages
from tests.cli.conftest import ROOT, environment, sgdoctor  # noqa: F401 (fixtures)

SCENARIO = Path(ROOT) / "tests" / "scenarios" / "rtx-pro-6000"
LAUNCH_FILES = Path(ROOT) / "tests" / "launch_files"
OLD, NEW = "sglang.version=0.5.19", "sglang.version=0.5.20"  # the last with the old names, the first without
NO_FUSION = (
    "sglang.version=0.5.12",
    "gpu.compute_capability=12.0",
    "gpu.vendor=nvidia",
)


def plan(folder: Path, text: str, *assume: str, unsafe: bool = False) -> Plan:
    """Return what is planned for the script ``text``."""
    script = folder / "run.sh"
    script.write_bytes(text.encode())
    return flags.plan(Sources(launch=str(script), assume=assume), unsafe=unsafe)


def left(found: Plan) -> str:
    """Return the reasons for what is left alone."""
    return "; ".join(f"{change.line} {change.why}" for change in found.left)


def printed(script: Path) -> list[list[str]]:
    """Return the arguments that bash gives each server of a script, by a python3 that prints them."""
    programs = script.parent / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("python3", "sglang"):
        program = programs / name
        program.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\nprintf '\\n\\0'\n")
        program.chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", script], capture_output=True, text=True, check=True, timeout=30, env={"PATH": path}
    )
    servers = [server.split("\0")[:-1] for server in done.stdout.split("\n\0")[:-1]]
    return [[word for word in server if word not in ("-m", "sglang.launch_server")] for server in servers]


# --- the style of the file is kept --------------------------------------------------------------------------

ARRAY = """\
#!/usr/bin/env bash
ARGS=(
  --model-path /m   # the model
  --stream-output   # for the chat
  # the new scheduler
  --prefill-round-robin-balance
  --tp-size "4"
)
exec python3 -m sglang.launch_server "${ARGS[@]}"
"""
REPAIRED_ARRAY = """\
#!/usr/bin/env bash
ARGS=(
  --model-path /m   # the model
  --incremental-streaming-output   # for the chat
  # the new scheduler
  --tp-size "4"
)
exec python3 -m sglang.launch_server "${ARGS[@]}"
"""
CONTINUED = """\
python3 -m sglang.launch_server --prefill-round-robin-balance \\
    --model-path /m \\
    --mamba-scheduler-strategy \\
        no_buffer \\
    "--nsa-decode-backend=fa3" --disable-piecewise-cuda-graph \\
    --prefill-round-robin-balance
echo done > /dev/null
"""
REPAIRED_CONTINUED = """\
python3 -m sglang.launch_server \\
    --model-path /m \\
    --mamba-radix-cache-strategy \\
        no_buffer \\
    "--dsa-decode-backend=fa3" --cuda-graph-backend-prefill=disabled
echo done > /dev/null
"""
STYLES = {
    "an array with comments": (ARRAY, REPAIRED_ARRAY),
    "continuation lines": (CONTINUED, REPAIRED_CONTINUED),
    "a string": (
        'ARGS="--model-path /m --prefill-round-robin-balance"\npython3 -m sglang.launch_server $ARGS\n',
        'ARGS="--model-path /m"\npython3 -m sglang.launch_server $ARGS\n',
    ),
    "a string of several lines": (
        (
            "ARGS='\n  --model-path /m\n  --stream-output\n  --prefill-round-robin-balance\n'\n"
            "python3 -m sglang.launch_server $ARGS\n"
        ),
        (
            "ARGS='\n  --model-path /m\n  --incremental-streaming-output\n'\n"
            "python3 -m sglang.launch_server $ARGS\n"
        ),
    ),
    "a comment behind the last line": (
        "python3 -m sglang.launch_server --model-path /m \\\n\t--prefill-round-robin-balance # why not\n",
        "python3 -m sglang.launch_server --model-path /m \\\n\t# why not\n",
    ),
    "a pipe behind the flag": (
        "python3 -m sglang.launch_server --model-path /m \\\n  --prefill-round-robin-balance 2>&1 | cat\n",
        "python3 -m sglang.launch_server --model-path /m \\\n  2>&1 | cat\n",
    ),
    "the same flag twice": (
        "python3 -m sglang.launch_server --stream-output --model-path /m --stream-output",
        (
            "python3 -m sglang.launch_server --incremental-streaming-output --model-path /m "
            "--incremental-streaming-output"
        ),
    ),
    "a value from a variable": (
        "B=fa3\nsglang serve /m --nsa-decode-backend $B --tp-size 2\n",
        "B=fa3\nsglang serve /m --dsa-decode-backend $B --tp-size 2\n",
    ),
    "a script in a string": (
        "bash -c 'python3 -m sglang.launch_server --prefill-round-robin-balance --model-path /m --tp-size 2'",
        "bash -c 'python3 -m sglang.launch_server --model-path /m --tp-size 2'",
    ),
    "a script of several lines in a string": (
        'bash -c "python3 -m sglang.launch_server --model-path /m \\\n  --prefill-round-robin-balance"\n',
        'bash -c "python3 -m sglang.launch_server --model-path /m"\n',
    ),
    "a list that grows": (
        (
            'A="--model-path /m"\nA+=" --stream-output"\nA="${A} --prefill-round-robin-balance"\n'
            "python3 -m sglang.launch_server $A\n"
        ),
        (
            'A="--model-path /m"\nA+=" --incremental-streaming-output"\nA="${A}"\n'
            "python3 -m sglang.launch_server $A\n"
        ),
    ),
    "a function's arguments": (
        (
            'run() {\n  python3 -m sglang.launch_server --model-path /m "$@"\n}\n'
            "run --stream-output --port 1\nrun --port 2 --prefill-round-robin-balance\n"
        ),
        (
            'run() {\n  python3 -m sglang.launch_server --model-path /m "$@"\n}\n'
            "run --incremental-streaming-output --port 1\nrun --port 2\n"
        ),
    ),
    "two servers from one list": (
        (
            "A=(--prefill-round-robin-balance --model-path /m)\nfor port in 1 2; do\n"
            '  python3 -m sglang.launch_server "${A[@]}" --port $port\ndone\n'
        ),
        (
            "A=(--model-path /m)\nfor port in 1 2; do\n"
            '  python3 -m sglang.launch_server "${A[@]}" --port $port\ndone\n'
        ),
    ),
    "a list that is printed for the reader, and files read in before it": (
        (
            "set -a; . /dev/null; set +a\nA=(--model-path /m --stream-output)\n"
            'echo "arguments: ${A[*]}" >&2\n'
            'python3 -m sglang.launch_server "${A[@]}"\n'
        ),
        (
            "set -a; . /dev/null; set +a\nA=(--model-path /m --incremental-streaming-output)\n"
            'echo "arguments: ${A[*]}" >&2\npython3 -m sglang.launch_server "${A[@]}"\n'
        ),
    ),
    "a function that takes its first argument for itself": (
        (
            'run() {\n  gpu=$1; shift\n  CUDA_VISIBLE_DEVICES=$gpu python3 -m sglang.launch_server "$@"\n}\n'
            "run 0 --model-path /m --stream-output\n"
        ),
        (
            'run() {\n  gpu=$1; shift\n  CUDA_VISIBLE_DEVICES=$gpu python3 -m sglang.launch_server "$@"\n}\n'
            "run 0 --model-path /m --incremental-streaming-output\n"
        ),
    ),
    "what the caller gives behind it": (
        (
            "set --\nEXTRA=$(true)\n"
            "python3 -m sglang.launch_server --model-path /m --nsa-decode-backend fa3 $EXTRA "
            '--stream-output "$@"\n'
        ),
        (
            "set --\nEXTRA=$(true)\n"
            "python3 -m sglang.launch_server --model-path /m --dsa-decode-backend fa3 $EXTRA "
            '--incremental-streaming-output "$@"\n'
        ),
    ),
    "a here-document": (
        (
            "bash <<EOF\npython3 -m sglang.launch_server --stream-output \\\\\n  --model-path /m \\\\\n"
            "  --prefill-round-robin-balance\nEOF\n"
        ),
        (
            "bash <<EOF\npython3 -m sglang.launch_server --incremental-streaming-output \\\\\n"
            "  --model-path /m\nEOF\n"
        ),
    ),
    "another command behind it in quotes": (
        "bash -c 'python3 -m sglang.launch_server --stream-output --stream-output; true&& true'\n",
        (
            "bash -c 'python3 -m sglang.launch_server --incremental-streaming-output "
            "--incremental-streaming-output; true&& true'\n"
        ),
    ),
    "letters beyond ASCII": (
        (
            "# größer\nNAME='größe'  # ü\n"
            "python3 -m sglang.launch_server --model-path /ä --stream-output --served-model-name $NAME\n"
        ),
        (
            "# größer\nNAME='größe'  # ü\n"
            "python3 -m sglang.launch_server --model-path /ä --incremental-streaming-output "
            "--served-model-name $NAME\n"
        ),
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_repaired_script_looks_as_before_and_gives_the_server_what_was_meant(tmp_path, style):
    text, repaired = STYLES[style]

    found = plan(tmp_path, text, OLD)
    before = printed(tmp_path / "run.sh")
    again = plan(tmp_path, found.repaired or "", OLD)

    assert found.repaired == repaired
    assert not found.left
    assert again.repaired is None, "a second repair changes nothing"
    assert not again.changes
    assert printed(tmp_path / "run.sh") == [meant(words) for words in before]


def meant(words: list[str]) -> list[str]:
    """Return the words that a server gets when its old flags are written as 0.5.19 reads them."""
    names = {
        "--stream-output": "--incremental-streaming-output",
        "--mamba-scheduler-strategy": "--mamba-radix-cache-strategy",
        "--nsa-decode-backend": "--dsa-decode-backend",
        "--nsa-decode-backend=fa3": "--dsa-decode-backend=fa3",
        "--disable-piecewise-cuda-graph": "--cuda-graph-backend-prefill=disabled",
    }
    return [names.get(word, word) for word in words if word != "--prefill-round-robin-balance"]


def test_a_release_that_took_the_old_names_away_gets_the_same_script(tmp_path):
    """The last release that had a name says what it stood for; what stops the start is repaired, too."""
    found = plan(tmp_path, ARRAY, NEW)

    assert found.repaired == REPAIRED_ARRAY
    assert found.codes == ("ARG101",)


def test_an_ambiguous_name_becomes_the_one_that_it_stood_for(tmp_path):
    script = "python3 -m sglang.launch_server --model-path /m --cuda-graph-max-bs 64\n"

    found = plan(tmp_path, script, NEW)

    assert found.repaired == script.replace("-max-bs", "-max-bs-decode")
    assert found.codes == ("ARG102",)


@pytest.mark.parametrize(
    ("written", "repaired"),
    [
        ("--moe-runner-backend flashinfer_trtllm", "--moe-runner-backend auto"),
        ("--moe-runner-backend='flashinfer_trtllm'", "--moe-runner-backend='auto'"),
        ('"--moe-runner-backend" "flashinfer_trtllm"', '"--moe-runner-backend" "auto"'),
        ("--moe-runner-backend $RUNNER", None),
        ("--moe-runner-backend triton --moe-runner-backend flashinfer_trtllm", None),
    ],
)
def test_a_value_with_which_the_server_does_not_start_becomes_the_default(tmp_path, written, repaired):
    """HW201: the kernels of flashinfer_trtllm are not made for compute capability 9.0."""
    script = "RUNNER=flashinfer_trtllm\npython3 -m sglang.launch_server --model-path /m {} # fast\n"
    facts = ("sglang.version=0.5.12", "gpu.compute_capability=9.0", "gpu.vendor=nvidia")
    model = ("model.is_moe=true", "model.quantization=fp8")

    found = plan(tmp_path, script.format(written), *facts, *model)

    assert found.repaired == (script.format(repaired) if repaired else None)
    why = (
        "it is not written there, or its value is not or comes from a variable",
        "it is given more than once",
    )
    assert repaired or left(found).endswith(why)


# --- what is left alone -------------------------------------------------------------------------------------

LEFT = {
    "a list that another program gets, too": (
        (
            'A=(--model-path /m --stream-output)\npython3 bench.py "${A[@]}"\n'
            'python3 -m sglang.launch_server "${A[@]}"\n'
        ),
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a variable that others read from the environment": (
        'export A="--stream-output"\npython3 -m sglang.launch_server --model-path /m $A\n',
        "1 A is used on line 1, too, perhaps not for the server",
    ),
    "a list that another program on the same line gets": (
        'A="--model-path /m --stream-output"\npython3 bench.py $A & python3 -m sglang.launch_server $A\n',
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a list that is written into a file": (
        'A="--model-path /m --stream-output"\necho "$A" > args\npython3 -m sglang.launch_server $A\n',
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a list that is printed for another program": (
        'A="--model-path /m --stream-output"\necho $A | xargs bench\npython3 -m sglang.launch_server $A\n',
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a list that is printed into a variable": (
        'A="--model-path /m --stream-output"\nB=$(echo $A)\npython3 -m sglang.launch_server $A\n',
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "the script's arguments, for two programs": (
        'set -- --model-path /m --stream-output\nbench "$@"\npython3 -m sglang.launch_server "$@"\n',
        "1 $@ is used on line 2, too, perhaps not for the server",
    ),
    "a function's arguments, for two programs": (
        (
            'run() {\n  bench "$@"\n  python3 -m sglang.launch_server --model-path /m "$@"\n}\n'
            "run --stream-output\n"
        ),
        "5 $@ is used on line 2, too, perhaps not for the server",
    ),
    "a list that a function gives two programs": (
        (
            'A=(--stream-output)\nrun() {\n  bench "$@"\n'
            '  python3 -m sglang.launch_server --model-path /m "$@"\n}\nrun "${A[@]}"\n'
        ),
        "1 $@ is used on line 3, too, perhaps not for the server",
    ),
    "a variable that a file read in may use": (
        'A="--model-path /m --stream-output"\n. ./bench.sh\npython3 -m sglang.launch_server $A\n',
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a variable in a text that the shell reads again": (
        'A="--model-path /m --stream-output"\neval "bench \\$A"\npython3 -m sglang.launch_server $A\n',
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a variable under another name": (
        'A=(--model-path /m --stream-output)\ndeclare -n B=A\npython3 -m sglang.launch_server "${A[@]}"\n',
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a variable of a part where all are exported": (
        'set -a\nA="--stream-output"\nset +a\nbench\npython3 -m sglang.launch_server --model-path /m $A\n',
        "2 A is used on line 2, too, perhaps not for the server",
    ),
    "a variable that names a file": (
        "A=--stream-output\npython3 -m sglang.launch_server --model-path /m $A > log$A\n",
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a variable that decides a branch": (
        (
            'A=--stream-output\nif [ -n "$A" ]; then echo streaming; fi\n'
            "python3 -m sglang.launch_server --model-path /m $A\n"
        ),
        "1 A is used on line 2, too, perhaps not for the server",
    ),
    "a flag that both branches add": (
        (
            "A=(--model-path /m)\nif true; then\n  A+=(--stream-output)\nelse\n  A+=(--stream-output)\nfi\n"
            'python3 -m sglang.launch_server "${A[@]}"\n'
        ),
        "3 changing the word there would change more than this, or nothing",
    ),
    "a quoted variable that would become an empty word": (
        'A="--prefill-round-robin-balance"\npython3 -m sglang.launch_server --model-path /m "$A"\n',
        "its words are not written there one by one",
    ),
    "what stands in for arguments that are not given": (
        (
            "run() {\n"
            '  python3 -m sglang.launch_server --model-path /m "${@:---prefill-round-robin-balance}"\n'
            "}\nrun\n"
        ),
        "2 it is not written there, or its value is not or comes from a variable",
    ),
    "a word of a loop": (
        (
            'A=(--model-path /m)\nfor flag in --stream-output; do A+=("$flag"); done\n'
            'python3 -m sglang.launch_server "${A[@]}"\n'
        ),
        "2 its words are not written there one by one",
    ),
    "a word put together": (
        "F=stream\npython3 -m sglang.launch_server --model-path /m --$F-output\n",
        "2 its words are not written there one by one",
    ),
    "a flag that no release has": (
        "python3 -m sglang.launch_server --model-path /m --tensor-parallelism 4\n",
        "1 no release that is known has it",
    ),
    "a flag of a later release": (
        "python3 -m sglang.launch_server --model-path /m --enable-amd-monokernel\n",
        "1 came with SGLang 0.5.2",
    ),
    "a flag for which another way came": (
        "python3 -m sglang.launch_server --model-path /m --disable-cuda-graph\n",
        "1 no other flag means just the same",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_not_certain_is_left_with_the_reason(tmp_path, case):
    text, reason = LEFT[case]

    found = plan(tmp_path, text, OLD)

    assert found.repaired is None
    assert reason in left(found)


def test_of_several_servers_those_are_changed_that_can_be(tmp_path):
    script = (
        "python3 -m sglang.launch_server --model-path /m --stream-output --port 1\n"
        "for flag in --stream-output; do python3 -m sglang.launch_server --model-path /m $flag; done\n"
    )

    found = plan(tmp_path, script, OLD)

    assert found.repaired == script.replace("--stream-output", "--incremental-streaming-output", 1)
    assert [(each.line, each.why) for each in found.left] == [
        (2, "its words are not written there one by one")
    ]


def test_two_servers_on_one_list_where_only_one_may_change(tmp_path):
    """TP 1 makes the fusion useless for the first server; the second, at TP 2, keeps it."""
    script = (
        "A=(--model-path /m --enable-flashinfer-allreduce-fusion)\n"
        'python3 -m sglang.launch_server "${A[@]}" --tp-size 1 --port 1\n'
        'python3 -m sglang.launch_server "${A[@]}" --tp-size 2 --port 2\n'
    )
    facts = ("sglang.version=0.5.12", "gpu.compute_capability=9.0", "gpu.vendor=nvidia")

    found = plan(tmp_path, script, *facts)

    assert found.repaired is None
    assert "1 changing the word there would change more than this, or nothing" in left(found)


def test_what_changes_how_the_server_runs_takes_unsafe(tmp_path):
    script = SCENARIO.joinpath("launch.sh").read_text()

    careful = plan(tmp_path, script, *NO_FUSION)
    bold = plan(tmp_path, script, *NO_FUSION, unsafe=True)

    assert careful.repaired is None
    assert [change.code for change in careful.unsafe] == ["ARG107"]
    assert bold.repaired == script.replace("  --enable-fused-moe-sum-all-reduce\n", "")


def test_windows_line_ends_are_told_and_left(tmp_path):
    found = plan(tmp_path, CONTINUED.replace("\n", "\r\n"), OLD)

    assert found.repaired is None
    assert found.by_hand is not None
    assert "Windows line ends" in found.by_hand


RULE = """\
code: ARG901
name: no-buffers
title: This house runs without buffers
severity: info
impact: performance
confidence: high
case: none
when: asked.mamba_radix_cache_strategy == "no_buffer"
message: "no_buffer was asked for."
why: An agreement.
recommend:
  - {do: "ask"}
verified: an agreement
sources: [here]
tests: []
"""


def test_a_repair_that_brings_a_finding_is_not_written(tmp_path, monkeypatch):
    """Only under its new name does the flag meet the rule of this house, which sgdoctor.toml names."""
    (tmp_path / "arg").mkdir()
    (tmp_path / "arg" / "ARG901-no-buffers.yaml").write_text(RULE)
    (tmp_path / "sgdoctor.toml").write_text('rules = ["."]\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match=r"run.sh: the repaired file would have ARG901; nothing was written"):
        plan(tmp_path, CONTINUED, NEW)


def test_what_the_settings_accept_is_not_repaired(tmp_path, monkeypatch):
    (tmp_path / "sgdoctor.toml").write_text('ignore = ["ARG101"]\n')
    monkeypatch.chdir(tmp_path)

    assert plan(tmp_path, ARRAY, NEW).repaired is None


@pytest.mark.parametrize("folder", sorted(path.name for path in LAUNCH_FILES.iterdir()))
def test_each_kind_of_launch_file_is_told_by_its_lines(tmp_path, folder):
    (name,) = (
        path.name
        for path in (LAUNCH_FILES / folder).iterdir()
        if not path.match("report-*") and path.name != "expect.yaml"
    )
    file = tmp_path / name
    shutil.copy(LAUNCH_FILES / folder / name, file)

    found = flags.plan(Sources(launch=str(file), assume=(NEW,)), unsafe=True)

    lines = file.read_text().splitlines()
    for change in (*found.changes, *found.left):
        flag = next(word for word in change.what.split() if word.startswith("--")).partition("=")[0]
        assert flag in lines[change.line - 1] or change.why in ELSEWHERE, change
    assert (found.by_hand is None) == (launch_kinds.kind_of(found.text) == "script")
    assert found.repaired is None or found.by_hand is None


ELSEWHERE = ("it comes from the file of --config", "flags are not added")


# --- the command --------------------------------------------------------------------------------------------


def test_the_scenarios_script_is_shown_written_and_restored(sgdoctor, tmp_path):  # noqa: F811
    """The whole way of an operator: look, write, run again, take it back."""
    script = tmp_path / "run.sh"
    shutil.copy(SCENARIO / "launch-fusion.sh", script)
    script.chmod(0o750)
    original = script.read_bytes()
    sources = ["--launch", script, "--environment", SCENARIO / "environment.json"]
    sources += ["--model", SCENARIO / "config.json"]
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "200"}

    shown = sgdoctor("fix", "--flags", *sources, **state)
    assert shown.returncode == 0, shown.stderr
    assert "\n-  --enable-flashinfer-allreduce-fusion\n" in shown.stdout
    assert "ARG103" in shown.stdout
    assert "Nothing was written: add --write." in shown.stdout
    assert script.read_bytes() == original

    written = sgdoctor("fix", "--flags", *sources, "--write", **state)
    assert written.returncode == 0, written.stderr
    assert script.read_bytes() == original.replace(b"  --enable-flashinfer-allreduce-fusion\n", b"")
    assert script.stat().st_mode & 0o777 == 0o750
    checked = sgdoctor("check", *sources, "--select", "ARG103", **state)
    assert "ARG103" not in checked.stdout

    again = sgdoctor("fix", "--flags", *sources, "--write", **state)
    assert "no flag is changed" in again.stdout

    undone = sgdoctor("fix", "--undo", **state)
    assert undone.returncode == 0, undone.stderr
    assert f"restored {script}" in undone.stdout
    assert script.read_bytes() == original


def test_the_commands_of_the_page_lead_there_and_back(environment, tmp_path):  # noqa: F811
    """docs/fix-flags.md: shown, shown with --unsafe, written, undone."""
    (block,) = (one for one in pages.blocks(pages.DOCS / "fix-flags.md") if one.language == "sh")
    script = tmp_path / "run.sh"
    script.write_text(ARRAY)
    state = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    seen = []
    for line in block.text.splitlines():
        subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env={**environment, **state}, check=True, timeout=60
        )
        seen.append(script.read_text())

    assert seen == [ARRAY, ARRAY, REPAIRED_ARRAY, ARRAY]


def test_a_link_stays_a_link_and_a_byte_order_mark_stays(sgdoctor, tmp_path):  # noqa: F811
    real = tmp_path / "real.sh"
    real.write_bytes(b"\xef\xbb\xbf" + ARRAY.encode())
    link = tmp_path / "run.sh"
    link.symlink_to(real)

    done = sgdoctor(
        "fix", "--flags", "--launch", link, "--assume", OLD, "--write", XDG_STATE_HOME=str(tmp_path / "s")
    )

    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert real.read_bytes() == b"\xef\xbb\xbf" + REPAIRED_ARRAY.encode()


def test_no_secret_is_shown(sgdoctor, tmp_path):  # noqa: F811
    script = tmp_path / "run.sh"
    script.write_text(
        "KEY=squeamish-ossifrage-1\nsglang serve --model-path /m --api-key $KEY \\\n  --admin-api-key \\\n"
        "  squeamish-ossifrage-2 \\\n  --prefill-round-robin-balance --api-key=squeamish-ossifrage-3\n"
    )

    shown = sgdoctor("fix", "--flags", "--launch", script, "--assume", OLD)

    assert "-  --prefill-round-robin-balance --api-key=<redacted>" in shown.stdout
    assert "squeamish" not in shown.stdout + shown.stderr


@pytest.mark.parametrize(
    "secret",
    [
        'K=squeamish-ossifrage\nA=(--api-key "$K")\npython3 -m sglang.launch_server {} "${{A[@]}}"\n',
        "K=squeamish-ossifrage\nL=x$K\npython3 -m sglang.launch_server {} \\\n --watermark-key=$L\n",
        "read K <<< squeamish-ossifrage\npython3 -m sglang.launch_server --api-key $K {}\n",
        "K=$(echo squeamish-ossifrage)\npython3 -m sglang.launch_server --api-key ${{K}} {}\n",
        'if x; then K="\nsqueamish-ossifrage"; fi\npython3 -m sglang.launch_server --api-key $K {}\n',
        'python3 -m sglang.launch_server {} \\\n --api-key "a\nsqueamish-ossifrage"\n',
    ],
)
def test_a_secret_is_not_shown_where_it_is_only_a_variables_value(tmp_path, secret):
    found = plan(tmp_path, secret.format("--model-path /m --stream-output"), OLD)

    assert "--incremental-streaming-output" in (found.repaired or "")
    assert "<redacted>" in found.diff()
    assert "squeamish" not in found.diff()


@pytest.mark.parametrize("end", ["\f", "\u2028", "\x1c"])
def test_what_ends_a_line_for_python_alone_neither_shows_a_secret_nor_breaks_the_diff(tmp_path, end):
    """A secret that only the reader of the script knows is hidden by its line."""
    script = (
        f"# one{end}two\npython3 -m sglang.launch_server --model-path /m \\\n  --api-key \\\n"
        "  squeamish-ossifrage \\\n  --stream-output\n"
    )

    shown = plan(tmp_path, script, OLD).diff()

    assert "squeamish" not in shown
    assert "No newline" not in shown
    assert "<redacted>\n-  --stream-output\n+  --incremental-streaming-output\n" in shown


FILES = {
    "compose/docker-compose.yml": "--assume sglang.version=0.5.20 --unsafe",
    "systemd/sglang.service": "--assume sglang.version=0.5.20",
}
LINES = {
    "compose/docker-compose.yml": "docker-compose.yml:20: remove --enable-fused-moe-sum-all-reduce",
    "systemd/sglang.service": "sglang.service:20: --enable-torch-compile-d becomes",
}


@pytest.mark.parametrize("name", FILES)
def test_other_files_are_told_with_their_lines_and_never_written(sgdoctor, tmp_path, name):  # noqa: F811
    file = tmp_path / Path(name).name
    shutil.copy(LAUNCH_FILES / name, file)
    before = file.read_bytes()

    done = sgdoctor("fix", "--flags", "--launch", file.name, *FILES[name].split(), "--write", COLUMNS="200")

    assert done.returncode == 0, done.stderr
    assert LINES[name] in done.stdout
    assert "to change by hand" in done.stdout
    assert file.read_bytes() == before


WRONG = {
    "": "--flags repairs a file: name it with --launch FILE",
    "--launch missing.sh": "missing.sh: No such file or directory",
    "--launch run.sh --url http://127.0.0.1:1": "--url is not for --flags",
    "--launch run.sh --effort quick": "--effort is not for --flags",
    "--launch run.sh --undo": "say what to do",
    "--launch run.sh --write --dry-run": "--write writes the file and --dry-run does not",
    "-- sglang serve --model-path m": "name it with --launch FILE, not behind --",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_what_cannot_be_meant_is_refused_in_a_line(sgdoctor, tmp_path, arguments):  # noqa: F811
    (tmp_path / "run.sh").write_text(ARRAY)

    done = sgdoctor("fix", "--flags", *arguments.split())

    assert done.returncode == 2
    assert WRONG[arguments] in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_write_and_unsafe_are_for_flags_alone(sgdoctor):  # noqa: F811
    done = sgdoctor("fix", "--tune-moe", "--write")

    assert (done.returncode, done.stderr) == (2, "sgdoctor: --write is for --flags\n")


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path):
    found = plan(tmp_path, ARRAY, OLD)
    script = tmp_path / "run.sh"
    script.write_text(ARRAY + "# another hand\n")

    with pytest.raises(UsageError, match="was changed while it was looked at"):
        flags_write.write(found)

    assert script.read_text() == ARRAY + "# another hand\n"


def test_help_does_not_load_the_repair(environment):  # noqa: F811
    code = (
        "import sys\nfrom sgdoctor.cli.fix import command\ncommand.main(['--help'], standalone_mode=False)\n"
    )
    code += "print([name for name in sys.modules if name.startswith('sgdoctor.fix')])"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True, timeout=60
    )

    assert "sgdoctor fix --flags --launch run.sh" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
