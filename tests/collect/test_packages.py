"""What is installed, read from environments on disk and never by importing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sgdoctor.collect import packages, python_env
from sgdoctor.errors import UsageError
from sgdoctor.facts import Facts, Unknown
from tests.collect import layouts


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a site-packages folder with what SGLang 0.5.12 stands on."""
    folder = tmp_path / "lib" / "python3.12" / "site-packages"
    folder.mkdir(parents=True)
    layouts.sglang(folder, "0.5.12")
    layouts.torch(folder, "2.11.0")
    layouts.triton(folder, "3.6.0")
    layouts.distribution(folder, "flashinfer_python", "0.6.11.post1")
    layouts.distribution(folder, "sglang-kernel", "0.4.2.post2")
    return folder


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """Return a virtual environment made by this Python."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder


def read(target: str | Path, **options) -> Facts:
    facts = Facts()
    packages.read_packages(facts, python_env.locate(str(target), **options))
    return facts


def venv_site(venv: Path) -> Path:
    return next(venv.glob("lib/python3*/site-packages"))


def test_a_site_packages_folder_gives_versions_and_where_they_stand(site: Path) -> None:
    facts = read(site)
    assert facts.value("sglang.version") == "0.5.12"
    assert facts.value("sglang.path") == str(site / "sglang")
    assert facts.value("triton.version") == "3.6.0"
    assert facts.value("torch.version") == "2.11.0"
    assert facts.value("torch.cuda") == "13.0"
    assert facts.value("torch.triton_pin") == "3.6.0"
    assert facts.value("package.flashinfer_python") == "0.6.11.post1"
    kernel = facts.get("package.sglang_kernel")
    assert kernel.provenance[0].place == str(site / "sglang_kernel-0.4.2.post2.dist-info" / "METADATA")
    assert facts.value("packages.complete") is True
    assert facts.notes == []


def test_what_a_complete_listing_lacks_is_known_to_be_absent(site: Path) -> None:
    facts = read(site)
    assert facts.known("package.kernels")
    assert facts.value("package.kernels") is None
    assert facts.value("package.sgl_kernel", "unset") is None


def test_a_virtual_environment_is_asked_through_its_interpreter(venv: Path) -> None:
    layouts.sglang(venv_site(venv), "0.5.12")
    for target in (venv, venv / "bin" / "python"):
        environment = python_env.locate(str(target))
        assert environment.python == ".".join(map(str, sys.version_info[:3]))
        assert environment.interpreter == str(venv / "bin" / "python")
        facts = Facts()
        packages.read_packages(facts, environment)
        assert facts.value("sglang.path") == str(venv_site(venv) / "sglang")
        assert facts.notes == []


def test_a_virtual_environment_whose_interpreter_is_gone_is_read_off_its_folders(venv: Path) -> None:
    layouts.triton(venv_site(venv), "3.6.0")
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("/nowhere/python3")
    environment = python_env.locate(str(venv))
    assert environment.interpreter is None
    assert not python_env.has_sglang(environment)
    assert environment.python == f"{sys.version_info[0]}.{sys.version_info[1]}"
    facts = Facts()
    packages.read_packages(facts, environment)
    assert facts.value("triton.version") == "3.6.0"


def test_an_interpreter_that_hangs_is_left_after_its_time(tmp_path: Path) -> None:
    program = tmp_path / "env" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    layouts.triton(tmp_path / "env" / "lib" / "python3.12" / "site-packages", "3.6.0")
    environment = python_env.locate(str(program), timeout=0.3)
    assert "did not finish within 0.3 s" in environment.problems[0]
    facts = Facts()
    packages.read_packages(facts, environment)
    assert facts.value("triton.version") == "3.6.0"
    assert facts.notes == list(environment.problems)


@pytest.mark.parametrize("target", ["no-such-program-anywhere", "/no/such/folder"])
def test_a_python_that_does_not_exist_is_a_usage_error(target: str) -> None:
    with pytest.raises(UsageError, match="no such"):
        python_env.locate(target)


def test_a_folder_without_packages_and_a_plain_file_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a virtual environment nor a folder"):
        python_env.locate(str(tmp_path))
    plain = tmp_path / "notes.txt"
    plain.write_text("")
    with pytest.raises(UsageError, match="neither an interpreter"):
        python_env.locate(str(plain))


def test_an_editable_install_is_found_through_direct_url(site: Path, tmp_path: Path) -> None:
    shutil.rmtree(site / "sglang")
    source = tmp_path / "sgl-workspace" / "sglang" / "python"
    layouts.sglang_sources(source, "0.5.14.dev3+g1234567")
    layouts.direct_url(site / "sglang-0.5.12.dist-info", source)
    facts = read(site)
    assert facts.value("sglang.path") == str(source / "sglang")
    assert facts.value("sglang.version") == "0.5.14.dev3+g1234567"
    assert "0.5.12" in facts.notes[0]  # the metadata of an older build


def test_an_editable_install_is_found_through_a_pth_file(venv: Path, tmp_path: Path) -> None:
    source = tmp_path / "sglang" / "python"
    layouts.sglang_sources(source, "0.5.13")
    egg = source / "sglang.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.13\n")
    (venv_site(venv) / "easy-install.pth").write_text(f"import sys\n# comment\n{source}\n")
    for target in (venv, venv_site(venv)):
        facts = read(target)
        assert facts.value("sglang.path") == str(source / "sglang")
        assert facts.value("package.sglang") == "0.5.13"


def test_pythonpath_comes_before_what_is_installed(site: Path, tmp_path: Path) -> None:
    source = tmp_path / "checkout" / "python"
    layouts.sglang_sources(source, "0.5.20")
    assert python_env.has_sglang(python_env.locate(str(site)))
    facts = read(site, python_path=[str(source)])
    assert facts.value("sglang.version") == "0.5.20"
    assert facts.value("sglang.path") == str(source / "sglang")


def test_tritons_own_version_counts_not_its_distributions(site: Path) -> None:
    """PyTorch's nightlies install `triton` under another name, and builds from source have a local part."""
    shutil.rmtree(site / "triton")
    shutil.rmtree(site / "triton-3.6.0.dist-info")
    layouts.triton(site, "3.5.1+gitbfeb0668", "pytorch-triton")
    facts = read(site)
    assert facts.value("triton.version") == "3.5.1+gitbfeb0668"
    assert facts.value("package.pytorch_triton") == "3.5.1"


