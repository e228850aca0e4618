"""An index of what the modules of an unpacked SGLang define, read with ``ast`` and without importing them."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

_GROWING_METHODS = {"append": "append", "add": "append", "extend": "extend", "update": "extend"}


@dataclasses.dataclass(frozen=True)
class Imported:
    """``from module import name``."""

    module: str
    name: str


@dataclasses.dataclass(frozen=True)
class ImportedModule:
    """``import module``."""

    module: str


Definition = ast.expr | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | Imported | ImportedModule


@dataclasses.dataclass
class Module:
    """The names that one module binds at its top level, and how its lists grow after that.

    ``growth`` holds (list name, "append" or "extend", argument) of unconditional statements: a list that
    grows only on some machine keeps the part that is the same everywhere.
    """

    name: str
    path: Path
    tree: ast.Module
    names: dict[str, Definition] = dataclasses.field(default_factory=dict)
    growth: list[tuple[str, str, ast.expr]] = dataclasses.field(default_factory=list)
    star_imports: list[str] = dataclasses.field(default_factory=list)

    def scan(self, body: list[ast.stmt], *, conditional: bool = False) -> None:
        """Record what ``body`` defines."""
        for statement in body:
            self._scan_statement(statement, conditional)

    def _scan_statement(self, statement: ast.stmt, conditional: bool) -> None:  # noqa: FBT001
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    self.names.setdefault(target.id, statement.value)
        elif isinstance(statement, ast.AnnAssign):
            if isinstance(statement.target, ast.Name) and statement.value is not None:
                self.names.setdefault(statement.target.id, statement.value)
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self.names[statement.name] = statement
        elif isinstance(statement, ast.ImportFrom):
            self._scan_import_from(statement)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                top = alias.name.split(".")[0]
                self.names.setdefault(
                    alias.asname or top, ImportedModule(alias.name if alias.asname else top)
                )
        elif isinstance(statement, ast.If):
            self.scan(statement.body, conditional=True)
            self.scan(statement.orelse, conditional=True)
        elif isinstance(statement, ast.Try):
            self.scan(statement.body, conditional=conditional)
            for handler in statement.handlers:
                self.scan(handler.body, conditional=True)
        elif not conditional:
            self._scan_growth(statement)

    def _scan_import_from(self, statement: ast.ImportFrom) -> None:
        module = statement.module or ""
        if statement.level:
            parts = self.name.split(".")
            if self.path.name != "__init__.py":
                parts = parts[:-1]
            parts = parts[: len(parts) - (statement.level - 1)]
            module = ".".join([*parts, module] if module else parts)
        for alias in statement.names:
            if alias.name == "*":
                self.star_imports.append(module)
            else:
                self.names.setdefault(alias.asname or alias.name, Imported(module, alias.name))

    def _scan_growth(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            self.growth.append((statement.target.id, "extend", statement.value))
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            function = statement.value.func
            if (
                isinstance(function, ast.Attribute)
                and isinstance(function.value, ast.Name)
                and function.attr in _GROWING_METHODS
                and statement.value.args
            ):
                how = _GROWING_METHODS[function.attr]
                self.growth.append((function.value.id, how, statement.value.args[0]))


class Package:
    """The modules below one unpacked or installed ``sglang`` folder, parsed when asked for."""

    def __init__(self, package_dir: Path) -> None:
        self.root = package_dir
        self._modules: dict[str, Module | None] = {}

    def path(self, module: str) -> Path | None:
        """Return the source file of ``module`` (``sglang.srt.server_args``), or None when there is none."""
        head, *rest = module.split(".")
        if head != "sglang":
            return None
        base = self.root.joinpath(*rest)
        for candidate in (base.with_name(base.name + ".py"), base / "__init__.py"):
            if candidate.is_file():
                return candidate
        return None

    def module(self, name: str) -> Module | None:
        """Return the parsed module, or None when SGLang has none of that name or Python cannot parse it."""
        if name not in self._modules:
            self._modules[name] = self._parse(name)
        return self._modules[name]

    def looked_up(self) -> list[str]:
        """Return the names of all modules that were asked for, whether SGLang has them or not."""
        return list(self._modules)

    def _parse(self, name: str) -> Module | None:
        path = self.path(name)
        if path is None:
            return None
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
            return None
        module = Module(name, path, tree)
        module.scan(tree.body)
        return module
