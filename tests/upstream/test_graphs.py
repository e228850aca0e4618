"""Which of the flags about decode's CUDA graphs decides; the order is that of the releases' own source."""

from __future__ import annotations

import pytest

from sgdoctor.facts import Facts
from sgdoctor.upstream import graphs
from tests.upstream.asked import facts_of

OFF = """--cuda-graph-config '{"decode": {"backend": "disabled"}}'"""
FULL = """--cuda-graph-config '{"decode": {"backend": "full"}}'"""
PREFILL_OFF = """--cuda-graph-config '{"prefill": {"backend": "disabled"}}'"""


def derived(flags: str, version: str) -> Facts:
    facts = facts_of(flags, version, **{"gpu.vendor": "nvidia"})
    graphs.derive(facts)
    return facts


@pytest.mark.parametrize("version", ["0.5.14", "0.5.18", "0.5.19", "0.5.23"])
@pytest.mark.parametrize(
    ("flags", "off"),
    [
        ("", False),
        ("--disable-cuda-graph", True),
        ("--disable-decode-cuda-graph", True),
        ("--disable-prefill-cuda-graph", False),
        ("--cuda-graph-backend-decode disabled", True),
        ("--disable-decode-cuda-graph --cuda-graph-backend-decode full", False),
        (OFF, True),
        (PREFILL_OFF, False),
        (f"--cuda-graph-backend-decode full {OFF}", True),
        (f"--cuda-graph-backend-decode disabled {FULL}", False),
        (f"--disable-cuda-graph {PREFILL_OFF}", True),
    ],
)
def test_the_json_goes_first_then_the_backend_then_the_switches(
    flags: str, version: str, *, off: bool
) -> None:
    assert derived(flags, version).value(graphs.ASKED) is off


def test_releases_with_one_switch() -> None:
    assert derived("--disable-cuda-graph", "0.5.12").value(graphs.ASKED) is True
    assert derived("", "0.5.12").value(graphs.ASKED) is False


def test_what_a_server_runs_with_goes_before_what_was_asked_for() -> None:
    running = Facts()
    for name in ("asked.cuda_graph_config", "asked.cuda_graph_backend_decode"):
        running.set(name, None, source="launch", place="run.sh:1")
    running.set(
        "arg.cuda_graph_config", {"decode": {"backend": "disabled"}}, source="server", place="/server_info"
    )
    graphs.derive(running)
    assert running.value(graphs.IN_EFFECT) is True
    assert not running.known(graphs.ASKED), "whether the switches were given is not known"


def test_without_the_command_nothing_is_known_of_what_was_asked_for() -> None:
    facts = Facts()
    graphs.derive(facts)
    assert not facts.known(graphs.ASKED)
    assert not facts.known(graphs.IN_EFFECT)


@pytest.mark.parametrize("config", [None, [], {"decode": 1}, {"decode": {}}, {"decode": {"backend": None}}])
def test_a_configuration_that_names_no_backend(config: object) -> None:
    assert graphs.decode_backend(config) is None
