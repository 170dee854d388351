"""Emit steps on tiles of sums: a row of `MATRIX_PRODUCTS` each.

Tiles of sums are vectors in memory that LLVM promotes to tile registers; it also
configures these where a routine starts, and releases them where it ends. Factors are
loaded into tiles, each once between stores to other memory.
"""

from __future__ import annotations

from tensorlang.codegen.folding import mul
from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.memory import Value
from tensorlang.codegen.llvm.types import memory_type
from tensorlang.codegen.vectors.tile_indices import rows_of
from tensorlang.errors import CodegenError
from tensorlang.instructions import MATRIX_PRODUCTS, MatrixProduct
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import nodes_of

_TILE = "x86_amx"
_BYTES = 64  # of a row
_LANES = 16  # 32-bit elements of a row


def tiles_of(node: ir.Node) -> frozenset[ir.Buffer]:
    """The buffers whose elements are sums of matrix products."""
    return frozenset(
        stmt.buffer
        for stmt in nodes_of(node, ir.Store)
        if isinstance(stmt.value, ir.Call) and stmt.value.name in MATRIX_PRODUCTS
    )


def store(builder: Builder, stmt: ir.Store, value: Value) -> bool:
    """Emit a step on a tile of sums, unless the statement is none."""
    match stmt.value:
        case ir.Call(name=name) if name in MATRIX_PRODUCTS:
            tile = _product(builder, stmt.value, value)
        case ir.Splat(value=ir.Const(value=0)) if stmt.buffer in builder.tiles:
            lanes = stmt.value.dtype.lanes
            tile = builder.call("llvm.x86.tilezero.internal", _TILE, *_shape(lanes))
        case ir.Load(buffer=buffer) if buffer in builder.tiles:
            _copy(builder, stmt, stmt.value, value)
            return True
        case _:
            return False
    _keep(builder, stmt, tile, value)
    return True


def _product(builder: Builder, call: ir.Call, value: Value) -> str:
    row = MATRIX_PRODUCTS[call.name]
    if not row.fits(builder.module.target.features):
        raise CodegenError(
            f"{row.name} is an instruction of processors with "
            f"{' and '.join(row.features)}: this is for another one"
        )
    sums, a, b = call.args
    rows = _shape(call.dtype.lanes)
    depth = ("i16", str(_BYTES))
    return builder.call(
        row.llvm,
        _TILE,
        *rows,
        depth,
        (_TILE, _sums(builder, sums, value)),
        (_TILE, _factors(builder, row, a, row.depth, value)),
        (_TILE, _factors(builder, row, b, row.lanes * row.group, value)),
    )


def _shape(lanes: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Rows and bytes of a row, of a tile of sums."""
    return ("i16", str(lanes // _LANES)), ("i16", str(_BYTES))


def _vector(lanes: int) -> tuple[str, str]:
    """A tile of sums as a vector: the LLVM type, and its mangled name."""
    return f"<{lanes} x i32>", f"v{lanes}i32"


def _sums(builder: Builder, expr: ir.Expr, value: Value) -> str:
    """A tile of sums, from the memory that stands for it."""
    if not isinstance(expr, ir.Load):
        raise CodegenError("a matrix product adds to sums in memory")
    kind, name = _vector(expr.dtype.lanes)
    pointer = _whole(builder, expr, value)
    held = builder.emit(ins.load(builder.name(), kind, pointer, 4))
    return builder.call(f"llvm.x86.cast.vector.to.tile.{name}", _TILE, (kind, held))


def _keep(builder: Builder, stmt: ir.Store, tile: str, value: Value) -> None:
    """Store a tile of sums in the memory that stands for it."""
    kind, name = _vector(stmt.value.dtype.lanes)
    cast = f"llvm.x86.cast.tile.to.vector.{name}"
    held = builder.call(cast, kind, (_TILE, tile))
    builder.emit(ins.store(kind, held, _whole(builder, stmt, value), 4))


def _whole(builder: Builder, access: ir.Load | ir.Store, value: Value) -> str:
    """The address of a tile that is contiguous."""
    (_, pointer), (_, pitch) = _place(builder, access, _LANES, value)
    if pitch != str(_BYTES):
        raise CodegenError(f"{access.buffer.name}: a tile of sums is contiguous")
    return pointer


def _factors(
    builder: Builder, row: MatrixProduct, expr: ir.Expr, columns: int, value: Value
) -> str:
    """A tile of factors, loaded once between stores."""
    if not isinstance(expr, ir.Load):
        raise CodegenError(f"{row.name} takes factors from memory")
    if expr not in builder.factors:
        rows = expr.dtype.lanes // columns
        builder.factors[expr] = builder.call(
            "llvm.x86.tileloadd64.internal",
            _TILE,
            *_shape(rows * _LANES),
            *_place(builder, expr, columns, value),
        )
    return builder.factors[expr]


def _copy(builder: Builder, stmt: ir.Store, sums: ir.Load, value: Value) -> None:
    """Store a tile of sums to memory, row by row."""
    builder.call(
        "llvm.x86.tilestored64.internal",
        "void",
        *_shape(sums.dtype.lanes),
        *_place(builder, stmt, _LANES, value),
        (_TILE, _sums(builder, sums, value)),
    )
    builder.effect()


def _place(
    builder: Builder, access: ir.Load | ir.Store, columns: int, value: Value
) -> tuple[tuple[str, str], tuple[str, str]]:
    """The address of a tile's first row, and the bytes from one to the next."""
    (index,) = access.indices
    found = None if access.mask is not None else rows_of(index, columns)
    if found is None:
        raise CodegenError(
            f"{access.buffer.name}: a tile is rows of {columns} elements at one pitch"
        )
    first, pitch = found
    scalar = value(first, builder)
    element = memory_type(access.buffer.dtype)
    name = builder.name()
    pointer = builder.pointers[access.buffer]
    builder.emit(ins.address(name, element, pointer, "i64", scalar))
    stride = value(mul(pitch, ir.Const(access.buffer.dtype.bytes, i64)), builder)
    return ("ptr", name), ("i64", stride)
