"""The machine that this process is on, for a command that it is about to become."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from sgdoctor.collect import gpus, host, inherited, packages, python_env
from sgdoctor.errors import UsageError
from sgdoctor.sources import Sources

if TYPE_CHECKING:
    from sgdoctor.collect.python_env import PythonEnvironment
    from sgdoctor.gather import Gathered

_UNTOLD = (
    "which Python the command runs cannot be told, so its packages were not looked at: name it with --python"
)


def read(each: Gathered, sources: Sources, say: Callable[[str], None]) -> None:
    """Read what the command will have here: its variables, its Python's packages, the GPUs, the host.

    Where it runs in a container or on another machine, or ``--environment`` describes the one that counts,
    no more than the variables. Raises UsageError when ``--python`` names no Python.
    """
    facts, command = each.facts, each.command
    inherited.read_environment(facts, command, sources.command, os.environ)
    if sources.environment:
        return
    if not inherited.runs_here(command, sources.command):
        facts.notes.append("the command runs in a container or on another machine, which was not looked at")
        return
    say("looking for the Python that the command runs")
    found = _python(each, sources)
    if found is not None:
        say("reading the packages")
        each.python, each.python_path = found.place, found.python_path
        each.look("packages", found.place, lambda: packages.read_packages(facts, found), named=False)
    say("asking the driver for the GPUs")
    gpus.read_gpus(facts, visible=facts.value("env.CUDA_VISIBLE_DEVICES"))
    say("reading the model and judging")
    host.read_host(facts, variables=os.environ, python=found.python if found else None)


def _python(each: Gathered, sources: Sources) -> PythonEnvironment | None:
    python_path = [folder for folder in (_variable(each, "PYTHONPATH") or "").split(os.pathsep) if folder]
    if sources.python:
        return python_env.locate(sources.python, python_path=python_path)
    python = inherited.interpreter(sources.command, _variable(each, "PATH"))
    if python is None:
        each.facts.notes.append(_UNTOLD)
        return None
    try:
        found = python_env.locate(str(python), python_path=python_path)
    except UsageError as error:
        each.facts.notes.append(str(error).replace("--python ", ""))
        return None
    if not python_env.has_sglang(found):
        each.facts.notes.append(f"SGLang is not among the packages of {python}")
        return None
    return found


def _variable(each: Gathered, name: str) -> str | None:
    """Return a variable of the command's; what it does not set and does not take away is this process's."""
    if name in each.command.variables:
        setting = each.command.variables[name]
        return setting.value if setting.known else None
    return None if each.command.closed else os.environ.get(name)
