"""What a rule is, and what comes out of one."""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec

Severity = Literal["error", "warning", "info"]
Impact = Literal["performance", "correctness", "stability", "security"]
Confidence = Literal["high", "medium", "low"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")  # worst first


class Outcome(str, enum.Enum):
    """The result of one rule on one deployment."""

    FAIL = "fail"
    PASS = "pass"  # noqa: S105 (not a password)
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"
    ERROR = "error"


class Recommendation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing to do; exactly one of the first six fields is set.

    ``run`` is a command; ``remove`` a server flag; ``set`` a server flag with ``value``; ``env`` an
    environment variable with ``value`` (null: unset it); ``install`` a pip requirement; ``do`` anything else,
    in words. Texts may hold placeholders as messages do. ``safe``, of ``remove`` and ``set`` alone: the
    server does the same without the flag, or does not start with it; `sgdoctor fix --flags` changes it.
    """

    run: str | None = None
    remove: str | None = None
    set: str | None = None
    env: str | None = None
    install: str | None = None
    do: str | None = None
    value: str | int | float | None = None
    note: str | None = None
    safe: bool = False


class TestCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An example that a rule is held to: facts, or raw input that goes through the real collectors.

    ``input`` takes log, launch, server_info, metrics, model (a config.json), environment as text or mappings,
    and options: assume, gpu.
    """

    __test__ = False  # not a test class of pytest

    name: str
    expect: Literal["fail", "pass", "unknown", "not_applicable"]
    facts: dict[str, Any] | None = None
    match: dict[str, str] | None = None  # groups of the rule's pattern, as if found in the log
    input: dict[str, Any] | None = None


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule file. DESIGN and docs/writing-rules.md say what each field means."""

    code: str
    name: str
    title: str
    severity: Severity
    impact: Impact
    confidence: Confidence
    case: str | list[str]
    message: str
    why: str
    verified: str  # the releases and files in which it was checked
    sources: list[str]
    tests: list[TestCase]
    recommend: list[Recommendation] = []
    releases: str | None = None  # ">=A,<B" with B the next release that differs; none: all that are known
    applies: str | None = None  # where it is false the rule does not apply
    when: str | None = None  # the problem is there
    match: str | None = None  # RE2 pattern of a log record's text
    fix: str | None = None  # a repair that sgdoctor makes itself
    explains: list[str] = []  # codes of findings that are consequences of this one


class Evidence(msgspec.Struct, frozen=True):
    """One fact that a finding rests on."""

    fact: str
    value: Any
    source: str
    place: str
    count: int = 1


class Finding(msgspec.Struct, frozen=True):
    """A rule that fired, with what it read."""

    code: str
    name: str
    title: str
    case: list[str]
    severity: Severity
    impact: Impact
    confidence: Confidence
    message: str
    evidence: list[Evidence]
    recommendation: list[Recommendation]
    why: str
    sources: list[str]
    fingerprint: str
    fix: str | None = None


class Result(msgspec.Struct, frozen=True):
    """What one rule came to on one deployment."""

    code: str
    outcome: Outcome
    finding: Finding | None = None
    missing: tuple[str, ...] = ()  # the facts that an undecided rule lacks
    reason: str | None = None  # why it is undecided, does not apply or broke
    about: tuple[str, ...] = ()  # the flags, packages or files that the finding's facts name
