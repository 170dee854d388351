"""Blocks of queries and keys: which keys a block of queries sees, and loops over both.

    for z, h, g in range(...):          # a block of queries of a head
        for t in range(...):            # the blocks of keys that they see
            ...

If no key is hidden, the queries of all heads that share keys are taken together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tensorlang import ir
from tensorlang.frozen import frozen

if TYPE_CHECKING:
    from tensorlang.ops.nn.attention_definitions import Problem

QUERIES: Final = 64  # of a block
KEYS: Final = 64  # of a block
LANES: Final = 16  # queries side by side; those beyond the last one are computed, too
ROWS: Final = 8  # keys computed together, likewise
FEW: Final = 4  # queries for which lanes along them would be idle


@frozen
class Loop:
    """A loop, and the kind of the axis that it drives."""

    name: str  # name of the loop
    extent: ir.Expr  # its extent, in terms of the loops around it
    kind: str = "spatial"  # kind of the axis

    @property
    def var(self) -> ir.Var:
        """The loop's variable."""
        return ir.Var(self.name, ir.i64)


def over(loops: Sequence[Loop], body: ir.Stmt) -> ir.Stmt:
    """A statement in loops, the first one outermost."""
    for loop in reversed(loops):
        body = ir.For(loop.var, loop.extent, "serial", body)
    return body


@frozen
class Place:
    """A block of queries, and one of the blocks of keys that it sees."""

    p: Problem
    head: tuple[ir.Expr, ...]  # indices of a head
    g: ir.Expr  # number of the block of queries
    t: ir.Expr  # number of the block of keys
    queries: int = QUERIES  # of a block

    @property
    def count(self) -> ir.Expr:
        """The number of queries."""
        return least(self.p.q.buffer.shape[-2] - self.g * self.queries, self.queries)

    def query(self, i: ir.Expr) -> tuple[ir.Expr, ...]:
        """The index of a query; the last one of all stands for those beyond."""
        last = self.p.q.buffer.shape[-2] - 1
        return (*self.head, least(self.g * self.queries + i, last))

    def key(self, j: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """The index of a key; the last one of all stands for those beyond."""
        return self.head[0], least(self.first + j, self.p.k.buffer.shape[1] - 1)

    def score(self, i: ir.Expr, j: ir.Expr, value: ir.Expr) -> ir.Expr:
        """A score with its mask; minus infinity for a key that is hidden."""
        row = (*self.head, self.g * self.queries + i)
        return self.p.score(row, self.first + j, value)

    @property
    def begin(self) -> ir.Expr:
        """The first key that is seen."""
        if self.p.window is None:
            return ir.as_expr(0)
        low = self.g * self.queries + self.p.shift - (self.p.window - 1)
        return ir.binary("max", low, ir.as_expr(0))

    @property
    def end(self) -> ir.Expr:
        """The end of the keys that are seen."""
        keys = self.p.k.buffer.shape[1]
        return least(self._last + self._ahead + 1, keys) if self.p.limited else keys

    @property
    def steps(self) -> ir.Expr:
        """The number of blocks of keys."""
        return (self.end - self.begin + (KEYS - 1)) // KEYS

    @property
    def first(self) -> ir.Expr:
        """The first key of the block."""
        return self.begin + self.t * KEYS

    @property
    def length(self) -> ir.Expr:
        """The number of keys of the block."""
        return least(self.end - self.first, KEYS)

    @property
    def crosses(self) -> ir.Expr:
        """Whether the block has scores that the mask changes."""
        if self.p.mask is not None:
            return ir.as_expr(True)
        low = self.g * self.queries + self.p.shift
        found = self.first + self.length - 1 > low + self._ahead
        if self.p.window is not None:
            found = found | (self.first <= self._last - self.p.window)
        return found

    @property
    def _last(self) -> ir.Expr:
        """The position of the last query."""
        return self.g * self.queries + self.count - 1 + self.p.shift

    @property
    def _ahead(self) -> int:
        """The number of keys that a query sees beyond its position."""
        return 0 if self.p.causal else (self.p.window or 1) - 1


def least(a: ir.Expr, b: ir.Expr | int) -> ir.Expr:
    """The smaller of two integers."""
    return ir.binary("min", a, b)


@frozen
class Nest:
    """The loops over blocks, and blocks inside of them."""

    p: Problem
    queries: int = QUERIES  # of a block

    @property
    def outer(self) -> tuple[Loop, ...]:
        """The loops over heads and blocks of queries."""
        z, *heads, m, _ = self.p.q.buffer.shape
        inner = [Loop("h", heads[0])] if heads else []
        return (
            Loop("z", z),
            *inner,
            Loop("g", (m + (self.queries - 1)) // self.queries),
        )

    @property
    def here(self) -> Place:
        """The place in terms of the loops."""
        return self._place([loop.var for loop in self.outer], ir.Var("t", ir.i64))

    def keys(self, kind: str = "spatial") -> Loop:
        """The loop over blocks of keys, and the kind of the axes that it drives."""
        return Loop("t", self.here.steps, kind)

    def _place(self, axes: Sequence[ir.Expr], t: ir.Expr) -> Place:
        *head, g = axes
        return Place(self.p, tuple(head), g, t, self.queries)

    def block(
        self,
        name: str,
        inner: Sequence[Loop],
        body: Callable[..., ir.Stmt],
        *,
        g: str = "spatial",
        t: str = "",
        init: ir.Stmt | None = None,
    ) -> ir.Stmt:
        """A block in loops of its own.

        Args:
            inner: Its loops.
            body: What it does, from the place and its loops' axes.
            g: The kind of its axes for heads that share keys, and blocks of queries.
            t: The kind of its axis for blocks of keys, if it is in that loop.
            init: As for `Block`.
        """
        of_z, *others = self.outer
        around = [of_z, *(replace(loop, kind=g) for loop in others)]
        around += [self.keys(t)] if t else []
        own = {loop.var: ir.Var(f"{name}_{loop.name}", ir.i64) for loop in inner}
        axes = tuple(
            ir.Axis(
                ir.Var(f"v{name}_{loop.name}", ir.i64),
                loop.kind,
                loop.extent,
                own.get(loop.var, loop.var),
            )
            for loop in (*around, *inner)
        )
        *outside, last = (axis.var for axis in axes[: len(around)])
        place = self._place(outside, last) if t else self._place([*outside, last], last)
        inside = (axis.var for axis in axes[len(around) :])
        made: ir.Stmt = ir.Block(name, axes, body(place, *inside), init=init)
        return over([Loop(own[x.var].name, x.extent) for x in inner], made)
