"""What a release requires of its Python environment: its metadata and the versions it asserts at start."""

from __future__ import annotations

import ast
from email.parser import HeaderParser
from pathlib import Path

import msgspec

# torch -> the Triton that its own Linux wheel requires (Requires-Dist of the torch wheels on the index).
TRITON_OF_TORCH = {"2.9.1": "3.5.1", "2.11.0": "3.6.0", "2.13.0": "3.7.1", "2.14.1": "3.8.0"}


class Assertion(msgspec.Struct, frozen=True):
    """A minimum version that the server asserts at start (``assert_pkg_version`` in entrypoints/engine.py)."""

    package: str
    minimum: str
    condition: str


class Pins(msgspec.Struct, frozen=True):
    """What one release requires. ``requirements`` are the Requires-Dist lines of its METADATA."""

    python: str
    requirements: tuple[str, ...]
    assertions: tuple[Assertion, ...]

    @property
    def torch(self) -> str:
        """The torch version that the release requires."""
        (version,) = (line.removeprefix("torch==") for line in self.requirements if line.startswith("torch=="))
        return version


def read_pins(source: Path) -> Pins:
    """Read the unpacked wheel in ``source``."""
    metadata = next(source.glob("sglang-*.dist-info/METADATA"))
    headers = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
    return Pins(
        python=headers["Requires-Python"],
        requirements=tuple(headers.get_all("Requires-Dist") or ()),
        assertions=tuple(_assertions(source / "sglang" / "srt" / "entrypoints" / "engine.py")),
    )


def _assertions(engine: Path) -> list[Assertion]:
    tree = ast.parse(engine.read_text(encoding="utf-8"))
    found: list[Assertion] = []

    def visit(node: ast.AST, conditions: tuple[str, ...]) -> None:
        if isinstance(node, ast.If):
            for child in node.body:
                visit(child, (*conditions, _operand(node.test)))
            for child in node.orelse:
                visit(child, (*conditions, f"not ({ast.unparse(node.test)})"))
            return
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "assert_pkg_version":
            package, minimum = (ast.literal_eval(argument) for argument in node.args[:2])
            found.append(Assertion(package, minimum, " and ".join(conditions)))
        for child in ast.iter_child_nodes(node):
            visit(child, conditions)

    visit(tree, ())
    return found


def _operand(test: ast.expr) -> str:
    """Return ``test`` as it stands between two ``and``."""
    text = ast.unparse(test)
    return f"({text})" if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else text
