"""The syntax tree of a bash script, from tree-sitter, which marks what it does not understand."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# tree-sitter-bash 0.25 looks characters up in C's table of digits, which ends at 255: `{` and an emoji crash.
# A dot a byte keeps every position, and is a part of words and of no name, as those characters are.
_NOT_ASCII = re.compile(rb"[\x80-\xff]")

# `# text` between the words of a command is a comment by idiom: an empty command's output. The grammar takes
# the closing backtick for a part of the comment.
_COMMENT = r"(?<![^ \t\n])`#[^`\\\n]*`(?=[ \t\r\n]|\Z)"
COMMENT = re.compile(_COMMENT)
_COMMENT_BYTES = re.compile(_COMMENT.encode())


@functools.cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def tree_of(source: bytes) -> Node:
    """Return the root of the tree of ``source``; read its text from ``source``, not from the nodes."""
    source = _COMMENT_BYTES.sub(lambda found: b" " * len(found[0]), source)
    return _parser().parse(_NOT_ASCII.sub(b".", source)).root_node


def broken(node: Node) -> list[Node]:
    """Return the nodes below ``node`` where the tree is not a sentence of the grammar."""
    if node.is_error or node.is_missing:
        return [node]
    if not node.has_error:
        return []
    return [bad for child in node.children for bad in broken(child)]
