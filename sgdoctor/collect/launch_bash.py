"""Follows a bash script along its syntax tree, without running anything, to the commands it would start.

What a branch, a loop or an unknown word leaves open stays open: a variable that two ways through the script
leave with different values is unknown from there on, except for the words both begin with.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sgdoctor.collect.launch_containers import Container
from sgdoctor.collect.launch_expand import Expander
from sgdoctor.collect.launch_flow import Flow
from sgdoctor.collect.launch_scope import Array, Scope
from sgdoctor.collect.launch_text import ends_in_escaped_blank, to_fill_in
from sgdoctor.collect.launch_tree import broken, late_words, placeholders, substitutions, tree_of
from sgdoctor.collect.launch_words import Piece, Value, Word, assembled, unknown
from sgdoctor.collect.launch_wrappers import Environment, Launch, Script, reads_script, unwrap
from sgdoctor.errors import UsageError

if TYPE_CHECKING:
    from tree_sitter import Node

_STEPS = 20_000  # statements followed in one script, unrolled loops included
_DEPTH = 12  # functions and scripts within scripts


class Found(NamedTuple):
    """A command that starts SGLang, and the line of the script where it begins and ends."""

    launch: Launch
    line: int
    end_line: int


class Problem(NamedTuple):
    """A stretch of the script that is not understood as bash."""

    line: int
    end_line: int
    text: str


class Walk:
    """What all scripts within one file share: the findings, the notes and the limits."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[str] = []
        self.found: list[Found] = []
        self.problems: list[Problem] = []
        self.recording = True
        self.depth = 0
        self._steps = 0

    def step(self) -> None:
        """Count a statement; raises UsageError when there are too many."""
        self._steps += 1
        if self._steps > _STEPS:
            raise UsageError(f"{self.name} has too many loops and branches to be followed")


def follow(text: str, walk: Walk, given: Mapping[str, Value] | None = None) -> None:
    """Follow the script ``text`` and leave what it starts in ``walk``. Raises UsageError where it cannot.

    ``given`` are variables that it is started with.
    """
    scope = Scope(walk.name, walk.notes)
    for name, stored in (given or {}).items():
        scope.assign(name, stored, export=True)
    source = text.encode("utf-8", errors="replace")
    starts = [0, *(number + 1 for number, byte in enumerate(source) if byte == 0x0A)]
    try:
        script = _Shell(walk, source, lambda byte: bisect.bisect_right(starts, byte))
        script.expand.zsh = text.startswith("#!") and "zsh" in text.split("\n", 1)[0]
        script.run(scope)
        if not walk.found:
            script.run_functions(scope)
    except RecursionError:
        raise UsageError(f"{walk.name} is nested too deeply to be followed") from None


def follow_script(script: Script, walk: Walk) -> None:
    """Follow a script that a program gets as text, its environment with it."""
    _Shell(walk, b"", lambda _byte: 0).text(script)


