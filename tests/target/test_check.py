"""``sgdoctor check --target`` as a whole."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdoctor import examine, gather
from sgdoctor.engine import rules
from sgdoctor.errors import UsageError
from sgdoctor.report import json as report_json
from sgdoctor.report import layout, terminal
from sgdoctor.report.model import DeploymentReport, Report, exit_code
from sgdoctor.sources import Sources
from sgdoctor.target import compare
from sgdoctor.target.walk import Walk
from sgdoctor.upstream import catalogue

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "tests" / "scenarios" / "rtx-pro-6000"
CAPTURE = ROOT / "tests" / "captures" / "moe-no-config"
SERVER = ("python3", "-m", "sglang.launch_server", "--model-path", "m")


def scenario(**more: str) -> Sources:
    return Sources(
        launch=str(SCENARIO / "launch-fusion.sh"),
        model=str(SCENARIO / "config.json"),
        environment=str(SCENARIO / "environment.json"),
        **more,
    )


def only(report: Report) -> DeploymentReport:
    [deployment] = report.deployments
    return deployment


def command(*words: str, gpu: str = "H200") -> Sources:
    return Sources(command=(*SERVER, *words), gpu=gpu)


def text(report: Report, **options: bool) -> str:
    return " ".join(layout.plain(terminal.render(report, width=100, **options)).split())


def test_the_report_is_about_the_other_release() -> None:
    deployment = only(examine.check(scenario(), target="sglang=0.5.20"))
    assert (deployment.moved_from, deployment.summary.sglang) == ("0.5.10", "0.5.20")
    assert "ARG104" in {finding.code for finding in deployment.findings}


def test_the_worst_change_comes_first_and_what_is_minor_last() -> None:
    changes = only(examine.check(scenario(), target="sglang=0.5.20")).changes
    assert changes[0].severity == "error"
    places = [(change.minor, ["error", "warning", "info"].index(change.severity)) for change in changes]
    assert places == sorted(places)


def test_what_is_minor_is_counted_and_listed_with_v() -> None:
    report = examine.check(scenario(), target="sglang=0.5.20")
    number = sum(change.minor for change in only(report).changes)
    assert f"{number} more requirements and defaults with -v" in text(report)
    assert "xgrammar moves from 0.1.32 to 0.2.1" not in text(report)
    assert "xgrammar moves from 0.1.32 to 0.2.1" in text(report, verbose=True)


def test_json_has_every_change_and_keeps_to_the_schema() -> None:
    report = examine.check(scenario(), target="sglang=0.5.20")
    written = json.loads(report_json.render(report))
    jsonschema.validate(written, json.loads((ROOT / "docs" / "report.schema.json").read_text()))
    assert len(written["deployments"][0]["changes"]) == len(only(report).changes)


def test_a_change_that_stops_the_server_is_an_error_whatever_rules_are_chosen() -> None:
    sources = command("--enable-nan-detection")
    report = examine.check(sources, select=["SEC"], target="sglang=0.5.20", from_version="0.5.12")
    assert [finding.code for finding in only(report).findings] == []
    assert exit_code(report) == 1
    assert exit_code(report, "never") == 0


def test_a_change_to_look_at_counts_as_a_warning() -> None:
    report = examine.check(command(), target="sglang=0.5.11", from_version="0.5.10")
    assert report.worst == "warning"  # the driver that CUDA 13 needs
    assert (exit_code(report), exit_code(report, "warning")) == (0, 1)


def test_staying_changes_nothing_and_reads_as_it_is() -> None:
    sources = scenario()
    there = only(examine.check(sources, target="sglang=0.5.10"))
    here = only(examine.check(sources))
    assert there.changes == []
    assert there.findings == here.findings
    assert "From SGLang 0.5.10 to 0.5.10: nothing changes." in text(
        examine.check(sources, target="sglang=0.5.10")
    )


@settings(max_examples=20, deadline=None)
@given(
    version=st.sampled_from(catalogue.releases()),
    flags=st.lists(
        st.sampled_from(
            ["--tp 4", "--host 0.0.0.0", "--enable-hierarchical-cache", "--page-size 64", "--nope"]
        ),
        unique=True,
    ),
    gpu=st.sampled_from(["H200:4", "H100:2", "A100-SXM4-80GB:4", "B200:8"]),
)
def test_any_deployment_compared_with_itself_changes_nothing(
    version: str, flags: list[str], gpu: str
) -> None:
    pack = rules.load()
    sources = command(*" ".join(flags).split(), gpu=gpu)
    [gathered] = gather.gather(sources, pack.patterns())
    walk = Walk(gathered, pack.rules, sources, f"sglang={version}", version)
    assert walk.stays
    assert compare.changes(walk) == []
    assert walk.path.since(lambda at: walk.at(at).facts.value("sglang.version")) is None


# --- which release is in use ----------------------------------------------------------------------------


def test_from_version_stands_in_where_nothing_tells() -> None:
    deployment = only(examine.check(command(), target="sglang=0.5.12", from_version="0.5.11"))
    assert deployment.moved_from == "0.5.11"
    with pytest.raises(UsageError, match="no source tells which that is: name it with --from-version"):
        examine.check(command(), target="sglang=0.5.12")


def test_from_version_wins_over_what_is_installed() -> None:
    assert (
        only(examine.check(scenario(), target="sglang=0.5.20", from_version="0.5.16")).moved_from == "0.5.16"
    )


@pytest.mark.parametrize(
    ("target", "from_version", "told"),
    [
        ("sglang=0.6.0", None, "--target sglang=0.6.0: sgdoctor knows SGLang 0.5.7 to"),
        ("0.5.20", None, "write sglang=VERSION"),
        ("sglang=0.5.20", "0.4.0", "--from-version 0.4.0: sgdoctor knows SGLang 0.5.7 to"),
        (None, "0.5.10", "name the release with --target"),
    ],
)
def test_what_the_operator_must_mend(target: str | None, from_version: str | None, told: str) -> None:
    with pytest.raises(UsageError) as raised:
        examine.check(scenario(), target=target, from_version=from_version)
    assert told in str(raised.value)


def test_a_build_between_releases_is_compared_as_the_one_before() -> None:
    sources = Sources(command=SERVER, gpu="H200", assume=("sglang.version=0.5.14.dev3",))
    deployment = only(examine.check(sources, target="sglang=0.5.16"))
    assert deployment.moved_from == "0.5.14.dev3"
    assert "0.5.14.dev3 is not in the catalogue: it is compared as 0.5.13.post1" in deployment.notes


# --- what goes along --------------------------------------------------------------------------------------


def test_what_is_assumed_stays_assumed() -> None:
    sources = scenario(assume=("triton.version=3.6.0", "package.transformers=5.3.0"))
    pack = rules.load()
    [gathered] = gather.gather(sources, pack.patterns())
    facts = Walk(gathered, pack.rules, sources, "sglang=0.5.20").end.facts
    assert facts.value("triton.version") == "3.6.0"
    assert facts.value("package.transformers") == "5.3.0"
    assert facts.value("torch.version") == "2.13.0"


def test_what_the_server_said_of_itself_does_not_go_along() -> None:
    sources = Sources(
        logs=(str(CAPTURE / "server.log"),),
        launch=str(CAPTURE / "command.txt"),
        environment=str(CAPTURE.parent / "environment.json"),
    )
    deployment = only(examine.check(sources, target="sglang=0.5.20"))
    assert any("left out: it was said by SGLang 0.5.12" in note for note in deployment.notes)
    pack = rules.load()
    [gathered] = gather.gather(sources, pack.patterns())
    facts = Walk(gathered, pack.rules, sources, "sglang=0.5.20").end.facts
    assert not facts.known("log.records")
    assert facts.value("gpu.name") == "NVIDIA H200"


def test_a_snapshot_holds_the_command_too(tmp_path: Path) -> None:
    launch = tmp_path / "run.sh"
    launch.write_text("python3 -m sglang.launch_server --model-path m \\\n  --cuda-graph-max-bs 64\n")
    sources = Sources(launch=str(launch), environment=str(SCENARIO / "environment.json"))
    file = tmp_path / "snapshot.json"
    file.write_text(examine.snapshot(sources))
    deployment = only(examine.check(Sources(snapshot=str(file)), target="sglang=0.5.20"))
    [change] = [each for each in deployment.changes if each.kind == "flag-ambiguous"]
    assert change.subject == "--cuda-graph-max-bs"
    assert deployment.moved_from == "0.5.10"


def test_a_sample_names_its_files_without_their_folder() -> None:
    assert "data/samples" not in text(examine.check(Sources(sample="moe-no-config"), target="sglang=latest"))


def test_without_a_command_packages_and_rules_are_compared_alone() -> None:
    sources = Sources(environment=str(SCENARIO / "environment.json"))
    kinds = {change.kind for change in only(examine.check(sources, target="sglang=0.5.20")).changes}
    assert "pin" in kinds
    assert not any(kind.startswith("flag") for kind in kinds)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_keep_to_the_width(width: int) -> None:
    report = examine.check(scenario(), target="sglang=0.5.20")
    block = layout.plain(terminal.render(report, width=width)).split("\n\n")[1]
    assert block.startswith("From SGLang 0.5.10 to 0.5.20:")
    long = [line for line in block.splitlines() if len(line) > width]
    assert all(len(line.split()) == 1 for line in long), long
