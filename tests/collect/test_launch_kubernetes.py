"""Kubernetes manifests: what a pod's container would start, with the lines of the file."""

from __future__ import annotations

import pytest

from sgdoctor.collect import launch_kinds
from sgdoctor.collect.launch import LaunchCommand
from sgdoctor.collect.launch_containers import Mount
from sgdoctor.collect.launch_kubernetes_pod import mebibytes
from sgdoctor.errors import UsageError

SERVE = "command: [sglang, serve, m]"


def indented(text: str, by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.strip("\n").split("\n"))


def pod(container: str, spec: str = "hostPID: false", kind: str = "Pod", more: str = "") -> LaunchCommand:
    """Return the server of a pod with one container, which begins at line 8."""
    text = (
        f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: llm}}\nspec:\n{indented(spec, 2)}  containers:\n"
        f"    - name: sglang\n      image: lmsysorg/sglang:v0.5.10\n{indented(container, 6)}{more}"
    )
    (command,) = launch_kinds.parse(text, "pod.yaml")
    return command


def words(command: LaunchCommand) -> list[tuple[str, int]]:
    return [(word.text, word.line) for word in command.words]


# --- where pods are -------------------------------------------------------------------------------------

TEMPLATE = """template:
  spec:
    containers:
      - name: side
        image: nginx
      - name: llm
        command: [python3, -m, sglang.launch_server]
        args: [--tp, "4"]"""


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "RayService"])
def test_the_pods_of_any_kind_of_object(kind: str):
    text = f"apiVersion: v1\nkind: {kind}\nmetadata: {{name: llm}}\nspec:\n{indented(TEMPLATE, 2)}"
    (command,) = launch_kinds.parse(text, "all.yaml")
    assert words(command) == [("--tp", 12), ("4", 12)]


def test_several_documents_and_lists():
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: llm}\nspec: {ports: [{port: 80}]}\n---\n"
    spec = "{containers: [{name: a, command: [sglang, serve, m, --port, '1']}]}"
    other = spec.replace("'1'", "'2'")
    text = (
        f"{service}apiVersion: v1\nkind: List\nitems:\n"
        f"  - kind: Pod\n    metadata: {{name: p}}\n    spec: {spec}\n"
        f"  - kind: Pod\n    metadata: {{name: q}}\n    spec: {other}\n"
    )
    commands = launch_kinds.parse(text, "all.yaml")
    assert [(each.label, each.line, each.port) for each in commands] == [
        ("Pod p, container a", 11, "1"),
        ("Pod q, container a", 14, "2"),
    ]


def test_json_is_yaml():
    text = (
        '{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"command": ["sglang", "serve", "m"]}]}}'
    )
    (command,) = launch_kinds.parse(text, "pod.json")
    assert words(command) == [("m", 1)]


# --- the command ----------------------------------------------------------------------------------------


def test_a_script_for_bash_keeps_its_lines():
    script = """command: ["/bin/bash", "-c"]
args:
  - |
    export NCCL_DEBUG=INFO
    exec sglang serve m \\
      --tp "$TP" --node-rank ${RANK}
env:
  - {name: TP, value: "4"}
  - {name: RANK, valueFrom: {fieldRef: {fieldPath: metadata.name}}}"""
    command = pod(script)
    assert words(command) == [
        ("m", 13),
        ("--tp", 14),
        ("4", 14),
        ("--node-rank", 14),
        ("$(RANK)", 17),
    ]
    assert command.words[-1].reason == "RANK comes from a fieldRef"
    assert command.variables["NCCL_DEBUG"].value == "INFO"


def test_references_are_replaced_as_kubernetes_does():
    env = """env:
  - {name: A, value: one}
  - {name: B, value: "$(A) $(LATER)"}
  - {name: LATER, value: x}
  - {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}"""
    command = pod(f'command: [sglang, serve, "$(A)", "$$(A)", "$(B)", "$(NONE)", "$(KEY)"]\n{env}')
    assert [word.text for word in command.words] == ["one", "$(A)", "one $(LATER)", "$(NONE)", "$(KEY)"]
    assert [word.known for word in command.words] == [True, True, True, True, False]
    assert command.notes == [
        "pod.yaml:12: $(LATER) stays as it is written: LATER is not among the container's env",
        "pod.yaml:9: $(NONE) stays as it is written: NONE is not among the container's env",
    ]


def test_what_a_controller_or_another_object_may_set_is_not_known():
    command = pod('command: [sglang, serve, "$(RANK)", "$(DB_SERVICE_HOST)"]', kind="PyTorchJob")
    assert [word.known for word in command.words] == [False, False]
    opened = pod('command: [sglang, serve, "$(X)"]\nenvFrom: [{secretRef: {name: s}}]')
    assert not opened.words[0].known
    assert opened.notes == ["pod.yaml:10: the variables of envFrom s are not in the file"]


