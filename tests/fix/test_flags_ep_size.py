"""--ep-size under an all-to-all backend is read before it is overwritten, so no repair takes it out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LAUNCH = "sglang serve --model-path m --tp 8 --ep-size 4 --moe-a2a-backend deepep\n"


def test_ep_size_is_left_to_the_operator_also_with_unsafe(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LAUNCH)
    asked = ["--launch", "run.sh", "--assume", "sglang.version=0.5.12"]
    command = [sys.executable, "-m", "sgdoctor"]
    checked = subprocess.run(
        [*command, "check", *asked, "--select", "ARG207"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "write --ep-size 8, which is what runs" in " ".join(checked.stdout.split())
    fixing = [*command, "fix", "--flags", *asked, "--unsafe", "--write"]
    subprocess.run(fixing, cwd=tmp_path, capture_output=True, check=False)
    assert (tmp_path / "run.sh").read_text() == LAUNCH
