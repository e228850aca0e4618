"""Flags that mean the same whatever the release, and flags that do not."""

from __future__ import annotations

from sgdoctor.upstream.any_release import reachable, same_everywhere


def test_a_flag_that_all_releases_read_alike():
    assert same_everywhere("--tp-size", "tp_size")
    assert not same_everywhere("--tp-size", "dp_size")


def test_one_that_came_later_or_is_a_beginning():
    assert not same_everywhere("--attn-dp-size", "attn_dp_size")
    assert not same_everywhere("--cuda-graph-max", "cuda_graph_max_bs")


def test_what_a_beginning_can_fill():
    """--cuda-graph-max-bs up to 0.5.13; a size for each phase after."""
    assert {"cuda_graph_max_bs", "cuda_graph_max_bs_decode"} <= reachable("--cuda-graph-max-bs")
    assert reachable("--no-such-flag") == set()
