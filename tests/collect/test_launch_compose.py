"""Compose files: what docker compose would start, with the lines of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgdoctor.collect import launch_compose, launch_kinds, launch_yaml
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.collect.launch_containers import Mount
from sgdoctor.errors import UsageError

# What docker compose 2.40.3 makes of files, by tools/record_launch.py.
RECORDED = json.loads((Path(__file__).parent / "recorded_launch_files.json").read_text())["compose"]
SERVE = "command: sglang serve m"


def one(service: str, folder: Path | None = None, top: str = "") -> LaunchCommand:
    """Return the server of a compose file with one service, given by its lines."""
    lines = "".join(f"    {line}\n" for line in service.strip("\n").split("\n"))
    (command,) = launch_kinds.parse(f"services:\n  llm:\n{lines}{top}", "compose.yaml", folder)
    return command


def words(command: LaunchCommand) -> list[tuple[str, int]]:
    return [(word.text, word.line) for word in command.words]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["text"][:40])
def test_as_docker_compose_itself(case: dict[str, Any], tmp_path: Path):
    (tmp_path / ".env").write_text(case["dotenv"])
    (root,) = launch_yaml.documents(case["text"], "compose.yaml")
    service = launch_compose.Service(launch_compose.File(root, "compose.yaml", tmp_path), "s")
    try:
        given = service.command()
        variables = {name: value or () for name, value in service.environment().items()}
    except UsageError:
        assert case["said"] is None
        return
    if not all(
        piece.known for pieces in [*(word.pieces for word in given), *variables.values()] for piece in pieces
    ):
        return  # a variable that is not in .env
    network = launch_compose.container(service).network
    assert network is not None
    ports = [[port.address, n] for port in network.ports for n in range(port.first, port.last + 1)]
    assert case["said"] == {
        "words": [word.text for word in given],
        "environment": {name: "".join(p.text for p in value) for name, value in variables.items()},
        "ports": ports,
    }


# --- the command ----------------------------------------------------------------------------------------


def test_every_word_has_its_line_in_every_form_of_text():
    folded = "command: >-\n  python3 -m sglang.launch_server\n  --model-path m\n\n  --tp 4"
    assert words(one(folded)) == [("--model-path", 5), ("m", 5), ("--tp", 7), ("4", 7)]
    plain = "entrypoint: python3 -m sglang.launch_server\ncommand:\n  --model-path m\n  --tp 4"
    assert words(one(plain)) == [("--model-path", 5), ("m", 5), ("--tp", 6), ("4", 6)]
    listed = 'command:\n  - sglang\n  - serve\n  - m\n  - --tp\n  - "4"'
    assert words(one(listed)) == [("m", 6), ("--tp", 7), ("4", 8)]
    script = (
        'entrypoint: ["bash", "-c"]\ncommand:\n  - |\n    export X=1\n    sglang serve m \\\n      --tp 4'
    )
    assert words(one(script)) == [("m", 7), ("--tp", 8), ("4", 8)]


def test_a_backslash_at_a_line_s_end_is_no_continuation_where_no_shell_reads_it():
    command = one("command: |\n  sglang serve m \\\n    --tp 4")
    assert [word.text for word in command.words] == ["m", "\n", "--tp", "4"]
    assert command.notes == [
        (
            "compose.yaml:4: no shell reads this text: a backslash at a line's end and what follows it are "
            "given to the program, as an argument or a part of one"
        )
    ]
    folded = one("command: >\n  sglang serve m \\\n  --tp 4")
    assert [word.text for word in folded.words] == ["m", " --tp", "4"]


def test_variables_from_env_defaults_and_nowhere(tmp_path: Path):
    (tmp_path / ".env").write_text("MODEL=/m/q\nEXTRA=--tp 4\n")
    command = one("command: sglang serve ${MODEL} $EXTRA --port ${PORT:-1} --dp ${DP} $MORE", tmp_path)
    assert [word.text for word in command.words] == [
        "/m/q", "--tp", "4", "--port", "1", "--dp", "${DP}", "${MORE}",
    ]  # fmt: skip
    unknown = command.words[6:]
    assert [word.known for word in unknown] == [False, False]
    assert unknown[0].reason == "DP is not set in the file; the environment of docker compose may set it"
    assert unknown[1].many
    assert command.notes == [
        "compose.yaml:3: $PORT is taken at its default there, which the environment may override"
    ]


def test_anchors_merges_and_extends():
    top = """  base:
    image: lmsysorg/sglang:v0.5.10
    environment: {A: '1', NCCL_DEBUG: INFO}
    ports: ['1:1']
"""
    command = one(
        f"extends: base\n{SERVE}\nenvironment: [NCCL_DEBUG=WARN, NCCL_ALGO=Ring]\nports: ['30000:30000']",
        top=top,
    )
    assert {name: each.value for name, each in command.variables.items()} == {
        "NCCL_DEBUG": "WARN",
        "NCCL_ALGO": "Ring",
    }
    assert command.container is not None
    assert command.container.image == "lmsysorg/sglang:v0.5.10"
    assert command.network is not None
    assert [port.first for port in command.network.ports] == [1, 30000]
    merged = """x-a: &a {image: i}
