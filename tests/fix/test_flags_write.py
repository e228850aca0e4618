"""`sgdoctor fix --flags --write`: the file stays what it was but for its text, or it is not written."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path

import jsonschema
import pytest

from tests.cli.conftest import ROOT, environment, sgdoctor  # noqa: F401 (fixtures)
from tests.fix.test_flags import ARRAY, OLD, REPAIRED_ARRAY

SCHEMA = json.loads(Path(ROOT, "docs", "fix-flags.schema.json").read_text(encoding="utf-8"))

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def repair(sgdoctor, tmp_path):  # noqa: F811
    """Return what repairs a script, its records below tmp_path."""
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "200"}

    def run(script, *arguments):
        release = () if "--assume" in arguments else ("--assume", OLD)
        return sgdoctor("fix", "--flags", "--launch", script, *release, *arguments, **state)

    run.undo = lambda: sgdoctor("fix", "--undo", **state)
    return run


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(ARRAY)
    return file


# --- what kind of file it is --------------------------------------------------------------------------------


def refused(done, said: str) -> bool:
    return done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_write_protected_file_is_shown_and_not_written(repair, script):
    script.chmod(0o444)

    done = repair(script, "--write")

    assert refused(
        done, f"is write-protected (mode 444): nothing was written; chmod u+w {script}, then again"
    )
    assert "-  --prefill-round-robin-balance" in done.stdout
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == (ARRAY, 0o444)
    assert repair(script).returncode == 0, "to look takes no permission"


@pytest.mark.parametrize("mode", [0o700, 0o664, 0o4755, 0o2750, 0o1777])
def test_the_mode_stays_and_comes_back(repair, script, mode):
    script.chmod(mode)

    assert repair(script, "--write").returncode == 0
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == (REPAIRED_ARRAY, mode)
    assert repair.undo().returncode == 0
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == (ARRAY, mode)


@needs_root
def test_the_owner_stays_and_comes_back(repair, script):
    os.chown(script, 12345, 23456)

    assert repair(script, "--write").returncode == 0
    assert (script.stat().st_uid, script.stat().st_gid) == (12345, 23456)
    assert repair.undo().returncode == 0
    assert (script.stat().st_uid, script.stat().st_gid) == (12345, 23456)


def test_the_backup_of_a_private_file_is_private(repair, script, tmp_path):
    script.chmod(0o600)
    repair(script, "--write")

    (backup,) = (tmp_path / "state").rglob("1-run.sh")
    assert (backup.read_text(), stat.S_IMODE(backup.stat().st_mode)) == (ARRAY, 0o600)

    script.unlink()
    assert repair.undo().returncode == 0
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == (ARRAY, 0o600)


def test_a_symbolic_link_is_followed_and_stays(repair, script, tmp_path):
    (tmp_path / "etc").mkdir()
    link = tmp_path / "etc" / "run.sh"
    link.symlink_to("../run.sh")

    assert repair(link, "--write").returncode == 0
    assert (link.readlink(), script.read_text()) == (Path("../run.sh"), REPAIRED_ARRAY)


def test_a_link_to_nothing_is_refused(repair, tmp_path):
    (tmp_path / "run.sh").symlink_to("gone.sh")

    assert refused(repair(tmp_path / "run.sh", "--write"), "run.sh: No such file or directory")


def test_a_file_of_two_names_is_refused(repair, script, tmp_path):
    (tmp_path / "other.sh").hardlink_to(script)

    assert refused(repair(script, "--write"), "has 2 names (hard links)")
    assert script.read_text() == ARRAY


def test_what_is_no_file_is_refused_without_a_wait(repair, tmp_path):
    """Nobody writes to the FIFO: to open it would take forever."""
    os.mkfifo(tmp_path / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket"))
    server.close()

    for name, what in (("fifo", "a FIFO"), ("socket", "a socket"), ("/dev/zero", "a device")):
        done = repair(tmp_path / name)
        assert refused(done, f"is {what}: --flags changes a file"), done.stderr
    assert refused(repair(tmp_path), "is a directory")


def test_a_folder_that_takes_no_file_is_told(repair, script, tmp_path):
    (tmp_path / "state").write_text("no folder")

    done = repair(script, "--write")

    assert refused(done, "nothing was changed")
    assert script.read_text() == ARRAY


# --- secrets ------------------------------------------------------------------------------------------------

SECRETS = {
    "a function": "key() { echo squeamish-ossifrage; }\nK=$(key)\n",
    "a substitution": "K=$(echo squeamish-ossifrage)\n",
    "backticks": "K=`echo squeamish-ossifrage`\n",
    "a here-document": "K=$(cat <<EOF\nsqueamish-ossifrage\nEOF\n)\n",
}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_written_as_it_was_and_not_shown(repair, tmp_path, secret):
    script = tmp_path / "run.sh"
    text = SECRETS[secret] + 'python3 -m sglang.launch_server --model-path /m --api-key "$K" FLAG\n'
    script.write_text(text.replace("FLAG", "--stream-output"))

    done = repair(script, "--write")

    assert done.returncode == 0, done.stderr
    assert script.read_text() == text.replace("FLAG", "--incremental-streaming-output")
    assert "squeamish" not in done.stdout + done.stderr
    (record,) = (tmp_path / "state").rglob("manifest.json")
    assert "squeamish" not in record.read_text()
    assert repair.undo().returncode == 0
    assert script.read_text() == text.replace("FLAG", "--stream-output")


def test_a_change_in_a_line_that_is_hidden_is_still_seen(repair, tmp_path):
    script = tmp_path / "run.sh"
    script.write_text(
        'A=(--stream-output --api-key "$K" K=squeamish)\nK=squeamish\nsglang serve /m "${A[@]}"\n'
    )

    done = repair(script)

    assert "\n-<redacted>\n+<redacted>\n" in done.stdout
    assert "A line that holds a secret stands in the diff as <redacted>." in done.stdout
    assert "run.sh:1: --stream-output becomes --incremental-streaming-output" in done.stdout
    assert "squeamish" not in done.stdout


# --- JSON ---------------------------------------------------------------------------------------------------


def edits(done):
    report = json.loads(done.stdout)
    jsonschema.validate(report, SCHEMA)
    return report, [
        (each["rule"], each["line"], each["before"], each["after"], each["state"], each["written"])
        for each in report["edits"]
    ]


def test_json_has_each_edit_and_whether_it_was_written(repair, script):
    report, planned = edits(repair(script, "--format", "json"))
    assert planned == [
        ("ARG109", 4, "--stream-output", "--incremental-streaming-output", "repaired", False),
        ("ARG109", 6, "--prefill-round-robin-balance", None, "repaired", False),
    ]
    assert (report["written"], report["backup"], script.read_text()) == (False, None, ARRAY)
    assert "+  --incremental-streaming-output   # for the chat\n" in report["diff"]

    report, written = edits(repair(script, "--format", "json", "--write"))
    assert [each[-1] for each in written] == [True, True]
    assert (report["written"], script.read_text()) == (True, REPAIRED_ARRAY)
    assert Path(report["backup"], "1-run.sh").read_text() == ARRAY

    report, none = edits(repair(script, "--format", "json", "--write"))
    assert (report["written"], none, report["diff"]) == (False, [], "")


def test_json_says_what_is_left_and_why(repair, script):
    script.write_text(
        "sglang serve /m --tensor-parallelism 4 --cuda-graph-bs 1 2 \\\n --disable-cuda-graph\n"
    )

    report, told = edits(repair(script, "--format", "json"))

    assert ("ARG101", 1, "--tensor-parallelism 4", None, "left", False) in told
    assert all(each["why"] for each in report["edits"] if each["state"] == "left")


def test_what_the_check_of_the_repaired_file_still_finds_is_said(repair, script):
    """The comment in the list is a word that the server gets: ARG101 stays, for it alone."""
    text = 'A="\n --stream-output\n --model-path /m  # the model\n"\npython3 -m sglang.launch_server $A\n'
    script.write_text(text)
    new = ("--assume", "sglang.version=0.5.20")

    done = repair(script, *new, "--write")

    assert done.returncode == 0, done.stderr
    assert script.read_text() == text.replace("--stream-output", "--incremental-streaming-output")
    assert "was checked: ARG101 still there for what is not changed, nothing new." in done.stdout

    script.write_text(text)
    report, told = edits(repair(script, *new, "--format", "json"))
    assert (report["still_found"], [each[0] for each in told]) == (["ARG101"], ["ARG101"])


def test_json_of_a_file_that_is_not_rewritten(repair, tmp_path):
    unit = tmp_path / "sglang.service"
    unit.write_text("[Service]\nExecStart=/usr/bin/sglang serve --model-path /m --stream-output\n")

    report, told = edits(repair(unit, "--format", "json", "--write"))

    assert (report["by_hand"], report["written"]) == ("a systemd unit is not rewritten", False)
    assert told == [
        ("ARG109", 2, "--stream-output", "--incremental-streaming-output", "by-hand", False),
    ]


def test_json_holds_no_secret(repair, script):
    script.write_text("K=squeamish\nsglang serve /m --stream-output --api-key $K --admin-api-key squeamish\n")

    done = repair(script, "--format", "json")

    assert edits(done)[1][0][0] == "ARG109"
    assert "squeamish" not in done.stdout


ODD_PLACES = r"""
K=squeamish-1
bash <<EOF
KEY=squeamish-2
python3 -m sglang.launch_server --api-key squeamish-3 \\
  --admin-api-key \$KEY --model-path /m --stream-output
