"""Scripts are followed as bash runs them: held against bash itself wherever everything can be known."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sgdoctor.collect.launch import parse_script
from sgdoctor.collect.launch_bash import Walk, follow
from sgdoctor.errors import UsageError

# Stands in for python3 and sglang: writes the words it is given.
STUB = """#!/bin/bash
for word in "$@"; do printf '%s\\0' "$word"; done >>"$(dirname "$0")/words"
printf '\\036\\0' >>"$(dirname "$0")/words"
"""


class Bash:
    """The real bash, with stubs for what starts SGLang."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("python", "python3", "sglang"):
            stub = folder / name
            stub.write_text(STUB)
            stub.chmod(0o755)

    def starts(self, script: str) -> list[list[str]]:
        """Run ``script`` and return the arguments of the servers it started, in order."""
        words = self.folder / "words"
        words.unlink(missing_ok=True)
        environment = {"PATH": f"{self.folder}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        subprocess.run(
            ["bash", "-c", script, "script"],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            timeout=30,
            check=False,
        )
        found: list[list[str]] = [[]]
        for word in words.read_bytes().split(b"\0")[:-1] if words.exists() else []:
            if word == b"\x1e":
                found.append([])
            else:
                found[-1].append(os.fsdecode(word))
        return [start for command in found if (start := server_arguments(command)) is not None]


def server_arguments(words: list[str]) -> list[str] | None:
    if words[:1] == ["serve"]:
        return words[1:]
    return words[words.index("sglang.launch_server") + 1 :] if "sglang.launch_server" in words else None


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Bash:
    return Bash(tmp_path_factory.mktemp("bash"))


def walk(script: str) -> Walk:
    walked = Walk("launch.sh")
    follow(script, walked)
    return walked


def starts(script: str) -> list[list[str]]:
    """Return what ``script`` starts, as sgdoctor follows it."""
    return [[word.text for word in found.launch.arguments] for found in walk(script).found]


