"""The gate of the archive: what was unpacked for one run does not stay behind when it becomes the server."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("off", [{}, {"SGDOCTOR_GATE": "off"}])
def test_nothing_is_left_unpacked(archive, tmp_path, off):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-I", archive, "gate", "--", "sh", "-c", "ls $TMPDIR; exit 3"],
        env={"PATH": "/usr/bin:/bin", "HOME": "/proc/none", "TMPDIR": str(temporary), **off},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == (not off)