python3 -m sglang.launch_server --port 2 \\
  --api-key \\
  squeamish-4 \\
  --admin-api-key $K --model-path /m --stream-output
EOF
env -S "python3 -m sglang.launch_server --port 3 --api-key squeamish-5 --stream-output --model-path /m"
bash <<< "python3 -m sglang.launch_server --port 4 --api-key 'squeamish-6' --stream-output --model-path /m"
P=$(python3 -m sglang.launch_server --port 5 --api-key squeamish-7 --stream-output --model-path /m)
xargs -I{} python3 -m sglang.launch_server --port 6 --api-key squeamish-8{} --stream-output --model-path /m
getkey() { local f=/run/k; echo "squeamish-9$(cat $f)"; }
python3 -m sglang.launch_server --port 7 --api-key "$(getkey)" --stream-output --model-path /m
python3 -m sglang.launch_server --port 8 --stream-output --model-path /m --api-key $(printf %s \
   squeamish-10)
"""


def test_secrets_in_odd_places_are_neither_shown_nor_lost(repair, script):
    script.write_text(ODD_PLACES)

    done = [repair(script), repair(script, "--format", "json"), repair(script, "--write")]

    assert [each.returncode for each in done] == [0, 0, 0]
    assert "squeamish" not in "".join(each.stdout + each.stderr for each in done)
    assert script.read_text() == ODD_PLACES.replace("--stream-output", "--incremental-streaming-output")
