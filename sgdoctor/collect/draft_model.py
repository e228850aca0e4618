"""The config.json of the draft model of speculative decoding: what kind of draft it is."""

from __future__ import annotations

from pathlib import Path

from sgdoctor.collect.model import MAX_BYTES, SOURCE
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.input_file import read_json

FACT = "model.is_eagle3_draft"


def read_draft(facts: Facts, path: Path) -> None:
    """Set ``model.is_eagle3_draft`` from a draft model's folder or config.json; never raises.

    EAGLE-3 drafts name it in their architecture: LlamaForCausalLMEagle3 and Eagle3DeepseekV2ForCausalLM, and
    no other draft of SGLang 0.5.7 to 0.5.23 does (srt/models/).
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = read_json(file, MAX_BYTES, "no config.json")
    except UsageError as error:
        facts.set_unknown(FACT, str(error))
        return
    names = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        facts.set_unknown(FACT, f"{file} names no architecture")
        return
    facts.set(FACT, "eagle3" in names[0].lower(), source=SOURCE, place=str(file))
