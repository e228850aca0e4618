"""What all tests share."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make goldens` passes."""
    parser.addoption("--update-goldens", action="store_true", help="write the golden reports anew")
