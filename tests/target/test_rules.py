"""Which known problems a deployment gets into and which it leaves behind."""

from __future__ import annotations

from sgdoctor.target import compare

from .conftest import H200, Move, told

SM120 = {
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "compute_capability": "12.0",
    "memory_mib": 97887,
}
FUSION = "--tp 2 --enable-flashinfer-allreduce-fusion"


def pair() -> list[dict[str, object]]:
    return [{"index": index, **SM120} for index in range(2)]


def test_allreduce_fusion_did_nothing_and_now_ends_the_server(move: Move) -> None:
    walk = move("0.5.20", FUSION, start="0.5.10", gpus=pair())
    entered = {each.subject: each for each in told(walk, "rule-entered")}
    left = {each.subject: each for each in told(walk, "rule-left")}
    assert (entered["ARG104"].severity, entered["ARG104"].release) == ("error", "0.5.14")
    assert (left["ARG103"].severity, left["ARG103"].release) == ("info", "0.5.14")
    assert (left["ARG103"].before, left["ARG103"].after) == ("fail", "not_applicable")


def test_what_a_finding_wants_removed_is_not_to_be_replaced(move: Move) -> None:
    [change] = told(move("0.5.20", FUSION, start="0.5.10", gpus=pair()), "flag-deprecated")
    assert change.do == "remove --enable-flashinfer-allreduce-fusion: see ARG104"


def test_and_the_other_way_round(move: Move) -> None:
    walk = move("0.5.10", FUSION, start="0.5.20", gpus=pair())
    assert {"ARG103"} <= {each.subject for each in told(walk, "rule-entered")}
    [left] = [each for each in told(walk, "rule-left") if each.subject == "ARG104"]
    assert left.message.startswith("ARG104 no longer applies before 0.5.14: ")


def test_flags_are_told_flag_by_flag_and_not_as_rules(move: Move) -> None:
    walk = move("0.5.20", "--enable-nan-detection", start="0.5.10")
    assert walk.end.outcome("ARG101") == "fail"
    assert "ARG101" not in {each.subject for each in compare.changes(walk)}


def test_what_the_packages_of_the_release_mend_is_tied_to_no_release(move: Move) -> None:
    """Both 0.5.9 and 0.5.10 pin torch 2.9.1; only what is installed is another."""
    packages = {"sglang": "0.5.9", "torch": "2.11.0", "triton": "3.6.0"}
    walk = move("0.5.10", packages=packages, gpus=[H200], complete=True)
    [left] = [each for each in told(walk, "rule-left") if each.subject == "ENV101"]
    assert left.release is None
    assert "with the packages that the release requires" in left.message


def test_a_problem_that_is_there_on_both_sides_is_no_change(move: Move) -> None:
    walk = move("0.5.20", "--host 0.0.0.0", start="0.5.10")
    assert walk.start.outcome("SEC101") == walk.end.outcome("SEC101") == "fail"
    assert "SEC101" not in {each.subject for each in compare.changes(walk)}
