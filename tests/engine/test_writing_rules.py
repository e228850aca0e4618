"""The example in docs/writing-rules.md is a sound rule."""

from __future__ import annotations

import re
from pathlib import Path

from sgdoctor.engine import cases, lint, rules

PAGE = Path(__file__).parents[2] / "docs" / "writing-rules.md"


def test_the_example_keeps_the_rules_it_explains(tmp_path):
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    folder = tmp_path / "arg"
    folder.mkdir()
    (folder / "ARG901-tp-beyond-gpus.yaml").write_text(found.group(1), encoding="utf-8")
    assert lint.lint_folder(tmp_path) == []
    (rule,) = rules.load(root=tmp_path, tests=True)
    verdicts = [cases.verdict(rule, case) for case in rule.rule.tests]
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []
    assert verdicts[0].result.finding.recommendation[0].value == 4
