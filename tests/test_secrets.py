"""Two dozen kinds of secrets planted in every source: none is in any output.

Each has PLANTED in it, so that one search finds them all, and also what is left of one that was cut.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgdoctor import check, diff, examine, redact
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.report import differences, formats, layout, terminal
from sgdoctor.report import json as as_json
from sgdoctor.report.model import Report
from sgdoctor.sources import Sources
from tests.collect import servers
from tests.collect.servers import CAPTURES, reply, running, sglang

# As they stand in scripts, logs, commands and answers.
PLANTED: dict[str, str] = {
    "the key of the server": "--api-key PLANTED-a1",
    "the key of its administrator": "--admin-api-key=PLANTED-a2",
    "the same, shortened as argparse allows": "--admin-api-k PLANTED-a3",
    "the password of a key file": "--ssl-keyfile-password 'PLANTED a4'",
    "a token of Hugging Face": "hf_PLANTEDabcdefghijklmnopqrs",
    "a key in the style of OpenAI": "sk-proj-PLANTED_abcdefghijklmnop",
    "an access key of AWS": "AKIAPLANTEDABCDEFGHI",
    "a secret key of AWS": "AWS_SECRET_ACCESS_KEY=PLANTED/a5+x",
    "a token of GitHub": "ghp_PLANTEDabcdefghijklmnopqrstuvwxyz012",
    "a fine-grained token of GitHub": "github_pat_PLANTED0abcdefghijkl_mnopqrstuvwxyz",
    "a token of GitLab": "glpat-PLANTEDabcdefghij-kl",
    "a token of Slack": "xoxb-12345678901-PLANTEDabcdef",
    "a key of Google": "AIzaPLANTEDabcdefghijklmnopqrstuvwxyz01",
    "a key of NVIDIA": "nvapi-PLANTED_abcdefghijklmnopqrstuv",
    "a JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJQTEFOVEVEIjoxfQ.PLANTED_abcdefghijkl",
    "a bearer in a header": "Authorization: Bearer PLANTED.a6",
    "a password in a header": "authorization: Basic UExBTlRFRA==PLANTED",
    "a key in a header of its own": "X-API-Key: PLANTED-a7",
    "a password in a URL": "https://user:PLANTEDa8@registry.example/m",
    "a token in a URL": "https://bucket.example/m?X-Amz-Signature=PLANTEDa9&x=1",
    "a token as the user of a URL": "https://PLANTEDb1@git.example/m.git",
    "a token in a variable": "WANDB_API_KEY=PLANTED-b2",
    "a password in a variable": 'DB_PASSWORD="PLANTED b3"',
    "a key in a banner": "api_key='PLANTED-b4', admin_api_key='PLANTED-b5'",
    "a key in JSON": '"api_key": "PLANTED-b6", "hf_token": "PLANTED-b7"',
}
BANNER = (
    "[2026-11-30 05:49:00] server_args=ServerArgs(model_path='/m', api_key='PLANTED-c1', tp_size=1, "
    "host='0.0.0.0')\n"
)
HARMLESS = (
    "#new-token: 300", "--tokenizer-path /m", "MAX_TOKENS is 8", "key=value", "sk-learn", "--admin-port 8",
    "task-id-0123456789abcdef", "https://example.com/a?x=1&page=token&max_tokens=8", "ssh://git@host/m.git",
)  # fmt: skip
OUTPUTS = (*formats.FORMATS, "terminal")


def told(report: Report) -> Iterator[tuple[str, str]]:
    """Iterate over everything that a report can become."""
    for form in formats.FORMATS:
        yield form, formats.render(report, form, verbose=True)
    yield "terminal", layout.plain(terminal.render(report, width=200, verbose=True))


def leaks(text: str) -> list[str]:
    at = [place for place in range(len(text)) if text.startswith("PLANTED", place)]
    return [text[max(0, place - 60) : place + 30] for place in at]


def holds_none(report: Report) -> None:
    for form, text in told(report):
        assert leaks(text) == [], form


@pytest.mark.parametrize("kind", PLANTED)
def test_each_kind_is_taken_out_of_a_line(kind: str) -> None:
    assert leaks(redact.text(f"2026-11-30 {PLANTED[kind]} and more")) == []


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_none_stays(line: str) -> None:
    assert redact.text(line) == line


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a launch script with every kind: exported, as flags, in comments and in paths."""
    lines = ["#!/bin/bash"]
    lines += [f"# {secret}" for secret in PLANTED.values()]
    lines += [f"export {secret}" for secret in PLANTED.values() if secret.split("=")[0].isupper()]
    lines += ["export HF_TOKEN=hf_PLANTEDabcdefghijklmnopqrs", "curl -H 'Authorization: Bearer PLANTED' $URL"]
    flags = [secret for secret in PLANTED.values() if secret.startswith("--")]
    unknown = [f"--not-a-flag '{secret}'" for secret in PLANTED.values() if not secret.startswith("--")]
    paths = ["--model-path https://user:PLANTED@host/m", "--chat-template hf_PLANTEDabcdefghijklmnopqrs"]
    words = [*flags, *(each.replace("'PLANTED b", "PLANTED-b") for each in unknown[:2]), *paths, "--tp 4x"]
    lines.append("python3 -m sglang.launch_server " + " \\\n  ".join(words))
    file = tmp_path / "run.sh"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log with every kind: in its banner, in a request, in the exception that ends the server."""
    lines = [BANNER]
    lines += [f"[2026-11-30 05:49:01 TP0] Received request: {secret}\n" for secret in PLANTED.values()]
    lines += [
        f"[2026-11-30 05:49:02 TP0] Ignore import error when loading sglang.srt.models.x: {secret}\n"
        for secret in PLANTED.values()
    ]
    secrets = " ".join(PLANTED.values())
    lines += [
        "[2026-11-30 05:50:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n",
        '  File "/x/sglang/srt/managers/scheduler.py", line 4040, in run_scheduler_process\n',
        f"RuntimeError: cannot fetch {secrets}\n\n",
        "[2026-11-30 05:50:01] Received sigquit from a child process. It usually means the child failed.\n",
    ]
    file = tmp_path / "server.log"
    file.write_text("".join(lines))
    return file


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    said: dict[str, Any] = {
        "packages": {"sglang": "0.5.12"},
        "gpus": [{"name": "H200", "compute_capability": "9.0", "memory_mib": 143771}],
        "env": {
            "HF_TOKEN": "PLANTED",
            "SGLANG_TOKEN": "PLANTED",
            "SGLANG_X": "hf_PLANTEDabcdefghijklmnopqrs",
        },
    }
    file = tmp_path / "environment.json"
    file.write_text(json.dumps(said))
    return file


def answering() -> dict[str, servers.Behaviour]:
    """Return the routes of a server that tells every kind in every answer."""
    info = json.loads((CAPTURES / "kv-pool-full" / "server_info_loaded.json").read_text())
    secrets = list(PLANTED.values())
    info |= {
        "api_key": "PLANTED", "admin_api_key": "PLANTED", "ssl_keyfile_password": "PLANTED",
        "tokenizer_path": secrets[4], "served_model_name": "https://user:PLANTED@host/m",
        "lora_paths": secrets,
        "mm_process_config": {"api_key": "PLANTED", "nested": [{"hf_token": "PLANTED"}, secrets]},
        "json_model_override_args": json.dumps({"authorization": "Bearer PLANTED", "x": secrets}),
        "launch_command": "sglang serve --ssl-keyfile-pass PLANTED is PLANTED --tp 1 " + " ".join(secrets),
        "warmups": " ".join(secrets),
    }  # fmt: skip
    model = {"model_path": "https://user:PLANTED@host/m", "architectures": [secrets[4]]}
    models = {"object": "list", "data": [{"id": secrets[5], "owned_by": "sglang", "max_model_len": 9}]}
    page = (CAPTURES / "kv-pool-full" / "metrics.txt").read_text().replace("/models/dense", secrets[4])
    return {
        **sglang(),
        "/server_info": reply(200, json.dumps(info).encode()),
        "/model_info": reply(200, json.dumps(model).encode()),
        "/v1/models": reply(200, json.dumps(models).encode()),
        "/metrics": reply(200, page.encode(), "text/plain"),
        "/health": reply(500, b"", Server="uvicorn Authorization: Bearer PLANTED"),
    }


def test_a_launch_script(script: Path) -> None:
    holds_none(check(launch=str(script), assume=("sglang.version=0.5.12",)))


def test_a_command_line() -> None:
    words = [
        "python3",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/m",
        "--no-such",
        "--api-key",
        "PLANTED",
    ]
    holds_none(check(command=tuple(words), gpu="H200:1", assume=("sglang.version=0.5.12",)))


def test_a_compose_file(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        "services:\n  sglang:\n    image: lmsysorg/sglang:v0.5.12\n"
        "    environment:\n      HF_TOKEN: PLANTED\n"
        "      SGLANG_API_KEY: PLANTED\n"
        "    command: python3 -m sglang.launch_server --model-path /m --api-key PLANTED --no-such\n"
    )
    holds_none(check(launch=str(file)))


def test_a_log(log: Path) -> None:
    report = check(logs=(str(log),))
    assert any(finding.code == "RUN101" for finding in report.deployments[0].findings)
    holds_none(report)


def test_an_environment(script: Path, environment: Path) -> None:
    holds_none(check(launch=str(script), environment=str(environment)))


def test_a_server_and_its_key() -> None:
    routes = servers.with_key("PLANTED-d1", answering())
    with running(routes) as there:
        url = there.url.replace("http://", "http://me:PLANTED@")
        holds_none(check(url=url, api_key="PLANTED-d1"))
        holds_none(check(url=there.url, api_key="PLANTED-wrong"))


def test_a_fleet() -> None:
    with running(answering()) as one, running(sglang()) as other:
        urls = tuple(each.url.replace("http://", "http://me:PLANTED@") for each in (one, other))
        report = check(urls=urls, api_key="PLANTED-d1")
    assert report.drift == []  # other models
    holds_none(report)


def test_servers_that_differ_in_secrets() -> None:
    info = json.loads((CAPTURES / "kv-pool-full" / "server_info_loaded.json").read_text())
    for each in (info, *info["internal_states"]):
        each |= {"api_key": "PLANTED", "warmups": PLANTED["a token of Hugging Face"]}
    differing = {**sglang(), "/server_info": reply(200, json.dumps(info).encode())}
    with running(differing) as one, running(sglang()) as other:
        report = check(urls=(one.url, other.url))
    assert [each.fact for each in report.drift] == ["arg.warmups"]
    holds_none(report)


def test_a_saved_answer_and_a_saved_page(tmp_path: Path) -> None:
    with running(answering()) as there:
        import requests

        for name in ("server_info", "metrics"):
            (tmp_path / name).write_bytes(requests.get(f"{there.url}/{name}", timeout=5).content)
    holds_none(check(server_info=str(tmp_path / "server_info"), metrics=str(tmp_path / "metrics")))


def test_a_snapshot_and_what_is_read_from_it(
    script: Path, log: Path, environment: Path, tmp_path: Path
) -> None:
    sources = Sources(launch=str(script), logs=(str(log),), environment=str(environment))
    text = examine.snapshot(sources)
    assert leaks(text) == []
    file = tmp_path / "snapshot.json"
    file.write_text(text)
    holds_none(check(snapshot=str(file)))
    with running(answering()) as there:
        live = examine.snapshot(Sources(url=there.url, api_key="PLANTED-d1"))
    assert leaks(live) == []
    after = tmp_path / "after.json"
    after.write_text(live)
    difference = diff(file, after)
    assert leaks(as_json.render(difference)) == []
    assert leaks(layout.plain(differences.render(difference, verbose=True))) == []


@pytest.mark.parametrize(
    "sources",
    [
        Sources(url="ftp://me:PLANTED@host"),
        Sources(url="http://me:PLANTED@127.0.0.1:0"),
        Sources(urls=("http://me:PLANTED@127.0.0.1:9", "ftp://me:PLANTED@host")),
        Sources(assume=("arg.api_key=PLANTED",), gpu="H200:1"),
        Sources(command=("python3", "-m", "sglang.launch_server", "--api-key", "PLANTED", "'")),
    ],
)
def test_what_is_refused_does_not_repeat_a_secret(sources: Sources) -> None:
    try:
        report = examine.check(sources)
    except (UsageError, Undecided) as refused:
        said = str(refused)
    else:
        said = "".join(text for _, text in told(report))
    assert leaks(said) == []


def test_the_command_says_none_on_either_channel(tmp_path: Path, script: Path, log: Path) -> None:
    command = [sys.executable, "-m", "sgdoctor", "check", "-v"]
    command += ["--url", "http://me:PLANTED@127.0.0.1:9", "--api-key", "PLANTED", "--launch", str(script)]
    command += ["--log", str(log)]
    for form in OUTPUTS:
        done = subprocess.run(
            [*command, "--format", form],
            capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[1],
        )  # fmt: skip
        assert leaks(done.stdout + done.stderr) == [], form
