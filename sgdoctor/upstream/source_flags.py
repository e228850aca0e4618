"""Reads the server's flags out of an unpacked or installed SGLang, from its source text alone.

Up to 0.5.13 ``ServerArgs.add_cli_args`` registers every flag; from 0.5.14 on annotated fields do, and
add_cli_args those with choices computed at run time and the deprecated ones.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sgdoctor.upstream.flag import Action, Flag, ValueType
from sgdoctor.upstream.source_fields import SERVER_ARGS, Field, ServerArgsSource, SourceError, known
from sgdoctor.upstream.source_values import (
    SUPPRESS,
    Builtin,
    ClassRef,
    FunctionRef,
    Unresolved,
    plain,
)

_ACTIONS: dict[str, Action] = {
    "store": "store",
    "store_true": "store_true",
    "BooleanOptionalAction": "boolean",
    "LoRAPathAction": "lora_paths",
    "DeprecatedAction": "deprecated",
    "DeprecatedStoreTrueAction": "deprecated_true",
    "DeprecatedStoreConstAction": "deprecated_const",
    "DeprecatedAliasStoreAction": "deprecated_alias",
}
_TAKE_NO_VALUE = frozenset(
    {"deprecated", "deprecated_true", "deprecated_const"}
)  # unless nargs says otherwise
_TYPES: dict[str, ValueType] = {
    "str": "str",
    "int": "int",
    "float": "float",
    "json.loads": "json",
    "json_list_type": "json_list",
    "nullable_str": "nullable_str",
    "human_readable_int": "human_readable_int",
    "parse_cuda_graph_config_arg": "cuda_graph_config",
    "parse_cuda_graph_backend_arg": "cuda_graph_backend",
}
_DEPRECATED_HELP = re.compile(r"[\[(]?deprecated\b", re.IGNORECASE)


def read_flags(package_dir: Path) -> list[Flag]:
    """Return the flags of the SGLang whose ``sglang`` folder is ``package_dir``, in the parser's order.

    Raises SourceError when its layout is unknown or a value cannot be told from the source.
    """
    return flags_in(ServerArgsSource(package_dir))


def flags_in(source: ServerArgsSource) -> list[Flag]:
    """Return the flags as ``read_flags`` does, of a source that is open already."""
    fields = source.fields()
    found = [_flag_of_field(source, field) for field in fields if field.meta is not None]
    found += _registered(source, {field.name: field.default for field in fields})
    renamed = _renamed_destinations(source)
    flags = [replace(flag, dest=renamed.get(flag.dest, flag.dest)) for flag in found if flag is not None]
    for flag in flags:
        if not known([flag.default, flag.const]):
            raise SourceError(f"{flag.option}: its default cannot be told from the source")
    return flags


def _flag_of_field(source: ServerArgsSource, field: Field) -> Flag | None:
    """Do what add_cli_args_from_dataclass (arg_groups/arg_utils.py, 0.5.14 to 0.5.23) does for one field."""
    meta = field.meta or {}
    if meta.get("no_cli"):
        return None
    option = meta.get("cli_name") or "--" + field.name.replace("_", "-")
    names = [option, *(meta.get("aliases") or [])]
    keywords: dict[str, Any] = {"dest": field.name, "help": meta.get("help", "")}
    if not field.required:
        keywords["default"] = field.default
    if meta.get("action") is not None:
        return _flag(names, {**keywords, "action": meta["action"], **(meta.get("action_kwargs") or {})})
    inner = _without_none(field.annotation)
    text = ast.unparse(inner)
    keywords |= {name: meta.get(name) for name in ("choices", "const")}
    parser = field.raw.get("type_parser")
    if parser is not None:
        keywords["type"] = Unresolved(parser)
    if isinstance(inner, ast.Subscript) and text.startswith(("Literal[", "typing.Literal[")):
        literal = source.evaluator.evaluate(inner.slice, SERVER_ARGS, {})
        values = list(literal) if isinstance(literal, tuple) else [literal]
        keywords["choices"] = meta.get("choices") or values
        keywords.setdefault("type", _inferred_type(type(values[0]).__name__))
    elif parser is None and re.match(r"(List|list|typing\.List)\[", text):
        keywords["nargs"] = meta.get("nargs") or "+"
        keywords["type"] = _inferred_type(text[text.index("[") + 1 : -1])
    elif text == "bool":
        keywords["action"] = "store_true"
    else:
        required = meta.get("required")
        keywords["required"] = field.required if required is None else required is True
        keywords["nargs"] = meta.get("nargs")
        keywords.setdefault("type", _inferred_type(text))
    return _flag(names, keywords)


def _registered(source: ServerArgsSource, defaults: dict[str, Any]) -> list[Flag]:
    """Return the flags that add_cli_args registers itself, statement by statement.

    Statements under a condition do not count: the only one up to 0.5.23 adds a choice for tests (token_oracle
    of --sampling-backend, when SGLANG_KV_CANARY_ENABLE_TOKEN_ORACLE is set, 0.5.19+).
    """
    evaluate = source.evaluator.evaluate
    scope: dict[str, Any] = {}
    found: list[Flag] = []
    for statement in source.method("add_cli_args").body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            scope[statement.targets[0].id] = evaluate(statement.value, SERVER_ARGS, scope)
            continue
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "parser.add_argument":
            continue
        keywords: dict[str, Any] = {}
        for key in call.keywords:
            value = evaluate(key.value, SERVER_ARGS, scope)
            if key.arg == "default":
                value = _default(source, key.value, value, defaults)
            elif key.arg in ("type", "action") and isinstance(value, FunctionRef | Unresolved):
                value = Unresolved(ast.unparse(key.value))
            if key.arg:
                keywords[key.arg] = value
        found.append(_flag([evaluate(name, SERVER_ARGS, scope) for name in call.args], keywords))
    return found


def _default(source: ServerArgsSource, node: ast.expr, value: Any, defaults: dict[str, Any]) -> Any:
    """Return the field's default for ``ServerArgs.x`` and ``_declared_default("x")``, else ``value``."""
    text = ast.unparse(node)
    if text.startswith("ServerArgs."):
        return defaults.get(text.removeprefix("ServerArgs."), Unresolved(text))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "_declared_default":
        name = source.evaluator.evaluate(node.args[0], SERVER_ARGS, {})
        return defaults.get(name, Unresolved(text))
    return value


