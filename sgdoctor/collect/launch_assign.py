"""What assignments, declarations and the builtins that set variables do to a shell's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sgdoctor.collect.launch_expand import Expander
from sgdoctor.collect.launch_scope import Array, Scope
from sgdoctor.collect.launch_text import number
from sgdoctor.collect.launch_words import Value, Word, cut, unknown

if TYPE_CHECKING:
    from tree_sitter import Node


class Assigner:
    """The part of a shell that sets variables; ``locals`` has what functions must put back."""

    def __init__(self, expand: Expander, line_at: Callable[[int], int]) -> None:
        self.expand = expand
        self.line_at = line_at
        self.locals: list[dict[str, Value | Array | None]] = []

    def assignment(self, node: Node, scope: Scope) -> None:
        """Follow an assignment that is a statement."""
        self.assign(node, scope)

    def assignments(self, node: Node, scope: Scope) -> None:
        """Follow several assignments on one line."""
        for child in node.named_children:
            self.assign(child, scope)

    def finished(self, node: Node) -> int:
        """Return how many children at the start of a command are statements of their own, on lines before it.

        tree-sitter-bash 0.25 takes several assignments on one line for the beginning of what follows.
        """
        count = 0
        for place, (child, after) in enumerate(zip(node.children, node.children[1:], strict=False)):
            if child.type not in ("variable_assignment", "comment"):
                break
            gap = self.expand.source[child.end_byte : after.start_byte]
            if b"\n" in gap.replace(b"\\\n", b""):
                count = place + 1
        return count

    def assign(self, node: Node, scope: Scope, *, export: bool = False) -> str | None:
        """Follow ``NAME=value``, ``NAME+=value``, ``NAME=(...)``; return the name."""
        name_node, new = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name_node is None:
            return None
        name = self.expand.text(name_node)
        line = self.line_at(node.start_byte)
        adds = any(child.type == "+=" for child in node.children)
        if name_node.type == "subscript":
            name = name.partition("[")[0]
            self._element(name, line, scope)
            return name
        old = scope.variables.get(name)
        if new is not None and new.type == "array":
            items = self._elements(new, name, scope)
            before = old.items if isinstance(old, Array) else ((Word(old),) if old else ())
            scope.assign(name, Array((*before, *items) if adds else items))
            return name
        stored = self.expand.assigned(new, scope)
        if adds:
            if old is None and name not in scope.unset:
                old = (unknown(f"${name}", line, f"{name} is not set in the script before line {line}"),)
            if isinstance(old, Array):
                first = (*(old.items[0].pieces if old.items else ()), *stored)
                scope.assign(name, Array((Word(first), *old.items[1:])))
                return name
            stored = (*(old or ()), *stored)
        scope.assign(name, stored, export=export)
        return name

    def _elements(self, node: Node, name: str, scope: Scope) -> tuple[Word, ...]:
        nodes = [child for child in node.named_children if child.type != "comment"]
        if any(self.expand.text(child).startswith("[") for child in nodes):
            line = self.line_at(node.start_byte)
            keyed = unknown(f"${{{name}[@]}}", line, f"{name} is set by keys", splits=True)
            return (Word((keyed,)),)
        return tuple(self.expand.words(nodes, scope, node.end_byte - 1))

    def declaration(self, node: Node, scope: Scope) -> None:
        """Follow export, declare, local, readonly and typeset."""
        keyword = self.expand.text(node.children[0])
        export = keyword == "export"
        withdraw = False
        for child in node.children[1:]:
            text = self.expand.text(child)
            if child.type == "word" and text.startswith("-"):
                withdraw = withdraw or (keyword == "export" and "n" in text)
                export = (export or "x" in text) and not withdraw
                continue
            if child.type == "variable_assignment":
                name_node = child.child_by_field_name("name")
                self._make_local(keyword, "" if name_node is None else self.expand.text(name_node), scope)
                self.assign(child, scope, export=export)
            elif child.type == "variable_name":
                self._make_local(keyword, text, scope)
                if export:
                    scope.exported[text] = True
                elif withdraw:
                    scope.exported.pop(text, None)
                elif keyword in ("local", "declare", "typeset") and self.locals:
                    scope.assign(text, ())
            elif child.is_named:
                self._declared_by_text(child, scope, export=export)

    def _declared_by_text(self, node: Node, scope: Scope, *, export: bool) -> None:
        """Follow ``export "NAME=value"``; anything else may set any variable."""
        words = self.expand.words([node], scope)
        for word in words:
            name, equals, _ = word.prefix.partition("=")
            if equals and name.isidentifier():
                scope.assign(name, cut(word.pieces, len(name) + 1), export=export)
            elif not word.known:
                scope.reads = f"line {word.line}"

    def _make_local(self, keyword: str, name: str, scope: Scope) -> None:
        if keyword in ("local", "declare", "typeset") and self.locals and name not in self.locals[-1]:
            self.locals[-1][name] = scope.variables.get(name)

    def unset(self, node: Node, scope: Scope) -> None:
        """Follow unset: a variable's, an element's or, where there is no such variable, a function's."""
        option = ""
        for word in self.expand.words(node.named_children, scope):
            name, bracket, _ = word.text.partition("[")
            if word.text.startswith("-"):
                option = word.text
            elif option == "-f" or (not option and not bracket and name not in scope.variables):
                scope.functions.pop(name, None)
            if word.text.startswith("-") or option == "-f":
                continue
            if bracket and name in scope.variables:
                self._element(name, word.line, scope)
            elif not bracket and word.known:
                scope.remove(name)

    def _element(self, name: str, line: int, scope: Scope) -> None:
        """Note that an element of an array changes: what the array holds is not known from there on."""
        changed = unknown(f"${{{name}[@]}}", line, f"line {line} changes an element of {name}", splits=True)
        scope.assign(name, Array((Word((changed,)),)))

    def arithmetic(self, node: Node, scope: Scope) -> None:
        """Follow ``(( ... ))``: the variables in it are unknown afterwards."""
        line = self.line_at(node.start_byte)
        for name in _descendants(node, "variable_name"):
            text = self.expand.text(name)
            scope.assign(text, (unknown(f"${text}", line, "arithmetic", splits=True),))

    # --- builtins -------------------------------------------------------------------------------------

    def set(self, words: list[Word], scope: Scope) -> None:
        """Follow ``set -a`` and ``set -- WORD...``."""
        texts = [word.text for word in words]
        for at, text in enumerate(texts[1:], 1):
            if text == "--":
                rest = words[at + 1 :]
                scope.arguments = tuple(rest)
                return
            if text[:1] in ("-", "+") and ("a" in text or texts[at + 1 : at + 2] == ["allexport"]):
                scope.exports_all = text[0] == "-"

    def shift(self, words: list[Word], scope: Scope) -> None:
        """Follow shift."""
        count = words[1].text if len(words) > 1 else "1"
        if scope.arguments is not None:
            places = number(count)
            gone = scope.arguments[:places]
            certain = places is not None and not any(word.many for word in gone)
            scope.arguments = scope.arguments[len(gone) :] if certain else None

    def read(self, words: list[Word], scope: Scope) -> None:
        """Follow a builtin that reads values into variables at run time."""
        for word in words[1:]:
            name = word.text.partition("=")[0]
            if name.isidentifier():
                scope.assign(
                    name, (unknown(f"${name}", word.line, f"{name} is read at run time", splits=True),)
                )

    def printf(self, words: list[Word], scope: Scope) -> None:
        """Follow ``printf -v NAME``."""
        if len(words) > 2 and words[1].text == "-v":
            self.read(words[1:3], scope)

    def source(self, words: list[Word], scope: Scope) -> None:
        """Follow ``source FILE``: the file may set what the script does not."""
        if len(words) > 1:
            scope.reads = words[1].text


def _descendants(node: Node, kind: str) -> list[Node]:
    if node.type == kind:
        return [node]
    return [found for child in node.children for found in _descendants(child, kind)]
