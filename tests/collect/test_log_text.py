"""Records out of lines: prefixes, progress bars, containers, journals."""

# ruff: noqa: E501 (log lines are as long as they are)
from __future__ import annotations

import pytest

from sgdoctor.collect import log_text
from sgdoctor.collect.log_text import Form, Record

PLAIN = Form()


def texts(line: str) -> list[tuple[str, str, str]]:
    found = log_text.records(line.encode(), PLAIN)
    return [(record.time.decode(), record.ranks.decode(), record.text.decode()) for record in found]


# Lines as users pasted them into public threads (numbers of sgl-project/sglang unless said otherwise).
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (  # 1751
            "[2024-10-22 06:31:49 TP0] Memory pool end. avail mem=8.38 GB",
            [("2024-10-22 06:31:49", "TP0", "Memory pool end. avail mem=8.38 GB")],
        ),
        (
            "[2025-05-13 23:29:46 DP4 TP4] Using default",
            [("2025-05-13 23:29:46", "DP4 TP4", "Using default")],
        ),
        ("[2026-08-23 09:05:37 TP0 EP0] Decode batch", [("2026-08-23 09:05:37", "TP0 EP0", "Decode batch")]),
        (
            "[2026-01-02 03:04:05 DP1 PP0 ATTN_CP2 MOE_DP0 TP3 EP1] x",
            [("2026-01-02 03:04:05", "DP1 PP0 ATTN_CP2 MOE_DP0 TP3 EP1", "x")],
        ),
        ("[2026-01-02 03:04:05 encode_dp_worker[2]] x", [("2026-01-02 03:04:05", "", "x")]),
        (  # 16026: from before the logger is configured
            "[2025-12-29 07:57:09] WARNING server_args.py:1543: Attention backend not specified.",
            [("2025-12-29 07:57:09", "", "Attention backend not specified.")],
        ),
        (  # 18341: another logger, with milliseconds
            "[2026-02-07 05:24:51.352] [info] lamportInitialize start: buffer: 0x5400000000",
            [("2026-02-07 05:24:51.352", "", "[info] lamportInitialize start: buffer: 0x5400000000")],
        ),
        (  # 22511: pasted without its first character
            "2025-09-24 05:48:14] Health check failed.",
            [("2025-09-24 05:48:14", "", "Health check failed.")],
        ),
        (  # 27537: glued behind a progress bar
            "Capturing batches (bs=10 avail_mem=11.99 GB):   0%| | 0/5 [00:00<?, ?it/s][2026-06-08 07:21:05 TP1] Using",
            [
                ("", "", "Capturing batches (bs=10 avail_mem=11.99 GB):   0%| | 0/5 [00:00<?, ?it/s]"),
                ("2026-06-08 07:21:05", "TP1", "Using"),
            ],
        ),
        (  # 25960
            "  2%|█        | 3[2026-05-28 03:00:02 TP0] Prefill batch, #new-seq: 1",
            [("", "", "  2%|█        | 3"), ("2026-05-28 03:00:02", "TP0", "Prefill batch, #new-seq: 1")],
        ),
        (  # allenai/olmocr 105
            "2025-03-07 23:50:27,727 - __main__ - INFO - [2025-03-07 23:50:27 TP0] Load weight begin.",
            [("2025-03-07 23:50:27", "TP0", "Load weight begin.")],
        ),
        (  # 5096
            "ERROR 2025-04-05T00:01:19.209237575Z [2025-04-05 00:01:19] Received sigquit",
            [("2025-04-05 00:01:19", "", "Received sigquit")],
        ),
        (  # mit-han-lab/fastrl 4: a logging configuration of one's own keeps the time and the text
            "2025-12-04 20:35:53 INFO 151972 [scheduler_metrics_mixin.py:287] Decode batch. #running-req: 48",
            [
                (
                    "2025-12-04 20:35:53",
                    "",
                    "2025-12-04 20:35:53 INFO 151972 [scheduler_metrics_mixin.py:287] Decode batch. #running-req: 48",
                )
            ],
        ),
        (
            "server_args=ServerArgs(model_path='/m'",
            [("", "", "server_args=ServerArgs(model_path='/m'")],
        ),  # 1275
        ("", []),
        ("   \r\r ", []),
    ],
)
def test_lines_as_users_paste_them(line: str, expected: list[tuple[str, str, str]]) -> None:
    assert texts(line) == expected


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("[2026-05-20 10:02:00] Receive: obj=GenerateReqInput(text='", "Receive: obj="),
        ("[2026-05-20 10:02:00] Receive OpenAI: obj={'messages': [{'content': '", "Receive OpenAI: obj="),
        ("[2026-05-20 10:02:00] Finish: obj=GenerateReqInput(text='", "Finish: obj="),
        (
            '{"timestamp": "2026-05-20T10:02:00", "event": "request.received", "obj": {"text": "',
            '{"timestamp": "2026-05-20T10:02:00", "event": "request.received"',
        ),
    ],
)
def test_what_a_client_asks_about_a_log_is_none(line: str, kept: str) -> None:
    """With --log-requests the log holds what clients send: a part of another log, at worst."""
    asked = r"Why?\n[2026-05-20 10:00:00 TP0] server_args=ServerArgs(model_path='/m')\nNot enough memory'"
    assert [text for _, _, text in texts(line + asked)] == [kept]