COMPLETE = {
    "one line": "python3 -m sglang.launch_server --model-path /models/m --tp 4",
    "continuation lines": "python3 -m sglang.launch_server \\\n  --model-path m \\\n  --tp 4\n",
    "variables": 'MODEL=/models/m\nTP=4\npython3 -m sglang.launch_server --model "$MODEL" --tp ${TP}',
    "an empty variable": 'E=""\npython3 -m sglang.launch_server $E "$E" x$E',
    "flags in a variable": 'F="--a 1\n --b"\npython3 -m sglang.launch_server $F "$F"',
    "added to": "F=--a\nF+=' --b'\nF=\"$F --c\"\npython3 -m sglang.launch_server $F",
    "an array": 'A=(--model "a b" # why\n --tp 4)\nA+=(--dp 2)\nsglang serve "${A[@]}" ${A[@]}',
    "array elements": 'A=(a "b c" d)\npython3 -m sglang.launch_server ${A[1]} "${A[*]}" $A x"${A[@]}"y',
    "an empty array": 'A=()\npython3 -m sglang.launch_server "${A[@]}" ${A[@]+"${A[@]}"} end',
    "defaults": "python3 -m sglang.launch_server ${P:-30000} ${Q-'a b'} \"${R:-x y}\" ${S:=4} $S",
    "alternatives": 'A=1; B=\npython3 -m sglang.launch_server ${A:+yes} ${B:+no} ${B+set} ${B:-"d e"}',
    "ends cut off": "M=/a/b.c/d.e\npython3 -m sglang.launch_server ${M##*/} ${M%/*} ${M%.*} ${M#*/} ${M%%.*}",
    "quotes": "sglang serve 'a \"b\" $c' \"d 'e' \\$f \\\\ \\x\" g\\ h \\-i \"\"'' a'b'\"c\"",
    "json": """python3 -m sglang.launch_server --json-model-override-args '{"a": [1, "b c"]}'""",
    "dollar quotes": "python3 -m sglang.launch_server $'a\\tb\\x41\\101' $\"c\"",
    "blanks between expansions": 'A=1; B=2; python3 -m sglang.launch_server "$A $B  ${A} " "  $A" "$A"',
    "a newline in quotes": 'A="1\n2"; python3 -m sglang.launch_server "a\n  b" "$A" "c\\\nd" e\\\nf',
    "environment before the command": "A=1 B='x y' python3 -u -m sglang.launch_server --tp 2",
    "env": "env -u B A=1 python3 -m sglang.launch_server --tp 2",
    "env with one text": "env -u B -S 'A=1 python3 -m  sglang.launch_server --tp 2' --dp '3 4'",
    "exec": "set -e\nexec python3 -m sglang.launch_server --tp 2\npython3 -m sglang.launch_server never",
    "in the background": "nohup python3 -m sglang.launch_server --tp 2 > /dev/null 2>&1 &\nwait",
    "a pipeline": "python3 -m sglang.launch_server --tp 2 2>&1 | cat > /dev/null",
    "words behind a redirection": "sglang serve --a > /dev/null --tp 2 \\\n 2>&1 --dp 4 < /dev/null",
    "a redirection before the command": "> /dev/null 2>&1 python3 -m sglang.launch_server --tp 2 --dp 4",
    "bash -c": "bash -c \"cd / && exec python3 -m sglang.launch_server --a 'b c' \\\n --d\"",
    "bash -c with arguments": "bash -c 'python3 -m sglang.launch_server $1 \"$@\"' x a 'b c'",
    "bash -c inherits what is exported": "export A=1; bash -c 'python3 -m sglang.launch_server a$A'",
    "eval": "C='python3 -m sglang.launch_server --a'\neval \"$C 'b c'\"\n$C 'd e'",
    "a function": 'run() { local tp=$1; shift; sglang serve --tp $tp "$@"; }\nrun 4 --a "b c"\nrun 2',
    "a function that runs what it is given": 'log() { echo "$*"; "$@"; }\nlog sglang serve --tp 2',
    "a loop over ports": "for p in 1 '2 3'; do python3 -m sglang.launch_server --port $p; done",
    "positional parameters": 'set -- --a "b c"\nsglang serve "$@" $1 "$*" "$3"\nshift\nsglang serve "$@"',
    "a branch that changes nothing": "if [ -e /x ]; then A=1; else A=1; fi\nsglang serve $A",
    "a branch that ends": "if [ -z x ]; then A=2; exit 1; fi\n[ -z x ] && exit 2\nA=1\nsglang serve $A",
    "and then": "cd / && A=1 && python3 -m sglang.launch_server $A",
    "a restart loop": "while true; do python3 -m sglang.launch_server --tp 2; break; done",
    "a group and a subshell": "{ A=1; }\n( A=2; sglang serve $A )\nsglang serve $A",
    "unset": "A=1; unset A; python3 -m sglang.launch_server x$A ${A:-2}",
    "a here-document for a shell": 'T=4\nbash <<EOF\npython3 -m sglang.launch_server --tp $T "a b"\nEOF',
    "a quoted here-document": "T=4\nbash <<'EOF'\nT=2\npython3 -m sglang.launch_server --tp $T\nEOF",
    "a here-document for a file": "cat > /dev/null <<EOF\nsglang serve no\nEOF\nsglang serve yes",
    "a comment between continued lines": "python3 -m sglang.launch_server --a \\\n  # --b \\\n  --c\n",
    "several assignments": "A=1 B=2\nreadonly C=3\ndeclare D=4; export E\nsglang serve $A $B $C $D",
    "an array's first element": "A=(a b)\nA+=c\nB=x\nB+=(y)\nsglang serve ${A[@]} ${B[@]} ${B[0]}",
    "local variables": "A=1; f() { local A B=2; sglang serve x$A $B; A=3; }; f; sglang serve $A",
    "loops that count": "for ((i = 0; i < 1; i++)); do sglang serve m; done",
    "ten arguments": "set -- a b c\npython3 -m sglang.launch_server $11 ${11} ${3}",
    "escaped blanks": "python3 -m sglang.launch_server \\  a\\ b \\ c\\  \\  > /dev/null",
    "a blank behind the backslash": "python3 -m sglang.launch_server --a \\ \n  --b\n",
    "characters beyond ASCII": "A=é\nsglang serve \"$A—x\" '日本' ü$A {\U0001f600 a{\U0010ffff",
    "several assignments, then an array": 'A=1 B=2\nC=(--tp 2 --dp $B)\nsglang serve m$A "${C[@]}"',
    "several assignments, then a command": "A=1 B=2\n# why\nD=$A E=3 sglang serve m$A$B",
    "several assignments, then others": "A=1 B=2\nA=3 C=$A\n\nD=5 sglang serve $A $B $C",
    "comments as empty commands": "sglang serve `# don't (é)` --tp 2 \\\n  `# own` \\\n  --dp 2 `# | end`\n",
    "such a comment within quotes": 'bash -c "sglang serve m `# (a` \\\n  --tp 2"\nsglang serve "a `# b` c"',
    "a server in a substitution": "P=$(sglang serve m > /dev/null; echo $!)\nexport Q=`sglang serve n`",
    "substitutions within words": 'A=1; echo "x $(A=2; sglang serve $A)"; cat <(sglang serve $A) > /dev/null',
    "substitutions that decide": (
        'if [ -n "$(sglang serve a)" ]; then :; fi; [[ -n $(sglang serve b) ]]; A=($(sglang serve c))\n'
        "for x in $(sglang serve d); do :; done; case $(sglang serve e) in f) ;; esac; : < <(sglang serve f)"
    ),
    "a vertical tab is no blank": "A='a\vb\fc'\nsglang serve a\v--b c\f--d e\rf $A 'g\vh' i\vj\n",
    "unset takes functions": "f() { sglang serve m; }; unset -f f; f; g() { f; }; unset g; g; sglang serve n",
    "unset takes the variable first": "f() { sglang serve m$f; }; f=1; unset f; f",
    "another IFS that parts nothing": (
        'f() { local IFS=,; :; }; f; O=$IFS; IFS=,; A="a b"; IFS=$O; sglang serve $A\n'
        "while IFS= read -r x; do :; done < /dev/null\nIFS=$'\\n\\t'; set -- \"$A\"; B=c\n"
        'sglang serve $B "$A" "$@"'
    ),
    "a here-string for a shell": "A=1; bash <<< \"sglang serve $A 'b c'\"; sh -s d <<< 'sglang serve $1'",
    "a here-string for a file": 'cat <<< "sglang serve no"; sglang serve yes',
    "words that only talk": "echo python3 -m sglang.launch_server x\nsglang serve y",
}