x-b: &b {image: j, ipc: host}
services:
  llm:
    <<: [*a, *b]
    command: sglang serve m
"""
    (other,) = launch_kinds.parse(merged, "compose.yaml")
    assert other.container is not None
    assert (other.container.image, other.container.shm_mib) == ("i", None)


def test_an_anchor_s_words_stand_where_the_anchor_stands():
    text = "x-args: &args\n  - sglang\n  - serve\n  - m\nservices:\n  llm:\n    command: *args\n"
    (command,) = launch_kinds.parse(text, "compose.yaml")
    assert words(command) == [("m", 4)]


# --- the environment and the container ------------------------------------------------------------------


def test_files_of_variables(tmp_path: Path):
    (tmp_path / "a.env").write_text("NCCL_DEBUG=INFO # why\nexport NCCL_ALGO='Ring'\nNCCL_IB_HCA=\"mlx5\"\n")
    command = one(
        f"{SERVE}\nenv_file:\n  - a.env\n  - path: none.env\nenvironment: {{NCCL_DEBUG: WARN}}", tmp_path
    )
    assert {name: (each.value, each.line) for name, each in command.variables.items()} == {
        "NCCL_DEBUG": ("WARN", 7),
        "NCCL_ALGO": ("Ring", 5),
        "NCCL_IB_HCA": ("mlx5", 5),
    }
    assert command.notes == [
        (
            "compose.yaml:6: env_file none.env could not be read (No such file or directory): its variables "
            "are not known"
        )
    ]


def test_folders_of_the_host(tmp_path: Path):
    volumes = """volumes:
  - /data/models:/models:ro
  - ./configs:/configs
  - ${HOME}/.cache/huggingface:/root/.cache/huggingface
  - named:/x
  - {type: bind, source: /etc/sgl, target: /cfg}
  - {type: volume, source: other, target: /y}"""
    container = one(f"{SERVE}\n{volumes}", tmp_path).container
    assert container is not None
    assert container.mounts == [
        Mount("/data/models", "/models"),
        Mount(f"{tmp_path}/configs", "/configs"),
        Mount("~/.cache/huggingface", "/root/.cache/huggingface"),
        Mount("/etc/sgl", "/cfg"),
    ]


@pytest.mark.parametrize(
    ("settings", "shm_mib"),
    [
        ("", 64),
        ("shm_size: 32g", 32768),
        ("shm_size: 1073741824", 1024),
        ("shm_size: ${SIZE}", None),
        ("ipc: host", None),
        ("ipc: private", 64),
        ("volumes: ['/dev/shm:/dev/shm']", None),
        ("tmpfs: /dev/shm:size=8g", 8192),
        ("volumes: [{type: tmpfs, target: /dev/shm, tmpfs: {size: 2147483648}}]", 2048),
    ],
)
def test_the_size_of_dev_shm(settings: str, shm_mib: int | None):
    container = one(f"{SERVE}\n{settings}").container
    assert container is not None
    assert container.shm_mib == shm_mib


@pytest.mark.parametrize(
    ("settings", "gpus"),
    [
        ("", None),
        ("gpus: all", None),
        ("gpus: [{count: 2}]", 2),
        ("deploy: {resources: {reservations: {devices: [{count: all, capabilities: [gpu]}]}}}", None),
        (
            "deploy: {resources: {reservations: {devices: [{device_ids: ['0', '3'], capabilities: [gpu]}]}}}",
            2,
        ),
        ("deploy: {resources: {reservations: {devices: [{count: 1, capabilities: [tpu]}]}}}", None),
    ],
)
def test_how_many_gpus(settings: str, gpus: int | None):
    assert one(f"{SERVE}\n{settings}").gpus == (None if gpus is None else (gpus, 4))


def test_an_image_that_is_built_is_not_the_one_it_is_named_after():
    container = one(f"{SERVE}\nimage: lmsysorg/sglang:v0.5.10\nbuild: .").container
    assert container is not None
    assert container.image is None


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ("command: sglang serve 'm", "compose.yaml:3: docker compose cannot split this command into words"),
        ("command: sglang serve ${1}", "compose.yaml:3: docker compose refuses '${1}': no variable"),
        ("command: --model-path m", "service llm gives only flags: what its image runs is not known"),
        ("image: nginx", "compose.yaml holds no sglang.launch_server or sglang serve command"),
    ],
)
def test_what_starts_no_server(service: str, message: str):
    with pytest.raises(UsageError) as raised:
        one(service)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_services_that_extend_each_other_end():
    with pytest.raises(UsageError, match="holds no"):
        launch_kinds.parse("services:\n  a: {extends: b}\n  b: {extends: a}\n", "compose.yaml")
