"""Permutations on many threads: each pass of the radix sort in blocks of elements.

    for b, d, e: hist[b, d] += digit of keys[b * 4096 + e] == d
    for d, b:    hist[b, d], run[d] = run[d], run[d] + hist[b, d]      # in order of b
    for d:       run[d] = how many there are of all digits before d
    for b, d, e: if digit of keys[b * 4096 + e] == d:                  # in order of e
                     move it to run[d] + hist[b, d]; hist[b, d] += 1

Blocks, and the values of a digit in a block, go at once; what is equal keeps its order,
so that the result is that of the definition, to the bit (Satish, Harris and Garland,
"Designing efficient sorting algorithms for manycore GPUs", 2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.nodes import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Let,
    Reduce,
    Stmt,
    Store,
    Var,
    as_expr,
    select,
    seq,
)
from tensorlang.ir.reducers import builtin
from tensorlang.ops.random.definitions import N
from tensorlang.ops.random.integer_definitions import BINS, permuted
from tensorlang.workload import Workload

BLOCK: Final = 4096  # elements
_Loops: TypeAlias = tuple[tuple[str, str, Expr], ...]


def permutation(workload: Workload) -> Function:
    """The numbers 0 .. n-1 in random order, every pass in blocks."""
    return permuted(workload, lambda here, there, shift: _Pass(here, there, shift).stmt)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One stable counting sort by the digit at `shift`, of keys with their values."""

    here: tuple[Buffer, Buffer]
    there: tuple[Buffer, Buffer]
    shift: int

    @property
    def blocks(self) -> Expr:
        """How many blocks there are."""
        return (N + (BLOCK - 1)) // BLOCK

    @property
    def stmt(self) -> Stmt:
        """All steps."""
        hist = Buffer(f"hist{self.shift}", i32, (self.blocks, as_expr(BINS)))
        run = Buffer(f"run{self.shift}", i32, (as_expr(BINS),))
        return seq(
            Alloc(hist),
            Alloc(run),
            self._count(hist),
            self._starts(hist, run),
            self._bases(run),
            self._move(hist, run),
        )

    def _axis(self, name: str, kind: str, extent: Expr) -> Axis:
        loop = Var(f"{name}{self.shift}", i64)
        return Axis(Var(f"v{name}{self.shift}", i64), kind, extent, loop)

    def _nest(self, name: str, loops: _Loops, body: Stmt, *, guard: bool) -> Stmt:
        """Loops over a block; where it is guarded, over elements that there are."""
        axes = tuple(self._axis(*loop) for loop in loops)
        own = axes
        if any(axis.kind == "ordered" for axis in axes):  # and so are all rounds
            again = Axis(self._var("round"), "ordered", Var("rounds"), Var("round"))
            axes = (again, *axes)
        at = {axis.var.name[1:]: axis.value for axis in own}
        where = None
        if guard:
            block, element = at[f"b{self.shift}"], at[f"e{self.shift}"]
            where = block * BLOCK + element < N
        made: Stmt = Block(f"{name}{self.shift}", axes, body, where)
        for axis in reversed(own):
            assert isinstance(axis.value, Var)
            made = For(axis.value, axis.extent, "serial", made)
        return made

    def _var(self, name: str) -> Var:
        return Var(f"v{name}{self.shift}", i64)

    @property
    def _at(self) -> Expr:
        """The element."""
        return self._var("b") * BLOCK + self._var("e")

    @property
    def _is_own(self) -> Expr:
        """Whether an element has the digit."""
        digit = (self.here[0][self._at] >> self.shift) & (BINS - 1)
        return digit.cast(i64).equal(self._var("d"))

    def _count(self, hist: Buffer) -> Stmt:
        loops = (
            ("b", "spatial", self.blocks),
            ("d", "spatial", as_expr(BINS)),
            ("e", "reduction", as_expr(BLOCK)),
        )
        one = select(self._is_own, as_expr(1, i32), as_expr(0, i32))
        summed = builtin("sum", (i32,))
        assert summed is not None
        body = Reduce(summed, (hist,), (self._var("b"), self._var("d")), (one,))
        return self._nest("count", loops, body, guard=True)

    def _starts(self, hist: Buffer, run: Buffer) -> Stmt:
        digit, place = self._var("d"), (self._var("b"), self._var("d"))
        held = Var(f"held{self.shift}", i32)
        clear = self._nest(
            "clear",
            (("d", "spatial", as_expr(BINS)),),
            Store(run, (digit,), as_expr(0, i32)),
            guard=False,
        )
        body = seq(
            Let(held, hist[place]),
            Store(hist, place, run[digit]),
            Store(run, (digit,), run[digit] + held),
        )
        loops = (("d", "spatial", as_expr(BINS)), ("b", "ordered", self.blocks))
        return seq(clear, self._nest("starts", loops, body, guard=False))

    def _bases(self, run: Buffer) -> Stmt:
        total = Buffer(f"total{self.shift}", i32, (as_expr(1),))
        digit, zero = self._var("d"), (as_expr(0),)
        held = Var(f"all{self.shift}", i32)
        body = seq(
            Let(held, run[digit]),
            Store(run, (digit,), total[0]),
            Store(total, zero, total[0] + held),
        )
        loops = (("d", "ordered", as_expr(BINS)),)
        first = Store(total, zero, as_expr(0, i32))
        return seq(Alloc(total), first, self._nest("bases", loops, body, guard=False))

    def _move(self, hist: Buffer, run: Buffer) -> Stmt:
        digit, place = self._var("d"), (self._var("b"), self._var("d"))
        to = Var(f"place{self.shift}", i64)
        moves = [
            Store(after, (to,), before[self._at])
            for before, after in zip(self.here, self.there, strict=True)
        ]
        body = If(
            self._is_own,
            seq(
                Let(to, (hist[place] + run[digit]).cast(i64)),
                Store(hist, place, hist[place] + as_expr(1, i32)),
                moves,
            ),
        )
        loops = (
            ("b", "disjoint", self.blocks),
            ("d", "disjoint", as_expr(BINS)),
            ("e", "ordered", as_expr(BLOCK)),
        )
        return self._nest("move", loops, body, guard=True)