@pytest.mark.parametrize("script", COMPLETE.values(), ids=list(COMPLETE))
def test_as_bash(bash: Bash, script: str):
    followed = walk(script)
    assert all(word.known for found in followed.found for word in found.launch.arguments)
    assert starts(script) == bash.starts(script) != []


def test_a_command_begins_behind_the_assignments_on_lines_before_it():
    (found,) = walk("A=1 B=2\nC=(--tp 2)\n\nD=3 sglang serve m \\\n  ${C[@]}\n").found
    assert (found.line, found.end_line) == (4, 5)


LITERAL = st.sampled_from(
    ["a", "--b", "1", "x=y", "e\\ f", "g\\  \\ h", "i\vj", '\\"', "\\$", "/", "c.d", "é", "-"]
)
DOUBLE = st.lists(
    st.sampled_from(
        ["a", " ", "  b", "$A", "${B}", "${A:-d e}", '\\"', "\\\\", "\\$", "\\x", "'", "\n", "${ARR[*]}"]
    ),
    max_size=4,
).map(lambda parts: '"' + "".join(parts) + '"')
EXPANSION = st.sampled_from(
    [
        "$A",
        "${B}",
        '"$A"',
        '"${ARR[@]}"',
        "${ARR[@]}",
        "${ARR[0]}",
        "${A:-x}",
        '${B:-"y z"}',
        "${A##*/}",
        '"$@"',
        "$1",
    ]
)
SINGLE = st.sampled_from(["'a b'", "''", "'$A'", "'\\'", "$'a\\tb'"])
WORD = st.lists(st.one_of(LITERAL, DOUBLE, EXPANSION, SINGLE), min_size=1, max_size=3).map("".join)
WORDS = st.lists(WORD, max_size=3).map(" ".join)
SIMPLE = st.one_of(
    WORD.map(lambda word: f"A={word}"),
    WORD.map(lambda word: f"B+={word}"),
    WORDS.map(lambda words: f"ARR=({words})"),
    WORDS.map(lambda words: f"ARR+=({words})"),
    WORDS.map(lambda words: f"set -- {words}"),
    WORDS.map(lambda words: f"python3 -m sglang.launch_server {words}"),
    WORDS.map(lambda words: f"f {words}"),
    st.just("shift"),
    st.just("unset A"),
    st.just('unset "ARR[0]"'),
    st.sampled_from(["IFS=/", "IFS=", "unset IFS"]),
    WORDS.filter(lambda words: "'" not in words).map(lambda words: f"bash <<< 'sglang serve {words}'"),
)
STATEMENT = st.one_of(
    SIMPLE,
    st.tuples(SIMPLE, SIMPLE).map("; ".join),
    st.tuples(WORDS, SIMPLE).map(lambda pair: f"for A in {pair[0]}; do {pair[1]}; done"),
    SIMPLE.map(lambda inner: f"( {inner} )"),
    # bash 5.2 itself stumbles over ARR=(\\") there.
    SIMPLE.filter(lambda inner: not inner.startswith("ARR")).map(lambda inner: f"C=$( {inner} )"),
    SIMPLE.map(lambda inner: f"{{ {inner}; }}"),
    SIMPLE.map(lambda inner: f"if true; then {inner}; else {inner}; fi"),
)
FUNCTION = 'f() { local A=$1; sglang serve "$A" "$@" $B; }\n'


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STATEMENT, min_size=1, max_size=5))
def test_any_script_of_these_statements_is_followed_as_bash_runs_it(bash: Bash, statements: list[str]):
    script = "A=; B=b; ARR=()\nset --\n" + FUNCTION + "\n".join(statements) + "\nsglang serve end\n"
    followed = walk(script)
    assume(all(word.known for found in followed.found for word in found.launch.arguments))
    ours = [[word.text for word in found.launch.arguments] for found in followed.found]
    theirs = bash.starts(script)
    distinct = [start for number, start in enumerate(theirs) if start not in theirs[:number]]
    assert [start for number, start in enumerate(ours) if start not in ours[:number]] == distinct


