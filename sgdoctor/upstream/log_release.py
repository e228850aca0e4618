"""Which releases print a log's lines as they stand: what changed in the wording, and when.

Each mark was looked up in the sources of all 22 releases from 0.5.7 to 0.5.23.
"""

from __future__ import annotations

import re

from packaging.version import Version

# (pattern, first release that prints it so, first release that does not any more)
_MARKS: tuple[tuple[str, str | None, str | None], ...] = (
    (r"server_args=ServerArgs\(", None, "0.5.19"),
    (r"server_args=\{", "0.5.19", None),
    (r"Init torch distributed begin\.", None, "0.5.21"),
    (r"Init torch distributed ends\. mem usage=", None, "0.5.9"),
    (r"Init torch distributed ends\. elapsed=", "0.5.9", "0.5.21"),
    (r"Load weight end\. type=", None, "0.5.9"),
    (r"Load weight end\. elapsed=[\d.]+ s, type=\w+, dtype=", "0.5.9", "0.5.10"),
    (r"Load weight end\. elapsed=[\d.]+ s, type=\w+, (?:avail|quant)", "0.5.10", None),
    (r" is allocated\. #tokens: ", None, "0.5.13"),
    (r" (?:is allocated|VA upper bound)\. dtype: ", "0.5.13", None),
    (r" VA upper bound\. dtype: ", "0.5.18", None),
    (r"Capture (?:cuda|npu|cpu) graph begin\. This can take", None, "0.5.14"),
    (r"Capture piecewise CUDA graph (?:begin|end)\.", None, "0.5.14"),
    (r"Capture (?:target|draft) (?:decode|verify|prefill|extend) \w+ graph begin\. ", "0.5.14", None),
    (r"Config file not found at .*/moe/fused_moe_triton/configs/", None, "0.5.11"),
    (r"Config file not found at .*/moe/moe_runner/triton_utils/configs/", "0.5.11", None),
    (r"Using MoE kernel config with down_moe=False\.", None, "0.5.16"),
    (r"Down MoE config file not found at ", "0.5.16", None),
    (r"Using default MoE kernel config\..*_down\.json", "0.5.16", None),
    (r"Prefill batch.*#queue-req: \d+, $", None, "0.5.9"),
    (r"Prefill batch.*, input throughput \(token/s\): [\d.]+, \w+ graph: ", "0.5.9", "0.5.10"),
    (r"Prefill batch.*, \w+ graph: \w+, input throughput ", "0.5.10", None),
    (r"Prefill batch.*, #pending-token: ", "0.5.11", None),
    (r"Decode batch.*#queue-req: \d+, $", None, "0.5.9"),
    (r"Decode batch.*#queue-req: \d+$", "0.5.9", None),
    (r"'sglang serve' is the recommended entrypoint", "0.5.10", None),
    (r"Subprocess \S+ \(pid=\d+\) crashed with exit code ", "0.5.10", None),
)
_COMPILED = tuple(
    (re.compile(pattern), since and Version(since), before and Version(before))
    for pattern, since, before in _MARKS
)
# More lines of the same kind tell nothing new.
_BATCHES = 50
_WORTH_A_LOOK = re.compile(
    r"server_args=|torch distributed|Load weight end|#tokens: |Capture |onfig file not found|MoE kernel"
    r"| batch|recommended entrypoint|crashed with"
)


class Fit:
    """Narrows down, line by line, which releases a log can be from."""

    def __init__(self) -> None:
        self.since: Version | None = None
        self.before: Version | None = None
        self._batches = 0

    def see(self, text: str) -> None:
        """Take one record's text into account."""
        if text.startswith(("Prefill batch", "Decode batch")):
            self._batches += 1
            if self._batches > _BATCHES:
                return
        elif not _WORTH_A_LOOK.search(text):
            return
        for pattern, since, before in _COMPILED:
            if pattern.search(text):
                if since and (self.since is None or since > self.since):
                    self.since = since
                if before and (self.before is None or before < self.before):
                    self.before = before

    @property
    def contradictory(self) -> bool:
        """Whether no release prints all of these lines: several logs in one, or a build between releases."""
        return self.since is not None and self.before is not None and self.since >= self.before

    @property
    def range(self) -> str | None:
        """The releases as a range like ``>=0.5.11,<0.5.13``; None when nothing is known or nothing fits."""
        parts = [f">={self.since}"] if self.since else []
        parts += [f"<{self.before}"] if self.before else []
        return ",".join(parts) if parts and not self.contradictory else None
