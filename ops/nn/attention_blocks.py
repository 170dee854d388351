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
_BY_HEADS: Final = 4  # dimensions of queries whose heads are not taken together
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
    """A block of queries, and one of the blocks of keys that it sees.

    Queries are its rows, keys its columns.
    """

    p: Problem
    head: tuple[ir.Expr, ...]  # indices of a head
    g: ir.Expr  # number of the block of rows
    t: ir.Expr  # number of the block of columns
    rows: int = QUERIES  # of a block
    columns: int = KEYS  # of a block

    @property
    def start(self) -> ir.Expr:
        """The first query of the block."""
        return self.g * self.rows

    @property
    def count(self) -> ir.Expr:
        """The number of queries."""
        return least(self.p.q.buffer.shape[-2] - self.start, self.rows)

    def query(self, i: ir.Expr) -> tuple[ir.Expr, ...]:
        """The index of a query; the last one of all stands for those beyond."""
        last = self.p.q.buffer.shape[-2] - 1
        return (*self.head, least(self.start + i, last))

    def key(self, j: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """The index of a key; the last one of all stands for those beyond."""
        return self.head[0], least(self.first + j, self.p.k.buffer.shape[1] - 1)

    def row(self, i: ir.Expr) -> tuple[ir.Expr, ...]:
        """The index of a row, as `query`."""
        return self.query(i)

    @property
    def origin(self) -> ir.Expr:
        """The first row of the block."""
        return self.start

    def column(self, j: ir.Expr) -> tuple[ir.Expr, ...]:
        """The index of a column, as `key`."""
        return self.key(j)

    @property
    def begun(self) -> ir.Expr:
        """The first column of the block."""
        return self.first

    def pair(self, i: ir.Expr, j: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """The number in the block of a row's query, and of a column's key."""
        return i, j

    @property
    def inside(self) -> tuple[ir.Expr, ir.Expr]:
        """The numbers of rows and of columns of the block."""
        return self.count, self.length

    def score(self, i: ir.Expr, j: ir.Expr, value: ir.Expr) -> ir.Expr:
        """A score with its mask; minus infinity for a key that is hidden."""
        row = (*self.head, self.start + i)
        return self.p.score(row, self.first + j, value)

    @property
    def begin(self) -> ir.Expr:
        """The first key that is seen."""
        if self.p.window is None:
            return ir.as_expr(0)
        low = self.start + self.p.shift - (self.p.window - 1)
        return ir.binary("max", low, ir.as_expr(0))

    @property
    def end(self) -> ir.Expr:
        """The end of the keys that are seen."""
        keys = self.p.k.buffer.shape[1]
        return least(self._last + self._ahead + 1, keys) if self.p.limited else keys

    @property
    def steps(self) -> ir.Expr:
        """The number of blocks of columns."""
        return (self.end - self.begin + (self.columns - 1)) // self.columns

    @property
    def first(self) -> ir.Expr:
        """The first key of the block."""
        return self.begin + self.t * self.columns

    @property
    def length(self) -> ir.Expr:
        """The number of keys of the block."""
        return least(self.end - self.first, self.columns)

    @property
    def crosses(self) -> ir.Expr:
        """Whether the block has scores that the mask changes."""
        if self.p.mask is not None:
            return ir.as_expr(True)
        low = self.start + self.p.shift
        found = self.first + self.length - 1 > low + self._ahead
        if self.p.window is not None:
            found = found | (self.first <= self._last - self.p.window)
        return found

    @property
    def _last(self) -> ir.Expr:
        """The position of the last query."""
        return self.start + self.count - 1 + self.p.shift

    @property
    def _ahead(self) -> int:
        """The number of keys that a query sees beyond its position."""
        return 0 if self.p.causal else (self.p.window or 1) - 1


def least(a: ir.Expr, b: ir.Expr | int) -> ir.Expr:
    """The smaller of two integers."""
    return ir.binary("min", a, b)


@frozen
class Turned(Place):
    """A block of keys, and one of the blocks of queries that see it.

    Keys are its rows, queries its columns.
    """

    @property
    def start(self) -> ir.Expr:
        """The first query of the block."""
        return self.begin + self.t * self.columns

    @property
    def count(self) -> ir.Expr:
        """The number of queries."""
        return least(self.end - self.start, self.columns)

    @property
    def first(self) -> ir.Expr:
        """The first key of the block."""
        return self.g * self.rows

    @property
    def length(self) -> ir.Expr:
        """The number of keys of the block."""
        return least(self.p.k.buffer.shape[1] - self.first, self.rows)

    @property
    def begin(self) -> ir.Expr:
        """The first query that sees one of the keys."""
        if not self.p.limited:
            return ir.as_expr(0)
        low = self.first - self.p.shift - self._ahead
        return ir.binary("max", low, ir.as_expr(0))

    @property
    def end(self) -> ir.Expr:
        """The end of the queries that see one of the keys."""
        queries = self.p.q.buffer.shape[-2]
        if self.p.window is None:
            return queries
        last = self.first + self.length - 1 - self.p.shift
        return least(last + self.p.window, queries)

    def row(self, i: ir.Expr) -> tuple[ir.Expr, ...]:
        """The index of a row, as `key`."""
        return self.key(i)

    @property
    def origin(self) -> ir.Expr:
        """The first row of the block."""
        return self.first

    def column(self, j: ir.Expr) -> tuple[ir.Expr, ...]:
        """The index of a column, as `query`."""
        return self.query(j)

    @property
    def begun(self) -> ir.Expr:
        """The first column of the block."""
        return self.start

    def pair(self, i: ir.Expr, j: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """The number in the block of a column's query, and of a row's key."""
        return j, i

    @property
    def inside(self) -> tuple[ir.Expr, ir.Expr]:
        """The numbers of rows and of columns of the block."""
        return self.length, self.count


@frozen
class Nest:
    """The loops over blocks, and blocks inside of them."""

    p: Problem
    rows: int = QUERIES  # of a block
    columns: int = KEYS  # of a block
    turned: bool = False  # whether keys are the rows

    @property
    def outer(self) -> tuple[Loop, ...]:
        """The loops over heads and blocks of rows."""
        z, *heads, m, _ = self.p.q.buffer.shape
        inner = [Loop("h", heads[0])] if heads and not self.turned else []
        size = self.p.k.buffer.shape[1] if self.turned else m
        blocks = Loop("g", (size + (self.rows - 1)) // self.rows)
        return Loop("z", z), *inner, blocks

    @property
    def here(self) -> Place:
        """The place in terms of the loops."""
        steps = ("h", "t") if self.turned and self.p.q.ndim == _BY_HEADS else ("t",)
        inner = [ir.Var(name, ir.i64) for name in steps]
        return self._place([loop.var for loop in self.outer], inner)

    def inner(self, kind: str = "spatial") -> tuple[Loop, ...]:
        """The loops over blocks of columns, and the kind of the axes that they drive.

        If keys are the rows, they are those of each head that shares them.
        """
        _, *heads, _, _ = self.p.q.buffer.shape
        several = [Loop("h", heads[0], kind)] if heads and self.turned else []
        return *several, Loop("t", self.here.steps, kind)

    def _place(self, outer: Sequence[ir.Expr], inner: Sequence[ir.Expr]) -> Place:
        *head, g = outer
        *heads, t = inner
        kind = Turned if self.turned else Place
        return kind(self.p, (*head, *heads), g, t, self.rows, self.columns)

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
            g: The kind of its axes for heads that share keys, and blocks of rows.
            t: The kind of its axes of the loops over columns, if it is in those.
            init: As for `Block`.
        """
        of_z, *others = self.outer
        around = [of_z, *(replace(loop, kind=g) for loop in others)]
        around += self.inner(t) if t else ()
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
        outside = [axis.var for axis in axes[: len(others) + 1]]
        steps = [axis.var for axis in axes[len(others) + 1 : len(around)]]
        place = self._place(outside, steps or outside[-1:])
        inside = (axis.var for axis in axes[len(around) :])
        made: ir.Stmt = ir.Block(name, axes, body(place, *inside), init=init)
        return over([Loop(own[x.var].name, x.extent) for x in inner], made)