# --- what cannot be known -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "text", "reason"),
    [
        ("$TP", "$TP", "TP is not set in the script"),
        ("${TP}", "$TP", "TP is not set in the script"),
        ("$(nproc)", "$(nproc)", "a command's output"),
        ("`nproc`", "`nproc`", "a command's output"),
        ("$((1 + 1))", "$((1 + 1))", "arithmetic"),
        ("$1", "$1", "the script's own argument 1"),
        ('"$@"', "$@", "the script's own arguments"),
        ("{a,b}", "{a,b}", "a brace expansion"),
        ("*.json", "*.json", "a file name pattern"),
        ("${TP^^}", "$TP", "an expansion that is not followed"),
        ("${TP:?set it}", "$TP", "TP is not set in the script"),
        ("$COMMAS", "$COMMAS", "IFS is changed"),
        ('"${LIST[*]}"', "${LIST[*]}", "IFS is changed"),
    ],
)
def test_a_word_that_depends_on_the_moment_keeps_its_source(word: str, text: str, reason: str):
    commas = "" if "IFS" not in reason else "COMMAS=a,b LIST=(a b); IFS=,\n"
    (found,) = walk(f"{commas}python3 -m sglang.launch_server --x {word} --y").found
    unknown = found.launch.arguments[1]
    assert (unknown.text, unknown.known, unknown.reason) == (text, False, reason)
    assert found.launch.arguments[2].text == "--y"


def test_zsh_takes_the_name_of_an_array_for_all_of_it():
    script = '#!/usr/bin/env zsh\nA=(--tp 2)\nB="c d"\nsglang serve $A $B "$A" ${A[1]}\n'
    (found,) = walk(script).found
    words = [(word.text, word.known) for word in found.launch.arguments]
    assert words == [("--tp", True), ("2", True), ("c d", True), ("--tp 2", True), ("$A", False)]


