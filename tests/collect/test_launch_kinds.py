"""Launch files are recognized by what is in them; each is read, or refused in one line."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sgdoctor import gather
from sgdoctor.collect import launch, launch_kinds
from sgdoctor.collect.launch_asked import interpret
from sgdoctor.collect.launch_kinds import kind_of, parse, read
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts
from sgdoctor.sources import Sources

FILES = Path(__file__).parents[1] / "launch_files"
HEALTHY = Path(__file__).parents[1] / "healthy"

POD = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    - command: [sglang, serve, m]\n"
COMPOSE = "services:\n  llm:\n    command: sglang serve m\n"
UNIT = "[Service]\nExecStart=/bin/sglang serve m\n"
DOCKERFILE = "FROM x\nCMD sglang serve m\n"
CONFIG = "model-path: m\ntp: 4\n"
SCRIPT = "#!/bin/bash\nsglang serve m\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SCRIPT, "script"),
        ("sglang serve m", "script"),
        ("# key: value\n\nset -e\nsglang serve m\n", "script"),
        ("kubectl apply -f - <<EOF\napiVersion: v1\nEOF\n", "script"),
        ("{\n  sglang serve m\n}\n", "script"),
        ("", "script"),
        (UNIT, "unit"),
        ("; comment\n# comment\n\n[Unit]\nDescription=x\n", "unit"),
        (DOCKERFILE, "dockerfile"),
        ("# syntax=docker/dockerfile:1\narg X=1\nfrom y\n", "dockerfile"),
        (COMPOSE, "yaml"),
        ("%YAML 1.2\n---\na: b\n", "yaml"),
        ("# comment\n---\n'a': b\n", "yaml"),
        (POD, "yaml"),
        ('\n{"apiVersion": "v1"}', "yaml"),
        ("{{- if .Values.enabled }}\nkind: Pod\n", "yaml"),
        ("- a\n- b\n", "yaml"),
    ],
)
def test_what_kind_it_is(text: str, kind: str):
    assert kind_of(text) == kind


@pytest.mark.parametrize(("text", "line"), [(SCRIPT, 2), (UNIT, 2), (DOCKERFILE, 2), (COMPOSE, 3), (POD, 5)])
def test_every_kind_starts_the_same_server(tmp_path: Path, text: str, line: int):
    path = tmp_path / "launch"  # the name says nothing
    path.write_text(text)
    (command,) = read(path)
    assert (command.model, command.entry, command.label) == ("m", "serve", "")
    assert command.place() == f"{path}:{line}"


@pytest.mark.parametrize("folder", sorted(FILES.iterdir()), ids=lambda folder: folder.name)
def test_files_as_users_write_them(folder: Path):
    (file,) = (path for path in folder.iterdir() if not path.name.startswith(("expect", "report")))
    (command,) = read(file)
    assert command.words
    assert not any("0123456789" in word.text for word in command.words)


# --- SGLang's own configuration file --------------------------------------------------------------------


def test_a_configuration_file_is_what_sglang_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "server.yaml").write_text("# c\nmodel-path: m\ntp-size: 4\nenable-metrics: true\n")
    monkeypatch.chdir(tmp_path)
    (command,) = read("conf/server.yaml")
    facts = Facts()
    facts.set("sglang.version", "0.5.12", source="assume", place="--assume")
    launch.collect(facts, command)
    interpret(facts, command)
    assert command.model == "m"
    assert facts.value("asked.enable_metrics") is True
    assert facts.roots("asked.tp_size")["asked.tp_size"].provenance[0].place == "conf/server.yaml:3"


@pytest.mark.parametrize(
    ("text", "is_config"),
    [
        (CONFIG, True),
        ("model_path: m\n", True),
        ("tp: 4\nunknown-key: 1\n", True),
        ("name: x\non: push\njobs: {}\n", False),
        ("- model-path: m\n", False),
    ],
)
def test_what_is_a_configuration_file(text: str, is_config: bool):  # noqa: FBT001
    try:
        (command,) = parse(text, "x.yaml")
    except UsageError as error:
        assert not is_config
        assert "YAML, but neither a compose file" in str(error)  # noqa: PT017
    else:
        assert [word.text for word in command.words] == ["--config", "x.yaml"]


# --- the release ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "release"),
    [
        ("", "0.5.10"),
        ("pip install 'sglang[all]==0.5.12' && ", "0.5.12"),
        ("uv pip install -U sglang && ", None),
        ("pip install --upgrade pip && pip install sglang-router nvitop && ", "0.5.10"),
        ("git clone https://github.com/sgl-project/sglang && pip install -e sglang/python && ", None),
    ],
)
def test_a_script_may_install_another_release_than_the_image_has(before: str, release: str | None):
    image, script = "lmsysorg/sglang:v0.5.10", f"{before}exec sglang serve m"
    for text in (
        f'docker run {image} bash -c "{script}"\n',
        f'services:\n  a:\n    image: {image}\n    command: ["bash", "-c", "{script}"]\n',
        f'{POD.split("- command", maxsplit=1)[0]}- image: {image}\n      command: [bash, -c, "{script}"]\n',
    ):
        (command,) = parse(text, "x")
        facts = Facts()
        launch.collect(facts, command)
        assert facts.value("sglang.version") == release


# --- several servers ------------------------------------------------------------------------------------


def test_several_servers_are_told_apart():
    service = "    command: sglang serve {} --port {}\n"
    text = f"services:\n  a:\n{service.format('m', 1)}  b:\n{service.format('m', 2)}"
    assert [(each.label, each.line) for each in parse(text, "c.yaml")] == [("service a", 3), ("service b", 5)]
    script = "sglang serve m --port 1 &\nsglang serve m --port 2\n"
    assert [each.label for each in parse(script, "run.sh")] == ["port 1", "port 2"]
    same = "ssh a sglang serve m\nssh b sglang serve m --tp 2\n"
    assert [each.label for each in parse(same, "run.sh")] == ["port 30000, line 1", "port 30000, line 2"]


def test_nodes_of_one_server_are_one_deployment():
    node = "ssh n{0} sglang serve m --nnodes 2 --node-rank {0} --dist-init-addr n0:1 {1}\n"
    (command,) = parse(node.format(1, "--tp 8") + node.format(0, "--port 1 --tp 8"), "run.sh")
    assert command.port == "1"
    assert command.notes == []
    (other,) = parse(node.format(0, "--tp 8") + node.format(1, "--tp 4"), "run.sh")
    assert other.notes[-1].startswith("run.sh:2: this node gets other flags than the first one (--tp)")
    roles = ["--disaggregation-mode prefill", "--disaggregation-mode decode"]
    nodes = [node.format(rank, role) for role in roles for rank in (0, 1)]
    assert len(parse("".join(nodes), "run.sh")) == 2


def test_each_server_of_a_file_has_a_report_or_is_paired(tmp_path: Path):
    path = tmp_path / "compose.yaml"
    service = "    image: lmsysorg/sglang:v0.5.{0}\n    command: sglang serve --model-path m --port {1}\n"
    path.write_text(f"services:\n  a:\n{service.format(10, 30000)}  b:\n{service.format(12, 30001)}")
    both = gather.gather(Sources(launch=str(path)), {})
    assert [(each.name, each.facts.value("sglang.version")) for each in both] == [
        ("service a", "0.5.10"),
        ("service b", "0.5.12"),
    ]


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services:\n  a: [\n", "x:3: not YAML: did not find expected node content"),
        ("a: b: c\n", "x:1: not YAML: mapping values are not allowed in this context"),
        ("a: *b\n", "x:1: not YAML: found undefined alias"),
        ("a: " + "[" * 5000, "x:1: not YAML: exceeded maximum nesting depth"),
        (
            "kind: Pod\nspec:\n  replicas: {{ .Values.n }}\n",
            "x:3: a template: render it first (helm template",
        ),
        ("kind: Pod\n{{- include 'x' . }}\n", "x:2: a template: render it first"),
        ("model-path: {{ model }}\n", "x:1: a template: render it first"),
        ("services:\n  a:\n    command: sglang serve '{{ .Values.m }}'\n", "x:3: a template: render it"),
        ("a: 1\nb: 2\n", "x:1: YAML, but neither a compose file (services), nor a Kubernetes manifest"),
        ("---\n", "x holds no sglang.launch_server or sglang serve command"),
        ("apiVersion: v1\nkind: Service\n", "x holds no sglang.launch_server or sglang serve command"),
        ("services: {}\n", "x holds no sglang.launch_server or sglang serve command"),
        ("[Unit]\n", "x holds no sglang.launch_server or sglang serve command"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_line(text: str, message: str):
    with pytest.raises(UsageError) as raised:
        parse(text, "x")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_marks_of_templates_within_texts_are_no_template():
    text = "services:\n  a:\n    command: sglang serve m --x '{{.Node}}' --json '{\"a\":{\"b\":{}}}'\n"
    (command,) = parse(text, "compose.yaml")
    assert [word.text for word in command.words] == ["m", "--x", "{{.Node}}", "--json", '{"a":{"b":{}}}']


def test_aliases_that_multiply_or_contain_themselves_end():
    names = "abcdefghijklmnopqrstuvwxyz"
    laughs = "a: &a {x: 1}\n" + "".join(
        f"{new}: &{new} {{<<: [*{old}, *{old}], y: [*{old}, *{old}]}}\n" for old, new in pairwise(names)
    )
    for more in (laughs, "a: &a {<<: *a, b: [*a]}\n"):
        text = f"kind: Pod\napiVersion: v1\n{more}"
        with pytest.raises(UsageError, match="holds no"):
            parse(text, "x")


# --- secrets --------------------------------------------------------------------------------------------

SECRET = "sk-planted-0123456789abcdefghij"


@pytest.mark.parametrize(
    "text",
    [
        (
            f"services:\n  a:\n    environment: {{HF_TOKEN: {SECRET}, SGLANG_API_KEY: {SECRET}}}\n"
            f"    command: sglang serve m --api-key {SECRET} --admin-api-key=${{K:-{SECRET}}}\n"
        ),
        (
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
            f"    - env: [{{name: KEY, value: {SECRET}}}, {{name: SGLANG_TOKEN, value: {SECRET}}}]\n"
            "      command: [sglang, serve, m, --api-key, $(KEY), --admin-api-key=$(KEY)]\n"
        ),
        (
            f"[Service]\nEnvironment=KEY={SECRET} SGLANG_API_KEY={SECRET}\n"
            "ExecStart=/bin/sglang serve m --api-key ${KEY} --admin-api-key=${KEY}\n"
        ),
        (
            f"FROM x\nARG T={SECRET}\nENV SGLANG_TOKEN=$T\n"
            f"CMD sglang serve m --api-key {SECRET} --x $SGLANG_TOKEN\n"
        ),
        f"model-path: m\napi-key: {SECRET}\n",
    ],
    ids=["compose", "kubernetes", "systemd", "dockerfile", "config"],
)
def test_no_secret_gets_out(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(text)
    (command,) = read("x.yaml")
    (deployment,) = gather.gather(Sources(launch="x.yaml", assume=("sglang.version=0.5.12",)), {})
    told = [repr(command), repr(dict(deployment.facts.items())), repr(deployment.facts.notes)]
    assert not any("planted" in part for part in told)


# --- arbitrary input ------------------------------------------------------------------------------------

_FRAGMENTS = """services: llm: command: entrypoint: environment: ports: image: spec: containers: args:
    env: name: kind: apiVersion: Pod v1 - | > & * <<: &a *a { } [ ] ' " $ ${ ${A:-b} $$ \\ : sglang serve m
    python3 -m sglang.launch_server --tp 4 [Service] ExecStart= Environment= % %% FROM CMD ENV ARG ENTRYPOINT
    ["a","b"] {{ }} # ; volumes: 0 null true ~ 1e9 é $(A) valueFrom: emptyDir: value: {}""".split()
_WORDS = st.sampled_from([*_FRAGMENTS, "\\\n", "\n", "\n\n", "\n  ", "\n    - ", "\t"])
_STARTS = st.sampled_from(
    [POD, COMPOSE, UNIT, DOCKERFILE, CONFIG, SCRIPT, "", "services:\n  a:\n    ", "FROM x\n"]
)
_TEXTS = st.tuples(_STARTS, st.lists(_WORDS, max_size=25)).map(lambda parts: parts[0] + " ".join(parts[1]))
_ODD_PORTS = "    ports: ['99999999999:1', 5e5, '²', ²]\n    gpus: [{count: ²}]\n"


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.one_of(st.text(max_size=80), _TEXTS))
@example(f"{COMPOSE}{_ODD_PORTS}    shm_size: {'9' * 400}\n")
@example(f"{POD}      resources: {{limits: {{nvidia.com/gpu: ²}}}}\n")
@example("[Service]\nExecStart=/bin/sglang serve \\\n")
@example("FROM x\nENV\nARG\nCMD\nFROM\nSHELL []\nCMD sglang serve m\n")
def test_any_text_is_read_or_refused_in_a_line(text: str):
    try:
        commands = launch_kinds.parse(text, "x")
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert commands
