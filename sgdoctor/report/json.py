"""Reports as JSON, and the schemas they keep to (docs/report.schema.json, docs/diff.schema.json)."""

from __future__ import annotations

from typing import Any

import msgspec

from sgdoctor.report.model import SCHEMA, Report


def render(report: msgspec.Struct | dict[str, Any], indent: int = 1) -> str:
    """Return a report (of check, of diff, of configs lint) as JSON text, with a newline at its end."""
    try:
        encoded = msgspec.json.encode(report)
    except UnicodeEncodeError:  # a file name that is not UTF-8 holds surrogates
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(report)))
    encoded = msgspec.json.format(encoded, indent=indent) + b"\n"
    return encoded.decode()


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(name): _encodable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    return value


def schema(
    report: type[msgspec.Struct] = Report, name: str = SCHEMA, command: str = "check"
) -> dict[str, Any]:
    """Return the JSON Schema of what ``command`` reports, made from the structs and their docstrings."""
    (top,), components = msgspec.json.schema_components([report], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:sgdoctor:{name}",
        "title": f"The report of sgdoctor {command} --format json",
        **top,
        "$defs": {name: _always_there(each) for name, each in sorted(components.items())},
    }


def _always_there(component: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a struct of which every field is written, whether it has a default or not."""
    component = {name: each for name, each in component.items() if name != "required"}
    properties = component.get("properties", {})
    for each in properties.values():
        each.pop("default", None)
    written = list(properties) if component.get("title") != "Recommendation" else []
    return {**component, **({"required": written} if written else {})}
