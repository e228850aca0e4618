"""The catalogue's files are what the wheels say, and small."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.catalogue import DATA, FILES, load, render
from tools.intervals import decode, encode
from tools.read_pins import requirement_row
from tools.read_rewrites import read_rewrites
from tools.wheels import DownloadError, download

ROOT = Path(__file__).parents[2]


def test_the_files_are_what_the_wheels_say(sglang_wheel, tmp_path):
    """Reads three releases anew, one of each source layout, and finds nothing to change."""
    versions = ["0.5.10", "0.5.12", "0.5.23"]
    for version in versions:
        sglang_wheel(version)
    data = tmp_path / "data"
    shutil.copytree(DATA, data)
    command = [sys.executable, "-m", "tools.catalogue", *versions, "--data", str(data)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=900)
    for name in FILES:
        assert (data / name).read_text().splitlines() == (DATA / name).read_text().splitlines()


def test_nothing_but_the_generator_writes_the_files():
    assert {path.name for path in DATA.glob("*.json")} >= set(FILES)
    for name, text in render(load()).items():
        assert (DATA / name).read_text() == text
        assert next(iter(json.loads(text))) == "generator"


def test_the_files_stay_small_and_their_lines_readable():
    sizes = {name: (DATA / name).stat().st_size for name in FILES}
    assert sum(sizes.values()) <= 700_000
    assert sizes["flags.json"] <= 400_000
    assert max(len(line) for name in FILES for line in (DATA / name).read_text().splitlines()) < 2_500


RELEASES = ["1", "2", "3", "4", "5"]
ROWS = st.lists(st.sampled_from("abcdefgh"), unique=True)


@given(st.tuples(*[ROWS] * len(RELEASES)))
def test_every_release_gets_back_its_rows_in_its_order(names):
    rows = {
        release: [{"name": name} for name in found] for release, found in zip(RELEASES, names, strict=True)
    }
    assert decode(encode(rows), RELEASES) == rows


def test_what_stays_is_one_row_whatever_comes_and_goes_around_it():
    rows = {"1": [{"x": 1}, {"x": 2}], "2": [{"x": 0}, {"x": 1}], "3": [{"x": 1}, {"x": 2}]}
    assert encode(rows) == [
        {"since": "2", "before": "3", "x": 0},
        {"since": "1", "x": 1},
        {"since": "3", "x": 2},
        {"since": "1", "before": "2", "x": 2},
    ]


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("torch==2.9.1", {"name": "torch", "specifier": "==2.9.1"}),
        ("flashinfer_python==0.6.3", {"name": "flashinfer-python", "specifier": "==0.6.3"}),
        ('ray>=2; extra == "ray"', {"name": "ray", "specifier": ">=2", "extra": "ray"}),
        (
            'av; platform_machine == "aarch64"',
            {
                "name": "av",
                "specifier": "",
                "marker": 'platform_machine == "aarch64"',
                "machines": ["aarch64"],
            },
        ),
        (
            'vsa==1; platform_machine != "aarch64" and extra == "diffusion"',
            {
                "name": "vsa",
                "specifier": "==1",
                "extra": "diffusion",
                "marker": 'platform_machine != "aarch64"',
                "machines": ["x86_64"],
            },
        ),
    ],
)
def test_a_requirement_in_parts(line, row):
    assert requirement_row(line) == row


FIELDS = ["page_size", "dtype", "port", "watermark_key"]


@pytest.mark.parametrize(
    ("path", "text", "written"),
    [
        ("server_args.py", "class ServerArgs:\n def f(self):\n  self.page_size = 1", {"page_size"}),
        (
            "server_args.py",
            "class ServerArgs:\n def from_cli_args(self, args):\n  args.page_size = args.x",
            set(),
        ),
        ("arg_groups/x_hook.py", "declare_resolution(server_args, 'x', dtype='auto')", {"dtype"}),
        ("arg_groups/overrides.py", "def f(view):\n return {'page_size': 64}", {"page_size"}),
        ("arg_groups/overrides.py", "def f(view):\n overrides['page_size'] = 64", {"page_size"}),
        (
            "arg_groups/overrides.py",
            "def f(a):\n for key in ('dtype', 'port'):\n  setattr(server_args, key, 1)",
            {"dtype", "port"},
        ),
        (
            "arg_groups/overrides.py",
            "def f(a):\n x = {f'watermark_{k}': 1 for k in a}\n declare_resolution(a, 'f', **x)",
            {"watermark_key"},
        ),
        ("models/m.py", "get_global_server_args().page_size = 1", {"page_size"}),
        ("models/m.py", "get_context().override('m', page_size=1)", {"page_size"}),
        ("models/m.py", "config = {'dtype': 1}\nprint(server_args.page_size)\nself.port = 1", set()),
        ("hardware_backend/npu/utils.py", "def f(args):\n args.page_size = 128", {"page_size"}),
        ("arg_groups/fields/model.py", "FIELDS = {'dtype': 1}", set()),
    ],
)
def test_what_counts_as_a_write_after_parsing(tmp_path, path, text, written):
    file = tmp_path / "srt" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert read_rewrites(tmp_path, FIELDS) == written


def test_a_field_that_declares_itself_resolvable_counts(tmp_path):
    assert read_rewrites(tmp_path, FIELDS, resolvable=["port"]) == {"port"}


def test_a_release_that_is_not_on_the_index_says_what_pip_said(tmp_path):
    with pytest.raises(DownloadError, match=r"sglang==0\.5\.7\.post99"):
        download("0.5.7.post99", tmp_path)
