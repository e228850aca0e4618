"""An SGLang that the catalogue does not have: its flags come from its own source, read once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sgdoctor import examine
from sgdoctor.collect import launch, packages
from sgdoctor.collect.launch_asked import interpret
from sgdoctor.collect.python_env import locate
from sgdoctor.facts import Facts, Unknown
from sgdoctor.report.model import DeploymentReport
from sgdoctor.sources import Sources
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.installed_flags import flags_of
from sgdoctor.upstream.source_fields import SourceError
from sgdoctor.upstream.source_flags import read_flags

DEV = "0.5.14.dev3+g1234567"
COMMAND = "python3 -m sglang.launch_server --model-path /models/m --chunked-prefill-size 4096\n"


@pytest.fixture
def site(sglang_wheel: Callable[[str], Path], tmp_path: Path) -> Path:
    """Return a site-packages folder with a build of DEV: the Python files of SGLang 0.5.12."""
    folder = tmp_path / "lib" / "python3.12" / "site-packages"
    shipped = sglang_wheel("0.5.12") / "sglang"
    for name in ("__init__.py", "version.py", "srt"):
        kept = shutil.ignore_patterns("*.json", "__pycache__", "models", "layers")
        if (shipped / name).is_dir():
            shutil.copytree(shipped / name, folder / "sglang" / name, ignore=kept)
        else:
            (folder / "sglang").mkdir(parents=True, exist_ok=True)
            shutil.copy(shipped / name, folder / "sglang" / name)
    (folder / "sglang" / "_version.py").write_text(f"__version__ = version = '{DEV}'\n")
    metadata = folder / f"sglang-{DEV}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {DEV}\n")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that is the user's cache, not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sgdoctor"


def rename(site: Path, old: str, new: str) -> None:
    file = site / "sglang" / "srt" / "server_args.py"
    text = file.read_text()
    assert f'"{old}"' in text
    file.write_text(text.replace(f'"{old}"', f'"{new}"'))


def options(package: Path) -> set[str]:
    return {option for flag in flags_of(package) for option in flag.options}


def report(site: Path, launch_file: Path) -> DeploymentReport:
    launch_file.write_text(COMMAND)
    (found,) = examine.check(Sources(launch=str(launch_file), python=str(site))).deployments
    return found


def installed(site: Path, command: str = COMMAND) -> Facts:
    facts = Facts()
    packages.read_packages(facts, locate(str(site)))
    (parsed,) = launch.parse_script(command, "launch.sh")
    interpret(facts, parsed)
    return facts


@pytest.mark.parametrize("version", ["0.5.12", "0.5.16", "0.5.23"])
def test_first_and_second_reading_are_the_catalogue(sglang_wheel, version, cache):
    package = sglang_wheel(version) / "sglang"
    release = catalogue.resolve(version)
    assert release is not None
    assert flags_of(package) == release.flags
    assert len(list(cache.iterdir())) == 1
    assert flags_of(package) == release.flags


def test_the_second_reading_is_the_cache(site, cache):
    first = flags_of(site / "sglang")
    (file,) = cache.iterdir()
    entry = msgspec.json.decode(file.read_bytes())
    entry["flags"] = entry["flags"][:2]
    file.write_bytes(msgspec.json.encode(entry))
    assert flags_of(site / "sglang") == first[:2]
    assert flags_of(site / "sglang", cache / "another") == first


def test_a_changed_source_is_read_again(site):
    assert "--chunked-prefill-size" in options(site / "sglang")
    rename(site, "--chunked-prefill-size", "--prefill-chunk")
    assert "--prefill-chunk" in options(site / "sglang")
    assert "--chunked-prefill-size" not in options(site / "sglang")


def test_a_change_in_a_file_that_server_args_imports_is_seen(site, cache):
    before = flags_of(site / "sglang")
    (file,) = cache.iterdir()
    looked_at = msgspec.json.decode(file.read_bytes())["modules"]
    backends = site / "sglang" / "srt" / "parser" / "reasoning_parser.py"
    assert "sglang.srt.parser.reasoning_parser" in looked_at
    text = backends.read_text()
    assert '"glm45":' in text
    backends.write_text(text.replace('"glm45":', '"glm99":'))
    assert flags_of(site / "sglang") == read_flags(site / "sglang")
    assert flags_of(site / "sglang") != before


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\x00", b"[]", b'{"digest": 1}', b"[" * 100_000])
def test_a_corrupt_cache_is_made_anew(site, cache, content):
    first = flags_of(site / "sglang")
    (file,) = cache.iterdir()
    good = file.read_bytes()
    file.write_bytes(content)
    assert flags_of(site / "sglang") == first
    assert file.read_bytes() == good
    assert list(cache.iterdir()) == [file]


def test_a_cache_that_cannot_be_written_is_done_without(site, cache):
    cache.parent.mkdir()
    cache.write_text("a file in the place of the folder")
    assert flags_of(site / "sglang") == read_flags(site / "sglang")
    assert cache.is_file()


def test_a_cache_folder_that_is_not_absolute_is_not_one(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    flags_of(site / "sglang")
    assert not (tmp_path / "here").exists()
    assert len(list((tmp_path / "home" / ".cache" / "sgdoctor").iterdir())) == 1


def test_what_is_no_sglang_is_a_source_error(tmp_path, cache):
    with pytest.raises(SourceError, match="no srt/server_args"):
        flags_of(tmp_path)
    assert not cache.exists()


def test_a_build_between_releases_is_judged_by_its_own_flags(site, tmp_path):
    before = {finding.code for finding in report(site, tmp_path / "launch.sh").findings}
    assert "ARG101" not in before
    rename(site, "--chunked-prefill-size", "--prefill-chunk")
    (finding,) = [one for one in report(site, tmp_path / "launch.sh").findings if one.code == "ARG101"]
    assert "--chunked-prefill-size" in finding.message
    assert DEV in finding.message


def test_a_flag_that_only_this_build_has_is_known_to_it(site):
    rename(site, "--chunked-prefill-size", "--prefill-chunk")
    facts = installed(site, COMMAND.replace("--chunked-prefill-size", "--prefill-chunk"))
    assert facts.value("launch.unrecognized") == []
    assert facts.value("launch.flags_known") is True


@pytest.mark.parametrize("version", ["0.0.0.dev1+g1234567", "0.0.0.dev0", "0.9.0"])
def test_a_build_without_tags_or_newer_than_the_catalogue(site, version):
    (site / "sglang" / "_version.py").write_text(f"__version__ = '{version}'\n")
    facts = installed(site, COMMAND.strip() + " --no-such-flag\n")
    assert facts.value("sglang.version") == version
    assert facts.value("launch.unrecognized") == ["--no-such-flag"]
    assert facts.value("asked.chunked_prefill_size") == 4096


def test_a_source_that_cannot_be_read_leaves_the_neighbour_and_a_note(site):
    (site / "sglang" / "srt" / "server_args.py").write_text("class ServerArgs: pass\n")
    facts = installed(site, COMMAND.strip() + " --no-such-flag\n")
    fact = facts.get("launch.unrecognized")
    assert isinstance(fact, Unknown)
    assert "is not in the catalogue" in fact.reason
    assert facts.value("asked.chunked_prefill_size") == 4096
    (note,) = [note for note in facts.notes if "could not be read from its source" in note]
    assert "those of 0.5.13.post1 stand in" in note


def test_flags_that_argparse_refuses_leave_the_neighbour(site):
    rename(site, "--chunked-prefill-size", "--model-path")
    facts = installed(site)
    assert facts.value("asked.chunked_prefill_size") == 4096
    assert any("conflicting option" in note for note in facts.notes)


def test_an_exact_release_is_not_read_from_its_source(site, cache):
    (site / "sglang" / "_version.py").write_text("__version__ = '0.5.12'\n")
    rename(site, "--chunked-prefill-size", "--prefill-chunk")
    assert installed(site).value("launch.unrecognized") == []
    assert not cache.exists()


def test_another_version_than_the_one_on_disk_is_not_read_from_it(site, cache):
    facts = Facts()
    facts.set("sglang.version", "0.5.14.dev9", source="packages", place="a snapshot of another machine")
    facts.set("sglang.path", str(site / "sglang"), source="packages", place="the same snapshot")
    (parsed,) = launch.parse_script(COMMAND, "launch.sh")
    interpret(facts, parsed)
    assert facts.value("asked.chunked_prefill_size") == 4096
    assert not cache.exists()


def test_an_assumed_version_is_not_read_from_the_disk(site, cache):
    facts = Facts()
    facts.set("sglang.version", "0.5.99", source="assume", place="--assume")
    packages.read_packages(facts, locate(str(site)))
    (parsed,) = launch.parse_script(COMMAND, "launch.sh")
    interpret(facts, parsed)
    assert facts.value("sglang.version") == "0.5.99"
    assert not cache.exists()
