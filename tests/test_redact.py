"""Which environment variables may be read, and which of them are secrets."""

from __future__ import annotations

import pytest

from sgdoctor import redact


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
