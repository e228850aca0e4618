"""What ``sglang serve`` does with a command line before the server's own parser sees it."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec


class Serve(msgspec.Struct, frozen=True):
    """How a release's ``sglang serve`` (cli/serve.py, cli/utils.py) finds the model.

    ``positional``: a first word that is no option is the model path. ``model_type``: ``--model-type`` is
    taken out first. ``model_options``: the spellings of the model path that it looks for.
    """

    positional: bool
    model_type: bool
    model_options: tuple[str, ...]


def read_serve(package_dir: Path) -> Serve:
    """Read ``package_dir``, the ``sglang`` folder of a wheel."""
    serve = _functions(package_dir / "cli" / "serve.py")
    utils = _functions(package_dir / "cli" / "utils.py")
    finder = utils.get("try_get_model_path") or utils["get_model_path"]
    compared = [
        constant.value
        for node in ast.walk(finder)
        if isinstance(node, ast.Compare)
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    ]
    called = {ast.unparse(node.func) for node in ast.walk(serve["serve"]) if isinstance(node, ast.Call)}
    return Serve(
        positional="_normalize_positional_model_path" in called,
        model_type="_extract_model_type_override" in called,
        model_options=tuple(value for value in compared if value.startswith("--model")),
    )


def _functions(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
