"""Reads ``docker run`` and its kin: image, environment, mounts, size of /dev/shm, and the command inside."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from sgdoctor.collect.launch_network import Network, published
from sgdoctor.collect.launch_text import number
from sgdoctor.collect.launch_words import Value, Word, cut

ENGINES = frozenset({"docker", "podman", "nerdctl"})
DEFAULT_SHM_MIB = 64  # of docker, podman and nerdctl

# Options of `docker run` and `exec` that take no value; all others do.
_SWITCHES = frozenset(
    "--detach --disable-content-trust --help --init --interactive --no-healthcheck --no-hosts "
    "--oom-kill-disable --privileged --publish-all --quiet --read-only --replace --rm --rootfs "
    "--sig-proxy --systemd --tty".split()
)
_SHORT_SWITCHES = frozenset("dithPq")
# An installation of SGLang, and of which release.
_INSTALLS = re.compile(
    r"(?:\bpip3?|\buv)\b[^\n;&|]*\binstall\b[^\n;&|]*?[\s\"'/]sglang(?![-_.\w])|\bgit\s+clone\b[^\n;&|]*/sglang\b"
)
_RELEASE = re.compile(r"\bsglang(?:\[[^\]]*\])?==([0-9][0-9A-Za-z.]*)")
_SIZE = re.compile(r"(?i)^\s*([0-9]{1,18}(?:\.[0-9]+)?)\s*([bkmgt]?)(?:i?b)?\s*$")
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class Mount(msgspec.Struct, frozen=True):
    """A folder or file of the host and where the container has it."""

    host: str
    container: str


class Container(msgspec.Struct):
    """The container that the server runs in.

    ``image`` is None for ``docker exec``. ``shm_mib`` is the size of its /dev/shm, None when the command does
    not decide it (``--ipc=host``, a mount) or could not be read. ``release`` is the SGLang that is installed
    on top of the image ("": one that cannot be told), ``gpus`` how many GPUs it gets.
    """

    line: int
    image: str | None = None
    mounts: list[Mount] = []
    env_files: list[Word] = []
    shm_mib: int | None = None
    shm_line: int = 0
    network: Network | None = None
    release: str | None = None
    release_line: int = 0
    gpus: int | None = None
    gpus_line: int = 0

    def note_installation(self, words: Sequence[Word]) -> None:
        """Note that a command of the container installs SGLang over that of the image."""
        for word in words:
            if _INSTALLS.search(word.text) is None:
                continue
            release = _RELEASE.search(word.text)
            self.release = release.group(1) if release is not None else ""
            self.release_line = _line_at(word, release.start(1)) if release is not None else word.line

    def on_host(self, path: str) -> str | None:
        """Return where the container's ``path`` is on the host, None when no mount has it."""
        best: Mount | None = None
        for mount in self.mounts:
            inside = mount.container.rstrip("/")
            if (path == inside or path.startswith(inside + "/")) and (
                best is None or len(inside) > len(best.container.rstrip("/"))
            ):
                best = mount
        return None if best is None else best.host.rstrip("/") + path[len(best.container.rstrip("/")) :]


def _line_at(word: Word, place: int) -> int:
    """Return the line of a character of a word."""
    for piece in word.pieces:
        if place < len(piece.text):
            return piece.line
        place -= len(piece.text)
    return word.line


class _Options(msgspec.Struct):
    given: list[tuple[str, Word]] = []
    in_doubt: bool = False
    publish_all: bool = False

    def values(self, *names: str) -> list[Word]:
        return [word for name, word in self.given if name in names]


def container_command(
    words: Sequence[Word],
) -> tuple[Container | None, list[Word], dict[str, Value | None]]:
    """Read ``docker ... run|exec ...``: the container, the command inside, the variables of ``-e``.

    A variable is None when it is passed on. The container is None when the words run nothing.
    """
    verb = next((n for n, word in enumerate(words) if word.text in ("run", "exec", "create")), None)
    if verb is None or any(
        word.text in ("build", "compose", "pull", "logs", "stop", "rm") for word in words[:verb]
    ):
        return None, [], {}
    options, rest = _options(words[verb + 1 :])
    if not rest:
        return None, [], {}
    command = list(rest[1:])
    entry = options.values("--entrypoint")
    if entry and entry[-1].text:
        command = [entry[-1], *command]
    container = Container(line=words[0].line)
    container.env_files = options.values("--env-file")
    container.mounts = [mount for mount in map(_mount, options.given) if mount is not None]
    if words[verb].text == "exec":
        container.network = Network("unknown", doubt="exec does not say how its container is reached")
    else:
        container.image = rest[0].text
        container.network = _network(options, container.line)
        _shm(container, options)
        _gpus(container, options)
    container.note_installation(command)
    return container, command, _variables(options)


