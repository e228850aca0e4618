"""From the sources an operator named to the facts of each deployment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from sgdoctor import samples, snapshot, what_if
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.facts import Facts, Known
from sgdoctor.report.model import Looked, State
from sgdoctor.settle import settle
from sgdoctor.sources import Sources

if TYPE_CHECKING:
    from sgdoctor.collect.launch import LaunchCommand
    from sgdoctor.collect.python_env import PythonEnvironment

SERVER_SECONDS = 5.0
IMAGE_SOURCES = Path("/sgl-workspace/sglang/python")  # where SGLang's own images have it
INSTALLATION = "this installation"
_OF_A_SERVER = ("http", "server_info", "log", "metrics")
_DRAFT_OPTIONS = ("--speculative-draft-model-path", "--speculative-draft-model")

Progress = Callable[[str], None]
Result = TypeVar("Result")


class Gathered(msgspec.Struct):
    """The facts of one deployment, and what was looked at for them."""

    facts: Facts
    looked: list[Looked] = []
    command: Any = None  # the LaunchCommand, read once the release is known
    python: str | None = None
    python_path: tuple[Path, ...] = ()  # of that Python's PYTHONPATH

    @property
    def name(self) -> str:
        """What a report calls the deployment: its model, else where its server was asked or read."""
        if self.command is not None and self.command.label:
            return str(self.command.label)
        model = self.facts.value("model.name")
        port = self.facts.value("arg.port")
        if model is None:
            read = next((each.place for each in self.looked if each.source in _OF_A_SERVER), INSTALLATION)
            return read if self.command is None else str(self.command.name)
        return f"{model} on port {port}" if self.command is None and port else str(model)

    def look(
        self, source: str, place: str, read: Callable[[], Result], *, named: bool = True
    ) -> Result | None:
        """Read one source and write down how far it was understood; one that gives nothing ends nothing."""
        known = len(self.facts.notes)
        try:
            result = read()
        except Undecided as nothing:
            self.looked.append(Looked(source, place, "nothing", str(nothing), named))
            self.facts.notes.append(str(nothing))
            return None
        state: State = "partly" if any(_lost(note) for note in self.facts.notes[known:]) else "understood"
        self.looked.append(Looked(source, place, state, named=named))
        return result


def _lost(note: str) -> bool:
    return any(word in note for word in ("cut off", "truncated", "HTTP 5", "timed out", "did not answer"))


def gather(sources: Sources, patterns: Mapping[str, str], progress: Progress | None = None) -> list[Gathered]:
    """Collect the facts of every deployment that ``sources`` name, by default of those on this machine.

    ``patterns`` are the log patterns of the rules. Raises UsageError for what the operator must mend, and
    Undecided when there is nothing to look at.
    """
    say = progress or (lambda _what: None)
    if sources.urls:
        raise UsageError("this takes one server: name it with one --url")
    if sources.watch is not None:
        from sgdoctor import watching

        watching.wanted(sources)
    if not sources.named():
        from sgdoctor import here

        return here.local(patterns, say)
    return named(sources, patterns, say)


def named(
    sources: Sources, patterns: Mapping[str, str], say: Progress, *, here: bool = True
) -> list[Gathered]:
    """Collect what the named sources say; ``here``: a launch command may be meant for this machine."""
    if sources.sample:
        sources = samples.sources(sources)
    if sources.snapshot:
        gathered = [Gathered(snapshot.load(Path(sources.snapshot)))]
        gathered[0].looked.append(Looked("snapshot", sources.snapshot))
    else:
        commands = _commands(sources)
        live = _read_live(sources, patterns, say)
        commands = _pair(commands, live, sources)
        wanted: list[LaunchCommand | None] = [*commands] or [None]
        gathered = [_join(live, command, alone=len(wanted) == 1) for command in wanted]
    for each in gathered:
        _read_rest(each, sources, say, here=here)
        _finish(each, sources)
        if sources.sample:
            samples.shorten(each.facts, sources.sample)
            each.looked = [msgspec.structs.replace(one, place=Path(one.place).name) for one in each.looked]
    return gathered


def _commands(sources: Sources) -> list[LaunchCommand]:
    from sgdoctor.collect import launch, launch_kinds

    if sources.command:
        return [launch.parse_command(sources.command)]
    return launch_kinds.read(sources.launch) if sources.launch else []


def _read_live(sources: Sources, patterns: Mapping[str, str], say: Progress) -> Gathered:
    """Read what a server itself said: over HTTP, in a saved answer, in its logs, on its metrics page."""
    live = Gathered(Facts())
    facts = live.facts
    if sources.url:
        from sgdoctor.collect import http_get, server

        url, key = sources.url, sources.api_key
        shown = http_get.target(url).url  # without a password
        say(f"asking {shown}")
        reading = live.look("http", shown, lambda: server.read_server(facts, url, key, SERVER_SECONDS))
        if reading is not None:
            judge_server(live, reading.usable, reading.problems)
            launched(live, reading.command)
    if sources.server_info:
        from sgdoctor.collect import server_info

        file = Path(sources.server_info)
        words = live.look("server_info", str(file), lambda: server_info.read_server_info_file(facts, file))
        launched(live, words)
    if sources.logs:
        from sgdoctor.collect import log

        say("reading " + ", ".join(sources.logs))
        logs = [log.source(each) for each in sources.logs]
        live.look("log", ", ".join(each.name for each in logs), lambda: log.read_logs(facts, logs, patterns))
    if sources.metrics:
        from sgdoctor.collect import metrics

        page = Path(sources.metrics)
        live.look("metrics", str(page), lambda: metrics.read_metrics_file(facts, page))
    if sources.watch is not None:
        from sgdoctor import watching

        watching.watch(live, sources, say)
    return live


def judge_server(live: Gathered, usable: bool, problems: tuple[str, ...]) -> None:  # noqa: FBT001
    """Correct how far a server was understood, now that its answers are known."""
    state: State = "nothing" if not usable else "partly" if problems else "understood"
    last = live.looked[-1]
    live.looked[-1] = msgspec.structs.replace(last, state=state, said="; ".join(problems))


def launched(live: Gathered, words: list[str] | None) -> None:
    """Take the launch command that a server (0.5.20 and newer) gives of itself for what was asked."""
    if not words or live.command is not None:
        return
    from sgdoctor.collect import launch

    try:
        live.command = launch.parse_command(words)
    except UsageError as error:
        live.facts.notes.append(f"the launch command in /server_info could not be read: {error}")


def _pair(commands: list[LaunchCommand], live: Gathered, sources: Sources) -> list[LaunchCommand]:
    """Choose the command of the server whose answers or log were read, by port and model.

    Raises UsageError when a script starts several servers and none of them is clearly the one.
    """
    if len(commands) < 2 or not live.looked:
        return commands
    port, path = live.facts.value("arg.port"), live.facts.value("arg.model_path")
    fits = [each for each in commands if port is None or (each.port or "30000") == str(port)]
    fits = [each for each in fits if path is None or each.model in (None, path)] or fits
    if len(fits) == 1:
        return fits
    starts = ", ".join(f"line {each.line}: {each.label}" for each in commands)
    raise UsageError(
        f"{sources.launch} starts {len(commands)} servers ({starts}) and nothing says whose log or answers "
        "these are; check each server with a script of its own"
    )


def _join(live: Gathered, command: LaunchCommand | None, *, alone: bool) -> Gathered:
    """Add a launch command to what its server said."""
    from sgdoctor.collect import launch

    joined = live if alone or command is None else Gathered(Facts())
    joined.command = command or live.command
    if joined.command is not None:
        launch.collect(joined.facts, joined.command)
        if command is not None:
            joined.looked.append(Looked(command.source, command.name))
    return joined


def _read_rest(each: Gathered, sources: Sources, say: Progress, *, here: bool) -> None:
    """Read the model's config and the machine: as described in a file, or this one."""
    facts = each.facts
    if sources.inherits:
        from sgdoctor import own

        own.read(each, sources, say)
    if sources.environment:
        from sgdoctor.collect import environment

        file = Path(sources.environment)
        each.look("environment", str(file), lambda: environment.read_environment_file(facts, file))
    elif sources.python and not sources.inherits:
        read_python(each, _locate(sources.python), say, deep=sources.deep)
    elif here and not sources.inherits and (sources.launch or sources.command) and not _in_container(each):
        read_this_machine(each, say, deep=sources.deep)
    read_model(each, sources)


