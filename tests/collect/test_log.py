"""What logs say, told as facts."""

# ruff: noqa: E501 (log lines are as long as they are)
from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdoctor.collect.log import read_logs, source
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts, Known, Unknown
from tests.collect import logs

SUBOPTIMAL = {"MOE": r"Performance might be sub-optimal! Config file not found at (?P<path>.*?\.json)"}
PATTERNS = {
    **SUBOPTIMAL,
    "KEY": r"api_key='(?P<key>[^']+)'",
    "START": r"^The server is fired up",
    "HEALTH": r'"GET /health HTTP/1\.1" (?P<status>503)',
    "GRAPH": r"cuda graph: False",
}


def test_no_moe_config() -> None:
    facts = logs.read(logs.captured("moe-no-config"), SUBOPTIMAL)
    assert facts.value("moe.up.source") == "default"
    assert facts.value("moe.up.expected_file") == "E=256,N=256,device_name=NVIDIA_H200.json"
    assert facts.value("moe.up.path").endswith("/triton_3_6_0/E=256,N=256,device_name=NVIDIA_H200.json")
    assert facts.value("moe.up.triton", "unknown") is None
    assert facts.value("moe.down.source") == "default"  # there is no up config to use instead
    assert facts.value("moe.down.expected_file") == "E=256,N=256,device_name=NVIDIA_H200_down.json"
    assert facts.value("moe.log_files") == [
        "E=256,N=256,device_name=NVIDIA_H200.json",
        "E=256,N=256,device_name=NVIDIA_H200_down.json",
    ]
    assert facts.value("triton.version") == "3.6.0"
    assert facts.value("gpu.name") == "NVIDIA H200"
    assert facts.value("sglang.path") == "/usr/local/lib/python3.12/dist-packages/sglang"
    assert facts.value("sglang.version") == "0.5.12"
    assert facts.value("log.ready") is True
    assert facts.value("model.architecture") == "Qwen3MoeForCausalLM"
    match = facts.matches["MOE"]
    assert (match.count, match.place) == (2, "server.log:37")
    assert match.groups["path"].endswith("NVIDIA_H200.json")
    # The record is glued behind a progress bar; its text is the record's alone.
    assert match.text.startswith("Using default MoE kernel config.")


def test_moe_config_of_another_triton() -> None:
    facts = logs.read(logs.captured("moe-fallback-config"))
    assert facts.value("moe.up.source") == "fallback"
    assert facts.value("moe.up.triton") == "3.2.0"
    assert facts.value("triton.version") == "3.6.0"  # of the folder that does not have it
    assert facts.value("moe.down.source") == "up"
    assert isinstance(facts.get("moe.down.triton"), Unknown)


def test_four_ranks_that_say_the_same_are_one_fact() -> None:
    facts = logs.read(logs.SCENARIO.read_bytes(), SUBOPTIMAL)
    up = facts.get("moe.up.source")
    assert isinstance(up, Known)
    assert (up.value, up.count, up.provenance[0].place) == ("default", 4, "server.log:6")
    assert facts.matches["MOE"].count == 8
    assert facts.matches["MOE"].ranks == ("TP0", "TP1", "TP2", "TP3")
    assert facts.value("log.ranks") == 4
    assert facts.value("gpu.name") == "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert facts.value("kv.tokens") == 1188352
    assert facts.value("kv.max_running_requests") == 26
    assert facts.value("memory.available_gb") == 8.71
    assert facts.value("memory.weights_gb") == 58.92


@pytest.mark.parametrize(
    ("name", "fatal", "line"),
    [
        (
            "mem-fraction-too-small",
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            65,
        ),
        (
            "moe-config-dir-missing",
            "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/nonexistent/configs'",
            158,
        ),
        ("unknown-flag", "sglang serve: error: unrecognized arguments: --enable-turbo-mode", 347),
    ],
)
def test_death_at_start(name: str, fatal: str, line: int) -> None:
    facts = logs.read(logs.captured(name))
    assert facts.value("log.died") is True
    assert facts.value("log.ready") is False
    assert facts.value("log.has_start") is True
    told = facts.get("log.fatal")
    assert isinstance(told, Known)
    assert (told.value, told.provenance[0].place) == (fatal, f"server.log:{line}")