def job_container(words: Sequence[Word]) -> Container | None:
    """Read the container of ``srun --container-image=IMAGE``, which has the node's network."""
    given = {"--container-image": Word(()), "--container-mounts": Word(())}
    for word, after in zip(words, [*words[1:], Word(())], strict=True):
        name, equals, _ = word.text.partition("=")
        if name in given:
            given[name] = _after(word, len(name) + 1) if equals else after
    image, mounts = given.values()
    if not image.text:
        return None
    container = Container(line=image.line, image=image.text)
    container.network = Network("direct", line=image.line)
    for entry in mounts.text.split(",") if mounts.known else ():
        host, colon, inside = entry.partition(":")
        if host.startswith(("/", "~")):
            container.mounts.append(Mount(host, inside.partition(":")[0] if colon else host))
    return container


def _options(words: Sequence[Word]) -> tuple[_Options, Sequence[Word]]:
    """Split off the options before the image."""
    options = _Options()
    at = 0
    while at < len(words):
        word = words[at]
        text = word.text
        if word.many:
            options.in_doubt = True
            at += 1
            continue
        if text == "--":
            return options, words[at + 1 :]
        if not text.startswith("-") or text == "-":
            break
        at += 1
        name, equals, _ = text.partition("=")
        if text.startswith("--"):
            if equals:
                options.given.append((name, _after(word, len(name) + 1)))
            elif name not in _SWITCHES and at < len(words):
                options.given.append((name, words[at]))
                at += 1
            options.publish_all |= name == "--publish-all"
            continue
        letters = text[1:]
        position = next((n for n, letter in enumerate(letters) if letter not in _SHORT_SWITCHES), None)
        options.publish_all |= "P" in letters[:position]
        if position is None:
            continue
        option = "-" + letters[position]
        attached = _after(word, position + 2)
        if attached.text:
            options.given.append(
                (option, _after(word, position + 3) if attached.text[0] == "=" else attached)
            )
        elif at < len(words):
            options.given.append((option, words[at]))
            at += 1
    return options, words[at:]


def _after(word: Word, count: int) -> Word:
    return Word(cut(word.pieces, count))


def _variables(options: _Options) -> dict[str, Value | None]:
    found: dict[str, Value | None] = {}
    for word in options.values("-e", "--env"):
        name, equals, _ = word.prefix.partition("=")
        if equals:
            found[name] = _after(word, len(name) + 1).pieces
        elif word.known and name:
            found[name] = None
    return found


def _mount(option: tuple[str, Word]) -> Mount | None:
    name, word = option
    if not word.known:
        return None
    if name in ("-v", "--volume"):
        host, colon, inside = word.text.partition(":")
        inside = inside.partition(":")[0]
        return Mount(host, inside) if colon and inside and host.startswith(("/", "~", ".")) else None
    if name == "--mount":
        parts = dict(part.partition("=")[::2] for part in word.text.split(","))
        host = parts.get("source") or parts.get("src") or ""
        inside = parts.get("target") or parts.get("destination") or parts.get("dst") or ""
        return Mount(host, inside) if host and inside and parts.get("type", "bind") == "bind" else None
    return None


def _shm(container: Container, options: _Options) -> None:
    """Decide the size of /dev/shm: what --shm-size says, docker's default, or nothing the command decides."""
    mounted = [word for name, word in options.given if name in ("-v", "--volume", "--mount", "--tmpfs")]
    if options.in_doubt or options.values("--ipc") or any("/dev/shm" in word.text for word in mounted):  # noqa: S108
        return
    sizes = options.values("--shm-size")
    container.shm_line = sizes[-1].line if sizes else container.line
    container.shm_mib = mebibytes(sizes[-1].text) if sizes else DEFAULT_SHM_MIB


def _network(options: _Options, line: int) -> Network:
    """Read --network and -p: a container of its own network is reached through published ports alone."""
    given = options.values("--network", "--net")
    name = given[-1].text if given and given[-1].known else "?" if given else "bridge"
    if name in ("host", "none"):
        return Network("direct" if name == "host" else "closed", line=given[-1].line)
    network = Network(line=line)
    if options.in_doubt:
        network.doubt = "more options may publish ports"
    elif options.publish_all:
        network.doubt = "which ports the image exposes is not known"
    elif name not in ("bridge", "default"):
        network.doubt = f"how network {name} is reached is not known"
    for word in options.values("-p", "--publish"):
        try:
            port = published(word.text, word.line) if word.known else None
        except ValueError:
            port = None
            network.doubt = network.doubt or f"{word.text} is not understood"
        if not word.known:
            network.doubt = network.doubt or f"{word.text} could not be expanded ({word.reason})"
        elif port is not None:
            network.ports.append(port)
    return network


def _gpus(container: Container, options: _Options) -> None:
    """Read ``--gpus 2`` and ``--gpus '"device=0,1"'``; ``all`` is as many as there are."""
    for word in options.values("--gpus"):
        text = word.text.strip("\"'")
        devices = text.partition("device=")[2]
        if word.known and (devices or number(text)):
            container.gpus = len(devices.split(",")) if devices else number(text)
            container.gpus_line = word.line


def mebibytes(size: str) -> int | None:
    """Return docker's notation of a size (``32g``, ``64m``, bytes) in MiB, None when it is none."""
    match = _SIZE.match(size)
    return int(float(match.group(1)) * _UNITS[match.group(2).lower()] / 2**20) if match else None
