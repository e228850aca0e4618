"""What several test modules need: the wheels of real SGLang releases."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tools/, which no wheel has

from tools.wheels import DownloadError, sources

# Children inherit signals that are ignored here, as they are under nohup and in the background of a script.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

# How long an example takes is the machine's business.
settings.register_profile("sgdoctor", deadline=None)
settings.load_profile("sgdoctor")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make goldens` passes."""
    parser.addoption("--update-goldens", action="store_true", help="write the golden reports anew")


@pytest.fixture(scope="session")
def sglang_wheel() -> Callable[[str], Path]:
    """Give a function that returns the unpacked wheel of a release: the folder that holds ``sglang/``.

    It is downloaded from pip's package index into .cache/ when it is not there yet. A test that needs one and
    cannot get it is skipped with the reason; under CI (the variable ``CI``) it fails.
    """

    @functools.cache
    def fetched(version: str) -> Path | str:
        try:
            return sources(version)
        except (DownloadError, OSError, subprocess.SubprocessError) as error:
            return f"no wheel of SGLang {version}: {error}"

    def unpacked(version: str) -> Path:
        found = fetched(version)
        if isinstance(found, Path):
            return found
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(found, pytrace=False)
        pytest.skip(found)

    return unpacked
