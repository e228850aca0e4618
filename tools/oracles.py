"""The releases whose own code the tests ask, and fetching their wheels: ``make wheels``.

One of every source layout and every boundary of the config lookup and of argparse's set-up.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from tools.wheels import DownloadError, sources

RELEASES = ("0.5.7", "0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.13", "0.5.16", "0.5.20", "0.5.23")


def _fetch(version: str) -> str | None:
    try:
        sources(version)
    except (DownloadError, OSError) as error:
        return f"{version}: {error}"
    return None


def main() -> int:
    """Fetch and unpack the wheels that are not in .cache/ yet; say which could not be had."""
    with ThreadPoolExecutor(4) as pool:
        missing = [trouble for trouble in pool.map(_fetch, RELEASES) if trouble]
    for trouble in missing:
        print(f"no wheel of SGLang {trouble}", file=sys.stderr)
    print(f"{len(RELEASES) - len(missing)} of {len(RELEASES)} wheels in .cache/", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
