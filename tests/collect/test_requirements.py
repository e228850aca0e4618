"""Installed packages held against requirements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.collect import packages, requirements
from sgdoctor.facts import Facts, Unknown

# From the metadata of SGLang 0.5.12's wheel.
SGLANG_0_5_12 = [
    "aiohttp",
    "flashinfer_python==0.6.11.post1",
    "kernels",
    "sglang-kernel==0.4.2.post2",
    "torch==2.11.0",
    "transformers==5.6.0",
    (
        'torchcodec==0.8.0; sys_platform != "linux" or '
        '(sys_platform == "linux" and platform_machine != "aarch64" and platform_machine != "arm64")'
    ),
    'pytest; extra == "test"',
    "pyzmq>=25.1.2",
]
MATCHING = {
    "aiohttp": "3.9",
    "flashinfer-python": "0.6.11.post1",
    "kernels": "0.12.0",
    "sglang-kernel": "0.4.2.post2",
    "torch": "2.11.0",
    "transformers": "5.6.0",
    "torchcodec": "0.8.0",
    "pyzmq": "27.1.0",
}


def names(found: list[dict]) -> list[str]:
    return [entry["name"] for entry in found]


def test_what_the_release_requires_is_no_mismatch() -> None:
    assert requirements.mismatched(MATCHING, SGLANG_0_5_12, complete=True, arch="x86_64") == []


def test_another_version_than_the_pin_is_a_mismatch() -> None:
    found = requirements.mismatched(
        {**MATCHING, "transformers": "5.8.1"}, SGLANG_0_5_12, complete=True, arch="x86_64"
    )
    assert found == [{"name": "transformers", "installed": "5.8.1", "required": "==5.6.0"}]


def test_a_range_counts_as_well_as_a_pin() -> None:
    found = requirements.mismatched({"pyzmq": "25.0"}, SGLANG_0_5_12, complete=False)
    assert found == [{"name": "pyzmq", "installed": "25.0", "required": ">=25.1.2"}]


def test_a_local_part_is_the_same_release() -> None:
    installed = {**MATCHING, "sglang-kernel": "0.4.2.post2+cu130", "torch": "2.11.0+cu130"}
    assert requirements.mismatched(installed, SGLANG_0_5_12, complete=True, arch="x86_64") == []


def test_what_is_not_listed_is_absent_only_when_all_is_listed() -> None:
    without = {name: version for name, version in MATCHING.items() if name != "kernels"}
    complete = requirements.mismatched(without, SGLANG_0_5_12, complete=True, arch="x86_64")
    assert complete == [{"name": "kernels", "installed": None, "required": ""}]
    assert requirements.mismatched(without, SGLANG_0_5_12, complete=False, arch="x86_64") == []
    known_absent = {"kernels": None}
    assert names(requirements.mismatched(known_absent, SGLANG_0_5_12, complete=False)) == ["kernels"]


def test_a_marker_that_cannot_be_decided_makes_no_mismatch() -> None:
    installed = {**MATCHING, "torchcodec": "0.7.0"}
    assert names(requirements.mismatched(installed, SGLANG_0_5_12, complete=True, arch="x86_64")) == [
        "torchcodec"
    ]
    assert requirements.mismatched(installed, SGLANG_0_5_12, complete=True, arch="aarch64") == []
    assert requirements.mismatched(installed, SGLANG_0_5_12, complete=True) == []


def test_names_are_compared_as_pip_does() -> None:
    found = requirements.mismatched(
        {"Flashinfer.Python": "0.6.10"}, ["flashinfer_python==0.6.11"], complete=False
    )
    assert found == [{"name": "flashinfer-python", "installed": "0.6.10", "required": "==0.6.11"}]


@given(st.dictionaries(st.text(), st.none() | st.text()), st.lists(st.text()), st.booleans())
def test_any_text_is_taken(installed: dict, lines: list[str], complete) -> None:
    for entry in requirements.mismatched(installed, lines, complete=complete):
        assert entry.keys() == {"name", "installed", "required"}


@pytest.mark.parametrize(
    ("kernels", "transformers", "broken"),
    [
        ("0.17.2", "5.6.0", True),  # what `pip install sglang==0.5.12` resolved to in 2026
        ("0.15.1", "5.12.1", True),
        ("0.14.1", "5.6.0", False),
        ("0.12.3", "5.12.1", False),
        ("0.17.2", "5.13.0", False),
        ("0.17.2", "5.19.0", False),
        ("0.15.1", "4.57.1", True),
    ],
)
def test_kernels_that_demand_a_version_break_transformers_that_give_none(
    kernels: str, transformers: str, broken
) -> None:
    assert requirements.kernels_breaks_transformers(kernels, transformers) is broken


def facts_of(versions: dict[str, str | None], *, complete: bool = True, **others) -> Facts:
    facts = Facts()
    for name, version in versions.items():
        facts.set(packages.fact_name(name), version, source="packages", place="venv")
    facts.set("packages.complete", complete, source="packages", place="venv")
    for name, value in others.items():
        facts.set(name.replace("_", ".", 1), value, source="packages", place="venv")
    return facts


def test_derived_facts_name_what_they_rest_on() -> None:
    facts = facts_of(
        {"kernels": "0.17.2", "transformers": "5.6.0", "sglang": "0.5.12"}, sglang_version="0.5.12"
    )
    requirements.derive(facts, ["transformers==5.8.1"])
    assert facts.value("packages.mismatched") == [
        {"name": "transformers", "installed": "5.6.0", "required": "==5.8.1"}
    ]
    assert "package.transformers" in facts.roots("packages.mismatched")
    assert facts.value("packages.kernels_breaks_transformers") is True
    assert set(facts.roots("packages.kernels_breaks_transformers")) == {
        "package.kernels",
        "package.transformers",
    }


def test_a_partial_listing_without_a_mismatch_is_unknown() -> None:
    facts = facts_of({"transformers": "5.6.0"}, complete=False)
    requirements.derive(facts, SGLANG_0_5_12)
    assert isinstance(facts.get("packages.mismatched"), Unknown)
    assert isinstance(facts.get("packages.kernels_breaks_transformers"), Unknown)
    assert facts.get("packages.kernel_duplicates").missing == ("package.sgl_kernel", "package.sglang_kernel")


def test_a_partial_listing_with_a_mismatch_says_it() -> None:
    facts = facts_of({"transformers": "5.8.1"}, complete=False)
    requirements.derive(facts, SGLANG_0_5_12)
    assert names(facts.value("packages.mismatched")) == ["transformers"]


def test_a_package_that_is_listed_twice_is_not_called_absent() -> None:
    facts = facts_of({name: version for name, version in MATCHING.items() if name != "transformers"})
    facts.set("host.arch", "x86_64", source="host", place="host")
    facts.set_unknown("package.transformers", "listed twice")
    requirements.derive(facts, SGLANG_0_5_12)
    assert facts.value("packages.mismatched") == []


def test_without_a_known_release_nothing_is_compared() -> None:
    facts = facts_of({"transformers": "5.8.1"})
    requirements.derive(facts, None)
    assert facts.get("packages.mismatched").missing == ("sglang.version",)


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [("0.3.21", "0.4.1", True), (None, "0.4.1", False), ("0.3.21", None, False), (None, None, False)],
)
def test_two_kernel_packages(old: str | None, new: str | None, both) -> None:
    facts = facts_of({"sgl-kernel": old, "sglang-kernel": new})
    requirements.derive(facts, None)
    assert facts.value("packages.kernel_duplicates") is both


def test_one_kernel_package_known_absent_is_enough() -> None:
    facts = facts_of({"sgl-kernel": None}, complete=False)
    requirements.derive(facts, None)
    assert facts.value("packages.kernel_duplicates") is False


@pytest.mark.parametrize(
    ("requirement", "triton", "matches"),
    [
        ("triton==3.6.0", "3.6.0", True),
        ("triton==3.5.1", "3.5.1+gitbfeb0668", True),
        ("triton==3.5.1", "3.6.0", False),
        ("triton~=3.8.0", "3.8.2", True),
        ("triton~=3.8.0", "3.9.0", False),
        ("triton==3.6.0", None, False),
        (None, "3.6.0", True),
    ],
)
def test_triton_is_held_against_torchs_own_requirement(
    requirement: str | None, triton: str | None, matches
) -> None:
    facts = facts_of({}, torch_triton_requirement=requirement, triton_version=triton)
    requirements.derive(facts, None)
    assert facts.value("torch.triton_matches") is matches


def test_triton_is_not_held_against_what_is_not_known() -> None:
    facts = facts_of({}, triton_version="3.6.0")
    requirements.derive(facts, None)
    assert facts.get("torch.triton_matches").missing == ("torch.triton_requirement",)


def test_the_requirements_of_a_release() -> None:
    lines = requirements.of_release("0.5.12")
    assert {"transformers==5.6.0", "kernels", "sglang-kernel==0.4.2.post2"} <= set(lines)
    assert not any("extra" in line for line in lines)
    assert requirements.of_release("0.5.14.dev3") is None  # its own requirements are not known


def test_lines_that_are_no_requirements_decide_nothing() -> None:
    facts = facts_of({"transformers": "5.8.1"})
    requirements.derive(facts, ["Requirement(name='torch')"])
    assert isinstance(facts.get("packages.mismatched"), Unknown)
