"""The report as people see it: whole pages are in golden/, single promises here."""

from __future__ import annotations

import re

import pytest

from sgdoctor.engine.model import Evidence, Recommendation
from sgdoctor.facts import NOT_ASKED, Excerpt
from sgdoctor.report import colour, terminal
from sgdoctor.report.layout import columns, plain
from sgdoctor.report.model import Broken, Looked, Report, UndecidedRule

SGR = re.compile(r"\x1b\[[0-9;]*m")


def shown(*deployments, **options):
    return plain(terminal.render(Report.of(deployments), **options))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("scenario-80.txt", {"width": 80}),
        ("scenario-120.txt", {"width": 120}),
        ("scenario-ascii.txt", {"width": 80, "encoding": "ascii"}),
        ("scenario-verbose.txt", {"width": 80, "verbose": True}),
    ],
)
def test_the_scenario(scenario, golden, name, options):
    golden(name, shown(scenario, **options))


def test_several_deployments_worst_first(fleet, golden):
    golden("fleet-80.txt", plain(terminal.render(fleet)))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
@pytest.mark.parametrize("verbose", [False, True])
def test_only_what_is_to_be_copied_may_be_wider_than_the_page(fleet, width, verbose):
    for line in plain(terminal.render(fleet, width=width, verbose=verbose)).splitlines():
        assert columns(line) <= width or "api-key" in line or "pip install" in line


def test_colour_changes_no_word(fleet):
    lines = terminal.render(fleet, verbose=True)
    painted = colour.painted(lines)
    assert painted != plain(lines)
    assert SGR.sub("", painted) == plain(lines)


def test_words_of_one_style_are_one_piece_of_colour():
    line = [("ARG103", "code"), (" ", "code"), ("does", "code"), (" nothing", "")]
    assert colour.painted([line]) == "\x1b[1mARG103 does\x1b[0m nothing\n"


def test_ascii_is_enough(fleet):
    assert plain(terminal.render(fleet, encoding="ascii", verbose=True)).isascii()


def test_a_healthy_deployment_is_one_paragraph_that_says_what_was_looked_at(deployment):
    text = shown(
        deployment(passed=["ARG101"] * 58, looked_at=[Looked("log", "server.log", said="412 records")])
    )
    assert text == (
        "ok       qwen3.5-122b · SGLang 0.5.10 · TP 4: nothing found in server.log (412\n"
        "         records).\n"
        "\n"
        "0 errors, 0 warnings, 0 info.  58 rules passed.\n"
    )


def test_a_log_that_was_not_understood_is_never_a_tick(deployment):
    lost = Looked("log", "server.log", state="nothing", said="no record of SGLang's in it")
    for looked_at in ([lost], [lost, Looked("launch", "launch.sh")]):
        text = shown(deployment(looked_at=looked_at))
        assert not re.search(r"^ok", text, re.MULTILINE)
        assert "note     server.log: no record of SGLang's in it\n" in text


def test_there_is_no_all_clear_while_most_is_open(deployment):
    open_rules = [
        UndecidedRule(f"RUN10{at}", "A rule", ["log.records"], NOT_ASKED, ["--log"]) for at in range(3)
    ]
    assert shown(deployment(unknown=open_rules, passed=["ARG101"])).startswith(
        "so far   qwen3.5-122b · SGLang 0.5.10 · TP 4: nothing found in launch.sh. 3\n"
        "         rules could not be decided from that.\n"
    )


def test_what_was_looked_at_is_said_once_with_v(deployment):
    for more in ({}, {"passed": ["ARG101"]}, {"broken": [Broken("ARG102", "it divides by zero")]}):
        text = shown(deployment(**more), verbose=True)
        assert text.count("launch.sh") == 1
        assert "looked at launch.sh" in text
    assert "ok       Nothing found.\n" in shown(deployment(passed=["ARG101"]), verbose=True)


