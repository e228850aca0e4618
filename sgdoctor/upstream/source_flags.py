"""Reads the server flags out of an unpacked or installed SGLang, from its source text alone.

Three layouts exist among the releases 0.5.7 to 0.5.23: up to 0.5.13 ``ServerArgs.add_cli_args`` registers every
flag; from 0.5.14 annotated fields of ServerArgs do; from 0.5.20 annotated fields of the ``_NS_PATH`` structs in
arg_groups/fields/ that ``_INPUT_NAMESPACES`` lists. The latter two register a few flags by hand as well.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

from sgdoctor.upstream.flag import Action, Flag, ValueType
from sgdoctor.upstream.source_eval import (
    SUPPRESS,
    Builtin,
    ClassRef,
    EnumMember,
    Evaluator,
    FunctionRef,
    Unresolved,
    plain,
)
from sgdoctor.upstream.source_modules import Package

SERVER_ARGS = "sglang.srt.server_args"
FIELDS = "sglang.srt.arg_groups.fields"

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
_ENDING = re.compile(r"deprecat|no longer|will be removed|has no effect|obsolete", re.IGNORECASE)
_HELP_READ = 220  # characters of a help text in which its deprecation stands


class SourceError(Exception):
    """This SGLang's source is not laid out like any release that sgdoctor knows."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of ServerArgs: its default before anything is parsed, and how it may change afterwards.

    ``repr`` is False for a field that the log banner leaves out; ``fallback`` stands in for a null that
    nothing resolves (0.5.20+); ``resolvable`` marks those that resolution passes may set (0.5.14+).
    """

    name: str
    default: Any = None
    required: bool = False
    resolvable: bool = False
    fallback: Any = None
    flag: Flag | None = None
    shown: bool = True


def read_flags(package_dir: Path) -> list[Flag]:
    """Return the flags of the SGLang whose ``sglang`` folder is ``package_dir``, in the parser's order.

    Raises SourceError when its layout is unknown or a value cannot be told from the source.
    """
    return FlagReader(package_dir).flags()


class FlagReader:
    """Reads fields and flags of one SGLang package."""

    def __init__(self, package_dir: Path) -> None:
        self.package = Package(package_dir)
        self.evaluator = Evaluator(self.package)
        module = self.package.module(SERVER_ARGS)
        if module is None:
            raise SourceError(f"{package_dir} has no srt/server_args.py that can be parsed")
        self._module = module
        definition = module.names.get("ServerArgs")
        if not isinstance(definition, ast.ClassDef):
            raise SourceError(f"{module.path} defines no class ServerArgs")
        self.server_args = definition

    # --- fields --------------------------------------------------------------------------------------------

    def fields(self) -> list[Field]:
        """Return the fields of ServerArgs in the order of their declaration.

        A field that a class declares twice (dcp_size, 0.5.15 and 0.5.16) keeps its first place and takes its
        last declaration, as in Python.
        """
        found: dict[str, Field] = {}
        for module, cls in [(SERVER_ARGS, self.server_args), *self._namespaces()]:
            for statement in cls.body:
                if _is_field(statement):
                    field = self._field(module, statement)
                    found[field.name] = field
        return list(found.values())

    def _namespaces(self) -> list[tuple[str, ast.ClassDef]]:
        """Return the structs that make up ServerArgs (0.5.20+), in the order of _INPUT_NAMESPACES."""
        listed = self._module.names.get("_INPUT_NAMESPACES")
        if not isinstance(listed, ast.List | ast.Tuple):
            return []
        found = []
        for element in listed.elts:
            value = self.evaluator.evaluate(element, SERVER_ARGS, {})
            if not isinstance(value, ClassRef):
                raise SourceError(f"no source for the fields of {ast.unparse(element)}")
            found.append((value.module, value.node))
        return found

    def _field(self, module: str, statement: Any) -> Field:
        name = statement.target.id
        annotation, meta, raw = self._annotation(module, statement.annotation)
        default = Unresolved("<required>")
        shown = True
        if statement.value is not None:
            default = plain(self.evaluator.evaluate(statement.value, module, {}))
            shown = "repr=False" not in ast.unparse(statement.value).replace(" ", "")
        required = statement.value is None
        value = None if required else default
        flag = None
        if meta is not None and not meta.get("no_cli"):
            flag = self._flag_of_field(name, annotation, meta, raw, required=required, default=value)
        meta = meta or {}
        return Field(
            name, value, required, bool(meta.get("resolvable")), plain(meta.get("fallback")), flag, shown
        )

    def _annotation(self, module: str, node: ast.expr) -> tuple[ast.expr, dict[str, Any] | None, dict[str, str]]:
        """Split ``A[T, "help"]`` and ``A[T, Arg(...)]`` into T, the Arg's values and their source text."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = ast.parse(node.value, mode="eval").body
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple)):
            return node, None, {}
        if ast.unparse(node.value) not in ("A", "Annotated", "typing.Annotated"):
            return node, None, {}
        inner, *metadata = node.slice.elts
        for item in metadata:
            if isinstance(item, ast.Call) and ast.unparse(item.func).split(".")[-1] == "Arg":
                values = {
                    key.arg: self.evaluator.evaluate(key.value, module, {}) for key in item.keywords if key.arg
                }
                if item.args:
                    values.setdefault("help", self.evaluator.evaluate(item.args[0], module, {}))
                return inner, values, {key.arg: ast.unparse(key.value) for key in item.keywords if key.arg}
            if not isinstance(item, ast.Call):
                text = self.evaluator.evaluate(item, module, {})
                if isinstance(text, str):
                    return inner, {"help": text}, {}
        return inner, None, {}

    def _flag_of_field(  # noqa: PLR0913
        self,
        name: str,
        annotation: ast.expr,
        meta: dict[str, Any],
        raw: dict[str, str],
        *,
        required: bool,
        default: Any,
    ) -> Flag:
        """Do what add_cli_args_from_dataclass of arg_groups/arg_utils.py does for one field."""
        option = meta.get("cli_name") or "--" + name.replace("_", "-")
        names = [option, *(meta.get("aliases") or [])]
        keywords: dict[str, Any] = {"dest": name, "help": meta.get("help", "")}
        if not required:
            keywords["default"] = default
        if meta.get("action") is not None:
            keywords["action"] = meta["action"]
            keywords.update(meta.get("action_kwargs") or {})
            return _flag(names, keywords)
        inner = _without_none(annotation)
        text = ast.unparse(inner)
        parser = raw.get("type_parser")
        if parser is not None:
            keywords["type"] = Unresolved(parser)
        if text.startswith(("Literal[", "typing.Literal[")) and isinstance(inner, ast.Subscript):
            literal = self.evaluator.evaluate(inner.slice, SERVER_ARGS, {})
            values = list(literal) if isinstance(literal, tuple) else [literal]
            keywords["choices"] = meta.get("choices") or values
            keywords.setdefault("type", _inferred_type(type(values[0]).__name__))
        elif re.match(r"(List|list|typing\.List)\[", text) and parser is None:
            keywords["nargs"] = meta.get("nargs") or "+"
            keywords["type"] = _inferred_type(text[text.index("[") + 1 : -1])
            keywords["choices"] = meta.get("choices")
        elif text == "bool":
            keywords["action"] = "store_true"
        else:
            keywords.setdefault("type", _inferred_type(text))
            keywords["choices"] = meta.get("choices")
            keywords["nargs"] = meta.get("nargs")
            keywords["required"] = meta.get("required") is True or (meta.get("required") is None and required)
        keywords["const"] = meta.get("const")
        return _flag(names, keywords)

    # --- flags ---------------------------------------------------------------------------------------------

    def flags(self) -> list[Flag]:
        """Return the flags in the order in which the parser registers them.

        Raises SourceError when a value cannot be told from the source.
        """
        fields = self.fields()
        found = [field.flag for field in fields if field.flag is not None]
        found += self._registered_flags({field.name: field.default for field in fields})
        renamed = self._renamed_destinations()
        found = [_renamed(flag, renamed) for flag in found]
        for flag in found:
            for part in (flag.default, flag.const, *(flag.choices or ())):
                if isinstance(part, Unresolved):
                    raise SourceError(f"{flag.option}: cannot tell {part.source} from the source")
        return found

    def _registered_flags(self, defaults: dict[str, Any]) -> list[Flag]:
        """Return the flags that add_cli_args registers with add_argument itself."""
        scope: dict[str, Any] = {}
        found: list[Flag] = []
        for statement in _method(self.server_args, "add_cli_args").body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = self.evaluator.evaluate(statement.value, SERVER_ARGS, scope)
                scope[statement.targets[0].id] = value
                continue
            call = statement.value if isinstance(statement, ast.Expr) else None
            if not isinstance(call, ast.Call) or ast.unparse(call.func) != "parser.add_argument":
                continue
            names = [self.evaluator.evaluate(name, SERVER_ARGS, scope) for name in call.args]
            keywords = {
                key.arg: self.evaluator.evaluate(key.value, SERVER_ARGS, scope)
                for key in call.keywords
                if key.arg
            }
            for key in call.keywords:
                if key.arg == "default":
                    keywords["default"] = self._default(key.value, scope, defaults)
                elif key.arg in ("type", "action") and isinstance(keywords[key.arg], FunctionRef | Unresolved):
                    keywords[key.arg] = Unresolved(ast.unparse(key.value))
            found.append(_flag(names, keywords))
        return found

    def _default(self, node: ast.expr, scope: dict[str, Any], defaults: dict[str, Any]) -> Any:
        """Evaluate ``ServerArgs.port`` and ``_declared_default("port")`` as the field's default."""
        text = ast.unparse(node)
        name = None
        if text.startswith("ServerArgs."):
            name = text.removeprefix("ServerArgs.")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "_declared_default":
            name = self.evaluator.evaluate(node.args[0], SERVER_ARGS, scope)
        if name is not None:
            return defaults.get(name, Unresolved(text))
        return self.evaluator.evaluate(node, SERVER_ARGS, scope)

    def _renamed_destinations(self) -> dict[str, str]:
        """Return argparse destination -> field, from the ``args.tp_size = args.tensor_parallel_size`` of 0.5.13-."""
        renamed = {}
        for statement in _method(self.server_args, "from_cli_args").body:
            if isinstance(statement, ast.Assign):
                target, value = ast.unparse(statement.targets[0]), ast.unparse(statement.value)
                if target.startswith("args.") and value.startswith("args."):
                    renamed[value.removeprefix("args.")] = target.removeprefix("args.")
        return renamed


