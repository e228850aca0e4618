"""Reads docker compose files: the services that start SGLang, as docker compose would start them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sgdoctor.collect import launch_envfile
from sgdoctor.collect.launch import NOTHING, LaunchCommand, commands_of
from sgdoctor.collect.launch_bash import Walk
from sgdoctor.collect.launch_compose_host import gpus, mounts, network, shared_memory
from sgdoctor.collect.launch_containers import Container
from sgdoctor.collect.launch_exec import begin
from sgdoctor.collect.launch_split import SplitError, compose_words
from sgdoctor.collect.launch_substitute import Substitution, VariableError
from sgdoctor.collect.launch_words import Piece, Value, Word, cut, unknown
from sgdoctor.collect.launch_wrappers import Environment
from sgdoctor.collect.launch_yaml import Item
from sgdoctor.errors import UsageError

_OUTSIDE = "the environment of docker compose may set it"
_DEEPEST = 10  # services that extend services


def parse(root: Item, name: str, folder: Path | None) -> list[LaunchCommand]:
    """Return the SGLang servers of a compose file. Raises UsageError when there are none."""
    file = File(root, name, folder)
    commands: list[LaunchCommand] = []
    hints: list[str] = []
    for label in file.services:
        service = Service(file, label)
        words = service.command()
        if words and words[0].text.startswith("-"):
            hints.append(f"service {label} gives only flags: what its image runs is not known")
        begin(words, service.walk, Environment(service.environment()), container(service))
        for command in commands_of(service.walk, folder):
            command.label = f"service {label}"
            command.group = name
            commands.append(command)
    if not commands:
        raise UsageError("; ".join([f"{name} {NOTHING}", *hints]))
    return commands


class File:
    """A compose file with the variables that the ``.env`` beside it sets."""

    def __init__(self, root: Item, name: str, folder: Path | None) -> None:
        self.root = root
        self.name = name
        self.folder = folder
        services = root.get("services")
        self.services = services.mapping() if services is not None else {}
        self.variables: dict[str, Value] = {"HOME": (Piece("~", 0),)}
        try:
            text = launch_envfile.read(folder / ".env") if folder is not None else ""
        except (OSError, ValueError):
            text = ""
        self.variables |= launch_envfile.compose_file(text, self.variables.get)


class Service:
    """One service, what it takes over from others (``extends``) included."""

    def __init__(self, file: File, label: str) -> None:
        self.file = file
        self.label = label
        self.walk = Walk(file.name)
        self.layers = list(self._layers(label))
        self._substitution = Substitution(file.variables.get, self._note, _OUTSIDE)

    def _layers(self, label: str) -> Iterator[Item]:
        """Yield the service and those it extends."""
        for _ in range(_DEEPEST):
            item = self.file.services.get(label)
            if item is None:
                return
            yield item
            extends = item.get("extends")
            if extends is None:
                return
            other = extends.string("file")
            if other is not None:
                where = f"{self.file.name}:{extends.line}"
                self.walk.notes.append(f"{where}: what is taken over from {other} is not looked at")
                return
            label = extends.text or extends.string("service") or ""

    @property
    def line(self) -> int:
        """The line where it begins: that of its image, where it has one."""
        image = self.get("image")
        return image.line if image is not None else self.layers[0].line

    def get(self, *path: str) -> Item | None:
        """Return the setting below ``path``, the service's own before one that is taken over."""
        return next((found for layer in self.layers if (found := layer.get(*path)) is not None), None)

    def each(self, *path: str) -> list[Item]:
        """Return the elements of the lists below ``path``, those that are taken over first."""
        return [item for layer in reversed(self.layers) for item in layer.each(*path)]

    def value(self, item: Item) -> Value:
        """Return a scalar with its variables replaced. Raises UsageError where docker compose refuses it."""
        try:
            return self._substitution.value(item.pieces())
        except VariableError as error:
            where = f"{self.file.name}:{error.line}"
            raise UsageError(f"{where}: docker compose refuses {str(error)!r}: no variable") from error

    def word(self, item: Item) -> Word:
        """Return a scalar as one word."""
        return Word(tuple(piece._replace(splits=False) for piece in self.value(item)))

    def _note(self, name: str, line: int) -> None:
        self.note(line, f"${name} is taken at its default there, which the environment may override")

    def note(self, line: int, text: str) -> None:
        """Say once what was assumed or not understood at ``line``."""
        note = f"{self.file.name}:{line}: {text}"
        if note not in self.walk.notes:
            self.walk.notes.append(note)

    def other(self, label: str) -> Service | None:
        """Return another service of the file."""
        return Service(self.file, label) if label in self.file.services else None

    # --- what it runs -------------------------------------------------------------------------------------

    def command(self) -> list[Word]:
        """Return the words that start the container's process, as far as the file gives them."""
        return self._words("entrypoint") + self._words("command")

    def _words(self, key: str) -> list[Word]:
        item = self.get(key)
        if item is None:
            return []
        if item.kind == "sequence":
            return [self.word(each) for each in item.items() if each.kind in ("scalar", "null")]
        try:
            words = compose_words(self.value(item))
        except SplitError as error:
            raise UsageError(
                f"{self.file.name}:{error.line}: docker compose cannot split this {key} into words: a quote, "
                "a backslash or a parenthesis stands alone"
            ) from error
        escaped = [word for word in words if word.text[:1] in ("\n", " ")]
        if escaped:
            self.note(
                escaped[0].line,
                "no shell reads this text: a backslash at a line's end and what follows it are given to the "
                "program, as an argument or a part of one",
            )
        return words

    def environment(self) -> dict[str, Value | None]:
        """Return the variables that the file gives the container."""
        found: dict[str, Value | None] = {}
        for layer in reversed(self.layers):
            for path in self._files(layer):
                found |= self._read(path)
        for layer in reversed(self.layers):
            item = layer.get("environment")
            for name, value in self._variables(item) if item is not None else ():
                found[name] = value
        return found

    def _files(self, layer: Item) -> list[Item]:
        given = layer.get("env_file")
        if given is None:
            return []
        entries = given.items() or [given]
        paths = [each.get("path") if each.kind == "mapping" else each for each in entries]
        return [path for path in paths if path is not None and path.kind == "scalar"]

    def _read(self, item: Item) -> dict[str, Value]:
        """Return the variables of an ``env_file``."""
        word, folder = self.word(item), self.file.folder
        path = Path(word.text) if folder is None else folder / word.text
        try:
            text = launch_envfile.read(path.expanduser()) if word.known else None
            why = word.reason
        except (OSError, ValueError, RuntimeError) as error:
            text, why = None, str(getattr(error, "strerror", None) or error)
        if text is None:
            self.note(
                item.line, f"env_file {word.text} could not be read ({why}): its variables are not known"
            )
            return {}
        read = launch_envfile.compose_file(text, self.file.variables.get)
        return {name: tuple(p._replace(line=item.line) for p in value) for name, value in read.items()}

    def _variables(self, item: Item) -> Iterator[tuple[str, Value]]:
        for name, value in item.mapping().items():
            if value.kind in ("scalar", "null"):
                yield name, self._passed(name, value) if value.kind == "null" else self.word(value).pieces
        for each in item.items():
            pieces = self.word(each).pieces
            text = "".join(piece.text for piece in pieces)
            name, equals, _ = text.partition("=")
            if equals and pieces[0].known:
                yield name, cut(pieces, len(name) + 1)
            elif name:
                yield name, self._passed(name, each)

    def _passed(self, name: str, item: Item) -> Value:
        """Return a variable that is only named: docker compose passes its own on."""
        found = self.file.variables.get(name) if name != "HOME" else None
        return found or (unknown(f"${name}", item.line, _OUTSIDE),)


def container(service: Service) -> Container:
    """Return what the service gets from its host."""
    found = Container(line=service.line)
    image = service.get("image")
    if image is not None and service.get("build") is None:
        found.image = service.word(image).text
    found.mounts = mounts(service)
    found.network = network(service)
    found.shm_mib, found.shm_line = shared_memory(service)
    found.gpus, found.gpus_line = gpus(service)
    return found