def test_death_before_the_first_record() -> None:
    facts = logs.read(logs.captured("context-too-long"))
    assert facts.value("log.died") is True
    assert facts.value("log.fatal").startswith(
        "ValueError: Warning: User-specified context_length (100000) is greater"
    )
    assert facts.value("log.records") > 0
    assert facts.value("log.has_start") is True


def test_the_lookup_that_dies() -> None:
    facts = logs.read(logs.captured("moe-config-dir-missing"))
    assert facts.value("moe.lookup_error") == facts.value("log.fatal")
    assert facts.value("moe.config_matters") is True


@pytest.mark.parametrize("name", ["kv-pool-full", "api-key-set", "moe-no-config", "health-503-startup"])
def test_a_server_stopped_on_request_did_not_die(name: str) -> None:
    facts = logs.read(logs.captured(name))
    assert facts.value("log.stopped") is True
    assert facts.value("log.died") is False
    assert facts.value("log.fatal", "unknown") is None


def test_starting() -> None:
    compiling = logs.read(logs.captured("deepgemm-warmup-slow"))
    assert compiling.value("log.deepgemm_compiling") is True
    assert compiling.value("log.ready") is False
    assert compiling.value("log.died") is False
    assert compiling.value("log.starting_seconds") == 102.0
    assert compiling.value("model.quantization") == "fp8"
    probed = logs.read(logs.captured("health-503-startup"), PATTERNS)
    assert probed.value("log.listening") is True
    assert probed.value("log.ready") is False
    assert probed.value("log.deepgemm_compiling") is False
    assert probed.matches["HEALTH"].groups == {"status": "503"}
    assert "START" not in probed.matches
    assert "START" in probed.patterns_sought


def test_retractions_and_the_load_of_the_last_minutes() -> None:
    facts = logs.read(logs.captured("kv-pool-full"), {"FULL": r"KV cache pool is full\."})
    assert facts.value("log.retractions") == 16
    assert facts.value("log.retractions_peak") == 16
    assert facts.matches["FULL"].count == 16
    assert facts.value("log.decode_batches") == 66
    assert facts.value("log.decode_without_graph") == 0.0
    assert 0.5 < facts.value("log.token_usage") < 0.6
    assert facts.value("log.queued_requests") > 20
    assert facts.value("log.accept_length", "unknown") is None


def test_the_api_key_stays_in_the_log() -> None:
    facts = logs.read(logs.captured("api-key-set"), PATTERNS)
    assert facts.value("arg.api_key") == "<redacted>"
    assert facts.value("arg.host") == "0.0.0.0"
    assert facts.matches["KEY"].groups == {"key": "<redacted>"}
    assert "api_key='k'" not in facts.matches["KEY"].text


def test_arguments_in_effect() -> None:
    facts = logs.read(logs.captured("allreduce-fusion-tp1"))
    flag = facts.get("arg.enable_flashinfer_allreduce_fusion")
    assert isinstance(flag, Known)
    assert (flag.value, flag.provenance[0].source, flag.provenance[0].place) == (True, "log", "server.log:8")
    assert facts.value("arg.cuda_graph_bs")[:4] == [1, 2, 4, 8]
    assert facts.value("log.release") == "0.5.12 or 0.5.12.post1"
    assert any("taken as 0.5.12" in note for note in facts.notes)


@pytest.mark.parametrize("form", logs.SAME_LINES)
@pytest.mark.parametrize(
    "name", ["moe-no-config", "mem-fraction-too-small", "unknown-flag", "context-too-long"]
)
def test_whatever_carried_the_log(form: str, name: str) -> None:
    plain = logs.captured(name)
    carried = logs.SAME_LINES[form](plain)
    expected, found = logs.read(plain, PATTERNS), logs.read(carried, PATTERNS)
    ignored = {"log.records", "log.starting_seconds"}
    assert {k: v for k, v in logs.values(found).items() if k not in ignored} == {
        k: v for k, v in logs.values(expected).items() if k not in ignored
    }
    assert {code: (match.count, match.place, match.groups) for code, match in found.matches.items()} == {
        code: (match.count, match.place, match.groups) for code, match in expected.matches.items()
    }


