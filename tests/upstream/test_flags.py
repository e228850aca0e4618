"""The command line as a release's own parser reads it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.upstream import catalogue
from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.flags import Parsed, Parser, Token, parse, parser_for

# What the parsers of seven releases did with the same command lines: recorded from ServerArgs.add_cli_args of
# their wheels under Python 3.11, other packages stubbed. "values" are those that differ from the defaults.
RECORDED = json.loads((Path(__file__).parent / "recorded_parses.json").read_text())


def flags(version: str) -> list[Flag]:
    release = catalogue.resolve(version)
    assert release is not None
    return release.flags


@functools.cache
def parser(version: str) -> Parser:
    return parser_for(flags(version))


def read(*argv: str, version: str = "0.5.12") -> Parsed:
    return parser(version).parse(argv)


def values(parsed: Parsed) -> dict[str, Any]:
    return {dest: found.value for dest, found in parsed.given.items()}


@pytest.mark.parametrize("version", RECORDED)
def test_agrees_with_the_parser_of_the_release(version: str):
    release = catalogue.resolve(version)
    assert release is not None
    for record in RECORDED[version]:
        parsed = read(*record["argv"], version=version)
        if "error" in record:
            assert parsed.error is not None, record["argv"]
            if record["error"].startswith("unrecognized arguments"):
                assert parsed.unrecognized
                assert record["error"].startswith(f"unrecognized arguments: {parsed.unrecognized[0][1]}")
            elif " " in record["error"]:  # else the name of an exception
                assert parsed.error.split(" (choose from")[0] == record["error"]
            continue
        assert parsed.error is None, record["argv"]
        changed = {dest: value for dest, value in values(parsed).items() if value != release.default(dest)}
        assert json.loads(json.dumps(changed)) == record["values"], record["argv"]


def test_values_are_typed_and_the_last_one_counts():
    parsed = read("--model", "m", "--tp-size", "2", "--tp-size=4", "--mem-fraction-static", "0.85")
    assert values(parsed) == {"model_path": "m", "tp_size": 4, "mem_fraction_static": 0.85}
    assert parsed.given["tp_size"].index == 4  # the word --tp-size=4
    assert parsed.error is None


def test_a_prefix_of_one_flag_is_that_flag():
    parsed = read("--model", "m", "--mem-frac", "0.8")
    assert parsed.abbreviated == [("--mem-frac", "--mem-fraction-static")]


def test_a_prefix_of_several_flags_is_an_error_that_names_them():
    parsed = read("--model", "m", "--cuda-graph-max-bs", "32", version="0.5.20")
    assert parsed.ambiguous == [
        ("--cuda-graph-max-bs", ("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs-prefill"))
    ]
    matches = "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill"
    assert parsed.error == f"ambiguous option: --cuda-graph-max-bs could match {matches}"
    assert parsed.unrecognized == []


def test_an_unknown_flag_takes_its_values_along():
    parsed = read("--turbo", "7", "--model", "m", "stray", "--port", "1")
    assert parsed.unrecognized == [(0, "--turbo"), (4, "stray")]
    assert values(parsed) == {"model_path": "m", "port": 1}


def test_goes_on_after_an_error():
    parsed = read("--model", "m", "--tp", "four", "--load-format", "nope", "--port", "1")
    assert parsed.errors[0] == "argument --tensor-parallel-size/--tp-size: invalid int value: 'four'"
    assert parsed.errors[1].startswith("argument --load-format: invalid choice: 'nope'")
    assert parsed.spoilt == {"tp_size": 3, "load_format": 5}
    assert values(parsed) == {"model_path": "m", "port": 1}


def test_a_later_good_value_mends_an_earlier_one_for_us_not_for_argparse():
    parsed = read("--model", "m", "--tp", "four", "--tp", "4")
    assert values(parsed)["tp_size"] == 4
    assert parsed.error is not None


@pytest.mark.parametrize(
    ("version", "flag", "effect", "stored"),
    [
        ("0.5.12", "--enable-piecewise-cuda-graph", "ignored", {}),
        (
            "0.5.12",
            "--stream-output",
            "read as --incremental-streaming-output",
            {"incremental_streaming_output": True},
        ),
        (
            "0.5.14",
            "--disable-piecewise-cuda-graph",
            "read as --cuda-graph-backend-prefill=disabled",
            {"cuda_graph_backend_prefill": "disabled"},
        ),
        (
            "0.5.14",
            "--enable-flashinfer-allreduce-fusion",
            "still works; use --flashinfer-allreduce-fusion-backend=auto instead",
            {"enable_flashinfer_allreduce_fusion": True},
        ),
    ],
)
def test_deprecated_flags(version: str, flag: str, effect: str, stored: dict[str, Any]):
    parsed = read("--model", "m", flag, version=version)
    assert [(one.option, one.effect) for one in parsed.deprecated] == [(flag, effect)]
    assert values(parsed) == {"model_path": "m", **stored}
    assert parsed.error is None


def test_a_deprecated_flag_may_stop_the_launch():
    parsed = read("--model", "m", "--enable-expert-distribution-metrics", version="0.5.18")
    assert parsed.error is not None
    assert parsed.error.startswith("--enable-expert-distribution-metrics is no longer supported.")


def test_a_word_that_could_not_be_expanded_is_a_value_where_one_is_due():
    words = [
        Token("--model", 0),
        Token("$MODEL", 1, known=False),
        Token("--tp=$TP", 2, known=False, prefix="--tp="),
    ]
    parsed = parse(words, flags("0.5.12"))
    assert parsed.unexpanded == []
    assert [parsed.given[dest].known for dest in ("model_path", "tp_size")] == [False, False]
    assert parsed.error is None


def test_elsewhere_it_could_be_any_flag():
    words = [
        Token("--model", 0),
        Token("m", 1),
        Token("--enable-metrics", 2),
        Token("$EXTRA", 3, known=False),
    ]
    parsed = parse(words, flags("0.5.12"))
    assert parsed.unexpanded == [3]
    assert values(parsed) == {"model_path": "m", "enable_metrics": True}


def test_nothing_is_missing_that_an_unexpanded_word_may_hold():
    assert parse([Token("$ARGS", 0, known=False)], flags("0.5.12")).error is None
    assert parse([], flags("0.5.12")).error == "the following arguments are required: --model-path/--model"


def test_help_is_remembered_not_printed(capsys: pytest.CaptureFixture[str]):
    assert read("--help").asks_help
    assert capsys.readouterr() == ("", "")


OPTIONS = sorted({option for flag in flags("0.5.12") for option in flag.options})


@given(
    st.lists(
        st.one_of(
            st.sampled_from(OPTIONS),
            st.sampled_from(OPTIONS).map(lambda option: option[:7]),
            st.sampled_from(
                ["1", "-1", "x", "", "--", "-", "--=", "--tp=", "--tp=2", "[1]", "-h", "a b", "-x y"]
            ),
            st.text(max_size=6),
        ),
        max_size=8,
    )
)
def test_any_words_are_parsed_without_a_word(words: list[str]):
    parsed = read(*words)
    for dest, found in parsed.given.items():
        assert found.known
        assert words[found.index].startswith("--"), dest
    for index, word in parsed.unrecognized:
        assert words[index] == word
