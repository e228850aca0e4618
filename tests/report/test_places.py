"""Which file and line a finding is pinned to."""

from __future__ import annotations

import pytest

from sgdoctor.engine.model import Evidence
from sgdoctor.report import places
from sgdoctor.report.model import Looked
from sgdoctor.report.places import Place

HOST = Evidence("asked.host", "0.0.0.0", "launch", "launch.sh:11")
NO_KEY = Evidence("asked.api_key", None, "launch", "launch.sh:17")
LOG = Evidence("log.match", "out of memory", "log", "server.log:65")
MODEL = Evidence("model.experts", 256, "model", "config.json")
GPU = Evidence("gpu.name", "NVIDIA H200", "environment", "env/environment.json")
URL = Evidence("kv.tokens", 8192, "http", "http://127.0.0.1:31000/server_info")


@pytest.mark.parametrize(
    ("evidence", "place"),
    [
        ([LOG, MODEL, HOST], Place("launch.sh", 11)),
        ([NO_KEY, HOST], Place("launch.sh", 11)),  # the flag, not the end of the command that lacks one
        ([NO_KEY], Place("launch.sh", 17)),
        ([URL, MODEL, LOG], Place("server.log", 65)),
        ([URL, MODEL, GPU], Place("env/environment.json")),
        ([URL, MODEL], Place("config.json")),
        ([Evidence("sglang.version", "0.5.12", "launch", "compose.yaml:4"), LOG], Place("server.log", 65)),
        ([Evidence("log.died", True, "log", "a:b.log:7")], Place("a:b.log", 7)),
        ([Evidence("log.ready", False, "log", "server.log")], Place("server.log")),
        ([Evidence("kv.x", 1, "metrics", "m.txt: sglang:token_usage")], Place("m.txt")),
    ],
)
def test_the_file_in_which_it_is_mended_then_the_one_in_which_it_was_seen(
    finding, deployment, evidence, place
):
    assert places.of(finding(evidence=evidence), deployment()) == place


def test_what_no_file_says_is_pinned_to_the_first_that_was_looked_at(finding, deployment):
    looked = [
        Looked("http", "/server_info"),
        Looked("log", "lost.log", "nothing"),
        Looked("model", "config.json"),
    ]
    assert places.of(finding(evidence=[URL]), deployment(looked_at=looked)) == Place("config.json")


@pytest.mark.parametrize(
    ("looked", "path"),
    [
        ([Looked("log", "standard input")], "standard input"),
        ([Looked("command", "command line")], "command line"),
        ([Looked("server_info", URL.place)], URL.place),
        ([], "the name"),
    ],
)
def test_without_any_file_there_is_a_place_that_is_none(finding, deployment, looked, path):
    piped = Evidence("log.match", "x", "log", "standard input:8")
    placed = places.of(finding(evidence=[piped]), deployment(name="the name", looked_at=looked))
    assert placed == Place(path, is_file=False)
