"""What it costs to know the flags of an SGLang: from its source text, from the catalogue, from its own code.

    python bench/flags.py [FOLDER ...]

FOLDER is what `python -m tools.oracles` leaves in .cache/sources/<version> (or a site-packages with SGLang in
it). Every figure is the median CPU time of whole child processes, interleaved in one run, above an
interpreter that imports nothing. SGLang's own code needs torch, triton, transformers and more: where they are
not installed empty stand-ins take their place, so what is measured is SGLang's own modules alone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from processor_time import medians

ROOT = Path(__file__).parents[1]
RELEASES = ("0.5.10", "0.5.16", "0.5.23")
ROUNDS = 9

BARE = "pass"
ARGPARSE = "import argparse; argparse.ArgumentParser().add_argument('--x')"
CATALOGUE = """
from sgdoctor.upstream import catalogue
from sgdoctor.upstream.flags import Parser
Parser(catalogue.resolve({version!r}).flags).parse(["--model-path", "m"])
"""
SOURCE = """
from pathlib import Path
from sgdoctor.upstream.flags import Parser
from sgdoctor.upstream.source_flags import read_flags
Parser(read_flags(Path({folder!r}) / "sglang")).parse(["--model-path", "m"])
"""
CACHED = """
from pathlib import Path
from sgdoctor.upstream.flags import Parser
from sgdoctor.upstream.installed_flags import flags_of
Parser(flags_of(Path({folder!r}) / "sglang", Path({cache!r}){below})).parse(["--model-path", "m"])
"""
COLD = " / __import__('os').urandom(8).hex()"  # a folder that no earlier process has written to
OWN = """
import sys; sys.path.insert(0, {tests!r})
from real_server_args import load
load({folder!r})[1].parse_args(["--model-path", "m"])
"""


def programs(folder: Path, cache: str) -> dict[str, str]:
    """Return what is measured of the SGLang in ``folder``; ``cache`` is a folder for what was read of it."""
    version = folder.name
    tests = str(ROOT / "tests" / "upstream")
    return {
        f"{version}: catalogue, parser, one command line": CATALOGUE.format(version=version),
        f"{version}: source text, parser, one command line": SOURCE.format(folder=str(folder)),
        f"{version}: the same, cold cache: read and written": CACHED.format(
            folder=str(folder), cache=cache, below=COLD
        ),
        f"{version}: the same, warm cache": CACHED.format(folder=str(folder), cache=cache, below=""),
        f"{version}: its own ServerArgs, stand-ins for torch etc.": OWN.format(
            folder=str(folder), tests=tests
        ),
    }


def main() -> None:
    """Measure and print the table."""
    folders = [Path(each) for each in sys.argv[1:]]
    folders = folders or [ROOT / ".cache" / "sources" / version for version in RELEASES]
    measured = {"an interpreter": BARE, "import argparse, one flag": ARGPARSE}
    with tempfile.TemporaryDirectory(prefix="sgdoctor-bench-") as cache:
        for folder in folders:
            measured |= programs(folder.resolve(), cache)
        commands = {name: [sys.executable, "-W", "ignore", "-c", code] for name, code in measured.items()}
        taken = medians(commands, ROOT, ROUNDS)
    bare = taken["an interpreter"]
    print(f"{'':<58}{'CPU ms':>8}{'above bare':>12}")
    for name, seconds in taken.items():
        print(f"{name:<58}{seconds * 1000:>8.0f}{(seconds - bare) * 1000:>12.0f}")


if __name__ == "__main__":
    main()
