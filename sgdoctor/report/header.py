"""What a deployment is and what was looked at, in a line each."""

from __future__ import annotations

from sgdoctor.report.model import DeploymentReport, Gpus, UndecidedRule
from sgdoctor.report.words import bare

MOST_OPTIONS = 3


def header(deployment: DeploymentReport, *, alone: bool = True) -> list[str]:
    """Return what a deployment is, in the parts of its title; its name too where it is not ``alone``."""
    summary = deployment.summary
    parts = [summary.model or deployment.name]
    if summary.model and not alone and deployment.name != summary.model:
        parts.append(deployment.name)
    if summary.sglang:
        parts.append(f"SGLang {summary.sglang}")
    parts += [_gpus(each) for each in summary.gpus]
    parts += [f"{name.upper()} {size}" for name, size in summary.parallel.items()]
    if summary.status:
        parts.append(summary.status)
    if summary.python:
        parts.append(summary.python)
    return parts


def _gpus(gpus: Gpus) -> str:
    number = f"{gpus.count} x " if gpus.count > 1 else ""
    capability = f" ({gpus.compute_capability})" if gpus.compute_capability else ""
    return f"{number}{bare(gpus.name)}{capability}"


def looked(deployment: DeploymentReport) -> str:
    """Return the sources that told something, in words; empty when none did."""
    parts = [
        f"{each.place} ({each.said})" if each.said and each.state == "understood" else each.place
        for each in deployment.looked_at
        if each.state != "nothing"
    ]
    return joined(dict.fromkeys(parts), "and")


def joined(parts: dict[str, None] | list[str], last: str) -> str:
    """Return ``parts`` as a list in words."""
    *head, tail = parts or [""]
    return f"{', '.join(head)} {last} {tail}" if head else tail


def deciding(rules: list[UndecidedRule]) -> tuple[int, list[str]]:
    """Return the options of which one alone decides most of the ``rules``, and how many that is."""
    counts: dict[str, int] = {}
    for rule in rules:
        for option in rule.options:
            counts[option] = counts.get(option, 0) + 1
    most = max(counts.values(), default=0)
    return most, [option for option, count in counts.items() if count == most][:MOST_OPTIONS]
