"""The syntax tree of a bash script, from tree-sitter, which marks what it does not understand."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# tree-sitter-bash 0.25 looks characters up in C's table of digits, which ends at 255: `{` and an emoji crash.
# It also takes a vertical tab, a form feed and a carriage return for blanks, which they are not for bash, and
# `\ ` for the end of a word behind an expansion (`A=$B\ c`).
# A dot a byte keeps every position, and is a part of words and of no name, as those characters are.
_OF_A_WORD = re.compile(rb"[\x80-\xff\v\f]|\r(?!\n)|(?<!\\)(?:\\\\)*\\[ \t]")

# `# text` between the words of a command is a comment by idiom: an empty command's output. The grammar takes
# the closing backtick for a part of the comment.
_COMMENT = r"(?<![^ \t\n])`#[^`\\\n]*`(?=[ \t\r\n]|\Z)"
COMMENT = re.compile(_COMMENT)
_COMMENT_BYTES = re.compile(_COMMENT.encode())

# Statements without others in them, but for those in substitutions.
_EXPANDS = frozenset(
    ["command", "variable_assignment", "variable_assignments", "declaration_command", "test_command"]
)


@functools.cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def tree_of(source: bytes) -> Node:
    """Return the root of the tree of ``source``; read its text from ``source``, not from the nodes."""
    source = _COMMENT_BYTES.sub(lambda found: b" " * len(found[0]), source)
    return _parser().parse(_OF_A_WORD.sub(_dots, source)).root_node


def _dots(found: re.Match[bytes]) -> bytes:
    return b"." * len(found[0])


def broken(node: Node) -> list[Node]:
    """Return the nodes below ``node`` where the tree is not a sentence of the grammar."""
    if node.is_error or node.is_missing:
        return [node]
    if not node.has_error:
        return []
    return [bad for child in node.children for bad in broken(child)]


def substitutions(node: Node) -> list[Node]:
    """Return the outermost ``$(...)``, ```...``` and ``<(...)`` that a statement itself expands.

    Those of the statements within it are theirs.
    """
    if node.type in ("for_statement", "case_statement"):
        parts = node.children_by_field_name("value")
    elif node.type == "redirected_statement":
        parts = [child for child in node.children if child.type in ("file_redirect", "herestring_redirect")]
    else:
        parts = node.children if node.type in _EXPANDS else []
    return [found for part in parts for found in _outermost(part)]


def _outermost(node: Node) -> list[Node]:
    if node.type in ("command_substitution", "process_substitution"):
        return [node]
    return [found for child in node.children for found in _outermost(child)]


def late_words(command: Node) -> list[Node]:
    """Return the words of a command that stand behind a redirection: ``program > log --tp 8``.

    The grammar takes them for more files of the redirection, of which there is one.
    """
    return [word for part in _redirects(command) for word in part.children_by_field_name("destination")[1:]]


def placeholders(command: Node) -> list[Node]:
    """Return the redirections that are the ``<HOST`` of a ``<HOST>``, which was to be filled in."""
    return [
        part
        for part, after in itertools.pairwise(_redirects(command))
        if part.children[0].type == "<"
        and after.children[0].type == ">"
        and part.end_byte == after.start_byte
    ]


def _redirects(command: Node) -> list[Node]:
    statement = command.parent
    if statement is None or statement.type != "redirected_statement":
        return []
    return [part for part in statement.children if part.type == "file_redirect"]
