"""Attention by tiles of queries and keys, for products of fragments in registers.

    for z, h, g in range(...):                # a tile of queries
        for t in range(...):                  # the tiles of keys that they see
            scores[i, j] = query[i] . keys[j]
            top[i, l], total[i, l]            # rescaled where the maximum grows
            weights[i, j] = exp(scores[i, j] - top[i, l])     # as a power of 2
            result[i] = result[i] * fade[i, l] + the sum of weights[i, j] * values[j]
        y[i] = result[i] / total[i, l]

`online` has lanes along queries; here lanes are along rows, too: `l` counts the four
that share a row of scores as matrix instructions leave them, two neighbours of each
eight. Each has a copy of what belongs to the row. Operands of products have the type
of the arrays, and sums are f32: weights are rounded before they are multiplied.

Dao, "FlashAttention-2", 2023.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang import ir
from tensorlang.ops.nn.attention_blocks import (
    KEYS,
    QUERIES,
    Loop,
    Nest,
    Place,
    over,
)
from tensorlang.ops.nn.attention_steps import add, store

if TYPE_CHECKING:
    from tensorlang.ops.nn.attention_definitions import Problem

_QUAD: Final = 4  # lanes that share a row
_PAIR: Final = 2  # neighbouring elements of a lane
_LOG2_E: Final = math.log2(math.e)
_NARROW: Final = 64  # columns of results of which a thread holds those of more rows


def attention(p: Problem) -> ir.Tensor:
    """The result, one for each query of `p.q`."""
    return _Tiles(p).program()


class _Tiles:
    """The steps from queries to results, on tiles."""

    def __init__(self, p: Problem) -> None:
        depth, width = int(p.q.shape[-1]), int(p.v.shape[-1])
        self.p, self.depth, self.width = p, ir.as_expr(depth), ir.as_expr(width)
        # twice the queries halve what warps load of keys and values for each product
        self.queries = 2 * QUERIES if width <= _NARROW else QUERIES
        self.nest = Nest(p, self.queries)
        self.held: list[ir.Tensor] = []  # temporaries of a tile of queries
        element = p.q.dtype
        self.query = self.tile("query", self.queries, self.depth, element)
        self.result = self.tile("result", self.queries, self.width)
        self.top, self.total, self.whole = map(self.shared, ("top", "sums", "whole"))
        self.outer, self.held = self.held, []
        self.keys = self.tile("keys", KEYS, self.depth, element)
        self.values = self.tile("values", KEYS, self.width, element)
        self.scores = self.tile("scores", self.queries, KEYS)
        self.weights = self.tile("weights", self.queries, KEYS, element)
        self.highest, self.peak, self.base, self.fade = map(
            self.shared, ("highest", "peak", "base", "fade")
        )
        # scores that no mask changes are scaled in the exponent: their order stays
        single = np.finfo(np.float32)
        exact = float(single.tiny) <= p.scale * _LOG2_E <= float(single.max)
        self.late = p.mask is None and exact
        self.factor = p.scale * _LOG2_E if self.late else _LOG2_E
        self.rows = Loop("i", ir.as_expr(self.queries))
        self.lanes = self.rows, Loop("l", ir.as_expr(_QUAD))
        self.eights = Loop("u", ir.as_expr(KEYS // (_QUAD * _PAIR)), "reduction")
        self.pairs = Loop("e", ir.as_expr(_PAIR), "reduction")

    def tile(
        self, name: str, rows: int, columns: ir.Expr | int, dtype: ir.DType = ir.f32
    ) -> ir.Tensor:
        """A new temporary of rows and columns."""
        self.held.append(ir.placeholder((rows, columns), dtype, name))
        return self.held[-1]

    def shared(self, name: str) -> ir.Tensor:
        """A new temporary for a number per row, with a copy for each of its lanes."""
        return self.tile(name, self.queries, _QUAD)

    def program(self) -> ir.Tensor:
        """The result."""
        p = self.p
        *rows, _ = p.q.buffer.shape
        y = ir.placeholder((*rows, self.width), p.q.dtype, "y").buffer
        inner = [ir.Alloc(tensor.buffer) for tensor in self.held]
        steps = over(
            [self.nest.keys()], ir.seq(inner, self._scored(), self._weighted())
        )
        outer = [ir.Alloc(tensor.buffer) for tensor in self.outer]
        body = ir.seq(outer, self._started(), steps, self._finished(y))
        nest = over(self.nest.outer, body)
        return ir.Tensor(y, ir.Stage(nest, (y,), p.arrays))

    def _started(self) -> list[ir.Stmt]:
        """A copy of the queries, and the first maxima and sums."""
        none, zero = ir.as_expr(-math.inf, ir.f32), ir.as_expr(0.0, ir.f32)

        def query(at: Place, i: ir.Expr, c: ir.Expr) -> ir.Stmt:
            return store(self.query, (i, c), self.p.q[(*at.query(i), c)])

        def start(at: Place, i: ir.Expr, lane: ir.Expr) -> ir.Stmt:
            del at
            lowest = store(self.top, (i, lane), none)
            return ir.seq(lowest, store(self.total, (i, lane), zero))

        def clear(at: Place, i: ir.Expr, e: ir.Expr) -> ir.Stmt:
            del at
            return store(self.result, (i, e), zero)

        block = self.nest.block
        return [
            block("query", (self.rows, Loop("c", self.depth)), query),
            block("start", self.lanes, start),
            block("clear", (self.rows, Loop("e", self.width)), clear),
        ]

    def _scored(self) -> list[ir.Stmt]:
        """Copies of a tile of keys and values, and its scores."""

        def keys(at: Place, j: ir.Expr, c: ir.Expr) -> ir.Stmt:
            return store(self.keys, (j, c), self.p.k[(*at.key(j), c)])

        def values(at: Place, j: ir.Expr, e: ir.Expr) -> ir.Stmt:
            return store(self.values, (j, e), self.p.v[(*at.key(j), e)])

        def dot(at: Place, i: ir.Expr, j: ir.Expr, c: ir.Expr) -> ir.Stmt:
            del at
            value = ir.wide(self.query[i, c]) * ir.wide(self.keys[j, c])
            return add(self.scores, (i, j), value)

        block, of_keys = self.nest.block, Loop("j", ir.as_expr(KEYS))
        depth, width = Loop("c", self.depth), Loop("e", self.width)
        dots = (self.rows, of_keys, Loop("c", self.depth, "reduction"))
        return [
            block("keys", (of_keys, depth), keys, t="spatial"),
            block("values", (of_keys, width), values, t="spatial"),
            block("scores", dots, dot, t="spatial"),
            *self._scaled(),
        ]

    def _scaled(self) -> list[ir.Stmt]:
        """Scale scores; minus infinity for keys that are hidden, or beyond the last."""

        def scale(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            return store(self.scores, (i, j), self.scores[i, j] * self.p.scale)

        def hide(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            key = at.first + j
            value = self.p.score(at.query(i), at.key(j)[1], self.scores[i, j])
            seen = key < self.p.k.buffer.shape[1]
            return store(self.scores, (i, j), ir.select(seen, value, -math.inf))

        here, each = self.nest.here, (self.rows, Loop("j", ir.as_expr(KEYS)))
        hidden = here.length < KEYS
        if self.p.masked:
            hidden |= here.crosses
        masks = ir.If(hidden, self.nest.block("masks", each, hide, t="ordered"))
        scaled = self.nest.block("scaled", each, scale, t="ordered")
        return [masks] if self.late else [scaled, masks]

    def _weighted(self) -> list[ir.Stmt]:
        """The weights of a tile, their sums, and the sums of values."""
        top = ir.rows.top_of(ir.f32)

        def of_lane(lane: ir.Expr, u: ir.Expr, e: ir.Expr) -> ir.Expr:
            return (u * _QUAD + lane) * _PAIR + e

        def highest(
            at: Place, i: ir.Expr, lane: ir.Expr, u: ir.Expr, e: ir.Expr
        ) -> ir.Stmt:
            del at
            value = self.scores[i, of_lane(lane, u, e)]
            return ir.Reduce(top, (self.highest.buffer,), (i, lane), (value,))

        def peak(at: Place, i: ir.Expr, lane: ir.Expr, k: ir.Expr) -> ir.Stmt:
            del at
            value = self.highest[i, k]
            return ir.Reduce(top, (self.peak.buffer,), (i, lane), (value,))

        def exponential(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            value = self._power(self.scores[i, j] - self.base[i, _lane_of(j)])
            return store(self.scores, (i, j), value)

        def total(
            at: Place, i: ir.Expr, lane: ir.Expr, u: ir.Expr, e: ir.Expr
        ) -> ir.Stmt:
            del at
            value = self.scores[i, of_lane(lane, u, e)]
            return add(self.total, (i, lane), value)

        def weight(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            value = ir.stored(self.scores[i, j], self.weights.dtype)
            return store(self.weights, (i, j), value)

        def fade(at: Place, i: ir.Expr, e: ir.Expr) -> ir.Stmt:
            del at
            value = self.result[i, e] * self.fade[i, _lane_of(e)]
            return store(self.result, (i, e), value)

        def weighted(at: Place, i: ir.Expr, e: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            value = ir.wide(self.weights[i, j]) * ir.wide(self.values[j, e])
            return add(self.result, (i, e), value)

        block = self.nest.block
        own = (*self.lanes, self.eights, self.pairs)
        each = self.rows, Loop("j", ir.as_expr(KEYS))
        columns = self.rows, Loop("e", self.width)
        quad = (*self.lanes, Loop("k", ir.as_expr(_QUAD), "reduction"))
        folded = (*columns, Loop("j", ir.as_expr(KEYS), "reduction"))
        kept = ir.seq()
        return [
            block("highest", own, highest, t="spatial"),
            block("peak", quad, peak, t="spatial"),
            block("grow", self.lanes, self._grow, t="ordered"),
            block("exponentials", each, exponential, t="ordered"),
            block("totals", own, total, t="reduction", init=kept),
            block("weights", each, weight, t="spatial"),
            block("fades", columns, fade, t="ordered"),
            block("weighted", folded, weighted, t="reduction", init=kept),
        ]

    def _grow(self, at: Place, i: ir.Expr, lane: ir.Expr) -> ir.Stmt:
        """The maximum with this tile, and sums relative to it."""
        del at
        place = i, lane
        before, most = self.top[place], ir.Var("most", ir.f32)
        peak = self.peak[place]
        base = ir.select(most.equal(-math.inf), 0.0, most)
        fade = self._power(before - self.base[place])
        return ir.seq(
            ir.Let(most, ir.select(before > peak, before, peak)),
            store(self.base, place, base),
            store(self.fade, place, fade),
            store(self.total, place, self.total[place] * self.fade[place]),
            store(self.top, place, most),
        )

    def _power(self, difference: ir.Expr) -> ir.Expr:
        """`e` to the power of a difference of scores, as a power of 2.

        Scores are subtracted first: a product of a large one has too large an error.
        """
        return ir.approximate_exp2(difference * self.factor)

    def _finished(self, y: ir.Buffer) -> list[ir.Stmt]:
        """Divide the sums of values by the sums of weights; zeros if there are none."""

        def whole(at: Place, i: ir.Expr, lane: ir.Expr, k: ir.Expr) -> ir.Stmt:
            del at
            return add(self.whole, (i, lane), self.total[i, k])

        def share(at: Place, i: ir.Expr, lane: ir.Expr) -> ir.Stmt:
            del at
            whole: ir.Expr = self.whole[i, lane]
            value = 1.0 / ir.select(whole.equal(0.0), 1.0, whole)
            return store(self.total, (i, lane), value)

        def finish(at: Place, i: ir.Expr, e: ir.Expr) -> ir.Stmt:
            value = self.result[i, e] * self.total[i, _lane_of(e)]
            row = at.g * self.queries + i
            stored = ir.Store(y, (*at.head, row, e), ir.stored(value, y.dtype))
            return ir.If(row < self.p.q.buffer.shape[-2], stored)

        block = self.nest.block
        quad = (*self.lanes, Loop("k", ir.as_expr(_QUAD), "reduction"))
        columns = self.rows, Loop("e", self.width)
        return [
            block("whole", quad, whole),
            block("share", self.lanes, share),
            block("y", columns, finish),
        ]


def _lane_of(column: ir.Expr) -> ir.Expr:
    """The lane that has a column."""
    return column % (_QUAD * _PAIR) // _PAIR