@pytest.mark.parametrize("name", ["moe-no-config", "kv-pool-full", "allreduce-fusion-tp1"])
def test_lines_broken_by_a_runtime_or_a_terminal(name: str) -> None:
    plain = logs.captured(name)
    expected = logs.values(logs.read(plain), places=False)
    for broken in (logs.cri(plain), logs.wrapped(plain, 160), logs.wrapped(plain, 211)):
        found = logs.values(logs.read(broken), places=False)
        same = {key for key in expected if not key.startswith("log.")}
        assert {key: found.get(key) for key in same} == {key: expected[key] for key in same}
    assert logs.read(logs.wrapped(plain, 160)).value("log.ready") is True


def test_milliseconds() -> None:
    plain = logs.captured("kv-pool-full")
    assert logs.values(logs.read(logs.milliseconds(plain))) == logs.values(logs.read(plain))


@pytest.mark.parametrize(
    "name", ["moe-no-config", "mem-fraction-too-small", "kv-pool-full", "moe-config-dir-missing"]
)
def test_newest_first(name: str) -> None:
    plain = logs.before(f"ERROR {logs.NANOSECONDS} ")(logs.captured(name))
    lines = plain.removesuffix(b"\n").split(b"\n")
    found = logs.read(b"\n".join(reversed(lines)) + b"\n", PATTERNS)
    expected = logs.read(plain, PATTERNS)
    assert logs.values(found, places=False) == logs.values(expected, places=False)
    for code, match in expected.matches.items():
        line = int(match.place.rpartition(":")[2])
        assert found.matches[code].place == f"server.log:{len(lines) + 1 - line}"
        assert found.matches[code].count == match.count


@pytest.mark.parametrize("name", logs.CAPTURED)
def test_the_same_however_the_bytes_arrive(name: str) -> None:
    data = logs.captured(name)
    whole = logs.read(data, PATTERNS)
    for chunk in (997, 4096):
        parts = logs.read(data, PATTERNS, chunk=chunk)
        assert logs.values(parts) == logs.values(whole)
        assert parts.matches == whole.matches
        assert parts.notes == whole.notes


FRAGMENTS = [
    b"[2026-11-30 05:12:01] ",
    b"[2026-11-30 05:12:01.042 DP0 TP1] ",
    b"server_args=ServerArgs(model_path='/m', tp_size=2)",
    b"server_args={'api_key': 'secret', 'x': <object>",
    b"'sglang serve' is the recommended entrypoint",
    b'  File "x.py", line 1, in prepare_server_args',
    b'  File "/x/sglang/launch_server.py", line 7, in <module>',
    b"    from sglang.srt.server_args import prepare_server_args",
    b"Using default MoE kernel config. Performance might be sub-optimal! Config file not found at ",
    b"/x/sglang/srt/configs/triton_3_6_0/E=1,N=2,device_name=NVIDIA_H200.json, you can",
    b"The server is fired up and ready to roll!",
    b"Decode batch, #running-req: 1, cuda graph: False, gen throughput (token/s): nan, #queue-req: x",
    b"Scheduler hit an exception: Traceback (most recent call last):",
    b'  File "x.py", line 1',
    b"RuntimeError: no",
    b"Received sigquit from a child process.",
    b"\x1b[31m",
    b"\0",
    b"\r",
    b"\r\n",
    b"\n",
    b"\n",
    b"\\n",
    b'{"log":"',
    b'\\n","stream":"stderr"}',
]
PIECES = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=20)), max_size=40).map(b"".join)


