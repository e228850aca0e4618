"""sgdoctor.toml and [tool.sgdoctor]: what is read, and what is said of a file that cannot be used."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest

from sgdoctor import config
from sgdoctor.errors import UsageError

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def written(folder: Path, text: str, name: str = "sgdoctor.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_the_example_of_the_page(tmp_path):
    (tmp_path / "ops" / "rules").mkdir(parents=True)
    settings = config.read(written(tmp_path, EXAMPLE)).settings
    assert (settings.fail_on, settings.ignore, settings.rules) == ("warning", ["RUN"], ["ops/rules"])
    assert settings.severity["SEC101"] == "error"
    gateway, tuning, in_house = settings.suppress
    assert (gateway.code, gateway.deployment, gateway.until) == ("SEC101", "staging-*", None)
    assert (tuning.until, tuning.model, tuning.file) == (dt.date(2027, 1, 31), "qwen3*", "deploy/*.sh")
    assert in_house.about == ["--in-house-*"]


def test_the_page_has_every_key(tmp_path):
    keys = (*config.Settings.__struct_encode_fields__, *config.Suppression.__struct_encode_fields__)
    assert [key for key in keys if not re.search(rf"\b{key}\b", PAGE)] == []


def test_the_example_keeps_to_the_schema_and_a_misspelt_key_does_not():
    schema = json.loads((ROOT / "docs" / "config.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    told = json.loads(msgspec.json.encode(msgspec.toml.decode(EXAMPLE)))
    validator.validate(told)
    assert not validator.is_valid({**told, "fail_on": "error"})
    del told["suppress"][0]["reason"]
    assert not validator.is_valid(told)


@pytest.mark.parametrize(
    ("name", "text"), [("sgdoctor.toml", "fail-on"), ("pyproject.toml", "[tool.sgdoctor]\nfail-on")]
)
def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path, name, text):
    file = written(tmp_path, f'\ufeff{text} = "info"\n', name)
    assert config.read(file).settings.fail_on == "info"
    assert config.found(tmp_path) == config.read(file)


# --- where it is looked for ---------------------------------------------------------------------------------


def test_a_folder_without_settings_has_none(tmp_path):
    assert config.found(tmp_path) is None
    written(tmp_path, '[project]\nname = "sgdoctor-of-ours"\n', "pyproject.toml")
    assert config.found(tmp_path) is None


def test_another_projects_broken_file_is_not_sgdoctors_business(tmp_path):
    written(tmp_path, "[project\n", "pyproject.toml")
    assert config.found(tmp_path) is None


def test_pyproject_has_a_table(tmp_path):
    written(tmp_path, '[tool.sgdoctor]\nfail-on = "info"\n', "pyproject.toml")
    found = config.found(tmp_path)
    assert (found.file.name, found.settings.fail_on) == ("pyproject.toml", "info")


def test_a_file_of_its_own_comes_before_pyproject(tmp_path):
    written(tmp_path, '[tool.sgdoctor]\nfail-on = "info"\n', "pyproject.toml")
    written(tmp_path, 'fail-on = "never"\n')
    assert config.found(tmp_path).settings.fail_on == "never"


def test_the_folder_above_is_not_searched(tmp_path):
    written(tmp_path, 'fail-on = "never"\n')
    (tmp_path / "below").mkdir()
    assert config.found(tmp_path / "below") is None


def test_an_empty_file_settles_nothing():
    assert config.read(Path("/dev/null")).settings == config.Settings()


# --- the command line and the file --------------------------------------------------------------------------


def test_the_command_line_comes_first_and_folders_add_up(tmp_path):
    (tmp_path / "ours").mkdir()
    text = 'fail-on = "warning"\nselect = ["CFG"]\nignore = ["RUN"]\nrules = ["ours"]\n'
    settings = config.read(written(tmp_path, text))
    left_open = config.chosen(settings, fail_on=None, select=[], ignore=[], rules=[])
    assert left_open == ("warning", ["CFG"], ["RUN"], [tmp_path / "ours"])
    said = config.chosen(settings, fail_on="never", select=["ARG"], ignore=["SEC"], rules=[Path("more")])
    assert said == ("never", ["ARG"], ["SEC"], [tmp_path / "ours", Path("more")])


def test_without_settings_errors_fail():
    assert config.chosen(None, fail_on=None, select=[], ignore=[], rules=[]) == ("error", [], [], [])


# --- what cannot be used ------------------------------------------------------------------------------------


def test_a_date_may_stand_in_quotes(tmp_path):
    text = '[[suppress]]\ncode = "CFG101"\nreason = "x"\nuntil = "2027-01-31"\n'
    assert config.read(written(tmp_path, text)).settings.suppress[0].until == dt.date(2027, 1, 31)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fail-on = \n", "not TOML: Invalid value (at line 1, column 11)"),
        ("\x00", "not TOML: "),
        ('fail_on = "error"\n', "unknown key fail_on; did you mean fail-on?"),
        (
            'colour = "red"\n',
            "unknown key colour; there are fail-on, select, ignore, rules, severity, suppress",
        ),
        ('fail-on = "bad"\n', "fail-on: Invalid enum value 'bad'"),
        ('select = "CFG"\n', "select: Expected `array`, got `str`"),
        ('[severity]\nCFG101 = "fatal"\n', "severity.CFG101: 'fatal' is none of error, warning, info"),
        ('[[suppress]]\ncode = "CFG101"\n', "suppress[0]: Object missing required field `reason`"),
        ('[[suppress]]\ncode = "CFG101"\nreason = ""\n', "suppress[0].reason: Expected `str` of length >= 1"),
        (
            '[[suppress]]\ncode = "CFG101"\nreason = " "\n',
            "suppress[0].reason: is empty; say why CFG101 is accepted",
        ),
        (
            '[[suppress]]\ncode = "CFG101"\nreason = "x"\nuntill = 2027-01-31\n',
            "unknown key suppress[0].untill; did you mean until?",
        ),
        (
            '[[suppress]]\ncode = "CFG101"\nreason = "x"\nuntil = "soon"\n',
            "suppress[0].until: Invalid RFC3339 encoded date",
        ),
        (
            '[[suppress]]\ncode = "CFG101"\nreason = "x"\nport = "30000"\n',
            "suppress[0].port: Expected `int | null`, got `str`",
        ),
        ('rules = ["nowhere"]\n', "rules[0]: no folder "),
        ("suppress = 3\n", "suppress: Expected `array`, got `int`"),
        ("suppress = [3]\n", "suppress[0]: Expected `object`, got `int`"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_with_the_file(tmp_path, text, said):
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        config.found(tmp_path)
    assert str(raised.value).startswith(f"{file}: {said}")
    assert "\n" not in str(raised.value)


def test_a_pyproject_that_is_named_must_have_the_table(tmp_path):
    file = written(tmp_path, "[project]\n", "pyproject.toml")
    with pytest.raises(UsageError, match=r"has no \[tool.sgdoctor\]; add the table, or name a sgdoctor.toml"):
        config.read(file)
    file.write_text("[tool]\nsgdoctor = 3\n")
    with pytest.raises(UsageError, match="Expected `object`, got `int`"):
        config.read(file)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.toml: No such file or directory"):
        config.read(tmp_path / "nowhere.toml")
    (tmp_path / "sgdoctor.toml").mkdir()
    with pytest.raises(UsageError, match=r"sgdoctor\.toml: Is a directory"):
        config.found(tmp_path)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "sgdoctor.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not TOML: "):
        config.found(tmp_path)
