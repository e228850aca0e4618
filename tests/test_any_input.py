"""Whatever is known and whatever is not: a check ends in a report or in one clear line, never in a bug."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgdoctor import examine
from sgdoctor.errors import Undecided, UsageError
from sgdoctor.sources import Sources
from sgdoctor.upstream import known_gpus

VERSIONS = [
    "0.5.7",
    "0.5.9",
    "0.5.10",
    "0.5.12.post1",
    "0.5.13",
    "0.5.14.dev3+g12ab34c",
    "0.5.16",
    "0.5.23",
    "0.6.0",
    "0.0.0.dev1+g1234567",
]
PACKAGES = st.fixed_dictionaries(
    {},
    optional={
        "sglang": st.sampled_from([*VERSIONS, None]),
        "triton": st.sampled_from(["3.5.1", "3.6.0", "3.6.0+git1234", "3.8.0", None]),
        "torch": st.sampled_from(["2.9.1", "2.11.0+cu130", "2.14.1", "2.9.0a0+nv", None]),
        "sglang-kernel": st.sampled_from(["0.4.1", "0.4.2.post2", None]),
        "sgl-kernel": st.sampled_from(["0.3.21", None]),
        "flashinfer-python": st.sampled_from(["0.6.3", "0.6.12", None]),
        "transformers": st.sampled_from(["4.57.1", "5.6.0", None]),
        "kernels": st.sampled_from(["0.14.1", "0.17.2", None]),
    },
)
GPUS = st.lists(
    st.sampled_from(known_gpus.GPUS).map(
        lambda gpu: {"index": 0, "name": gpu.name, "compute_capability": gpu.capability, "memory_mib": 80000}
    ),
    max_size=2,
)
FLAGS = [
    "--tp-size 4",
    "--tp 2",
    "--ep-size 2",
    "--dp-size 2",
    "--pp-size 2",
    "--enable-dp-attention",
    "--nnodes 2",
    "--quantization fp8",
    "--quantization w8a8_int8",
    "--moe-runner-backend triton",
    "--moe-a2a-backend deepep",
    "--enable-flashinfer-allreduce-fusion",
    "--speculative-algorithm EAGLE3",
    "--enable-mixed-chunk",
    "--enable-deterministic-inference",
    "--attention-backend trtllm_mla",
    "--kv-cache-dtype fp8_e5m2",
    "--max-running-requests 9000",
    "--context-length 1000000",
    "--enable-lora",
    "--cuda-graph-max-bs 64",
    "--host 0.0.0.0",
    "--api-key k",
    "--log-level error",
    "--mem-frac 0.8",
    "--tp $TP",
    "$(more flags)",
    "--nothing",
]
MODELS = [
    json.loads(path.read_text())
    for path in sorted(Path(__file__).parent.glob("captures/models/*/config.json"))
]
MODELS += [
    json.loads(path.read_text()) for path in sorted(Path(__file__).parent.glob("healthy/*/config.json"))
]
CHANGES = st.dictionaries(
    st.sampled_from(
        [
            "architectures",
            "num_experts",
            "moe_intermediate_size",
            "torch_dtype",
            "quantization_config",
            "text_config",
            "num_experts_per_tok",
            "max_position_embeddings",
            "rope_scaling",
        ]
    ),
    st.one_of(
        st.none(),
        st.integers(-1, 2**40),
        st.text(max_size=5),
        st.lists(st.integers(), max_size=2),
        st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    ),
    max_size=2,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    packages=PACKAGES,
    complete=st.booleans(),
    gpus=st.none() | GPUS,
    flags=st.lists(st.sampled_from(FLAGS), max_size=4),
    model=st.none() | st.tuples(st.sampled_from(MODELS), CHANGES),
    log=st.none() | st.sampled_from(sorted(Path(__file__).parent.glob("captures/*/server.log"))),
)
def test_a_check_never_ends_in_a_bug(
    tmp_path_factory: Any,
    *,
    packages: dict[str, str | None],
    complete: bool,
    gpus: list[dict[str, Any]] | None,
    flags: list[str],
    model: tuple[dict[str, Any], dict[str, Any]] | None,
    log: Path | None,
) -> None:
    folder = tmp_path_factory.mktemp("case")
    environment: dict[str, Any] = {"packages": packages, "complete": complete}
    if gpus is not None:
        environment["gpus"] = gpus
    more: dict[str, Any] = {}
    if packages or complete or gpus is not None:
        (folder / "environment.json").write_text(json.dumps(environment))
        more["environment"] = str(folder / "environment.json")
    (folder / "run.sh").write_text(f"python3 -m sglang.launch_server --model-path /m {' '.join(flags)}\n")
    if model is not None:
        (folder / "config.json").write_text(json.dumps({**model[0], **model[1]}))
        more["model"] = str(folder / "config.json")
    if log is not None:
        more["logs"] = (str(log),)
    try:
        report = examine.check(Sources(launch=str(folder / "run.sh"), **more))
    except (UsageError, Undecided):
        return
    for deployment in report.deployments:
        assert deployment.broken == []
        codes = [finding.code for finding in deployment.findings]
        assert len(codes) == len(set(codes))
