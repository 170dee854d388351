"""Tensor intrinsics: semantics as loop nests, implementations on vectors.

Both are IR functions of the same parameters, and a test compares them. `tensorize`
replaces loops that match the first by the second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from typing import Final, TypeAlias

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.instructions import DOT_PRODUCTS, MATRIX_PRODUCTS
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import i64, u8
from tensorlang.ir.intrinsics import intrinsic
from tensorlang.ir.text.parser import parse
from tensorlang.scheduling.intrinsics import dots, matrices
from tensorlang.scheduling.intrinsics.dots import SIGN, dot_name, layouts
from tensorlang.scheduling.intrinsics.matrices import HEIGHTS, matrix_name


@frozen
class TensorIntrinsic:
    """An intrinsic: its semantics, its implementation, and the features required."""

    name: str
    meaning: ir.Function
    implementation: ir.Function
    features: tuple[str, ...] = ()


Make: TypeAlias = Callable[[str], TensorIntrinsic]


def _read(
    nests: Callable[..., tuple[str, str]], *args: object, features: tuple[str, ...] = ()
) -> Make:
    """An intrinsic of a name whose two functions are the texts `nests(name, *args)`."""

    def make(name: str) -> TensorIntrinsic:
        meaning, vectors = map(parse, nests(name, *args))
        return TensorIntrinsic(name, meaning, vectors, features)

    return make


def _fma(name: str, lanes: int, dtype: str) -> tuple[str, str]:
    """`c[0:lanes] += a * b[0:lanes]`, with one element of `a` broadcast."""
    head = (
        f"def {name}(c: InOut[{dtype}[{lanes}]], a: {dtype}[1], b: {dtype}[{lanes}]):\n"
    )
    meaning = f"""
    for l in range({lanes}):
        with block("fma", vl=spatial({lanes}, l)):
            reduce(sum, c[vl], a[0] * b[vl])
"""
    row = f"ramp(0, 1, {lanes})"
    vectors = f"    c[{row}] = fma(splat(a[0], {lanes}), b[{row}], c[{row}])\n"
    return head + meaning, head + vectors


def _transpose(size: int, dtype: str) -> Make:
    """`b[j, i] = a[i, j]`: `size` loads, a transpose in registers, `size` stores."""

    def make(name: str) -> TensorIntrinsic:
        meaning = parse(f"""
def {name}(a: {dtype}[{size}, {size}], b: Out[{dtype}[{size}, {size}]]):
    for i in range({size}):
        for j in range({size}):
            with block("transpose", vi=spatial({size}, i), vj=spatial({size}, j)):
                b[vj, vi] = a[vi, vj]
""")
        return _by_columns(meaning, size, _row)

    return make


def _row(i: int, lanes: ir.Expr) -> tuple[ir.Expr, ...]:
    return ir.Const(i, i64), lanes


def _copy_by_columns(
    size: int, dtype: str, group: int = 1, *, flips: bool = False
) -> Make:
    """`b[i, j] = a[i, j]`, read by rows and written by columns, transposed in between.

    For packing: if `b` is contiguous along its first index, both sides move whole
    vectors. A `group` of columns stays together: pairs for a dot product. Bytes that it
    `flips` become unsigned ones, larger by 128.
    """
    columns = size * group
    made = "u8" if flips else dtype
    value = f"cast(u8, a[vi, vj]) ^ u8({SIGN})" if flips else "a[vi, vj]"

    def at(i: int, lanes: ir.Expr) -> tuple[ir.Expr, ...]:
        first = ir.Const(i * group, i64)
        if group == 1:
            return lanes, first
        wide = ir.Splat(ir.Const(group, i64), columns)
        return lanes // wide, ir.Splat(first, columns) + lanes % wide

    def make(name: str) -> TensorIntrinsic:
        meaning = parse(f"""
def {name}(a: {dtype}[{size}, {columns}], b: Out[{made}[{size}, {columns}]]):
    for i in range({size}):
        for j in range({columns}):
            with block("copy", vi=spatial({size}, i), vj=spatial({columns}, j)):
                b[vi, vj] = {value}
""")
        return _by_columns(meaning, size, at, group, flips=flips)

    return make


def _copy_by_rows(size: int, dtype: str, group: int, *, flips: bool = False) -> Make:
    """`b[i, j] = a[i, j]`, read by rows and written by columns of one vector.

    For packing: a `group` of rows is interleaved. Bytes that it `flips` become unsigned
    ones, larger by 128.
    """
    made = "u8" if flips else dtype
    value = f"cast(u8, a[vi, vj]) ^ u8({SIGN})" if flips else "a[vi, vj]"

    def make(name: str) -> TensorIntrinsic:
        meaning = parse(f"""
def {name}(a: {dtype}[{group}, {size}], b: Out[{made}[{group}, {size}]]):
    for i in range({group}):
        for j in range({size}):
            with block("copy", vi=spatial({group}, i), vj=spatial({size}, j)):
                b[vi, vj] = {value}
