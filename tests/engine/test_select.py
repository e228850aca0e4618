"""Which rules take part."""

from __future__ import annotations

import pytest

from sgdoctor.engine import rules
from sgdoctor.engine.select import select
from sgdoctor.errors import UsageError


@pytest.mark.parametrize(
    ("wanted", "unwanted", "codes"),
    [
        ([], [], ["CFG901", "RUN901"]),
        (["CFG"], [], ["CFG901"]),
        (["CFG9", "RUN901"], [], ["CFG901", "RUN901"]),
        (["queue-full"], [], ["RUN901"]),
        ([], ["RUN"], ["CFG901"]),
        (["CFG", "RUN"], ["moe-config-missing"], ["RUN901"]),
    ],
)
def test_beginnings_of_codes_and_names_select(pack_folder, wanted, unwanted, codes):
    assert [rule.code for rule in select(rules.load(root=pack_folder), wanted, unwanted)] == codes


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("CFG902", "did you mean CFG901?"),
        ("cfg901", "did you mean CFG901?"),
        ("queue-ful", "did you mean queue-full?"),
        ("nothing", "see `sgdoctor rules list`"),
        ("", "no rule is named"),
    ],
)
def test_a_name_of_no_rule_is_a_usage_error_with_the_nearest(pack_folder, wanted, hint):
    pack = rules.load(root=pack_folder)
    for options in ({"select": [wanted]}, {"ignore": [wanted]}):
        with pytest.raises(UsageError) as error:
            select(pack, **options)
        assert hint in str(error.value)
