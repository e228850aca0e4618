"""Expands the words of a bash syntax tree by what the script itself sets; nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from sgdoctor import redact
from sgdoctor.collect.launch_scope import Array, Scope, parted
from sgdoctor.collect.launch_text import dollar_quoted, escaped, number, stripped
from sgdoctor.collect.launch_tree import COMMENT
from sgdoctor.collect.launch_words import (
    FILE_PATTERN,
    HIDDEN,
    Fragments,
    Piece,
    Value,
    Word,
    lines_of,
    plain,
    spread,
    unknown,
    value,
    words,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LITERALS = frozenset({"word", "number", "variable_name", "extglob_pattern", "regex", "test_operator"})
_BLANKS = re.compile(rb"(?:\\?[ \t])*")
_NAME_START = re.compile(rb"[A-Za-z0-9_{(@*#?!$-]")
_BRACES = re.compile(r"\{[^{}\s]*(,|\.\.)[^{}\s]*\}")
_REMOVALS = ("#", "##", "%", "%%")


class Expander:
    """Turns nodes of one script's tree into text; ``line_at`` gives the line of a byte of the script.

    ``zsh``: the script is one of zsh, whose ``$name`` is all of an array, parted nowhere.
    """

    def __init__(self, source: bytes, line_at: Callable[[int], int], hidden: Sequence[Piece] = ()) -> None:
        self.source = source
        self.line_at = line_at
        self.hidden = hidden
        self.zsh = False

    def text(self, node: Node) -> str:
        """Return the source text of ``node``."""
        return self._between(node.start_byte, node.end_byte)

    def _between(self, start: int, end: int) -> str:
        return self.source[start:end].decode("utf-8", errors="replace")

    def words(self, nodes: Sequence[Node], scope: Scope, end: int | None = None) -> list[Word]:
        """Return the words that a command gets from its argument nodes and what follows up to ``end``."""
        fragments: Fragments = []
        previous: Node | None = None
        for node in nodes:
            gap = "" if previous is None else self._between(previous.end_byte, node.start_byte)
            if previous is None or gap not in ("", "\\\n"):
                fragments += self._escaped_blanks(gap, node.start_byte)
            fragments += self._argument(node, scope)
            previous = node
        if previous is not None and end is not None:
            fragments += self._escaped_blanks(self._between(previous.end_byte, end), previous.end_byte)
        return words(fragments)

    def _escaped_blanks(self, gap: str, byte: int) -> Fragments:
        """Return what stands between two words: escaped blanks, which have no node, and breaks."""
        found: Fragments = [None]
        gap = gap.replace("\\\n", "")
        for blanks in re.finditer(r"(?:\\[ \t])+", gap):
            found += [None, Piece(blanks.group().replace("\\", ""), self.line_at(byte))]
            found += [None] * (blanks.end() < len(gap))
        return found

    def trailing(self, end: int) -> int:
        """Return where the blanks behind the byte ``end``, escaped or not, stop."""
        match = _BLANKS.match(self.source, end)
        return end if match is None else match.end()

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
        if kind == "$" and self.text(node) == "$" and _NAME_START.match(self.source, node.end_byte):
            return [unknown("$", line, "not understood", splits=not quoted)]  # the grammar lost an expansion
        if kind in _LITERALS or (not node.is_named and not node.children):
            return [*self._literal(self.text(node), line, patterns=patterns and not quoted)]
        if kind == "raw_string":
            return [*self._revealed(lines_of(self.text(node)[1:-1], line))]
        if kind == "ansi_c_string":
            return [*self._revealed([Piece(dollar_quoted(self.text(node)[2:-1]), line)])]
        if kind in ("string", "translated_string"):
            return self._string(node, scope)
        if kind in ("simple_expansion", "expansion"):
            found = self._named(node, scope, quoted=quoted)
            return parted(found, redact.text(self.text(node)), line, scope, quoted=quoted)
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

    def _named(self, node: Node, scope: Scope, *, quoted: bool) -> Fragments:
        if node.type == "simple_expansion":
            line = self.line_at(node.start_byte)
            name = self.text(node.children[-1])
            if name[:1].isdigit() and len(name) > 1:  # $10 is ${1}0
                rest = Piece(name[1:], line)
                return [*self._variable(name[0], scope, line, quoted=quoted), rest]
            return self._variable(name, scope, line, quoted=quoted)
        return self._expansion(node, scope, quoted=quoted)

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
            found += self._within(child, start, scope)
            start = child.end_byte
        found += self._quoted(start, end)
        alone = len(inner) == 1 and inner[0].type in ("expansion", "simple_expansion")
        spreads = alone and re.fullmatch(r"\$@|\$\{@\}|\$\{\w+\[@\].*\}", self.text(inner[0]), re.DOTALL)
        return found if spreads else [Piece("", self.line_at(node.start_byte)), *found]

    def _within(self, node: Node, start: int, scope: Scope) -> Fragments:
        """Return the text from ``start`` through a node within double quotes.

        Blanks before an expansion are a part of its node, or of none.
        """
        if node.type in ("string_content", "heredoc_content"):
            return self._quoted(start, node.end_byte)
        raw = self.source[node.start_byte : node.end_byte]
        blanks = len(raw) - len(raw.lstrip(b" \t\n"))
        return self._quoted(start, node.start_byte + blanks) + self.fragments(node, scope, quoted=True)

    def here(self, node: Node, scope: Scope, *, literal: bool) -> Value:
        """Return the text of a here-document; ``literal``: its delimiter is quoted, nothing expands."""
        if literal:
            return tuple(self._revealed(lines_of(self.text(node), self.line_at(node.start_byte))))
        found: Fragments = []
        start = node.start_byte
        for child in node.children:
            found += self._within(child, start, scope)
            start = child.end_byte
        return value([*found, *self._quoted(start, node.end_byte)])

    def _quoted(self, start: int, end: int) -> Fragments:
        """Return text between double quotes, in pieces of a line each."""
        found: list[Piece] = []
        raw = COMMENT.sub("", self._between(start, end))
        if raw:
            pieces = lines_of(raw, self.line_at(start))
            found = [piece._replace(text=re.sub(r'\\([$`"\\\n])', escaped, piece.text)) for piece in pieces]
        return [*self._revealed(found)]

    def _literal(self, text: str, line: int, *, patterns: bool) -> Iterator[Piece]:
        is_pattern = patterns and re.search(r"(?<!\\)(?:\\\\)*[*?]", text) is not None
        bare = re.sub(r"\\(.)", escaped, text.replace("\\\n", ""), flags=re.DOTALL)
        if is_pattern:
            yield unknown(redact.text(bare), line, FILE_PATTERN)
        else:
            yield from self._revealed([Piece(bare, line)], splits=True)

    def _revealed(self, pieces: Sequence[Piece], *, splits: bool = False) -> Iterator[Piece]:
        """Put unknown text back where a script made of it has placeholders."""
        for piece in pieces:
            parts = HIDDEN.split(piece.text)
            for place, part in enumerate(parts):
                if place % 2 and int(part) < len(self.hidden):
                    yield self.hidden[int(part)]._replace(splits=splits)
                elif part or len(parts) == 1:
                    yield piece._replace(text=part)

    # --- variables ------------------------------------------------------------------------------------

    def _variable(self, name: str, scope: Scope, line: int, *, quoted: bool) -> Fragments:
        if name in ("@", "*"):
            if scope.arguments is None:
                return [unknown("$" + name, line, "the script's own arguments", splits=True)]
            return spread(scope.arguments, quoted=quoted, joined=name == "*")
        place = number(name)
        if place:
            before = scope.arguments[:place] if scope.arguments is not None else None
            if before is None or any(word.many for word in before):
                return [unknown("$" + name, line, f"the script's own argument {name}", splits=not quoted)]
            given = before[place - 1 :]
            return spread(given, quoted=quoted, joined=False)
        found = scope.variables.get(name)
        if isinstance(found, Array):
            if self.zsh:  # all elements, and none is parted
                return spread(found.items, quoted=True, joined=quoted)
            return spread(found.items[:1], quoted=quoted, joined=False)
        if found is not None:
            return [piece._replace(splits=not (quoted or (self.zsh and piece.known))) for piece in found]
        if name in scope.unset:
            return []
        if name == "HOME":
            return [Piece("~", line)]
        reason = (
            f"{name} is not set in the script"
            if name[:1].isalpha() or name[:1] == "_"
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
            pieces = [piece for piece in current if piece is not None]
            text = plain(pieces)
            left = None if text is None else stripped(text, operator, self._between(start, end))
            if left is None:
                return [unknown("$" + name, line, _reason(current) or "a pattern", splits=not quoted)]
            return [Piece(left, pieces[0].line if pieces else line, splits=not quoted)]
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
            who = "an argument of the script" if number(name) else "the environment"
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
            return spread(items, quoted=quoted, joined=index == "*")
        at = number(index)
        if at is None or self.zsh or any(word.many for word in items[: at + 1]):
            return None
        return spread(items[at : at + 1], quoted=quoted, joined=False)

    def _state(self, name: str, index: str | None, operator: str, current: Fragments, scope: Scope) -> str:
        """Return set, empty (unset or, after a colon, null), outside (the script does not say) or unknown."""
        positional = bool(number(name)) or name in ("@", "*")
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


def _reason(fragments: Fragments) -> str:
    return next((piece.reason for piece in fragments if piece is not None and not piece.known), "")
