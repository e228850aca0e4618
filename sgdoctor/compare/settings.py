"""Flags: asked for otherwise, changed by themselves, or changed with nothing that says by whom."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sgdoctor.compare import causes, graphs
from sgdoctor.compare.model import Difference
from sgdoctor.compare.values import MISSING, NOT_WRITTEN, Pair, became, same, shown
from sgdoctor.report.words import shorten

# random_seed is drawn at every start where it is not given (srt/server_args.py, from 0.5.19 on
# srt/arg_groups/serving_hook.py); the others are told as the model.
_DRAWN = ("random_seed",)
_TOLD = ("model_path", "tokenizer_path", "served_model_name")
_LONGEST = 60


def differences(
    pair: Pair, read_by_rules: Collection[str], told: Collection[str] = ()
) -> Iterator[Difference]:
    """Yield the flags that differ, those first that some rule reads (``read_by_rules``, names of facts).

    ``told`` are the flags, as written, of which something was said otherwise.
    """
    for dest in sorted(_destinations(pair), key=lambda each: f"arg.{each}" not in read_by_rules):
        found = _difference(pair, dest, read_by_rules) if pair.option(dest) not in told else None
        if found is not None:
            yield found


def tells_of_asking(pair: Pair) -> bool:
    """Whether both files say what was asked for."""
    return all(
        any(name.startswith("asked.") for name, _ in facts.items()) for facts in (pair.before, pair.after)
    )


def _destinations(pair: Pair) -> list[str]:
    names = {name for facts in (pair.before, pair.after) for name, _ in facts.items()}
    dests = {name.partition(".")[2] for name in names if name.startswith(("arg.", "asked."))}
    return sorted(dests - set(_TOLD))


def _difference(pair: Pair, dest: str, read_by_rules: Collection[str]) -> Difference | None:
    kind, effective = pair.asker(dest), _effective(pair, dest)
    changed = effective is not None and not same(*effective)
    option = pair.option(dest)
    if kind == "flag-asked":
        return _asked(pair, dest, option, effective)
    if not changed or effective is None or dest in _DRAWN:
        return None
    before, after = shown(effective[0]), shown(effective[1])
    told = became(shorten(before, _LONGEST), shorten(after, _LONGEST))
    words = " with the same launch command" if kind == "flag-itself" else ""
    return Difference(
        kind=kind,
        subject=option,
        before=before,
        after=after,
        verdict="changed",
        message=f"{option}: {told}{words}.",
        together_with=causes.of_flag(pair, dest),
        minor=_minor(pair, dest, read_by_rules),
    )


def _asked(pair: Pair, dest: str, option: str, effective: tuple[object, object] | None) -> Difference:
    before, after = pair.asked(dest)
    told = f"{option}, asked for: {became(_written(before), _written(after))}"
    if effective is not None and same(*effective):
        told += f"; in effect it is {shorten(shown(effective[1]), _LONGEST)} as before"
    elif effective is not None and not (same(before, effective[0]) and same(after, effective[1])):
        old, new = (shorten(shown(each), _LONGEST) for each in effective)
        told += f"; in effect {became(old, new)}"
    return Difference(
        kind="flag-asked",
        subject=option,
        before=shown(before),
        after=shown(after),
        verdict="changed",
        message=f"{told}.",
    )


def _written(value: object) -> str:
    return NOT_WRITTEN if value is None else shorten(shown(value), _LONGEST)


def _effective(pair: Pair, dest: str) -> tuple[object, object] | None:
    """Return the two values in effect, where they mean the same thing in both releases."""
    both = pair.both(f"arg.{dest}")
    if both is None or pair.same_release:
        return both
    flags = [release.flag(dest) if release is not None else None for release in pair.releases]
    if any(flag is not None and flag.deprecated for flag in flags) or _moved(pair, dest):
        return None
    return both


def _moved(pair: Pair, dest: str) -> bool:
    """Whether 0.5.22's attention DP holds what --dp-size held before (srt/arg_groups/parallel_hook.py)."""
    if dest not in ("dp_size", "attn_dp_size", "enable_dp_attention"):
        return False
    has = [release is not None and release.has("attn_dp_size") for release in pair.releases]
    return has[0] != has[1]


def _minor(pair: Pair, dest: str, read_by_rules: Collection[str]) -> bool:
    """Whether a difference that nobody asked for is for completeness: another release's own default."""
    if dest == graphs.CONFIG:
        return True  # what matters of it is told as CUDA graphs
    if pair.same_release:
        return False
    before, after = pair.asked(dest)
    if any(each is not MISSING and each is not None for each in (before, after)):
        return False
    both = pair.both(f"arg.{dest}") or ()
    unsettled = any(value in (None, "auto") for value in both)
    return unsettled or not {f"arg.{dest}", f"asked.{dest}"}.intersection(read_by_rules)