""")
        a, b = meaning.buffers
        lanes, every = ir.ramp(ir.Const(0, i64), size), size * group
        rows = tuple(ir.Load(a, (ir.Const(i, i64), lanes)) for i in range(group))
        order = (row * size + j for j in range(size) for row in range(group))
        held: ir.Expr = ir.Shuffle(rows, tuple(order))
        if flips:
            held = held.cast(u8.vector(every)) ^ ir.Splat(ir.Const(SIGN, u8), every)
        place, wide = ir.ramp(ir.Const(0, i64), every), ir.Const(group, i64)
        apart = ir.Splat(wide, every)
        done = ir.Store(b, (place % apart, place // apart), held)
        return TensorIntrinsic(
            name, meaning, dataclasses.replace(meaning, body=ir.seq(done))
        )

    return make


def _by_columns(
    meaning: ir.Function,
    size: int,
    at: Callable[[int, ir.Expr], tuple[ir.Expr, ...]],
    group: int = 1,
    *,
    flips: bool = False,
) -> TensorIntrinsic:
    """The columns of the first buffer, stored to the second at `at(column, lanes)`."""
    lets, columns = _columns(meaning, size, group)
    lanes = ir.ramp(ir.Const(0, i64), size * group)
    if flips:
        sign = ir.Splat(ir.Const(SIGN, u8), lanes.lanes)
        columns = [each.cast(u8.vector(lanes.lanes)) ^ sign for each in columns]
    stores = [
        ir.Store(meaning.buffers[1], at(i, lanes), each)
        for i, each in enumerate(columns)
    ]
    done = dataclasses.replace(meaning, body=ir.seq(*lets, *stores))
    return TensorIntrinsic(meaning.name, meaning, done)


def _columns(
    func: ir.Function, size: int, group: int = 1
) -> tuple[list[ir.Let], list[ir.Expr]]:
    """The columns of the first buffer as vectors; `group` neighbours stay together."""
    a, wide = func.buffers[0], size * group
    lanes = ir.ramp(ir.Const(0, i64), wide)
    lets = []

    def named(name: str, value: ir.Expr) -> ir.Expr:
        var = ir.Var(name, value.dtype)
        lets.append(ir.Let(var, value))
        return var

    rows = [named(f"r{i}", ir.Load(a, (ir.Const(i, i64), lanes))) for i in range(size)]
    columns = named("columns", intrinsic(f"transpose_{size}", *rows))
    return lets, [ir.subvector(columns, i * wide, wide) for i in range(size)]


# sides of the squares transposed in registers, and their element types
_NARROW: Final = ("f32", "i32", "u32", "f16", "bf16", "i16", "u16", "i8", "u8")
_SQUARES: Final = tuple(
    (size, dtype)
    for size, dtypes in {
        16: (),
        8: ("f64", "i64", "u64"),
        4: ("f64", "i64", "u64"),
    }.items()
    for dtype in (*dtypes, *_NARROW)
)
_TABLE: Final[dict[str, Make]] = {
    "fma_16xf32": _read(_fma, 16, "f32"),
    "fma_8xf32": _read(_fma, 8, "f32"),
    "fma_8xf64": _read(_fma, 8, "f64"),
    "fma_4xf64": _read(_fma, 4, "f64"),
    **{
        dot_name(row, x, layout): _read(
            dots.nests, row, x, layout, features=row.features
        )
        for row in DOT_PRODUCTS.values()
        for x in dict.fromkeys((row.a, row.b))
        for layout in layouts(row, x)
    },
    **{
        matrix_name(row, height, layout): _read(
            matrices.nests, row, height, layout, features=row.features
        )
        for row in MATRIX_PRODUCTS.values()
        for height in HEIGHTS
        for layout in matrices.LAYOUTS
    },
    **{
        f"{step}_{height}x16x{dtype}": _read(made, dtype, height, 16)
        for step, made in (("zero", matrices.zeros), ("copy", matrices.copies))
        for height in HEIGHTS
        for dtype in ("f32", "i32")
    },
    **{
        f"{name}_{size}x{size}x{dtype}": made(size, dtype)
        for name, made in (
            ("transpose", _transpose),
            ("copy_by_columns", _copy_by_columns),
        )
        for size, dtype in _SQUARES
    },
    **{
        f"copy_by_columns_{size}x{size * group}x{dtype}": (
            _copy_by_columns(size, dtype, group)
        )
        for dtype, group in (("bf16", 2), ("i8", 4), ("u8", 4))
        for size in (16, 8, 4)
    },
    **{
        f"copy_by_rows_{group}x{size}x{dtype}": _copy_by_rows(size, dtype, group)
        for dtype, group in (("bf16", 2), ("i8", 4), ("u8", 4))
        for size in range(16, 1, -1)
    },
    **{
        f"flip_by_{name}xi8": made(size, "i8", 4, flips=True)
        for size in (16, 8, 4)
        for name, made in (
            (f"columns_{size}x{4 * size}", _copy_by_columns),
            (f"rows_4x{size}", _copy_by_rows),
        )
    },
}
NAMES: Final = tuple(_TABLE)


@cache
def tensor_intrinsic(name: str) -> TensorIntrinsic:
    """The intrinsic of that name; ScheduleError if there is none."""
    if name not in _TABLE:
        close = get_close_matches(name, NAMES, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ScheduleError(f"there is no intrinsic {name!r}{hint}")
    return _TABLE[name](name)