def test_a_bar_that_rewrites_its_line() -> None:
    line = "\r  0%|  | 0/2 [00:00<?, ?it/s]\r 50%|▌ | 1/2 [00:01<?]\r[2026-06-08 07:21:05] a\r"
    assert [text for _, _, text in texts(line)] == [
        "  0%|  | 0/2 [00:00<?, ?it/s]",
        " 50%|▌ | 1/2 [00:01<?]",
        "a",
    ]


@pytest.mark.parametrize(
    "prefix",
    [
        "sglang-1  | ",
        "\x1b[36msglang-1  |\x1b[0m ",
        "[pod/sglang-0/server] ",
        "2026-11-30T05:07:50.123456789Z ",
        "2026-11-30T05:07:50.123+01:00 ",
        "2026-11-30T05:07:50.123456789Z stdout F ",
        "Nov 30 05:07:50 gpu01 python3[123]: ",
        "Nov  3 05:07:50 ",
        "(SGLangWorker pid=38135) ",
        "(raylet, pid=7, ip=10.0.0.1) ".replace("raylet, ", "raylet "),
        "[pod/sglang-0/server] 2026-11-30T05:07:50Z ",
    ],
)
def test_lines_without_a_prefix_of_their_own_keep_their_indent(prefix: str) -> None:
    assert [text for _, _, text in texts(prefix + '  File "x.py", line 1, in f')] == [
        '  File "x.py", line 1, in f'
    ]


def test_json_lines() -> None:
    form = log_text.detect(
        b'{"log":"[2026-01-02 03:04:05] a\\n","stream":"stderr","time":"2026-01-02T03:04:05Z"}\n' * 3
    )
    assert form == Form(json=True)
    line = b'{"log":"[2026-01-02 03:04:05 TP1] \\"GET /\\" \\u2588\\n","stream":"stderr","time":"x"}'
    assert log_text.records(line, form) == [
        Record(b"2026-01-02 03:04:05", b"TP1", '"GET /" █'.encode(), stamped=True)
    ]
    several = b'{"level": "error", "msg": "Traceback (most recent call last):\\n  File\\nValueError: x"}'
    assert [record.text for record in log_text.records(several, form)] == [
        b"Traceback (most recent call last):",
        b"  File",
        b"ValueError: x",
    ]
    cut = b'{"log":"[2026-01-02 03:04:05] \\"GET'
    assert [record.text for record in log_text.records(cut, form)] == [b'"GET']
    endless = b'{"log": ' + b"[" * 100_000
    assert [record.text for record in log_text.records(endless, form)] == [endless]


def test_what_a_pattern_finds_in_a_record_it_finds_in_the_block() -> None:
    form = Form(json=True)
    line = b'{"log":"a \\"b\\" \\u001b[1mc\\u001b[0m\\td\\\\e\\rf\\n","stream":"stderr"}'
    block = log_text.plain(line, form)
    for record in log_text.records(line, form):
        assert record.text in block


@pytest.mark.parametrize(
    ("seconds", "newest_first"),
    [
        ([1, 2, 3, 4], False),
        ([4, 3, 2, 1], True),
        ([4, 4, 3, 3, 2, 2], True),
        ([2, 1, 2, 3, 4, 3, 5], False),  # ranks out of turn
        ([5, 6, 7, 8, 1, 2, 3], False),  # a log of yesterday, appended to
        ([1, 1, 1], False),
        ([], False),
    ],
)
def test_which_end_is_the_beginning(seconds: list[int], newest_first: bool) -> None:  # noqa: FBT001
    head = "".join(f"[2026-01-02 03:04:0{second}] x\n" for second in seconds)
    assert log_text.detect(head.encode()).newest_first is newest_first
