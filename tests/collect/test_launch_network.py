"""Who reaches the server of a launch file: what its host publishes, before what it listens on."""

from __future__ import annotations

import pytest

from sgdoctor.collect import launch, launch_asked, launch_kinds, launch_network
from sgdoctor.collect.launch_network import Network, Port, published
from sgdoctor.facts import Facts, Known, Unknown
from sgdoctor.upstream import arguments

HOST = "python3 -m sglang.launch_server --model-path m --host 0.0.0.0"


def exposed(text: str, name: str = "launch.sh") -> Known | Unknown:
    """Return server.exposed of the one server in a launch file."""
    facts = Facts()
    facts.set("sglang.version", "0.5.10", source="assume", place="--assume")
    (command,) = launch_kinds.parse(text, name)
    launch.collect(facts, command)
    launch_asked.interpret(facts, command)
    launch_network.collect(facts, command)
    arguments.effective(facts)
    arguments.exposure(facts)
    return facts.get("server.exposed")


def docker(options: str, flags: str = "") -> bool | str:
    fact = exposed(f"docker run {options} img {HOST} {flags}\n")
    return fact.value if isinstance(fact, Known) else fact.reason


@pytest.mark.parametrize(
    ("options", "flags", "expected"),
    [
        ("", "", False),
        ("-p 30000:30000", "", True),
        ("-p 127.0.0.1:30000:30000", "", False),
        ("-p localhost:30000:30000", "", False),
        ("-p [::1]:30000:30000", "", False),
        ("-p 10.0.0.7:30000:30000", "", True),
        ("--publish=0.0.0.0:80:30000", "", True),
        ("-p 30000", "", True),
        ("-p 8000-8010:30000-30010", "--port 30005", True),
        ("-p 8080:8080", "", False),
        ("-p 8080:8080", "--port 8080", True),
        ("-p 127.0.0.1:30000:30000 -p 30000:30000", "", True),
        ("-p 30000:30000/udp", "", False),
        ("--network host", "", True),
        ("--net=host", "", True),
        ("--network none", "", False),
        ("-p 30000:30000", "--host 127.0.0.1", False),
        ("--network inner -p 30000:30000", "", True),
        ("--network inner", "", "launch.sh:1: how network inner is reached is not known"),
        ("-P", "", "launch.sh:1: which ports the image exposes is not known"),
        ("$OPTIONS", "", "launch.sh:1: more options may publish ports"),
        ("-p $P:30000", "", "launch.sh:1: $P:30000 could not be expanded (P is not set in the script)"),
        ("-p 30000:30000", "--port $PORT", "launch.sh:1: the port it listens on is not known"),
        ("-p x", "", "launch.sh:1: x is not understood"),
    ],
)
def test_docker_run(options: str, flags: str, expected: bool | str):  # noqa: FBT001
    assert docker(options, flags) == expected


def test_a_published_port_says_where():
    fact = exposed(f"docker run \\\n  -p 127.0.0.1:30000:30000 \\\n  img {HOST}\n")
    assert isinstance(fact, Known)
    assert fact.provenance[0].place == "launch.sh:2"


def test_exec_says_nothing():
    assert isinstance(exposed(f"docker exec llm {HOST}\n"), Unknown)
    assert exposed("docker exec llm sglang serve --model-path m\n") == Known(False, (), ("arg.host",))


def test_without_a_container_the_host_decides():
    assert exposed(HOST + "\n") == Known(True, (), ("arg.host",))


COMPOSE = f"services:\n  llm:\n    command: {HOST}\n"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", False),
        ("    expose: [30000]\n", False),
        ("    ports: ['30000:30000']\n", True),
        ("    ports: ['127.0.0.1:30000:30000']\n", False),
        ("    ports: [30000]\n", True),
        ("    ports: [{target: 30000, published: 80}]\n", True),
        ("    ports: [{target: 30000, published: 80, host_ip: 127.0.0.1}]\n", False),
        ("    ports: ['${BIND:-127.0.0.1}:30000:30000']\n", False),
        ("    ports: ['$BIND:30000:30000']\n", None),
        ("    network_mode: host\n", True),
        ("    network_mode: none\n", False),
        (
            "    network_mode: 'service:gateway'\n  gateway:\n    image: nginx\n    ports: ['30000:30000']\n",
            True,
        ),
        ("    network_mode: 'service:gateway'\n  gateway:\n    image: nginx\n", False),
        ("    network_mode: 'container:x'\n", None),
        ("    networks: [lan]\nnetworks:\n  lan: {driver: macvlan}\n", None),
        ("    networks: [own]\nnetworks:\n  own: {driver: bridge}\n", False),
        ("    networks: [shared]\nnetworks:\n  shared: {external: true}\n", None),
    ],
)
def test_compose(more: str, expected: bool | None):  # noqa: FBT001
    fact = exposed(COMPOSE + more, "compose.yaml")
    assert (fact.value if isinstance(fact, Known) else None) is expected


def test_a_pod_is_reached_by_the_whole_cluster():
    text = "kind: Pod\napiVersion: v1\nspec:\n  containers:\n"
    text += "    - command: [sglang, serve, --model-path, m, --host, @]\n"
    assert exposed(text.replace("@", "0.0.0.0"), "pod.yaml") == Known(True, (), ("arg.host",))
    assert exposed(text.replace("@", "127.0.0.1"), "pod.yaml") == Known(False, (), ("arg.host",))


def test_published_ports():
    assert published("[::1]:80:30000-30001/tcp", 3) == Port(30000, 30001, "::1", 3)
    assert published("53:53/udp", 1) is None
    for text in ("", "x", "a:b:c", "[::1]"):
        with pytest.raises(ValueError, match=r".*"):
            published(text, 1)


def test_a_port_that_is_not_known_may_be_one_that_is_published():
    network = Network(ports=[Port(30000, 30000, "", 4)], line=2)
    assert network.reached(None) == ("unknown", 4, "the port it listens on is not known")
    assert Network(ports=[Port(30000, 30000, "127.0.0.1", 4)], line=2).reached(None) == ("no", 4, "")
