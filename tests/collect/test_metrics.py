"""The metrics page, in Prometheus' text format."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.collect import metrics
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts

CAPTURES = Path(__file__).parents[1] / "captures"


def read(text: str) -> Facts:
    facts = Facts()
    metrics.read_metrics(facts, text, "/metrics")
    return facts


def test_a_page_of_a_server_whose_pool_is_full() -> None:
    facts = Facts()
    path = CAPTURES / "kv-pool-full" / "metrics.txt"
    metrics.read_metrics_file(facts, path)
    assert facts.value("metrics.retracted_requests") == 16
    assert facts.value("metrics.token_usage") == 0.24
    assert facts.value("metrics.running_requests") == 3
    assert facts.value("metrics.queued_requests") == 0
    assert facts.value("metrics.finished_requests") == 65
    assert facts.value("kv.tokens") == 8192
    assert facts.value("kv.context_length") == 40960
    place = facts.get("metrics.token_usage").provenance[0].place
    assert place == f"{path}: sglang:token_usage"


def test_a_counter_that_has_counted_nothing_is_not_on_the_page() -> None:
    facts = Facts()
    metrics.read_metrics_file(facts, CAPTURES / "moe-no-config" / "metrics.txt")
    assert facts.value("metrics.retracted_requests") == 0


def test_without_the_schedulers_gauges_a_missing_counter_is_unknown() -> None:
    facts = read('sglang:http_requests_active{endpoint="/health"} 1.0\n')
    assert facts.get("metrics.retracted_requests").reason.endswith("no sglang:num_retracted_requests_total")


def test_a_further_node_does_not_say_how_many_requests_were_finished() -> None:
    """Its schedulers have a page there, and no tokenizer, which counts the requests."""
    facts = read('sglang:num_running_reqs{dp_rank="4",tp_rank="4"} 3.0\n')
    assert facts.value("metrics.retracted_requests") == 0
    assert not facts.known("metrics.finished_requests")


def test_ranks_of_one_worker_count_once_workers_are_added_up() -> None:
    lines = [
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}"}} {dp + 1}' for dp in (0, 1) for tp in (0, 1)
    ]
    lines += ['sglang:token_usage{dp_rank="0"} 0.5', 'sglang:token_usage{dp_rank="1"} 0.97']
    facts = read("\n".join(lines))
    assert facts.value("metrics.running_requests") == 3
    assert facts.value("metrics.token_usage") == 0.97


def test_requests_with_and_without_streaming_are_added_up() -> None:
    """From 0.5.17 on num_requests_total has the label is_streaming (metrics_collector.py)."""
    lines = [
        f'sglang:num_requests_total{{is_streaming="{each}"}} {count}'
        for each, count in (("true", 30), ("false", 12))
    ]
    assert read("\n".join(lines)).value("metrics.finished_requests") == 42


def test_a_gauge_without_a_number_is_unknown() -> None:
    assert not read('sglang:token_usage{tp_rank="0"} NaN\n').known("metrics.token_usage")


def test_the_format_is_read_as_prometheus_writes_it() -> None:
    text = (
        "# HELP sglang:a Help with \\n and {braces}\n# TYPE sglang:a gauge\n"
        'sglang:a{path="C:\\\\x",quoted="a \\"b\\" } c",} 1.5e3 1700000000\n'
        "sglang:b +Inf\nsglang_c 2\nno value\n\n"
    )
    samples = {sample.name: sample for sample in metrics.parse(text)}
    assert samples["sglang:a"] == metrics.Sample("sglang:a", {"path": "C:\\x", "quoted": 'a "b" } c'}, 1500.0)
    assert samples["sglang:b"].value == float("inf")
    assert samples["sglang:c"].value == 2.0
    assert len(samples) == 3


@given(st.text() | st.text(alphabet='sglang:_{}="\\ \n0123456789.eE+-#NaInf,'))
def test_any_text_is_taken(text: str) -> None:
    assert all(isinstance(sample.value, float) for sample in metrics.parse(text))
    read(text)


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.text()), st.floats(allow_nan=False))
def test_what_is_written_is_read_back(labels: dict[str, str], value: float) -> None:
    said = {
        key: value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        for key, value in labels.items()
    }
    pairs = ",".join(f'{key}="{text}"' for key, text in said.items())
    line = f"sglang:x{{{pairs}}} {value!r}\n"
    (sample,) = metrics.parse(line)
    assert sample.value == value
    assert sample.labels == labels


RANKS = "\n".join(
    f'sglang:num_running_reqs{{dp_rank="{dp}",pid="{dp}{tp}",priority="{each}",tp_rank="{tp}"}} 1'
    for dp in (0, 1)
    for tp in (0, 1)
    for each in ("", "0", "1")
)


def test_the_page_of_several_servers_is_none_of_a_server(tmp_path: Path) -> None:
    """As a router's /engine_metrics, or what Prometheus collected; the ranks of one server are no servers."""
    text = (CAPTURES / "kv-pool-full" / "metrics.txt").read_text()
    pages = [text.replace('tp_rank="0"', f'tp_rank="0",worker_addr="http://h:{port}"') for port in (1, 2)]
    file = tmp_path / "metrics.txt"
    file.write_text("".join(pages))
    with pytest.raises(UsageError, match=r"several servers on one page \(they differ in worker_addr\)"):
        metrics.read_metrics_file(Facts(), file)
    facts = read("".join(pages))
    assert facts.notes == [
        "/metrics: the metrics of several servers on one page (they differ in worker_addr); none was read"
    ]
    assert not facts.known("metrics.running_requests")
    assert read(RANKS).value("metrics.running_requests") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "not SGLang's metrics page"), ("vllm:num_requests_running 1\n", r"\(vLLM's\)")],
)
def test_a_page_of_something_else(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "metrics.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        metrics.read_metrics_file(Facts(), file)


def test_a_page_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        metrics.read_metrics_file(Facts(), tmp_path / "gone.txt")
