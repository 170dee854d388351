"""Steps on tiles of rows and columns, for products of fragments in registers.

Rows are queries and columns keys, or the other way round (`Nest.turned`). Lanes are
along rows: `l` counts the four that share a row of scores as matrix instructions leave
them, two neighbours of each eight. Each has a copy of what belongs to the row. Operands
of products have the type of the arrays, and sums are f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang import ir
from tensorlang.ir.contents import writes
from tensorlang.ops.nn.attention_blocks import Loop, Nest, Place, over
from tensorlang.ops.nn.attention_steps import add, store

if TYPE_CHECKING:
    from tensorlang.ops.nn.attention_definitions import Problem

QUAD: Final = 4  # lanes that share a row
PAIR: Final = 2  # neighbouring elements of a lane
LOG2_E: Final = math.log2(math.e)


class TileSteps:
    """The temporaries of a tile of rows, and of the tiles of columns that it meets.

    Attributes:
        p: The problem.
        nest: The loops around the steps.
        suffix: Of the names of temporaries and blocks, where there are other nests.
        groups: Whether warpgroups multiply, of copies in bulk.
        held: The temporaries so far.
        started: The steps that start a tile of rows, so far.
        steps: Those with each tile of columns, so far.
        late: Whether scores are scaled in the exponent.
        factor: Of differences of scores, for powers of 2.
    """

    def __init__(
        self, p: Problem, nest: Nest, suffix: str = "", *, groups: bool = False
    ) -> None:
        self.p, self.nest, self.suffix, self.groups = p, nest, suffix, groups
        self.held: list[ir.Tensor] = []
        self.started: list[ir.Stmt] = []
        self.steps: list[ir.Stmt] = []
        # scores that no mask changes are scaled in the exponent: their order stays
        single = np.finfo(np.float32)
        exact = float(single.tiny) <= p.scale * LOG2_E <= float(single.max)
        self.late = p.mask is None and exact
        self.factor = p.scale * LOG2_E if self.late else LOG2_E
        self.rows = Loop("i", ir.as_expr(nest.rows))
        self.lanes = self.rows, Loop("l", ir.as_expr(QUAD))
        self.quad = (*self.lanes, Loop("k", ir.as_expr(QUAD), "reduction"))
        self.each = self.rows, Loop("j", ir.as_expr(nest.columns))

    def tile(self, name: str, columns: ir.Expr, dtype: ir.DType = ir.f32) -> ir.Tensor:
        """A new temporary of a tile's rows."""
        return self._held(name, self.nest.rows, columns, dtype)

    def of_pairs(self, name: str, dtype: ir.DType = ir.f32) -> ir.Tensor:
        """A new temporary for a number per row and column."""
        return self.tile(name, ir.as_expr(self.nest.columns), dtype)

    def shared(self, name: str) -> ir.Tensor:
        """A new temporary for a number per row, with a copy for each of its lanes."""
        return self.tile(name, ir.as_expr(QUAD))

    def _held(
        self, name: str, rows: int, columns: ir.Expr, dtype: ir.DType
    ) -> ir.Tensor:
        named = f"{name}{self.suffix}"
        self.held.append(ir.placeholder((rows, columns), dtype, named))
        return self.held[-1]

    def block(self, name: str, *given: Any, **options: Any) -> ir.Stmt:
        """A block in loops of its own, as `Nest.block`."""
        return self.nest.block(f"{name}{self.suffix}", *given, **options)

    def stage(
        self,
        ended: Sequence[ir.Stmt],
        outputs: Sequence[ir.Buffer],
        inputs: Sequence[ir.Tensor],
    ) -> ir.Stage:
        """The loops: what starts a tile of rows, meets columns, and ends it."""
        within = [tensor.buffer for tensor in self.held]
        lasting = {b for x in (self.started, ended) for b in writes(ir.seq(x))}
        inner = [ir.Alloc(buffer) for buffer in within if buffer not in lasting]
        outer = [ir.Alloc(buffer) for buffer in within if buffer in lasting]
        loop = over(self.nest.inner(), ir.seq(inner, self.steps))
        nest = over(self.nest.outer, ir.seq(outer, self.started, loop, ended))
        return ir.Stage(nest, tuple(outputs), tuple(inputs))

    def own(self, columns: ir.Expr | int) -> tuple[Loop, ...]:
        """The loops over the elements of a row that each of its lanes has."""
        eights = ir.as_expr(columns) // (QUAD * PAIR)
        return (
            *self.lanes,
            Loop("u", eights, "reduction"),
            Loop("e", ir.as_expr(PAIR), "reduction"),
        )

    def of_row(self, name: str, of: ir.Tensor) -> ir.Tensor:
        """A copy of the tile's rows of an array."""
        width = of.buffer.shape[-1]
        made = self.tile(name, width, of.dtype)

        def copy(at: Place, i: ir.Expr, c: ir.Expr) -> ir.Stmt:
            return store(made, (i, c), of[(*at.row(i), c)])

        own = self.rows, Loop("c", width)
        self.started.append(self.block(name, own, copy))
        return made

    def of_column(self, name: str, of: ir.Tensor) -> ir.Tensor:
        """A copy of the columns that a tile meets: rows of an array.

        In bulk, there are zeros beyond the last one.
        """
        width, columns = of.buffer.shape[-1], self.each[1]
        made = self._held(name, self.nest.columns, width, of.dtype)

        def copy(at: Place, j: ir.Expr, c: ir.Expr) -> ir.Stmt:
            value: ir.Expr = of[(*at.column(j), c)]
            if self.groups:
                inside = at.begun + j < of.buffer.shape[-2]
                value = ir.select(inside, value, ir.as_expr(0, of.dtype))
            return store(made, (j, c), value)

        own = columns, Loop("c", width)
        self.steps.append(self.block(name, own, copy, t="spatial"))
        return made

    def product(
        self, name: str, made: ir.Tensor, row: ir.Tensor, column: ir.Tensor
    ) -> ir.Stmt:
        """`made[i, j]`, the dot product of a row and a column."""

        def dot(at: Place, i: ir.Expr, j: ir.Expr, c: ir.Expr) -> ir.Stmt:
            del at
            return add(made, (i, j), ir.wide(row[i, c]) * ir.wide(column[j, c]))

        inner = (*self.each, Loop("c", row.buffer.shape[-1], "reduction"))
        return self.block(name, inner, dot, t="spatial")

    def summed(
        self, name: str, made: ir.Tensor, weights: ir.Tensor, of: ir.Tensor
    ) -> ir.Stmt:
        """Add to each row the weighted sum of what belongs to columns."""

        def weighted(at: Place, i: ir.Expr, e: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            value = ir.wide(weights[i, j]) * ir.wide(of[j, e])
            return add(made, (i, e), value)

        columns = Loop("j", self.each[1].extent, "reduction")
        inner = (*self.columns_of(made), columns)
        return self.block(name, inner, weighted, t="reduction", init=ir.seq())

    def sums(self, name: str, columns: ir.Expr) -> ir.Tensor:
        """A new temporary of a tile's rows, of zeros at first."""
        made = self.tile(name, columns)

        def clear(at: Place, i: ir.Expr, e: ir.Expr) -> ir.Stmt:
            del at
            return store(made, (i, e), ir.as_expr(0.0, made.dtype))

        own = self.columns_of(made)
        self.started.append(self.block(f"{name}_cleared", own, clear))
        return made

    def written(
        self,
        name: str,
        y: ir.Buffer,
        made: ir.Tensor,
        factor: Callable[[ir.Expr, ir.Expr], ir.Expr],
    ) -> ir.Stmt:
        """Write a tile's rows, times a factor, to an array of rows."""

        def write(at: Place, i: ir.Expr, e: ir.Expr) -> ir.Stmt:
            value = ir.stored(made[i, e] * factor(i, e), y.dtype)
            *head, _ = at.row(i)
            stored = ir.Store(y, (*head, at.origin + i, e), value)
            return ir.If(i < at.inside[0], stored)

        return self.block(name, self.columns_of(made), write)

    def columns_of(self, made: ir.Tensor) -> tuple[Loop, Loop]:
        """The loops over a tile's rows, and over the columns of a temporary."""
        return self.rows, Loop("e", made.buffer.shape[-1])

    def scaled(self, scores: ir.Tensor) -> list[ir.Stmt]:
        """Scale scores; minus infinity for keys that are hidden, or beyond the last."""

        def scale(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            return store(scores, (i, j), scores[i, j] * self.p.scale)

        def hide(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            query, key = at.pair(i, j)
            value = self.p.score(at.query(query), at.key(key)[1], scores[i, j])
            seen = j < at.inside[1]
            return store(scores, (i, j), ir.select(seen, value, -math.inf))

        here = self.nest.here
        hidden = here.inside[1] < self.nest.columns
        if self.p.masked:
            hidden |= here.crosses
        masks = ir.If(hidden, self.block("masks", self.each, hide, t="ordered"))
        scaled = self.block("scaled", self.each, scale, t="ordered")
        return [masks] if self.late else [scaled, masks]

    def power(self, difference: ir.Expr) -> ir.Expr:
        """`e` to the power of a difference of scores, as a power of 2.

        Scores are subtracted first: a product of a large one has too large an error.
        """
        return ir.approximate_exp2(difference * self.factor)


def lane_of(column: ir.Expr) -> ir.Expr:
    """The lane that has a column."""
    return column % (QUAD * PAIR) // PAIR


def of_lane(lane: ir.Expr, u: ir.Expr, e: ir.Expr) -> ir.Expr:
    """The column of an element that a lane has."""
    return (u * QUAD + lane) * PAIR + e
