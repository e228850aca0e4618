"""Logs that hold several starts of a server: what is told is the last start's alone."""

# ruff: noqa: E501 (log lines are as long as they are)
from __future__ import annotations

import re
from pathlib import Path

import pytest

import sgdoctor
from tests.collect import logs
from tests.collect.test_log_facts import default

SOUGHT = {
    "MEMORY": r"Not enough memory\. Please try to increase",
    "FILES": r"Fail to set RLIMIT_NOFILE",  # printed before the banner
    "GRAPH": r"cuda graph: True",
    "FULL": r"KV cache pool is full",
    "CONTEXT": r"User-specified context_length",
    "TRANSFER": r"KVTransferError\(bootstrap_room=\d+\): (?P<reason>\w+)",
}
HEALTHY = logs.captured("kv-pool-full")
DIED = logs.captured("mem-fraction-too-small")
REFUSED = logs.captured("context-too-long")
BANNER = "[2026-11-30 06:12:{second:02}] server_args=ServerArgs(model_path='/m', tp_size=2, nnodes={nodes}, node_rank={node}, random_seed={node})\n"
TRANSFER = "[2026-11-30 06:10:00] Decode transfer failed for request rank=0 decode_req.req.rid='b1f0' decode_req.req.bootstrap_room=7 with exception KVTransferError(bootstrap_room=7): Lost connection with prefill instance\n"


def banner(second: int = 0, *, node: int = 0, nodes: int = 1) -> str:
    return BANNER.format(second=second, node=node, nodes=nodes)


def served(log: bytes) -> bytes:
    """Return a log as `sglang serve` writes it: without the line about `python -m sglang.launch_server`."""
    return re.sub(rb"[^\n]*recommended entrypoint.*\n  Example.*\n  warnings\.warn\(\n", b"", log)


def codes(path: Path) -> set[str]:
    [deployment] = sgdoctor.check(logs=(str(path),)).deployments
    return {finding.code for finding in deployment.findings}


