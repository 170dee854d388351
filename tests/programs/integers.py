"""Integers wrap: every operation on all pairs of 8 bits, and what is told of others.

Each function computes many results of two rows of numbers, one array a result, so that
one compiles once for a target, and is held against the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tensorlang_test_programs.expressions import INTEGERS

from tensorlang import build
from tensorlang.ir.dtypes import DType, bf16, f32, i64
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import (
    COMPARISONS,
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Param,
    Select,
    Stmt,
    Store,
    Unary,
    Var,
    as_expr,
    binary,
    seq,
)
from tensorlang.ir.visit import substitute

ROWS = 64  # as many as lanes
PLACE = Var("i")
OPS = ("add", "sub", "mul", "min", "max", "and", "or", "xor", "shl", "shr")
DIVISIONS = ("floordiv", "floormod")
NUMBERS = (-128, -3, -1, 0, 1, 2, 3, 7, 8, 64, 127)

Results = Callable[[Expr, Expr], Iterator[Expr]]


def every_operation(a: Expr, b: Expr) -> Iterator[Expr]:
    """Each operation of the pair, and of one of them with a number."""
    kind = a.dtype
    for op in OPS:
        yield Binary(op, a, b)
    for op in DIVISIONS:
        yield Binary(op, a, Select(b.equal(0), Const(1, kind), b))
    for op in COMPARISONS:
        yield Compare(op, a, b)
        yield Compare(op, a + b, a)
    for op in ("neg", "not", "abs") if kind.kind == "int" else ("not",):
        yield Unary(op, a)
    for to in (*INTEGERS, f32):
        yield (a * b).cast(to)
    for c in (Const(number, kind) for number in NUMBERS):
        yield from (binary(op, c, a) for op in ("shl", "shr", "sub", "mul"))
        if 0 <= c.value < kind.bits:
            yield from (a << c, a >> c)
        if c.value:
            yield from (binary(op, a + b, c) for op in DIVISIONS)


def what_integers_would_tell(a: Expr, b: Expr) -> Iterator[Expr]:
    """What holds of integers, and not of those that wrap."""
    yield from (a + 1 > a, a - 1 < a, a * 8 < 0, a + a < 0, a * a >= 0, a + b >= a)
    yield from (a << (a.dtype.bits - 1) >= 0, (a * 4 + 3) // 4, (a * 6) % 6)
    yield from ((a * 8 + b) // 8, (a + 7) // 8 * 8 >= a, (a * 3 + 1) % 3, a // -1)
    yield Compare("lt", binary("max", a, b) + 1, binary("min", a, b))
    yield (a * 8).cast(bf16).cast(f32)
    yield Select(a + 1 > a, a, b) * 2 // 2
    if a.dtype.kind == "int":
        yield from (-a < 0, Unary("abs", a) >= 0, -a // 2, (a * b).cast(i64) * 2 // 2)


def function(dtype: DType, loop: str, results: Results, length: int) -> Function:
    """Results of two rows; `loop` is `serial`, `vectorized` or `bound` (to threads)."""
    rows = [Buffer(name, dtype, (as_expr(length),)) for name in "xy"]
    pair = [Var(name, dtype) for name in "ab"]
    lets = [Let(var, Load(row, (PLACE,))) for var, row in zip(pair, rows, strict=True)]
    params = [Param(row, "in") for row in rows]
    stores: list[Stmt] = []
    for number, value in enumerate(results(*pair)):
        out = Buffer(f"out{number}", value.dtype, (as_expr(length),))
        params.append(Param(out, "out"))
        stores.append(Store(out, (PLACE,), value))
    body = _over(loop, length // ROWS, seq(*lets, *stores))
    return Function("results", tuple(params), (), body)


def _over(loop: str, count: int, body: Stmt) -> Stmt:
    outer, inner = Var("block"), Var("lane")
    body = substitute(body, {PLACE: outer * ROWS + inner})
    places = ("thread.x", "block.x") if loop == "bound" else ("", "")
    kind = "bound" if loop == "bound" else "parallel"
    rows = For(inner, as_expr(ROWS), loop, body, places[0])
    return For(outer, as_expr(count), kind, rows, places[1])


def pairs(dtype: DType) -> tuple[Any, Any]:
    """All pairs of numbers of 8 bits; of others those near the ends, and near 0."""
    low, high = dtype.limits
    if dtype.bits == 8:
        numbers = np.arange(low, high + 1)
    else:
        middle = (low + high) // 2
        near = {c + n for c in (low, middle, high, 0, 1 << 31) for n in range(-8, 9)}
        inside = sorted(n for n in near if low <= n <= high)
        numbers = np.array((inside * ROWS)[:ROWS], object)
    every = numbers.astype(dtype.numpy)
    return np.repeat(every, every.size), np.tile(every, every.size)


def check(dtype: DType, loop: str, results: Results, target: Any) -> None:
    """The target's numbers are the interpreter's.

    Raises:
        AssertionError: they are not.
    """
    rows = pairs(dtype)
    func = function(dtype, loop, results, rows[0].size)

    def arrays() -> list[Any]:
        outs = (p.buffer.dtype.numpy for p in func.params[2:])
        return [*rows, *(np.zeros(rows[0].size, kind) for kind in outs)]

    wanted, got = arrays(), arrays()
    run(func, *wanted)
    build(func, target, store=False)(*got)
    for value, a, b in zip(results(*_named(dtype)), wanted[2:], got[2:], strict=True):
        np.testing.assert_array_equal(b, a, err_msg=repr(value))


def _named(dtype: DType) -> tuple[Expr, Expr]:
    return Var("a", dtype), Var("b", dtype)
