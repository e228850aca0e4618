"""Finds the SGLang server in a command's words, behind env, sudo, numactl, bash -c, docker run."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from sgdoctor.collect.launch_containers import ENGINES, Container, container_command, job_container
from sgdoctor.collect.launch_fillers import FILLERS, filled, split_string, typed
from sgdoctor.collect.launch_words import Piece, Value, Word, cut

SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ash", "ksh"})
MODULE = "sglang.launch_server"
_SERVER = re.compile(r"sglang\.launch_server|sglang/launch_server\.py|\bsglang\s+serve\b")
# Commands that are given the words of a server without starting it.
_TALKERS = frozenset(
    "[ [[ alias awk cat complete echo egrep grep head history less log logger man nano pgrep pip pip3 pkill "
    "printf ps sed tail tee test trap vim which".split()
)
# Commands that pass none of this shell's variables on.
_REMOTE = frozenset({"ssh", "kubectl", "oc", "pdsh", "gcloud"})
_HELP = ("-h", "--help")
_PYTHON = re.compile(r"(?:.*/)?(?:python[0-9.]*|pypy3?)")
_LOGIN = re.compile(r"\S*ssh(?: -[BbcDEeFIiJLlmOopQRSWw] [^-\s]\S*| -\S+)* [^-\s]\S*")
# Commands that run the rest of their words in a way of their own.
_HAND_ON = frozenset({*ENGINES, *SHELLS, *_REMOTE, *FILLERS})
_ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")


class Environment(msgspec.Struct):
    """The environment that a command is started with.

    ``values`` are the variables that the script sets (None: that it takes away). ``complete``: there are no
    others (``env -i``). ``files`` are docker's --env-file.
    """

    values: dict[str, Value | None] = {}
    complete: bool = False
    files: list[Word] = []


class Launch(msgspec.Struct):
    """A command that starts the server: what follows ``sglang.launch_server`` or ``sglang serve``."""

    entry: str
    arguments: list[Word]
    environment: Environment
    container: Container | None = None


class Script(msgspec.Struct):
    """Text that a shell is given to run, with its positional parameters."""

    text: Value
    environment: Environment
    arguments: list[Word] = []
    container: Container | None = None
    same_shell: bool = False


def unwrap(
    words: Sequence[Word],
    environment: Environment,
    container: Container | None = None,
    heredoc: Value | None = None,
) -> Launch | Script | None:
    """Return what ``words`` start: the server, a script for a shell, or None for anything else.

    ``heredoc`` is the text on standard input, a script where the command is a shell without one of its own.
    """
    if not words or _name(words[0]) in _TALKERS:
        return None
    assigns = False  # after env or sudo
    for number, word in enumerate(words):
        name, rest = _name(word), words[number + 1 :]
        if name in _HAND_ON or (name == "env" and split_string(rest) is not None):
            return _handed_on(words[number:], environment, container, heredoc)
        if name == "srun":
            container = job_container(words[number:]) or container
        if name in ("env", "sudo"):
            assigns = True
            _scrub(name, rest, environment)
        elif assigns and _ASSIGNMENT.match(word.prefix):
            variable, _, _ = word.prefix.partition("=")
            environment.values[variable] = cut(word.pieces, len(variable) + 1)
        elif name == "sglang" and rest and rest[0].text == "serve":
            return _launch("serve", rest[1:], environment, container)
        elif number and _is_module(word, rest):
            skip = 1 if word.text == "-m" else 0
            return _launch("launch_server", rest[skip:], environment, container)
        elif number and words[number - 1].text == "-c" and _runs_python(words[:number]):
            return None
        elif number and _holds_script(word):
            stuffed = words[number - 1].text == "stuff"
            pieces = typed(word.pieces) if stuffed else word.pieces
            return Script(pieces, environment, container=container)
    return None


def _handed_on(
    words: Sequence[Word], environment: Environment, container: Container | None, heredoc: Value | None
) -> Launch | Script | None:
    """Return what a command starts that runs the rest of its words in a way of its own."""
    name, rest = _name(words[0]), words[1:]
    if name in ENGINES:
        return _contained(words, environment, heredoc)
    if name in SHELLS:
        return _shell(rest, environment, container, heredoc)
    if name in _REMOTE:
        return _remote(rest, heredoc)
    if name in FILLERS:
        rest = filled(name, rest)
        if rest and _holds_script(rest[0]):
            return Script(rest[0].pieces, environment, container=container)
        return unwrap(rest, environment, container, heredoc)
    split = split_string(rest)
    if split is None:
        return None
    _scrub(name, rest, environment)
    text, more = split
    return Script((*text, Piece(' "$@"', words[0].line)), environment, more, container)


def _runs_python(words: Sequence[Word]) -> bool:
    return any(_PYTHON.fullmatch(word.text) for word in words)


def _holds_script(word: Word) -> bool:
    return bool(_SERVER.search(word.text) and re.search(r"\s", word.text)) and word.text[:1] != "-"


def reads_script(words: Sequence[Word]) -> bool:
    """Whether what a command gets on standard input is a script: of a shell, or of the one behind ssh."""
    if any(_name(word) in SHELLS for word in words[-3:]):
        return True
    at = next((number for number, word in enumerate(words) if _name(word) == "ssh"), None)
    options = "" if at is None else " ".join(word.text.replace(" ", "") for word in words[at:])
    return _LOGIN.fullmatch(options) is not None


def _launch(
    entry: str, arguments: Sequence[Word], environment: Environment, container: Container | None
) -> Launch | None:
    """Return the server; what is asked for its help starts none: ``... --help | grep -q -- --flag``."""
    if any(word.known and word.text in _HELP for word in arguments):
        return None
    return Launch(entry, list(arguments), environment, container)


def _name(word: Word) -> str:
    return word.text.rpartition("/")[2] if word.known else ""


def _is_module(word: Word, rest: Sequence[Word]) -> bool:
    if word.text == "-m":
        return bool(rest) and rest[0].text == MODULE
    return word.text == f"-m{MODULE}" or word.text.endswith("sglang/launch_server.py")


def _scrub(name: str, rest: Sequence[Word], environment: Environment) -> None:
    """Take away what ``env -i``, ``env -u NAME`` and sudo take from the environment."""
    options: list[str] = []
    for word in rest:
        if not word.text.startswith("-") and (
            not options or options[-1] not in ("-u", "--unset", "-C", "-S", "-g")
        ):
            break
        options.append(word.text)
    if name == "sudo":
        if not any(
            option.startswith("--preserve-env") or re.match(r"-[A-Za-z]*E", option) for option in options
        ):
            environment.values = {}
        return
    if {"-i", "-", "--ignore-environment"} & set(options):
        environment.values, environment.complete = {}, True
    for number, option in enumerate(options):
        if option in ("-u", "--unset") and number + 1 < len(options):
            environment.values[options[number + 1]] = None
        elif option.startswith("--unset="):
            environment.values[option.removeprefix("--unset=")] = None
        elif option.startswith("-u") and len(option) > 2:
            environment.values[option[2:]] = None


def _shell(
    rest: Sequence[Word], environment: Environment, container: Container | None, heredoc: Value | None
) -> Script | None:
    """Return the script of ``bash -c TEXT [NAME ARGUMENT...]`` or of ``bash <<EOF``."""
    for number, word in enumerate(rest):
        if not word.text.startswith(("-", "+")):
            return None  # a script file
        if word.text in ("-o", "-O", "+o", "--rcfile", "--init-file"):
            continue
        if word.text == "-s" and heredoc is not None:
            given = list(rest[number + 1 :])
            return Script(heredoc, environment, given[bool(given) and given[0].text == "--" :], container)
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word.text) and number + 1 < len(rest):
            return Script(rest[number + 1].pieces, environment, list(rest[number + 3 :]), container)
    return None if heredoc is None else Script(heredoc, environment, container=container)


def _remote(rest: Sequence[Word], heredoc: Value | None) -> Launch | Script | None:
    """Return what runs on another machine: the words from the first that is a program we know."""
    pieces: list[Piece] = []
    for number, word in enumerate(rest):
        if pieces or number:
            pieces.append(Piece(" ", word.line))
        pieces += word.pieces
    text = "".join(piece.text for piece in pieces)
    if heredoc is not None:
        return Script(heredoc, Environment())
    if not _SERVER.search(text):
        return None
    for number, word in enumerate(rest):
        if _SERVER.search(word.text) and re.search(r"\s", word.text):
            return Script(word.pieces, Environment())
        if not number or rest[number - 1].text.startswith("-"):
            continue
        found = unwrap(rest[number:], Environment())
        if found is not None:
            return found
    return None


def _contained(
    words: Sequence[Word], environment: Environment, heredoc: Value | None
) -> Launch | Script | None:
    """Return what ``docker run IMAGE COMMAND`` starts, with the container's own environment."""
    container, command, variables = container_command(words)
    if container is None:
        return None
    inside = Environment(files=list(container.env_files))
    for name, given in variables.items():
        if given is not None:
            inside.values[name] = given
        elif name in environment.values:  # -e NAME: from the shell
            inside.values[name] = environment.values[name]
    return unwrap(command, inside, container, heredoc)