def test_nothing_at_all_is_not_a_tick_either():
    assert shown().startswith("unknown  No deployment and no installation was found.\n")


def test_suspicions_are_counted_but_shown_with_v_alone(deployment, finding):
    guess = deployment(findings=[finding(confidence="low", message="The driver may be slow.")])
    assert "driver" not in shown(guess)
    assert "1 only suspected (-v)" in shown(guess)
    assert "The driver may be slow. (only suspected)" in shown(guess, verbose=True)


def test_a_consequence_points_at_its_cause_instead_of_giving_advice(deployment, finding):
    text = shown(
        deployment(
            findings=[
                finding("RUN101", "error", "The server died."),
                finding("CFG107", "error", "The lookup ends the server."),
                finding("RUN104", "info", "Not ready.", recommendation=[Recommendation(do="wait")]),
            ],
            consequences={"RUN104": "CFG107"},
        )
    )
    assert "do          what CFG107 says: this follows from it" in text
    assert "wait" not in text


def test_evidence_is_a_place_a_line_and_never_a_dump(deployment, finding):
    evidence = [
        Evidence(f"arg.flag_{number}", number, "launch", f"launch.sh:{number}") for number in range(7)
    ]
    text = shown(deployment(findings=[finding(evidence=evidence)]))
    assert text.count("launch.sh:") == terminal.MOST_PLACES
    assert "3 more with -v" in text
    assert shown(deployment(findings=[finding(evidence=evidence)]), verbose=True).count("launch.sh:") == 7


def test_four_ranks_that_say_the_same_are_one_line(deployment, finding):
    said = "Using default MoE kernel config. Performance might be sub-optimal!"
    match = Evidence("log.match", said, "log", "server.log:34", 4)
    assert 'server.log:34  "Using default MoE kernel config. ..." (4 times)' in shown(
        deployment(findings=[finding(evidence=[match])]), width=100
    )


def test_a_log_line_is_shown_with_its_neighbours_when_asked_for(deployment, finding):
    match = Evidence("log.match", "out of memory", "log", "server.log:100")
    lines = [(98, '  File "x.py", line 3'), (99, "    y = z"), (100, "out of memory"), (101, "")]
    told = deployment(findings=[finding(evidence=[match])], excerpts=[Excerpt("server.log:100", 100, lines)])
    assert "y = z" not in shown(told)
    assert shown(told, verbose=True, width=70).splitlines()[5:10] == [
        "                       log.match = out of memory",
        '                        98    File "x.py", line 3',
        "                        99      y = z",
        "                     > 100  out of memory",
        "                       101",
    ]


def test_no_control_character_of_a_log_reaches_the_terminal(deployment, finding):
    match = Evidence("log.match", "out of memory", "log", "server.log:2", 1)
    lines = [(1, "\t\x0b\x0c\x1c\x85\x9b31mred"), (2, "out of memory")]
    told = deployment(findings=[finding(evidence=[match])], excerpts=[Excerpt("server.log:2", 2, lines)])
    text = shown(told, verbose=True)
    assert [each for each in text if not each.isprintable()] == ["\n"] * text.count("\n")


def test_what_was_worked_out_is_shown_where_nothing_was_read(deployment, finding):
    derived = Evidence("moe.runner", "triton", "derived", "arg.moe_runner_backend")
    assert "worked out from arg.moe_runner_backend" in shown(
        deployment(findings=[finding(evidence=[derived])])
    )


def test_a_log_line_cannot_steer_the_terminal(deployment, finding):
    assert "\x1b" not in shown(deployment(findings=[finding(message="The server said \x1b[2J.")]))


def test_the_option_that_decides_most_is_named(scenario):
    assert "15 could\nnot be decided (14 of them with --log)" in shown(scenario)


def test_a_broken_rule_is_said(deployment, fleet):
    text = plain(terminal.render(fleet))
    assert "broken   MEM101  This rule itself broke, which is a bug: ZeroDivisionError" in text
    assert "1 rule broken" in text
