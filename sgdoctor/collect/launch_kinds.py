"""Launch files of every kind, recognized by what is in them: scripts, compose files, manifests, units."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sgdoctor.collect import launch, launch_slurm
from sgdoctor.collect.launch import LaunchCommand, LaunchWord
from sgdoctor.collect.launch_network import DEFAULT_PORT
from sgdoctor.collect.launch_nodes import first_nodes
from sgdoctor.errors import UsageError

if TYPE_CHECKING:
    from sgdoctor.collect.launch_yaml import Item

Kind = Literal["script", "unit", "dockerfile", "yaml"]

_SECTION = re.compile(r"\[(Unit|Service|Install|Container|Kube|Pod|X-[A-Za-z-]+)\]\s*$")
_FROM = re.compile(r"(?im)^[ \t]*FROM[ \t]+\S")
_DOCKERFILE = re.compile(r"(?i)(FROM|ARG)[ \t]+\S")
# A key and a colon that a blank or the line's end follows: no command of a script begins so.
_KEY = re.compile(r"""(?:"[^"]*"|'[^']*'|[A-Za-z_][A-Za-z0-9_./-]*)\s*:(?:\s|$)|-\s+[A-Za-z_"']""")
_JSON = re.compile(r'\s*\{\s*"')
_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:/\*|\.(?:Values|Release|Chart|Capabilities|Files|Template)\b|\$\.|"
    r"(?:include|define|template|toYaml|tpl|range|with|if|else|end|block)\b)"
)


def read(path: Path | str) -> list[LaunchCommand]:
    """Read a launch file: every SGLang server that it starts, in the order of the file.

    Raises UsageError for what is no readable text file, is none of the kinds, is not well-formed, or starts
    no SGLang server.
    """
    return parse(launch.read_text(path), str(path), Path(path).parent)


def parse(text: str, name: str, folder: Path | None = None) -> list[LaunchCommand]:
    """Return the SGLang servers of the launch file ``text``. Raises UsageError as ``read`` does."""
    kind = kind_of(text)
    if kind == "script":
        commands = _script(text, name, folder)
    elif kind == "unit":
        commands = _unit(text, name)
    elif kind == "dockerfile":
        from sgdoctor.collect import launch_dockerfile

        commands = launch_dockerfile.parse(text, name, folder)
    else:
        commands = _yaml(text, name, folder)
    commands = first_nodes(commands)
    _label(commands)
    return commands


def _label(commands: Sequence[LaunchCommand]) -> None:
    """Make the labels tell the servers apart; one alone needs none."""
    if len(commands) == 1:
        commands[0].label = ""
    for number in range(2):
        labels = Counter(each.label for each in commands)
        for command in commands if len(commands) > 1 else ():
            if not command.label or labels[command.label] > 1:
                more = f"line {command.line}" if number else f"port {command.port or DEFAULT_PORT}"
                command.label = ", ".join(filter(None, [command.label, more]))


def kind_of(text: str) -> Kind:
    """Return the kind of a launch file by its first line that says something."""
    first = _first_line(text)
    if text.startswith("#!") and not _SECTION.match(first):
        return "script"
    if _SECTION.match(first):
        return "unit"
    if _DOCKERFILE.match(first) and _FROM.search(text):
        return "dockerfile"
    if _KEY.match(first) or _JSON.match(text) or _TEMPLATE.match(first) or first.startswith("%YAML"):
        return "yaml"
    return "script"


def _first_line(text: str) -> str:
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", ";")) and stripped not in ("---", "..."):
            return stripped
    return ""


def _script(text: str, name: str, folder: Path | None) -> list[LaunchCommand]:
    given = launch_slurm.options(text)
    variables = launch_slurm.variables(given)
    commands = launch.parse_script(text, name, folder, variables)
    for command in commands:
        command.group = name
        command.gpus = command.gpus or launch_slurm.gpus(given)
        for variable, pieces in variables.items():
            if re.search(rf"\$\{{?{variable}\b", text):
                place = f"{name}:{pieces[0].line}"
                command.notes.append(f"{place}: ${variable} is taken from there; sbatch's own options win")
    return commands


