"""README and documentation: commands run as they stand print what stands below them; every page is found."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sgdoctor.cli.group import commands
from tests.collect import servers
from tests.pages import DOCS, LEFT_OUT, PAGES, ROOT, Block, blocks, invocations, matches

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_IN = re.compile(r"in (?P<folder>its folder|[\w./-]+)(?:, served on (?P<port>\d+))?")
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a captured server's answers; gives its URL."""
    name = folder.name
    routes = {
        "/v1/models": servers.captured(name, "v1_models.json"),
        "/server_info": servers.captured(name, "server_info_loaded.json"),
        "/model_info": servers.captured(name, "model_info.json"),
        "/metrics": servers.captured(name, "metrics.txt", "text/plain"),
        "/health": servers.reply(200),
    }
    with servers.running(routes) as server:
        yield server.url


def run(command: str, folder: Path, port: str | None, *, strict: bool) -> subprocess.CompletedProcess[str]:
    """Run a command of a page in bash; what it prints has the page's port again."""
    page = f"http://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(served(folder)) if port else page
        done = subprocess.run(
            ["bash", "-c", ("set -eo pipefail\n" if strict else "") + command.replace(page, here)],
            cwd=folder,
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "HOME": "/nonexistent",
                "LANG": "C.UTF-8",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert "Traceback" not in done.stderr
    done.stdout = done.stdout.replace(here, page)
    return done


def renew(page: Path, shown: str, printed: str) -> None:
    """Write what a command printed below it on its page."""
    text = page.read_text(encoding="utf-8")
    assert text.count(shown) == 1, f"{page.name}: shown twice, to be written by hand: {shown[:60]}"
    page.write_text(text.replace(shown, printed), encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_print_what_is_shown(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    renewed = request.config.getoption("--update-goldens")
    for block in blocks(page):
        if block.mark.startswith("file: "):
            (tmp_path / block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        given = _IN.fullmatch(block.mark)
        if given is None:
            continue
        folder = tmp_path if given["folder"] == "its folder" else ROOT / given["folder"]
        if block.language == "sh":
            done = run(block.text, folder, given["port"], strict=True)
            assert done.returncode == 0, f"{block.text}{done.stdout}{done.stderr}"
        for command, output in block.shown() if block.language == "console" else ():
            done = run(command, folder, given["port"], strict=False)
            if renewed and not LEFT_OUT.search(output) and output != done.stdout:
                renew(page, f"$ {command}\n{output}", f"$ {command}\n{done.stdout}")
            elif not matches(output, done.stdout):
                assert done.stdout == output, command


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_each_command_says_how_it_is_tested(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"^    (\$ )?(sgdoctor|pip|make) ", text, re.MULTILINE), "use a fence, with a mark"
    for block in blocks(page):
        if block.mark.startswith("run by "):
            assert (ROOT / block.mark.removeprefix("run by ")).is_file(), block
        elif block.has_commands():
            marked = _IN.fullmatch(block.mark) or re.match("not run: .", block.mark)
            assert marked, f"a comment of those in tests/pages.py goes above: {block.text}"


def wrong(words: list[str]) -> str:
    """Parse what stands behind `sgdoctor`, without looking at values; return what is wrong with it."""
    try:
        parse(words)
    except click.UsageError as error:
        return f"sgdoctor {' '.join(words)}: {error.format_message()}"
    return ""


def parse(words: list[str]) -> None:
    command: click.Command = commands
    context = click.Context(commands, None, "sgdoctor")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, found, words = command.resolve_command(context, words)
        assert found is not None
        command = found
        context = click.Context(command, context, command.name, **command.context_settings)
    command.make_parser(context).parse_args(list(words))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_each_command_has_only_options_that_there_are(page: Path) -> None:
    assert [problem for words in invocations(page) if (problem := wrong(words))] == []


def test_what_is_not_an_option_is_found() -> None:
    assert "--tagret" in wrong(["check", "--tagret", "sglang=latest"])
    assert "did you mean check" in wrong(["chek"])


@pytest.mark.parametrize("shown", ["a\nb\nc\n", "a\n...\n", "...\nc\n", "a\n...\nb\nc\n"])
def test_three_dots_stand_for_lines(shown: str) -> None:
    assert matches(shown, "a\nb\nc\n")


@pytest.mark.parametrize("shown", ["a\n", "...\nb\n", "a\n...\nd\n...\n", "a.b.c.\n"])
def test_all_other_lines_stand_for_themselves(shown: str) -> None:
    assert not matches(shown, "a\nb\nc\n")


def test_a_console_block_has_commands_with_their_output() -> None:
    block = Block("", "console", "$ one\n1\n$ two \\\n    --more\n2\n")
    assert list(block.shown()) == [("one", "1\n"), ("two \\\n    --more", "2\n")]


def listed(entries: list) -> Iterator[str]:
    """Iterate over the pages in a navigation."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else listed(value)


def test_every_page_is_in_the_navigation() -> None:
    """Rule pages are found from rules/index.md, which `make docs` writes from all rules."""
    there = {page.name for page in DOCS.glob("*.md")} | {"rules/index.md"}
    named = list(
        listed(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"])
    )
    assert set(named) == there, "each page of docs/ takes a line in zensical.toml"
    assert len(named) == len(there)
