"""What ends a command early, each with its exit code."""

from __future__ import annotations


class DoctorError(Exception):
    """The base of what a command reports in one line instead of a traceback."""

    exit_code = 4


class UsageError(DoctorError):
    """The operator must change the command or a file (exit code 2)."""

    exit_code = 2


class Undecided(DoctorError):  # noqa: N818 (not an error of anybody's)
    """Nothing to check, or a named source gave nothing usable (exit code 3)."""

    exit_code = 3
