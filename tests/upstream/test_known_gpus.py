"""GPUs by name."""

from __future__ import annotations

import re

import pytest

from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.upstream import catalogue, known_gpus


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA_H100_80GB_HBM3", "NVIDIA H100 80GB HBM3"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("H100 PCIe", "NVIDIA H100 PCIe"),
        ("h200", "NVIDIA H200"),
        ("h200-nvl", "NVIDIA H200 NVL"),
        ("l40s", "NVIDIA L40S"),
        ("rtx 4090", "NVIDIA GeForce RTX 4090"),
        ("5090", "NVIDIA GeForce RTX 5090"),
        ("rtx6000ada", "NVIDIA RTX 6000 Ada Generation"),
        ("RTX PRO 6000 Server", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("rtx pro 6000 max-q", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"),
        ("mi300x", "AMD Instinct MI300X"),
    ],
)
def test_names_as_operators_write_them(text, name):
    assert known_gpus.find(text).name == name


def test_a_name_of_several_lists_them():
    with pytest.raises(UsageError, match=r"which one\?.*Server Edition; .*Workstation Edition"):
        known_gpus.find("RTX PRO 6000")


@pytest.mark.parametrize("text", ["", ":4", "voodoo2", "h100:0", "h100:x", "h100:", "h100:99999999999"])
def test_what_names_no_gpus(text):
    with pytest.raises(UsageError):
        known_gpus.assumed(text)


def test_assumed_gpus_are_facts():
    assumed = known_gpus.assumed("RTX PRO 6000 Server:4")
    assert assumed["gpu.count"] == 4
    assert assumed["gpu.compute_capability"] == "12.0"
    assert assumed["gpu.shared_memory_bytes"] == 101376
    names = Facts().vocabulary
    for gpu in known_gpus.GPUS:
        for name, value in known_gpus.assumed(gpu.name).items():
            names.check(name, value)


def test_the_names_are_those_of_the_config_files():
    """Every GPU of a config file that SGLang ships is known by that name, or is none to plan for."""
    release = catalogue.resolve("0.5.23")
    assert release is not None
    devices = {
        found.group(1)
        for names in release.moe_listing.values()
        for name in names
        if (found := re.search(r"device_name=([^,]+?)(?:_down)?(?:,|\.json)", name))
    }
    known = {gpu.name.replace(" ", "_") for gpu in known_gpus.GPUS}
    unplanned = {"AMD_Radeon_Graphics", "NVIDIA_L20Y", "Intel(R)_Arc(TM)_Pro_B60_Graphics"}
    assert devices - known <= unplanned