def test_what_python_is_given_as_text_is_no_shell_script():
    walked = walk('python3 -u -c "from sglang.launch_server import x; x()" --tp 2\nsglang serve m\n')
    assert [found.line for found in walked.found] == [2]
    assert not walked.problems


def test_known_text_around_an_unknown_part_is_kept():
    (found,) = walk('python3 -m sglang.launch_server --model "$ROOT/qwen" --tp=$TP').found
    assert found.launch.arguments[1].text == "$ROOT/qwen"
    assert found.launch.arguments[2].prefix == "--tp="


def test_a_branch_leaves_what_both_ways_have_in_common():
    script = 'A=(--model m)\nE="--a"\nif $X; then A+=(--tp 2); E="$E --b"; T=1; fi\n'
    (found,) = walk(script + 'python3 -m sglang.launch_server "${A[@]}" $E --t $T').found
    assert [(word.text, word.known) for word in found.launch.arguments] == [
        ("--model", True),
        ("m", True),
        ("$A", False),
        ("--a", True),
        ("$E", False),
        ("--t", True),
        ("$T", False),
    ]
    assert found.launch.arguments[2].many


@pytest.mark.parametrize(
    "change",
    [
        "case $X in a) T=1;; *) T=2;; esac",
        "while read -r line; do T=2; done",
        "for x in $LIST; do T=$x; done",
        '[ -n "$X" ] && T=2',
        "read -r T",
        "((T++))",
        "for ((T=0; T<4; T++)); do :; done",
        "T[1]=2; A=(x)",
        'unset "T[0]"',
        "unset 'T[$X]'",
        "printf -v T %s 2",
        "let T=2",
        "U+=1; T=$U",
        "declare -A U=([a]=1); T=${U[a]}",
        "eval $X; export $(cat env); T=$U",
        "until $X; do T=2; done",
        "select T in 1 2; do break; done",
    ],
)
def test_a_variable_that_may_have_changed_is_unknown(change: str):
    (found,) = walk(f"T=1\n{change}\npython3 -m sglang.launch_server --tp $T").found
    assert [word.known for word in found.launch.arguments] == [True, False]


def test_a_default_is_taken_and_said():
    walked = walk("python3 -m sglang.launch_server --port ${PORT:-30000}")
    assert walked.found[0].launch.arguments[1].text == "30000"
    assert walked.notes == [
        "launch.sh:1: $PORT is taken at its default there, which the environment may override"
    ]


def test_but_not_behind_a_file_that_may_set_it():
    (found,) = walk("source env.sh\npython3 -m sglang.launch_server --port ${PORT:-30000}").found
    assert found.launch.arguments[1].reason == "PORT is not set in the script (env.sh may set it)"


def test_home_keeps_its_short_name():
    (found,) = walk('python3 -m sglang.launch_server --model "$HOME/m" --x ~/y').found
    assert [word.text for word in found.launch.arguments][1::2] == ["~/m", "~/y"]


def test_functions_that_nothing_calls_are_looked_at_when_nothing_else_starts_a_server():
    (found,) = walk('start() { python3 -m sglang.launch_server --tp "$1"; }').found
    assert [(word.text, word.known) for word in found.launch.arguments] == [("--tp", True), ("$1", False)]


@pytest.mark.parametrize("asks", ["--help | grep -q -- --new-flag", "-h", "--tp 2 --help"])
def test_what_asks_for_the_help_starts_no_server(asks: str):
    script = f"if python3 -m sglang.launch_server {asks}; then A=--new-flag; fi\nsglang serve m $A\n"
    (found,) = walk(script).found
    assert found.line == 2


# --- lines and notes ------------------------------------------------------------------------------------


def test_each_word_has_the_line_it_stands_on():
    script = 'F="--a\n--b"\nA=(\n  --c\n  --d 1\n)\npython3 -m sglang.launch_server $F \\\n  "${A[@]}" --e\n'
    (found,) = walk(script).found
    lines = {word.text: word.line for word in found.launch.arguments}
    assert lines == {"--a": 1, "--b": 2, "--c": 4, "--d": 5, "1": 5, "--e": 8}
    assert (found.line, found.end_line) == (7, 8)


