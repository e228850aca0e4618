"""Reports made by hand: what rules would say about tests/scenarios/rtx-pro-6000, and some others."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from sgdoctor.engine.model import Evidence, Finding, Recommendation
from sgdoctor.report.model import (
    Broken,
    DeploymentReport,
    DeploymentSummary,
    Disagreement,
    Gpus,
    Looked,
    Reading,
    Report,
    UndecidedRule,
)

GOLDEN = Path(__file__).parent / "golden"
PRO_6000 = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
EXPERTS = f"E=256,N=256,device_name={PRO_6000.replace(' ', '_')}"


def make_finding(code="CFG101", severity="warning", message="The experts run slowly.", **fields):
    given = {
        "name": "a-rule",
        "title": "A rule",
        "case": ["M02"],
        "impact": "performance",
        "confidence": "high",
        "evidence": [],
        "recommendation": [],
        "why": "Because.",
        "sources": ["https://github.com/sgl-project/sglang/pull/5955"],
        "fingerprint": "0123456789abcdef",
    }
    return Finding(code=code, severity=severity, message=message, **{**given, **fields})


def make_deployment(name="launch.sh", **fields):
    given = {
        "summary": DeploymentSummary(model="qwen3.5-122b", sglang="0.5.10", parallel={"tp": 4}),
        "looked_at": [Looked("launch", "launch.sh")],
        "passed": ["ARG101"],
    }
    return DeploymentReport(name=name, **{**given, **fields})


def undecided(code, title, missing, *options):
    return UndecidedRule(code, title, list(missing), "no source given tells", list(options))


@pytest.fixture
def finding():
    return make_finding


@pytest.fixture
def deployment():
    return make_deployment


@pytest.fixture
def scenario():
    """Return the deployment of tests/scenarios/rtx-pro-6000, before its second launch."""
    config = [
        Evidence("model.experts", 256, "model", "config.json"),
        Evidence("model.moe_intermediate_size", 1024, "model", "config.json"),
        Evidence("arg.tp_size", 4, "launch", "launch-fusion.sh:10"),
        Evidence("triton.version", "3.6.0", "environment", "environment.json"),
        Evidence("gpu.name", PRO_6000, "environment", "environment.json"),
        Evidence("moe.up.source", "default", "derived", "moe.local_experts"),
    ]
    fusion = [
        Evidence("asked.enable_flashinfer_allreduce_fusion", True, "launch", "launch-fusion.sh:15"),
        Evidence("gpu.compute_capability", "12.0", "environment", "environment.json"),
    ]
    exposed = [
        Evidence("arg.host", "0.0.0.0", "launch", "launch-fusion.sh:11"),
        Evidence("arg.api_key", None, "launch", "launch-fusion.sh"),
    ]
    pins = [
        Evidence("torch.version", "2.11.0", "environment", "environment.json"),
        Evidence("pin.torch", "2.9.1", "catalogue", "SGLang 0.5.10"),
        Evidence("triton.version", "3.6.0", "environment", "environment.json"),
        Evidence("pin.triton", "3.5.1", "catalogue", "SGLang 0.5.10"),
    ]
    findings = [
        make_finding(
            "SEC101",
            message="The server listens on 0.0.0.0 without an API key: everyone who reaches port 30000 can "
            "use it.",
            impact="security",
            evidence=exposed,
            recommendation=[
                Recommendation(set="--host", value="127.0.0.1"),
                Recommendation(run='--api-key "$SGLANG_API_KEY"', note="or both, behind a proxy"),
            ],
        ),
        make_finding(
            message="The experts run on the built-in kernel config: no Triton folder that SGLang 0.5.10 "
            f"reads (3.6.0, 3.4.0, 3.3.1, 3.2.0, 3.1.0) has {EXPERTS}.json or {EXPERTS}_down.json.",
            evidence=config,
            recommendation=[
                Recommendation(
                    run="sgdoctor fix --tune-moe", note="makes both files on this GPU, checks them"
                )
            ],
            fix="tune-moe",
        ),
        make_finding(
            "ARG103",
            message="--enable-flashinfer-allreduce-fusion does nothing on this GPU: the fusion runs on "
            "compute capability 9.0 and 10.x, this is 12.0. From SGLang 0.5.14 the same flag stops the "
            "server at start.",
            evidence=fusion,
            recommendation=[Recommendation(remove="--enable-flashinfer-allreduce-fusion")],
        ),
        make_finding(
            "ENV102",
            severity="info",
            message="torch 2.11.0 and Triton 3.6.0 are not what SGLang 0.5.10 pins: torch 2.9.1, "
            "Triton 3.5.1.",
            evidence=pins,
            recommendation=[Recommendation(install="torch==2.9.1")],
        ),
        make_finding("RUN190", confidence="low", message="Some saw slow starts with this driver."),
    ]
    log_rules = [
        undecided(f"RUN1{number:02}", "A rule about the log", ["log.records"], "--log")
        for number in range(13)
    ]
    return make_deployment(
        name="launch-fusion.sh",
        summary=DeploymentSummary(
            model="qwen3.5-122b", sglang="0.5.10", gpus=[Gpus(4, PRO_6000, "12.0")], parallel={"tp": 4}
        ),
        findings=findings,
        unknown=[
            *log_rules,
            undecided("MEM103", "The KV cache is smaller than one request", ["kv.tokens"], "--log", "--url"),
            undecided("NET101", "Shared memory is too small for NCCL", ["host.shm_mib"], "--environment"),
        ],
        passed=[f"ARG1{number:02}" for number in range(58)],
        not_applicable=[f"QNT1{number:02}" for number in range(34)],
        looked_at=[
            Looked("launch", "launch-fusion.sh", said="10 flags"),
            Looked("model", "config.json"),
            Looked("environment", "environment.json", said="6 packages, 4 GPUs"),
        ],
        conflicts=[
            Disagreement(
                "triton.version",
                Reading("3.6.0", "environment", "environment.json"),
                Reading("3.5.1", "log", "server.log:3"),
            )
        ],
    )


@pytest.fixture
def fleet(scenario):
    """Return a deployment with findings, a healthy, a half read, a lost one and one with a broken rule."""
    h200 = [Gpus(1, "NVIDIA H200", "9.0")]
    summary = DeploymentSummary(model="moe-e128-n768", sglang="0.5.12", gpus=h200, parallel={"tp": 1})
    healthy = make_deployment(
        name="127.0.0.1:30000",
        summary=summary,
        looked_at=[
            Looked("http", "/server_info"),
            Looked("log", "server.log", said="412 records of SGLang 0.5.12"),
        ],
    )
    half = make_deployment(
        name="127.0.0.1:30001",
        summary=DeploymentSummary(model="dense", sglang="0.5.12"),
        looked_at=[
            Looked("http", "/server_info", state="partly", said="401 Unauthorized: pass its --api-key"),
            Looked("log", "dense.log", said="57 records of SGLang 0.5.12"),
        ],
    )
    lost = make_deployment(
        name="other.log",
        summary=DeploymentSummary(),
        passed=[],
        unknown=[undecided("CFG101", "No tuned config", ["moe.up.source"])],
        looked_at=[Looked("log", "other.log", state="nothing", said="no record of SGLang's in 1,204 lines")],
    )
    broken = make_deployment(
        name="broken",
        summary=DeploymentSummary(model="m", sglang="0.5.23"),
        broken=[Broken("MEM101", "ZeroDivisionError: division by zero")],
    )
    return Report.of([healthy, scenario, half, lost, broken])


@pytest.fixture
def golden(request):
    """Return what holds text against a file of golden/; `make goldens` writes it first."""

    def hold(name, text):
        path = GOLDEN / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        expected = path.read_text(encoding="utf-8")
        difference = difflib.unified_diff(
            expected.splitlines(keepends=True), text.splitlines(keepends=True), name, "now"
        )
        assert text == expected, "".join(difference)

    return hold
