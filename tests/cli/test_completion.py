"""Completion in bash: the script that docs/habits.md installs, in a bash that never reads anybody's files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "habits.md").read_text(encoding="utf-8")
INSTALL = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

# What bash does at <TAB>: it calls the function that `complete` has named, and shows COMPREPLY. `compopt` may
# only be called by bash itself, so here it says what it would switch on.
TAB = """
compopt() { printf 'compopt %s %s\\n' "$@"; }
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
function=$(complete -p sgdoctor | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
"$function" sgdoctor "${COMP_WORDS[COMP_CWORD]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Return the file that the page's command writes."""
    home = tmp_path_factory.mktemp("home")
    bash(INSTALL[0], home)
    return home / ".local" / "share" / "bash-completion" / "completions" / "sgdoctor"


def bash(text, home, *words):
    """Run a script in a bash that finds sgdoctor on PATH; return what it printed."""
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", text, "bash", *words],
        env={"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["ch"], ["check"]),
        (["s"], ["snapshot"]),
        (["check", "--lau"], ["--launch"]),
        (["check", "--launch", "run.sh", "--fail-on", "w"], ["warning"]),
        (["rules", "l"], ["lint", "list"]),
        (["check", "--launch", ""], ["compopt -o default"]),
        (["check", "--log", "ser"], ["compopt -o default"]),
        (["gate", "--con"], ["--config"]),
        (["check", "stray", "--wri"], ["--write-baseline"]),
        (["check", "--", ""], []),
        (["gate", "--", "sglang", "--t"], []),
        (["fix", "--", ""], []),
    ],
)
def test_what_tab_offers(script, tmp_path, line, offered):
    shown = bash(f"source {script}\n{TAB}", tmp_path, "sgdoctor", *line)
    assert sorted(filter(None, shown)) == offered


def test_zsh_and_fish_have_their_scripts(tmp_path):
    bash(INSTALL[1], tmp_path)
    assert (tmp_path / ".zfunc" / "_sgdoctor").read_text().startswith("#compdef sgdoctor\n")
    fish = tmp_path / ".config" / "fish" / "completions" / "sgdoctor.fish"
    assert "complete --no-files --command sgdoctor" in fish.read_text()
