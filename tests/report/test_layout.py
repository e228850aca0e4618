"""Text in columns."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdoctor.report.layout import columns, command, flow, plain, printable, words

NAME = "E=128,N=768,device_name=NVIDIA_L40S,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"


def test_a_paragraph_hangs_under_its_first_word():
    lines = flow(words("the log never said that the server is ready"), 30, 9, [("info", "info")])
    assert plain(lines) == "info     the log never said\n         that the server is\n         ready\n"


def test_later_lines_may_hang_further():
    lines = flow(words("one thing to do and no other"), 24, 4, [("do", "")], hang=2)
    assert plain(lines) == "do  one thing to do and\n      no other\n"


def test_an_opening_longer_than_the_indent_is_followed_by_a_space():
    lines = flow(words("two lines of text"), 24, 9, [("warning  CFG101 ", "")])
    assert plain(lines) == "warning  CFG101  two\n         lines of text\n"


def test_a_file_name_with_a_space_in_it_is_one_word():
    assert [word for word, _ in words(f"no folder has {NAME}.")] == ["no", "folder", "has", f"{NAME}."]


def test_a_word_too_long_for_the_indent_gets_its_own_line_further_left():
    text = plain(flow(words(f"it looks for {NAME} and fails"), 86, 9, [("warning", "")]))
    assert text == f"warning  it looks for\n   {NAME}\n         and fails\n"


def test_long_words_of_one_paragraph_start_at_the_same_column():
    path = "/opt/sglang/configs/" + "a" * 20
    text = plain(flow(words(f"both {path}.json and {path}_down.json"), 52, 9))
    assert text == f"         both\n  {path}.json\n         and\n  {path}_down.json\n"


def test_only_a_word_longer_than_the_line_is_broken_and_behind_a_separator():
    text = plain(flow(words("see /usr/local/lib/python3.12/dist-packages/sglang/srt/server_args.py"), 42, 9))
    assert text.splitlines() == [
        "         see",
        "  /usr/local/lib/python3.12/dist-packages/",
        "  sglang/srt/server_args.py",
    ]


def test_an_empty_word_widens_the_space():
    assert plain(flow([("1 error.", ""), ("", ""), ("58 rules", "")], 40)) == "1 error.  58 rules\n"


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8")), st.integers(20, 120), st.integers(0, 15))
def test_no_line_is_wider_than_asked_and_no_word_is_lost(text, width, indent):
    pieces = words(printable(text))
    laid_out = plain(flow(pieces, width, indent))
    assert all(columns(line) <= width for line in laid_out.splitlines())
    assert "".join(laid_out.split()) == "".join("".join(word for word, _ in pieces).split())


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.sampled_from(
            ["--tp-size", "4", "'two words'", '"a  b"', "'kernels<0.10'", "/models/Qwen3.5-122B-A10B"]
        )
    ),
    st.integers(24, 90),
)
def test_a_wrapped_command_is_the_same_command(arguments, width):
    script = plain(command(" ".join(["printf", r"'%s\n'", "x", *arguments]), width, 4))
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    direct = " ".join(["printf", r"'%s\n'", "x", *arguments])
    asked = subprocess.run(["bash", "-c", direct], capture_output=True, text=True, check=True)
    assert told.stdout == asked.stdout


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("TP 4 · 2 x H200", "utf-8", "TP 4 · 2 x H200"),
        ("TP 4 · 2 x H200", "ascii", "TP 4 - 2 x H200"),
        ("from 0.5.14 → fatal …", "latin-1", "from 0.5.14 -> fatal ..."),
        ("模型", "ascii", r"\u6a21\u578b"),
        ("a\x1b[2Jb", "utf-8", r"a\x1b[2Jb"),
        ("\u202etxt.exe", "utf-8", r"\u202etxt.exe"),
        ("name\udc80", "utf-8", r"name\udc80"),
    ],
)
def test_what_a_terminal_cannot_show_or_must_not_obey_is_spelt_out(text, encoding, shown):
    assert printable(text, encoding) == shown


def test_wide_characters_count_twice():
    assert columns("模型 m") == 6
