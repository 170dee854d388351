"""Prefix sums by the threads of a block, as loops bound to them.

    before[t] = sum of own[u] over u < t in t's warp     # 5 Kogge-Stone steps
    warps[w]  = sum of own[u] over all u of warp w

The order of additions is the same with warp shuffles and with shared memory, so that
results are bitwise equal on all devices (Merrill and Grimshaw, "Parallel scan for
stream architectures", 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tensorlang.ir import as_expr, i64
from tensorlang.ir.collectives import WARP, shuffle_index
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    Let,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)

_STEPS: Final = (1, 2, 4, 8, 16)
# from a thread index to its statements
Program: TypeAlias = Callable[[Var], "Stmt | Sequence[Stmt]"]


def over(name: str, extent: Expr | int, kind: str, body: Program) -> For:
    """A loop of the given kind, possibly bound to an index such as `thread.x`."""
    var = Var(name, i64)
    made = body(var)
    whole = made if isinstance(made, Stmt) else seq(*made)
    bound = "." in kind
    return For(
        var, as_expr(extent), "bound" if bound else kind, whole, kind if bound else ""
    )


@dataclass(frozen=True, slots=True)
class BlockScan:
    """The threads of a block, which scan `count` rows of numbers simultaneously.

    Attributes:
        threads: The number of threads, a multiple of the warp size.
        shuffles: Whether lanes of a warp exchange values by shuffles.
    """

    threads: int
    shuffles: bool

    @property
    def warps(self) -> int:
        """The number of warps."""
        return self.threads // WARP

    def each(self, body: Program, name: str = "t") -> For:
        """A loop over the threads."""
        return over(name, self.threads, "thread.x", body)

    def own(self, name: str, kind: Expr | object, count: int) -> Buffer:
        """A buffer of `count` numbers per thread: registers."""
        shape = (as_expr(self.threads), as_expr(count))
        return Buffer(name, kind, shape, "shared")  # type: ignore[arg-type]

    def totals(self, name: str, own: Buffer) -> Buffer:
        """A buffer for the sums of warps, for each row."""
        count = own.shape[1]
        return Buffer(name, own.dtype, (count, as_expr(self.warps)), "shared")

    def scanned(self, own: Buffer, before: Buffer, warps: Buffer) -> Stmt:
        """Sums of `own[t, s]` over preceding lanes, and over whole warps."""
        scan = self._shuffled if self.shuffles else self._through_memory
        return scan(own, before, warps)

    def _shuffled(self, own: Buffer, before: Buffer, warps: Buffer) -> Stmt:
        count, zero = _count(own), as_expr(0, own.dtype)

        def one(t: Var, s: int) -> list[Stmt]:
            made: list[Stmt] = []

            def held(value: Expr) -> Var:
                made.append(Let(Var(f"scan{s}_{len(made)}", own.dtype), value))
                return made[-1].var  # type: ignore[attr-defined, no-any-return]

            lane = t % WARP
            value = held(own[t, s])
            for step in _STEPS:
                other = held(shuffle_index(value, lane - step))
                value = held(Select(lane >= step, other + value, value))
            last = held(shuffle_index(value, lane - 1))
            made.append(Store(before, (t, as_expr(s)), Select(lane >= 1, last, zero)))
            place = (as_expr(s), t // WARP)
            made.append(If(lane.equal(WARP - 1), Store(warps, place, value)))
            return made

        return self.each(lambda t: [x for s in range(count) for x in one(t, s)])

    def _through_memory(self, own: Buffer, before: Buffer, warps: Buffer) -> Stmt:
        count, zero = _count(own), as_expr(0, own.dtype)
        shape = (as_expr(count), as_expr(self.threads))
        sides = [Buffer(f"{own.name}_{n}", own.dtype, shape, "shared") for n in "ab"]

        def rows(body: Callable[[Var, Expr], Sequence[Stmt]]) -> For:
            def program(t: Var) -> list[Stmt]:
                return [x for s in range(count) for x in body(t, as_expr(s))]

            return self.each(program)

        def there(side: Buffer) -> For:
            return rows(lambda t, s: [Store(side, (s, t), own[t, s])])

        def added(side: Buffer, step: int) -> For:
            def body(t: Var, s: Expr) -> list[Stmt]:
                total = side[s, t - step] + own[t, s]
                return [If(t % WARP >= step, Store(own, (t, s), total))]

            return rows(body)

        def ends(side: Buffer) -> For:
            def body(t: Var, s: Expr) -> list[Stmt]:
                lane = t % WARP
                return [
                    Store(before, (t, s), zero),
                    If(lane >= 1, Store(before, (t, s), side[s, t - 1])),
                    If(lane.equal(WARP - 1), Store(warps, (s, t // WARP), own[t, s])),
                ]

            return rows(body)

        steps: list[Stmt] = [Alloc(side) for side in sides]
        for number, step in enumerate(_STEPS):
            steps += [there(sides[number % 2]), added(sides[number % 2], step)]
        last = sides[len(_STEPS) % 2]
        return Seq((*steps, there(last), ends(last)))

    def chained(
        self, warps: Buffer, before: Buffer, carry: Buffer, start: Buffer
    ) -> For:
        """`start[t, s]`: `carry[t]` plus all values before the thread's, row by row.

        Advances `carry` to the sum before the next rows.
        """
        count = _count(before)

        def program(t: Var) -> list[Stmt]:
            made: list[Stmt] = []
            total: Expr = carry[t, 0]
            for s in range(count):
                first: Expr = total
                for w in range(self.warps):
                    own = Var(f"from{s}_{w}", carry.dtype)
                    made.append(Let(own, total))
                    first = own if w == 0 else Select((t // WARP).equal(w), own, first)
                    total = own + warps[s, w]
                made.append(Store(start, (t, as_expr(s)), first + before[t, s]))
            made.append(Store(carry, (t, as_expr(0)), total))
            return made

        return self.each(program)


def _count(own: Buffer) -> int:
    return int(own.shape[1].value)  # type: ignore[attr-defined]
