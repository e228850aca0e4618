"""Whatever a script is put together from: its repair changes the flags that are meant and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sgdoctor import examine
from sgdoctor.collect import launch_kinds
from sgdoctor.fix import flags
from sgdoctor.sources import Sources
from sgdoctor.upstream import catalogue
from tests.fix.test_flags import LAUNCH_FILES, OLD, SCENARIO, printed

# What is written in the script (a word or words, as bash reads them), and what the server gets afterwards.
KEPT = [
    ('--tp-size "4"', ["--tp-size", "4"]),
    ("--log-level=info", ["--log-level=info"]),
    ("--served-model-name 'a b  c'", ["--served-model-name", "a b  c"]),
    ("--trust-remote-code", ["--trust-remote-code"]),
    ('--json-model-override-args \'{"a": "--stream-output"}\'', None),
    ("--lora-paths a=/a b=/b", ["--lora-paths", "a=/a", "b=/b"]),
    ("--context-length $LENGTH", ["--context-length", "4096"]),
]
REPAIRED = [
    ("--prefill-round-robin-balance", []),
    ("--stream-output", ["--incremental-streaming-output"]),
    ("'--stream-output'", ["--incremental-streaming-output"]),
    ("--nsa-decode-backend fa3", ["--dsa-decode-backend", "fa3"]),
    ('"--nsa-prefill-backend=$BACKEND"', ["--dsa-prefill-backend=fa3"]),
    ("--nsa-prefill-backend $BACKEND", ["--dsa-prefill-backend", "fa3"]),
    ("--cuda-graph-bs 1 2 4", ["--cuda-graph-bs-decode", "1", "2", "4"]),
    ("--disable-piecewise-cuda-graph", ["--cuda-graph-backend-prefill=disabled"]),
    ("--mamba-scheduler-strategy=no_buffer", ["--mamba-radix-cache-strategy=no_buffer"]),
]
OVERRIDE = ["--json-model-override-args", '{"a": "--stream-output"}']
COMMENTS = ["", "", " # why", "  # --stream-output"]
HEAD = "#!/bin/bash\n# --stream-output here says nothing\nLENGTH=4096\nBACKEND=fa3\n"

flag = st.sampled_from([*KEPT, *REPAIRED])
piece = st.tuples(flag, st.sampled_from(COMMENTS), st.sampled_from(["  ", "\t", " " * 12]))


def script(pieces, style) -> str:
    """Return a script with these flags, in an array or as arguments with continuation lines."""
    if style == "array":
        lines = [f"{indent}{text}{comment}\n" for (text, _), comment, indent in pieces]
        return HEAD + f'A=(\n{"".join(lines)})\npython3 -m sglang.launch_server --model-path /m "${{A[@]}}"\n'
    if style == "array on a line":
        words = " ".join(text for (text, _), _, _ in pieces)
        return HEAD + f'A=({words})\nA+=(--port 1)\nexec sglang serve --model-path /m "${{A[@]}}"\n'
    joint = " " if style == "line" else " \\\n"
    lines = [f"{indent}{text}" for (text, _), _, indent in pieces]
    return HEAD + f"python3 -m sglang.launch_server --model-path /m{joint}{joint.join(lines)} 2>&1\n"


def expected(pieces) -> list[str]:
    """Return the words that the server is to get for the flags."""
    return [word for (_, words), _, _ in pieces for word in (OVERRIDE if words is None else words)]


# An example takes half a second: short ones, not shortened.
@settings(
    deadline=None,
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.lists(piece, min_size=1, max_size=7),
    st.sampled_from(["array", "array on a line", "line", "continued"]),
)
def test_the_servers_command_differs_by_the_flags_that_are_meant(pieces, style):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.sh"
        file.write_text(script(pieces, style))
        before = printed(file)
        found = flags.plan(Sources(launch=str(file), assume=(OLD,)))
        file.write_text(found.repaired or found.text)
        again = flags.plan(Sources(launch=str(file), assume=(OLD,)))

        (after,) = printed(file)
        start = before[0].index("/m") + 1
        end = -2 if style == "array on a line" else None
        assert after[start:end] == expected(pieces)
        assert after[:start] == before[0][:start]
        assert not found.left
        assert again.repaired is None
        (command,) = launch_kinds.read(file)
        words = [word.text for word in command.words]
        assert words == [word for word in after if word != "serve"]
        assert found.text.count("#") == (found.repaired or found.text).count("#"), "comments stay"


SCRIPTS = [*LAUNCH_FILES.glob("*/*.sh"), *LAUNCH_FILES.glob("*/*.sbatch"), *SCENARIO.glob("*.sh")]
ANYWHERE = [
    "--prefill-round-robin-balance",
    "--stream-output",
    "--nsa-decode-backend fa3",
    "--cuda-graph-bs 1 2",
]
ANYWHERE += [
    "--mamba-scheduler-strategy=no_buffer",
    "--disable-piecewise-cuda-graph",
    "--moe-runner-backend auto",
]


@settings(
    deadline=None,
    max_examples=25,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.sampled_from(SCRIPTS),
    st.lists(st.sampled_from(ANYWHERE), max_size=3, unique=True),
    st.sampled_from(catalogue.releases()),
    st.booleans(),
)
def test_a_repaired_launch_file_passes_check_in_every_release(file, more, version, unsafe):
    assume = (f"sglang.version={version}", "gpu.compute_capability=12.0", "gpu.vendor=nvidia")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / file.name
        script.write_text(file.read_text().replace("--model-path", " ".join([*more, "--model-path"]), 1))
        sources = Sources(launch=str(script), assume=assume)
        found = flags.plan(sources, unsafe=unsafe)
        (before,) = examine.check(sources).deployments
        script.write_text(found.repaired or found.text)
        (after,) = examine.check(sources).deployments
        again = flags.plan(sources, unsafe=unsafe)

    told, still = ({finding.code for finding in each.findings} for each in (before, after))
    kept = {change.code for change in (*found.left, *found.unsafe)}
    assert still <= told
    assert not (still & set(found.codes)) - kept
    assert not again.changes
    assert not unsafe or not found.unsafe