def test_a_requirement_of_triton_that_is_no_exact_pin(tmp_path: Path) -> None:
    layouts.torch(tmp_path / "lib" / "python3.12" / "site-packages", "2.14.1")
    facts = read(tmp_path / "lib" / "python3.12" / "site-packages")
    assert facts.value("torch.triton_requirement") == "triton~=3.8.0"
    assert facts.known("torch.triton_pin")
    assert facts.value("torch.triton_pin") is None


@pytest.mark.parametrize(("machine", "expected"), [("x86_64", "triton==3.5.1"), ("aarch64", None)])
def test_a_requirement_of_triton_holds_only_for_its_processor(
    site: Path, machine: str, expected: str
) -> None:
    shutil.rmtree(site / "torch")
    shutil.rmtree(site / "torch-2.11.0.dist-info")
    layouts.torch(site, "2.9.1")
    (site / "torch-2.9.1.dist-info" / "WHEEL").write_text(f"Tag: cp312-cp312-manylinux_2_28_{machine}\n")
    assert read(site).value("torch.triton_requirement", "unset") == expected


def test_a_torch_without_cuda(site: Path) -> None:
    file = site / "torch" / "version.py"
    file.write_text(file.read_text().replace("'13.0'", "None"))
    facts = read(site)
    assert facts.known("torch.cuda")
    assert facts.value("torch.cuda") is None


