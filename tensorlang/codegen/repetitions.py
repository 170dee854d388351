"""Name the indices and bounds that the statements of a loop repeat.

    for g in range(tiles):                        for g in range(tiles):
        for u in range(min(n - g * 64, 64)):          n_tile: i64 = min(n - g * 64, 64)
            S                                 ->      for u in range(n_tile):
        for u in range(min(n - g * 64, 64)):              S
            T                                         for u in range(n_tile):
                                                          T

A value is bound where the last of its variables is, so that inner loops do not repeat
it either; the axes of a block are names of their values. Compilers do this anyway; the
purpose is readable code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tensorlang.codegen.names import Names, digits_of
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import loops
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import (
    children,
    holds,
    parts,
    rebuild,
    rebuild_statements,
    rewriter,
    variables,
)

_DIVISIONS: Final = ("floordiv", "floormod")


def name_repetitions(function: ir.Function, names: Names) -> ir.Function:
    """A lowered function whose stages name the scalar indices that they repeat."""
    return replace(function, body=_in_stages(function.body, names))


def _in_stages(stmt: ir.Stmt, names: Names) -> ir.Stmt:
    """Name values in what a thread runs between barriers, in no loop around them."""
    if isinstance(stmt, (ir.For, ir.If)) and not _is_around_stages(stmt):
        counted = _Counting()
        counted.visit(stmt)
        return _Naming(names, counted).visit(stmt)
    if isinstance(stmt, (ir.Seq, ir.For, ir.If, ir.While)):
        return rebuild_statements(stmt, lambda part: _in_stages(part, names))
    return stmt


def _is_around_stages(stmt: ir.Stmt) -> bool:
    """Whether barriers or threads are in a statement."""
    inside = (loop.kind == "bound" for loop in loops(stmt) if loop is not stmt)
    return holds(stmt, ir.Barrier) or any(inside)


@dataclass(slots=True, eq=False)
class _Scope:
    """A loop's body, or what follows a `Let`: where values of its variable are bound.

    Attributes:
        depth: The number of scopes around it.
        uses: How often each value is used, outside of other values that are repeated.
        homes: The buffers that each value indexes; "" for other uses.
        certain: What the scope divides by in any case: not 0.
        known: The variables of the values named so far, whose `Let`s are `lets`.
        seen: Nodes that were counted, but for accesses: they are cheap to count again.
        made: Nodes that were rewritten.
        names: The names given in it; `inside`, those in the scopes that it holds.
    """

    depth: int
    uses: Counter[ir.Node] = field(default_factory=Counter)
    homes: dict[ir.Node, set[str]] = field(default_factory=lambda: defaultdict(set))
    certain: set[ir.Node] = field(default_factory=set)
    known: dict[ir.Node, ir.Var] = field(default_factory=dict)
    lets: list[ir.Stmt] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    made: dict[ir.Node, ir.Node] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    inside: set[str] = field(default_factory=set)


def _divisors(value: ir.Node) -> Iterator[ir.Expr]:
    """What a value divides by, but for constants."""
    for node in parts(value):
        if isinstance(node, ir.Binary) and node.op in _DIVISIONS:
            by = node.b
            if not isinstance(by, ir.Const):
                yield by


class _Scopes:
    """The scopes around a place in a stage, whose statements are visited in order."""

    def __init__(self) -> None:
        self.stack: list[_Scope] = []
        self.of: dict[str, _Scope | None] = {}  # None: its values are not named
        self.hidden: list[tuple[str, _Scope | None]] = []

    def opened(self) -> _Scope:
        """A scope for the next loop, branch or `Let`."""
        raise NotImplementedError

    def begin(self, name: str = "") -> _Scope:
        """Begin the scope of a variable."""
        scope = self.opened()
        self.stack.append(scope)
        self.hidden.append((name, self.of.get(name)))
        self.of[name] = scope
        return scope

    def end(self) -> None:
        """End the innermost scope."""
        ended, (name, self.of[name]) = self.stack.pop(), self.hidden.pop()
        if self.stack:
            self.stack[-1].inside |= ended.names | ended.inside

    def bind(self, var: ir.Var) -> _Scope | None:
        """Begin the scope of a `Let`, until its sequence ends, if it is of an index."""
        if self.stack and var.dtype == i64:
            return self.begin(var.name)
        self.of[var.name] = None
        return None

    def home(self, node: ir.Node) -> _Scope | None:
        """The scope in which a value can be named; None if it is not to be."""
        if type(node) is not ir.Binary or node.dtype != i64 or _is_short(node):
            return None
        return None if holds(node, ir.Load) else self.scope_of(node)

    def scope_of(self, value: ir.Expr) -> _Scope | None:
        """The scope of the last of a value's variables; None if that is no index."""
        found = self.stack[0]
        for var in variables(value):
            bound = self.of.get(var.name, found)
            if bound is None:
                return None
            found = bound if bound.depth > found.depth else found
        return found


