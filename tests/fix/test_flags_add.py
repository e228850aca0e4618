"""`sgdoctor fix --flags --unsafe` adds the flag that a finding wants: at the command's end, in its style."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgdoctor.fix import flags
from sgdoctor.fix.flags_plan import Plan
from sgdoctor.sources import Sources
from tests.fix.test_flags import left, printed

# HW205: 0.5.9 takes kernels for GPT-OSS that crash with this driver; --moe-runner-backend triton helps.
GPT_OSS = (
    "sglang.version=0.5.9",
    "host.driver=595.58.03",
    "gpu.vendor=nvidia",
    "gpu.compute_capability=10.0",
    "model.architecture=GptOssForCausalLM",
    "model.quantization=null",
    "arg.ep_size=1",
)
ADDED = ["--moe-runner-backend", "triton"]


def plan(folder: Path, text: str, *, unsafe: bool = True) -> Plan:
    script = folder / "run.sh"
    script.write_text(text)
    return flags.plan(Sources(launch=str(script), assume=GPT_OSS), unsafe=unsafe)


STYLES = {
    "one line": (
        "python3 -m sglang.launch_server --model-path /m --tp-size 2\n",
        "python3 -m sglang.launch_server --model-path /m --tp-size 2 --moe-runner-backend triton\n",
    ),
    "no end of line": (
        "sglang serve --model-path /m",
        "sglang serve --model-path /m --moe-runner-backend triton",
    ),
    "continued lines": (
        "exec python3 -m sglang.launch_server \\\n    --model-path /m \\\n    --tp-size 2\necho over\n",
        (
            "exec python3 -m sglang.launch_server \\\n    --model-path /m \\\n    --tp-size 2 \\\n"
            "    --moe-runner-backend triton\necho over\n"
        ),
    ),
    "a redirection and a pipe behind it": (
        "python3 -m sglang.launch_server --model-path /m \\\n\t--tp-size 2 2>&1 | cat\n",
        (
            "python3 -m sglang.launch_server --model-path /m \\\n\t--tp-size 2 \\\n"
            "\t--moe-runner-backend triton 2>&1 | cat\n"
        ),
    ),
    "a comment behind it": (
        "python3 -m sglang.launch_server --model-path /m \\\n  --tp-size 2 # all\n",
        (
            "python3 -m sglang.launch_server --model-path /m \\\n"
            "  --tp-size 2 --moe-runner-backend triton # all\n"
        ),
    ),
    "in the background": (
        "python3 -m sglang.launch_server --model-path /m & wait\n",
        "python3 -m sglang.launch_server --model-path /m --moe-runner-backend triton & wait\n",
    ),
    "an array": (
        'A=(\n  --model-path /m\n)\npython3 -m sglang.launch_server "${A[@]}"\n',
        'A=(\n  --model-path /m\n)\npython3 -m sglang.launch_server "${A[@]}" --moe-runner-backend triton\n',
    ),
    "a command in quotes": (
        "bash -c 'cd / && python3 -m sglang.launch_server --model-path /m --tp-size 2 2>&1 | cat'\n",
        (
            "bash -c 'cd / && python3 -m sglang.launch_server --model-path /m --tp-size 2 "
            "--moe-runner-backend triton 2>&1 | cat'\n"
        ),
    ),
    "lines in quotes": (
        'bash -c "python3 -m sglang.launch_server --model-path /m \\\n  --tp-size 2"\n',
        (
            'bash -c "python3 -m sglang.launch_server --model-path /m \\\n  --tp-size 2 \\\n'
            '  --moe-runner-backend triton"\n'
        ),
    ),
    "a here-document": (
        "bash <<'EOF'\npython3 -m sglang.launch_server \\\n  --model-path /m\necho over\nEOF\n",
        (
            "bash <<'EOF'\npython3 -m sglang.launch_server \\\n  --model-path /m \\\n"
            "  --moe-runner-backend triton\necho over\nEOF\n"
        ),
    ),
    "a here-document whose text the outer shell expands": (
        "bash <<EOF\npython3 -m sglang.launch_server \\\\\n  --model-path /m\nEOF\n",
        (
            "bash <<EOF\npython3 -m sglang.launch_server \\\\\n  --model-path /m \\\\\n"
            "  --moe-runner-backend triton\nEOF\n"
        ),
    ),
    "two servers of one function": (
        'run() {\n  python3 -m sglang.launch_server --model-path /m --port "$1"\n}\nrun 1\nrun 2\n',
        (
            'run() {\n  python3 -m sglang.launch_server --model-path /m --port "$1" '
            "--moe-runner-backend triton\n}\nrun 1\nrun 2\n"
        ),
    ),
    "one of two servers": (
        (
            "sglang serve --model-path /m --port 1 --moe-runner-backend triton\n"
            "sglang serve --model-path /m --port 2 \\\n  --moe-runner-backend auto\n"
            "sglang serve --model-path /m --port 3\n"
        ),
        (
            "sglang serve --model-path /m --port 1 --moe-runner-backend triton\n"
            "sglang serve --model-path /m --port 2 \\\n  --moe-runner-backend triton\n"
            "sglang serve --model-path /m --port 3 --moe-runner-backend triton\n"
        ),
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_the_flag_stands_at_the_end_of_the_command(tmp_path, style):
    text, repaired = STYLES[style]

    found = plan(tmp_path, text)
    before = printed(tmp_path / "run.sh")
    again = plan(tmp_path, found.repaired or "")

    assert found.repaired == repaired
    assert (found.codes, found.left) == (("HW205",), ())
    assert again.repaired is None, "a second repair changes nothing"
    assert printed(tmp_path / "run.sh") == [
        [word for word in words if word not in ("--moe-runner-backend", "triton", "auto")] + ADDED
        for words in before
    ]


def test_without_unsafe_it_is_told_with_its_place(tmp_path):
    found = plan(tmp_path, "sglang serve \\\n  --model-path /m\n", unsafe=False)

    assert found.repaired is None
    assert [(each.line, each.what) for each in found.unsafe] == [(2, "add --moe-runner-backend triton")]


LEFT = {
    "a command put together": (
        'CMD="python3 -m sglang.launch_server"\nCMD+=" --model-path /m"\neval "$CMD"\n',
        "the end of this server's command alone is not written there",
    ),
    "two servers of one loop, of which one has it": (
        (
            "for port in 1 2; do\n  B=triton\n  [ $port = 1 ] || B=auto\n"
            "  for extra in --moe-runner-backend=triton --tp-size=2; do\n"
            "    python3 -m sglang.launch_server --model-path /m $extra\n  done\ndone\n"
        ),
        "5 the end of this server's command alone is not written there",
    ),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_has_no_place_of_its_own_is_told_and_left(tmp_path, case):
    text, reason = LEFT[case]

    found = plan(tmp_path, text)

    assert found.repaired is None
    assert [each.what for each in found.left] == ["add --moe-runner-backend triton"]
    assert reason in left(found)


def test_a_file_of_another_kind_is_told_where_to_add_it(tmp_path):
    compose = tmp_path / "compose.yml"
    compose.write_text(
        "services:\n  llm:\n    image: lmsysorg/sglang:v0.5.9\n    command: >-\n"
        "      python3 -m sglang.launch_server\n      --model-path /m\n"
    )

    found = flags.plan(Sources(launch=str(compose), assume=GPT_OSS), unsafe=True)

    assert found.by_hand == "a YAML file is not rewritten"
    assert [(each.line, each.what) for each in found.changes] == [(6, "add --moe-runner-backend triton")]
