"""The code of several releases, each in a child process that all tests of the session share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.upstream.oracle import Oracle, start
from tools.oracles import RELEASES


@pytest.fixture(scope="session")
def real_lookups(sglang_wheel) -> Iterator[dict[str, Oracle]]:
    """Give release -> its config lookup (real_moe_lookup.py), for every release of the oracle."""
    sources = {
        release: next(sglang_wheel(release).rglob("fused_moe_triton_config.py")) for release in RELEASES
    }
    oracles = start("real_moe_lookup.py", sources)
    yield oracles
    for oracle in oracles.values():
        oracle.close()


@pytest.fixture(scope="session")
def real_parsers(sglang_wheel) -> Iterator[dict[str, Oracle]]:
    """Give release -> its argparse parser (real_parser.py), for every release of the oracle."""
    oracles = start("real_parser.py", {release: sglang_wheel(release) for release in RELEASES})
    yield oracles
    for oracle in oracles.values():
        oracle.close()