@given(data=PIECES, chunk=st.integers(1, 200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_in_any_chunks(data: bytes, chunk: int) -> None:
    whole, parts = logs.read(data, PATTERNS), logs.read(data, PATTERNS, chunk=chunk)
    assert logs.values(parts) == logs.values(whole)
    assert parts.matches == whole.matches
    assert "secret" not in str(logs.values(whole)) + str(whole.matches)


def test_a_log_that_is_not_sglangs_decides_nothing() -> None:
    others = {
        "random": bytes(range(256)) * 200,
        "nginx": b'10.0.0.1 - - [30/Nov/2026:05:07:50 +0000] "GET / HTTP/1.1" 200 612 "-" "curl/8.5.0"\n'
        * 50,
        "vLLM": b"INFO 11-30 05:07:50 [gpu_model_runner.py:1] Starting to load model Qwen/Qwen3-8B...\n"
        b"(EngineCore pid=7) INFO 11-30 05:07:59 [kv_cache_utils.py:2] GPU KV cache size: 1,024 tokens\n"
        b"WARNING 11-30 05:07:59 [fp8_utils.py:3] Using default W8A8 Block FP8 kernel config. Performance might be "
        b"sub-optimal! Config file not found at /x/N=1,K=2,device_name=NVIDIA_H200,dtype=fp8_w8a8.json\n"
        b"WARNING 11-30 05:07:59 [fused_moe.py:4] Using default MoE config. Performance might be sub-optimal! "
        b"Config file not found at /x/configs/E=8,N=2,device_name=NVIDIA_H200.json\n"
        b"INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)\n"
        b"torch.OutOfMemoryError: CUDA out of memory.\n",
        "PHP": b"[2026-11-30 05:07:50] production.ERROR: Undefined variable $x\n" * 5,
    }
    for name, data in others.items():
        facts = Facts()
        with pytest.raises(Undecided, match="no record of SGLang's"):
            read_logs(facts, [logs.of_bytes(data, name)], {"OOM": "CUDA out of memory"})
        assert facts.value("log.records") == 0
        assert facts.matches == {}
        assert not facts.known("log.died")


def test_of_logs_that_say_nothing_each_is_named_with_what_is_in_it() -> None:
    given = [logs.of_bytes(b"", "node0.log"), logs.of_bytes(b"hello\n", "node1.log")]
    with pytest.raises(Undecided, match=r"^node0.log: is empty; node1.log: no record of SGLang's in it$"):
        read_logs(Facts(), given, {})


def test_ranks_that_retract_the_same_requests_count_once() -> None:
    line = "[2026-11-30 05:4{minute}:33 {ranks}] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new"
    said = [
        line.format(minute=minute, ranks=f"DP{dp} TP{2 * dp + tp} EP{2 * dp + tp}")
        for minute in (1, 1, 2)
        for dp in (0, 1)
        for tp in (0, 1)
    ]
    facts = logs.read("\n".join(said).encode())
    assert facts.value("log.retractions") == 18
    assert facts.value("log.retractions_peak") == 2


def test_what_was_understood_is_said() -> None:
    facts = logs.read(b"something else\n" * 3 + logs.captured("moe-no-config"))
    assert "server.log: 197 of 200 lines recognized, grammar of 0.5.12 or 0.5.12.post1" in facts.notes


def test_the_end_of_a_log_alone() -> None:
    end = logs.captured("kv-pool-full").splitlines(keepends=True)[100:]
    facts = logs.read(b"".join(end))
    assert facts.value("log.has_start") is False
    assert not facts.known("arg.model_path")
    assert facts.value("log.retractions") == 16


def test_a_restarted_container_is_told_by_its_last_start() -> None:
    broken = logs.captured("mem-fraction-too-small")
    facts = logs.read(broken + broken + logs.captured("kv-pool-full"), {"OOM": "Not enough memory"})
    assert facts.value("log.starts") == 3
    assert facts.value("log.ready") is True
    assert facts.value("log.died") is False
    assert facts.value("arg.max_total_tokens") == 8192
    assert facts.value("arg.mem_fraction_static") == 0.5
    assert "OOM" not in facts.matches
    ended = logs.read(logs.captured("kv-pool-full") + broken)
    assert ended.value("log.died") is True
    assert ended.value("log.ready") is False


def test_two_nodes() -> None:
    record = "[2026-11-30 05:12:0{n} TP{n}] Load weight end. elapsed=9.00 s, type=XForCausalLM, avail mem=1.00 GB, mem usage=2.00 GB."
    banner = "[2026-11-30 05:12:00] server_args=ServerArgs(model_path='/m', tp_size=16, node_rank={n}, random_seed={n}{n})"
    second, first = (
        "\n".join(line.format(n=number) for line in (banner, record)).encode() for number in (1, 0)
    )
    facts = Facts()
    sources = [logs.of_bytes(second, "node1.log"), logs.of_bytes(first, "node0.log")]
    read_logs(facts, sources, {"LOADED": "Load weight end"})
    assert facts.value("arg.node_rank") == 0
    assert facts.value("log.ranks") == 2
    assert facts.matches["LOADED"].count == 2
    assert facts.matches["LOADED"].ranks == ("TP0", "TP1")
    assert facts.conflicts == []


def test_one_log_of_two_is_empty() -> None:
    facts = Facts()
    with pytest.raises(Undecided, match=r"^node1\.log: "):
        read_logs(facts, [logs.of_bytes(logs.captured("moe-no-config")), logs.of_bytes(b"", "node1.log")], {})
    assert facts.value("log.ready") is True


def test_a_bad_pattern_is_the_rule_authors() -> None:
    with pytest.raises(UsageError, match="the log pattern of X1 is not an RE2 pattern: "):
        logs.read(b"", {"X1": r"(?!look-around)"})


def test_files(tmp_path: Path) -> None:
    data = logs.captured("moe-no-config")
    packed = tmp_path / "server.log.gz"
    packed.write_bytes(gzip.compress(data))
    facts, expected = Facts(), logs.read(data)
    read_logs(facts, [source(str(packed))], {})
    assert logs.values(facts, places=False) == logs.values(expected, places=False)
    place = facts.get("moe.up.source")
    assert isinstance(place, Known)
    assert place.provenance[0].place == f"{packed}:37"

    packed.write_bytes(gzip.compress(data)[:-4000])
    cut = Facts()
    read_logs(cut, [source(str(packed))], {})
    assert cut.value("arg.model_path") == "/models/moe-e256-n256"
    assert any("cut off" in note for note in cut.notes)


def test_sixteen_thousand_hits_are_counted_to_the_last() -> None:
    start = logs.captured("kv-pool-full").split(b"[2026-11-30 05:49:32] Decode")[0]
    decode = b"[2026-11-30 05:50:00 TP0] Decode batch, #running-req: 1, cuda graph: False, #queue-req: 0\n"
    bar = b"  0%|  | 0/2\rcuda graph: False\rcuda graph: False\n"  # one line, however often
    data = start + (decode * 3 + bar + b"[2026-11-30 05:50:01] something else\n") * 4000
    for chunk in (1 << 20, 5000):
        facts = logs.read(
            data, {"GRAPH": "cuda graph: False", "END": r"#queue-req: 0$", "ALL": "."}, chunk=chunk
        )
        assert facts.matches["GRAPH"].count == 16000 + start.count(b"cuda graph: False")
        assert facts.matches["END"].count == 12000
        assert facts.matches["ALL"].count == sum(bool(line.strip()) for line in data.split(b"\n"))
        assert facts.matches["GRAPH"].ranks == ("TP0",)


def test_a_server_that_retracts_all_the_time() -> None:
    start = logs.captured("kv-pool-full").split(b"[2026-11-30 05:49:32] Decode")[0]
    lines = [
        f"[2026-11-30 06:{minute:02}:{second:02} TP{rank}] KV cache pool is full. Retract requests. "
        "#retracted_reqs: 2, #new_tokens_gained: 333\n"
        for minute in range(30)
        for second in (*range(60), 59)
        for rank in (0, 1)
    ]
    data = start + "".join(lines).encode()
    for chunk in (1 << 20, 7000):
        facts = logs.read(data, {"FULL": "Retract requests"}, chunk=chunk)
        assert facts.value("log.retractions") == 2 * 30 * 61
        assert facts.value("log.retractions_peak") == 61
        assert facts.matches["FULL"].count == 2 * 30 * 61
        again = logs.read(data + start + lines[0].encode(), chunk=chunk)
        assert again.value("log.retractions") == 2