class _Shell(Flow):
    """One script: the file itself, or text that a command of it has a shell run."""

    def __init__(
        self,
        walk: Walk,
        source: bytes,
        line_at: Callable[[int], int],
        hidden: Sequence[Piece] = (),
        container: Container | None = None,
    ) -> None:
        super().__init__(Expander(source, line_at, hidden), line_at)
        self.walk = walk
        self.container = container
        self.script = source
        self.root = tree_of(source)
        self.called: set[str] = set()
        self.problems = [self._problem(node) for node in broken(self.root)]
        walk.problems += self.problems

    def run(self, scope: Scope) -> None:
        """Follow the whole script."""
        self.sequence(self.root.named_children, scope)

    def text(self, script: Script) -> None:
        """Follow a script with nothing around it."""
        self._script(script, Scope(self.walk.name, self.walk.notes))

    def run_functions(self, scope: Scope) -> None:
        """Follow the functions that nothing called: another script may."""
        for name, (shell, body) in list(scope.functions.items()):
            if name not in self.called:
                inner = scope.copy()
                inner.dead, inner.arguments = "", None
                shell.visit(body, inner)

    def visit(self, node: Node, scope: Scope) -> None:
        """Follow one statement."""
        self.walk.step()
        for inner in substitutions(node):
            self.sequence(inner.named_children, scope.copy())
        handler = _HANDLERS.get(node.type)
        if handler is not None:
            handler(self, node, scope)

    def rehearse(self, body: Sequence[Node], scope: Scope) -> None:
        """Follow statements for what they do to ``scope`` alone."""
        recording, self.walk.recording = self.walk.recording, False
        try:
            self.sequence(body, scope)
        finally:
            self.walk.recording = recording

    # --- commands -------------------------------------------------------------------------------------

    def function(self, node: Node, scope: Scope) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            scope.functions[self.expand.text(name)] = (self, body)

    def redirected(self, node: Node, scope: Scope) -> None:
        body = node.child_by_field_name("body")
        if body is not None:
            self.visit(body, scope)
        for redirect in node.named_children:
            if redirect.type != "heredoc_redirect":
                continue
            for part in redirect.named_children:
                self.visit(part, scope.copy())
            here = next((part for part in redirect.named_children if part.type == "heredoc_body"), None)
            if here is not None and body is not None and body.type == "command":
                self._heredoc(body, redirect, here, scope)

    def _heredoc(self, command: Node, redirect: Node, here: Node, scope: Scope) -> None:
        """Follow ``bash <<EOF``: the last word is a shell that reads its script from there."""
        words = self.expand.words(self._arguments(command), scope)
        if not reads_script(words):
            return
        start = next(part for part in redirect.children if part.type == "heredoc_start")
        literal = any(quote in self.expand.text(start) for quote in "'\"\\")
        pieces = self.expand.here(here, scope, literal=literal)
        self._input(words, pieces, scope)

    def _input(self, words: list[Word], pieces: Value, scope: Scope) -> None:
        """Follow the script that a shell gets on its standard input."""
        script = unwrap(words, self._environment(scope), self.container, heredoc=pieces)
        if isinstance(script, Script):
            self._script(script, scope)

    def command(self, node: Node, scope: Scope) -> None:
        before = self.finished(node)
        for child in node.children[:before]:
            if child.type == "variable_assignment":
                self.assign(child, scope)
        own, children = scope.copy(), node.children[before:]
        for child, after in zip(children, [*children[1:], None], strict=False):
            if child.type != "variable_assignment":
                continue
            name = self.assign(child, own, export=True)
            if name is not None and after is not None and after.start_byte == child.end_byte:
                line = self.line_at(child.start_byte)  # the grammar cut the value in two
                scope.assign(name, (unknown(f"${name}", line, "not understood", splits=True),))
                return
        arguments = self._arguments(node)
        end = self.expand.trailing(arguments[-1].end_byte) if arguments else None
        words = self.expand.words(arguments, scope, end)
        if not words:
            return
        if words[0].text.startswith("--"):
            line = words[0].line
            scope.note(
                f"{self.walk.name}:{line}: bash runs {words[0].text} as a command of its own, "
                "as the line before does not go on"
            )
        here = next((child for child in node.children if child.type == "herestring_redirect"), None)
        if here is not None and reads_script(words):
            self._input(words, self.expand.assigned(here.named_children[-1], scope), own)
        else:
            self.start(words, node, scope, own)

    def _arguments(self, node: Node) -> list[Node]:
        skips = ("variable_assignment", "comment", "file_redirect", "herestring_redirect", "heredoc_redirect")
        children = [child for child in node.children if child.type not in skips] + late_words(node)
        pairs = zip(children, [*children[1:], None], strict=False)
        return [child for child, after in pairs if not self._translates(child, after)]

    def _translates(self, node: Node, after: Node | None) -> bool:
        """Whether ``node`` is the dollar of ``$"..."``, which has no node of its own."""
        if node.type != "$" or after is None or after.type != "string":
            return False
        return self.expand.text(node) == "$" and node.end_byte == after.start_byte

    def start(self, words: list[Word], node: Node, scope: Scope, own: Scope) -> None:
        """Follow a simple command: a builtin, a function, or a program run with the variables of ``own``."""
        name = words[0].text if words[0].known else ""
        if name in scope.functions:
            self._call(name, words[1:], scope)
            return
        if name in _BUILTINS:
            _BUILTINS[name](self, words, node, scope, own)
            return
        if name in _SETTERS:
            _SETTERS[name](self, words, scope)
            return
        result = unwrap(words, self._environment(own), self.container)
        if isinstance(result, Script):
            self._script(result, own)
        elif result is not None:
            self._record(result, node, scope)

    def _record(self, launch: Launch, node: Node, scope: Scope) -> None:
        start = node.children[self.finished(node)].start_byte
        end = max(start + 1, node.end_byte, *(word.end_byte for word in late_words(node)))
        first, last = self.line_at(start), self.line_at(end - 1)
        for problem in self.problems:
            if problem.line <= last and problem.end_line >= first:
                text = self.script[start:end] + self.script[end:].partition(b"\n")[0]
                raise UsageError(
                    f"{self.walk.name}:{problem.line}: the command that starts SGLang is not understood as "
                    f"bash near {problem.text!r}{to_fill_in(text.decode(errors='replace'))}"
                )
        for meant in placeholders(node):
            line, name = self.line_at(meant.start_byte), f"{self.expand.text(meant)}>"
            scope.note(
                f"{self.walk.name}:{line}: for bash {name} is two redirections; is it to be filled in?"
            )
        if ends_in_escaped_blank(self.script, node.end_byte):
            scope.note(
                f"{self.walk.name}:{last}: ends in a backslash and a blank, so the command ends here, with a "
                "word that is a single blank; no blank may follow the backslash"
            )
        found = Found(launch, first, last)
        if self.walk.recording and found not in self.walk.found:
            self.walk.found.append(found)

    def _environment(self, scope: Scope) -> Environment:
        environment = Environment()
        for name, certain in scope.exported.items():
            stored = scope.variables.get(name)
            if isinstance(stored, Array) or stored is None:
                continue
            doubt = unknown(f"${name}", stored[0].line if stored else 0, f"{name} may not be exported")
            environment.values[name] = stored if certain else (doubt,)
        for name in scope.unset:
            environment.values.setdefault(name, None)
        return environment

    def _script(self, script: Script, scope: Scope) -> None:
        """Follow a script that a shell is given as text."""
        if self.walk.depth >= _DEPTH:
            return
        text, offsets, lines, hidden = assembled(script.text)
        inner = scope
        if not script.same_shell:
            inner = Scope(scope.name, scope.notes)
            inner.arguments = tuple(script.arguments)
            for name, stored in script.environment.values.items():
                if stored is None:
                    inner.unset.add(name)
                else:
                    inner.assign(name, stored, export=True)
        shell = _Shell(
            self.walk,
            text,
            lambda byte: lines[max(bisect.bisect_right(offsets, byte) - 1, 0)] if lines else 0,
            hidden,
            script.container or self.container,
        )
        self.walk.depth += 1
        try:
            shell.run(inner)
        finally:
            self.walk.depth -= 1

    def _call(self, name: str, arguments: Sequence[Word], scope: Scope) -> None:
        self.called.add(name)
        if self.walk.depth >= _DEPTH:
            return
        shell, body = scope.functions[name]
        outside, scope.arguments = scope.arguments, tuple(arguments)
        shell.locals.append({})
        self.walk.depth += 1
        try:
            shell.visit(body, scope)
        finally:
            self.walk.depth -= 1
            frame = shell.locals.pop()
        scope.arguments = outside
        for variable, old in frame.items():
            scope.variables.pop(variable, None)
            if old is not None:
                scope.variables[variable] = old
        if scope.dead == "return":
            scope.dead = ""

    # --- builtins -------------------------------------------------------------------------------------

    def replace(self, words: list[Word], node: Node, scope: Scope, own: Scope) -> None:
        rest = words[1:]
        while rest and rest[0].text.startswith("-"):
            rest = rest[2:] if rest[0].text == "-a" else rest[1:]
        if rest:
            self.start(rest, node, scope, own)
            scope.dead = "exit"

    def end(self, words: list[Word], node: Node, scope: Scope, own: Scope) -> None:
        del node, own
        scope.dead = words[0].text

    def evaluate(self, words: list[Word], node: Node, scope: Scope, own: Scope) -> None:
        del node, own
        pieces: list[Piece] = []
        for number, word in enumerate(words[1:]):
            pieces += [Piece(" ", word.line)] * bool(number) + [*word.pieces]
        self._script(Script(tuple(pieces), Environment(), same_shell=True), scope)

    # --- syntax errors --------------------------------------------------------------------------------

    def _problem(self, node: Node) -> Problem:
        start = node.start_byte
        if node.is_missing:  # stands behind the blanks and lines that follow
            start = len(self.script[:start].rstrip())
        first = self.line_at(max(start - 1, 0) if node.is_missing else start)
        last = self.line_at(max(start, node.end_byte - 1))
        text = " ".join(self.expand.text(node).split())[:40] or f"a missing {node.type}"
        return Problem(first, last, text)


