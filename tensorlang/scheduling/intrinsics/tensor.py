"""Tensor intrinsics: semantics as loop nests, implementations on vectors.

Both are IR functions of the same parameters, and a test compares them. `tensorize`
replaces loops that match the first by the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.instructions import (
    DOT_PRODUCTS,
    MATRIX_PRODUCTS,
    DotProduct,
    MatrixProduct,
)
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import DType, as_dtype, i64, u8
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling.intrinsics import matrices as matrix_intrinsics
from tensorlang.scheduling.intrinsics.dots import SIGN, dot_name, layouts, nests
from tensorlang.scheduling.intrinsics.matrices import HEIGHTS, matrix_name


@dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """An intrinsic: its semantics, its implementation, and the features required."""

    name: str
    meaning: ir.Function
    implementation: ir.Function
    features: tuple[str, ...] = ()


def _fma(lanes: int, dtype: str) -> Callable[[str], TensorIntrinsic]:
    """`c[0:lanes] += a * b[0:lanes]`, with one element of `a` broadcast."""

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


def _dot(row: DotProduct, x: str, layout: str) -> Callable[[str], TensorIntrinsic]:
    """A dot product instruction; see `dot_intrinsics.nests`."""

    def make(name: str) -> TensorIntrinsic:
        meaning, vectors = map(parse, nests(name, row, x, layout))
        return TensorIntrinsic(name, meaning, vectors, features=row.features)

    return make


def _matrix(
    row: MatrixProduct, height: int, layout: str
) -> Callable[[str], TensorIntrinsic]:
    """A matrix product instruction; see `matrix_intrinsics.nests`."""

    def make(name: str) -> TensorIntrinsic:
        texts = matrix_intrinsics.nests(name, row, height, layout)
        meaning, tiles = map(parse, texts)
        return TensorIntrinsic(name, meaning, tiles, features=row.features)

    return make


def _tile(
    nests: Callable[[str, str, int, int], tuple[str, str]], dtype: str, height: int
) -> Callable[[str], TensorIntrinsic]:
    """A step on a tile of 16 sums a row."""

    def make(name: str) -> TensorIntrinsic:
        meaning, tile = map(parse, nests(name, dtype, height, 16))
        return TensorIntrinsic(name, meaning, tile)

    return make


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
        lets, rows = _butterfly(meaning, size, as_dtype(dtype))
        lanes = ir.Ramp(ir.Const(0, i64), ir.Const(1, i64), size)
        stores = [
            ir.Store(meaning.buffers[1], (ir.Const(i, i64), lanes), row)
            for i, row in enumerate(rows)
        ]
        body = ir.seq(*lets, *stores)
        done = ir.Function(name, meaning.params, meaning.scalars, body)
        return TensorIntrinsic(name, meaning, done)

    return make


def _copy_by_columns(
    size: int, dtype: str, group: int = 1, *, flips: bool = False
) -> Callable[[str], TensorIntrinsic]:
    """`b[i, j] = a[i, j]`, read by rows and written by columns, transposed in between.

    For packing: if `b` is contiguous along its first index, both sides move whole
    vectors. A `group` of columns stays together: pairs for a dot product. Bytes that it
    `flips` become unsigned ones, larger by 128.
    """
    made = "u8" if flips else dtype
    value = f"cast(u8, a[vi, vj]) ^ u8({SIGN})" if flips else "a[vi, vj]"

    def make(name: str) -> TensorIntrinsic:
        columns = size * group
        meaning = parse(f"""
def {name}(a: {dtype}[{size}, {columns}], b: Out[{made}[{size}, {columns}]]):
    for i in range({size}):
        for j in range({columns}):
            with block("copy", vi=spatial({size}, i), vj=spatial({columns}, j)):
                b[vi, vj] = {value}
