"""What every rule that comes with sgdoctor must have."""

from __future__ import annotations

from sgdoctor import vocabulary
from sgdoctor.engine import lint, rules
from sgdoctor.fix.moe_plan import OLDEST


def test_the_linter_finds_nothing():
    assert lint.lint_folder(vocabulary.rules_root()) == []


def test_the_tuner_is_recommended_for_the_releases_that_it_knows():
    """SGLang 0.5.7 and 0.5.8, which the rules cover as well, are too old for it."""
    told = {}
    for rule in rules.load():
        for one in rule.rule.recommend:
            text = " ".join(part for part in (one.run, one.do, one.note) if part)
            reaches = rule.releases is None or rule.releases.contains("0.5.8")
            if "fix --tune-moe" in text and reaches:
                told[rule.code] = f"for SGLang {OLDEST} and newer" in text
    assert "CFG101" in told
    assert [code for code, said in told.items() if not said] == []
