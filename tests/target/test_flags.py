"""What becomes of written flags. Every boundary was looked up in the sources of the releases around it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdoctor.collect import launch
from sgdoctor.report.model import Change
from sgdoctor.target import command, flags, meaning, path
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.flag import Flag
from sgdoctor.upstream.flags import parse

SERVER = "python3 -m sglang.launch_server --model-path m "


def way(start: str, end: str) -> path.Path:
    return path.between(path.exactly(start, "start"), path.exactly(end, "end"))


def changes(start: str, end: str, text: str, *, server: str = SERVER) -> list[Change]:
    return flags.changes(launch.parse_command(shlex.split(server + text)), way(start, end))


TABLE = [
    # start, end, flag as written, kind, release, what to do
    # arg_groups/fields/ of 0.5.20 has neither; it has --cuda-graph-max-bs-decode and -prefill
    (
        "0.5.16",
        "0.5.20",
        "--cuda-graph-max-bs 64",
        "flag-ambiguous",
        "0.5.20",
        "write --cuda-graph-max-bs-decode 64",
    ),
    (
        "0.5.16",
        "0.5.20",
        "--cuda-graph-bs 1 2 4",
        "flag-ambiguous",
        "0.5.20",
        "write --cuda-graph-bs-decode 1 2 4",
    ),
    (
        "0.5.10",
        "0.5.16",
        "--cuda-graph-max-bs 64",
        "flag-deprecated",
        "0.5.14",
        "write --cuda-graph-max-bs-decode 64",
    ),
    (
        "0.5.20",
        "0.5.13",
        "--cuda-graph-max-bs-decode 64",
        "flag-renamed",
        "0.5.14",
        "write --cuda-graph-max-bs 64",
    ),
    # piecewise graphs: a switch up to 0.5.13, an alias up to 0.5.19; tc_piecewise is refused from 0.5.22 on
    (
        "0.5.10",
        "0.5.23",
        "--disable-piecewise-cuda-graph",
        "flag-renamed",
        "0.5.20",
        "write --cuda-graph-backend-prefill=disabled",
    ),
    (
        "0.5.20",
        "0.5.12",
        "--cuda-graph-backend-prefill disabled",
        "flag-renamed",
        "0.5.14",
        "write --disable-piecewise-cuda-graph",
    ),
    (
        "0.5.16",
        "0.5.21",
        "--enforce-piecewise-cuda-graph",
        "flag-renamed",
        "0.5.20",
        "write --cuda-graph-backend-prefill=tc_piecewise",
    ),
    (
        "0.5.16",
        "0.5.22",
        "--enforce-piecewise-cuda-graph",
        "flag-gone",
        "0.5.20",
        "remove --enforce-piecewise-cuda-graph",
    ),
    (
        "0.5.20",
        "0.5.22",
        "--cuda-graph-backend-prefill tc_piecewise",
        "flag-value",
        "0.5.22",
        "choose one of ",
    ),
    (
        "0.5.10",
        "0.5.16",
        "--disable-cuda-graph",
        "flag-deprecated",
        "0.5.14",
        "write --cuda-graph-backend-decode=disabled and --cuda-graph-backend-prefill=disabled",
    ),
    # NSA became DSA in 0.5.13
    (
        "0.5.10",
        "0.5.13",
        "--nsa-prefill-backend flashmla_sparse",
        "flag-deprecated",
        "0.5.13",
        "write --dsa-prefill-backend flashmla_sparse",
    ),
    (
        "0.5.10",
        "0.5.20",
        "--nsa-prefill-backend flashmla_sparse",
        "flag-renamed",
        "0.5.20",
        "write --dsa-prefill-backend flashmla_sparse",
    ),
    # what the value is called by the new flag stands in the help of the old one (server_args.py, 0.5.14)
    (
        "0.5.16",
        "0.5.20",
        "--prefill-cp-mode in-seq-split",
        "flag-renamed",
        "0.5.20",
        "write --cp-strategy zigzag",
    ),
    # deprecated by its help text alone
    (
        "0.5.10",
        "0.5.20",
        "--enable-flashinfer-allreduce-fusion",
        "flag-deprecated",
        "0.5.14",
        "write --flashinfer-allreduce-fusion-backend=auto",
    ),
    ("0.5.12", "0.5.13", "--enable-nan-detection", "flag-gone", "0.5.13", "remove --enable-nan-detection"),
    (
        "0.5.7",
        "0.5.16",
        "--custom-sigquit-handler f",
        "flag-gone",
        "0.5.14",
        "remove --custom-sigquit-handler",
    ),
    (
        "0.5.20",
        "0.5.22",
        "--enable-dp-attention",
        "flag-deprecated",
        "0.5.22",
        "write --attn-dp-size <dp-size>",
    ),
    # deprecated and ignored, later gone; a value that is still there is refused at once
    ("0.5.7", "0.5.9", "--hybrid-kvcache-ratio", "flag-ignored", "0.5.8", "remove --hybrid-kvcache-ratio"),
    ("0.5.7", "0.5.9", "--hybrid-kvcache-ratio 0.5", "flag-value", "0.5.8", None),
    ("0.5.9", "0.5.7", "--hybrid-kvcache-ratio", "flag-accepted", "0.5.8", None),
    (
        "0.5.17",
        "0.5.18",
        "--enable-expert-distribution-metrics",
        "flag-value",
        "0.5.18",
        None,
    ),
    # choices
    ("0.5.18", "0.5.20", "--attention-backend cutlass_mla", "flag-value", "0.5.20", "choose another"),
    ("0.5.7", "0.5.10", "--load-balance-method minimum_tokens", "flag-value", "0.5.8", "choose one of "),
    ("0.5.10", "0.5.8", "--context-length 128k", "flag-value", "0.5.10", None),
    # --optimistic-prefill-retries became --optimistic-prefill-attempts: an abbreviation changes its meaning
    (
        "0.5.15",
        "0.5.16",
        "--optimistic-prefill 3",
        "flag-prefix",
        "0.5.16",
        "remove --optimistic-prefill, or ",
    ),
    ("0.5.12", "0.5.14", "--admission-control", None, None, None),
    ("0.5.7", "0.5.23", "--tp 4", None, None, None),
]


@pytest.mark.parametrize(("start", "end", "text", "kind", "since", "do"), TABLE)
def test_flag(start: str, end: str, text: str, kind: str | None, since: str | None, do: str | None) -> None:
    found = changes(start, end, text)
    if kind is None:
        assert found == []
        return
    [change] = found
    assert (change.kind, change.release) == (kind, since), change.message
    assert str(since) in change.message
    if do is None:
        assert change.do is None
    else:
        assert change.do is not None
        assert change.do.startswith(do)


def test_a_switch_whose_opposite_alone_is_known_is_not_renamed_to_it() -> None:
    [change] = changes("0.5.23", "0.5.22", "--no-mm-enable-dp-encoder")
    assert change.kind == "flag-gone"
    assert change.do == "remove --no-mm-enable-dp-encoder"


def test_an_older_release_may_have_several_flags_for_one() -> None:
    [change] = changes("0.5.20", "0.5.12", "--enable-prefill-cp")
    assert change.do == "write --enable-nsa-prefill-context-parallel or --enable-prefill-context-parallel"


def test_what_was_refused_before_is_no_change_when_it_is_refused_otherwise() -> None:
    assert changes("0.5.10", "0.5.20", "--hybrid-kvcache-ratio 0.5") == []


def test_a_flag_that_becomes_known() -> None:
    [change] = changes("0.5.10", "0.5.20", "--cuda-graph-max-bs-decode 8")
    assert (change.kind, change.release, change.severity) == ("flag-accepted", "0.5.14", "info")
    assert change.before is None


def test_an_abbreviation_that_is_taken_for_another_flag_is_told() -> None:
    [change] = changes("0.5.15", "0.5.16", "--optimistic-prefill 3")
    assert (change.before, change.after) == ("--optimistic-prefill-retries", "--optimistic-prefill-attempts")
    assert change.severity == "warning"


def test_the_model_as_first_word_is_understood_from_0_5_16_on() -> None:
    [change] = changes("0.5.20", "0.5.12", "", server="sglang serve m ")
    assert (change.kind, change.severity, change.release) == ("launch-refused", "error", "0.5.16")
    [change] = changes("0.5.12", "0.5.20", "", server="sglang serve m ")
    assert (change.kind, change.severity, change.release) == ("flag-accepted", "info", "0.5.16")


def test_flags_of_a_configuration_file_count_as_written(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("model-path: m\ncuda-graph-max-bs: 64\napi-key: hunter2\n")
    script = tmp_path / "run.sh"
    script.write_text("python3 -m sglang.launch_server --config run.yaml\n")
    [found] = launch.read_script(script)
    [change] = flags.changes(found, way("0.5.16", "0.5.20"))
    assert (change.subject, change.before) == ("--cuda-graph-max-bs", "--cuda-graph-max-bs 64")
    assert "hunter2" not in str(command.read(found, path.exactly("0.5.20", "")))


def test_a_value_that_is_not_known_is_not_judged() -> None:
    [found] = launch.parse_script(
        SERVER + '--attention-backend "$BACKEND" --cuda-graph-max-bs $MAX', "run.sh"
    )
    [change] = flags.changes(found, way("0.5.16", "0.5.20"))
    assert change.kind == "flag-ambiguous"
    assert change.do == "write --cuda-graph-max-bs-decode"


# --- for any command ---------------------------------------------------------------------------------------

_VALUES = {"int": "3", "float": "0.5", "json": "{}", "json_list": "[]", "human_readable_int": "3"}


def words(flag: Flag) -> list[str]:
    """Return one way to write a flag that its own release understands."""
    if not flag.takes_value:
        return [flag.option]
    value = str(flag.choices[0]) if flag.choices else _VALUES.get(flag.type, "x")
    return [flag.option, value]


@st.composite
def commands(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """Two releases and a command of flags that either of them, or another, has."""
    known = catalogue.releases()
    start, end, other = (draw(st.sampled_from(known)) for _ in range(3))
    release = path.exactly(draw(st.sampled_from([start, end, other])), "")
    plain = [flag for flag in release.flags if flag.type not in ("cuda_graph_config", "cuda_graph_backend")]
    chosen = draw(st.lists(st.sampled_from(plain), max_size=4, unique_by=lambda flag: flag.dest))
    written = [word for flag in chosen if flag.dest != "config" for word in words(flag)]
    return start, end, ["--model-path", "m", *written]


@settings(max_examples=60, deadline=None)
@given(commands())
def test_a_flag_stops_the_server_only_where_the_whole_parser_refuses_the_command(
    drawn: tuple[str, str, list[str]],
) -> None:
    start, end, argv = drawn
    found = flags.changes(launch.parse_command(argv), way(start, end))
    before, after = (parse(argv, path.exactly(version, "").flags).error for version in (start, end))
    if any(change.severity == "error" for change in found):
        assert after is not None
    if after is not None and before is None:
        assert any(change.severity == "error" for change in found)


@settings(max_examples=40, deadline=None)
@given(commands())
def test_a_release_compared_with_itself_changes_nothing(drawn: tuple[str, str, list[str]]) -> None:
    start, _, argv = drawn
    assert flags.changes(launch.parse_command(argv), way(start, start)) == []


@settings(max_examples=60, deadline=None)
@given(commands())
def test_the_release_of_a_change_is_the_one_that_treats_the_flag_otherwise(
    drawn: tuple[str, str, list[str]],
) -> None:
    start, end, argv = drawn
    known = catalogue.releases()
    launched = launch.parse_command(argv)
    for change in flags.changes(launched, way(start, end)):
        [written] = [
            each
            for each in command.read(launched, path.exactly(start, "")).written
            if each.option == change.subject
        ]
        assert change.release is not None
        at = known.index(change.release)
        treated = [meaning.of(written, path.exactly(known[index], "")).key for index in (at - 1, at)]
        assert treated[0] != treated[1]


def test_a_configuration_file_that_is_no_file_is_not_read() -> None:
    """A pipe would keep the doctor waiting."""
    launched = launch.parse_command([*shlex.split(SERVER), "--config", "/dev/zero"])
    assert not command.read(launched, path.exactly("0.5.20", "")).complete


def test_no_secret_reaches_a_change() -> None:
    found = changes("0.5.16", "0.5.20", "--api-key hunter2 --cuda-graph-max-bs hf_abcdefghijklmnopqrstuvwxyz")
    assert "hunter2" not in str(found)
    assert "hf_abcdefghijklmnopqrstuvwxyz" not in str(found)
