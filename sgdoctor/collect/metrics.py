"""The metrics page of a server (--enable-metrics), in Prometheus' text format, live or saved in a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.input_file import read_bytes

MAX_BYTES = 64 * 2**20

# A sample: name{labels} value [timestamp].
_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?[ \t]*\Z")
_READ = (
    "token_usage",
    "num_running_reqs",
    "num_queue_reqs",
    "num_retracted_requests_total",
    "num_requests_total",
    "max_total_num_tokens",
    "context_len",
)
_MIXED = "the metrics of several servers on one page"
# What is larger, or no number, nobody has counted.
_LARGEST = 1e18
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


class Sample(msgspec.Struct, frozen=True):
    """One line of the page."""

    name: str
    labels: dict[str, str]
    value: float


def read_metrics_file(facts: Facts, path: Path) -> None:
    """Set metrics.* and kv.* from a saved metrics page.

    Raises UsageError when the file cannot be read or is not the metrics page of one SGLang server.
    """
    text = read_bytes(path, MAX_BYTES, "no metrics page").decode(errors="replace")
    if not is_sglang(text):
        other = " (vLLM's)" if is_vllm(text) else ""
        raise UsageError(f"{path}: not SGLang's metrics page{other}: no line begins with sglang:")
    label = mixed(page_of(text, _READ))
    if label is not None:
        raise UsageError(f"{path}: {_MIXED} (they differ in {label}): save /metrics of one server")
    read_metrics(facts, text, str(path))


def is_sglang(text: str) -> bool:
    """Whether any sample of the page is SGLang's."""
    return re.search(r"^sglang[:_]", text, re.MULTILINE) is not None


def is_vllm(text: str) -> bool:
    """Whether the samples are vLLM's."""
    return not is_sglang(text) and re.search(r"^vllm[:_]", text, re.MULTILINE) is not None


def read_metrics(facts: Facts, text: str, place: str) -> None:
    """Set metrics.token_usage, .running_requests, .queued_requests, .retracted_requests, .finished_requests.

    Also kv.tokens and kv.context_length. Names as in 0.5.7 to 0.5.23 (the metrics collector). Never raises;
    what is not on the page stays unknown, and all of it where several servers are on it. But a counter
    appears there with its first event: one of the scheduler that is missing where its gauges are has counted
    none. The tokenizer's are missing at a deployment's further nodes, too.
    """
    page = page_of(text, _READ)
    label = mixed(page)
    if label is not None:
        said = f"{place}: {_MIXED} (they differ in {label}); none was read"
        facts.notes.append(said)
        for name in facts.vocabulary.specs:
            if name.startswith("metrics."):
                facts.set_unknown(name, said)
        return

    def put(name: str, metric: str, combine: Callable[[list[float]], float], *, ranks: bool = True) -> None:
        samples = page.get(metric, [])
        # The tokenizer's have other labels (is_streaming), and no ranks.
        values = by_rank(samples) if ranks else [sample.value for sample in samples]
        if not values and ranks and metric.endswith("_total") and "num_running_reqs" in page:
            values = [0.0]
        if not values:
            facts.set_unknown(name, f"{place} has no sglang:{metric}")
            return
        spec = facts.vocabulary.spec(name)
        value = combine(values)
        whole = spec is not None and spec.type == "int"
        facts.set(name, round(value) if whole else value, source="metrics", place=f"{place}: sglang:{metric}")

    put("metrics.token_usage", "token_usage", max)
    put("metrics.running_requests", "num_running_reqs", sum)
    put("metrics.queued_requests", "num_queue_reqs", sum)
    put("metrics.retracted_requests", "num_retracted_requests_total", sum)
    put("metrics.finished_requests", "num_requests_total", sum, ranks=False)
    put("kv.tokens", "max_total_num_tokens", min)
    put("kv.context_length", "context_len", min)


def page_of(text: str, names: Iterable[str]) -> dict[str, list[Sample]]:
    """Return the page's samples of SGLang with these names, by name, without its prefix.

    A page has hundreds of others, most of them the buckets of histograms, which are not taken apart. Samples
    whose value is no number (NaN, infinite) are left out.
    """
    page: dict[str, list[Sample]] = {}
    wanted = re.compile(rf"^[ \t]*sglang[:_](?:{'|'.join(names)})(?=[ \t{{]).*$", re.MULTILINE)
    for sample in parse("\n".join(wanted.findall(text))):
        if sample.name.startswith("sglang:") and abs(sample.value) < _LARGEST:
            page.setdefault(sample.name.removeprefix("sglang:"), []).append(sample)
    return page


def mixed(page: Mapping[str, list[Sample]]) -> str | None:
    """Return the label in which samples of a gauge differ, as those of several servers; None: of one.

    It is worker_addr at a router's /engine_metrics, instance or pod on a page of Prometheus. Those of one
    server differ in the rank, the priority and the process (the metrics collector, 0.5.7 to 0.5.23).
    """
    for samples in (page.get("num_running_reqs", []), page.get("max_total_num_tokens", [])):
        labels = {name for sample in samples for name in sample.labels if not name.endswith("_rank")}
        for name in sorted(labels - {"priority", "pid"}):
            if len({sample.labels.get(name) for sample in samples}) > 1:
                return name
    return None


def by_rank(samples: list[Sample]) -> list[float]:
    """Return one value a data-parallel rank: its tensor and pipeline ranks count the same requests."""
    ranks: dict[str, float] = {}
    for sample in samples:
        rank = sample.labels.get("dp_rank", "")
        ranks[rank] = max(sample.value, ranks.get(rank, -math.inf))
    return list(ranks.values())


def parse(text: str) -> Iterator[Sample]:
    """Yield the samples of a page; lines that are none are passed over."""
    for line in text.split("\n"):
        if line.startswith("#") or not line.strip():
            continue
        found = _SAMPLE.match(line.strip())
        if found is None:
            continue
        name, labels, number = found.groups()
        try:
            value = float(number.replace("Inf", "inf"))
        except ValueError:
            continue
        if name.startswith("sglang_"):  # as collectors that allow no colons store it
            name = f"sglang:{name.removeprefix('sglang_')}"
        yield Sample(name, {key: _unescaped(said) for key, said in _LABEL.findall(labels or "")}, value)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda found: "\n" if found.group(1) == "n" else found.group(1), text)
