"""Tiles: small buffers that hold a region of a larger one during a loop body.

A tile is indexed from 0. A block body sees only its axes, so a block that accesses a
tile gets axes that count within it:

    x[vi, vk]   with vi = i_0*32 + i_1      becomes
    t[vi_in, vk] with vi_in = i_1           for a tile that starts at row i_0*32
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import Access, buffers_of, change_accesses, moved
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import prove
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import Poly, number, term
from tensorlang.ir.simplification.conditions import conjunction, conjuncts
from tensorlang.ir.text.syntax import name_fault
from tensorlang.ir.visit import fresh, substitute, walk
from tensorlang.scheduling.analysis.coverage import first_only
from tensorlang.scheduling.analysis.regions import Range, Ranges, Region, relax

N = TypeVar("N", bound=ir.Node)


def tile_of(buffer: ir.Buffer, region: Region, name: str, scope: str) -> ir.Buffer:
    """A buffer for a region of another one."""
    shape = tuple(part.extent.expr() for part in region)
    return ir.Buffer(name, buffer.dtype, shape, scope)


@dataclass(slots=True)
class Localizer:
    """Rewrites the indices of one block from a buffer to a tile of it."""

    block: ir.Block  # original block; `axes` collects its additional ones
    inside: Ranges  # ranges of the loops inside the tile's scope
    outside: Mapping[ir.Var, ir.Expr]  # extents of the loops around it
    taken: set[str]  # names in use
    axes: list[ir.Axis] = field(default_factory=list)

    def index(self, index: ir.Expr, start: Poly) -> ir.Expr:
        """`index - start` in terms of the block's axes and of new ones."""
        if isinstance(index, ir.Ramp):
            base = self.index(index.base, start)
            return dataclasses.replace(index, base=base)
        if not self._moving(start):
            return index if start == Poly() else _relative(index, start)
        rest, total = Poly() - start, Poly()
        for atom, coefficient in linear(index).terms:
            axis = self._axis(atom)
            low = self._low(axis) if axis else None
            if axis and low and self._moving(low):
                total += self._local(axis, low).scaled(coefficient)
                rest += low.scaled(coefficient)
            else:
                total += term(atom, coefficient)
        rest = rest.shifted(linear(index).constant)
        if self._moving(rest):
            return _relative(index, linear(self._pinned(start.expr())))
        return (total + rest).expr()

    def _moving(self, form: Poly) -> bool:
        return bool(form.vars & self.outside.keys())

    def _axis(self, atom: ir.Expr) -> ir.Axis | None:
        return next((axis for axis in self.block.axes if axis.var == atom), None)

    def _low(self, axis: ir.Axis) -> Poly | None:
        found = relax(axis.value, self.inside)
        return found.low if found else None

    def _local(self, axis: ir.Axis, low: Poly) -> Poly:
        """`axis` relative to the tile's start: a new axis, or a constant."""
        value = linear(axis.value) - low
        found = relax(axis.value, self.inside)
        if value.is_constant or found is None:
            return value
        name, extent = f"{axis.var.name}_in", found.extent.expr()
        return term(self._extra(name, axis.kind, extent, value.expr()))

    def _extra(self, name: str, kind: str, extent: ir.Expr, value: ir.Expr) -> ir.Var:
        for axis in (*self.block.axes, *self.axes):
            if axis.value == value and axis.kind == kind:
                return axis.var
        var = ir.Var(fresh(name, self.taken), i64)
        self.axes.append(ir.Axis(var, kind, extent, value))
        return var

    def _pinned(self, expr: ir.Expr) -> ir.Expr:
        """`expr` with an axis of the block in place of each outer loop."""
        pins: dict[ir.Var, ir.Expr] = {}
        named = linear(expr).vars
        for var in filter(named.__contains__, self.outside):  # in the loops' order
            kind = self._kind(var)
            pins[var] = self._extra(f"v{var.name}", kind, self.outside[var], var)
        return substitute(expr, pins)

    def _kind(self, loop: ir.Var) -> str:
        """The kind of an axis driven by one loop; it must not restart a reduction."""
        kind, extent = loop_kind(self.block, loop), linear(self.outside[loop])
        folds = [axis for axis in self.block.axes if axis.kind == "reduction"]
        starts = [linear(axis.value) for axis in folds]
        if kind == "reduction" and not first_only(loop, extent, starts):
            return "spatial"
        return kind

    def finish(self, block: ir.Block) -> ir.Block:
        """`block` with the additional axes."""
        return dataclasses.replace(block, axes=(*block.axes, *self.axes))


def _relative(index: ir.Expr, start: Poly) -> ir.Expr:
    """`index - start`; only scalars are sums of terms."""
    if index.dtype.lanes > 1:
        return index - start.expr()
    return (linear(index) - start).expr()


def loop_kind(block: ir.Block, loop: ir.Var) -> str:
    """The kind of a loop for a block: the least free kind of the axes it drives."""
    kinds = {axis.kind for axis in block.axes if loop in linear(axis.value).vars}
    for kind in ("ordered", "reduction", "opaque", "disjoint"):
        if kind in kinds:
            return kind
    return "spatial"