def read_model(each: Gathered, sources: Sources) -> None:
    """Read the config.json that was named, or that of the launch command's model where it is here."""
    from sgdoctor.collect import model

    _read_draft(each)
    facts = each.facts
    overrides = _overrides(each)
    if sources.model:
        path = Path(sources.model)
        each.look("model", str(path), lambda: model.read_model(facts, path, overrides))
        return
    name = _model_name(each)
    if name is None:
        return
    found = model.find_model(name, _mounted(each.command), _cache_variables(facts))
    if found is not None:
        each.look("model", str(found), lambda: model.read_model(facts, found, overrides), named=False)
    elif not facts.known("model.layers"):  # else a snapshot has what its config.json says
        facts.notes.append(f"{name} is not on this machine: pass its config.json with --model")


def _read_draft(each: Gathered) -> None:
    """Read the config.json of the draft model where the command names one that is here."""
    written = each.command.written(*_DRAFT_OPTIONS) if each.command is not None else None
    path = written or each.facts.value("arg.speculative_draft_model_path")
    if not path:
        return
    from sgdoctor.collect import draft_model, model

    found = model.find_model(str(path), _mounted(each.command), _cache_variables(each.facts))
    if found is not None:
        draft_model.read_draft(each.facts, found)
    else:
        each.facts.set_unknown(draft_model.FACT, f"the draft model {path} is not on this machine")


