"""A command that this process is about to become: what it inherits, and which Python it runs.

What a wrapper takes away or chooses (sudo, ssh, conda run) is left unknown.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sgdoctor import redact
from sgdoctor.collect import clean
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.collect.launch_wrappers import SHELLS
from sgdoctor.facts import Facts

PLACE = "this process's environment"

# Programs that run their command on another machine, perhaps on another one.
_ELSEWHERE = frozenset(
    "ssh kubectl oc pdsh gcloud srun mpirun mpiexec mpiexec.hydra ray machinectl sbatch salloc".split()
)
# Those that do not pass their environment on, or not all of it.
_SCRUBBING = _ELSEWHERE | frozenset("sudo doas su runuser systemd-run".split())
# Those whose command sees another file system.
_ROOTS = frozenset("singularity apptainer enroot chroot nsenter bwrap proot flatpak unshare nix".split())
# Those that set PATH, or choose among environments in their own way.
_CHOOSING = _SCRUBBING | frozenset(
    "uv uvx conda mamba micromamba pixi poetry pipenv hatch pdm rye pipx pyenv nix-shell module activate "
    "source . cd pushd export eval direnv".split()
)
_PYTHON = re.compile(r"python[0-9.]*t?\Z")
_MODULE = re.compile(r"(-m)?sglang\.launch_server\Z|.*sglang/launch_server\.py\Z")
_BETWEEN = re.compile(r"[\s;&|()\"'`]+")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_LOGIN = re.compile(r"-[a-z]*[li][a-z]*\Z|--login\Z")
_SECRET = re.compile(r"(?i)token|secret|passw|api_?key|credential|private")
# pip and uv write this where the path is too long, or has a blank, for a line of its own.
_EXEC_LINE = re.compile(r"'''exec' (?:'([^']+)'|\"([^\"]+)\"|(\S+)) \"\$0\"")


def written_out(argv: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command with what ``bash -c '... $MODEL ...'`` takes from the environment written out.

    A login shell reads more than its environment: its command stays as it is. Values that look like secrets
    by their names are replaced.
    """
    if not argv or _name(argv[0]) not in SHELLS or any(_LOGIN.match(word) for word in argv[1:3]):
        return tuple(argv)
    names = dict.fromkeys(name for word in argv for name in _VARIABLE.findall(word))
    unset = [word for name in names if name not in variables for word in ("-u", name)]
    given = [f"{name}={_value(name, variables[name])}" for name in names if name in variables]
    return ("env", *unset, *given, *argv) if names else tuple(argv)


def _value(name: str, value: str) -> str:
    return redact.REDACTED if _SECRET.search(name) else value


def read_environment(
    facts: Facts, command: LaunchCommand, argv: Sequence[str], variables: Mapping[str, str]
) -> None:
    """Set env.* that the command inherits: what is not in ``variables`` is not set. Never raises."""
    if command.container is not None or command.closed or _SCRUBBING & _programs(argv):
        return
    allowed = clean.value(redact.environment(dict(variables)))
    names = {name.removeprefix("env.") for name in facts.vocabulary.specs if name.startswith("env.")}
    for name in sorted(names | set(allowed)):
        if name not in command.variables:
            facts.set(f"env.{name}", allowed.get(name), source="process", place=PLACE)


def runs_here(command: LaunchCommand, argv: Sequence[str]) -> bool:
    """Whether the server will run on this machine and see its file system, not in a container."""
    return command.container is None and not (_ELSEWHERE | _ROOTS) & _programs(argv)


def interpreter(argv: Sequence[str], path: str | None) -> Path | None:
    """Return the Python that the command runs SGLang with, None where that cannot be told.

    ``path`` is the PATH that it looks for programs in.
    """
    words, at = _before_server(argv)
    if at is None or _ROOTS & _names(words):
        return None
    if any(_LOGIN.match(word) for word in words) and SHELLS & _names(words):
        path = None  # set by the profile
    if _CHOOSING & _names(words):
        path = None
    if at < len(words):  # sglang serve
        script = _program(words[at], path)
        return _of_script(script, path) if script is not None else None
    python = next((word for word in reversed(words) if _PYTHON.match(_name(word))), None)
    return _program(python, path) if python is not None else None


def _program(word: str, path: str | None) -> Path | None:
    if "/" in word:
        return Path(word).absolute()
    found = shutil.which(word, path=path) if path is not None else None
    return Path(found).absolute() if found else None


def _of_script(script: Path, path: str | None) -> Path | None:
    """Return the interpreter that the first lines of a script name."""
    try:
        with script.open("rb") as stream:
            lines = stream.read(4096).decode(errors="replace").splitlines()
    except OSError:
        return None
    if not lines or not lines[0].startswith("#!"):
        return None
    words = lines[0][2:].split()
    if words and _name(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if words and _PYTHON.match(_name(words[0])):
        return _program(words[0], path)
    found = _EXEC_LINE.match(lines[1]) if len(lines) > 1 else None
    return Path(next(filter(None, found.groups()))) if found else None


def _programs(argv: Sequence[str]) -> frozenset[str]:
    words, _ = _before_server(argv)
    return _names(words)


def _names(words: Iterable[str]) -> frozenset[str]:
    return frozenset(_name(word) for word in words)


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _before_server(argv: Sequence[str]) -> tuple[list[str], int | None]:
    """Return the words up to the server's own arguments, those of a shell's command taken apart.

    And the number of the word ``sglang`` of ``sglang serve``, that of words for ``-m sglang.launch_server``,
    None when neither is there.
    """
    words = [part for word in argv for part in _parts(word)]
    for number, word in enumerate(words):
        if _MODULE.match(word):
            return words[:number], number
        if _name(word) == "sglang" and words[number + 1 : number + 2] == ["serve"]:
            return words[: number + 1], number
    return words, None


def _parts(word: str) -> list[str]:
    if not re.search(r"\s", word):
        return [word]
    try:
        return shlex.split(word.replace(";", " ; ").replace("&", " & "), comments=False)
    except ValueError:
        return [part for part in _BETWEEN.split(word) if part]
