"""Build the documentation as a site into site/, and hold it to its own links; `make site` runs it.

Zensical's strict build knows pages and headings; that pictures and files are there too, and that no page asks
another host for anything, is looked at here, in what was built.
"""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
LINKS = {"canonical", "prev", "next", "alternate"}  # <link>s that name a page; a browser loads the others


class _Page(HTMLParser):
    """Takes down where a page leads, and what a browser loads to show it."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        value = given.get("href") if tag == "a" else given.get(LOADED.get(tag, ""))
        if not value:
            return
        self.targets.append(value)
        if tag != "a" and not LINKS & set((given.get("rel") or "").split()):
            self.loaded.append(value)


def problems(site: Path) -> list[str]:
    """Return, a line each, links of a built site that lead nowhere, and what it loads from elsewhere."""
    found = []
    for path in sorted(site.rglob("*.html")):
        page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
        name = path.relative_to(site)
        found += [f"{name}: loads {each}" for each in page.loaded if urlsplit(each).netloc]
        for target in dict.fromkeys(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or not parts.path:
                continue
            below = site if parts.path.startswith("/") else path.parent
            place = (below / unquote(parts.path).lstrip("/")).resolve()
            if not place.is_relative_to(site.resolve()) or not place.exists():
                found.append(f"{name}: {target} is not there")
    return found


def main() -> int:
    """Build and look; return 1 when something is wrong with the pages."""
    if find_spec("zensical") is None:
        print(
            "no site: Zensical needs Python 3.11 or newer (make site VENV=.venv-site PYTHON=python3.11)",
            file=sys.stderr,
        )
        return 1 if os.environ.get("CI") else 0
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT, check=False
    )
    if done.returncode:
        return 1
    found = problems(SITE)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