def test_two_versions_of_one_distribution_are_not_decided_between(site: Path) -> None:
    layouts.distribution(site, "transformers", "4.57.1")
    layouts.distribution(site, "transformers", "5.6.0")
    facts = read(site)
    assert isinstance(facts.get("package.transformers"), Unknown)
    assert "twice" in facts.get("package.transformers").reason
    assert any("lists transformers twice" in note for note in facts.notes)


def test_leftovers_of_an_uninstall_are_not_installed(site: Path) -> None:
    layouts.distribution(site, "~ransformers", "4.57.1")
    (site / "kernels-0.12.0.dist-info").mkdir()
    facts = read(site)
    assert facts.value("package.transformers", "unset") is None
    assert facts.value("package.kernels", "unset") is None
    assert [note for note in facts.notes if "left over from an uninstall" in note]


def test_metadata_that_is_no_text_becomes_a_note(site: Path) -> None:
    (site / "kernels-0.12.0.dist-info").mkdir()
    (site / "kernels-0.12.0.dist-info" / "METADATA").write_bytes(b"\xff\xfe\x00\x01" * 100)
    facts = read(site)
    assert any("names no package and version" in note for note in facts.notes)
    assert facts.value("triton.version") == "3.6.0"


def test_a_version_that_is_none_is_unknown(site: Path) -> None:
    layouts.distribution(site, "kernels", "unknown-build")
    assert isinstance(read(site).get("package.kernels"), Unknown)


def test_an_environment_without_sglang_says_so(venv: Path) -> None:
    facts = read(venv)
    assert facts.value("sglang.path", "unset") is None
    assert facts.get("sglang.version") == Unknown(f"SGLang is not installed in {venv}")


def test_a_container_is_read_through_its_root(tmp_path: Path) -> None:
    """As in SGLang's images: Debian's layout and an editable install of /sgl-workspace."""
    root = tmp_path / "root"
    local = root / "usr/local/lib/python3.12/dist-packages"
    layouts.distribution(local, "sglang", "0.5.12")
    layouts.sglang_sources(root / "sgl-workspace/sglang/python", "0.5.12")
    layouts.direct_url(local / "sglang-0.5.12.dist-info", Path("/sgl-workspace/sglang/python"))
    (local / "__editable__.sglang-0.5.12.pth").write_text("/sgl-workspace/sglang/python\n")
    layouts.triton(local, "3.6.0")
    layouts.distribution(root / "usr/lib/python3/dist-packages", "packaging", "24.0")
    environment = python_env.under_root("/usr/bin/python3", root)
    facts = Facts()
    packages.read_packages(facts, environment)
    assert environment.interpreter is None
    assert environment.python == "3.12"
    assert facts.value("sglang.path") == str(root / "sgl-workspace/sglang/python/sglang")
    assert facts.value("triton.version") == "3.6.0"
    assert facts.value("package.packaging") == "24.0"


def test_several_pythons_below_one_prefix_are_told_apart_by_sglang_or_not_at_all(tmp_path: Path) -> None:
    old = tmp_path / "usr/lib/python3.10/dist-packages"
    new = tmp_path / "usr/local/lib/python3.12/dist-packages"
    layouts.triton(old, "3.4.0")
    layouts.triton(new, "3.6.0")
    facts = Facts()
    packages.read_packages(facts, python_env.under_root("/usr/bin/python3", tmp_path))
    assert isinstance(facts.get("triton.version"), Unknown)
    assert any("which one was used is not known" in note for note in facts.notes)
    layouts.sglang(new, "0.5.12")
    facts = Facts()
    packages.read_packages(facts, python_env.under_root("/usr/bin/python3", tmp_path))
    assert facts.value("triton.version") == "3.6.0"
    facts = Facts()
    packages.read_packages(facts, python_env.under_root("/usr/bin/python3", tmp_path, version="3.10"))
    assert facts.value("triton.version") == "3.4.0"