def _renamed_destinations(source: ServerArgsSource) -> dict[str, str]:
    """Return argparse's name -> field.

    ``args.tp_size = args.tensor_parallel_size`` stands in from_cli_args up to 0.5.13.
    """
    renamed = {}
    for statement in source.method("from_cli_args").body:
        if isinstance(statement, ast.Assign):
            target, value = ast.unparse(statement.targets[0]), ast.unparse(statement.value)
            if target.startswith("args.") and value.startswith("args."):
                renamed[value.removeprefix("args.")] = target.removeprefix("args.")
    return renamed


def _flag(names: list[Any], keywords: dict[str, Any]) -> Flag:
    """Build the Flag of ``parser.add_argument(*names, **keywords)``."""
    if any(not isinstance(name, str) for name in names):
        raise SourceError(f"the option strings {names} cannot be told from the source")
    options = tuple(dict.fromkeys(names))
    action_name, type_name = _action_name(keywords.get("action")), _type_name(keywords.get("type"))
    if action_name not in _ACTIONS or type_name not in _TYPES:
        raise SourceError(f"{options[0]}: unknown action {action_name} or type {type_name}")
    action = _ACTIONS[action_name]
    default = plain(keywords.get("default"))
    if "default" not in keywords and action in ("store_true", "deprecated_true"):
        default = False
    longest = next((option for option in options if option.startswith("--")), options[0])
    choices = plain(keywords.get("choices"))
    if not known(choices):
        raise SourceError(f"{options[0]}: its choices cannot be told from the source")
    const = keywords.get("const_value") if action == "deprecated_const" else keywords.get("const")
    error, help_text = keywords.get("error_message"), keywords.get("help")
    return Flag(
        dest=keywords.get("dest") or longest.lstrip("-").replace("-", "_"),
        options=options,
        action=action,
        type=_TYPES[type_name],
        nargs=keywords.get("nargs", 0 if action in _TAKE_NO_VALUE else None),
        const=plain(const),
        choices=None if choices is None else tuple(choices),
        default=None if default == SUPPRESS else default,
        suppressed=default == SUPPRESS,
        required=keywords.get("required") is True,
        new_flag=keywords.get("new_flag"),
        note=error or _note(action, help_text),
        error=error,
    )


def _note(action: Action, help_text: Any) -> str | None:
    """Return the help text of a flag that it calls deprecated."""
    if not isinstance(help_text, str) or help_text == SUPPRESS:
        return None
    if action.startswith("deprecated") or _DEPRECATED_HELP.match(help_text):
        return " ".join(help_text.split())
    return None


def _without_none(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("Optional", "typing.Optional"):
        return node.slice
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [side for side in (node.left, node.right) if ast.unparse(side) != "None"]
        if len(sides) == 1:
            return sides[0]
    return node


def _inferred_type(text: str) -> Builtin:
    return Builtin(text if text in ("int", "float") else "str")


def _type_name(value: Any) -> str:
    if isinstance(value, Builtin):
        return value.name
    if isinstance(value, Unresolved):
        text = value.source.replace(":", ".")
        return text if text in _TYPES else text.split(".")[-1]
    return "str"


def _action_name(value: Any) -> str:
    if isinstance(value, ClassRef):
        return value.node.name
    if isinstance(value, Unresolved):
        return value.source.replace(":", ".").split(".")[-1]
    return value or "store"
