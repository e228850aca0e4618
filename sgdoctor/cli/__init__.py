"""The command line. What is not needed for ``--version`` is imported later."""

from __future__ import annotations

import sys

import sgdoctor


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code (docs/exit-codes.md)."""
    given = sys.argv[1:] if arguments is None else arguments
    if given == ["--version"]:
        from sgdoctor.cli.output import emit

        emit(f"sgdoctor {sgdoctor.__version__}\n")
        return 0
    try:
        if given[:1] == ["gate"]:
            from sgdoctor.gate import main as gate

            return gate(given[1:])
        from sgdoctor.cli.group import run

        return run(given)
    except KeyboardInterrupt:  # while modules were imported
        return 3
