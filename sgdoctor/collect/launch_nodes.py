"""One server on several nodes is one deployment: its first node's command is the one that is examined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sgdoctor.collect.launch import LaunchCommand

# What may differ between the nodes of one server: only the first answers requests.
_OF_A_NODE = frozenset("--node-rank --host --port --api-key --admin-api-key --served-model-name".split())
_RANK = "--node-rank"
_SAME = ("--dist-init-addr", "--nccl-init-addr", "--nnodes", "--disaggregation-mode")


def first_nodes(commands: Sequence[LaunchCommand]) -> list[LaunchCommand]:
    """Return ``commands`` without those that start further nodes of a server.

    The first node's command gets a note where another node is given other flags.
    """
    found: list[LaunchCommand] = []
    for command in commands:
        for number, other in enumerate(found):
            if _one_server(other, command):
                first, second = (command, other) if _rank(command) == "0" else (other, command)
                _note(first, second)
                found[number] = first
                break
        else:
            found.append(command)
    return found


def _one_server(one: LaunchCommand, other: LaunchCommand) -> bool:
    mine, theirs = dict(_options(one)), dict(_options(other))
    if one.group != other.group or not any(name in mine for name in _SAME[:2]):
        return False
    if any(mine.get(name) != theirs.get(name) for name in _SAME):
        return False
    return _RANK in mine and _RANK in theirs and mine[_RANK] != theirs[_RANK]


def _rank(command: LaunchCommand) -> str | None:
    return command.written(_RANK)


def _note(first: LaunchCommand, second: LaunchCommand) -> None:
    mine, theirs = dict(_options(first)), dict(_options(second))
    names = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
    different = [name for name in names if name not in _OF_A_NODE]
    if different:
        first.notes.append(
            f"{second.place()}: this node gets other flags than the first one ({', '.join(different)}); "
            "those of the first are examined"
        )


def _options(command: LaunchCommand) -> Iterator[tuple[str, str]]:
    """Yield each option with the words after it, as written."""
    name, values = "", list[str]()
    for word in command.words:
        if word.text.startswith("--"):
            yield name, " ".join(values)
            name, equals, value = word.text.partition("=")
            values = [value] if equals else []
        else:
            values.append(word.text)
    yield name, " ".join(values)
