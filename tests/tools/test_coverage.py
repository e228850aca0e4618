"""docs/coverage.md: every entry of the catalogue is decided, by a rule or a reason."""

from __future__ import annotations

import pytest
import yaml

from sgdoctor.engine import rules
from sgdoctor.errors import UsageError
from tools import coverage, docs


@pytest.fixture(scope="module")
def pack():
    return rules.load(root=docs.RULES, tests=False)


def every_entry(rules_of):
    return [
        coverage.Entry(name, "a problem", None if name in rules_of else "nothing shows it")
        for name in coverage.expected()
    ]


def write(folder, listed):
    for family in coverage.FAMILIES:
        of = [entry for entry in listed if entry.case.startswith(family)]
        rows = [
            {"case": entry.case, "about": entry.about, **({"reason": entry.reason} if entry.reason else {})}
            for entry in of
        ]
        (folder / f"{family}.yaml").write_text(yaml.safe_dump(rows))


def test_the_catalogue_has_165_entries():
    assert len(coverage.expected()) == 165
    assert coverage.expected()[0] == "M01"
    assert "R06b" in coverage.expected()


def test_every_entry_is_decided(pack):
    assert coverage.problems(coverage.entries(), coverage.answers(pack)) == []


def test_every_rule_is_on_the_page(pack):
    page = coverage.page(pack)
    assert [rule.code for rule in pack if f"[{rule.code}](rules/{rule.code}.md)" not in page] == []


def test_a_page_of_decided_entries(pack, tmp_path):
    write(tmp_path, every_entry(coverage.answers(pack)))
    page = coverage.page(pack, tmp_path)
    assert "| D10 | a problem | [NET206](rules/NET206.md) |" in page
    assert "| D08 | a problem | nothing shows it |" in page
    assert page.count("\n| ") >= 165


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda listed: listed[1:], "M01 is not listed"),
        (lambda listed: [*listed, listed[0]], "M01 is listed twice"),
        (lambda listed: [*listed, coverage.Entry("D99", "?", "?")], "D99 is no entry of the catalogue"),
        (lambda listed: [coverage.Entry("M01", "?"), *listed[1:]], "M01 has neither a rule nor a reason"),
    ],
)
def test_what_is_not_decided_is_named(change, said):
    listed = [coverage.Entry(name, "a problem", "nothing shows it") for name in coverage.expected()]
    assert coverage.problems(listed, {}) == []
    assert coverage.problems(change(listed), {}) == [said]


def test_a_rule_for_an_entry_that_is_none():
    listed = [coverage.Entry(name, "a problem", "nothing shows it") for name in coverage.expected()]
    assert coverage.problems(listed, {"Z01": ["ENV101"]}) == ["ENV101: there is no entry Z01"]


@pytest.mark.parametrize(
    "text", ["- {case: D01}", "- {case: D01, about: x, resaon: y}", "case: D01", "- [", None]
)
def test_a_file_that_is_no_list_of_entries_is_named(tmp_path, text):
    write(tmp_path, every_entry({}))
    file = tmp_path / "D.yaml"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    with pytest.raises(UsageError, match=r"D\.yaml: .*a list of case, about, reason, wrong"):
        coverage.entries(tmp_path)
