"""The host that the server runs on: processor, shared memory, container."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from sgdoctor.facts import Facts

_CGROUP = re.compile(r"kubepods|docker|libpod|containerd|lxc|garden")
_CGROUP_NAMES = {"kubepods": "kubernetes", "libpod": "podman"}


def read_host(
    facts: Facts,
    *,
    root: Path = Path("/"),
    variables: Mapping[str, str] | None = None,
    python: str | None = None,
    cgroup: Path | None = None,
) -> None:
    """Set host.arch, host.shm_mib, host.container and, when ``python`` is given, host.python.

    ``root`` is the root folder of the server's mount namespace (/proc/PID/root), ``variables`` its
    environment, ``cgroup`` its /proc/PID/cgroup, by default the one beside ``root``. Never raises.
    """
    if cgroup is None:
        cgroup = root.parent / "cgroup" if root.name == "root" else Path("/proc/self/cgroup")
    facts.set("host.arch", platform.machine(), source="host", place="uname -m")
    if python is not None:
        facts.set("host.python", python, source="packages", place="the interpreter")
    shared = root / "dev" / "shm"
    try:
        size = os.statvfs(shared)
    except OSError as error:
        facts.set_unknown("host.shm_mib", f"{shared}: {error.strerror or error}")
    else:
        facts.set("host.shm_mib", size.f_blocks * size.f_frsize // 2**20, source="host", place=str(shared))
    try:
        name, place = container(root, variables or {}, cgroup)
    except OSError as error:
        facts.set_unknown("host.container", f"{root}: {error.strerror or error}")
        return
    facts.set("host.container", name, source="host", place=place)


def container(root: Path, variables: Mapping[str, str], cgroup: Path) -> tuple[str | None, str]:
    """Return the container runtime that left its mark, and where; null when none did.

    Raises OSError when ``root`` cannot be read.
    """
    if "KUBERNETES_SERVICE_HOST" in variables:
        return "kubernetes", "KUBERNETES_SERVICE_HOST"
    root.stat()
    for mark, name in (
        ("var/run/secrets/kubernetes.io", "kubernetes"),
        (".dockerenv", "docker"),
        ("run/.containerenv", "podman"),
    ):
        if (root / mark).exists():
            return name, str(root / mark)
    try:
        found = _CGROUP.search(cgroup.read_text(errors="replace"))
    except OSError:
        found = None
    if found:
        return _CGROUP_NAMES.get(found.group(), found.group()), str(cgroup)
    return None, str(root)
