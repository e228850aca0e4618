"""Secrets in nested values and in command words, which `sgdoctor.redact` sees one text at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sgdoctor import redact

_SECRET_KEYS = redact.SECRET_DESTINATIONS | {"hf_token", "authorization", "password"}
_SECRET_FLAGS = tuple("--" + name.replace("_", "-") for name in sorted(redact.SECRET_DESTINATIONS))
# A flag of its own, and the beginning of one that holds a secret.
_HARMLESS_FLAGS = frozenset({"--ssl-keyfile", "--a", "--s", "--w"})


def value(given: Any) -> Any:
    """Return a value of any JSON type with the secrets in it replaced, and its text fit for UTF-8."""
    if isinstance(given, str):
        return redact.text(given).encode(errors="backslashreplace").decode()
    if isinstance(given, list | tuple):
        if all(isinstance(item, str) for item in given):
            return words(given)
        return [value(item) for item in given]
    if isinstance(given, dict):
        return {key: _member(str(key), item) for key, item in given.items()}
    return given


def _member(key: str, item: Any) -> Any:
    if key.lower() in _SECRET_KEYS and item not in (None, ""):
        return redact.REDACTED
    return value(item)


def words(given: Sequence[str]) -> list[str]:
    """Return the words of a command with the values of flags that hold secrets replaced.

    argparse takes any beginning of a flag for the flag, so ``--api-k`` counts too.
    """
    clean = []
    secret = False
    for word in given:
        flag, equals, _ = word.partition("=")
        if secret and not word.startswith("--"):
            clean.append(redact.REDACTED)
        elif equals and _holds_secret(flag):
            clean.append(f"{flag}={redact.REDACTED}")
        else:
            clean.append(value(word))
        secret = _holds_secret(word)
    return clean


def _holds_secret(flag: str) -> bool:
    flag = flag.replace("_", "-")
    return (
        flag.startswith("--")
        and len(flag) > len("--")
        and flag not in _HARMLESS_FLAGS
        and any(secret.startswith(flag) for secret in _SECRET_FLAGS)
    )
