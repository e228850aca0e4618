"""SGLang's own source, to hold sgdoctor's predictions against."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools import wheels


@pytest.fixture(scope="session")
def sglang_wheel() -> Callable[[str], Path]:
    """Return a function from a release to its unpacked wheel, downloaded once into the checkout's .cache."""
    return wheels.sources
