"""Steps on blocks of queries and keys: the products of attention and its gradient.

Scores are transposed, `scores[j, i] = k[j] . q[i]`, so that queries lie along vectors:
maxima and sums over keys are taken lane by lane, and no product needs a transposed copy
of keys or values. Only queries are transposed, once per block. Keys and queries beyond
the last ones are computed together with them, from repeated rows, and not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensorlang import ir
from tensorlang.ops.nn.attention_blocks import (
    FEW,
    KEYS,
    LANES,
    QUERIES,
    ROWS,
    Loop,
    Nest,
    Place,
)

if TYPE_CHECKING:
    from tensorlang.ops.nn.attention_definitions import Problem

GROUPS: Final = (QUERIES // LANES, LANES)


class Steps:
    """The temporaries of a block of queries, and the steps on them.

    Attributes:
        p: The problem.
        nest: The loops around the steps.
        kind: The type that is computed in.
        held: The temporaries so far.
    """

    def __init__(self, p: Problem) -> None:
        self.p, self.nest = p, Nest(p)
        self.kind: ir.DType = ir.f32 if p.q.dtype.bits < 32 else p.q.dtype
        self.held: list[ir.Tensor] = []
        self.count, self.length = self.nest.here.count, self.nest.here.length
        groups = (self.count + (LANES - 1)) // LANES
        self.lanes = Loop("u", groups), Loop("lane", ir.as_expr(LANES))
        self.few = (
            Loop("f", (self.count + (FEW - 1)) // FEW),
            Loop("r", ir.as_expr(FEW)),
        )
        several = (self.length + (ROWS - 1)) // ROWS
        self.rows = Loop("s", several), Loop("r", ir.as_expr(ROWS))

    def buffer(self, name: str, *shape: ir.Expr | int) -> ir.Tensor:
        """A new temporary."""
        self.held.append(ir.placeholder(shape, self.kind, name))
        return self.held[-1]

    def block_of_scores(self, name: str) -> ir.Tensor:
        """A temporary for a number per key and query."""
        return self.buffer(name, KEYS // ROWS, ROWS, *GROUPS)

    def per_query(self, name: str, width: ir.Expr) -> ir.Tensor:
        """A temporary for a row per query."""
        return self.buffer(name, QUERIES // FEW, FEW, width)

    def allocated(self) -> list[ir.Stmt]:
        """The allocations of all temporaries."""
        return [ir.Alloc(tensor.buffer) for tensor in self.held]

    # ----------------------------------------------------------- a block of queries

    def packed(
        self, name: str, of: ir.Tensor, scale: float = 1.0
    ) -> tuple[ir.Tensor, ir.Stmt]:
        """The rows of a block of queries, transposed and scaled."""
        width = of.buffer.shape[-1]
        made = self.buffer(name, width, *GROUPS)

        def pack(at: Place, u: ir.Expr, i: ir.Expr, c: ir.Expr) -> ir.Stmt:
            value = ir.wide(of[(*at.query(u * LANES + i), c)])
            return store(made, (c, u, i), value * scale)

        return made, self.nest.block(name, (*self.lanes, Loop("c", width)), pack)

    def cleared(self, name: str, rows: ir.Tensor) -> ir.Stmt:
        """Zeros for each query."""

        def clear(at: Place, f: ir.Expr, r: ir.Expr, e: ir.Expr) -> ir.Stmt:
            del at
            return store(rows, (f, r, e), ir.as_expr(0.0, self.kind))

        width = Loop("e", rows.buffer.shape[-1])
        return self.nest.block(name, (*self.few, width), clear)

    # -------------------------------------------------------- with a block of keys

    def product(
        self, name: str, made: ir.Tensor, of: ir.Tensor, packed: ir.Tensor
    ) -> ir.Stmt:
        """`made[j, i]`, the dot product of a key's row and a query's packed row."""

        def dot(at: Place, *axes: ir.Expr) -> ir.Stmt:
            u, s, r, i, c = axes
            value = ir.wide(of[(*at.key(s * ROWS + r), c)]) * packed[c, u, i]
            return add(made, (s, r, u, i), value)

        u, lane = self.lanes
        depth = Loop("c", of.buffer.shape[-1], "reduction")
        inner = (u, *self.rows, lane, depth)
        return self.nest.block(name, inner, dot, t="spatial")

    def masked(self, name: str, scores: ir.Tensor) -> ir.Stmt:
        """Apply the mask to scores: minus infinity for keys that are hidden."""

        def hide(at: Place, j: ir.Expr, u: ir.Expr, i: ir.Expr) -> ir.Stmt:
            place = of_key(j, u, i)
            return store(scores, place, at.score(u * LANES + i, j, scores[place]))

        inner = (Loop("j", self.length), *self.lanes)
        return self.nest.block(name, inner, hide, t="spatial")

    def over_keys(
        self, name: str, made: ir.Tensor, weight: ir.Tensor, of: ir.Tensor
    ) -> ir.Stmt:
        """Add to each query's row the weighted sum of the keys' rows."""

        def sums(at: Place, f: ir.Expr, r: ir.Expr, e: ir.Expr, j: ir.Expr) -> ir.Stmt:
            row = ir.wide(of[(*at.key(j), e)])
            return add(made, (f, r, e), weight[of_key(j, *lane_of(f, r))] * row)

        width = Loop("e", made.buffer.shape[-1])
        inner = (*self.few, width, Loop("j", self.length, "reduction"))
        return self.nest.block(name, inner, sums, t="reduction", init=ir.seq())

    def over_queries(
        self, name: str, made: ir.Tensor, weight: ir.Tensor, of: ir.Tensor
    ) -> ir.Stmt:
        """Each key's weighted sum of the queries' rows."""

        def sums(at: Place, s: ir.Expr, r: ir.Expr, e: ir.Expr, i: ir.Expr) -> ir.Stmt:
            row = ir.wide(of[(*at.query(i), e)])
            return add(made, (s, r, e), weight[s, r, i // LANES, i % LANES] * row)

        width = Loop("e", made.buffer.shape[-1])
        inner = (*self.rows, width, Loop("i", self.count, "reduction"))
        return self.nest.block(name, inner, sums, t="spatial")


def of_key(j: ir.Expr, u: ir.Expr, i: ir.Expr) -> tuple[ir.Expr, ...]:
    """The place of a key's score."""
    return j // ROWS, j % ROWS, u, i


def lane_of(f: ir.Expr, r: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """The lane of a query that is counted in fours."""
    fours = LANES // FEW
    return f // fours, f % fours * FEW + r


def store(tensor: ir.Tensor, place: tuple[ir.Expr, ...], value: ir.Expr) -> ir.Stmt:
    """Store to a temporary."""
    return ir.Store(tensor.buffer, place, value)


def add(tensor: ir.Tensor, place: tuple[ir.Expr, ...], value: ir.Expr) -> ir.Stmt:
    """Add to a sum."""
    reducer = ir.reducers.builtin("sum", (value.dtype,))
    assert reducer is not None
    return ir.Reduce(reducer, (tensor.buffer,), place, (value,))
