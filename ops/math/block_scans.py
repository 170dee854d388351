"""Prefix sums by the threads of a block, as loops bound to them.

    before[t] = sum of own[u] over u < t in t's warp     # 5 Kogge-Stone steps
    warps[w]  = sum of own[u] over all u of warp w

The order of additions is the same with warp shuffles and with shared memory, so that
results are bitwise equal on all devices (Merrill and Grimshaw, "Parallel scan for
stream architectures", 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ir.collectives import WARP, shuffle_index

_STEPS: Final = (1, 2, 4, 8, 16)
# from a thread index to its statements
Program: TypeAlias = Callable[[ir.Var], "ir.Stmt | Sequence[ir.Stmt]"]


def over(name: str, extent: ir.Expr | int, kind: str, body: Program) -> ir.For:
    """A loop of the given kind, possibly bound to an index such as `thread.x`."""
    var = ir.Var(name, ir.i64)
    made = body(var)
    whole = made if isinstance(made, ir.Stmt) else ir.seq(*made)
    bound = "." in kind
    return ir.For(
        var,
        ir.as_expr(extent),
        "bound" if bound else kind,
        whole,
        kind if bound else "",
    )


@frozen
class BlockScan:
    """The threads of a block, which scan `count` rows of numbers simultaneously."""

    threads: int  # number of threads, a multiple of the warp size
    shuffles: bool  # whether lanes of a warp exchange values by shuffles

    @property
    def warps(self) -> int:
        """The number of warps."""
        return self.threads // WARP

    def each(self, body: Program, name: str = "t") -> ir.For:
        """A loop over the threads."""
        return over(name, self.threads, "thread.x", body)

    def own(self, name: str, kind: ir.Expr | object, count: int) -> ir.Buffer:
        """A buffer of `count` numbers per thread: registers."""
        shape = (ir.as_expr(self.threads), ir.as_expr(count))
        return ir.Buffer(name, kind, shape, "shared")  # type: ignore[arg-type]

    def totals(self, name: str, own: ir.Buffer) -> ir.Buffer:
        """A buffer for the sums of warps, for each row."""
        count = own.shape[1]
        return ir.Buffer(name, own.dtype, (count, ir.as_expr(self.warps)), "shared")

    def scanned(self, own: ir.Buffer, before: ir.Buffer, warps: ir.Buffer) -> ir.Stmt:
        """Sums of `own[t, s]` over preceding lanes, and over whole warps."""
        scan = self._shuffled if self.shuffles else self._through_memory
        return scan(own, before, warps)

    def _shuffled(self, own: ir.Buffer, before: ir.Buffer, warps: ir.Buffer) -> ir.Stmt:
        count, zero = _count(own), ir.as_expr(0, own.dtype)

        def one(t: ir.Var, s: int) -> list[ir.Stmt]:
            made: list[ir.Stmt] = []

            def held(value: ir.Expr) -> ir.Var:
                made.append(ir.Let(ir.Var(f"scan{s}_{len(made)}", own.dtype), value))
                return made[-1].var  # type: ignore[attr-defined, no-any-return]

            lane = t % WARP
            value = held(own[t, s])
            for step in _STEPS:
                other = held(shuffle_index(value, lane - step))
                value = held(ir.Select(lane >= step, other + value, value))
            last = held(shuffle_index(value, lane - 1))
            made.append(
                ir.Store(before, (t, ir.as_expr(s)), ir.Select(lane >= 1, last, zero))
            )
            place = (ir.as_expr(s), t // WARP)
            made.append(ir.If(lane.equal(WARP - 1), ir.Store(warps, place, value)))
            return made

        return self.each(lambda t: [x for s in range(count) for x in one(t, s)])

    def _through_memory(
        self, own: ir.Buffer, before: ir.Buffer, warps: ir.Buffer
    ) -> ir.Stmt:
        count, zero = _count(own), ir.as_expr(0, own.dtype)
        shape = (ir.as_expr(count), ir.as_expr(self.threads))
        sides = [ir.Buffer(f"{own.name}_{n}", own.dtype, shape, "shared") for n in "ab"]

        def rows(body: Callable[[ir.Var, ir.Expr], Sequence[ir.Stmt]]) -> ir.For:
            def program(t: ir.Var) -> list[ir.Stmt]:
                return [x for s in range(count) for x in body(t, ir.as_expr(s))]

            return self.each(program)

        def there(side: ir.Buffer) -> ir.For:
            return rows(lambda t, s: [ir.Store(side, (s, t), own[t, s])])

        def added(side: ir.Buffer, step: int) -> ir.For:
            def body(t: ir.Var, s: ir.Expr) -> list[ir.Stmt]:
                total = side[s, t - step] + own[t, s]
                return [ir.If(t % WARP >= step, ir.Store(own, (t, s), total))]

            return rows(body)

        def ends(side: ir.Buffer) -> ir.For:
            def body(t: ir.Var, s: ir.Expr) -> list[ir.Stmt]:
                lane = t % WARP
                return [
                    ir.Store(before, (t, s), zero),
                    ir.If(lane >= 1, ir.Store(before, (t, s), side[s, t - 1])),
                    ir.If(
                        lane.equal(WARP - 1), ir.Store(warps, (s, t // WARP), own[t, s])
                    ),
                ]

            return rows(body)

        steps: list[ir.Stmt] = [ir.Alloc(side) for side in sides]
        for number, step in enumerate(_STEPS):
            steps += [there(sides[number % 2]), added(sides[number % 2], step)]
        last = sides[len(_STEPS) % 2]
        return ir.Seq((*steps, there(last), ends(last)))

    def chained(
        self, warps: ir.Buffer, before: ir.Buffer, carry: ir.Buffer, start: ir.Buffer
    ) -> ir.For:
        """`start[t, s]`: `carry[t]` plus all values before the thread's, row by row.

        Advances `carry` to the sum before the next rows.
        """
        count = _count(before)

        def program(t: ir.Var) -> list[ir.Stmt]:
            made: list[ir.Stmt] = []
            total: ir.Expr = carry[t, 0]
            for s in range(count):
                first: ir.Expr = total
                for w in range(self.warps):
                    own = ir.Var(f"from{s}_{w}", carry.dtype)
                    made.append(ir.Let(own, total))
                    first = (
                        own if w == 0 else ir.Select((t // WARP).equal(w), own, first)
                    )
                    total = own + warps[s, w]
                made.append(ir.Store(start, (t, ir.as_expr(s)), first + before[t, s]))
            made.append(ir.Store(carry, (t, ir.as_expr(0)), total))
            return made

        return self.each(program)


def _count(own: ir.Buffer) -> int:
    return int(own.shape[1].value)  # type: ignore[attr-defined]
