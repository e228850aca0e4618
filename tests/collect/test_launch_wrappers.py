"""The server is found behind whatever starts it, with the environment and the container it gets."""

from __future__ import annotations

import pytest

from sgdoctor.collect.launch_bash import Found, Walk, follow
from sgdoctor.collect.launch_containers import Mount, mebibytes


def found(script: str) -> list[Found]:
    walked = Walk("launch.sh")
    follow(script, walked)
    return walked.found


def arguments(script: str) -> list[list[str]]:
    return [[word.text for word in one.launch.arguments] for one in found(script)]


def variables(script: str) -> dict[str, str | None]:
    (one,) = found(script)
    values = one.launch.environment.values
    return {
        name: None if stored is None else "".join(piece.text for piece in stored)
        for name, stored in values.items()
    }


@pytest.mark.parametrize(
    "command",
    [
        "python -m sglang.launch_server --tp 4",
        "/opt/venv/bin/python3.12 -u -m sglang.launch_server --tp 4",
        "$PYTHON -m sglang.launch_server --tp 4",
        "python3 /sgl-workspace/sglang/python/sglang/launch_server.py --tp 4",
        "sglang serve --tp 4",
        "/opt/venv/bin/sglang serve --tp 4",
        "uv run --with sglang python -m sglang.launch_server --tp 4",
        "uv run sglang serve --tp 4",
        "sudo -E python3 -m sglang.launch_server --tp 4",
        "nice -n -5 numactl --cpunodebind=0 --membind=0 python3 -m sglang.launch_server --tp 4",
        "nsys profile -o out python3 -m sglang.launch_server --tp 4",
        "time timeout 1h python3 -m sglang.launch_server --tp 4",
        "srun --ntasks=1 python3 -m sglang.launch_server --tp 4",
        "ray job submit -- python3 -m sglang.launch_server --tp 4",
        "conda run -n sgl python3 -m sglang.launch_server --tp 4",
        "ssh -p 22 node1 python3 -m sglang.launch_server --tp 4",
        "ssh node1 'cd /w && nohup python3 -m sglang.launch_server --tp 4 > log &'",
        "tmux new-session -d -s sgl 'python3 -m sglang.launch_server --tp 4'",
        "sh -c 'python3 -m sglang.launch_server --tp 4'",
        "bash -lc 'source x; exec python3 -m sglang.launch_server --tp 4'",
        "sudo bash -c 'python3 -m sglang.launch_server --tp 4'",
        "docker run --gpus all img python3 -m sglang.launch_server --tp 4",
        "sudo docker run -itd --gpus all -p 1:1 img bash -c 'python3 -m sglang.launch_server --tp 4'",
        "docker run --entrypoint python3 img -m sglang.launch_server --tp 4",
        "docker run --entrypoint=/bin/bash img -c 'sglang serve --tp 4'",
        "docker exec -it -w /w sgl python3 -m sglang.launch_server --tp 4",
        "podman --log-level error run --rm --device nvidia.com/gpu=all img sglang serve --tp 4",
        "docker container run --rm img sglang serve --tp 4",
        "kubectl exec pod -- python3 -m sglang.launch_server --tp 4",
        "docker run -i img bash <<'EOF'\npython3 -m sglang.launch_server --tp 4\nEOF",
    ],
)
def test_the_server_is_found(command: str):
    assert arguments(command) == [["--tp", "4"]]


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m sglang.bench_serving --tp 4",
        "python3 -m sglang_router.launch_router",
        "python3 serve.py sglang",
        "pkill -f sglang.launch_server",
        "echo sglang serve m",
        "grep -r 'python3 -m sglang.launch_server' .",
        "docker build -t sglang .",
        "docker logs sglang",
        "docker run --rm img nvidia-smi",
        "docker run",
        "bash launch.sh",
        "bash",
        "ssh node1",
        "# python3 -m sglang.launch_server",
        "x='python3 -m sglang.launch_server'",
    ],
)
def test_other_commands_start_no_server(command: str):
    assert arguments(command) == []


