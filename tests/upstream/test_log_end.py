"""How logs end: alive, stopped, dead, and of what."""

# ruff: noqa: E501 (log lines are as long as they are)
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.upstream.log_end import End, Line, end_of

SIGQUIT = "| Received sigquit from a child process. It usually means the child failed."
FRAMES = [
    "Traceback (most recent call last):",
    '  File "/x/sglang/srt/managers/scheduler.py", line 4040, in run_scheduler_process',
    "    scheduler.event_loop_overlap()",
]
IN_SCHEDULER = ["| Scheduler hit an exception: Traceback (most recent call last):", *FRAMES[1:]]


def end(*lines: str) -> End:
    """Say how a log ends; ``| `` stands for SGLang's prefix."""
    numbered = enumerate(lines, 1)
    return end_of(Line(number, text.removeprefix("| "), text.startswith("| ")) for number, text in numbered)


def test_a_running_server() -> None:
    assert end() == End()
    assert end("| The server is fired up and ready to roll!", "| Decode batch, #running-req: 1") == End()


def test_a_scheduler_that_raises_ends_the_server() -> None:
    died = end(
        *IN_SCHEDULER,
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "",
        SIGQUIT,
    )
    assert died.died
    assert died.fatal == "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    assert (died.line, died.early, died.stopped) == (4, False, False)


def test_a_warm_up_request_that_fails_ends_the_server() -> None:
    died = end(
        "| Initialization failed. warmup error: Traceback (most recent call last):",
        '  File "/x/sglang/srt/entrypoints/http_server.py", line 1979, in _execute_server_warmup',
        '    assert res.status_code == 200, f"{res.text}"',
        "AssertionError: Internal Server Error",
    )
    assert died.died
    assert died.fatal == "AssertionError: Internal Server Error"


def test_the_first_rank_s_exception_is_the_cause() -> None:
    died = end(
        *IN_SCHEDULER,
        "ValueError: cause",
        "",
        *IN_SCHEDULER,
        "EOFError",
        "",
        SIGQUIT,
        *FRAMES,
        "RuntimeError: x",
    )
    assert died.fatal == "ValueError: cause"


def test_other_ranks_go_on_for_a_moment() -> None:
    died = end(
        *IN_SCHEDULER,
        "ValueError: cause",
        "| Decode batch, #running-req: 1",
        "| SIGQUIT received. signum=None, frame=None.",
    )
    assert (died.died, died.fatal) == (True, "ValueError: cause")


def test_a_traceback_that_another_rank_s_record_interrupts() -> None:
    died = end(
        *IN_SCHEDULER,
        "| Prefill batch, #new-seq: 1",
        '  File "y.py", line 2, in g',
        "    f(",
        "KeyError: 'a'",
        SIGQUIT,
    )
    assert died.fatal == "KeyError: 'a'"


def test_an_exception_raised_because_of_another() -> None:
    died = end(
        *IN_SCHEDULER,
        "KeyError: 'qwen9'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *FRAMES,
        "ValueError: The checkpoint you are trying to load has model type `qwen9`",
        "",
        SIGQUIT,
    )
    assert (
        died.fatal
        == "KeyError: 'qwen9'; then ValueError: The checkpoint you are trying to load has model type `qwen9`"
    )
    assert died.line == 4


def test_an_exception_of_another_process() -> None:
    died = end(
        *IN_SCHEDULER,
        "concurrent.futures.process._RemoteTraceback: ",
        '"""',
        *FRAMES,
        "OSError: no space left",
        '"""',
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *FRAMES,
        "OSError: no space left",
        SIGQUIT,
    )
    assert died.fatal == "OSError: no space left"


def test_death_before_the_processes_are_up() -> None:
    died = end(
        "/x/sglang/launch_server.py:54: UserWarning: 'python -m'",
        *FRAMES,
        "ValueError: too long",
        "a second line of it",
    )
    assert (died.died, died.early, died.fatal, died.line) == (True, True, "ValueError: too long", 5)


@pytest.mark.parametrize(
    "before", ["| ERROR:    Exception in ASGI application", "Exception in thread Thread-1 (run):"]
)
def test_an_exception_that_ends_a_request_or_a_thread_ends_no_server(before: str) -> None:
    assert not end(before, *FRAMES, "ValueError: bad request").died


def test_an_exception_that_the_server_survives() -> None:
    assert not end(*FRAMES, "ValueError: once", "| Decode batch, #running-req: 1").died
    assert not end(
        "| Failed to load x: Traceback (most recent call last):", *FRAMES[1:], "ImportError: x"
    ).died


