"""Expands the words of a bash syntax tree by what the script itself sets; nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sgdoctor import redact
from sgdoctor.collect.launch_scope import Array, Scope
from sgdoctor.collect.launch_words import (
    FILE_PATTERN,
    Fragments,
    Piece,
    Value,
    Word,
    lines_of,
    plain,
    unknown,
    value,
    words,
)

if TYPE_CHECKING:
    from tree_sitter import Node

# Private-use characters around a number stand for text that is not known, in a script made from such text
# (bash -c "... $(nproc) ...").
HIDDEN = re.compile("\ue000([0-9]+)\ue001")

_LITERALS = frozenset({"word", "number", "variable_name", "extglob_pattern", "regex", "test_operator"})
_BRACES = re.compile(r"\{[^{}\s]*(,|\.\.)[^{}\s]*\}")
_ANSI = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8}))"
)
_ANSI_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_REMOVALS = ("#", "##", "%", "%%")


class Expander:
    """Turns nodes of one script's tree into text; ``line_at`` gives the line of a byte of the script."""

    def __init__(self, source: bytes, line_at: Callable[[int], int], hidden: Sequence[Piece] = ()) -> None:
        self.source = source
        self.line_at = line_at
        self.hidden = hidden

    def text(self, node: Node) -> str:
        """Return the source text of ``node``."""
        return self._between(node.start_byte, node.end_byte)

    def _between(self, start: int, end: int) -> str:
        return self.source[start:end].decode("utf-8", errors="replace")

    def words(self, nodes: Sequence[Node], scope: Scope) -> list[Word]:
        """Return the words that a command gets from its argument nodes."""
        fragments: Fragments = []
        previous: Node | None = None
        for node in nodes:
            glued = previous is not None and self._between(previous.end_byte, node.start_byte) in ("", "\\\n")
            if not glued:
                fragments.append(None)
            fragments += self._argument(node, scope)
            previous = node
        return words(fragments)

    def _argument(self, node: Node, scope: Scope) -> Fragments:
        unquoted = self.text(node)
        if node.type == "concatenation":
            parts = (self.text(child) if child.type in _LITERALS else "q" for child in node.children)
            unquoted = "".join(parts)
        if node.type in ("word", "concatenation", "brace_expression") and _BRACES.search(unquoted):
            return [
                unknown(
                    redact.text(self.text(node)),
                    self.line_at(node.start_byte),
                    "a brace expansion",
                    splits=True,
                )
            ]
        return self.fragments(node, scope)

    def assigned(self, node: Node | None, scope: Scope) -> Value:
        """Return what an assignment of ``node`` stores."""
        return () if node is None else value(self.fragments(node, scope, patterns=False))

    def fragments(
        self, node: Node, scope: Scope, *, quoted: bool = False, patterns: bool = True
    ) -> Fragments:
        """Return the expansion of ``node``; ``patterns``: file name patterns count."""
        kind, line = node.type, self.line_at(node.start_byte)
        if kind in _LITERALS or (not node.is_named and not node.children):
            return [*self._literal(self.text(node), line, patterns=patterns and not quoted)]
        if kind == "raw_string":
            return [*self._revealed(lines_of(self.text(node)[1:-1], line))]
        if kind == "ansi_c_string":
            return [*self._revealed([Piece(_ANSI.sub(_ansi, self.text(node)[2:-1]), line)])]
        if kind in ("string", "translated_string"):
            return self._string(node, scope)
        if kind == "simple_expansion":
            name = self.text(node.children[-1])
            blanks = self.text(node.children[0]).removesuffix("$")  # the grammar's, in double quotes
            found = self._variable(name, scope, line, quoted=quoted)
            return [Piece(blanks, line), *found] if blanks else found
        if kind == "expansion":
            return self._expansion(node, scope, quoted=quoted)
        if kind in ("concatenation", "command_name"):
            return self._run(
                node.children, node.start_byte, node.end_byte, scope, quoted=quoted, patterns=patterns
            )
        source = " ".join(redact.text(self.text(node)).split())
        reason = {
            "command_substitution": "a command's output",
            "process_substitution": "a command's output",
            "arithmetic_expansion": "arithmetic",
        }.get(kind, "not understood")
        return [unknown(source, line, reason, splits=not quoted)]

    def _run(
        self,
        nodes: Sequence[Node],
        start: int,
        end: int,
        scope: Scope,
        *,
        quoted: bool,
        patterns: bool = True,
    ) -> Fragments:
        """Expand ``nodes`` and the source between them, which the grammar leaves out where it is blank."""
        found: Fragments = []
        for node in nodes:
            found += self._gap(start, node.start_byte, quoted=quoted)
            found += self.fragments(node, scope, quoted=quoted, patterns=patterns)
            start = node.end_byte
        return found + self._gap(start, end, quoted=quoted)

    def _gap(self, start: int, end: int, *, quoted: bool) -> Fragments:
        text = self._between(start, end).replace("\\\n", "")
        return [Piece(text, self.line_at(start), splits=not quoted)] if text else []

    def _string(self, node: Node, scope: Scope) -> Fragments:
        inner = [child for child in node.children if child.type != '"']
        if node.type == "translated_string":
            return self._string(node.children[-1], scope)
        end = node.end_byte - (
            1 if node.children and node.children[-1].end_byte > node.children[-1].start_byte else 0
        )
        found: Fragments = []
        start = node.start_byte + 1
        for child in inner:
            found += self._quoted(start, child.start_byte)
            if child.type == "string_content":
                found += self._quoted(child.start_byte, child.end_byte)
            else:
                found += self.fragments(child, scope, quoted=True)
            start = child.end_byte
        found += self._quoted(start, end)
        alone = len(inner) == 1 and inner[0].type in ("expansion", "simple_expansion")
        spreads = alone and re.fullmatch(r"\$@|\$\{@\}|\$\{\w+\[@\].*\}", self.text(inner[0]), re.DOTALL)
        return found if spreads else [Piece("", self.line_at(node.start_byte)), *found]

    def here(self, node: Node, scope: Scope, *, literal: bool) -> Value:
        """Return the text of a here-document; ``literal``: its delimiter is quoted, nothing expands."""
        if literal:
            return tuple(self._revealed(lines_of(self.text(node), self.line_at(node.start_byte))))
        found: Fragments = []
        start = node.start_byte
        for child in node.children:
            found += self._quoted(start, child.start_byte)
            if child.type == "heredoc_content":
                found += self._quoted(child.start_byte, child.end_byte)
            else:
                found += self.fragments(child, scope, quoted=True)
            start = child.end_byte
        return value([*found, *self._quoted(start, node.end_byte)])

    def _quoted(self, start: int, end: int) -> Fragments:
        """Return text between double quotes, in pieces of a line each."""
        found: list[Piece] = []
        raw = self._between(start, end)
        if raw:
            pieces = lines_of(raw, self.line_at(start))
            found = [piece._replace(text=re.sub(r'\\([$`"\\\n])', _escaped, piece.text)) for piece in pieces]
        return [*self._revealed(found)]

    def _literal(self, text: str, line: int, *, patterns: bool) -> Iterator[Piece]:
        is_pattern = patterns and re.search(r"(?<!\\)(?:\\\\)*[*?]", text) is not None
        bare = re.sub(r"\\(.)", _escaped, text.replace("\\\n", ""), flags=re.DOTALL)
        if is_pattern:
            yield unknown(redact.text(bare), line, FILE_PATTERN)
        else:
            yield from self._revealed([Piece(bare, line)], splits=True)

    def _revealed(self, pieces: Sequence[Piece], *, splits: bool = False) -> Iterator[Piece]:
        """Put unknown text back where a script made of it has placeholders."""
        for piece in pieces:
            parts = HIDDEN.split(piece.text)
            for number, part in enumerate(parts):
                if number % 2 and int(part) < len(self.hidden):
                    yield self.hidden[int(part)]._replace(splits=splits)
                elif part or len(parts) == 1:
                    yield piece._replace(text=part)

    # --- variables ------------------------------------------------------------------------------------

    def _variable(self, name: str, scope: Scope, line: int, *, quoted: bool) -> Fragments:
        if name in ("@", "*"):
            if scope.arguments is None:
                return [unknown("$" + name, line, "the script's own arguments", splits=True)]
            return _spread(scope.arguments, quoted=quoted, joined=name == "*")
        if name.isdigit() and name != "0":
            before = scope.arguments[: int(name)] if scope.arguments is not None else None
            if before is None or any(word.many for word in before):
                return [unknown("$" + name, line, f"the script's own argument {name}", splits=not quoted)]
            given = before[int(name) - 1 :]
            return _spread(given, quoted=quoted, joined=False)
        found = scope.variables.get(name)
        if isinstance(found, Array):
            return _spread(found.items[:1], quoted=quoted, joined=False)
        if found is not None:
            return [piece._replace(splits=not quoted) for piece in found]
        if name in scope.unset:
            return []
        if name == "HOME":
            return [Piece("~", line)]
        reason = (
            f"{name} is not set in the script"
            if name[0].isalpha() or name[0] == "_"
            else "known at run time only"
        )
        return [unknown("$" + name, line, reason, splits=not quoted)]

    def _expansion(self, node: Node, scope: Scope, *, quoted: bool) -> Fragments:
        children = node.children
        line = self.line_at(node.start_byte)
        at = next((n for n, child in enumerate(children) if child.is_named), len(children))
        named = children[at] if at < len(children) else None
        source = " ".join(redact.text(self.text(node)).split())
        if (
            named is None
            or at != 1
            or named.type not in ("variable_name", "special_variable_name", "subscript")
        ):
            return [unknown(source, line, "an expansion that is not followed", splits=not quoted)]
        name, index = self._subscript(named)
        operator = self.text(children[at + 1]) if at + 2 < len(children) else ""
        current = self._current(name, index, scope, line, quoted=quoted)
        if current is None:
            return [unknown("$" + name, line, "an expansion that is not followed", splits=not quoted)]
        if not operator:
            return current
        start = children[at + 1].end_byte
        rest, end = children[at + 2 : -1], children[-1].start_byte
        if operator in _REMOVALS and index is None:
            return self._removed(
                operator, current, self._between(start, end), ("$" + name, line), quoted=quoted
            )
        if operator.lstrip(":") not in ("-", "=", "?", "+"):
            return [unknown("$" + name, line, "an expansion that is not followed", splits=not quoted)]

        def operand() -> Fragments:
            return self._run(rest, start, end, scope, quoted=quoted)

        state = self._state(name, index, operator, current, scope)
        kind = operator[-1]
        if kind == "+":
            return operand() if state == "set" else self._absent(name, state, line, quoted=quoted)
        if state == "set" or (state == "unknown" and kind == "?"):
            return current
        if state == "unknown":
            return [unknown("$" + name, line, _reason(current), splits=not quoted)]
        return self._default(name, kind, state, operand, scope, line, quoted=quoted)

    def _default(
        self,
        name: str,
        kind: str,
        state: str,
        operand: Callable[[], Fragments],
        scope: Scope,
        line: int,
        *,
        quoted: bool,
    ) -> Fragments:
        if kind == "?" or (state == "outside" and scope.reads):
            where = f" ({scope.reads} may set it)" if scope.reads else ""
            return [unknown("$" + name, line, f"{name} is not set in the script{where}", splits=not quoted)]
        if state == "outside":
            who = "an argument of the script" if name.isdigit() else "the environment"
            scope.note(
                f"{scope.name}:{line}: ${name} is taken at its default there, which {who} may override"
            )
        found = operand()
        if kind == "=":
            scope.assign(name, value(found))
        return found

    def _absent(self, name: str, state: str, line: int, *, quoted: bool) -> Fragments:
        if state == "empty":
            return []
        return [unknown("$" + name, line, f"depends on whether {name} is set", splits=not quoted)]

    def _subscript(self, node: Node) -> tuple[str, str | None]:
        if node.type != "subscript":
            return self.text(node), None
        inner = self.text(node)
        name, _, index = inner.partition("[")
        return name, index.rstrip("]").strip()

    def _current(
        self, name: str, index: str | None, scope: Scope, line: int, *, quoted: bool
    ) -> Fragments | None:
        if index is None:
            return self._variable(name, scope, line, quoted=quoted)
        found = scope.variables.get(name)
        if isinstance(found, Array):
            items: tuple[Word, ...] | None = found.items
        elif found is not None:
            items = (Word(found),)
        else:
            items = () if name in scope.unset else None
        if items is None:
            reason = f"{name} is not set in the script"
            return [unknown(f"${{{name}[{index}]}}", line, reason, splits=index in "@*" or not quoted)]
        if index in ("@", "*"):
            return _spread(items, quoted=quoted, joined=index == "*")
        if not index.isdigit() or any(word.many for word in items[: int(index) + 1]):
            return None
        return _spread(items[int(index) : int(index) + 1], quoted=quoted, joined=False)

    def _state(self, name: str, index: str | None, operator: str, current: Fragments, scope: Scope) -> str:
        """Return set, empty (unset or, after a colon, null), outside (the script does not say) or unknown."""
        positional = name.isdigit() or name in ("@", "*")
        if positional and scope.arguments is None:
            return "outside"
        if name == "HOME" and name not in scope.variables:
            return "set"
        if not positional and name not in scope.variables:
            return "empty" if name in scope.unset else "outside"
        pieces = [piece for piece in current if piece is not None]
        if any(piece.known and piece.text for piece in pieces):
            return "set"
        if any(not piece.known for piece in pieces):
            return "unknown"
        if index is not None or positional:
            return "set" if pieces else "empty"
        return "empty" if operator.startswith(":") else "set"

    def _removed(
        self, operator: str, current: Fragments, pattern: str, origin: tuple[str, int], *, quoted: bool
    ) -> Fragments:
        """Return ``${name##pattern}`` and its kin for patterns of plain text and ``*``."""
        source, line = origin
        pieces = [piece for piece in current if piece is not None]
        text = plain(pieces)
        if text is None or re.search(r"[$`\\\[\](){}'\"?]", pattern):
            return [unknown(source, line, _reason(current) or "a pattern", splits=not quoted)]
        star = ".*" if len(operator) == 2 else ".*?"
        body = star.join(re.escape(part) for part in pattern.split("*"))
        if operator[0] == "#":
            match = re.match(body, text, re.DOTALL)
            left = text[match.end() :] if match else text
        else:
            starts = range(len(text) + 1) if len(operator) == 2 else range(len(text), -1, -1)
            cut = next((n for n in starts if re.fullmatch(body, text[n:], re.DOTALL)), len(text))
            left = text[:cut]
        return [Piece(left, pieces[0].line if pieces else line, splits=not quoted)]


def _escaped(match: re.Match[str]) -> str:
    return "" if match.group(1) == "\n" else match.group(1)


def _ansi(match: re.Match[str]) -> str:
    letter, octal, *hexes = match.groups()
    if letter:
        return _ANSI_LETTERS[letter]
    code = int(octal, 8) if octal else int(next(part for part in hexes if part), 16)
    return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def _reason(fragments: Fragments) -> str:
    return next((piece.reason for piece in fragments if piece is not None and not piece.known), "")


def _spread(items: Sequence[Word], *, quoted: bool, joined: bool) -> Fragments:
    """Return ``"${name[@]}"`` (a word an element), unquoted (split again) or ``"${name[*]}"`` (one word)."""
    found: Fragments = []
    for number, item in enumerate(items):
        if number:
            found.append(Piece(" ", item.line) if joined and quoted else None)
        for piece in item.pieces:
            keeps = quoted or not piece.known
            found.append(piece if keeps else piece._replace(splits=True))
    return found
