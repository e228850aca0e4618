"""The command line beside SGLang's own parser: nine releases' argparse parsers answer in child processes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgdoctor.upstream import catalogue
from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.flags import Parsed, Parser
from tests.upstream.test_source_flags import RENAMED
from tools.oracles import RELEASES

MODEL = ["--model-path", "m"]
PARSERS = {version: Parser(catalogue.resolve(version).flags) for version in RELEASES}


def options_of(flag: Flag) -> list[str]:
    return [*flag.options, *flag.negations]


def good_values(flag: Flag) -> list[str]:
    if flag.choices:
        return [str(choice) for choice in flag.choices]
    by_type = {
        "int": ["3", "-1"],
        "float": ["0.5", "-1", "1e-3"],
        "json": ['{"a": [1, null]}', "7"],
        "json_list": ['["a", 1]', "{}"],
        "nullable_str": ["None", "x", ""],
        "human_readable_int": ["4k", "1.5M", "2Ki", "17"],
        "cuda_graph_config": ['{"decode": {"backend": "full"}}', "decode.backend=full", "{}"],
        "cuda_graph_backend": ["full", "disabled", "breakable"],
    }
    return by_type.get(flag.type, ["x", "a=b", "a b", "x:y"])


BAD_VALUES = ["", "four", "1.5Ki", "1K", "{", "-x", "--", "nope", "0x1", "\uff11", " 3 ", "NaN", "inf", "1_0"]


# --- what has to be the same ----------------------------------------------------------------------------


def comparable(message: str) -> str:
    """Return an argparse message with the choices, which some releases keep in a set, in order."""
    found = re.search(r"\(choose from (.*)\)$", message)
    if found is None:
        return message
    return message[: found.start()] + ", ".join(sorted(found.group(1).split(", ")))


def assert_same(argv: list[str], parsed: Parsed, answer: dict, version: str) -> None:
    said = answer.get("error")
    if parsed.asks_help and said is not None and said.startswith("exit 0"):
        return
    if said is None:
        assert parsed.error is None, (argv, parsed.error, answer)
        release = catalogue.resolve(version)
        mine = {dest: one.value for dest, one in parsed.given.items()}
        changed = {
            dest: value
            for dest, value in mine.items()
            if dest == "model_path" or release.flag(dest).suppressed or value != release.default(dest)
        }
        theirs = {RENAMED.get(dest, dest): value for dest, value in answer["values"].items()}
        assert json.loads(json.dumps(changed)) == theirs, argv
    elif said.startswith("unrecognized arguments: "):
        assert not parsed.errors, (argv, said, parsed.errors)
        assert_same_words(parsed, said.removeprefix("unrecognized arguments: "), argv)
    else:
        assert parsed.errors, (argv, said)
        assert comparable(said) in [comparable(error) for error in parsed.errors], (argv, said, parsed.errors)


def assert_same_words(parsed: Parsed, said: str, argv: list[str]) -> None:
    """Check that argparse's unknown words are ours, which leave out the values of an unknown flag."""
    indexes = [index for index, _ in parsed.unrecognized]
    assert indexes == sorted(indexes)
    rest = said
    for position, (_, word) in enumerate(parsed.unrecognized):
        before, found, rest = rest.partition(word) if word else ("", " ", rest)
        assert found, (argv, said, parsed.unrecognized)
        assert position or not before, (argv, said, parsed.unrecognized)


# --- every flag of a release ----------------------------------------------------------------------------


def grid(flags: list[Flag]) -> Iterator[list[str]]:
    """Yield each option alone and with a value; in turn after "=", cut short, twice, with bad values."""
    for number, flag in enumerate(flags):
        good = good_values(flag)
        for turn, option in enumerate(options_of(flag), start=number):
            yield [*MODEL, option]
            yield [*MODEL, option, good[turn % len(good)]]
            yield (
                [*MODEL, f"{option}={good[-1]}"],
                [*MODEL, option[:-1], good[0]],
                [*MODEL, option[: len(option) // 2 + 1], good[0]],
                [*MODEL, option, good[0], option, good[-1]],
                [*MODEL, option, *good[:3]],
                [option],
            )[turn % 6]
            yield [*MODEL, option, BAD_VALUES[turn % len(BAD_VALUES)]]
        if flag.type != "str":
            yield from ([*MODEL, flag.option, value] for value in (*good, *BAD_VALUES[number % 3 :: 3]))


@pytest.mark.parametrize("version", RELEASES)
def test_sglang_itself_agrees_on_every_flag(real_parsers, version):
    """Two to four thousand command lines a release."""
    lines = list(grid(catalogue.resolve(version).flags))
    answers = real_parsers[version].ask(lines)
    refused = 0
    for argv, answer in zip(lines, answers, strict=True):
        assert_same(argv, PARSERS[version].parse(argv), answer, version)
        refused += "error" in answer
    assert len(lines) > 2000
    assert 500 < refused < len(lines) - 500


# --- any command line -----------------------------------------------------------------------------------

WORDS = [
    "1",
    "-1",
    "x",
    "",
    "--",
    "-",
    "--=",
    "--tp=2",
    "[1]",
    "{}",
    "a b",
    "-x y",
    "-h",
    "--no",
    "-1.5",
    "--m",
]


@st.composite
def command_lines(draw, flags: list[Flag]) -> list[str]:
    argv = list(MODEL) if draw(st.integers(0, 4)) else []
    for _ in range(draw(st.integers(0, 5))):
        flag = draw(st.sampled_from(flags))
        option = draw(st.sampled_from(options_of(flag)))
        if not draw(st.integers(0, 3)):
            option = option[: draw(st.integers(3, len(option)))]
        value = draw(st.sampled_from(good_values(flag) * 2 + BAD_VALUES + WORDS))
        form = draw(st.integers(0, 9))
        if form < 5:
            argv += [option, value] if flag.takes_value or form == 0 else [option]
        elif form < 7:
            argv.append(f"{option}={value}")
        elif form == 7:
            argv += [option, value, draw(st.sampled_from(WORDS))]
        elif form == 8:
            argv.append(draw(st.one_of(st.sampled_from(WORDS), st.text(max_size=5))))
        else:
            argv.append(option)
    return argv


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("version", RELEASES)
def test_sglang_itself_agrees_on_any_command_line(real_parsers, version, data):
    """Some two hundred command lines a release."""
    flags = catalogue.resolve(version).flags
    lines = data.draw(st.lists(command_lines(flags), min_size=1, max_size=20))
    for argv, answer in zip(lines, real_parsers[version].ask(lines), strict=True):
        assert_same(argv, PARSERS[version].parse(argv), answer, version)