def _overrides(each: Gathered) -> dict[str, Any]:
    """Return what --json-model-override-args changes in the model's config."""
    text = each.command.written("--json-model-override-args") if each.command is not None else None
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        each.facts.notes.append(f"--json-model-override-args: {error}")
        return {}


def _model_name(each: Gathered) -> str | None:
    if each.command is not None and each.command.model:
        return str(each.command.model)
    path = each.facts.value("arg.model_path") or each.facts.value("model.path")
    return str(path) if path else None


def _mounted(command: LaunchCommand | None) -> Callable[[str], str]:
    return command.host_path if command is not None else str


def _cache_variables(facts: Facts) -> dict[str, str]:
    """Return where hub caches are: this process's variables, the script's over them."""
    variables = dict(os.environ)
    for name, fact in facts.items():
        if name.startswith("env.") and isinstance(fact, Known) and isinstance(fact.value, str):
            variables[name.removeprefix("env.")] = fact.value
    return variables


def _in_container(each: Gathered) -> bool:
    return each.command is not None and each.command.container is not None


def _locate(target: str) -> PythonEnvironment:
    from sgdoctor.collect import python_env

    return python_env.locate(target)


def read_python(each: Gathered, found: PythonEnvironment, say: Progress, *, deep: bool) -> None:
    """Read the packages of an environment, and try the import where that was asked for."""
    from sgdoctor.collect import packages

    each.python, each.python_path = found.place, found.python_path
    each.look("packages", found.place, lambda: packages.read_packages(each.facts, found), named=False)
    if deep:
        say(f"importing sglang with {found.place}")
        packages.try_import(each.facts, found)


def read_this_machine(each: Gathered, say: Progress, *, deep: bool) -> bool:
    """Read this machine for a command that will run here: only where SGLang is installed."""
    from sgdoctor.collect import gpus, host, python_env

    found = python_env.default(os.environ, sys.prefix)
    if (found is None or not python_env.has_sglang(found)) and IMAGE_SOURCES.is_dir():
        found = python_env.locate(str(IMAGE_SOURCES))
    if found is None or not python_env.has_sglang(found):
        each.facts.notes.append(
            "SGLang is not installed here, so this machine was not looked at: describe the one that is meant "
            "with --environment FILE"
        )
        return False
    read_python(each, found, say, deep=deep)
    visible = each.facts.value("env.CUDA_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus.read_gpus(each.facts, visible=visible)
    host.read_host(each.facts, python=found.python)
    return True


def _finish(each: Gathered, sources: Sources) -> None:
    facts = what_if.apply(each.facts, gpu=sources.gpu, assumptions=sources.assume)
    if facts is not each.facts:
        each.looked.append(Looked("assume", "--gpu" if sources.gpu else "--assume"))
    each.facts = facts
    settle(facts, each.command)