@pytest.mark.parametrize(
    ("line", "fatal"),
    [
        (
            "| Subprocess scheduler_0 (pid=569) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
            "Subprocess scheduler_0 (pid=569) crashed with exit code -9",
        ),
        (
            "| Rank 0 scheduler is dead. Please check if there are relevant logs.",
            "Rank 0 scheduler is dead. Please check if there are relevant logs.",
        ),
        (
            "| Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
            "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        ),
        ("Fatal Python error: Segmentation fault", "Fatal Python error: Segmentation fault"),
        ("Killed", "Killed"),
        ("Segmentation fault (core dumped)", "Segmentation fault (core dumped)"),
        (
            "start.sh: line 3:    17 Killed                  python3 -m sglang.launch_server",
            "start.sh: line 3:    17 Killed                  python3 -m sglang.launch_server",
        ),
    ],
)
def test_last_words(line: str, fatal: str) -> None:
    died = end("| Decode batch, #running-req: 1", line, SIGQUIT)
    assert (died.died, died.fatal) == (True, fatal)


def test_killed_without_a_word() -> None:
    assert end("| Decode batch, #running-req: 1", SIGQUIT) == End(died=True, line=2)


def test_a_soft_watchdog_ends_nothing() -> None:
    assert not end("| Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)").died


def test_the_parent_s_own_exception_names_the_exit_code() -> None:
    message = "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL)"
    assert end("| Load weight begin. avail mem=1.00 GB", *FRAMES, message).fatal == message


@pytest.mark.parametrize(
    ("lines", "fatal"),
    [
        (
            [
                "usage: sglang serve [-h] --model-path MODEL_PATH",
                "sglang serve: error: unrecognized arguments: --x",
            ],
            "sglang serve: error: unrecognized arguments: --x",
        ),
        (["launch_server.py: error: argument --tp: invalid int value: 'x'"],) * 2,
    ],
)
def test_arguments_that_argparse_refuses(lines: list[str], fatal: str | list[str]) -> None:
    died = end(*lines)
    assert (died.died, died.early) == (True, True)
    assert died.fatal == (fatal if isinstance(fatal, str) else fatal[0])


def test_another_program_s_error_is_not_the_server_s() -> None:
    assert not end("| Decode batch", "curl: error: no such host").died


@pytest.mark.parametrize(
    "word",
    [
        "| SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
        "| INFO:     Shutting down",
    ],
)
def test_stopped_on_request(word: str) -> None:
    stopped = end(
        word,
        "| Decode batch, #running-req: 1",
        "| Subprocess detokenizer (pid=664) crashed with exit code -15. Triggering SIGQUIT for cleanup...",
        "| SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    )
    assert stopped == End(stopped=True)


def test_what_was_before_a_start_is_over() -> None:
    assert end(*IN_SCHEDULER, "ValueError: x", SIGQUIT, "| server_args=ServerArgs(model_path='x')") == End()


def test_the_config_lookup() -> None:
    frame = '  File "/x/moe_runner/triton_utils/fused_moe_triton_config.py", line 102, in get_moe_configs'
    died = end(
        *IN_SCHEDULER, frame, "FileNotFoundError: [Errno 2] No such file or directory: '/x/configs'", SIGQUIT
    )
    assert died.in_moe_lookup


@pytest.mark.parametrize(
    ("lines", "compiling"),
    [
        (["| Try DeepGEMM JIT Compiling for <F>", "DeepGEMM warmup:   2%|▏| 385/16384"], True),
        (
            [
                "DeepGEMM warmup:   2%|▏",
                '| INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable',
            ],
            True,
        ),
        (["DeepGEMM warmup: 100%|█", "| Capture cuda graph end. Time elapsed: 1.00 s."], False),
        (["DeepGEMM warmup: 100%|█", "| Decode batch, #running-req: 1"], False),
    ],
)
def test_compiling(lines: list[str], compiling: bool) -> None:  # noqa: FBT001
    assert end(*lines).deepgemm is compiling


@given(
    st.lists(
        st.sampled_from(
            [
                *IN_SCHEDULER,
                *FRAMES,
                SIGQUIT,
                "ValueError: x",
                "",
                "| Decode batch",
                "Killed",
                "usage: x",
                "x: error: y",
            ]
        )
    )
)
def test_a_fatal_word_means_death(lines: list[str]) -> None:
    found = end(*lines)
    assert found.died or found.fatal is None
    assert not (found.died and found.stopped)
    if found.fatal:
        assert found.line is not None
        assert found.fatal.split("; then ")[0] in lines[found.line - 1]
