"""Blocks of queries and keys: which keys a block of queries sees, and loops over both.

    for z, h, g in range(...):          # a block of queries of a head
        for t in range(...):            # the blocks of keys that they see
            ...

If no key is hidden, the queries of all heads that share keys are taken together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tensorlang.ir import as_expr, i64
from tensorlang.ir.nodes import Axis, Block, For, Var, binary

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, Stmt
    from tensorlang.ops.nn.attention_definitions import Problem

QUERIES: Final = 64  # of a block
KEYS: Final = 64  # of a block
LANES: Final = 16  # queries side by side; those beyond the last one are computed, too
ROWS: Final = 8  # keys computed together, likewise
FEW: Final = 4  # queries for which lanes along them would be idle


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, and the kind of the axis that it drives.

    Attributes:
        name: The name of the loop.
        extent: Its extent, in terms of the loops around it.
        kind: The kind of the axis.
    """

    name: str
    extent: Expr
    kind: str = "spatial"

    @property
    def var(self) -> Var:
        """The loop's variable."""
        return Var(self.name, i64)


def over(loops: Sequence[Loop], body: Stmt) -> Stmt:
    """A statement in loops, the first one outermost."""
    for loop in reversed(loops):
        body = For(loop.var, loop.extent, "serial", body)
    return body


@dataclass(frozen=True, slots=True)
class Place:
    """A block of queries, and one of the blocks of keys that it sees.

    Attributes:
        p: The problem.
        head: The indices of a head.
        g: The number of the block of queries.
        t: The number of the block of keys.
    """

    p: Problem
    head: tuple[Expr, ...]
    g: Expr
    t: Expr

    @property
    def count(self) -> Expr:
        """The number of queries."""
        return least(self.p.q.buffer.shape[-2] - self.g * QUERIES, QUERIES)

    def query(self, i: Expr) -> tuple[Expr, ...]:
        """The index of a query; the last one of all stands for those beyond."""
        last = self.p.q.buffer.shape[-2] - 1
        return (*self.head, least(self.g * QUERIES + i, last))

    def key(self, j: Expr) -> tuple[Expr, Expr]:
        """The index of a key; the last one of all stands for those beyond."""
        return self.head[0], least(self.first + j, self.p.k.buffer.shape[1] - 1)

    def sees(self, i: Expr, j: Expr) -> Expr:
        """Whether a query sees a key."""
        return self.p.sees(self.g * QUERIES + i, self.first + j)

    @property
    def begin(self) -> Expr:
        """The first key that is seen."""
        if self.p.window is None:
            return as_expr(0)
        low = self.g * QUERIES + self.p.shift - (self.p.window - 1)
        return binary("max", low, as_expr(0))

    @property
    def end(self) -> Expr:
        """The end of the keys that are seen."""
        keys = self.p.k.buffer.shape[1]
        return least(self._last + self._ahead + 1, keys) if self.p.masked else keys

    @property
    def steps(self) -> Expr:
        """The number of blocks of keys."""
        return (self.end - self.begin + (KEYS - 1)) // KEYS

    @property
    def first(self) -> Expr:
        """The first key of the block."""
        return self.begin + self.t * KEYS

    @property
    def length(self) -> Expr:
        """The number of keys of the block."""
        return least(self.end - self.first, KEYS)

    @property
    def crosses(self) -> Expr:
        """Whether some query of the block does not see some key of the block."""
        low = self.g * QUERIES + self.p.shift
        found = self.first + self.length - 1 > low + self._ahead
        if self.p.window is not None:
            found = found | (self.first <= self._last - self.p.window)
        return found

    @property
    def _last(self) -> Expr:
        """The position of the last query."""
        return self.g * QUERIES + self.count - 1 + self.p.shift

    @property
    def _ahead(self) -> int:
        """The number of keys that a query sees beyond its position."""
        return 0 if self.p.causal else (self.p.window or 1) - 1


def least(a: Expr, b: Expr | int) -> Expr:
    """The smaller of two integers."""
    return binary("min", a, b)


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops over blocks, and blocks inside of them."""

    p: Problem

    @property
    def outer(self) -> tuple[Loop, ...]:
        """The loops over heads and blocks of queries."""
        z, *heads, m, _ = self.p.q.buffer.shape
        inner = [Loop("h", heads[0])] if heads else []
        return (Loop("z", z), *inner, Loop("g", (m + (QUERIES - 1)) // QUERIES))

    @property
    def here(self) -> Place:
        """The place in terms of the loops."""
        return self._place([loop.var for loop in self.outer], Var("t", i64))

    def keys(self, kind: str = "spatial") -> Loop:
        """The loop over blocks of keys, and the kind of the axes that it drives."""
        return Loop("t", self.here.steps, kind)

    def _place(self, axes: Sequence[Expr], t: Expr) -> Place:
        *head, g = axes
        return Place(self.p, tuple(head), g, t)

    def block(
        self,
        name: str,
        inner: Sequence[Loop],
        body: Callable[..., Stmt],
        *,
        g: str = "spatial",
        t: str = "",
        init: Stmt | None = None,
    ) -> Stmt:
        """A block in loops of its own.

        Args:
            name: Its name.
            inner: Its loops.
            body: What it does, from the place and its loops' axes.
            g: The kind of its axes for heads that share keys, and blocks of queries.
            t: The kind of its axis for blocks of keys, if it is in that loop.
            init: As for `Block`.
        """
        of_z, *others = self.outer
        around = [of_z, *(replace(loop, kind=g) for loop in others)]
        around += [self.keys(t)] if t else []
        own = {loop.var: Var(f"{name}_{loop.name}", i64) for loop in inner}
        axes = tuple(
            Axis(
                Var(f"v{name}_{loop.name}", i64),
                loop.kind,
                loop.extent,
                own.get(loop.var, loop.var),
            )
            for loop in (*around, *inner)
        )
        *outside, last = (axis.var for axis in axes[: len(around)])
        place = self._place(outside, last) if t else self._place([*outside, last], last)
        inside = (axis.var for axis in axes[len(around) :])
        made: Stmt = Block(name, axes, body(place, *inside), init=init)
        return over([Loop(own[x.var].name, x.extent) for x in inner], made)
