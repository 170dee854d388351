"""The gradient of attention by tiles, for products of fragments in registers.

    base, share, inner                        # of each query, by the steps of `tiles`
    for z, h, g in range(...):                # a tile of queries
        for t in range(...):                  # the tiles of keys that they see
            slopes[i, j] = weight[i, j] * (dy[i] . v[j] - inner[i])
            dq[i] += the sum of slopes[i, j] * k[j]
    for z, g in range(...):                   # a tile of keys
        for h, t in range(...):               # the tiles of queries that see them
            slopes[i, j] = weight[i, j] * (v[i] . dy[j] - inner[j])
            dk[i] += the sum of slopes[i, j] * q[j]
            dv[i] += the sum of weight[i, j] * dy[j]

Scores are computed again for each. A weight is `exp(score - base)` times a share, whose
logarithm is kept; `inner` is the product of a result and its gradient. No sum depends
on the order of blocks. Weights and slopes are rounded before they are multiplied.

Dao, "FlashAttention-2", 2023, algorithm 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from tensorlang import ir
from tensorlang.ops.nn.attention_blocks import KEYS, QUERIES, Nest, Place
from tensorlang.ops.nn.attention_steps import add, store
from tensorlang.ops.nn.attention_tile_steps import (
    QUAD,
    TileSteps,
    lane_of,
    of_lane,
)
from tensorlang.ops.nn.attention_tiles import Tiles

if TYPE_CHECKING:
    from tensorlang.ops.nn.attention_definitions import Problem

_NARROW: Final = 64  # columns of sums, next to which there is room for more scores


# what the gradient needs of each query, three of four numbers: what is subtracted from
# its scores, the base-2 logarithm of what its weights are multiplied by, and the
# product of its result with the gradient of that
_BASE, _SHARE, _INNER = range(3)
_OfPair: TypeAlias = Callable[[ir.Expr, ir.Expr], ir.Expr]


def attention_grad(
    dy: ir.Tensor, p: Problem, *, groups: bool = False
) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
    """The gradients of queries, keys and values, by products of warps or warpgroups."""
    saved = _Forward(p, groups=groups).saved(dy)
    dq = _Backward(p, dy, saved, groups=groups).to_queries()
    dk, dv = _Backward(p, dy, saved, groups=groups, turned=True).to_keys()
    return dq, dk, dv


class _Forward(Tiles):
    """The steps from queries to what their gradients need, on tiles."""

    def saved(self, dy: ir.Tensor) -> ir.Tensor:
        """Four numbers per query."""
        *rows, width = dy.buffer.shape
        part, inner = self.shared("parts"), self.shared("inner")
        made = ir.placeholder((*rows, QUAD), ir.f32, "numbers").buffer

        def parts(
            at: Place, i: ir.Expr, lane: ir.Expr, u: ir.Expr, e: ir.Expr
        ) -> ir.Stmt:
            column = of_lane(lane, u, e)
            value = ir.wide(dy[(*at.row(i), column)]) * self.result[i, column]
            return add(part, (i, lane), value)

        def product(at: Place, i: ir.Expr, lane: ir.Expr, k: ir.Expr) -> ir.Stmt:
            del at
            return add(inner, (i, lane), part[i, k])

        def number(at: Place, i: ir.Expr, lane: ir.Expr) -> ir.Stmt:
            top, whole = self.top[i, lane], self.whole[i, lane]
            base = ir.select(top.equal(-math.inf), 0.0, top)
            share = ir.select(whole.equal(0.0), -math.inf, -ir.log2(whole))
            value = inner[i, lane] * self.total[i, lane]
            value = ir.select(lane.equal(_SHARE), share, value)
            value = ir.select(lane.equal(_BASE), base, value)
            stored = ir.Store(made, (*at.row(i)[:-1], at.origin + i, lane), value)
            return ir.If(i < at.inside[0], stored)

        ended = [
            self.summed_up(),
            self.shares(),
            self.block("parts", self.own(width), parts),
            self.block("inner", self.quad, product),
            self.block("numbers", self.lanes, number),
        ]
        return ir.Tensor(made, self.stage(ended, [made], (dy, *self.p.arrays)))


class _Backward(TileSteps):
    """The steps to the gradients of queries or, if these are columns, of keys."""

    def __init__(
        self,
        p: Problem,
        dy: ir.Tensor,
        saved: ir.Tensor,
        *,
        groups: bool,
        turned: bool = False,
    ) -> None:
        wide = max(int(p.q.shape[-1]), int(p.v.shape[-1])) > _NARROW
        columns = KEYS // (2 if wide else 1) // (2 if p.mask else 1)
        rows = 2 * QUERIES if groups else QUERIES
        nest = Nest(p, rows, columns, turned)
        super().__init__(p, nest, "_dk" if turned else "_dq", groups=groups)
        self.inputs = (dy, saved, *p.arrays)
        queries, keys = (p.q, dy), (p.k, p.v)
        own, met = (keys, queries) if turned else (queries, keys)
        self.fixed = [self.of_row(f"row_{n}", x) for n, x in enumerate(own)]
        self.met = [self.of_column(f"column_{n}", x) for n, x in enumerate(met)]
        if turned:
            self.numbers = self.of_column("numbers", saved)
        names = ("base", "share", "inner")
        self.base, self.share, self.inner = (
            self._number(name, saved, n) for n, name in enumerate(names)
        )
        self.scores, self.dweights = map(self.of_pairs, ("scores", "dweights"))
        self.slopes = self.of_pairs("slopes", p.q.dtype)
        self._step()

    def to_queries(self) -> ir.Tensor:
        """The gradient of queries."""
        dq, end = self._summed("dq", self.p.q, self.slopes, self.p.scale)
        return ir.Tensor(dq, self.stage([end], [dq], self.inputs))

    def to_keys(self) -> tuple[ir.Tensor, ir.Tensor]:
        """The gradients of keys and values."""
        weights = self.of_pairs("weights", self.slopes.dtype)

        def weight(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            return store(weights, (i, j), ir.stored(self.scores[i, j], weights.dtype))

        self.steps.append(self.block("weights", self.each, weight, t="spatial"))
        dk, end_keys = self._summed("dk", self.p.k, self.slopes, self.p.scale)
        dv, end_values = self._summed("dv", self.p.v, weights)
        stage = self.stage([end_keys, end_values], [dk, dv], self.inputs)
        return ir.Tensor(dk, stage), ir.Tensor(dv, stage)

    def _number(self, name: str, of: ir.Tensor, n: int) -> _OfPair:
        """A number of a query, by a row and a column."""
        if self.nest.turned:
            return lambda _, j: self.numbers[j, n]
        shared = self.shared(name)

        def copy(at: Place, i: ir.Expr, lane: ir.Expr) -> ir.Stmt:
            return store(shared, (i, lane), of[(*at.row(i), n)])

        self.started.append(self.block(name, self.lanes, copy))
        return lambda i, j: shared[i, lane_of(j)]

    def _step(self) -> None:
        """The weights of a tile, and the gradients of its scores."""

        def weigh(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            relative = self.scores[i, j] - self.base(i, j)
            power = ir.fma(relative, self.factor, self.share(i, j))
            return store(self.scores, (i, j), ir.approximate_exp2(power))

        def slope(at: Place, i: ir.Expr, j: ir.Expr) -> ir.Stmt:
            del at
            value = self.scores[i, j] * (self.dweights[i, j] - self.inner(i, j))
            return store(self.slopes, (i, j), ir.stored(value, self.slopes.dtype))

        self.steps += [
            self.product("scores", self.scores, self.fixed[0], self.met[0]),
            *self.scaled(self.scores),
            self.block("exponentials", self.each, weigh, t="ordered"),
            self.product("dweights", self.dweights, self.fixed[1], self.met[1]),
            self.block("slopes", self.each, slope, t="spatial"),
        ]

    def _summed(
        self, name: str, like: ir.Tensor, weights: ir.Tensor, factor: float = 1.0
    ) -> tuple[ir.Buffer, ir.Stmt]:
        """The gradient of an array of the rows, and what writes a tile of it."""
        total = self.sums(f"sums_{name[-1]}", like.buffer.shape[-1])
        of = self.met[0] if weights is self.slopes else self.met[1]
        self.steps.append(self.summed(f"weighted_{name[-1]}", total, weights, of))
        made = ir.placeholder(like.buffer.shape, like.dtype, name).buffer
        return made, self.written(name, made, total, lambda *_: ir.as_expr(factor))
