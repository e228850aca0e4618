"""Which releases a log's wording fits."""

# ruff: noqa: E501 (log lines are as long as they are)
from __future__ import annotations

import pytest

from sgdoctor.upstream.log_release import Fit


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        (["something"], None),
        (["Load weight end. type=X, dtype=torch.bfloat16, avail mem=1.00 GB, mem usage=2.00 GB."], "<0.5.9"),
        (
            ["Load weight end. elapsed=1.00 s, type=X, dtype=torch.bfloat16, avail mem=1.00 GB"],
            ">=0.5.9,<0.5.10",
        ),
        (["KV Cache is allocated. dtype: torch.bfloat16, #tokens: 99, KV size: 1.00 GB"], ">=0.5.13"),
        (["Hybrid Cache VA upper bound. dtype: torch.bfloat16, #tokens: 99, KV size: 1.00 GB"], ">=0.5.18"),
        (
            [
                "KV Cache is allocated. #tokens: 99, KV size: 1.00 GB",
                (
                    "Prefill batch, #new-seq: 1, #queue-req: 0, #pending-token: 5, cuda graph: True, input throughput "
                    "(token/s): 559.53"
                ),
            ],
            ">=0.5.11,<0.5.13",
        ),
        (  # eugr/llama-benchy 15: posted on the day before 0.5.12, and from 0.5.9
            [
                (
                    "Prefill batch, #new-seq: 1, #new-token: 2048, #cached-token: 0, full token usage: 0.01, swa token usage: "
                    "0.02, #running-req: 0, #queue-req: 0, input throughput (token/s): 46.36, cuda graph: False"
                )
            ],
            ">=0.5.9,<0.5.10",
        ),
        (["Decode batch, #running-req: 1, gen throughput (token/s): 1.06, #queue-req: 0, "], "<0.5.9"),
        (["server_args={'model_path': 'x'}"], ">=0.5.19"),
    ],
)
def test_range(lines: list[str], expected: str | None) -> None:
    fit = Fit()
    for line in lines:
        fit.see(line)
    assert fit.range == expected
    assert not fit.contradictory


def test_lines_of_two_releases() -> None:
    fit = Fit()
    fit.see("server_args={'model_path': 'x'}")
    fit.see("Capture piecewise CUDA graph begin. avail mem=1.00 GB")
    assert fit.contradictory
    assert fit.range is None