""")
        lets, rows = _butterfly(meaning, size, as_dtype(dtype), group)
        lanes = ir.Ramp(ir.Const(0, i64), ir.Const(1, i64), columns)
        wide = ir.Const(group, i64)
        stores = [
            ir.Store(
                meaning.buffers[1],
                (lanes, ir.Const(i, i64))
                if group == 1
                else (
                    lanes // ir.Splat(wide, columns),
                    ir.Splat(ir.Const(i * group, i64), columns)
                    + lanes % ir.Splat(wide, columns),
                ),
                row.cast(u8.vector(columns)) ^ ir.Splat(ir.Const(SIGN, u8), columns)
                if flips
                else row,
            )
            for i, row in enumerate(rows)
        ]
        body = ir.seq(*lets, *stores)
        done = ir.Function(name, meaning.params, meaning.scalars, body)
        return TensorIntrinsic(name, meaning, done)

    return make


def _butterfly(
    func: ir.Function, size: int, dtype: DType, group: int = 1
) -> tuple[list[ir.Let], list[ir.Expr]]:
    """The columns of the first buffer as vectors, by exchanging row and lane numbers.

    Proceeds bit by bit, with `group` neighbouring elements as one.
    """
    a = func.buffers[0]
    lanes = ir.Ramp(ir.Const(0, i64), ir.Const(1, i64), size * group)
    lets = []

    def named(name: str, value: ir.Expr) -> ir.Expr:
        var = ir.Var(name, dtype.vector(size * group))
        lets.append(ir.Let(var, value))
        return var

    def taken(places: list[int]) -> tuple[int, ...]:
        return tuple(place * group + n for place in places for n in range(group))

    rows = [named(f"r{i}", ir.Load(a, (ir.Const(i, i64), lanes))) for i in range(size)]
    bit = 1
    while bit < size:
        low = taken([x if not x & bit else size + (x ^ bit) for x in range(size)])
        high = taken([size + x if x & bit else x | bit for x in range(size)])
        for i in range(size):
            if not i & bit:
                pair = rows[i], rows[i | bit]
                rows[i] = named(f"s{bit}_{i}", ir.Shuffle(pair, low))
                rows[i | bit] = named(f"s{bit}_{i | bit}", ir.Shuffle(pair, high))
        bit *= 2
    return lets, rows


# sides of the squares transposed in registers, and their element types
_SQUARES: Final = {
    16: "f32 i32 u32 f16 bf16 i16 u16 i8 u8",
    8: "f64 i64 u64 f32 i32 u32",
    4: "f64 i64 u64",
}
_TABLE: Final[dict[str, Callable[[str], TensorIntrinsic]]] = {
    "fma_16xf32": _fma(16, "f32"),
    "fma_8xf32": _fma(8, "f32"),
    "fma_8xf64": _fma(8, "f64"),
    "fma_4xf64": _fma(4, "f64"),
    **{
        dot_name(row, x, layout): _dot(row, x, layout)
        for row in DOT_PRODUCTS.values()
        for x in dict.fromkeys((row.a, row.b))
        for layout in layouts(row, x)
    },
    **{
        matrix_name(row, height, layout): _matrix(row, height, layout)
        for row in MATRIX_PRODUCTS.values()
        for height in HEIGHTS
        for layout in matrix_intrinsics.LAYOUTS
    },
    **{
        f"{step}_{height}x16x{dtype}": _tile(made, dtype, height)
        for step, made in (
            ("zero", matrix_intrinsics.zeros),
            ("copy", matrix_intrinsics.copies),
        )
        for height in HEIGHTS
        for dtype in ("f32", "i32")
    },
    **{
        f"transpose_{size}x{size}x{dtype}": _transpose(size, dtype)
        for size, dtypes in _SQUARES.items()
        for dtype in dtypes.split()
    },
    "copy_by_columns_16x16xf32": _copy_by_columns(16, "f32"),
    "copy_by_columns_8x8xf32": _copy_by_columns(8, "f32"),
    **{
        f"copy_by_columns_{size}x{size * group}x{dtype}": (
            _copy_by_columns(size, dtype, group)
        )
        for dtype, group in (("bf16", 2), ("i8", 4), ("u8", 4))
        for size in (16, 8, 4)
    },
    **{
        f"flip_by_columns_{size}x{4 * size}xi8": (
            _copy_by_columns(size, "i8", 4, flips=True)
        )
        for size in (16, 8, 4)
    },
}
NAMES: Final = tuple(_TABLE)


@cache
def tensor_intrinsic(name: str) -> TensorIntrinsic:
    """The intrinsic of that name.

    Raises:
        ScheduleError: there is none.
    """
    if name not in _TABLE:
        raise ScheduleError(
            f"there is no intrinsic {name!r}; these: {', '.join(NAMES)}"
        )
    return _TABLE[name](name)
