"""What SGLang does to the words before argparse."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version

from sgdoctor.upstream import catalogue
from sgdoctor.upstream.before_argparse import Refused, config_arguments, config_index, serve_arguments
from sgdoctor.upstream.flags import Token


def served(version: str, *words: str) -> tuple[list[str], str]:
    tokens, kind = serve_arguments([Token(word, at) for at, word in enumerate(words)], Version(version))
    return [str(token) for token in tokens], kind


def test_the_model_may_be_the_first_word_from_0_5_16_on():
    assert served("0.5.16", "m", "--tp", "2") == (["--model-path", "m", "--tp", "2"], "auto")
    with pytest.raises(Refused, match="--model-path is required"):
        served("0.5.15.post1", "m", "--tp", "2")


def test_the_server_type_is_taken_out():
    assert served("0.5.23", "--model-type", "llm", "m") == (["--model-path", "m"], "llm")
    assert served("0.5.10", "--model-path=m", "--model-type=diffusion") == (["--model-path=m"], "diffusion")
    assert served("0.5.9", "--model-path", "m", "--model-type", "llm")[0][2:] == ["--model-type", "llm"]
    with pytest.raises(Refused, match="--model-type requires a value"):
        served("0.5.23", "m", "--model-type")


def test_nothing_is_missing_while_a_word_is_unknown():
    words = [Token("$MODEL", 0, known=False)]
    assert serve_arguments(words, Version("0.5.16"))[0] == ["$MODEL"]


def test_a_configuration_file_is_named_by_the_bare_flag_alone():
    assert config_index(["--tp", "2", "--config", "x.yaml"]) == 2
    assert config_index(["--config=x.yaml", "--conf", "y.yaml"]) is None
    with pytest.raises(Refused, match="Multiple config files"):
        config_index(["--config", "a", "--config", "b"])
    with pytest.raises(Refused, match="No config file specified"):
        config_index(["--config"])


def made_of(version: str, **settings: Any) -> list[str]:
    release = catalogue.resolve(version)
    assert release is not None
    named = {key.replace("_", "-"): value for key, value in settings.items()}
    return [word for _, words in config_arguments(named, release.flags, Version(version)) for word in words]


@pytest.mark.parametrize("version", ["0.5.7", "0.5.8", "0.5.22", "0.5.23"])
def test_settings_become_words(version: str):
    assert made_of(version, tp_size=4, host="::", cuda_graph_bs=[1, 2], stop=[]) == [
        "--tp-size", "4", "--host", "::", "--cuda-graph-bs", "1", "2"
    ]  # fmt: skip
    assert made_of(version, enable_metrics=True, disable_radix_cache=False) == ["--enable-metrics"]


def test_booleans_of_other_flags_are_written_out_from_0_5_8_on():
    assert made_of("0.5.7", tokenizer_path=True, host=False) == ["--tokenizer-path"]
    assert made_of("0.5.8", tokenizer_path=True, host=False) == [
        "--tokenizer-path",
        "true",
        "--host",
        "false",
    ]


def test_dictionaries_are_json_from_0_5_23_on():
    assert made_of("0.5.22", limit_mm_data_per_request={"image": 1})[1] == "{'image': 1}"
    assert made_of("0.5.23", limit_mm_data_per_request={"image": 1})[1] == '{"image": 1}'


def test_flags_that_do_more_than_store_are_refused():
    message = "Unsupported config option 'lora_paths' with action 'LoRAPathAction'"
    for version in ("0.5.8", "0.5.23"):
        with pytest.raises(Refused, match=message):
            made_of(version, lora_paths=["a"])
    assert made_of("0.5.7", lora_paths=["a"]) == ["--lora-paths", "a"]


def test_a_deprecated_alias_spoils_the_key_it_shares_up_to_0_5_22():
    # --disable-piecewise-cuda-graph and others store into cuda_graph_backend_prefill
    with pytest.raises(Refused, match="DeprecatedStoreConstAction"):
        made_of("0.5.14", cuda_graph_backend_prefill="full")
    assert made_of("0.5.23", cuda_graph_backend_prefill="full") == ["--cuda-graph-backend-prefill", "full"]
