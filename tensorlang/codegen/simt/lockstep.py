"""Vectorized loops of a thread: its lanes as scalars, its accesses wide.

    for v in vectorized(4):             x_v: f32x4 = x[ramp(i * 4, 1, 4)]
        y[i * 4 + v] = x[i * 4 + v] + 1  ->  y[ramp(i * 4, 1, 4)] = [
                                                extract(x_v, 0) + 1, ...]

A thread of a GPU computes in scalars, and moves up to 16 bytes at once: where the lanes
touch neighbours, from an index that is a multiple of their number. Lanes under a
condition that not all of them meet go one by one. What cannot go in lock-step (loops
whose length differs, atomic updates) is written out lane after lane.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from tensorlang.codegen.blocks import conjunction
from tensorlang.codegen.copies import ASYNC, is_zero
from tensorlang.codegen.folding import fold_node
from tensorlang.codegen.multiples import multiple
from tensorlang.codegen.names import Names
from tensorlang.codegen.unroll import specialise
from tensorlang.codegen.vectorize import rename
from tensorlang.ir.nodes import (
    Buffer,
    Const,
    Evaluate,
    Expr,
    Extract,
    For,
    Function,
    If,
    Let,
    Load,
    Node,
    Ramp,
    Select,
    Seq,
    Shuffle,
    Splat,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.simplify import simplify
from tensorlang.ir.visit import free_vars, rebuild, substitute

_WIDEST: Final = 16  # lanes of a vector type
_MOST_LANES: Final = 64


def in_lockstep(function: Function, names: Names, access_bytes: int) -> Function:
    """The function without vectorized loops; accesses have up to so many bytes."""

    def visit(node: Any) -> Any:
        match node:
            case For(kind="vectorized"):
                whole = replace(node, body=visit(node.body))
                return _lanes(whole, names, access_bytes)
            case Seq():
                return seq(*(visit(stmt) for stmt in node.stmts))
            case Stmt():
                return rebuild(node, visit)
        return node

    return replace(function, body=visit(function.body))


class _OneByOne(Exception):  # noqa: N818 - a signal within this pass
    """The loop cannot go in lock-step."""


def _lanes(loop: For, names: Names, access_bytes: int) -> Stmt:
    """One vectorized loop; written out later where it cannot go in lock-step."""
    if not isinstance(loop.extent, Const) or int(loop.extent.value) > _MOST_LANES:
        return replace(loop, kind="serial")
    count = int(loop.extent.value)
    values: list[dict[Var, Expr]] = [
        {loop.var: Const(lane, loop.var.dtype)} for lane in range(count)
    ]
    try:
        return _Lockstep(names, loop.var, values, access_bytes).run(loop.body)
    except _OneByOne:
        return replace(loop, kind="unrolled")


@dataclass
class _Lockstep:
    """The lanes of a loop: `values` holds, for each, what varies between them."""

    names: Names
    lane: Var
    values: list[dict[Var, Expr]]
    access_bytes: int

    @property
    def count(self) -> int:
        """How many lanes there are."""
        return len(self.values)

    def varies(self, node: Node) -> bool:
        """Whether a value differs between lanes."""
        return bool(free_vars(node) & self.values[0].keys())

    def run(self, stmt: Stmt) -> Stmt:
        """A statement in all lanes."""
        match stmt:
            case Seq():
                return seq(*(self.run(item) for item in stmt.stmts))
            case Let():
                return self.let(stmt)
            case Store():
                return self.store(stmt)
            case Evaluate():
                return self.each(stmt)
            case If():
                return self.branch(stmt)
            case For(kind="serial" | "unrolled") if not self.varies(stmt.extent):
                return replace(stmt, body=self.run(stmt.body))
        raise _OneByOne

    def each(self, stmt: Stmt) -> Stmt:
        """A statement once for each lane, or once where it is the same in all."""
        if not self.varies(stmt):
            return stmt
        return seq(*(specialise(stmt, values, {}) for values in self.values))

    def let(self, stmt: Let) -> Stmt:
        if not self.varies(stmt.value):
            return stmt
        wide, value = self.gathered(stmt.value)
        made: list[Stmt] = []
        for number, values in enumerate(self.values):
            var = self.names.var(f"{stmt.var.name}_{number}", stmt.var.dtype)
            made.append(Let(var, _at(value, values)))
            values[stmt.var] = var
        return seq(*wide, *made)

    def store(self, stmt: Store) -> Stmt:
        (index,) = stmt.indices or (as_expr(0),)
        if stmt.mask is not None or not self.varies(index):
            raise _OneByOne
        wide, value = self.gathered(stmt.value)
        given = [_at(value, values) for values in self.values]
        parts = self.parts(stmt.buffer, index)
        if parts is not None and ASYNC in stmt.hints:
            whole = self.copy(stmt, parts)
            if whole is not None:
                return whole
        if parts is None:
            single = [
                replace(stmt, indices=(_at(index, values),), value=part)
                for values, part in zip(self.values, given, strict=True)
            ]
            return seq(*wide, *single)
        width = self.count // len(parts)
        named: list[Stmt] = []
        for number, part in enumerate(given):
            if not isinstance(part, (Var, Const, Extract)):
                var = self.names.var(f"{stmt.buffer.name}_{number}", part.dtype)
                named.append(Let(var, part))
                given[number] = var
        stores = [
            replace(
                stmt,
                indices=(Ramp(first, Const(1, first.dtype), width),),
                value=_joined(given[n * width : (n + 1) * width]),
            )
            for n, first in enumerate(parts)
        ]
        return seq(*wide, *named, *stores)

    def copy(self, stmt: Store, parts: list[Expr]) -> Stmt | None:
        """A wide copy, or 0 in its place, where both sides go in the same parts."""
        value = stmt.value
        source = value.a if isinstance(value, Select) else value
        if not isinstance(source, Load) or source.mask or not source.indices:
            return None
        sources = self.parts(source.buffer, source.indices[0])
        width = self.count // len(parts)
        if sources is None or len(sources) != len(parts):
            return None
        if isinstance(value, Select) and (
            self.varies(value.cond) or not is_zero(value.b)
        ):
            return None
        made: list[Stmt] = []
        for to, first in zip(parts, sources, strict=True):
            at, place = (Ramp(e, Const(1, e.dtype), width) for e in (first, to))
            whole: Expr = replace(source, indices=(at,))
            if isinstance(value, Select):
                whole = Select(value.cond, whole, Splat(value.b, width))
            made.append(replace(stmt, indices=(place,), value=whole))
        return seq(*made)

    def gathered(self, value: Expr) -> tuple[list[Stmt], Expr]:
        """Wide loads for a value, and the value over a stand-in for each of them."""
        made: list[Stmt] = []
        known: dict[Load, Var] = {}

        def visit(node: Any) -> Any:
            if isinstance(node, Buffer) or not isinstance(node, Node):
                return node
            new = rebuild(node, visit)
            if not isinstance(new, Load) or new.mask is not None or not new.indices:
                return new
            if new not in known:
                parts = self.parts(new.buffer, new.indices[0])
                if parts is None:
                    return new
                known[new] = self.wide_load(new, parts, made)
            return known[new]

        return made, visit(value)

    def wide_load(self, load: Load, parts: list[Expr], made: list[Stmt]) -> Var:
        """A variable that stands, in each lane, for its part of wide loads."""
        width = self.count // len(parts)
        stand_in = self.names.var(f"{load.buffer.name}_lane", load.dtype)
        for number, first in enumerate(parts):
            index = Ramp(first, Const(1, first.dtype), width)
            whole = Load(load.buffer, (index,), None, load.hints)
            var = self.names.var(f"{load.buffer.name}_wide", whole.dtype)
            made.append(Let(var, whole))
            for lane in range(width):
                self.values[number * width + lane][stand_in] = Extract(var, lane)
        return stand_in

    def parts(self, buffer: Buffer, index: Expr) -> list[Expr] | None:
        """The first indices of wide accesses, or None where there are none."""
        width = min(self.count, self.access_bytes // buffer.dtype.bytes, _WIDEST)
        while width > 1 and (self.count % width or width & (width - 1)):
            width -= 1
        if width < 2 or buffer.scope in ("register", "private"):
            return None
        every = [simplify(_at(index, values)) for values in self.values]
        steps = [simplify(b - a) for a, b in pairwise(every)]
        if any(step != as_expr(1) for step in steps) or multiple(every[0], {}) % width:
            return None
        return every[::width]

    def branch(self, stmt: If) -> Stmt:
        """A branch that all lanes take together, else each by itself."""
        if not self.varies(stmt.cond):
            orelse = None if stmt.orelse is None else self.run(stmt.orelse)
            return If(stmt.cond, self.run(stmt.then), orelse)
        others = self.values[0].keys() & free_vars(stmt) != {self.lane}
        if stmt.orelse is not None or others:
            raise _OneByOne
        tests = [_at(stmt.cond, values) for values in self.values]
        together = conjunction(list(dict.fromkeys(tests)))
        assert together is not None
        kept = [dict(values) for values in self.values]
        whole = self.run(stmt.then)
        self.values = kept
        return If(together, whole, self.in_turn(stmt))

    def in_turn(self, stmt: Stmt) -> Stmt:
        """A statement in one lane after the other."""
        lane = self.names.var(self.lane.name, self.lane.dtype)
        body = rename(substitute(stmt, {self.lane: lane}), self.names)
        return For(lane, Const(self.count, lane.dtype), "serial", body)


def _at(expr: Expr, values: dict[Var, Expr]) -> Expr:
    """An expression as one lane sees it."""

    def visit(node: Any) -> Any:
        if isinstance(node, Var):
            return values.get(node, node)
        if isinstance(node, (Const, Buffer)) or not isinstance(node, Node):
            return node
        return fold_node(rebuild(node, visit))

    return visit(expr)  # type: ignore[no-any-return]


def _joined(values: list[Expr]) -> Expr:
    """Scalars side by side as one vector."""
    return Shuffle(tuple(values), tuple(range(len(values))))
