"""What several test modules need: the wheels of real SGLang releases."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tools/, which no wheel has

from tools.wheels import sources


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make goldens` passes."""
    parser.addoption("--update-goldens", action="store_true", help="write the golden reports anew")


@pytest.fixture(scope="session")
def sglang_wheel() -> Callable[[str], Path]:
    """Give a function that returns the unpacked wheel of a release: the folder that holds ``sglang/``.

    It is downloaded from pip's package index into .cache/ when it is not there yet.
    """
    return functools.cache(sources)
