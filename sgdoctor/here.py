"""This machine: every running server on it, or the installation alone where none runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts
from sgdoctor.gather import SERVER_SECONDS, Gathered, Progress, judge_server, read_model, read_this_machine
from sgdoctor.settle import settle
from sgdoctor.sources import Sources

if TYPE_CHECKING:
    from sgdoctor.collect.processes import RunningServer


def local(patterns: Mapping[str, str], say: Progress) -> list[Gathered]:
    """Look at this machine: every running server, or the installation alone where none runs."""
    from sgdoctor.collect import processes

    found = processes.running_servers()
    gathered = [_running(server, patterns, say) for server in found.servers]
    if not gathered:
        gathered = [_installation(say)]
    for each in gathered:
        each.facts.notes.extend(found.notes)
        settle(each.facts, each.command)
    return gathered


def _running(running: RunningServer, patterns: Mapping[str, str], say: Progress) -> Gathered:
    """Collect the facts of a server seen in the process list."""
    from sgdoctor.collect import gpus, host, launch, log, packages, processes, server

    each = Gathered(Facts())
    facts = each.facts
    if running.url:
        url = running.url
        say(f"asking {url}")
        reading = each.look(
            "http", url, lambda: server.read_server(facts, url, None, SERVER_SECONDS), named=False
        )
        if reading is not None:
            judge_server(each, reading.usable, reading.problems)
    if running.log:
        logs = [log.source(str(running.log))]
        each.look("log", str(running.log), lambda: log.read_logs(facts, logs, patterns), named=False)
    processes.read_process(facts, running)
    try:
        each.command = launch.parse_command(running.argv)
        launch.collect(facts, each.command)
    except UsageError as error:
        facts.notes.append(str(error))
    found = processes.environment_of(running)
    each.python, each.python_path = found.place, found.python_path
    each.look("packages", found.place, lambda: packages.read_packages(facts, found), named=False)
    gpus.read_gpus(facts, visible=(running.variables or {}).get("CUDA_VISIBLE_DEVICES"))
    host.read_host(facts, root=running.root, variables=running.variables, python=found.python)
    read_model(each, Sources())
    return each


def _installation(say: Progress) -> Gathered:
    each = Gathered(Facts())
    if not read_this_machine(each, say, deep=False):
        raise Undecided(
            "nothing to check: no SGLang server runs here, and neither python3 on PATH nor /sgl-workspace "
            "has SGLang. Name a source (--launch, --log, --url, --environment; see `sgdoctor check "
            "--help`), or see a report with `sgdoctor check --sample moe-no-config`"
        )
    return each