# --- the environment ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("export A=1\nB=2\nC=3 python3 -m sglang.launch_server", {"A": "1", "C": "3"}),
        ("A=1\nexport A\nA=2\nsglang serve", {"A": "2"}),
        ("set -a\nA=1\nset +a\nB=2\nsglang serve", {"A": "1"}),
        ("declare -x A=1 B=2\nexport -n A\nsglang serve", {"B": "2"}),
        ("export A=1\nunset A\nsglang serve", {"A": None}),
        ("export 'A=b c'\nsglang serve", {"A": "b c"}),
        ("env A=1 -u B sglang serve", {"A": "1"}),
        ("env -u B --unset=C -uD A=1 sglang serve", {"A": "1", "B": None, "C": None, "D": None}),
        ("export A=1; sudo B=2 sglang serve", {"B": "2"}),
        ("export A=1; sudo -E B=2 sglang serve", {"A": "1", "B": "2"}),
        ("export A=1; ssh host sglang serve", {}),
        ("export A=1; bash -c 'B=2 sglang serve'", {"A": "1", "B": "2"}),
        (
            "export A=1 C=3; docker run -e B=2 -e C --env=D=4 -eE=5 -e F img sglang serve",
            {"B": "2", "C": "3", "D": "4", "E": "5"},
        ),
        ("docker run -e A=1 img bash -c 'export B=2; sglang serve'", {"A": "1", "B": "2"}),
    ],
)
def test_what_the_server_gets(script: str, expected: dict[str, str | None]):
    assert variables(script) == expected


def test_env_i_leaves_nothing_else():
    (one,) = found("export A=1; env -i B=2 sglang serve")
    assert one.launch.environment.complete
    assert variables("export A=1; env -i B=2 sglang serve") == {"B": "2"}


def test_what_a_branch_exports_is_in_doubt():
    (one,) = found('A=1\nif [ "$X" ]; then export A; fi\nsglang serve')
    stored = one.launch.environment.values["A"]
    assert stored is not None
    assert not stored[0].known


# --- containers -----------------------------------------------------------------------------------------

DOCKER = """docker run -d --gpus all --shm-size 32g -p 30000:30000 \\
  -v /data/models:/models:ro -v ~/.cache/huggingface:/root/.cache/huggingface -v named:/x \\
  --mount type=bind,source=/etc/sgl,target=/cfg --env-file sgl.env lmsysorg/sglang:v0.5.10-cu129 \\
  sglang serve m
"""


def test_a_container_s_image_mounts_and_shared_memory():
    (one,) = found(DOCKER)
    container = one.launch.container
    assert container is not None
    assert container.image == "lmsysorg/sglang:v0.5.10-cu129"
    assert container.mounts == [
        Mount("/data/models", "/models"),
        Mount("~/.cache/huggingface", "/root/.cache/huggingface"),
        Mount("/etc/sgl", "/cfg"),
    ]
    assert (container.shm_mib, container.shm_line) == (32768, 1)
    assert container.on_host("/models/qwen/config.json") == "/data/models/qwen/config.json"
    assert container.on_host("/models") == "/data/models"
    assert container.on_host("/modelsx") is None
    assert [word.text for word in one.launch.environment.files] == ["sgl.env"]


@pytest.mark.parametrize(
    ("options", "shm_mib"),
    [
        ("", 64),
        ("--shm-size=16GB", 16384),
        ("--shm-size 512m", 512),
        ("--shm-size 1073741824", 1024),
        ("--ipc=host", None),
        ("--ipc host --shm-size 32g", None),
        ("-v /dev/shm:/dev/shm", None),
        ("--tmpfs /dev/shm:size=8g", None),
        ("$OPTIONS", None),
        ("--shm-size $SIZE", None),
    ],
)
def test_the_size_of_dev_shm(options: str, shm_mib: int | None):
    (one,) = found(f"docker run {options} img sglang serve m")
    assert one.launch.container is not None
    assert one.launch.container.shm_mib == shm_mib


def test_exec_says_nothing_of_the_image():
    (one,) = found("docker exec sgl sglang serve m")
    assert one.launch.container is not None
    assert (one.launch.container.image, one.launch.container.shm_mib) == (None, None)


@pytest.mark.parametrize(("size", "mib"), [("64m", 64), ("1.5g", 1536), ("2TB", 2097152), ("x", None)])
def test_docker_s_sizes(size: str, mib: int | None):
    assert mebibytes(size) == mib
