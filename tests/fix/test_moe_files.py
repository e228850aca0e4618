"""The files of a tuned shape: as SGLang writes, finds and reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor.configs import lint, places
from sgdoctor.errors import UsageError
from sgdoctor.fix import install, moe_files
from sgdoctor.tune.model import Pair
from sgdoctor.tune.space import BLOCKS_K, BLOCKS_M, BLOCKS_N, GROUPS, STAGES, WARPS, Config
from tests.fix import made
from tests.fix.conftest import RELEASES
from tests.upstream.oracle import ask_all


def test_text_is_laid_out_as_sglang_ships_it():
    table = {4: made.pair(4, tma=True)}
    assert moe_files.text(made.job(), table, down=True) == (
        "{\n"
        '    "4": {\n'
        '        "BLOCK_SIZE_M": 16,\n'
        '        "BLOCK_SIZE_N": 64,\n'
        '        "BLOCK_SIZE_K": 128,\n'
        '        "GROUP_SIZE_M": 16,\n'
        '        "num_warps": 4,\n'
        '        "num_stages": 3,\n'
        '        "USE_TMA": true\n'
        "    }\n"
        "}\n"
    )


@st.composite
def pairs(draw) -> Pair:
    block_m = draw(st.sampled_from(BLOCKS_M))

    def config() -> Config:
        rest = [draw(st.sampled_from(values)) for values in (BLOCKS_N, BLOCKS_K, GROUPS, WARPS, STAGES)]
        return Config(block_m, *rest, tma=draw(st.booleans()))

    return Pair(config(), config())


@given(st.dictionaries(st.integers(1, 16384), pairs(), min_size=1), st.booleans())
def test_every_table_is_read_back_as_it_was(table, up_tma):
    job = made.job(up_tma=up_tma)
    up, down = (
        {int(key): Config.from_sglang(entry) for key, entry in json.loads(text).items()}
        for text in (moe_files.text(job, table, down=is_down) for is_down in (False, True))
    )
    assert list(up) == list(down) == sorted(table)
    for tokens, pair in table.items():
        assert down[tokens] == pair.down
        assert up[tokens] == replace(pair.up, tma=pair.up.tma and up_tma)


def test_a_release_that_does_not_know_tma_in_an_up_file_is_given_none():
    with_tma = Config(16, 64, 64, tma=True)
    table = {1: Pair(with_tma, with_tma)}
    assert "USE_TMA" not in moe_files.entries(made.job(up_tma=False), table, down=False)[1]
    assert moe_files.entries(made.job(up_tma=True), table, down=False)[1]["USE_TMA"] is True


def test_the_linter_finds_nothing_in_what_is_written(tmp_path):
    target = moe_files.in_place(made.job(), tmp_path / "configs")
    moe_files.put_in_place(made.tuning(), target)
    for release in RELEASES:
        linted = lint.lint(places.find(str(tmp_path / "configs")), release)
        assert len(linted.files) == 2
        assert linted.problems == ()


def ask(lookups, root: Path, tokens: list[int]) -> dict[str, dict]:
    question = {
        "root": str(root),
        "triton": "3.6.0",
        "device": "NVIDIA H200",
        "experts": 256,
        "width": 256,
        "dtype": None,
        "block_shape": None,
        "per_channel": False,
        "deterministic": False,
        "tokens": tokens,
    }
    return {release: answer for release, (answer,) in ask_all(lookups, [question]).items()}


def test_sglang_itself_runs_both_products_on_the_new_files(lookups, tmp_path):
    """A down file of another Triton lies there: without one of its own the down product would run on it."""
    old = tmp_path / "configs" / "triton_3_4_0"
    old.mkdir(parents=True)
    (old / made.DOWN).write_text(json.dumps({"1": Config(128, 64, 64).to_sglang()}))
    tuning = made.on_default()
    moe_files.put_in_place(tuning, moe_files.in_place(tuning.job, tmp_path / "configs"))
    tokens = list(tuning.table)
    for release, answer in ask(lookups, tmp_path, tokens).items():
        for pair, (up, (down, _)) in zip(tuning.table.values(), answer["result"], strict=True):
            assert Config.from_sglang(up) == pair.up, release
            assert Config.from_sglang(down) == pair.down, release
        folder = tmp_path / "configs" / "triton_3_6_0"
        used = [line for line in answer["lines"] if line.startswith("Using MoE kernel config from")]
        assert {line.split("from ")[1].rstrip(".") for line in used} == {
            str(folder / made.UP).rstrip("."),
            str(folder / made.DOWN).rstrip("."),
        }


def test_an_overlay_keeps_what_the_release_ships(lookups, sglang_wheel, tmp_path):
    shipped = next(sglang_wheel("0.5.12").rglob("fused_moe_triton_config.py")).parent / "configs"
    target = moe_files.overlay(made.job(), tmp_path, shipped)
    moe_files.put_in_place(made.on_default(), target)
    below = {path.relative_to(shipped) for path in shipped.glob("triton_*/*")}
    there = {path.relative_to(target.root) for path in target.root.glob("triton_*/*")}
    ours = {Path("triton_3_6_0", name) for name in (made.UP, made.DOWN)}
    assert there == below | ours
    assert not [path for path in target.root.rglob("*") if path.is_symlink()]
    answer = ask(lookups, tmp_path, [64])["0.5.12"]
    assert Config.from_sglang(answer["result"][0][0]) == made.pair(64).up


def test_an_overlay_is_completed_and_loses_nothing(tmp_path):
    """Bundled folders whose name ends every lookup stay out; what the operator put there stays."""
    bundled = tmp_path / "bundled"
    for folder in ("triton_3_4_0", "triton_3_5_1+local", "triton_old"):
        (bundled / folder).mkdir(parents=True)
        (bundled / folder / "E=8,N=64,device_name=X.json").write_text("{}")
    mine = tmp_path / "mine" / "configs" / "triton_3_4_0" / "E=8,N=64,device_name=X.json"
    mine.parent.mkdir(parents=True)
    mine.write_text('{"1": {}}')
    moe_files.put_in_place(made.tuning(), moe_files.overlay(made.job(), tmp_path / "mine", bundled))
    assert sorted(path.name for path in mine.parents[1].iterdir()) == ["triton_3_4_0", "triton_3_6_0"]
    assert mine.read_text() == '{"1": {}}'


def test_an_overlay_needs_the_folder_that_it_takes_the_place_of(tmp_path):
    with pytest.raises(UsageError, match="gone: no such folder"):
        moe_files.overlay(made.job(), tmp_path, tmp_path / "gone")


@pytest.mark.parametrize("way", [moe_files.in_place, moe_files.output])
def test_a_folder_that_would_end_other_servers_is_refused(way, tmp_path, lookups):
    nightly = made.job(triton="3.6.0+git1a2b")
    with pytest.raises(UsageError, match=r"needs the folder triton_3_6_0\+git1a2b, and SGLang 0.5.12 reads"):
        way(nightly, tmp_path)
    # That is what these releases do with such a folder; 0.5.9 does not look.
    (tmp_path / "configs" / "triton_3_6_0+git1a2b").mkdir(parents=True)
    raised = {release: answer.get("raised", "") for release, answer in ask(lookups, tmp_path, [1]).items()}
    assert {release: text.partition(":")[0] for release, text in raised.items()} == {
        "0.5.9": "",
        "0.5.12": "ValueError",
        "0.5.16": "ValueError",
        "0.5.23": "ValueError",
    }
    assert way(replace(nightly, release="0.5.9"), tmp_path).folder.name == "triton_3_6_0+git1a2b"


def test_it_says_which_files_the_next_start_loads(tmp_path):
    target = moe_files.in_place(made.job(), tmp_path)
    tuning = made.tuning()
    moe_files.put_in_place(tuning, target)
    found = moe_files.next_start(tuning.job, tuning.table, target)
    assert found.ours
    assert found.problems == ()
    assert found.sentences == (
        f"up: the next start loads {target.folder / made.UP}, the new file",
        f"down: the next start loads {target.folder / made.DOWN}, the new file",
        "Restart the server: one that runs has read its config files already.",
    )


def test_it_says_so_when_the_next_start_would_load_something_else(tmp_path):
    tuning = made.tuning()
    target = moe_files.in_place(tuning.job, tmp_path)
    assert "does not find the new file" in moe_files.next_start(tuning.job, tuning.table, target).sentences[0]
    moe_files.put_in_place(tuning, target)
    target.path(made.DOWN).write_text("{")
    found = moe_files.next_start(tuning.job, tuning.table, target)
    assert not found.ours
    assert "is not JSON" in found.problems[0]
    newer = target.root / "triton_3_7_0" / made.UP
    newer.parent.mkdir()
    newer.write_text(moe_files.text(tuning.job, tuning.table, down=False))
    other = moe_files.next_start(replace(tuning.job, triton="3.7.0"), tuning.table, target)
    assert other.sentences[0] == f"up: the next start loads {newer}, which is not the new file"


def test_files_for_another_host_come_with_what_to_do_with_them(tmp_path):
    tuning = made.tuning()
    target = moe_files.output(tuning.job, tmp_path / "new", Path("/opt/sglang/configs"))
    moe_files.put_in_place(tuning, target)
    assert sorted(path.name for path in target.folder.iterdir()) == [made.UP, made.DOWN]
    copy = f"Copy the folder {target.folder} into /opt/sglang/configs on each host with this GPU."
    assert moe_files.next_start(tuning.job, tuning.table, target).sentences[0] == copy
    overlay = moe_files.overlay(tuning.job, tmp_path / "over", target.root)
    said = moe_files.left_to_do(tuning.job, overlay)[0]
    assert said == f"Set SGLANG_MOE_CONFIG_DIR={tmp_path}/over where the server starts."


def test_the_manifest_says_what_was_tuned_on_what(tmp_path):
    tuning = made.tuning()
    record = moe_files.put_in_place(tuning, moe_files.output(tuning.job, tmp_path))
    about = json.loads((record.folder / "manifest.json").read_text())["about"]
    assert about["job"]["problem"]["experts"] == 256
    assert (about["job"]["release"], about["job"]["triton"]) == ("0.5.12", "3.6.0")
    assert about["measured"]["uuid"] == "GPU-5f2a"
    assert (about["tuner"], about["effort"]) == ("sgdoctor", "balanced")
    assert about["gain"] == pytest.approx(tuning.gain, abs=1e-4)


def test_undo_takes_the_new_files_out_of_an_overlay_and_leaves_the_bundled_ones(tmp_path):
    """A server may be reading the overlay: without its folder releases from 0.5.12 on would end."""
    bundled = tmp_path / "bundled"
    (bundled / "triton_3_6_0").mkdir(parents=True)
    (bundled / "triton_3_6_0" / made.UP).write_text('{"1": {}}')
    target = moe_files.overlay(made.job(), tmp_path / "over", bundled)
    moe_files.put_in_place(made.tuning(), target)
    assert install.undo(moe_files.undoable(tmp_path / "over")) == [
        f"removed {target.path(made.DOWN)}",
        f"restored {target.path(made.UP)}",
    ]
    assert [path.name for path in target.folder.iterdir()] == [made.UP]
    assert target.path(made.UP).read_text() == '{"1": {}}'
    with pytest.raises(UsageError, match="nothing to undo"):
        install.undo(moe_files.undoable(tmp_path / "over"))


def test_undo_without_a_folder_is_that_of_this_host(tmp_path):
    moe_files.put_in_place(made.tuning(), moe_files.in_place(made.job(), tmp_path / "configs"))
    assert len(install.undo(moe_files.undoable())) == 4  # two files, triton_3_6_0 and configs
    assert not (tmp_path / "configs").exists()
