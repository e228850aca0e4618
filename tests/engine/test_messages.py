"""Placeholders."""

from __future__ import annotations

import pytest

from sgdoctor.engine.messages import Filler, placeholders
from sgdoctor.engine.model import Recommendation
from sgdoctor.facts import Match


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("SGLang {sglang.version} on {gpu.count} GPUs", "SGLang 0.5.12 on 4 GPUs"),
        ("searched {moe.directories}", "searched 3.6.0, 3.4.0"),
        ("nothing in {launch.unrecognized}", "nothing in none"),
        ("fraction {arg.mem_fraction_static}, died: {log.died}", "fraction 0.9, died: false"),
        ("page size {arg.page_size}", "page size not set"),
        ("page size {arg.page_size|of the backend}", "page size of the backend"),
        ("{gpu.name|These GPUs} and {gpu.name}", "These GPUs and unknown gpu.name"),
        ("packages: {packages.mismatched}", "packages: triton not set (required: 3.6.0)"),
        ('{{"E": {gpu.count}}}', '{"E": 4}'),
        ("{gpu.count|}{gpu.name|}", "4"),
        ("a { b } {1} {}", "a { b } {1} {}"),
    ],
)
def test_values_read_as_words(deployment, text, filled):
    facts = deployment(
        {
            "sglang.version": "0.5.12",
            "gpu.count": 4,
            "moe.directories": ["3.6.0", "3.4.0"],
            "launch.unrecognized": [],
            "arg.mem_fraction_static": 0.9,
            "arg.page_size": None,
            "log.died": False,
            "packages.mismatched": [{"name": "triton", "installed": None, "required": "3.6.0"}],
        }
    )
    assert Filler(facts).fill(text) == filled


def test_groups_of_the_match_go_before_facts(deployment):
    match = Match(1, "server.log:1", "text", {"size": "7", "absent": None})
    assert Filler(deployment(), match).fill("{size} {absent|none}") == "7 none"


def test_recommendations_are_filled_and_commands_quoted(deployment):
    facts = deployment({"model.name": "a b; rm -rf", "gpu.count": 4, "arg.mem_fraction_static": 0.9})
    fill = Filler(facts).recommendation
    assert fill(Recommendation(run="sgdoctor explain {model.name}")).run == "sgdoctor explain 'a b; rm -rf'"
    assert fill(Recommendation(do="ask {model.name}", note="on {gpu.count}")) == Recommendation(
        do="ask a b; rm -rf", note="on 4"
    )
    assert fill(Recommendation(set="--tp", value="{gpu.count}")).value == 4
    assert fill(Recommendation(set="--name", value="{model.name}-2")).value == "a b; rm -rf-2"
    assert fill(Recommendation(set="--tp", value="{gpu.name|8}")).value == "8"
    assert fill(Recommendation(env="X")) == Recommendation(env="X")


def test_the_placeholders_of_a_text():
    assert [tuple(one) for one in placeholders("{a.b} {{c}} {d|words}")] == [("a.b", None), ("d", "words")]
