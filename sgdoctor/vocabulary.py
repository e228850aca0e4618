"""The fact vocabulary: every name a rule may read, with its type and where it comes from."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

FactType = Literal["bool", "int", "float", "str", "version", "strings", "ints", "records"]

# Families whose members follow SGLang's own names: any flag destination, environment variable or package.
OPEN_FAMILIES = ("arg.", "asked.", "env.", "package.", "pin.")

_PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "bool": bool,
    "int": int,
    "float": (int, float),
    "str": str,
    "version": str,
}


class FactSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One name of the vocabulary; ``show`` is how one record reads in a sentence (``{name} {installed}``).

    ``subject``: the value names what a finding that reads it is about; of records the first field does.
    """

    type: FactType
    about: str
    nullable: bool = False
    unit: str | None = None
    show: str | None = None
    subject: bool = False
    fields: dict[str, FieldSpec] = {}


class FieldSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One field of the records of a fact of type ``records``."""

    type: FactType
    nullable: bool = False


class FactTypeError(TypeError):
    """A value that the vocabulary does not allow for its name."""


class Vocabulary:
    """The names of ``rules/facts.yaml``."""

    def __init__(self, specs: dict[str, FactSpec]) -> None:
        self.specs = specs

    def __contains__(self, name: str) -> bool:
        return name in self.specs

    def spec(self, name: str) -> FactSpec | None:
        """Return what ``name`` is, or None for a member of an open family that no rule reads."""
        return self.specs.get(name)

    def subjects(self, name: str, value: Any) -> list[str]:
        """Return what a finding that read ``name`` is about by its value: flags, packages, files; sorted.

        Nothing where the fact names no subject. Of a text what stands in parentheses does not count: argparse
        puts the choices there, which change with the release and with the Python that lists them.
        """
        spec = self.specs.get(name)
        if spec is None or not spec.subject or value is None:
            return []
        if spec.type == "records":
            first = next(iter(spec.fields))
            return sorted({str(record.get(first)) for record in value})
        return [value.partition(" (")[0]] if spec.type == "str" else sorted(set(value))

    def check(self, name: str, value: Any) -> Any:
        """Return ``value`` as the vocabulary stores it.

        Raises FactTypeError when ``name`` is neither in the vocabulary nor in an open family, or when
        ``value`` is not of its type.
        """
        spec = self.specs.get(name)
        if spec is None:
            if name.startswith(OPEN_FAMILIES):
                return value
            raise FactTypeError(f"{name} is not in the fact vocabulary (rules/facts.yaml)")
        if value is None:
            if not spec.nullable:
                raise FactTypeError(f"{name} cannot be null")
            return None
        return _checked(name, spec.type, value)


def _checked(name: str, kind: FactType, value: Any) -> Any:
    if kind in ("strings", "ints", "records"):
        if not isinstance(value, list | tuple):
            raise FactTypeError(f"{name} is a list, not {type(value).__name__}")
        return list(value)
    wrong = isinstance(value, bool) is not (kind == "bool")
    if wrong or not isinstance(value, _PYTHON_TYPES[kind]):
        raise FactTypeError(f"{name} is of type {kind}, not {type(value).__name__}")
    return float(cast("float", value)) if kind == "float" else value


def rules_root() -> Path:
    """Return the folder of the rules that come with sgdoctor, in a wheel, a zipapp or a checkout."""
    packaged = resources.files("sgdoctor") / "_rules"
    if packaged.is_dir():
        return Path(str(packaged))
    return Path(__file__).parents[1] / "rules"


@functools.cache
def load(path: Path | None = None) -> Vocabulary:
    """Read the vocabulary from ``path``, by default the one that comes with the rules."""
    import yaml

    file = path or rules_root() / "facts.yaml"
    with file.open("rb") as stream:
        raw = yaml.load(stream, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    specs = msgspec.convert(raw, dict[str, FactSpec])
    for name in [name for name in specs if name.startswith("arg.")]:
        asked = msgspec.structs.replace(specs[name], nullable=True, about=f"{specs[name].about}, as written")
        specs.setdefault(f"asked.{name.removeprefix('arg.')}", asked)
    return Vocabulary(specs)
