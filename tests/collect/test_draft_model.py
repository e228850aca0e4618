"""What the config.json of a draft model says."""

from __future__ import annotations

import json

import pytest

from sgdoctor import examine
from sgdoctor.collect.draft_model import FACT, read_draft
from sgdoctor.facts import Facts, Known, Unknown
from sgdoctor.sources import Sources


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("LlamaForCausalLMEagle3", True),
        ("Eagle3DeepseekV2ForCausalLM", True),
        ("LlamaForCausalLMEagle", False),
        ("Qwen3ForCausalLM", False),
    ],
)
def test_an_eagle3_draft_says_so_in_its_architecture(tmp_path, architecture, expected):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    facts = Facts()
    read_draft(facts, tmp_path)
    assert facts.value(FACT) is expected


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"architectures": []}', '{"architectures": [7]}'])
def test_a_config_that_does_not_say_it_leaves_it_open(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    facts = Facts()
    read_draft(facts, tmp_path)
    fact = facts.get(FACT)
    assert isinstance(fact, Unknown)
    assert str(tmp_path) in fact.reason


def test_a_file_instead_of_a_folder(tmp_path):
    file = tmp_path / "draft.json"
    file.write_text('{"architectures": ["LlamaForCausalLMEagle3"]}')
    facts = Facts()
    read_draft(facts, file)
    assert isinstance(facts.get(FACT), Known)


def test_the_short_name_of_the_flag_and_a_draft_that_is_elsewhere(tmp_path):
    launch = tmp_path / "run.sh"
    launch.write_text(
        "python3 -m sglang.launch_server --model-path /models/m --speculative-algorithm EAGLE "
        f"--speculative-draft-model {tmp_path}/none\n"
    )
    [deployment] = examine.check(Sources(launch=str(launch))).deployments
    assert any(FACT in rule.missing for rule in deployment.unknown if rule.code == "ARG303")