def _unit(text: str, name: str) -> list[LaunchCommand]:
    from sgdoctor.collect import launch_systemd

    sections = {section for section, _ in launch_systemd.settings(text)}
    if "Service" not in sections and "Container" in sections:
        raise UsageError(
            f"{name} is a Podman quadlet, which is not read: check the unit that podman makes of it"
        )
    return launch_systemd.parse(text, name)


# --- YAML ---------------------------------------------------------------------------------------------------


def _yaml(text: str, name: str, folder: Path | None) -> list[LaunchCommand]:
    from sgdoctor.collect import launch_yaml

    try:
        documents = launch_yaml.documents(text, name)
    except UsageError:
        if "{{" not in text:
            raise
        raise _template(name, _line_of_template(text)) from None
    braces = launch_yaml.braces(documents)
    if braces is not None:
        raise _template(name, braces)
    commands = _of_documents(documents, name, folder)
    for word in (word for command in commands for word in command.words):
        if _TEMPLATE.search(word.text):
            raise _template(name, word.line)
    return commands


def _template(name: str, line: int) -> UsageError:
    return UsageError(
        f"{name}:{line}: a template: render it first (helm template ... > FILE) and check the result"
    )


def _line_of_template(text: str) -> int:
    """Return the first line with marks of a template."""
    found = _TEMPLATE.search(text)
    return text[: found.start() if found is not None else text.index("{{")].count("\n") + 1


def _of_documents(documents: Sequence[Item], name: str, folder: Path | None) -> list[LaunchCommand]:
    mappings = [document for document in documents if document.kind == "mapping"]
    if any(_is_object(document) for document in mappings):
        from sgdoctor.collect import launch_kubernetes

        return launch_kubernetes.parse(mappings, name, folder)
    if len(mappings) == 1 and mappings[0].get("services") is not None:
        from sgdoctor.collect import launch_compose

        return launch_compose.parse(mappings[0], name, folder)
    if len(mappings) == 1 and _is_config(mappings[0]):
        return [_config(mappings[0], name)]
    line = documents[0].line if documents else 1
    raise UsageError(
        f"{name}:{line}: YAML, but neither a compose file (services), nor a Kubernetes manifest (apiVersion, "
        "kind), nor a configuration of SGLang (keys that are flags of the server)"
    )


def _is_object(document: Item) -> bool:
    keys = document.mapping()
    return "kind" in keys and ("apiVersion" in keys or "items" in keys)


def _is_config(document: Item) -> bool:
    """Whether most keys are flags of some release of SGLang."""
    from sgdoctor.upstream import catalogue

    keys = {key.replace("_", "-") for key in document.mapping()}
    for version in reversed(catalogue.releases()):
        release = catalogue.resolve(version)
        flags = {key for key in keys if key in _SHORT or (release and release.option(f"--{key}"))}
        if flags and 2 * len(flags) >= len(keys):
            return True
    return False


def _config(document: Item, name: str) -> LaunchCommand:
    """Return the command that starts a server with the configuration file alone."""
    line = document.line
    settings = {
        f"--{key.replace('_', '-')}": item.text
        for key, item in document.mapping().items()
        if item.text is not None
    }
    kept = {option: text for option, text in settings.items() if option in _TO_PAIR}
    words = [LaunchWord("--config", line), LaunchWord(name, line)]
    return LaunchCommand(
        name, "launch_server", words, {}, line=line, end_line=line, folder=Path(), settings=kept
    )


_SHORT = frozenset({"tp", "dp", "pp", "ep"})  # beginnings of flags, as most write them
_TO_PAIR: Sequence[str] = ("--model-path", "--model", "--port")