def test_also_within_a_script_in_quotes():
    script = '\nbash -lc "cd /sgl-workspace &&\n  python3 -m sglang.launch_server --a \\\n  --b"\n'
    (found,) = walk(script).found
    assert [(word.text, word.line) for word in found.launch.arguments] == [("--a", 3), ("--b", 4)]


def test_a_name_that_is_to_be_filled_in_is_asked_for():
    """Guides write --host <IP>; unquoted, that reads from one file and writes to another."""
    script = "python3 -m sglang.launch_server --model-path m \\\n  --dist-init-addr <HEAD IP>:5000 --tp 8\n"
    (note,) = walk(script).notes
    assert note == "launch.sh:2: for bash <HEAD IP> is two redirections; is it to be filled in?"
    assert starts(script) == [["--model-path", "m", "--dist-init-addr", "IP", "--tp", "8"]]
    assert walk("sglang serve --model-path m < in > out; sglang serve '<m>'").notes == []


@pytest.mark.parametrize(
    "script",
    [
        "# <host> is the head's\nsglang serve --model-path <MODEL>\n",
        "export HF_TOKEN=<MODEL>\nsglang serve --model-path m\n",
    ],
)
def test_so_it_is_where_bash_would_not_understand_it(script: str):
    with pytest.raises(UsageError, match=r"; is <MODEL> to be filled in\?$"):
        parse_script(script, "launch.sh")


def test_a_blank_behind_a_backslash_is_said():
    first, second = walk("python3 -m sglang.launch_server --model m \\ \n  --tp 4\n").notes
    assert first.startswith("launch.sh:1: ends in a backslash and a blank, so the command ends here")
    assert second == "launch.sh:2: bash runs --tp as a command of its own, as the line before does not go on"


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("A=1\npython3 -m sglang.launch_server --a (b\n", 2),
        ('python3 -m sglang.launch_server --a "b\n', 1),
        ("python3 -m sglang.launch_server --a $(b\n", 1),
    ],
)
def test_a_command_that_bash_would_not_understand_is_an_error_with_its_line(script: str, line: int):
    with pytest.raises(
        UsageError, match=rf"^launch\.sh:{line}: the command that starts SGLang is not understood"
    ):
        walk(script)


def test_syntax_errors_elsewhere_do_not_matter():
    walked = walk("foo ) bar\nsglang serve m\n")
    assert [found.line for found in walked.found] == [2]
    assert [problem.line for problem in walked.problems] == [1]


def test_endless_nesting_and_loops_are_errors_not_hangs():
    loops = "for a in 1 2 3 4 5 6 7 8; do " * 6 + "sglang serve $a" + "; done" * 6
    with pytest.raises(UsageError, match="too many loops"):
        walk(loops)
    assert starts("f() { f; sglang serve m; }\nf") == [["m"]]
    with pytest.raises(UsageError, match="nested too deeply"):
        walk("( " * 3000 + "sglang serve m" + " )" * 3000)


def refused_in_a_line(script: str) -> bool:
    """Whether ``script`` is refused, and then in one line; anything but a UsageError passes through."""
    try:
        walked = walk(script)
    except UsageError as error:
        return "\n" not in str(error)
    return all(word.line >= 1 for found in walked.found for word in found.launch.arguments)


@given(st.text(max_size=60))
def test_any_text_is_followed_or_refused_in_a_line(text: str):
    assert refused_in_a_line(text)
    assert refused_in_a_line(f"python3 -m sglang.launch_server {text}")
    assert refused_in_a_line(f"sglang serve m\n{text}")


FRAGMENTS = st.sampled_from(
    """
    $( ) ${ } (( )) ` " ' \\ ; & && || | if then else fi for in do done case esac { } <<E E [[ ]] A=( $@
    ${A[@]} sglang serve python3 -m sglang.launch_server --tp eval bash -c exec docker run -e function f()
    NEWLINE
    """.split()
)


@given(st.lists(FRAGMENTS, max_size=20).map(" ".join))
def test_any_mixture_of_shell_words_is_followed_or_refused(text: str):
    assert refused_in_a_line(text.replace("NEWLINE", "\n"))
