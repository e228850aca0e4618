"""What a rule page quotes: its sources, and the raw input of its test cases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tools import markdown

_GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull)/(\d+)\Z")
_FILE = re.compile(r"(?P<file>[\w./-]+?)(?::(?P<line>[\d,-]+))?@(?P<release>[\w.]+)\Z")

# How the sources of a case are named, and the language that their text is in.
_INPUTS = {
    "launch": ("launch script", "sh"),
    "log": ("`server.log`", "text"),
    "server_info": ("`/server_info`", "json"),
    "metrics": ("`/metrics`", "text"),
    "model": ("`config.json`", "json"),
    "environment": ("`environment.json`", "json"),
    "gpu": ("`--gpu`", "text"),
    "assume": ("`--assume`", "text"),
    "python": ("`--python`", "text"),
}


def source(text: str) -> str:
    """Return a source of a rule: issues, pull requests and pages as links, files of a release as text."""
    if found := _GITHUB.match(text):
        return f"[{found.group(1)}#{found.group(2)}]({text})"
    if text.startswith(("https://", "http://")):
        return f"<{text}>"
    if found := _FILE.match(text):
        line = f" line {found.group('line')}" if found.group("line") else ""
        return f"{markdown.code(found.group('file'))}{line}, SGLang {found.group('release')}"
    return markdown.prose(text)


def raw_inputs(given: Mapping[str, Any]) -> Iterator[str]:
    """Iterate over the raw input of a case, a block a source."""
    for name, value in given.items():
        title, language = _INPUTS.get(name, (name.replace("_", " "), "text"))
        if name == "files":
            for file, text in value.items():
                yield from _block(f"the file {markdown.code(file)}", text, "text")
        elif isinstance(value, str):
            yield from _block(title, value, language)
        elif name == "assume":
            yield from _block(title, "\n".join(value), language)
        else:
            yield from _block(title, _json(value), "json")


def _block(title: str, text: str, language: str) -> Iterator[str]:
    yield f"{title}:"
    yield markdown.fenced(text, language) if text.strip() else "(empty)"


def _json(value: Any, indent: str = "") -> str:
    """Return ``value`` as JSON with what fits on one line on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= 120 or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(name)}: {_json(each, inner)}" for name, each in value.items()]
        opening, closing = "{", "}"
    else:
        parts = [f"{inner}{_json(each, inner)}" for each in value]
        opening, closing = "[", "]"
    return opening + "\n" + ",\n".join(parts) + f"\n{indent}{closing}"
