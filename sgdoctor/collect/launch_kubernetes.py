"""Reads Kubernetes manifests: the containers that start SGLang, in whatever kind of object has pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from sgdoctor.collect.launch import NOTHING, LaunchCommand, commands_of
from sgdoctor.collect.launch_bash import Walk
from sgdoctor.collect.launch_containers import Container
from sgdoctor.collect.launch_exec import begin
from sgdoctor.collect.launch_kubernetes_pod import gpus, mounts, shared_memory
from sgdoctor.collect.launch_network import Network
from sgdoctor.collect.launch_words import Piece, Value, Word, unknown
from sgdoctor.collect.launch_wrappers import SHELLS, Environment
from sgdoctor.collect.launch_yaml import Item
from sgdoctor.errors import UsageError

_DEEPEST = 20
_REFERENCE = re.compile(r"\$(?:\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
_SHELL_VARIABLE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?$")
_WORKER_INDEX = "metadata.labels['leaderworkerset.sigs.k8s.io/worker-index']"
# Kinds whose controllers put no variables of their own into containers.
_PLAIN = frozenset("Pod PodTemplate Deployment ReplicaSet StatefulSet DaemonSet CronJob".split())
# Variables that Kubernetes sets for every service of a namespace.
_OF_SERVICES = re.compile(r".*_SERVICE_(HOST|PORT(_.*)?)|.*_PORT(_[0-9]+_(TCP|UDP)(_.*)?)?")


class Pod(msgspec.Struct):
    """The specification of a pod: ``group`` is its object, ``role`` leader or worker of a LeaderWorkerSet."""

    spec: Item
    kind: str
    group: str
    role: str = ""
    size: Word | None = None


def parse(documents: Sequence[Item], name: str, folder: Path | None) -> list[LaunchCommand]:
    """Return the SGLang servers of a manifest. Raises UsageError when there are none."""
    objects = [each for document in documents for each in _objects(document)]
    config_maps = _config_maps(objects)
    commands: list[LaunchCommand] = []
    hints: list[str] = []
    for at, each in enumerate(objects):
        for pod in _pods(each, at):
            for item in pod.spec.each("containers"):
                read = _Container(item, pod, config_maps, Walk(name))
                words = read.command()
                if words and words[0].text.startswith("-"):
                    hints.append(f"line {item.line} gives only args: what its image runs is not known")
                begin(words, read.walk, Environment(dict(read.variables)), read.container())
                for command in commands_of(read.walk, folder):
                    command.label, command.group = read.label, pod.group
                    commands.append(command)
    if not commands:
        raise UsageError("; ".join([f"{name} {NOTHING}", *hints]))
    return commands


def _objects(document: Item) -> Iterator[Item]:
    """Yield the objects of a document: itself, or those of a List."""
    if (document.string("kind") or "").endswith("List") and document.get("items") is not None:
        yield from document.each("items")
    else:
        yield document


def _pods(document: Item, at: int) -> Iterator[Pod]:
    """Yield the pods of an object, wherever they stand in it."""
    kind = document.string("kind") or ""
    title = f"{kind} {document.string('metadata', 'name') or at}"
    template = document.get("spec", "leaderWorkerTemplate")
    if template is not None:
        size = template.get("size")
        for role, key in (("leader", "leaderTemplate"), ("worker", "workerTemplate")):
            spec = template.get(key, "spec")
            if spec is not None:
                yield Pod(spec, kind, title, role, size.word() if size is not None else None)
        return
    for spec in _specs(document, set(), 0):
        yield Pod(spec, kind, title)


def _specs(item: Item, seen: set[int], depth: int) -> Iterator[Item]:
    """Yield what has a list of containers."""
    if depth > _DEEPEST or id(item.node) in seen:
        return
    seen.add(id(item.node))
    containers = item.get("containers")
    if containers is not None and any(each.kind == "mapping" for each in containers.items()):
        yield item
        return
    for child in [*item.mapping().values(), *item.items()]:
        yield from _specs(child, seen, depth + 1)


def _config_maps(objects: Iterable[Item]) -> dict[str, dict[str, Item]]:
    found: dict[str, dict[str, Item]] = {}
    for each in objects:
        data = each.get("data")
        if each.string("kind") == "ConfigMap" and data is not None:
            found[each.string("metadata", "name") or ""] = data.mapping()
    return found


class _Container:
    """One container of a pod."""

    def __init__(self, item: Item, pod: Pod, config_maps: dict[str, dict[str, Item]], walk: Walk) -> None:
        self.item = item
        self.pod = pod
        self.walk = walk
        self._maps = config_maps
        self._open = False  # a source of variables that is not in the file
        self.variables: dict[str, Value] = dict(self._given())
        self._sources()
        self._own()

    @property
    def label(self) -> str:
        """What tells it from the other containers of the file."""
        parts = [self.pod.group, self.pod.role, f"container {self.item.string('name') or self.item.line}"]
        return ", ".join(part for part in parts if part)

    def note(self, line: int, text: str) -> None:
        self.walk.notes.append(f"{self.walk.name}:{line}: {text}")

    # --- variables ----------------------------------------------------------------------------------------

    def _given(self) -> Iterator[tuple[str, Value]]:
        """Yield what a LeaderWorkerSet's webhook puts before a container's own variables."""
        if self.pod.role == "":
            return
        line = self.item.line
        size = self.pod.size
        if size is not None:
            yield "LWS_GROUP_SIZE", size.pieces
        yield "LWS_LEADER_ADDRESS", (unknown("$(LWS_LEADER_ADDRESS)", line, "the leader's address"),)
        yield "LWS_WORKER_INDEX", self._worker_index(line)

    def _worker_index(self, line: int) -> Value:
        if self.pod.role == "leader":
            return (Piece("0", line),)
        return (unknown("$(LWS_WORKER_INDEX)", line, "differs from pod to pod"),)

    def _sources(self) -> None:
        for source in self.item.each("envFrom"):
            reference = source.get("configMapRef") or source.get("secretRef")
            name = (reference.string("name") if reference is not None else None) or ""
            prefix = source.string("prefix") or ""
            if source.get("configMapRef") is not None and name in self._maps:
                for key, item in self._maps[name].items():
                    self.variables[prefix + key] = item.pieces()
            else:
                self._open = True
                self.note(source.line, f"the variables of envFrom {name} are not in the file")

    def _own(self) -> None:
        for item in self.item.each("env"):
            name, value, source = item.string("name"), item.get("value"), item.get("valueFrom")
            if name is None:
                continue
            if value is not None:
                self._string(value, f"env {name}")
                self.variables[name] = self._expanded(value.pieces())
            elif source is not None:
                self.variables[name] = self._from(name, source)
            else:
                self.variables[name] = (Piece("", item.line),)

    def _from(self, name: str, source: Item) -> Value:
        if source.string("fieldRef", "fieldPath") == _WORKER_INDEX and self.pod.role:
            return self._worker_index(source.line)
        reference = source.get("configMapKeyRef")
        if reference is not None:
            data = self._maps.get(reference.string("name") or "", {})
            item = data.get(reference.string("key") or "")
            if item is not None:
                return item.pieces()
        kind = next(iter(source.mapping()), "valueFrom")
        return (unknown(f"$({name})", source.line, f"{name} comes from a {kind}"),)

    def _string(self, item: Item, what: str) -> None:
        if item.kind == "scalar" and not item.is_string:
            self.note(item.line, f"Kubernetes refuses a number or truth value as {what}: put it in quotes")

    # --- the command --------------------------------------------------------------------------------------

    def command(self) -> list[Word]:
        """Return the words that start the container's process, as far as the manifest gives them."""
        words: list[Word] = []
        for key in ("command", "args"):
            for item in self.item.each(key):
                if item.kind == "scalar":
                    self._string(item, key)
                    words.append(Word(self._expanded(item.pieces())))
        if words and words[0].text.rpartition("/")[2] not in SHELLS:
            for word in words:
                if _SHELL_VARIABLE.match(word.prefix):
                    self.note(
                        word.line,
                        f"no shell runs here: {word.text} stays as it is; Kubernetes expands $(NAME)",
                    )
        return words

    def _expanded(self, pieces: Value) -> Value:
        """Replace ``$(NAME)`` as Kubernetes does; a name that nothing sets stays as it is written."""
        found: list[Piece] = []
        for piece in pieces:
            start = 0
            for match in _REFERENCE.finditer(piece.text):
                found.append(piece._replace(text=piece.text[start : match.start()]))
                found += self._value(match.group(1), match.group(), piece)
                start = match.end()
            found.append(piece._replace(text=piece.text[start:]))
        kept = tuple(piece for piece in found if piece.text or not piece.known)
        return kept or tuple(piece._replace(text="") for piece in pieces[:1])

    def _value(self, name: str | None, written: str, piece: Piece) -> Value:
        if name is None:  # $$
            return (piece._replace(text="$"),)
        if name in self.variables:
            return tuple(each._replace(line=piece.line) for each in self.variables[name])
        if self._open or self.pod.kind not in _PLAIN or _OF_SERVICES.fullmatch(name):
            return (unknown(written, piece.line, f"{name} is not set in the manifest"),)
        self.note(piece.line, f"{written} stays as it is written: {name} is not among the container's env")
        return (piece._replace(text=written),)

    # --- the container ------------------------------------------------------------------------------------

    def container(self) -> Container:
        """Return what the container gets from its node."""
        image = self.item.get("image")
        line = image.line if image is not None else self.item.line
        container = Container(line=line, image=image.text if image is not None else None)
        container.mounts = mounts(self.item, self.pod.spec)
        container.shm_mib, container.shm_line = shared_memory(self.item, self.pod.spec)
        container.gpus, container.gpus_line = gpus(self.item)
        container.network = Network("direct", line=self.item.line)  # a pod's address is the cluster's
        return container
