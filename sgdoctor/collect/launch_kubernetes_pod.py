"""What a container of a pod gets from its node: folders, /dev/shm, GPUs."""

from __future__ import annotations

import posixpath
import re

from sgdoctor.collect.launch_containers import DEFAULT_SHM_MIB, Mount
from sgdoctor.collect.launch_text import number
from sgdoctor.collect.launch_yaml import Item

_SHM = "/dev/shm"  # noqa: S108 (of the container)
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]*)?(?:[eE][0-9]{1,2})?)(|m|k|[KMGTPE]i?)")
_UNITS = {"": 1.0, "m": 0.001, "k": 1e3}
_UNITS |= {letter: 1000.0**power for power, letter in enumerate("KMGTPE", 1)}
_UNITS |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)}
_GPU = re.compile(r"(nvidia|amd)\.com/(gpu|pgpu)")


def mounts(container: Item, spec: Item) -> list[Mount]:
    """Return the folders of the node that the container has."""
    found: list[Mount] = []
    for mount in container.each("volumeMounts"):
        inside, volume = mount.string("mountPath"), _volume(spec, mount.string("name"))
        host = volume.string("hostPath", "path") if volume is not None else None
        if inside is not None and host is not None and mount.get("subPathExpr") is None:
            part = mount.string("subPath")
            found.append(Mount(posixpath.join(host, part) if part else host, inside))
    return found


def shared_memory(container: Item, spec: Item) -> tuple[int | None, int]:
    """Return the MiB of the container's /dev/shm and the line that says so.

    None when the manifest does not say: the node's (hostIPC, hostPath), or memory without a limit.
    """
    host_ipc = spec.get("hostIPC")
    if host_ipc is not None and host_ipc.text == "true":
        return None, host_ipc.line
    for mount in container.each("volumeMounts"):
        if (mount.string("mountPath") or "").rstrip("/") != _SHM:
            continue
        volume = _volume(spec, mount.string("name"))
        empty = volume.get("emptyDir") if volume is not None else None
        limit = empty.get("sizeLimit") if empty is not None else None
        if empty is None or limit is None or empty.string("medium") != "Memory":
            return None, mount.line
        return mebibytes(limit.text or ""), limit.line
    return DEFAULT_SHM_MIB, container.line


def _volume(spec: Item, name: str | None) -> Item | None:
    return next((each for each in spec.each("volumes") if name and each.string("name") == name), None)


def gpus(container: Item) -> tuple[int | None, int]:
    """Return how many whole GPUs the container gets and the line that says so."""
    for kind in ("limits", "requests"):
        given = container.get("resources", kind)
        for name, count in given.mapping().items() if given is not None else ():
            if _GPU.fullmatch(name):
                return number(count.text or ""), count.line
    return None, container.line


def mebibytes(quantity: str) -> int | None:
    """Return a quantity of Kubernetes (``16Gi``, ``10G``, ``1e9``) in MiB, None when it is none."""
    match = _QUANTITY.fullmatch(quantity.strip())
    return int(float(match.group(1)) * _UNITS[match.group(2)] / 2**20) if match else None