class _Counting(_Scopes):
    """Counts the values of each scope of a stage."""

    def __init__(self) -> None:
        super().__init__()
        self.scopes: list[_Scope] = []  # scopes, in the order of their beginnings
        self.repeated: set[ir.Node] = set()  # values that a scope uses more than once
        self.certain_from = 0  # the outermost scope that always comes here

    def opened(self) -> _Scope:
        """A new scope."""
        self.scopes.append(_Scope(len(self.stack)))
        return self.scopes[-1]

    def visit(self, stmt: ir.Stmt) -> None:
        """Count a statement's values."""
        match stmt:
            case ir.Seq(stmts=stmts):
                count = len(self.stack)
                for each in stmts:
                    self.visit(each)
                    if isinstance(each, ir.Let):
                        self.bind(each.var)
                while len(self.stack) > count:
                    self.end()
            case ir.For(var=var, extent=extent, body=body):
                self.expression(extent)
                certain = isinstance(extent, ir.Const) and extent.value > 0
                self.inside(body, var.name, certain=certain)
            case ir.If(cond=cond, then=then, orelse=orelse):
                self.expression(cond)
                self.inside(then)
                if orelse is not None:
                    self.inside(orelse)
            case ir.While(cond=cond, body=body):
                self.expression(cond)
                self.inside(body)
            case ir.Block(axes=axes):
                for axis in axes:
                    self.expression(axis.extent)
            case _:
                self.expression(stmt)

    def inside(self, stmt: ir.Stmt, name: str = "", *, certain: bool = False) -> None:
        """Count a scope's statement, to which the program comes for certain or not."""
        kept = self.certain_from
        if not certain:
            self.certain_from = len(self.stack)
        self.begin(name)
        self.visit(stmt)
        self.end()
        self.certain_from = kept

    def expression(self, node: ir.Node) -> None:
        """Count the values below a node, a statement without others inside."""
        if self.stack:
            self.count(node, "", 1)

    def count(self, node: ir.Node, home: str, times: int) -> None:
        """Count a value and those in it, unless they are used in no other."""
        scope = self.home(node)
        if scope is not None:
            scope.uses[node] += times
            for divisor in _divisors(node):
                bound = self.scope_of(divisor)
                depth = max(self.certain_from, bound.depth if bound else 0)
                if bound is not None and depth < len(self.stack):
                    self.stack[depth].certain.add(divisor)
            if scope.uses[node] > 1:
                self.repeated.add(node)
                if home in scope.homes[node]:
                    return
            scope.homes[node].add(home)
            times = times if scope.uses[node] == 1 else 0
        elif not isinstance(node, (ir.Ramp, ir.Load)):
            if id(node) in self.stack[-1].seen:
                return
            self.stack[-1].seen.add(id(node))
        if not isinstance(node, (ir.Load, ir.Store, ir.AtomicUpdate)):
            for child in children(node):
                if not isinstance(child, (ir.Buffer, ir.Const, ir.Var)):
                    self.count(child, home, times)
            return
        kept = self.certain_from
        if getattr(node, "mask", None) is not None:
            self.certain_from = len(self.stack)
        for child in children(node):
            if not isinstance(child, (ir.Buffer, ir.Const, ir.Var)):
                at = any(child is index for index in node.indices)
                self.count(child, node.buffer.name if at else home, times)
        self.certain_from = kept


