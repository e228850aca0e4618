"""What a release requires of its Python environment: its metadata and the versions it asserts at start."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

import msgspec
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.wheels import CACHE, DownloadError

MACHINES = ("x86_64", "aarch64")  # platform.machine() of the Linux hosts that markers are evaluated for
_REPORT_TIMEOUT = 300  # seconds


class Assertion(msgspec.Struct, frozen=True):
    """A minimum version that the server asserts at start (assert_pkg_version in entrypoints/engine.py)."""

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
        (line,) = (line for line in self.requirements if line.startswith("torch=="))
        return line.removeprefix("torch==")


def read_pins(source: Path) -> Pins:
    """Read the unpacked wheel in ``source``."""
    metadata = next(source.glob("sglang-*.dist-info/METADATA"))
    headers = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
    return Pins(
        python=headers["Requires-Python"],
        requirements=tuple(headers.get_all("Requires-Dist") or ()),
        assertions=tuple(_assertions(source / "sglang" / "srt" / "entrypoints" / "engine.py")),
    )


def requirement_row(line: str) -> dict[str, Any]:
    """Return a Requires-Dist line in parts: normalized name, specifier, extra, and for which machines."""
    requirement = Requirement(line)
    row: dict[str, Any] = {
        "name": canonicalize_name(requirement.name),
        "specifier": str(requirement.specifier),
    }
    marker, _, extra = (str(requirement.marker) if requirement.marker else "").partition("extra == ")
    if extra:
        row["extra"] = extra.strip('"')
    marker = marker.removesuffix(" and ")
    if marker:
        row["marker"] = marker
        row["machines"] = [machine for machine in MACHINES if Marker(marker).evaluate(_environment(machine))]
    return row


def _environment(machine: str) -> dict[str, str]:
    return {"sys_platform": "linux", "platform_machine": machine, "python_version": "3.12"}


def triton_of_torch(torch: str) -> str:
    """Return the Triton that the Linux wheel of ``torch`` requires: a specifier (``==3.6.0``, ``~=3.8.0``).

    Read from the wheel's metadata, for which pip need not fetch the wheel. Raises DownloadError.
    """
    report = CACHE / f"torch-{torch}.json"
    if not report.exists():
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-input", "--no-deps"]
        command += ["--ignore-installed", "--only-binary=:all:", "--implementation=cp"]
        command += ["--python-version=3.12", "--platform=manylinux_2_28_x86_64"]
        command += [f"--target={CACHE / 'nothing'}", "--report=-", f"torch=={torch}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_REPORT_TIMEOUT, check=False)
        if done.returncode:
            raise DownloadError(f"{' '.join(command)}\n{done.stderr.strip()}")
        CACHE.mkdir(exist_ok=True)
        report.write_text(done.stdout, encoding="utf-8")
    (wheel,) = json.loads(report.read_text(encoding="utf-8"))["install"]
    requirements = [Requirement(line) for line in wheel["metadata"]["requires_dist"]]
    (specifier,) = (
        str(requirement.specifier) for requirement in requirements if requirement.name == "triton"
    )
    return specifier


def _assertions(engine: Path) -> list[Assertion]:
    tree = ast.parse(engine.read_text(encoding="utf-8"))
    found: list[Assertion] = []

    def visit(node: ast.AST, conditions: tuple[str, ...]) -> None:
        if isinstance(node, ast.If):
            for statement in node.body:
                visit(statement, (*conditions, _operand(node.test)))
            for statement in node.orelse:
                visit(statement, (*conditions, f"not ({ast.unparse(node.test)})"))
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
