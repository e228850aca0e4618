"""What a compose service shares with its host: folders, ports, /dev/shm, GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sgdoctor.collect.launch_containers import DEFAULT_SHM_MIB, Mount, mebibytes
from sgdoctor.collect.launch_network import Network, Port, published
from sgdoctor.collect.launch_text import number
from sgdoctor.collect.launch_words import Word
from sgdoctor.collect.launch_yaml import Item

if TYPE_CHECKING:
    from sgdoctor.collect.launch_compose import Service

_SHM = "/dev/shm"  # noqa: S108 (of the container)
# Networks of these drivers are reached from other machines without a published port, or may be.
_OPEN_DRIVERS = frozenset({"macvlan", "ipvlan", "overlay", "host"})


def mounts(service: Service) -> list[Mount]:
    """Return the folders and files of the host that the container has."""
    found: list[Mount] = []
    for item in service.each("volumes"):
        source, target = _volume(service, item)
        if source is None or target is None or not source.known or not target.known:
            continue
        host = source.text
        if host.startswith(".") and service.file.folder is not None:
            host = str(service.file.folder / host)
        if host.startswith(("/", "~", ".")) or "/" in host:
            found.append(Mount(host, target.text))
    return found


def _volume(service: Service, item: Item) -> tuple[Word | None, Word | None]:
    """Return the host's folder of a volume, None when it has none, and where the container has it."""
    if item.kind == "mapping":
        source, target = item.get("source"), item.get("target")
        binds = item.string("type") == "bind" and source is not None
        return (
            service.word(source) if binds and source is not None else None,
            service.word(target) if target is not None else None,
        )
    word = service.word(item)
    parts = word.text.split(":")
    if not word.known or len(parts) == 1:
        return None, Word(word.pieces)
    pieces = word.pieces[0]
    return (
        Word((pieces._replace(text=parts[0]),)) if parts[0].startswith(("/", "~", ".")) else None,
        Word((pieces._replace(text=parts[1]),)),
    )


def shared_memory(service: Service) -> tuple[int | None, int]:
    """Return the MiB of the container's /dev/shm and the line that says so; None when the file does not."""
    ipc = service.get("ipc")
    if ipc is not None and service.word(ipc).text not in ("private", "shareable", "none"):
        return None, ipc.line
    for item in service.each("volumes"):
        target = _volume(service, item)[1]
        if target is not None and (target.text.rstrip("/") == _SHM or not target.known):
            size = item.get("tmpfs", "size") if item.kind == "mapping" else None
            return (mebibytes(service.word(size).text) if size is not None else None), item.line
    tmpfs = service.get("tmpfs")
    for item in tmpfs.items() or [tmpfs] if tmpfs is not None else []:
        path, _, options = service.word(item).text.partition(":")
        if path.rstrip("/") == _SHM:
            sizes = [option[5:] for option in options.split(",") if option.startswith("size=")]
            return (mebibytes(sizes[0]) if sizes else None), item.line
    size = service.get("shm_size")
    if size is None:
        return DEFAULT_SHM_MIB, service.line
    return mebibytes(service.word(size).text), size.line


def network(service: Service) -> Network:
    """Return how the service is reached."""
    mode = service.get("network_mode")
    name = service.word(mode).text if mode is not None else "bridge"
    if mode is not None and name in ("host", "none"):
        return Network("direct" if name == "host" else "closed", line=mode.line)
    if mode is not None and name.startswith("service:"):
        return _shared(service, name.removeprefix("service:"), mode.line)
    found = Network(line=service.line)
    if mode is not None and name not in ("bridge", "default"):
        return Network("unknown", doubt=f"how network_mode {name} is reached is not known", line=mode.line)
    found.doubt = _open_networks(service)
    for item in service.each("ports"):
        ports = _ports(service, item)
        if ports is None:
            found.doubt = found.doubt or f"the port at line {item.line} is not understood"
        found.ports += ports or []
    return found


def _shared(service: Service, label: str, line: int) -> Network:
    """Return the network of another service that this one shares."""
    other = service.other(label)
    mode = other.get("network_mode") if other is not None else None
    if other is None or (mode is not None and (mode.text or "").startswith("service:")):
        return Network("unknown", doubt=f"how service {label} is reached is not known", line=line)
    return network(other)


def _open_networks(service: Service) -> str:
    """Say which of the service's networks other machines may reach without a published port."""
    given = service.get("networks")
    names: Iterable[str] = ["default"]
    if given is not None:
        names = given.mapping() or [each.text or "" for each in given.items()]
    for name in names:
        declared = service.file.root.get("networks", name)
        if declared is None:
            continue
        driver = declared.string("driver")
        if declared.string("external") == "true" or driver in _OPEN_DRIVERS:
            kind = f"driver {driver}" if driver else "external"
            return f"how network {name} ({kind}) is reached is not known"
    return ""


def _ports(service: Service, item: Item) -> list[Port] | None:
    """Return what an entry of ``ports`` publishes, None when it is not understood."""
    if item.kind != "mapping":
        word = service.word(item)
        try:
            port = published(word.text, item.line) if word.known else None
        except ValueError:
            return None
        return [port] if port is not None else [] if word.known else None
    target, address = item.get("target"), item.get("host_ip")
    if item.string("protocol") not in (None, "tcp"):
        return []
    inside = number(service.word(target).text) if target is not None else None
    outside = service.word(address) if address is not None else None
    if inside is None or (outside is not None and not outside.known):
        return None
    return [Port(inside, inside, outside.text if outside is not None else "", item.line)]


def gpus(service: Service) -> tuple[int | None, int]:
    """Return how many GPUs the service gets and the line that says so; None for all there are."""
    devices = service.each("deploy", "resources", "reservations", "devices") + service.each("gpus")
    for item in devices:
        kinds = {each.text for each in item.each("capabilities")}
        if kinds and not kinds & {"gpu", "nvidia", "compute"}:
            continue
        named, count = item.each("device_ids"), item.get("count")
        if named:
            return len(named), item.line
        return (number(service.word(count).text) if count is not None else None), item.line
    return None, service.line
