"""What a release requires, against the metadata of its wheel."""

from __future__ import annotations

import pytest

from sgdoctor.facts import Facts, Unknown
from sgdoctor.upstream import pins


def pinned(version):
    facts = Facts()
    facts.set("sglang.version", version, source="packages", place="site-packages")
    pins.derive(facts)
    return facts


@pytest.mark.parametrize(
    ("release", "torch", "triton", "kernel", "minimum", "transformers", "flashinfer", "cubin"),
    [
        ("0.5.9", "2.9.1", "3.5.1", "0.3.21", "0.3.21", "4.57.1", "0.6.3", "0.6.3"),
        ("0.5.10.post1", "2.9.1", "3.5.1", "0.4.1", "0.4.1", "5.3.0", "0.6.7.post3", "0.6.7.post3"),
        ("0.5.12", "2.11.0", "3.6.0", "0.4.2.post2", "0.4.2.post2", "5.6.0", "0.6.11.post1", "0.6.11.post1"),
        ("0.5.16", "2.11.0", "3.6.0", "0.4.5", "0.4.5", "5.12.1", "0.6.14", None),
        ("0.5.23", "2.14.1", "3.8.0", "0.4.10", "0.4.9", "5.19.0", "0.7.2", None),
    ],
)
def test_pins(release, torch, triton, kernel, minimum, transformers, flashinfer, cubin):
    facts = pinned(release)
    assert facts.value("pin.torch") == torch
    assert facts.value("pin.triton") == triton
    assert facts.value("pin.kernel") == kernel
    assert facts.value("pin.kernel_minimum") == minimum
    assert facts.value("pin.transformers") == transformers
    assert facts.value("pin.flashinfer_python") == flashinfer
    assert facts.known("pin.flashinfer_cubin")
    assert facts.value("pin.flashinfer_cubin") == cubin


@pytest.mark.parametrize("version", ["0.5.14.dev3", "0.0.0.dev1+g8f2a1bc", "0.5.99"])
def test_a_build_that_the_catalogue_does_not_have_has_no_known_pins(version):
    fact = pinned(version).get("pin.torch")
    assert isinstance(fact, Unknown)
    assert fact.missing == ("sglang.version",)


def test_nothing_is_known_without_a_release():
    facts = Facts()
    pins.derive(facts)
    assert not facts.known("pin.kernel_minimum")