class _Naming(_Scopes):
    """Rewrites a stage whose scopes were counted."""

    def __init__(self, names: Names, counted: _Counting) -> None:
        super().__init__()
        self.names = names
        self.repeated = counted.repeated
        self.coming = iter(counted.scopes)
        self.given: dict[ir.Expr, list[str]] = defaultdict(list)

    def opened(self) -> _Scope:
        """The scope that was counted here."""
        return next(self.coming)

    def visit(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement in which repeated values have names."""
        match stmt:
            case ir.Seq(stmts=stmts):
                count = len(self.stack)
                made: list[Sequence[ir.Stmt]] = []
                for each in stmts:
                    made.append((self.visit(each),))
                    if isinstance(each, ir.Let) and (scope := self.bind(each.var)):
                        made.append(scope.lets)
                while len(self.stack) > count:
                    self.end()
                return ir.seq(*(each for part in made for each in part))
            case ir.For(var=var, extent=extent, body=body):
                extent = self.expression(extent)
                return replace(stmt, extent=extent, body=self.inside(body, var.name))
            case ir.If(cond=cond, then=then, orelse=orelse):
                cond, then = self.expression(cond), self.inside(then)
                orelse = None if orelse is None else self.inside(orelse)
                return ir.If(cond, then, orelse)
            case ir.While(cond=cond, body=body):
                return ir.While(self.expression(cond), self.inside(body))
            case ir.Block(axes=axes, where=where):
                axes = tuple(rebuild(axis, self.expression) for axis in axes)
                where = None if where is None else self.expression(where)
                return replace(stmt, axes=axes, where=where)
        return self.expression(stmt)

    def inside(self, stmt: ir.Stmt, name: str = "") -> ir.Stmt:
        """A scope's statement, after what it names."""
        scope = self.begin(name)
        made = self.visit(stmt)
        self.end()
        return ir.seq(*scope.lets, made)

    @rewriter
    def expression(self, node: ir.Node) -> ir.Node:
        """A node with names for repeated values."""
        if not self.stack or isinstance(node, (ir.Buffer, ir.Const, ir.Var)):
            return node
        made = self.stack[-1].made
        found = made.get(node)
        if found is None:
            found = rebuild(node, self.expression)
            if node in self.repeated:
                found = self.named(found, node)
            made[node] = found
        return found

    def named(self, value: ir.Node, node: ir.Node) -> ir.Node:
        """The variable of a value that is repeated and compound; else the value."""
        scope = self.home(node)
        if scope is None or scope.uses[node] < 2 or _is_short(value):
            return value
        if node not in scope.known:
            around = self.stack[: scope.depth + 1]
            if not all(any(d in s.certain for s in around) for d in _divisors(node)):
                return value  # it may be 0 where the program does not divide
            assert isinstance(value, ir.Expr)
            var = self.var(value, _name(value, scope.homes[node]), scope)
            scope.lets.append(ir.Let(var, value))
            scope.known[node] = var
        return scope.known[node]

    def var(self, value: ir.Expr, hint: str, scope: _Scope) -> ir.Var:
        """A variable for a value, by whose name nothing else is visible in its scope.

        Different values have different names, as printers bound them by name.
        """
        inside = [each.inside for each in self.stack[scope.depth :]]
        seen = set().union(*(each.names for each in self.stack), *inside)
        name = next((name for name in self.given[value] if name not in seen), "")
        if not name:
            name = self.names.fresh(hint)
            self.given[value].append(name)
        scope.names.add(name)
        return ir.Var(name, i64)


def _is_short(value: ir.Node) -> bool:
    """Whether a value is a sum or product of two, or that with a constant added."""
    if not isinstance(value, ir.Binary) or value.op not in ("add", "sub", "mul"):
        return isinstance(value, (ir.Var, ir.Const))
    if isinstance(value.b, ir.Const) and value.op != "mul":
        return _is_short(value.a)
    return all(isinstance(part, (ir.Var, ir.Const)) for part in children(value))


def _name(value: ir.Node, homes: set[str]) -> str:
    """A name for a value: of tiles, of digits of a fused loop, or of an index."""
    match value:
        case ir.Binary(
            "floordiv",
            ir.Binary("add", ir.Var(name=name), ir.Const(value=rest)),
            ir.Const(value=size),
        ) if rest == size - 1:
            return f"{name}_by_{size}"
        case ir.Binary("min", ir.Binary("sub", ir.Var(name=name)), ir.Const()):
            return f"{name}_tile"
        case ir.Binary(op, ir.Binary("add", ir.Var(), ir.Var(name=name)), ir.Var()):
            outer, _, inner = name.rpartition("_")
            if op in _DIVISIONS and outer and inner.isidentifier():
                return outer if op == "floordiv" else inner
        case ir.Binary(
            "sub",
            ir.Var(name=name),
            ir.Binary("mul", ir.Var(name=quotient), ir.Const(value=size)),
        ) if quotient == f"{name}_div_{size}":
            return f"{name}_mod_{size}"
    if digits := digits_of(value):
        return digits
    buffers = sorted(homes - {""})
    if not buffers:
        return "bound"
    return "_".join([*(buffers if len(buffers) < 3 else ()), "at"])