def test_three_dead_starts_and_then_a_healthy_one(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(3 * DIED + HEALTHY)
    facts = logs.read(log.read_bytes(), SOUGHT)
    assert facts.value("log.starts") == 4
    assert facts.value("log.died") is False
    assert "MEMORY" not in facts.matches
    assert "MEMORY" in facts.patterns_sought
    assert "server.log: the server starts 4 times; this is about the last" in facts.notes
    alone = tmp_path / "alone.log"
    alone.write_bytes(HEALTHY)
    assert codes(log) == codes(alone)
    assert "MEM104" not in codes(log)


def test_three_dead_starts_and_no_healthy_one(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(3 * DIED)
    facts = logs.read(log.read_bytes(), SOUGHT)
    assert facts.value("log.starts") == 3
    assert facts.value("log.died") is True
    assert (facts.matches["MEMORY"].count, facts.matches["MEMORY"].place) == (1, "server.log:199")
    assert "MEM104" in codes(log)


@pytest.mark.parametrize("form", ["plain", *logs.SAME_LINES])
@pytest.mark.parametrize("chunk", [1 << 20, 5000])
def test_what_is_printed_before_the_banner_is_of_its_start(form: str, chunk: int) -> None:
    data = logs.SAME_LINES.get(form, bytes)(DIED + HEALTHY)
    facts = logs.read(data, SOUGHT, chunk=chunk)
    line = DIED.count(b"\n") + 6
    assert (facts.matches["FILES"].count, facts.matches["FILES"].place) == (1, f"server.log:{line}")
    assert "MEMORY" not in facts.matches


def test_newest_first() -> None:
    plain = logs.before(f"ERROR {logs.NANOSECONDS} ")(DIED + HEALTHY)
    found = logs.read(b"\n".join(reversed(plain.removesuffix(b"\n").split(b"\n"))) + b"\n", SOUGHT)
    assert found.value("log.starts") == 2
    assert found.matches["FILES"].count == 1
    assert "MEMORY" not in found.matches


@pytest.mark.parametrize("earlier", [HEALTHY, DIED, REFUSED], ids=["stopped", "died", "refused"])
@pytest.mark.parametrize("form", [bytes, served], ids=["launch_server", "serve"])
def test_a_start_that_ends_at_its_arguments(earlier: bytes, form: type[bytes]) -> None:
    """It prints no banner, and ends all the same what is told of the start before."""
    facts = logs.read(form(earlier + REFUSED), SOUGHT)
    assert facts.value("log.starts") == 2
    assert facts.value("log.died") is True
    assert facts.value("log.stopped") is False
    assert facts.value("log.fatal").startswith("ValueError: Warning: User-specified context_length")
    assert facts.matches.keys() == {"CONTEXT"}
    assert facts.matches["CONTEXT"].count == 1
    assert not facts.known("arg.model_path")
    usage = logs.read(form(earlier + logs.captured("unknown-flag")), SOUGHT)
    assert usage.value("log.starts") == 2
    assert usage.value("log.fatal") == "sglang serve: error: unrecognized arguments: --enable-turbo-mode"
    assert usage.matches == {}
    healed = logs.read(form(REFUSED + earlier), SOUGHT)
    assert healed.value("log.starts") == 2
    assert healed.value("arg.model_path", None) == logs.read(earlier).value("arg.model_path", None)


def test_what_python_raised_at_last_is_told_and_not_what_it_raised_before() -> None:
    """Both ended at their arguments, for different reasons."""
    first = served(REFUSED).replace(b"User-specified context_length", b"something else")
    facts = logs.read(first + served(REFUSED), SOUGHT)
    assert "User-specified context_length" in facts.value("log.fatal")
    assert "something else" not in facts.value("log.fatal")


def test_a_rotated_log_begins_in_the_middle() -> None:
    middle = b"".join(HEALTHY.splitlines(keepends=True)[100:])
    alone = logs.read(middle, SOUGHT)  # no start shows: everything counts
    assert alone.value("log.has_start") is False
    assert alone.matches["FULL"].count == 16
    again = logs.read(middle + DIED, SOUGHT)
    assert again.value("log.has_start") is True
    assert again.value("log.starts") == 1
    line = middle.count(b"\n") + 1
    assert f"server.log:{line}: the server starts again here; what comes before is left out" in again.notes
    assert again.value("log.decode_batches") == 0
    assert again.matches.keys() == {"FILES", "MEMORY"}
    still_starting = middle + DIED[: DIED.index(b"Scheduler hit an exception")]
    assert logs.read(still_starting).value("log.starting_seconds") < 60


def test_the_load_and_the_ranks_of_an_earlier_start_are_gone() -> None:
    batch = "[2026-11-30 06:11:0{n} DP{n} TP{n}] Decode batch, #running-req: 9, #token: 9, token usage: 0.99, cuda graph: False, gen throughput (token/s): 12.00, #queue-req: 40\n"
    before = "".join(batch.format(n=n) for n in range(4))
    facts = logs.read(banner() + before + banner(30), SOUGHT)
    assert facts.value("log.decode_batches") == 0
    assert not facts.known("log.token_usage")
    assert facts.value("log.ranks") == 1


def test_data_parallel_ranks_are_one_start() -> None:
    """One process prints the banner, whatever --dp-size is."""
    lookup = default("E=8,N=2,device_name=NVIDIA_H200")
    said = "".join(f"[2026-11-30 06:13:0{n} DP{n} TP{n} EP{n}] {lookup}\n" for n in range(4))
    facts = logs.read(banner() + said, {"MOE": "Using default MoE kernel config"})
    assert facts.value("log.starts") == 1
    assert facts.matches["MOE"].count == 4
    assert facts.value("log.ranks") == 4


def test_nodes_that_share_a_log_are_one_start() -> None:
    """As under srun: each node prints a banner, the second one when the first has gone on."""
    begin = "[2026-11-30 06:12:09 TP{n}] Init torch distributed begin.\n"
    failed = (
        "[2026-11-30 06:12:10 TP0] Setup Custom allreduce failed with 0. To silence this warning, specify\n"
    )
    start = banner(nodes=2) + begin.format(n=0) + failed + banner(20, node=1, nodes=2) + begin.format(n=8)
    sought = {"FAILED": "Setup Custom allreduce failed"}
    facts = logs.read(start, sought)
    assert facts.value("log.starts") == 1
    assert facts.value("arg.node_rank") == 0
    assert facts.matches["FAILED"].count == 1
    again = logs.read(start + start.replace("Setup Custom", "Set up custom"), sought)
    assert again.value("log.starts") == 2
    assert again.matches == {}


@pytest.mark.parametrize("chunk", [1 << 20, 5000])
def test_what_was_counted_in_bulk_is_forgotten_too(chunk: int) -> None:
    batch = b"[2026-11-30 06:12:10 TP0] Decode batch, #running-req: 1, cuda graph: True, #queue-req: 0\n"
    many = banner().encode() + 5000 * batch + banner(30).encode()
    assert "GRAPH" not in logs.read(many, SOUGHT, chunk=chunk).matches
    facts = logs.read(many + 3 * batch, SOUGHT, chunk=chunk)
    assert (facts.matches["GRAPH"].count, facts.matches["GRAPH"].place) == (3, "server.log:5003")
    assert logs.read(many + 4000 * batch, SOUGHT, chunk=chunk).matches["GRAPH"].count == 4000


def test_the_last_words_of_a_server_that_was_killed_are_its_own() -> None:
    """Nothing says that it ended: what only a running server writes is not the next one's."""
    facts = logs.read(
        banner() + TRANSFER + "[2026-11-30 06:12:00] Fail to set RLIMIT_NOFILE: x\n" + banner(1), SOUGHT
    )
    assert facts.value("log.starts") == 1  # it does not look like two: nothing came after the banner
    begun = "[2026-11-30 06:05:00] Load weight begin. avail mem=138.40 GB\n"
    facts = logs.read(
        banner() + begun + TRANSFER + "[2026-11-30 06:12:00] Fail to set RLIMIT_NOFILE: x\n" + banner(30),
        SOUGHT,
    )
    assert facts.value("log.starts") == 2
    assert facts.matches.keys() == {"FILES"}


def test_the_release_is_that_of_the_last_start() -> None:
    """After an upgrade in place the lines before it are another release's."""
    old = "[2026-11-30 05:00:00] server_args=ServerArgs(model_path='/m')\n[2026-11-30 05:00:01] Load weight begin. avail mem=1.00 GB\n[2026-11-30 05:01:00] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=1.00 GB, mem usage=2.00 GB.\n"
    new = "[2026-11-30 06:00:00] server_args={'model_path': '/m', 'tp_size': 1}\n"
    facts = logs.read(old + new)
    assert facts.value("log.release") == ">=0.5.19"
    assert not any("more than one release" in note for note in facts.notes)


def test_two_nodes_whose_starts_show_before_their_banners_are_one_start() -> None:
    """`python -m sglang.launch_server` on both, before either has read its arguments."""
    mark = "/x/sglang/launch_server.py:54: UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.\n"
    facts = logs.read(mark + mark + banner(nodes=2) + banner(20, node=1, nodes=2))
    assert facts.value("log.starts") == 1


@pytest.mark.parametrize(
    "line", ['  File "x", line 1, in prepare_server_args', "usage: sglang serve [-h]", "server_args={'a': 1}"]
)
def test_many_starts_are_read_once_each(line: str) -> None:
    """Looking back from one ends at the one before: the time is not squared."""
    facts = logs.read(f"{line}\nLoad weight begin. avail mem=1 GB\n" * 5000, {"WEIGHTS": "avail mem"})
    assert facts.value("log.starts") == 5000
    assert facts.matches["WEIGHTS"].count == 1


# 0.5.12 on a machine where the kernel package lacks its CUDA library, started either way.
IMPORT_FAILS = """\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "<frozen runpy>", line 88, in _run_code
  File "/x/sglang/launch_server.py", line 7, in <module>
    from sglang.srt.server_args import prepare_server_args
  File "/x/sglang/srt/server_args.py", line 44, in <module>
    from sglang.srt.layers.attention.fla.chunk_delta_h import CHUNK_SIZE as FLA_CHUNK_SIZE
  File "/x/sgl_kernel/__init__.py", line 5, in <module>
    common_ops = _load_architecture_specific_ops()
ImportError: libnvrtc.so.{library}: cannot open shared object file: No such file or directory
"""
SERVE_FAILS = """\
Traceback (most recent call last):
  File "/usr/local/bin/sglang", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/x/sglang/cli/main.py", line 38, in main
    from sglang.cli.serve import serve
  File "/x/sglang/cli/serve.py", line 8, in <module>
    from sglang.srt.utils import kill_process_tree
  File "/x/sgl_kernel/__init__.py", line 5, in <module>
    common_ops = _load_architecture_specific_ops()
ImportError: libnvrtc.so.{library}: cannot open shared object file: No such file or directory
"""


@pytest.mark.parametrize("fails", [IMPORT_FAILS, SERVE_FAILS], ids=["launch_server", "serve"])
def test_an_upgrade_after_which_sglang_is_not_imported_any_more(tmp_path: Path, fails: str) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(HEALTHY + (fails.format(library=12) + fails.format(library=13)).encode())
    facts = logs.read(log.read_bytes(), {"LIBRARY": r"(?P<library>libnvrtc\.so\.\d+)"})
    assert facts.value("log.starts") == 3
    assert facts.value("log.died") is True
    assert facts.value("log.ready") is False
    assert facts.value("log.fatal").startswith("ImportError: libnvrtc.so.13")
    assert facts.matches["LIBRARY"].groups == {"library": "libnvrtc.so.13"}
    assert "ENV111" in codes(log)
    log.write_bytes(fails.format(library=13).encode() + HEALTHY)  # and after it was repaired
    assert "ENV111" not in codes(log)
    assert logs.read(log.read_bytes()).value("log.starts") == 2


def test_a_child_that_cannot_import_is_no_start() -> None:
    """A process that multiprocessing spawns imports the main module again."""
    child = IMPORT_FAILS.replace(
        '  File "<frozen runpy>"',
        '  File "/usr/lib/python3.12/multiprocessing/spawn.py", line 122, in spawn_main\n  File "<frozen runpy>"',
        1,
    )
    facts = logs.read(banner() + child.format(library=13))
    assert facts.value("log.starts") == 1
    assert facts.value("arg.model_path") == "/m"


def test_a_server_that_raises_in_its_main_process_is_no_start() -> None:
    raised = IMPORT_FAILS.replace(
        "from sglang.srt.server_args import prepare_server_args", "run_server(server_args)"
    )
    facts = logs.read(banner() + raised.format(library=13))
    assert facts.value("log.starts") == 1
    assert facts.value("log.died") is True
    assert facts.value("arg.model_path") == "/m"


def test_the_cause_of_what_ended_a_start_at_its_arguments_is_kept() -> None:
    refused = served(REFUSED).decode()
    cause = 'Traceback (most recent call last):\n  File "/x/y.py", line 1, in get\n    return found["x"]\nKeyError: \'x\'\n\nDuring handling of the above exception, another exception occurred:\n\n'
    assert (
        logs.read(HEALTHY.decode() + cause + refused)
        .value("log.fatal")
        .startswith("KeyError: 'x'; then ValueError")
    )
