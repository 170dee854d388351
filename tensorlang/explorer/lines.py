"""The lines of a function's text, each with its statement and the loops around it."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.text.printer import show
from tensorlang.ir.visit import statements


@frozen
class Line:
    """A line of an IR text."""

    text: str  # line
    # which statement of the function it belongs to, in the order of `walk_statements`;
    # -1 for those of no statement, such as the signature
    number: int = -1
    path: tuple[ir.Stmt, ...] = ()  # statements around it and its own, outermost first

    @property
    def stmt(self) -> ir.Stmt | None:
        """Its statement."""
        return self.path[-1] if self.path else None


def lines_of(function: ir.Function) -> list[Line]:
    """The lines of `show(function)`."""
    text = show(function).splitlines()
    places = _Places(text)
    places.place(function.body, len(text) - _height(function.body), ())
    return places.lines


def _height(stmt: ir.Stmt) -> int:
    return show(stmt).count("\n") + 1


class _Places:
    """Assigns lines to statements, in the order in which both are met."""

    def __init__(self, text: Sequence[str]) -> None:
        self.lines = [Line(line) for line in text]
        self.count = 0

    def place(self, stmt: ir.Stmt, at: int, path: tuple[ir.Stmt, ...]) -> int:
        """Assign the lines of a statement that starts at a line; returns its end."""
        number, self.count = self.count, self.count + 1
        end = at + _height(stmt)
        if isinstance(stmt, ir.Seq):
            for inner in stmt.stmts:
                at = self.place(inner, at, path)
            return end
        path = (*path, stmt)
        for line in range(at, end):
            self.lines[line] = Line(self.lines[line].text, number, path)
        for inner, start in _bodies(stmt, at, end):
            self.place(inner, start, path)
        return end


def _bodies(stmt: ir.Stmt, at: int, end: int) -> list[tuple[ir.Stmt, int]]:
    """The statements inside another one in `walk_statements` order, and their lines."""
    match stmt:
        case ir.If(then=then, orelse=None):
            return [(then, at + 1)]
        case ir.If(then=then, orelse=ir.Stmt() as orelse):
            return [(then, at + 1), (orelse, end - _height(orelse))]
        case ir.Block(body=body, init=ir.Stmt() as init):
            start = end - _height(body)
            return [(body, start), (init, start - _height(init))]
    return [(inner, end - _height(inner)) for inner in statements(stmt)]
