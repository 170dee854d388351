"""Vectorized loops in threads: wide accesses, with loops over lanes between them.

    for v in vectorized(4):               x_wide: f32[4]
        y[i * 4 + v] = x[i * 4 + v] + 1   x_wide[ramp(0, 1, 4)] = x[ramp(i * 4, 1, 4)]
                                    ->    y_wide: f32[4]
                                          for v in unrolled(4):
                                              y_wide[v] = x_wide[v] + 1
                                          y[ramp(i * 4, 1, 4)] = y_wide[ramp(0, 1, 4)]

GPU threads compute on scalars but access up to 16 contiguous bytes at once, if the
first index is a multiple of the number of lanes. Uniform control flow is kept around
the loops over lanes; values passed between these are expanded to arrays over lanes.
Under a condition that varies between lanes, accesses are wide where all lanes meet it.
Enclosing conditions such as `n % 4 == 0` provide divisibility.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from tensorlang.codegen.multiples import Multiples, multiple, multiples_where
from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.ragged import Lanes, one_body
from tensorlang.codegen.simt.whole_vectors import forwarded
from tensorlang.codegen.simt.wide_accesses import WideAccesses, is_own
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, free_vars, reads
from tensorlang.ir.contents import writes as written_by
from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.integers.bounds import Known, ranges_in
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.simplification.conditions import conjunction
from tensorlang.ir.visit import (
    N,
    nodes_of,
    rebuild,
    rebuild_statements,
    rewriter,
    substitute,
)

_WIDEST: Final = 16  # lanes of a vector type
_MOST_LANES: Final = 64


def in_lockstep(function: ir.Function, names: Names, access_bytes: int) -> ir.Function:
    """The function without vectorized loops; accesses up to `access_bytes` bytes."""
    sizes = frozenset(var for var in function.scalars if var.dtype == i64)
    ranges = ranges_in(function.body, size_ranges(function))
    lockstep = partial(
        _Lockstep, known=Known(ranges), access_bytes=access_bytes, sizes=sizes
    )

    def visit(stmt: ir.Stmt, multiples: Multiples) -> ir.Stmt:
        match stmt:
            case ir.For(kind="vectorized"):
                whole = replace(stmt, body=visit(stmt.body, multiples))
                return _lanes(whole, names, partial(lockstep, whole, multiples))
            case ir.If(cond, then, orelse):
                inside = {**multiples, **multiples_where(cond)}
                other = orelse if orelse is None else visit(orelse, multiples)
                return ir.If(cond, visit(then, inside), other)
            case _:
                return rebuild_statements(stmt, lambda part: visit(part, multiples))

    return replace(function, body=visit(function.body, {}))


def _lanes(loop: ir.For, names: Names, lockstep: Callable[..., _Lockstep]) -> ir.Stmt:
    """Rewrite a vectorized loop; it stays a loop if it allocates memory per lane."""
    if not isinstance(loop.extent, ir.Const) or int(loop.extent.value) > _MOST_LANES:
        return replace(loop, kind="serial")
    if any(True for _ in allocations(loop.body)):
        return replace(loop, kind="unrolled")
    kept: frozenset[ir.Var] = frozenset()
    while True:
        made = lockstep(names=deepcopy(names), kept=kept)
        body = made.whole(loop.body)
        if made.missed <= kept:
            names.__dict__.update(made.names.__dict__)
            return ir.seq(*map(ir.Alloc, made.arrays.values()), *body)
        kept |= made.missed


@dataclass
class _Group:
    """A loop over lanes, with the wide accesses before and after it."""

    before: list[ir.Stmt] = field(default_factory=list)
    lanes: list[ir.Stmt] = field(default_factory=list)
    after: list[ir.Stmt] = field(default_factory=list)
    written: set[ir.Buffer] = field(default_factory=set)
    held: dict[tuple[ir.Buffer, ir.Expr], ir.Buffer] = field(default_factory=dict)

    @property
    def pending(self) -> frozenset[ir.Buffer]:
        """Buffers that are written only after the loop over lanes."""
        return frozenset(s.buffer for s in self.after if isinstance(s, ir.Store))


class _Lockstep(WideAccesses):
    """Rewrites the body of one vectorized loop."""

    def __init__(
        self,
        loop: ir.For,
        multiples: Multiples,
        *,
        names: Names,
        kept: frozenset[ir.Var],
        **around: Any,
    ) -> None:
        super().__init__(loop, multiples, **around)
        self.names = names
        self.kept = kept
        self.missed: set[ir.Var] = set()
        self.arrays: dict[ir.Var, ir.Buffer] = {}
        self.closed: dict[ir.Var, ir.Expr] = {}
        self.places: dict[ir.Var, ir.Expr] = {}
        self.group = _Group()
        self.made: list[ir.Stmt] = []

    def whole(self, stmt: ir.Stmt) -> list[ir.Stmt]:
        """A statement in all lanes, including all pending stores."""
        outer, self.made, self.group = self.made, [], _Group()
        self.run(stmt)
        self.close()
        outer, self.made = self.made, outer
        return outer

    def close(self) -> None:
        """End the loop over lanes; its values are in arrays from here on."""
        group, self.group = self.group, _Group()
        self.made += group.before
        if group.lanes:
            body = ir.seq(*group.lanes)
            count = ir.Const(self.count, self.lane.dtype)
            self.made.append(ir.For(self.lane, count, "unrolled", body))
        self.made += group.after
        for stmt in group.lanes:
            if isinstance(stmt, ir.Let):
                array = self.arrays.get(stmt.var)
                at = ir.Load(array, (self.lane,)) if array is not None else stmt.var
                self.closed[stmt.var] = at

    def known(self, node: N) -> N:
        """Replace values from earlier loops over lanes by array elements."""
        free = free_vars(node)
        near = {var: self.places[var] for var in free & self.places.keys()}
        if near:
            node = substitute(node, near)
        used = free_vars(node) & self.closed.keys()
        self.missed |= used
        return substitute(node, {var: self.closed[var] for var in used})

    def is_neighbour(self, stmt: ir.Let) -> bool:
        """Whether a value is an index that increases by one from lane to lane.

        It is substituted: indices through variables are not recognised as contiguous.
        """
        own = stmt.var.dtype == i64 and not reads(stmt.value)
        if not own or free_vars(stmt.value) & self.varying != {self.lane}:
            return False
        return all(self.neighbours(stmt.value))

    # ------------------------------------------------------------------ statements

    def run(self, stmt: ir.Stmt) -> None:
        """Rewrite a statement for all lanes."""
        if isinstance(stmt, ir.Seq):
            for item in forwarded(stmt.stmts, _loads_only):
                self.run(item)
            return
        stmt = self.known(stmt)
        match stmt:
            case ir.Let():
                self.let(stmt)
            case ir.Store(mask=None):
                self.store(stmt)
            case ir.If() if not self.varies(stmt.cond):
                self.close()
                orelse = None if stmt.orelse is None else self.inside(stmt.orelse)
                self.made.append(ir.If(stmt.cond, self.inside(stmt.then), orelse))
            case ir.If(orelse=None) if self.has_wide(stmt.then):
                self.branch(stmt)
            case ir.For(kind="serial" | "unrolled") if not self.varies(stmt.extent):
                self.close()
                self.made.append(replace(stmt, body=self.inside(stmt.body)))
            case _:
                self.each(stmt)

    def inside(self, stmt: ir.Stmt) -> ir.Stmt:
        """Rewrite a nested statement for all lanes."""
        return ir.seq(*self.whole(stmt))

    def each(self, stmt: ir.Stmt) -> None:
        """A statement that is executed lane by lane."""
        if (reads(stmt) | written_by(stmt)) & self.group.pending:
            self.close()
        stmt = self.known(stmt)
        self.group.lanes.append(stmt)
        for buffer in written_by(stmt):
            self.wrote(buffer)

    def wrote(self, buffer: ir.Buffer) -> None:
        """Invalidate the values loaded from a buffer that is written."""
        group = self.group
        group.written.add(buffer)
        group.held = {at: to for at, to in group.held.items() if at[0] != buffer}

    def let(self, stmt: ir.Let) -> None:
        """Bind a value per lane, or a uniform one."""
        if self.is_same(stmt.value):
            stmt = replace(stmt, value=self.at(stmt.value, 0))
        if not self.varies(stmt.value):
            if reads(stmt.value) & (self.group.written | self.group.pending):
                self.close()
            self.group.before.append(stmt)
            return
        if self.is_neighbour(stmt):
            self.places[stmt.var] = stmt.value
            return
        value = self.gathered(stmt.value)
        self.each(replace(stmt, value=value))
        self.varying.add(stmt.var)
        if stmt.var in self.kept:
            array = self.array(stmt.var.name, stmt.var.dtype)
            self.arrays[stmt.var] = array
            self.each(ir.Store(array, (self.lane,), stmt.var))

    def store(self, stmt: ir.Store) -> None:
        """A store; after the loop over lanes if it is contiguous."""
        branch = self.chosen(stmt)
        if branch is not None:
            self.run(branch)
            return
        copies = self.copies(stmt)
        parts = self.parts(stmt.buffer, stmt.indices[0]) if stmt.indices else None
        if copies is not None:
            self.close()
            self.made += copies
            return
        value = self.gathered(stmt.value)
        if parts is None:
            self.each(replace(stmt, value=value))
            return
        at = (stmt.buffer, stmt.indices[0])
        held = self.group.held.get(at)
        if stmt.buffer in self.group.written | self.group.pending and held is None:
            self.close()
        target = held or self.wide_array(stmt.buffer)
        self.each(ir.Store(target, (self.lane,), value))
        self.wrote(stmt.buffer)
        group = self.group
        group.held[at] = target
        stores: list[ir.Stmt] = [
            replace(
                stmt,
                indices=(to,),
                value=ir.Load(target, (own,)),
                hints=_hints(stmt, to),
            )
            for own, to in self.ramps(parts)
        ]
        group.after = [s for s in group.after if s not in stores] + stores

    def chosen(self, stmt: ir.Store) -> ir.If | None:
        """A branch around a load and store that are conditional in all lanes alike."""
        match stmt.value:
            case ir.Select(cond=cond, a=ir.Load(mask=mask) as load, b=other) if (
                mask == cond and not self.varies(cond) and self.has_wide(stmt)
            ):
                loaded = replace(stmt, value=replace(load, mask=None))
                return ir.If(cond, loaded, replace(stmt, value=other))
        return None

    def branch(self, stmt: ir.If) -> None:
        """Wide code if all lanes meet the condition, else lane by lane."""
        self.close()
        stmt = self.known(stmt)
        closed, varying = dict(self.closed), set(self.varying)
        outer, self.even = self.even, set()
        whole = self.inside(stmt.then)
        even, self.even = self.even, outer
        self.closed, self.varying = closed, varying
        tests = [size % width for size, width in sorted(even, key=repr)]
        together = conjunction(
            [*(test.equal(0) for test in tests), self.in_all(stmt.cond)]
        )
        assert together is not None
        some = self.in_some(stmt.cond)
        if some == together:  # `2 * i < 14` is `2 * i + 1 < 14`: none or all
            self.made.append(ir.If(together, whole))
            return
        if some is not None:
            lanes = Lanes(self.lane, stmt.cond, some, together, self.renumbered)
            made = one_body(whole, lanes, self.names)
            if made is not None:
                self.made.append(made)
                return
        self.made.append(ir.If(together, whole, self.in_turn(stmt)))

    def in_turn(self, stmt: ir.Stmt) -> ir.Stmt:
        """A statement executed lane by lane."""
        held = any(map(is_own, reads(stmt) | written_by(stmt)))  # registers need unroll
        kind = "unrolled" if held else "serial"
        return ir.For(self.lane, ir.Const(self.count, self.lane.dtype), kind, stmt)

    # -------------------------------------------------------------- wide accesses

    def gathered(self, value: ir.Expr) -> ir.Expr:
        """The value, with wide loads replaced by elements of the arrays they fill."""

        @rewriter
        def visit(node: ir.Node) -> ir.Node:
            if isinstance(node, ir.Buffer):
                return node
            new = rebuild(node, visit)
            if not isinstance(new, ir.Load) or new.mask is not None or not new.indices:
                return new
            return self.loaded(new)

        for load in _loads(value):
            if load.buffer in self.group.written and not self.is_held(load):
                self.close()
                value = self.known(value)
                break
        return visit(value)

    def is_held(self, load: ir.Load) -> bool:
        """Whether an array holds the value of a load."""
        return bool(load.indices) and (load.buffer, load.indices[0]) in self.group.held

    def loaded(self, load: ir.Load) -> ir.Expr:
        """A load, or the lane's element of the array that a wide load fills."""
        at = (load.buffer, load.indices[0])
        if at not in self.group.held:
            parts = self.parts(*at)
            if parts is None:
                return load
            array = self.wide_array(load.buffer)
            for own, ramp in self.ramps(parts):
                whole = replace(load, indices=(ramp,))
                self.group.before.append(ir.Store(array, (own,), whole))
            self.group.held[at] = array
        return ir.Load(self.group.held[at], (self.lane,))

    def array(self, name: str, dtype: DType) -> ir.Buffer:
        """A register array with an element per lane."""
        size = ir.as_expr(self.count)
        return ir.Buffer(self.names.fresh(name), dtype, (size,), "register")

    def wide_array(self, buffer: ir.Buffer) -> ir.Buffer:
        """A register array for a buffer's elements, until the end of the group."""
        made = self.array(f"{buffer.name}_wide", buffer.dtype)
        self.group.before.append(ir.Alloc(made))
        return made


def _loads_only(let: ir.Let) -> bool:
    return isinstance(let.value, ir.Load)


def _hints(stmt: ir.Store, to: ir.Ramp) -> tuple[str, ...]:
    """A store's hints, with `aligned` if the compiler cannot see it."""
    seen = multiple(to.base, {}) % to.lanes == 0
    return stmt.hints if seen else tuple(dict.fromkeys((*stmt.hints, "aligned")))


def _loads(value: ir.Expr) -> list[ir.Load]:
    return list(nodes_of(value, ir.Load))
