"""How the server of a launch file is reached: a container's network, the ports that its host publishes."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from sgdoctor.collect.launch import LaunchCommand
    from sgdoctor.facts import Facts

DEFAULT_PORT = 30000  # --port in srt/server_args.py, 0.5.7 to 0.5.23
# PUBLISHED: only ports that are published are reached from other machines. DIRECT: all that listens on more
# than loopback is, as on a host or in a pod. CLOSED: nothing is.
Kind = Literal["published", "direct", "closed", "unknown"]
Answer = Literal["yes", "no", "unknown"]

_PORTS = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


class Port(msgspec.Struct, frozen=True):
    """Ports ``first`` to ``last`` inside, published on ``address`` of the host ("": on all)."""

    first: int
    last: int
    address: str
    line: int


class Network(msgspec.Struct):
    """How a container, or a service that is fenced in, is reached.

    ``doubt`` says why more may be published than ``ports``, or for UNKNOWN why nothing can be told.
    """

    kind: Kind = "published"
    ports: list[Port] = []
    doubt: str = ""
    line: int = 0

    def reached(self, port: int | None) -> tuple[Answer, int, str]:
        """Whether other machines reach ``port`` (None: not known), the line that says so, why it is open."""
        if self.kind == "direct":
            return "yes", self.line, ""
        if self.kind == "closed":
            return "no", self.line, ""
        if self.kind == "unknown":
            return "unknown", self.line, self.doubt
        beyond = [each for each in self.ports if not _loopback(each.address)]
        if port is None and beyond:
            return "unknown", beyond[0].line, "the port it listens on is not known"
        for each in beyond:
            if port is not None and each.first <= port <= each.last:
                return "yes", each.line, ""
        if self.doubt:
            return "unknown", self.line, self.doubt
        return "no", self.ports[0].line if self.ports else self.line, ""


def published(text: str, line: int) -> Port | None:
    """Read ``[[ADDRESS:]HOST_PORT:]PORT[/PROTOCOL]``; None when not TCP. Raises ValueError for others."""
    rest, _, protocol = text.strip().partition("/")
    if protocol.lower() not in ("", "tcp"):
        return None
    address, _, inside = rest.rpartition(":")
    if address:
        address, _, outside = address.rpartition(":")
        if outside.endswith("]") or (outside and _PORTS.fullmatch(outside) is None):
            raise ValueError(text)
    match = _PORTS.fullmatch(inside)
    if match is None:
        raise ValueError(text)
    first = int(match.group(1))
    return Port(first, int(match.group(2) or first), address.strip("[]"), line)


def collect(facts: Facts, command: LaunchCommand) -> None:
    """Set server.exposed where the launch file keeps other machines away, or leaves that open.

    Where it lets them in, the server's own --host decides: see ``upstream.arguments.exposure``. Call it once
    the flags were read.
    """
    network = command.network
    if network is None:
        return
    answer, line, why = network.reached(_port(facts))
    if answer == "no":
        place = command.place(line or None)
        facts.set("server.exposed", False, source=command.source, place=place)
    elif answer == "unknown":
        facts.set_unknown("server.exposed", f"{command.place(line or None)}: {why}")


def _port(facts: Facts) -> int | None:
    """Return the port the server listens on."""
    for name in ("arg.port", "asked.port"):
        if facts.known(name):
            port = facts.value(name)
            return port if isinstance(port, int) else DEFAULT_PORT
    return None


def _loopback(address: str) -> bool:
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