def test_config_maps_of_the_same_file():
    more = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {TP: '8', NCCL_DEBUG: INFO}\n"
    env = "envFrom: [{configMapRef: {name: c}}]\n"
    env += "env: [{name: X, valueFrom: {configMapKeyRef: {name: c, key: TP}}}]"
    command = pod(f'command: [sglang, serve, m, --tp, "$(TP)", --dp, "$(X)"]\n{env}', more=more)
    assert [word.text for word in command.words] == ["m", "--tp", "8", "--dp", "8"]
    assert command.variables["NCCL_DEBUG"].value == "INFO"


def test_what_kubernetes_refuses_or_no_shell_expands_is_said():
    command = pod("command: [sglang, serve, m, --tp, 4, --host, $POD_IP]\nenv: [{name: A, value: 1}]")
    assert command.notes == [
        "pod.yaml:10: Kubernetes refuses a number or truth value as env A: put it in quotes",
        "pod.yaml:9: Kubernetes refuses a number or truth value as command: put it in quotes",
        "pod.yaml:9: no shell runs here: $POD_IP stays as it is; Kubernetes expands $(NAME)",
    ]


# --- several nodes --------------------------------------------------------------------------------------

LWS = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: llm}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
          - command: [sglang, serve, m, --nnodes, $(LWS_GROUP_SIZE), --node-rank, $(LWS_WORKER_INDEX),
                      --dist-init-addr, "$(LWS_LEADER_ADDRESS):1", --port, "1"]
    workerTemplate:
      spec:
        containers:
          - command: [sglang, serve, m, --nnodes, $(LWS_GROUP_SIZE), --node-rank, $(LWS_WORKER_INDEX),
                      --dist-init-addr, "$(LWS_LEADER_ADDRESS):1"@MORE@]
"""


def test_leader_and_workers_are_one_server():
    (command,) = launch_kinds.parse(LWS.replace("@MORE@", ""), "lws.yaml")
    assert [word.text for word in command.words] == [
        "m", "--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "$(LWS_LEADER_ADDRESS):1",
        "--port", "1",
    ]  # fmt: skip
    assert command.notes == []


def test_a_worker_with_other_flags_is_said():
    (command,) = launch_kinds.parse(LWS.replace("@MORE@", ", --tp, '8'"), "lws.yaml")
    assert command.notes == [
        ("lws.yaml:15: this node gets other flags than the first one (--tp); those of the first are examined")
    ]


# --- the container --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("volume", "shm_mib"),
    [
        ("emptyDir: {medium: Memory, sizeLimit: 16Gi}", 16384),
        ("emptyDir: {medium: Memory, sizeLimit: 10G}", 9536),
        ("emptyDir: {medium: Memory}", None),
        ("emptyDir: {sizeLimit: 1Gi}", None),
        ("hostPath: {path: /dev/shm}", None),
    ],
)
def test_the_size_of_dev_shm(volume: str, shm_mib: int | None):
    command = pod(
        f"{SERVE}\nvolumeMounts: [{{name: shm, mountPath: /dev/shm}}]",
        f"volumes: [{{name: shm, {volume}}}]",
    )
    assert command.container is not None
    assert command.container.shm_mib == shm_mib


def test_without_a_volume_it_is_the_runtime_s_unless_the_host_s_is_used():
    plain, host = pod(SERVE).container, pod(SERVE, "hostIPC: true").container
    assert plain is not None
    assert host is not None
    assert (plain.shm_mib, host.shm_mib) == (64, None)


def test_folders_gpus_and_network():
    command = pod(
        f"""{SERVE}
resources: {{limits: {{nvidia.com/gpu: "8", memory: 1Ti}}}}
volumeMounts:
  - {{name: models, mountPath: /models}}
  - {{name: models, mountPath: /cfg, subPath: configs}}
  - {{name: claim, mountPath: /x}}""",
        """volumes:
  - {name: models, hostPath: {path: /data/models}}
  - {name: claim, persistentVolumeClaim: {claimName: c}}""",
    )
    assert command.container is not None
    assert command.container.mounts == [
        Mount("/data/models", "/models"),
        Mount("/data/models/configs", "/cfg"),
    ]
    assert command.gpus == (8, 12)
    assert command.network is not None
    assert command.network.reached(30000)[0] == "yes"


@pytest.mark.parametrize(
    ("quantity", "mib"),
    [("64Mi", 64), ("1G", 953), ("1.5Gi", 1536), ("1e9", 953), ("1099511627776", 1048576), ("x", None)],
)
def test_quantities(quantity: str, mib: int | None):
    assert mebibytes(quantity) == mib


def test_args_without_a_command_are_not_guessed_at():
    with pytest.raises(UsageError, match="line 7 gives only args: what its image runs is not known"):
        pod("args: [--model-path, m]")
