"""What holds for every format; whole reports are in golden/."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from sgdoctor import examine
from sgdoctor.report import formats
from sgdoctor.report.layout import printable
from sgdoctor.report.model import Drift, Report, Suppressed
from sgdoctor.sources import Sources

from .hostile import reports

ROOT = Path(__file__).parents[1]
TEXT = [form for form in formats.FORMATS if form != "json"]
ENDINGS = {
    "plain": "plain.txt",
    "sarif": "sarif.json",
    "junit": "junit.xml",
    "github": "github.txt",
    "markdown": "md",
    "html": "html",
}
KEY = "sk-planted-0123456789abcdefghij"
TOKEN = "hf_plantedABCDEFGHIJKLMNOPQRST"


@pytest.fixture(scope="module")
def recorded():
    """Return what judges a recorded deployment by few rules, so that a new rule changes no golden file."""

    def judged(folder, select, **sources):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(ROOT / folder)
            target = sources.pop("target", None)
            return examine.check(Sources(**sources), select=select, target=target)

    return judged


@pytest.mark.parametrize("form", TEXT)
def test_a_server_that_died_by_its_log(recorded, golden, form):
    report = recorded("captures/mem-fraction-too-small", ["MEM103", "MEM104"], logs=("server.log",))
    golden(f"died.{ENDINGS[form]}", formats.render(report, form))


@pytest.mark.parametrize("form", TEXT)
def test_a_launch_script_at_a_newer_release(recorded, golden, form):
    report = recorded(
        "scenarios/rtx-pro-6000",
        ["ARG104", "CFG101", "MEM103", "SEC101"],
        launch="launch-fusion.sh",
        model="config.json",
        environment="environment.json",
        target="sglang=0.5.20",
    )
    golden(f"target.{ENDINGS[form]}", formats.render(report, form))


@pytest.mark.parametrize("form", formats.FORMATS)
def test_no_secret_of_a_script_or_a_log_is_in_a_report(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = f"--model-path /m --host 0.0.0.0 --turbo --api-key {KEY} --hf-token={TOKEN}"
    Path("launch.sh").write_text(f"export HF_TOKEN={TOKEN}\npython3 -m sglang.launch_server {flags}\n")
    log = (ROOT / "captures" / "mem-fraction-too-small" / "server.log").read_text()
    died = log.replace("-static.\n", f"-static. api_key='{KEY}', HF_TOKEN={TOKEN}\n")
    assert died != log
    Path("server.log").write_text(died)
    judged = [Sources(launch="launch.sh", assume=("sglang.version=0.5.12",)), Sources(logs=("server.log",))]
    deployments = [each for sources in judged for each in examine.check(sources).deployments]
    text = formats.render(Report.of(deployments), form, verbose=True)
    assert "ARG101" in text
    assert "MEM104" in text
    assert "redacted" in text
    assert KEY not in text
    assert TOKEN not in text


@pytest.mark.parametrize("form", TEXT)
def test_what_is_only_suspected_is_shown_when_asked_for(scenario, form):
    report = Report.of([scenario])
    assert "Some saw slow starts" not in formats.render(report, form)
    assert "Some saw slow starts" in formats.render(report, form, verbose=True)


@pytest.mark.parametrize("form", [form for form in TEXT if form not in ("github", "junit")])
def test_what_is_suppressed_is_shown_when_asked_for_with_its_reason(finding, deployment, form):
    muted = Suppressed(finding("SEC101", message="It listens."), "The gateway asks.", "2027-01-31")
    report = Report.of([deployment(suppressed=[muted])])
    told = formats.render(report, form)
    assert "SEC101" not in told
    told = formats.render(report, form, verbose=True)
    assert all(said in told for said in ("SEC101", "It listens.", "The gateway asks. (until 2027-01-31)"))


@pytest.mark.parametrize("form", TEXT)
def test_what_servers_differ_in_and_notes_on_the_settings_are_there(deployment, form):
    drift = Drift("sglang.version", "m", {"0.5.12": ["a:1", "b:1"], "0.5.13": ["c:1"]})
    made = Report.of([deployment()], notes=["sgdoctor.toml: the suppression of SEC101 has ended"])
    told = formats.render(msgspec.structs.replace(made, drift=[drift]), form)
    for said in ("sglang.version", "0.5.13", "c:1", "the suppression of SEC101 has ended"):
        assert said in told


@pytest.mark.parametrize("form", TEXT)
def test_every_deployment_of_a_fleet_is_there(fleet, form):
    text = formats.render(fleet, form).replace("%3A", ":")
    for said in ("127.0.0.1:30001", "401 Unauthorized", "no record of SGLang", "division by zero"):
        assert said in text


@pytest.mark.parametrize("form", TEXT)
def test_a_report_without_a_deployment_is_written_too(form):
    assert formats.render(Report.of([]), form).endswith("\n")


def test_a_name_that_is_no_format_is_refused():
    with pytest.raises(KeyError):
        formats.render(Report.of([]), "layout")


@settings(max_examples=30, deadline=None)
@given(reports())
def test_plain_breaks_no_line_and_steers_no_terminal(report):
    text = formats.render(report, "plain")
    assert all(printable(line) == line for line in text.splitlines())
    for deployment in report.deployments:
        for finding in deployment.findings:
            words = printable(finding.message).split()
            assert any(words == line.split()[2:] for line in text.split("\n")), finding.message
