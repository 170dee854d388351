"""Instructions on tiles: what each means, as loops, and how it is done, as vectors.

Both sides are IR functions of the same parameters, and a test runs both. `tensorize`
puts the second where a schedule has made the first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.dtypes import DType, as_dtype, i64
from tensorlang.ir.nodes import (
    Const,
    Expr,
    Function,
    Let,
    Load,
    Ramp,
    Shuffle,
    Stmt,
    Store,
    Var,
    seq,
)
from tensorlang.ir.parser import parse


@dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """An instruction: its meaning, its implementation, what a target must have."""

    name: str
    meaning: Function
    implementation: Function
    features: tuple[str, ...] = ()


def _fma(lanes: int, dtype: str) -> Callable[[str], TensorIntrinsic]:
    """`c[0:lanes] += a * b[0:lanes]` with one element of `a` in all lanes."""

    def make(name: str) -> TensorIntrinsic:
        head = (
            f"def {name}(c: InOut[{dtype}[{lanes}]], a: {dtype}[1], "
            f"b: {dtype}[{lanes}]):\n"
        )
        meaning = f"""
    for l in range({lanes}):
        with block("fma", vl=spatial({lanes}, l)):
            reduce(sum, c[vl], a[0] * b[vl])
"""
        row = f"ramp(0, 1, {lanes})"
        vectors = f"    c[{row}] = fma(splat(a[0], {lanes}), b[{row}], c[{row}])\n"
        return TensorIntrinsic(name, parse(head + meaning), parse(head + vectors))

    return make


def _dot_bf16(name: str) -> TensorIntrinsic:
    """`c[l] += a[0]*b[0, l] + a[1]*b[1, l]`; `b` lies in pairs, (k // 2, l, k % 2)."""
    head = f"def {name}(c: InOut[f32[16]], a: bf16[2], b: bf16[2, 16]):\n"
    meaning = """
    for l in range(16):
        for p in range(2):
            with block("dot", vl=spatial(16, l), vp=reduction(2, p)):
                with init():
                    pass
                reduce(sum, c[vl], cast(f32, a[vp]) * cast(f32, b[vp, vl]))
"""
    even, odd = (", ".join(map(str, range(first, 32, 2))) for first in (0, 1))
    vectors = f"""
    w: bf16x32 = b[ramp(0, 1, 32) % splat(2, 32), ramp(0, 1, 32) // splat(2, 32)]
    c[ramp(0, 1, 16)] = dpbf16ps(
        c[ramp(0, 1, 16)],
        splat(a[0], 16),
        splat(a[1], 16),
        shuffle((w,), ({even})),
        shuffle((w,), ({odd})),
    )
"""
    made = parse(head + meaning), parse(head + vectors)
    return TensorIntrinsic(name, *made, features=("avx512_bf16",))


def _transpose(size: int, dtype: str) -> Callable[[str], TensorIntrinsic]:
    """`b[j, i] = a[i, j]`: `size` loads, a butterfly of shuffles, `size` stores."""

    def make(name: str) -> TensorIntrinsic:
        meaning = parse(f"""
def {name}(a: {dtype}[{size}, {size}], b: Out[{dtype}[{size}, {size}]]):
    for i in range({size}):
        for j in range({size}):
            with block("transpose", vi=spatial({size}, i), vj=spatial({size}, j)):
                b[vj, vi] = a[vi, vj]
""")
        body = _butterfly(meaning, size, as_dtype(dtype))
        done = Function(name, meaning.params, meaning.scalars, body)
        return TensorIntrinsic(name, meaning, done)

    return make


def _copy_by_columns(size: int, dtype: str) -> Callable[[str], TensorIntrinsic]:
    """`b[i, j] = a[i, j]`, read by rows and written by columns, transposed between.

    For packing: where the layout of `b` runs along its first index, both sides move
    whole vectors.
    """

    def make(name: str) -> TensorIntrinsic:
        meaning = parse(f"""
def {name}(a: {dtype}[{size}, {size}], b: Out[{dtype}[{size}, {size}]]):
    for i in range({size}):
        for j in range({size}):
            with block("copy", vi=spatial({size}, i), vj=spatial({size}, j)):
                b[vi, vj] = a[vi, vj]
""")
        body = _butterfly(meaning, size, as_dtype(dtype), columns=True)
        done = Function(name, meaning.params, meaning.scalars, body)
        return TensorIntrinsic(name, meaning, done)

    return make


def _butterfly(
    func: Function, size: int, dtype: DType, *, columns: bool = False
) -> Stmt:
    """Exchange bit after bit of row number and lane number, then store the vectors.

    Each vector goes to a row of the second buffer, or with `columns` to a column.
    """
    a, b = func.buffers
    lanes = Ramp(Const(0, i64), Const(1, i64), size)
    lets = []

    def named(name: str, value: Expr) -> Expr:
        var = Var(name, dtype.vector(size))
        lets.append(Let(var, value))
        return var

    rows = [named(f"r{i}", Load(a, (Const(i, i64), lanes))) for i in range(size)]
    bit = 1
    while bit < size:
        low = tuple(x if not x & bit else size + (x ^ bit) for x in range(size))
        high = tuple(size + x if x & bit else x | bit for x in range(size))
        for i in range(size):
            if not i & bit:
                pair = rows[i], rows[i | bit]
                rows[i] = named(f"s{bit}_{i}", Shuffle(pair, low))
                rows[i | bit] = named(f"s{bit}_{i | bit}", Shuffle(pair, high))
        bit *= 2
    places = ((Const(i, i64), lanes) for i in range(size))
    stores = (
        Store(b, place[::-1] if columns else place, row)
        for place, row in zip(places, rows, strict=True)
    )
    return seq(*lets, *stores)


_TABLE: Final[dict[str, Callable[[str], TensorIntrinsic]]] = {
    "fma_16xf32": _fma(16, "f32"),
    "fma_8xf32": _fma(8, "f32"),
    "fma_8xf64": _fma(8, "f64"),
    "fma_4xf64": _fma(4, "f64"),
    "dpbf16_16xf32": _dot_bf16,
    "transpose_16x16xf32": _transpose(16, "f32"),
    "transpose_8x8xf32": _transpose(8, "f32"),
    "copy_by_columns_16x16xf32": _copy_by_columns(16, "f32"),
    "copy_by_columns_8x8xf32": _copy_by_columns(8, "f32"),
}
NAMES: Final = tuple(_TABLE)


@cache
def tensor_intrinsic(name: str) -> TensorIntrinsic:
    """The instruction of that name.

    Raises:
        ScheduleError: there is none.
    """
    if name not in _TABLE:
        raise ScheduleError(
            f"there is no intrinsic {name!r}; these: {', '.join(NAMES)}"
        )
    return _TABLE[name](name)
