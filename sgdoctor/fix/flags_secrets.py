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
    found: set[int] = set()
    names: set[bytes] = set()
    for place in places(source):
        if _SECRET.match(place.text) is None:
            continue
        value = place if "=" in place.text else place.following(1)
        if value is not None:
            written = source[value.start : value.end]
            names.update(_MENTION.findall(written))
            found.update(range(value.line + 1, value.line + 1 + written.count(b"\n")))
    if not names:
        return found
    assignments = [*_assignments(tree_of(source))]
    known = 0
    while known < len(names):  # what such a variable is made of
        known = len(names)
        for node in assignments:
            if assigned(node, source).encode() in names:
                names.update(_MENTION.findall(source, node.start_byte, node.end_byte))
                found.update(range(_line(source, node.start_byte), _line(source, node.end_byte) + 1))
    # `read K`, `printf -v K`: a variable by its bare name gets its value there.
    bare = re.compile(rb"(?<![\w${])(?:" + b"|".join(sorted(names)) + rb")\b")
    found.update(number for number, line in enumerate(source.split(b"\n"), 1) if bare.search(line))
    return found


def _assignments(node: Node) -> Iterator[Node]:
    if node.type == "variable_assignment":
        yield node
    for child in node.children:
        yield from _assignments(child)


def _line(source: bytes, byte: int) -> int:
    return source.count(b"\n", 0, byte) + 1