def retarget(
    node: N,
    tiles: Mapping[ir.Buffer, ir.Buffer],
    move: Callable[[tuple[ir.Expr, ...]], tuple[ir.Expr, ...]],
    *,
    reads: bool,
    writes: bool,
) -> N:
    """`node` with its loads or stores of the buffers redirected to their tiles.

    `move` maps indices to those in the tile. Stores to a tile are synchronous.
    """

    def change(access: Access) -> Access:
        wanted = reads if isinstance(access, ir.Load) else writes
        if not wanted or buffers_of(access)[0] not in tiles:
            return access
        made = moved(access, tiles, move(access.indices))
        if isinstance(made, ir.Store):
            return dataclasses.replace(made, hints=at_once(made))
        return made

    return change_accesses(node, change)


def at_once(store: ir.Store) -> tuple[str, ...]:
    """The hints of a store, without `async`."""
    return tuple(hint for hint in store.hints if hint != "async")


@frozen
class Copy:
    """A block's axes over a region: `at` in the buffer, `local` in the tile.

    `loops` are the new loops, outermost first; `where` keeps accesses in bounds.
    """

    loops: tuple[tuple[ir.Var, ir.Expr], ...]
    axes: tuple[ir.Axis, ...]
    at: tuple[ir.Expr, ...]
    local: tuple[ir.Expr, ...]
    where: ir.Expr | None

    def guarded(self, conditions: Sequence[ir.Expr]) -> Copy:
        """The same copy under additional conditions."""
        held = () if self.where is None else tuple(conjuncts(self.where))
        where = conjunction(dict.fromkeys((*held, *conditions)))
        return dataclasses.replace(self, where=where)

    def nest(
        self,
        name: str,
        body: ir.Stmt,
        extra: Sequence[ir.Axis] = (),
        init: ir.Stmt | None = None,
    ) -> ir.Stmt:
        """The loops around one block with this body."""
        made: ir.Stmt = ir.Block(name, (*self.axes, *extra), body, self.where, init)
        for var, extent in reversed(self.loops):
            made = ir.For(var, extent, "serial", made)
        return made


def copy_over(
    buffer: ir.Buffer,
    region: Region,
    around: Ranges,
    taken: set[str],
    indices: Sequence[ir.Expr],
) -> Copy:
    """Loops and axes that visit the part of `region` inside `buffer`.

    Args:
        buffer: The buffer of the region.
        region: One range per dimension.
        around: Ranges of the enclosing loops, to prove guards superfluous.
        taken: Names in use; new ones are added.
        indices: Where the buffer is used, by axes that give the loops their names.
    """
    loops: list[tuple[ir.Var, ir.Expr]] = []
    axes: list[ir.Axis] = []
    at: list[ir.Expr] = []
    local: list[ir.Expr] = []
    where: list[ir.Expr] = []
    words = [_word(index, d) for d, index in enumerate(indices)]
    for word, part, extent in zip(words, region, buffer.shape, strict=True):
        counter: ir.Expr = ir.Const(0, i64)
        if part.extent != number(1):
            counter = ir.Var(fresh(word, taken), i64)
            loops.append((counter, part.extent.expr()))
        value = (part.low + linear(counter)).expr()
        axis = ir.Axis(ir.Var(fresh(f"v{word}", taken), i64), "spatial", extent, value)
        axes.append(axis)
        at.append(axis.var)
        where += _inside(part, extent, value, around)
        local.append(_local_axis(part, axis, counter, axes, taken))
    return Copy(
        tuple(loops),
        tuple(axes),
        tuple(at),
        tuple(local),
        conjunction(dict.fromkeys(where)),
    )


def _word(index: ir.Expr, d: int) -> str:
    """What a loop along dimension `d` is called: the first axis of its index, or `cD`.

    Of `vi_in` it is `i`.
    """
    names = (node.name for node in walk(index) if isinstance(node, ir.Var))
    word = re.sub(r"(_in|_\d+)+$", "", next(names, "").removeprefix("v"))
    return word if name_fault(word) is None else f"c{d}"


def _local_axis(
    part: Range, axis: ir.Axis, counter: ir.Expr, axes: list[ir.Axis], taken: set[str]
) -> ir.Expr:
    if part.low == Poly():
        return axis.var
    if not isinstance(counter, ir.Var):
        return counter
    var = ir.Var(fresh(f"{axis.var.name}_in", taken), i64)
    axes.append(ir.Axis(var, "spatial", part.extent.expr(), counter))
    return var


def _inside(
    part: Range, extent: ir.Expr, value: ir.Expr, around: Ranges
) -> list[ir.Expr]:
    """The bounds checks needed to keep `value` within the dimension."""
    low, high = _extreme(part.low, around, high=False), _extreme(part.high, around)
    room = linear(extent) - high
    asked = []
    if not (low.is_constant and low.constant >= 0):
        asked.append(value >= 0)
    ends = {v: (r.low.expr(), r.high.expr()) for v, r in around.items() if r}
    known = room.is_constant and room.constant > 0
    if not known and not prove(part.high.expr() < extent, ends):
        asked.append(value < extent)
    return asked


def _extreme(form: Poly, around: Ranges, *, high: bool = True) -> Poly:
    found = relax(form.expr(), around)
    if found is None:
        return form
    return found.high if high else found.low


def need_known(region: Region | None, what: str) -> Region:
    """The region; ScheduleError if the buffer is not accessed there."""
    if region is None:
        raise ScheduleError(what)
    return region
