"""Follows the branches and loops of a bash script: what they leave open stays open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sgdoctor.collect.launch_assign import Assigner
from sgdoctor.collect.launch_scope import Scope
from sgdoctor.collect.launch_words import Value, unknown, value

if TYPE_CHECKING:
    from tree_sitter import Node

_UNROLLED = 16  # rounds of a for loop whose words are all known
# After these an `&&` does not make what follows doubtful: where they fail the deployment does.
_PREPARATIONS = frozenset(
    ": . cd conda echo export mkdir module pip pushd set sleep source true ulimit".split()
)


class Flow(Assigner):
    """The part of a shell that knows about ways through a script."""

    def sequence(self, nodes: Sequence[Node], scope: Scope) -> None:
        """Follow statements one after the other."""
        for node in nodes:
            if scope.dead:
                return
            self.visit(node, scope)

    def visit(self, node: Node, scope: Scope) -> None:
        """Follow one statement."""
        raise NotImplementedError

    def block(self, node: Node, scope: Scope) -> None:
        """Follow a group of statements."""
        if node.children and node.children[0].type == "((":
            self.arithmetic(node, scope)
        else:
            self.sequence(node.named_children, scope)

    def subshell(self, node: Node, scope: Scope) -> None:
        """Follow ``( ... )``: it keeps its variables to itself."""
        self.sequence(node.named_children, scope.copy())

    def pipeline(self, node: Node, scope: Scope) -> None:
        """Follow the parts of a pipeline, each a shell of its own."""
        for part in node.named_children:
            self.visit(part, scope.copy())

    def chain(self, node: Node, scope: Scope) -> None:
        """Follow ``a && b || c``: what does not always run leaves doubt."""
        operands = node.named_children
        operators = [child.type for child in node.children if not child.is_named]
        for number, operand in enumerate(operands):
            certain = not number or (
                operators[number - 1 : number] == ["&&"] and self._prepares(operands[number - 1])
            )
            if certain:
                self.visit(operand, scope)
                continue
            branch = scope.copy()
            self.visit(operand, branch)
            self._join(scope, [scope.copy(), branch], self.line_at(node.start_byte))

    def _prepares(self, node: Node) -> bool:
        if node.type == "list":
            return self._prepares(node.named_children[-1])
        if node.type in ("variable_assignment", "variable_assignments", "declaration_command"):
            return True
        name = node.child_by_field_name("name") if node.type == "command" else None
        return name is not None and self.expand.text(name) in _PREPARATIONS

    def choice(self, node: Node, scope: Scope) -> None:
        """Follow an if."""
        branches: list[Scope] = []
        complete = self._branches(node, scope, branches)
        if not complete:
            branches.append(scope.copy())
        self._join(scope, branches, self.line_at(node.start_byte))

    def _branches(self, node: Node, scope: Scope, branches: list[Scope]) -> bool:
        """Follow the branches of an if or elif; whether there is an else."""
        complete = False
        branch: Scope | None = None
        for child in node.children:
            if child.type == "then":
                branch = scope.copy()
                branches.append(branch)
            elif child.type == "elif_clause":
                complete |= self._branches(child, scope, branches)
            elif child.type == "else_clause":
                branches.append(scope.copy())
                self.sequence(child.named_children, branches[-1])
                complete = True
            elif child.is_named:
                self.sequence([child], scope if branch is None else branch)
        return complete

    def cases(self, node: Node, scope: Scope) -> None:
        """Follow a case."""
        branches: list[Scope] = []
        complete = False
        for item in node.named_children:
            if item.type != "case_item":
                continue
            marks = [number for number, child in enumerate(item.children) if child.type == ")"]
            patterns = item.children[: marks[0]] if marks else []
            complete |= any(self.expand.text(pattern) == "*" for pattern in patterns)
            branches.append(scope.copy())
            body = item.children[marks[0] + 1 :] if marks else []
            self.sequence([child for child in body if child.is_named], branches[-1])
        if not complete:
            branches.append(scope.copy())
        self._join(scope, branches, self.line_at(node.start_byte))

    def each(self, node: Node, scope: Scope) -> None:
        """Follow a for, round by round where its words are known."""
        name = node.child_by_field_name("variable")
        body = node.child_by_field_name("body")
        if name is None or body is None:
            return
        has_list = any(child.type == "in" for child in node.children)
        items = node.children_by_field_name("value")
        words = self.expand.words(items, scope) if has_list else [*(scope.arguments or ())]
        variable, line = self.expand.text(name), self.line_at(node.start_byte)
        known = all(word.known for word in words) and (has_list or scope.arguments is not None)
        if known and len(words) <= _UNROLLED and node.children[0].type == "for":
            for word in words:
                scope.assign(variable, value(word.pieces))
                self.sequence([body], scope)
            return
        doubt = (
            unknown("$" + variable, line, f"{variable} changes in the loop at line {line}", splits=True),
        )
        self._loop([body], scope, line, {variable: doubt})

    def rounds(self, node: Node, scope: Scope) -> None:
        """Follow a while or until."""
        self._loop(node.named_children, scope, self.line_at(node.start_byte), {})

    def counted(self, node: Node, scope: Scope) -> None:
        """Follow a ``for ((...))``."""
        body = node.child_by_field_name("body")
        line = self.line_at(node.start_byte)
        counters = {
            self.expand.text(name): (
                unknown("$" + self.expand.text(name), line, "a loop's counter", splits=True),
            )
            for child in node.named_children
            if child.type == "variable_assignment" and (name := child.child_by_field_name("name")) is not None
        }
        self._loop([body] if body is not None else [], scope, line, counters)

    def _loop(self, body: Sequence[Node], scope: Scope, line: int, set_by_loop: Mapping[str, Value]) -> None:
        """Follow a loop of any number of rounds: what a round changes is in doubt in the next."""
        for name, doubt in set_by_loop.items():
            scope.assign(name, doubt)
        trial = scope.copy()
        self.rehearse(body, trial)
        self._join(scope, [scope.copy(), trial], line)
        round_ = scope.copy()
        self.sequence(body, round_)
        self._join(scope, [scope.copy(), round_], line)

    def rehearse(self, body: Sequence[Node], scope: Scope) -> None:
        """Follow statements for what they do to ``scope`` alone."""
        raise NotImplementedError

    def _join(self, scope: Scope, branches: Sequence[Scope], line: int) -> None:
        """Make ``scope`` what all ``branches`` that reach its end have in common."""
        live = [branch for branch in branches if not branch.dead]
        if not live:
            scope.restore(branches[0])
            return
        scope.restore(live[0])
        for branch in live[1:]:
            scope.meet(
                branch, lambda name: unknown(f"${name}", line, f"{name} depends on line {line}", splits=True)
            )
