"""Release ranges."""

from __future__ import annotations

import pytest

from sgdoctor.engine import releases


@pytest.mark.parametrize(
    ("text", "release", "inside"),
    [
        (">=0.5.9,<0.5.11", "0.5.9", True),
        (">=0.5.9,<0.5.11", "0.5.10.post1", True),
        (">=0.5.9,<0.5.11", "0.5.11", False),
        (">=0.5.9,<0.5.11", "0.5.8.post1", False),
        (">=0.5.10.post1", "0.5.10", False),
        (">=0.5.10", "0.6.0", True),
        ("<0.5.10", "0.5.9.post1", True),
        (" >=0.5.9 , <0.5.11 ", "0.5.10+cu128", True),
        # Builds between releases count as the release they are named after, at both bounds.
        (">=0.5.14", "0.5.14.dev3", True),
        ("<0.5.14", "0.5.14.dev3", False),
        (">=0.5.14", "0.5.14rc1+g1234567", True),
        # What names no release says nothing.
        (">=0.5.9,<0.5.11", "0.0.0.dev1+g1234567", None),
        (">=0.5.9,<0.5.11", "main", None),
    ],
)
def test_which_releases_are_in_a_range(text, release, inside):
    assert releases.parse(text).contains(release) is inside


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0.5.9",
        "<=0.5.9",
        ">0.5.9",
        "==0.5.9",
        "~=0.5.9",
        ">=0.5.9,<=0.5.10",
        "<0.5.10,>=0.5.9",
        ">=0.5.9 <0.5.10",
        ">=0.5.9,",
        ">=0.5.9,<0.5.x",
        ">=0.5.10,<0.5.9",
        ">=0.5.10,<0.5.10",
    ],
)
def test_other_forms_are_refused(text):
    with pytest.raises(ValueError, match=r"releases? "):
        releases.parse(text)


def test_which_builds_are_between_releases():
    assert releases.between_releases("0.5.14.dev3")
    assert not releases.between_releases("0.5.14.post1")
    assert not releases.between_releases("main")