def _is_field(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and "ClassVar" not in ast.unparse(statement.annotation)
    )


def _method(cls: ast.ClassDef, name: str) -> ast.FunctionDef:
    for statement in cls.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    raise SourceError(f"{cls.name} has no {name}")


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
    if isinstance(value, FunctionRef):
        return value.node.name
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


def _flag(names: list[Any], keywords: dict[str, Any]) -> Flag:
    """Build the Flag of ``parser.add_argument(*names, **keywords)``."""
    if any(not isinstance(name, str) for name in names):
        raise SourceError(f"cannot tell the option strings {names} from the source")
    options = tuple(dict.fromkeys(names))
    action_name, type_name = _action_name(keywords.get("action")), _type_name(keywords.get("type"))
    if action_name not in _ACTIONS or type_name not in _TYPES:
        raise SourceError(f"{options[0]}: unknown action {action_name} or type {type_name}")
    action = _ACTIONS[action_name]
    default = plain(keywords.get("default"))
    if "default" not in keywords and action in ("store_true", "deprecated_true"):
        default = False
    longest = next((option for option in options if option.startswith("--")), options[0])
    nargs = keywords.get("nargs")
    if nargs is None and action.startswith("deprecated") and action != "deprecated_alias" and "nargs" not in keywords:
        nargs = 0
    choices = keywords.get("choices")
    const = keywords.get("const_value") if action == "deprecated_const" else keywords.get("const")
    help_text = keywords.get("help")
    message = keywords.get("error_message")
    return Flag(
        dest=keywords.get("dest") or longest.lstrip("-").replace("-", "_"),
        options=options,
        action=action,
        type=_TYPES[type_name],
        nargs=nargs,
        const=const.value if isinstance(const, EnumMember) else const,
        choices=None if choices is None else tuple(plain(choices)),
        default=None if default == SUPPRESS else default,
        suppressed=default == SUPPRESS,
        required=bool(keywords.get("required") is True),
        new_flag=keywords.get("new_flag"),
        note=message if isinstance(message, str) else _ending(help_text),
    )


def _ending(help_text: Any) -> str | None:
    """Return the start of a help text that says that the flag is on its way out."""
    if not isinstance(help_text, str) or not _ENDING.search(help_text[:_HELP_READ]):
        return None
    return " ".join(help_text.split())


def _renamed(flag: Flag, renamed: dict[str, str]) -> Flag:
    if flag.dest not in renamed:
        return flag
    from msgspec.structs import replace

    return replace(flag, dest=renamed[flag.dest])
