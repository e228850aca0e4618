"""The last line of a dead server is read as what its launch command would have told."""

from __future__ import annotations

import pytest

from sgdoctor.facts import Facts
from sgdoctor.upstream import deaths


def died_of(text: str | None) -> Facts:
    facts = Facts()
    facts.set("log.fatal", text, source="log", place="server.log:34")
    deaths.explain(facts)
    return facts


def test_unknown_flags_without_their_values() -> None:
    facts = died_of("sglang serve: error: unrecognized arguments: --enable-turbo-mode --turbo-level 3")
    assert facts.value("launch.unrecognized") == ["--enable-turbo-mode", "--turbo-level"]


def test_a_leftover_word_is_named_when_there_is_no_flag() -> None:
    assert died_of("launch_server.py: error: unrecognized arguments: 8").value("launch.unrecognized") == ["8"]


def test_an_ambiguous_flag_written_with_its_value() -> None:
    facts = died_of(
        "sglang serve: error: ambiguous option: --cuda-graph-max-bs=128 could match "
        "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill"
    )
    assert facts.value("launch.ambiguous") == ["--cuda-graph-max-bs"]


def test_a_value_that_is_no_choice() -> None:
    facts = died_of(
        "sglang serve: error: argument --attention-backend: invalid choice: 'cutlass_mla' (choose from 'fa3')"
    )
    assert facts.value("launch.invalid").startswith("argument --attention-backend: invalid choice")


def test_a_context_length_that_was_refused() -> None:
    facts = died_of(
        "ValueError: Warning: User-specified context_length (100000) is greater than the derived "
        "context_length (40960). This may lead to incorrect model outputs or CUDA errors."
    )
    assert facts.value("asked.context_length") == 100000
    assert facts.value("model.max_position_embeddings") == 40960
    assert facts.known("env.SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")


def test_a_draft_models_context_is_not_the_operators() -> None:
    facts = died_of(
        "ValueError: Warning: Target model's context_length (100000) is greater than the derived "
        "context_length (40960)."
    )
    assert not facts.known("asked.context_length")


def test_the_config_lookup_without_its_folder() -> None:
    facts = died_of("FileNotFoundError: [Errno 2] No such file or directory: '/tmp/nonexistent/configs'")
    assert "/tmp/nonexistent/configs" in facts.value("moe.lookup_error")  # noqa: S108
    assert facts.value("moe.config_matters") is True


@pytest.mark.parametrize("text", [None, "", "RuntimeError: CUDA error", "FileNotFoundError: 'm.bin'"])
def test_any_other_end_tells_nothing(text: str | None) -> None:
    names = {name for name, _fact in died_of(text).items()}
    assert names == {"log.fatal"}
