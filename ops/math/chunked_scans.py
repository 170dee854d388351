"""Running sums on many threads: sums of chunks first, then where each chunk starts.

    sums[r, p, t]  = sum of chunk t of part p of row r          # 16 elements
    totals[r, p]   = sum over t of sums[r, p, t]                # 256 chunks
    start[r, p, t] = all totals before p, and all sums before t
    y[r, at]       = start[r, p, t] + all of the chunk up to at

All chunks of all rows go at once but for the two short walks in the third line
(Blelloch, "Prefix sums and their applications", 1990). How a row is cut depends on
nothing but its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tensorlang.ir import as_expr, i64
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.nodes import Axis, Block, Buffer, For, Let, Reduce, Store, Var, seq
from tensorlang.ir.reducers import builtin
from tensorlang.ops.math.scan_definitions import result_type, summed_in

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.nodes import Expr, Stmt

CHUNK: Final = 16  # elements
CHUNKS: Final = 256  # of a part


def cumsum(x: Tensor, *, long: bool, reverse: bool) -> Tensor:
    """As `scan_definitions.cumsum`, of rows `[m, n]`, in chunks."""
    del long
    y = Buffer("y", result_type(x.dtype), x.shape)
    nests, held = _Chunks(x, y, summed_in(x.dtype), reverse).nests()
    return Tensor(y, Stage(nests, (*held, y), (x,)))


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The steps for rows of `x`, summed in a type, into `y`."""

    x: Tensor
    y: Buffer
    kind: DType
    reverse: bool

    @property
    def parts(self) -> Expr:
        """How many parts a row has."""
        size = CHUNK * CHUNKS
        return (self.x.shape[1] + (size - 1)) // size

    def nests(self) -> tuple[Stmt, tuple[Buffer, ...]]:
        """All steps, one after the other, and the temporaries between them."""
        m, zero = self.x.shape[0], as_expr(0, self.kind)
        chunks = (m, self.parts, as_expr(CHUNKS))
        sums, start = (Buffer(n, self.kind, chunks) for n in ("sums", "start"))
        totals, first = (Buffer(n, self.kind, chunks[:2]) for n in ("totals", "first"))
        before = Buffer("before", self.kind, chunks[:1])
        r, p, t, e = (Var(f"v{name}", i64) for name in "rpte")
        place, at = (r, p, t), self._at(p, t, e)
        running, held = Var("sum", self.kind), Var("held", self.kind)
        element = self.x[r, at].cast(self.kind)
        steps = seq(
            self._nest("clear", "rpt", Store(sums, place, zero)),
            self._fold("sums", "rpte", sums, place, element),
            self._nest("clear_totals", "rp", Store(totals, (r, p), zero)),
            self._fold("totals", "rpt", totals, (r, p), sums[place]),
            self._nest("before", "r", Store(before, (r,), zero)),
            self._nest(
                "first",
                "rp",
                seq(
                    Let(held, before[r]),
                    Store(first, (r, p), held),
                    Store(before, (r,), held + totals[r, p]),
                ),
                ordered="p",
            ),
            self._nest(
                "start",
                "rpt",
                seq(
                    Let(held, first[r, p]),
                    Store(start, place, held),
                    Store(first, (r, p), held + sums[place]),
                ),
                ordered="t",
            ),
            self._nest(
                "y",
                "rpte",
                seq(
                    Let(running, start[place] + element),
                    Store(start, place, running),
                    Store(self.y, (r, at), running.cast(self.y.dtype)),
                ),
                ordered="e",
            ),
        )
        return steps, (sums, totals, before, first, start)

    def _at(self, p: Expr, t: Expr, e: Expr) -> Expr:
        """The place of an element in its row."""
        at = (p * CHUNKS + t) * CHUNK + e
        return self.x.shape[1] - 1 - at if self.reverse else at

    def _axis(self, name: str, nest: str, kind: str) -> Axis:
        extents: dict[str, Expr] = {
            "r": self.x.shape[0],
            "p": self.parts,
            "t": as_expr(CHUNKS),
            "e": as_expr(CHUNK),
        }
        loop = Var(f"{name}_{nest}", i64)
        return Axis(Var(f"v{name}", i64), kind, extents[name], loop)

    def _nest(
        self,
        name: str,
        loops: str,
        body: Stmt,
        *,
        ordered: str = "",
        folded: str = "",
        init: Stmt | None = None,
    ) -> Stmt:
        """Loops over a block; one over elements runs for those that there are."""
        kinds = {ordered: "ordered", folded: "reduction"}
        axes = tuple(self._axis(x, name, kinds.get(x, "spatial")) for x in loops)
        where = None
        if "e" in loops:
            p, t, e = (axis.value for axis in axes[1:])
            where = (p * CHUNKS + t) * CHUNK + e < self.x.shape[1]
        made: Stmt = Block(name, axes, body, where, init)
        for axis in reversed(axes):
            assert isinstance(axis.value, Var)
            made = For(axis.value, axis.extent, "serial", made)
        return made

    def _fold(
        self, name: str, loops: str, into: Buffer, at: tuple[Var, ...], value: Expr
    ) -> Stmt:
        summed = builtin("sum", (self.kind,))
        assert summed is not None
        body = Reduce(summed, (into,), at, (value,))
        return self._nest(name, loops, body, folded=loops[-1], init=seq())
