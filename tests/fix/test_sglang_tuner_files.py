"""The files of SGLang's tuner: what is taken, put right, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgdoctor.errors import UsageError
from sgdoctor.fix.sglang_tuner_files import check_name, read
from sgdoctor.tune.model import Pair
from sgdoctor.tune.space import Config
from tests.fix.jobs import TODAY, fp8_job, int4_job, job

SMALL = Config(16, 64, 64, 1, 4, 4)
LARGE = Config(64, 128, 64, 16, 4, 3)


def write(folder: Path, name: str, table: dict) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / name
    file.write_text(json.dumps(table))
    return file


def entry(config: Config, **more) -> dict:
    return {**config.to_sglang(), **more}


def test_a_file_without_a_down_file_serves_both_products(tmp_path: Path) -> None:
    table = {1: entry(SMALL), 16: entry(SMALL), 64: entry(LARGE)}
    found = read([write(tmp_path, job().up_file, table)], job())
    assert found.table == {1: Pair(SMALL, SMALL), 16: Pair(SMALL, SMALL), 64: Pair(LARGE, LARGE)}
    assert found.notes == (
        "no _down file: the down product gets the up product's configurations, without TMA",
    )


def test_files_of_one_batch_size_each_come_to_one_table(tmp_path: Path) -> None:
    files = [
        write(tmp_path / str(m), job().up_file, {m: entry(config)})
        for m, config in ((1, SMALL), (16, SMALL), (64, LARGE))
    ]
    assert read(files, job()).table[64] == Pair(LARGE, LARGE)


def test_a_down_file_brings_its_own_configurations_and_tma(tmp_path: Path) -> None:
    up = write(tmp_path, job().up_file, {1: entry(SMALL), 16: entry(SMALL), 64: entry(LARGE)})
    tma = entry(LARGE, USE_TMA=True)
    down = write(tmp_path, job().down_file, {1: entry(SMALL), 16: entry(SMALL), 64: tma})
    found = read([up, down], job())
    assert found.table[64].down == Config(64, 128, 64, 16, 4, 3, tma=True)
    assert not found.notes


def test_missing_batch_sizes_get_the_nearest_entry_as_at_start_up(tmp_path: Path) -> None:
    found = read([write(tmp_path, job().up_file, {1: entry(SMALL), 64: entry(LARGE)})], job())
    assert found.table[16] == Pair(SMALL, SMALL)
    assert "no configuration for batch sizes 16: the nearest's stands in, as at start-up" in found.notes


def test_the_name_that_no_server_reads_becomes_the_one_it_reads(tmp_path: Path) -> None:
    """Experts of 256: the server looks for N=128, two weights a byte; the tuner of 2026-08 writes N=256."""
    wanted, written = int4_job().up_file, int4_job(256).up_file
    found = read([write(tmp_path, written, {m: entry(SMALL) for m in (1, 16, 64)})], int4_job())
    assert f"{written}: SGLang would never read this name" in found.notes[0]
    assert found.notes[0].endswith(f"it becomes {wanted}")
    assert not check_name(wanted, int4_job())[1]  # the tuner before that


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("E=257,N=256,device_name=NVIDIA_H200", "E is 257, this deployment has 256; .*shared expert"),
        ("E=256,N=512,device_name=NVIDIA_H200", "N is 512, this deployment has 256; check --tp"),
        ("E=256,N=128,device_name=NVIDIA_H200", "N is 128, this deployment has 256"),  # no int4: no known bug
        ("E=256,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8", "dtype is fp8_w8a8, this deployment has None"),
        ("E=256,N=256,device_name=NVIDIA_H100", "tuned on NVIDIA_H100; wanted is NVIDIA_H200"),
        ("E=256,N=256,device_name=", "names no device"),
        ("notes", "never looks for"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, name, text) -> None:
    with pytest.raises(UsageError, match=text):
        read([write(tmp_path, f"{name}.json", {1: entry(SMALL)})], job())


def test_int4_of_another_width_is_refused() -> None:
    with pytest.raises(UsageError, match="N is 64, this deployment has 128"):
        check_name(int4_job(64).up_file, int4_job())


def test_a_step_larger_than_the_quantization_block_never_gets_in(tmp_path: Path) -> None:
    wide = Config(64, 128, 256, 16, 4, 3)
    table = {1: entry(SMALL), 16: entry(SMALL), 64: entry(wide)}
    found = read([write(tmp_path, fp8_job().up_file, table)], fp8_job())
    assert found.table[64] == TODAY
    assert found.table[16] == Pair(SMALL, SMALL)
    assert any(
        note.startswith("batch size 64: 64x128x256") and "[128, 128]" in note and "today stays" in note
        for note in found.notes
    )


def test_two_products_of_different_block_m_are_not_paired(tmp_path: Path) -> None:
    up = write(tmp_path, job().up_file, {m: entry(SMALL) for m in (1, 16, 64)})
    down = write(tmp_path, job().down_file, {1: entry(SMALL), 64: entry(LARGE)})
    found = read([up, down], job())
    assert found.table == {1: Pair(SMALL, SMALL), 16: Pair(SMALL, SMALL), 64: TODAY}
    assert "batch size 64: BLOCK_SIZE_M differs, 16 up and 64 down; what is in use today stays" in found.notes


def test_tma_goes_where_the_release_and_the_weights_take_it(tmp_path: Path) -> None:
    tma = {m: entry(SMALL, USE_TMA=True) for m in (1, 16, 64)}
    old = read([write(tmp_path, job().up_file, tma)], job())
    assert not old.table[1].up.tma
    assert "SGLang 0.5.12 reads no USE_TMA in an up file: left out" in old.notes
    new = read([tmp_path / job().up_file], job(up_tma=True, release="0.5.20"))
    assert new.table[1].up.tma
    assert not new.table[1].down.tma
    up, down = int4_job().up_file, int4_job().down_file
    files = [write(tmp_path, up, {1: entry(SMALL)}), write(tmp_path, down, {1: entry(SMALL, USE_TMA=True)})]
    assert not read(files, int4_job()).table[1].down.tma


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('{"1": {"BLOCK_SIZE_M": 16', "is not JSON.*run SGLang's tuner again"),
        ('{"triton_version": "3.6.0"}', "triton_version, which vLLM writes"),
        ('{"1": {"BLOCK_SIZE_M": 16}}', "the entry of batch size 1 is no configuration"),
        ('{"1": null}', "the entry of batch size 1 is no configuration: None"),
        (
            '{"1": {"BLOCK_SIZE_M": "16", "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}}',
            "is no conf",
        ),
        ("{}", "left no configuration"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, content, text) -> None:
    file = tmp_path / job().up_file
    file.write_text(content)
    with pytest.raises(UsageError, match=text):
        read([file], job())


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read([tmp_path / job().up_file], job())
