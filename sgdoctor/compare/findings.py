"""Known problems that appeared or went away: the rules, run on both recordings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sgdoctor.compare.model import Difference, Kind, Verdict
from sgdoctor.engine.model import Finding, Outcome, Result

_GOOD = (Outcome.PASS, Outcome.NOT_APPLICABLE)
_WORDS = {
    Outcome.PASS: "passed",
    Outcome.NOT_APPLICABLE: "did not apply",
    Outcome.UNKNOWN: "could not be decided",
    Outcome.ERROR: "broke",
    Outcome.FAIL: "found",
}


def differences(before: Mapping[str, Result], after: Mapping[str, Result]) -> Iterator[Difference]:
    """Yield the rules that fail in one recording alone.

    A rule that could not be decided in the other one says nothing of a change: it is told, and counts neither
    as worse nor as better.
    """
    for code, now in after.items():
        then = before[code]
        if now.finding is not None and then.finding is None:
            yield _appeared(now.finding, then.outcome)
        elif then.finding is not None and now.finding is None:
            yield _gone(then.finding, now.outcome)


def _appeared(finding: Finding, then: Outcome) -> Difference:
    known = then in _GOOD
    verdict: Verdict = "worse" if known and finding.severity != "info" else "changed"
    doubt = "" if known else f" Before, the rule {_WORDS[then]}."
    return _difference("finding-appeared", finding, verdict, finding.message + doubt, _WORDS[then], "found")


def _gone(finding: Finding, now: Outcome) -> Difference:
    known = now in _GOOD
    verdict: Verdict = "better" if known else "changed"
    told = "No longer found" if known else f"Was found, and now {_WORDS[now]}"
    return _difference("finding-gone", finding, verdict, f"{told}: {finding.title}.", "found", _WORDS[now])


def _difference(
    kind: Kind, finding: Finding, verdict: Verdict, message: str, before: str, after: str
) -> Difference:
    suspected = finding.confidence == "low"
    return Difference(
        kind=kind,
        subject=finding.code,
        before=before,
        after=after,
        verdict="changed" if suspected else verdict,
        message=f"{finding.code} ({finding.severity}): {message}",
        minor=suspected,
    )