_HANDLERS: dict[str, Callable[[_Shell, Node, Scope], None]] = {
    "compound_statement": _Shell.block,
    "do_group": _Shell.block,
    "program": _Shell.block,
    "negated_command": _Shell.block,
    "subshell": _Shell.subshell,
    "pipeline": _Shell.pipeline,
    "list": _Shell.chain,
    "if_statement": _Shell.choice,
    "case_statement": _Shell.cases,
    "for_statement": _Shell.each,
    "while_statement": _Shell.rounds,
    "c_style_for_statement": _Shell.counted,
    "variable_assignment": _Shell.assignment,
    "variable_assignments": _Shell.assignments,
    "declaration_command": _Shell.declaration,
    "unset_command": _Shell.unset,
    "function_definition": _Shell.function,
    "redirected_statement": _Shell.redirected,
    "command": _Shell.command,
}
_BUILTINS: dict[str, Callable[[_Shell, list[Word], Node, Scope, Scope], None]] = {
    "exec": _Shell.replace,
    "exit": _Shell.end,
    "return": _Shell.end,
    "eval": _Shell.evaluate,
}
_SETTERS: dict[str, Callable[[_Shell, list[Word], Scope], None]] = {
    "set": _Shell.set,
    "shift": _Shell.shift,
    "printf": _Shell.printf,
    "source": _Shell.source,
    ".": _Shell.source,
    **dict.fromkeys(["read", "mapfile", "readarray", "getopts", "let"], _Shell.read),
}
