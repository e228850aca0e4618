"""A router in front of SGLang servers, told from a server: sglang_router, sgl-model-gateway, its mini_lb."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sgdoctor import redact

# Which servers a router knows: the first from 0.2.0 of sglang_router on, the second up to then.
WORKERS, OLD_WORKERS = "/workers", "/list_workers"
_SHOWN = 4
_RANK = re.compile(r"@\d+$")


def behind(said: Any, ask: Callable[[str], Any]) -> list[str] | None:
    """Return the URLs of the servers behind a router; None: it is no router.

    ``said`` is its /get_server_info, ``ask`` returns what another path says (JSON, else None). No router has
    /server_info, which SGLang 0.5.7 to 0.5.23 have; sglang_router 0.1.9 and its mini_lb hand on what a server
    said, as if they were one (tried: 0.1.9, 0.2.0, 0.2.2, 0.2.4, 0.3.0, 0.3.2 and their mini_lb).
    """
    workers = ask(WORKERS)
    listed = workers.get("workers") if isinstance(workers, dict) else None
    if isinstance(listed, list):
        return _urls(each.get("url") for each in listed if isinstance(each, dict))
    workers = ask(OLD_WORKERS)
    listed = workers.get("urls") if isinstance(workers, dict) else None
    if isinstance(listed, list):
        return _urls(listed)
    if isinstance(said, dict) and (
        "router_manager" in said or all(isinstance(said.get(role), list) for role in ("prefill", "decode"))
    ):
        return []
    return None


def message(url: str, servers: list[str]) -> str:
    """Return what to tell the operator who named a router."""
    said = f"{url}: a router in front of SGLang servers, not one itself: name its servers"
    if not servers:
        return said
    shown = " ".join(f"--url {each}" for each in servers[:_SHOWN])
    more = f" and {len(servers) - _SHOWN} more" if len(servers) > _SHOWN else ""
    return f"{said}: {shown}{more}"


def _urls(given: Any) -> list[str]:
    """Return each URL once; a data-parallel rank of a server is its URL with @ and a number."""
    urls = {redact.text(_RANK.sub("", url)) for url in given if isinstance(url, str)}
    return sorted(urls)
