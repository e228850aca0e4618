"""Which lines of a launch script hold a secret that only another line shows to be one: `--api-key $K`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgdoctor.collect.launch_tree import tree_of
from sgdoctor.fix.flags_places import assigned, places

if TYPE_CHECKING:
    from tree_sitter import Node

# The flags of redact.SECRET_DESTINATIONS, and the beginnings of them that argparse takes.
_SECRET = re.compile(r"--(?:api|admin|ssl-keyfile-p|watermark)")
_MENTION = re.compile(rb"\$\{?[!#]?([A-Za-z_]\w*)")


def lines(source: bytes) -> set[int]:
    """Return the lines where a variable gets what such a flag is given, or where such a value goes on."""
    made: list[tuple[int, int]] = []  # what a secret is made of
    found: set[int] = set()
    for place in places(source):
        if _SECRET.match(place.text) is None:
            continue
        value = place if "=" in place.text else place.following(1)
        if value is not None:
            made.append((value.start, value.end))
            found.update(range(value.line + 1, _line(source, value.end) + 1))
    names, nodes = set[bytes](), [*_makers(tree_of(source))] if made else []
    for start, end in made:  # grows on the way
        names.update(_MENTION.findall(source, start, end))
        for node in [*nodes]:
            if _makes(node, source, names, source[start:end]):
                nodes.remove(node)
                made.append((node.start_byte, node.end_byte))
                found.update(range(_line(source, node.start_byte), _line(source, node.end_byte) + 1))
    if names:
        # `read K`, `printf -v K`: a variable by its bare name gets its value there.
        bare = re.compile(rb"(?<![\w${])(?:" + b"|".join(sorted(names)) + rb")\b")
        found.update(number for number, line in enumerate(source.split(b"\n"), 1) if bare.search(line))
    return found


def _makes(node: Node, source: bytes, names: set[bytes], text: bytes) -> bool:
    """Whether a secret comes from there: the variable of an assignment, or a function that ``text`` calls."""
    if node.type == "variable_assignment":
        return assigned(node, source).encode() in names
    name = node.child_by_field_name("name")
    called = source[name.start_byte : name.end_byte] if name is not None else b""
    return bool(called) and re.search(rb"(?<![\w$-])" + re.escape(called) + rb"(?![\w-])", text) is not None


def _makers(node: Node) -> Iterator[Node]:
    if node.type in ("variable_assignment", "function_definition"):
        yield node
    for child in node.children:
        yield from _makers(child)


def _line(source: bytes, byte: int) -> int:
    return source.count(b"\n", 0, byte) + 1
