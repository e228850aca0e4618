"""Which environment variables may be read, and which of them are secrets."""

from __future__ import annotations

import pytest

import sgdoctor
from sgdoctor import examine, redact
from sgdoctor.sources import Sources


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "4096", "4096"),
        ("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "hf_x", redact.REDACTED),
        ("SGLANG_ACCESS_TOKEN", "4096", redact.REDACTED),
        ("SGLANG_API_TOKENS", "4096", redact.REDACTED),
        ("SGLANG_NUM_TOKENS", "123456789012345678", redact.REDACTED),
        ("SGLANG_X_MAX_TOKENS", "8192", "8192"),
        ("SGLANG_MOE_CONFIG_DIR", "/configs", "/configs"),
    ],
)
def test_a_number_of_tokens_is_no_secret(name, value, shown):
    assert redact.environment({name: value}) == {name: shown}


def test_variables_that_do_not_matter_are_not_read():
    assert redact.environment({"AWS_SECRET_ACCESS_KEY": "x", "EDITOR": "vi"}) == {}


@pytest.mark.parametrize("flag", ["--apikey", "--api_key", "--api-kye", "--admin_api_key"])
@pytest.mark.parametrize("between", ["=", " "])
def test_the_value_of_a_misspelt_key_is_a_secret(tmp_path, flag, between):
    """The report tells of the flag, which no release knows, and of nothing behind it."""
    script = tmp_path / "run.sh"
    script.write_text(f"sglang serve --model-path /m {flag}{between}squeamish-ossifrage\n")
    sources = Sources(launch=str(script), assume=("sglang.version=0.5.20",))

    told = repr(sgdoctor.check(launch=str(script), assume=sources.assume)) + examine.snapshot(sources)

    assert flag in told
    assert "squeamish" not in told


def test_a_flag_that_only_begins_like_a_key_is_none():
    assert redact.text("--api-kernel fast --api-keep-alive=5") == "--api-kernel fast --api-keep-alive=5"
