"""Which packages move with the release. The versions are those of the wheels' METADATA."""

from __future__ import annotations

import pytest

from sgdoctor.report.model import Change
from sgdoctor.target import cuda
from sgdoctor.target.walk import Walk
from sgdoctor.upstream import catalogue

from .conftest import Move, told


def pin(walk: Walk, subject: str) -> Change:
    [change] = [each for each in told(walk, "pin", "cuda", "python") if each.subject == subject]
    return change


def test_torch_and_triton_move_with_0_5_11(move: Move) -> None:
    walk = move("0.5.11", start="0.5.10")
    torch, triton = pin(walk, "torch"), pin(walk, "triton")
    assert (torch.before, torch.after, torch.release) == ("2.9.1", "2.11.0", "0.5.11")
    assert (triton.before, triton.after, triton.release) == ("3.5.1", "3.6.0", "0.5.11")
    assert torch.severity == "info"


def test_several_steps_are_named_each(move: Move) -> None:
    change = pin(move("0.5.23", start="0.5.10"), "torch")
    assert change.message == (
        "torch moves from 2.9.1 to 2.14.1: 2.11.0 in 0.5.11, 2.13.0 in 0.5.18, 2.14.1 in 0.5.22."
    )
    assert change.release == "0.5.22"


def test_a_post_release_has_pins_of_its_own(move: Move) -> None:
    change = pin(move("0.5.10.post1", start="0.5.10"), "flashinfer-python")
    assert (change.before, change.after, change.release) == ("0.6.7.post2", "0.6.7.post3", "0.5.10.post1")


def test_what_is_installed_is_told_where_it_is_not_the_pin(move: Move) -> None:
    walk = move("0.5.11", packages={"sglang": "0.5.10", "torch": "2.11.0", "triton": "3.6.0"})
    change = pin(walk, "torch")
    assert change.before == "2.11.0"
    assert change.message.endswith("; 2.11.0 is installed.")
    assert told(walk, "cuda") == []  # torch 2.11.0 is one for CUDA 13 already


@pytest.mark.parametrize(
    ("start", "end", "old"), [("0.5.9", "0.5.10", "sgl-kernel"), ("0.5.10", "0.5.9", "sglang-kernel")]
)
def test_the_kernel_package_has_another_name_from_0_5_10_on(
    move: Move, start: str, end: str, old: str
) -> None:
    change = pin(move(end, start=start), "sglang-kernel" if old == "sgl-kernel" else "sgl-kernel")
    assert change.release == "0.5.10"
    assert change.severity == "warning"
    assert change.do is not None
    assert change.do.startswith(f"pip uninstall {old} before the ")


@pytest.mark.parametrize(
    ("host", "severity", "do"),
    [
        ({}, "warning", "check the driver with nvidia-smi: 580 or newer"),
        ({"driver": "580.65.06", "cuda": "13.0"}, "info", None),
        ({"driver": "580.65.06"}, "info", None),
        ({"driver": "570.172.08", "cuda": "12.8"}, "warning", "upgrade the driver to 580 or newer"),
        ({"driver": "570.172.08"}, "warning", "upgrade the driver to 580 or newer"),
    ],
)
def test_cuda_13_needs_driver_580(move: Move, host: dict[str, str], severity: str, do: str | None) -> None:
    change = pin(move("0.5.11", start="0.5.10", host=host), "CUDA")
    assert (change.before, change.after, change.release) == ("12.8", "13.0", "0.5.11")
    assert change.severity == severity
    assert (change.do is None) if do is None else (change.do or "").startswith(do)


def test_going_back_to_cuda_12_asks_for_no_driver(move: Move) -> None:
    change = pin(move("0.5.10", start="0.5.11"), "CUDA")
    assert (change.after, change.release, change.severity, change.do) == ("12.8", "0.5.11", "info", None)


@pytest.mark.parametrize(("python", "severity"), [("3.10", "error"), ("3.12", "info"), (None, "warning")])
def test_python_3_11_is_needed_from_0_5_22_on(move: Move, python: str | None, severity: str) -> None:
    host = {} if python is None else {"python": python}
    change = pin(move("0.5.22", start="0.5.21", host=host), "Python")
    assert (change.after, change.release, change.severity) == (">=3.11", "0.5.22", severity)


def test_flashinfers_binaries_stay_behind_when_they_are_no_longer_required(move: Move) -> None:
    packages = {"sglang": "0.5.15", "flashinfer-python": "0.6.12", "flashinfer-cubin": "0.6.12"}
    walk = move("0.5.16", packages=packages)
    change = pin(walk, "flashinfer-cubin")
    assert (change.after, change.release) == (None, "0.5.16")
    assert change.do == "pip uninstall flashinfer-cubin: pip leaves it behind"
    # FlashInfer 0.6.14 refuses to be imported beside binaries of 0.6.12
    [entered] = [each for each in told(walk, "rule-entered") if each.subject == "ENV115"]
    assert (entered.release, entered.severity) == ("0.5.16", "error")


def test_other_requirements_are_told_in_full_with_v(move: Move) -> None:
    walk = move("0.5.13", start="0.5.12")
    found = {each.subject: each for each in told(walk, "pin", minor=True) if each.minor}
    assert found["xgrammar"].message == "xgrammar moves from 0.2.0 to 0.2.1 in 0.5.13."
    assert found["distro"].message == "distro (any version) is required from 0.5.13 on."


def test_gpus_that_pypi_has_no_torch_for_get_no_pins(move: Move) -> None:
    gpu = {"index": 0, "name": "AMD Instinct MI300X", "compute_capability": None, "memory_mib": 196592}
    walk = move("0.5.23", gpus=[gpu], packages={"sglang": "0.5.12", "torch": "2.9.0+rocm6.4"})
    assert told(walk, "pin", "cuda", minor=True) == []
    assert any("brings its own" in note for note in walk.end.facts.notes)


def test_every_torch_of_the_catalogue_has_its_cuda() -> None:
    for version in catalogue.releases():
        release = catalogue.resolve(version)
        assert release is not None
        assert cuda.driver(cuda.of_torch(release.torch_pin)) is not None, release.torch_pin
