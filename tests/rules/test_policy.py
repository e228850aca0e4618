"""What every rule that comes with sgdoctor must have."""

from __future__ import annotations

from sgdoctor import vocabulary
from sgdoctor.engine import lint


def test_the_linter_finds_nothing():
    assert lint.lint_folder(vocabulary.rules_root()) == []
