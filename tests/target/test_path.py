"""Which releases lie on the way, and which of them brought a difference."""

from __future__ import annotations

import pytest

from sgdoctor.errors import UsageError
from sgdoctor.target import path
from sgdoctor.upstream import catalogue


def way(start: str, end: str) -> path.Path:
    return path.between(path.exactly(start, "start"), path.exactly(end, "end"))


def test_an_upgrade_names_the_first_release_that_is_like_the_last() -> None:
    upgrade = way("0.5.10", "0.5.13")
    assert upgrade.steps == ("0.5.10", "0.5.10.post1", "0.5.11", "0.5.12", "0.5.12.post1", "0.5.13")
    assert upgrade.since(lambda version: version >= "0.5.12") == "0.5.12"


def test_a_downgrade_names_the_release_that_brought_what_is_lost() -> None:
    downgrade = way("0.5.13", "0.5.10")
    assert not downgrade.upgrade
    assert downgrade.since(lambda version: version >= "0.5.12") == "0.5.12"


def test_what_comes_and_goes_on_the_way_counts_from_where_it_last_came() -> None:
    there = {"0.5.11", "0.5.13"}
    assert way("0.5.10", "0.5.13").since(lambda version: version in there) == "0.5.13"


def test_nothing_brought_what_is_everywhere_the_same() -> None:
    assert way("0.5.10", "0.5.13").since(lambda _version: 1) is None
    assert way("0.5.13", "0.5.13").since(lambda version: version) is None


def test_every_step_of_a_value_is_told() -> None:
    def torch(version: str) -> str:
        return path.exactly(version, "").torch_pin

    steps = [("0.5.11", "2.11.0"), ("0.5.18", "2.13.0"), ("0.5.22", "2.14.1")]
    assert way("0.5.7", "0.5.23").moves(torch) == steps
    back = [("0.5.22", "2.13.0"), ("0.5.18", "2.11.0"), ("0.5.11", "2.9.1")]
    assert way("0.5.23", "0.5.7").moves(torch) == back


@pytest.mark.parametrize("text", ["sglang=0.5.20", "sglang==0.5.20", "sglang=v0.5.20", "sglang = 0.5.20"])
def test_ways_to_write_a_target(text: str) -> None:
    assert path.wanted(text).version == "0.5.20"


def test_latest_is_the_newest_of_the_catalogue() -> None:
    assert path.wanted("sglang=latest").version == catalogue.releases()[-1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0.5.20", "write sglang=VERSION"),
        ("sglang", "write sglang=VERSION"),
        ("sglang=", "write sglang=VERSION"),
        ("vllm=0.9", "write sglang=VERSION"),
        ("sglang=0.5.99", f"not 0.5.99; the nearest before it is {catalogue.releases()[-1]}"),
        ("sglang=0.4.6", "not 0.4.6"),
        ("sglang=next", "not next"),
    ],
)
def test_what_is_no_target(text: str, told: str) -> None:
    with pytest.raises(UsageError, match="--target") as raised:
        path.wanted(text)
    assert told in str(raised.value)


def test_the_release_in_use_must_be_known_or_near_one_that_is() -> None:
    assert path.in_use("0.5.14.dev3+g0123abc").version == "0.5.13.post1"
    for version in (None, "0.4.6", "0.0.0.dev1+g0123abc"):
        with pytest.raises(UsageError, match="--from-version"):
            path.in_use(version)
