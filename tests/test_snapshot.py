"""Snapshots: what was read, in a file, and back."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdoctor import snapshot
from sgdoctor.collect import environment, launch, log, server, server_info
from sgdoctor.errors import UsageError
from sgdoctor.facts import Conflict, Facts, Known, Match, Provenance, Series, Unknown
from tests.collect import servers

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "docs" / "snapshot.schema.json").read_text())
CAPTURES = ROOT / "tests" / "captures"
NOW = dt.datetime(2026, 3, 1, 12, 0, 0, tzinfo=dt.timezone.utc)


@pytest.fixture
def facts() -> Facts:
    """Return facts of every kind: of several places, counted, unknown, in conflict; matches and notes."""
    facts = Facts()
    server_info.read_server_info_file(facts, CAPTURES / "kv-pool-full" / "server_info.json")
    environment.read_environment_file(facts, ROOT / "tests/scenarios/rtx-pro-6000/environment.json")
    facts.set("log.retractions", 16, source="log", place="server.log:90", count=3)
    facts.set("arg.tp_size", 1, source="launch", place="launch.sh:3")
    facts.set("arg.tp_size", 2, source="log", place="server.log:1")
    facts.set("asked.tp_size", None, source="launch", place="launch.sh")
    facts.set_unknown("host.shm_mib", "permission denied", ["host.container"])
    facts.derive("packages.kernel_duplicates", False, ["package.sgl_kernel"])
    facts.matches["MEM201"] = Match(4, "server.log:7", "retracted", {"n": "16"}, ("TP0", "TP1"))
    facts.patterns_sought |= {"MEM201", "RUN101"}
    facts.notes.append("server.log:3 was not understood")
    facts.series.append(Series("token_usage", "share", "http://h:1/metrics", [(0.0, 0.24), (2.0, 0.3)]))
    return facts


def saved(facts: Facts, folder: Path) -> dict:
    snapshot.save(facts, folder / "snapshot.json", now=NOW)
    return json.loads((folder / "snapshot.json").read_text())


def test_what_is_saved_is_loaded(facts: Facts, tmp_path: Path) -> None:
    saved(facts, tmp_path)
    loaded = snapshot.load(tmp_path / "snapshot.json")
    derived = {name for name, fact in facts.items() if isinstance(fact, Known) and not fact.provenance}
    assert derived == {"gpu.shared_memory_bytes", "packages.kernel_duplicates"}
    assert dict(loaded.items()) == {n: f for n, f in facts.items() if n not in derived}
    assert loaded.matches == facts.matches
    assert loaded.patterns_sought == facts.patterns_sought
    assert loaded.notes == facts.notes
    assert loaded.series == facts.series
    assert loaded.conflicts == facts.conflicts != []
    tp = loaded.get("arg.tp_size")
    assert [read.place for read in tp.provenance][-1] == "launch.sh:3"


def test_saving_what_was_loaded_changes_nothing(facts: Facts, tmp_path: Path) -> None:
    first = saved(facts, tmp_path)
    (tmp_path / "again").mkdir()
    assert saved(snapshot.load(tmp_path / "snapshot.json"), tmp_path / "again") == first


def test_a_snapshot_holds_to_its_schema(facts: Facts, tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(saved(facts, tmp_path), SCHEMA)
    (tmp_path / "empty").mkdir()
    jsonschema.validate(saved(Facts(), tmp_path / "empty"), SCHEMA)


@pytest.mark.parametrize("key", sorted(SCHEMA["required"]))
def test_the_schema_and_the_reader_agree_on_what_is_required(facts: Facts, tmp_path: Path, key: str) -> None:
    said = saved(facts, tmp_path)
    del said[key]
    file = tmp_path / "less.json"
    file.write_text(json.dumps(said))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(said, SCHEMA)
    with pytest.raises(UsageError, match=f"not a snapshot: .*{key}"):
        snapshot.load(file)


def test_no_secret_gets_into_a_snapshot(tmp_path: Path) -> None:
    """Secrets planted in every source: script, log, answers, environment, URL."""
    facts = Facts()
    script = tmp_path / "launch.sh"
    script.write_text(
        "export HF_TOKEN=planted-a SGLANG_API_KEY=planted-b\n"
        "python3 -m sglang.launch_server --model-path /m --api-key planted-c --admin-api-key=planted-d "
        "--ssl-keyfile-password 'planted-e'\n"
    )
    for command in launch.read_script(script):
        launch.collect(facts, command)
    written = tmp_path / "server.log"
    written.write_text(
        "[2026-03-01 12:00:00] server_args=ServerArgs(model_path='/m', tp_size=1, api_key='planted-f', "
        "admin_api_key='planted-g')\n[2026-03-01 12:00:01] curl -H 'Authorization: Bearer planted-h'\n"
    )
    log.read_logs(facts, [log.source(str(written))], {"RUN101": "curl (?P<what>.*)"})
    said = {
        "version": "0.5.20",
        "api_key": "planted-i",
        "model_loader_extra_config": {"hf_token": "planted-j"},
        "launch_command": "--api-key planted-k",
        "internal_states": [{"api_key": "planted-i", "env_vars": {"SGLANG_TOKEN": "planted-l"}}],
    }
    with servers.running(
        {**servers.sglang(), "/server_info": servers.reply(200, json.dumps(said).encode())}
    ) as there:
        url = there.url.replace("//", "//me:planted-m@")
        reading = server.read_server(facts, url, "planted-n")
    facts.set("launch.command", reading.command or [], source="http", place=url)
    environment.read_environment(facts, {"env": {"SGLANG_X_PASSWORD": "planted-o"}}, "environment.json")
    facts.notes.append("AWS_SECRET_ACCESS_KEY=planted-p")
    snapshot.save(facts, tmp_path / "snapshot.json")
    text = (tmp_path / "snapshot.json").read_text()
    assert "planted" not in text
    assert "<redacted>" in text


def test_a_variable_that_a_doctor_does_not_read_is_not_saved(tmp_path: Path) -> None:
    facts = Facts()
    facts.set("env.SGLANG_MOE_CONFIG_DIR", "/configs", source="launch", place="launch.sh:1")
    facts.set("env.MY_DATABASE", "planted", source="launch", place="launch.sh:2")
    assert set(saved(facts, tmp_path)["facts"]) == {"env.SGLANG_MOE_CONFIG_DIR"}


def test_a_write_that_fails_leaves_the_old_file(facts: Facts, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        snapshot.save(facts, tmp_path / "gone" / "snapshot.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        snapshot.save(facts, tmp_path / "folder.json")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.json"]  # nothing half written


def test_an_existing_snapshot_is_replaced_whole(facts: Facts, tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text("x" * 10**6)
    assert saved(facts, tmp_path)["created"] == "2026-03-01T12:00:00Z"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: no snapshot"),
        ("{}", "missing required field `format`"),
        ('{"format": "something", "version": 1}', "not a snapshot"),
        ('{"format": "sgdoctor-snapshot", "version": 2}', "written by a newer sgdoctor"),
        ('{"format": "sgdoctor-snapshot", "version": 1}', "missing required field"),
        ("[" * 5000, "not a snapshot"),
        ("\x00", "not a snapshot"),
    ],
)
def test_a_file_that_is_no_snapshot(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as raised:
        snapshot.load(file)
    assert str(raised.value).startswith(str(file))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        snapshot.load(tmp_path / "gone.json")


def test_facts_that_this_sgdoctor_does_not_know_become_notes(facts: Facts, tmp_path: Path) -> None:
    said = saved(facts, tmp_path)
    said["facts"]["future.fact"] = {"value": 1, "sources": [{"source": "log", "place": "x"}]}
    said["facts"]["gpu.count"]["value"] = "four"
    file = tmp_path / "future.json"
    file.write_text(json.dumps(said))
    loaded = snapshot.load(file)
    assert not loaded.known("future.fact")
    assert isinstance(loaded.get("gpu.count"), Unknown)
    assert len([note for note in loaded.notes if "left out" in note]) == 2


TEXT = st.text(max_size=20)
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT


@given(
    st.dictionaries(st.from_regex(r"arg\.x_[a-z_]{1,8}", fullmatch=True), st.recursive(
        VALUES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=5)),
    st.lists(TEXT),
    st.dictionaries(TEXT, TEXT, max_size=3),
)  # fmt: skip
def test_any_value_survives(tmp_path_factory, values: dict, notes: list[str], groups: dict[str, str]) -> None:
    folder = tmp_path_factory.mktemp("snapshot")
    facts = Facts()
    for name, value in values.items():
        facts.set(name, value, source="http", place="/server_info")
    facts.notes += notes
    facts.matches["RUN101"] = Match(1, "log:1", "text", groups)
    facts.conflicts.append(
        Conflict("arg.tp_size", Known(1, (Provenance("http", "a"),)), Known(2, (Provenance("log", "b"),)))
    )
    first = saved(facts, folder)
    jsonschema.validate(first, SCHEMA)
    loaded = snapshot.load(folder / "snapshot.json")
    assert {name for name, _ in loaded.items()} == set(values)
    assert loaded.conflicts == facts.conflicts
    assert saved(loaded, folder) == first