def test_python3_means_the_operators_never_the_doctors_own(venv: Path, tmp_path: Path) -> None:
    own = tmp_path / "doctor"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(own)], check=True)
    path = f"{own}/bin{os.pathsep}{venv}/bin"
    assert python_env.default_python({"PATH": path}, str(own)) == str(venv / "bin" / "python3")
    assert python_env.default_python({"PATH": f"{own}/bin"}, str(own)) is None
    active = {"PATH": path, "VIRTUAL_ENV": str(venv)}
    assert python_env.default_python(active, str(own)) == str(venv / "bin" / "python")
    layouts.sglang(venv_site(own), "0.5.12")
    assert python_env.default_python({"PATH": f"{own}/bin"}, str(own)) == f"{own}/bin/python3"


def test_the_doctors_own_python_counts_where_pythonpath_has_sglang(venv: Path, tmp_path: Path) -> None:
    """As in a container whose packages lie in a folder of their own: python3 there finds them."""
    own, site = tmp_path / "doctor", tmp_path / "site"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(own)], check=True)
    layouts.sglang(site, "0.5.12")
    layouts.triton(site, "3.6.0")
    variables = {"PATH": f"{own}/bin{os.pathsep}{venv}/bin", "PYTHONPATH": f"{tmp_path}{os.pathsep}{site}"}
    found = python_env.default(variables, str(own))
    assert found is not None
    assert (found.place, found.interpreter) == (f"{own}/bin/python3", f"{own}/bin/python3")
    assert found.python_path == (tmp_path, site)
    assert found.search[:2] == (tmp_path, site)
    facts = Facts()
    packages.read_packages(facts, found)
    assert facts.value("sglang.path") == str(site / "sglang")
    assert facts.value("triton.version") == "3.6.0"
    elsewhere = python_env.default({**variables, "PYTHONPATH": str(tmp_path)}, str(own))
    assert elsewhere is not None
    assert elsewhere.place == f"{venv}/bin/python3"


def test_deep_says_why_the_import_fails(venv: Path) -> None:
    package = layouts.sglang(venv_site(venv), "0.5.12")
    reason = "Either a revision or a version must be specified."
    (package / "__init__.py").write_text(f"raise ValueError({reason!r})\n")
    facts = Facts()
    packages.try_import(facts, python_env.locate(str(venv)))
    assert facts.value("sglang.import_error") == f"ValueError: {reason}"
    assert not list(package.glob("__pycache__"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", None),
        ("import os; os.kill(os.getpid(), 11)", "the process was ended by signal 11"),
        ("raise SystemExit(3)", "exit status 3"),
        ("raise OSError('https://u:pw@host')", "OSError: https://u:<redacted>@host"),
    ],
)
def test_deep_tells_how_the_import_ended(venv: Path, code: str, said: str | None) -> None:
    (layouts.sglang(venv_site(venv), "0.5.12") / "__init__.py").write_text(code)
    facts = Facts()
    packages.try_import(facts, python_env.locate(str(venv)))
    assert facts.known("sglang.import_error")
    assert facts.value("sglang.import_error") == said


def test_deep_leaves_an_import_that_does_not_end(venv: Path) -> None:
    (layouts.sglang(venv_site(venv), "0.5.12") / "__init__.py").write_text("import time; time.sleep(600)")
    facts = Facts()
    packages.try_import(facts, python_env.locate(str(venv)), timeout=0.5)
    assert "did not finish" in facts.get("sglang.import_error").reason


def test_deep_runs_nothing_of_another_mount_namespace(tmp_path: Path) -> None:
    facts = Facts()
    packages.try_import(facts, python_env.under_root("/usr/bin/python3", tmp_path))
    assert "cannot be run from here" in facts.get("sglang.import_error").reason
