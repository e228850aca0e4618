"""Files are written whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sgdoctor.cli import output
from sgdoctor.errors import UsageError


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    path.chmod(0o640)
    output.save(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_gets_the_mode_that_the_umask_leaves(tmp_path):
    code = f"import os; os.umask(0o027); from sgdoctor.cli.output import save; from pathlib import Path; \
save(Path({str(tmp_path / 'new')!r}), 'text')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_link_keeps_pointing_at_its_file(tmp_path):
    (tmp_path / "link").symlink_to("target")
    output.save(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_a_pipe_is_written_as_it_is(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    output.save(path, "text")
    reader.join(10)
    assert read == ["text"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_name_that_is_no_utf_8_is_spelt_out(tmp_path):
    output.save(tmp_path / "report", "launch-\udcff.sh")
    assert (tmp_path / "report").read_text() == r"launch-\udcff.sh"


JSON_COMMANDS = {
    "check": ["check", "--launch", "L40·😀.sh", "--format", "json"],
    "sarif": ["check", "--launch", "L40·😀.sh", "--format", "sarif"],
    "snapshot": ["snapshot", "--launch", "L40·😀.sh", "-o", "-"],
    "diff": ["diff", "before·😀.json", "after.json", "--format", "json"],
    "rules": ["rules", "list", "--rules", "own", "--format", "json"],
    "configs": ["configs", "lint", "E=8,N=64,device_name=L40·😀.json", "--format", "json"],
}
OWN_RULE = """
code: ARG901
name: own
title: L40·😀
severity: info
impact: stability
confidence: high
case: A01
when: arg.tp_size > 8
message: many ranks
why: none
verified: here
sources: [here]
tests:
  - {name: many, facts: {arg.tp_size: 9}, expect: fail}
"""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("command", JSON_COMMANDS)
def test_json_is_json_where_the_output_is_not_utf_8(command, encoding, sgdoctor, tmp_path):
    (tmp_path / "L40·😀.sh").write_text("python -m sglang.launch_server --model-path m·😀 --tp 2\n")
    (tmp_path / "E=8,N=64,device_name=L40·😀.json").write_text("{}")
    (tmp_path / "before·😀.json").write_text('{"tp_size": 1, "version": "0.5.12", "model_path": "m·😀"}')
    (tmp_path / "after.json").write_text('{"tp_size": 2, "version": "0.5.12", "model_path": "n·😀"}')
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "ARG901-own.yaml").write_text(OWN_RULE)
    ran = sgdoctor(*JSON_COMMANDS[command], PYTHONIOENCODING=encoding)
    assert ran.stderr == ""
    assert ran.stdout.isascii()
    assert "·😀" in json.dumps(json.loads(ran.stdout), ensure_ascii=False)


def test_a_config_whose_name_the_locale_cannot_read_is_spelt_out(sgdoctor, tmp_path):
    (tmp_path / "E=8,N=64,device_name=L40·.json").write_text("{}")
    command = ["configs", "lint", "E=8,N=64,device_name=L40·.json", "--format", "json"]
    ran = sgdoctor(*command, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", LC_ALL="C")
    assert ran.stderr == ""
    assert json.loads(ran.stdout)["path"] == r"E=8,N=64,device_name=L40\udcc2\udcb7.json"


@pytest.mark.parametrize(
    ("path", "said"),
    [("", "is a directory"), ("nowhere/report.json", "no folder"), ("file/report.json", "no folder")],
)
def test_what_cannot_be_written_is_found_before_the_work_is_done(tmp_path, path, said):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=said):
        output.writable(tmp_path / path)


def test_a_file_system_that_refuses_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="report"):
        output.save(Path("/proc/report"), "text")
    (tmp_path / "gone").mkdir()
    with pytest.raises(UsageError, match="gone"):
        output.save(tmp_path / "gone" / "away" / "report", "text")
