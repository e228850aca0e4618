"""Whether a word of a launch script that a server gets is used for something else, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from sgdoctor.collect.launch_tree import tree_of
from sgdoctor.fix.flags_places import Place, assigned

if TYPE_CHECKING:
    from tree_sitter import Node

_PRINTS = ("echo", "printf")
_READ_AGAIN = ("eval", "trap")
_SOURCES = ("source", ".")
_ALL_ARGUMENTS = ("@", "*")
_NO_NAME, _NO_ARGUMENT = b"sgdoctor_is_never_set", b"{9999}"


class _Name(NamedTuple):
    """A variable and where it holds: of the arguments ``@`` that is a function's body, else the script."""

    name: str
    within: Node


def other_use(source: bytes, place: Place, reaches: Callable[[bytes], bool]) -> tuple[str, int] | None:
    """Return what may be used for something else than the server, and on which line; null for nothing.

    ``reaches`` says whether a server's command in a changed text is another: where a variable is mentioned
    and no server misses it, something else has it. To print it on the terminal counts as no use; what
    decides a branch, what another program gets, what is exported and what goes into a file does.
    """
    return _Uses(source, reaches).of(place)


class _Uses:
    def __init__(self, source: bytes, reaches: Callable[[bytes], bool]) -> None:
        self.source = source
        self.reaches = reaches
        self.tree = tree_of(source)
        self.functions = {
            self._text(name): body
            for node in _nodes(self.tree)
            if node.type == "function_definition"
            and (name := node.child_by_field_name("name")) is not None
            and (body := node.child_by_field_name("body")) is not None
        }

    def of(self, place: Place) -> tuple[str, int] | None:
        waiting = [_Name(place.variable, self.tree)] if place.variable else self._arguments(place)
        seen: set[_Name] = set()
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if not one.name.isdecimal() and one.name not in _ALL_ARGUMENTS:
                unseen = self._unseen(one.name, place)
                if unseen is not None:
                    return one.name, unseen
            for node in self._mentions(one):
                into = self._use(node)
                if into is None:
                    return f"${one.name}" if one.name in _ALL_ARGUMENTS else one.name, self._line(node)
                waiting += into
        return None

    def _arguments(self, place: Place) -> list[_Name]:
        """Return the names under which a word of `set --` or of a function's call goes on."""
        command = place.row[0].text
        if command == "set":
            return [_Name("@", self.tree), _Name("*", self.tree)]
        body = self.functions.get(command)
        return [_Name(name, body) for name in (*_ALL_ARGUMENTS, str(place.at))] if body is not None else []

    def _mentions(self, one: _Name) -> Iterator[Node]:
        for node in _nodes(one.within):
            if node.type in ("variable_name", "special_variable_name") and self._text(node) == one.name:
                yield node

    def _unseen(self, name: str, place: Place) -> int | None:
        """Return the line where a variable is used without the mention that the reader sees, null for none.

        By its bare name (`declare -n`, `${!name}`, `unset "name[0]"`), in a text that the shell reads again,
        in a file that is read in behind the assignment, or by every program: `set -a`.
        """
        every = False
        escaped = re.compile(rb"\$\{?" + re.escape(name.encode()) + rb"\b")
        for node in _nodes(self.tree):
            bare = self._text(node).strip("\"'") if node.type in ("word", "string", "raw_string") else ""
            if bare == name or bare.startswith(f"{name}["):
                return self._line(node)
            if node.type != "command":
                continue
            command, *words = self._text(node).split()
            if node.start_byte < place.start and command == "set" and words:
                every = (words[0] == "-a" or words[:2] == ["-o", "allexport"]) or (
                    every and words[0] != "+a" and words[:2] != ["+o", "allexport"]
                )
            if node.start_byte > place.start and command in _SOURCES:
                return self._line(node)
            if command in _READ_AGAIN and any(
                escaped.search(self.source[text.start_byte : text.end_byte])
                for text in _nodes(node)
                if text.type in ("string_content", "raw_string", "word")
            ):
                return self._line(node)
        return place.line if every else None

    def _use(self, node: Node) -> list[_Name] | None:
        """Return the names into which a mention goes on, null where it is a use that no server has."""
        inner, outer = node, node.parent
        while outer is not None:
            if outer.type == "variable_assignment":
                declared = outer.parent
                if (
                    declared is not None
                    and declared.type == "declaration_command"
                    and self._exports(declared)
                ):
                    return None
                if outer.child_by_field_name("name") in (inner, node):
                    return []
                if declared is None or declared.type != "command":
                    return [_Name(assigned(outer, self.source), self.tree)]
            elif outer.type == "declaration_command":
                return None if self._exports(outer) else []
            elif outer.type == "command":
                return self._given(node, outer)
            inner, outer = outer, outer.parent
        return None if not self._served(node) else []

    def _given(self, node: Node, command: Node) -> list[_Name] | None:
        """Return where the words of a command go on, null for a program that is no server."""
        name = command.child_by_field_name("name")
        text = self._text(name) if name is not None else ""
        if text in _PRINTS:
            return [] if _on_terminal(command, self.source) else None
        if not self._served(node):
            return None
        if text == "set":
            return [_Name(each, self.tree) for each in _ALL_ARGUMENTS]
        body = self.functions.get(text)
        return [_Name(each, body) for each in _ALL_ARGUMENTS] if body is not None else []

    def _served(self, node: Node) -> bool:
        """Whether a server misses the mention when it is not there."""
        new = _NO_ARGUMENT if node.type == "special_variable_name" else _NO_NAME
        return self.reaches(self.source[: node.start_byte] + new + self.source[node.end_byte :])

    def _exports(self, declaration: Node) -> bool:
        first, *words = self._text(declaration).split()
        return first == "export" or (bool(words) and words[0].startswith("-") and "x" in words[0])

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode()

    def _line(self, node: Node) -> int:
        return self.source[: node.start_byte].count(b"\n") + 1


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _on_terminal(command: Node, source: bytes) -> bool:
    """Whether what a command prints goes to no file, no other program and no variable."""
    outer: Node | None = command
    while outer is not None and outer.type not in ("function_definition", "program"):
        if outer.type in ("pipeline", "command_substitution", "process_substitution"):
            return False
        for child in outer.children:
            if child.type == "file_redirect" and child != command:
                target = source[child.start_byte : child.end_byte]
                if not re.search(rb"(&\s*[12-]|/dev/(stderr|stdout|tty|null))\s*$", target):
                    return False
        outer = outer.parent
    return True
