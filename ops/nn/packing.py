"""Packed weights: strips of columns in the order in which the inner loop reads them.

Weights are packed once, ahead of many calls, into a value of a type of its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang import ir, runtime
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.calls.packed_weights import PackedWeight
from tensorlang.ops.nn.winograd_packing import (
    CONVOLUTION,
    PackedWindows,
    pack,
    read_only,
)
from tensorlang.ops.operator import Operator
from tensorlang.ops.spec.signature import FLOATS

STRIP: Final = 32  # columns: two f32 vectors, the width of a register tile
LANES, GROUP = 16, 4  # columns and adjacent inputs of a strip of bytes
_DENSE: Final = "nn.dense"
_BYTES: Final = "nn.dense_int8"


def prepack(
    op: Operator, w: object, *, layout: str = "oi", tolerance: float | None = None
) -> PackedWeight | PackedWindows:
    """Pack a weight once for many calls of `op`.

    Args:
        op: `nn.dense`, `nn.dense_int8`, or `nn.conv2d` with 3x3 windows.
        w: For dense layers, `[out, in]`, or `[in, out]` with `layout="io"`; for
            `nn.conv2d`, `[out, in, 3, 3]`.
        layout: `"oi"` or `"io"`, for dense layers.
        tolerance: For `nn.conv2d`, the error allowed, as in its calls: weights are
            packed for Winograd's algorithms.

    Raises:
        ArgumentError: the operator takes no packed weights, the layout is unknown, or
            no Winograd algorithm is within the tolerance.
        ShapeError: not a matrix, or not 3x3 windows.
        DTypeError: not floats, or not int8 for `nn.dense_int8`.
    """
    id = getattr(op, "id", None)
    if id not in (CONVOLUTION, _DENSE, _BYTES):
        given = id or (None if op is None else type(op).__name__)
        raise ArgumentError(
            f"{given} takes no packed weight; nn.dense, nn.dense_int8 and nn.conv2d do"
        )
    if tolerance is not None and not isinstance(tolerance, (int, float)):
        raise ArgumentError(
            f"nn.prepack: tolerance is None or a number, not {tolerance!r}"
        )
    if id == CONVOLUTION:
        return pack(w, tolerance)
    if tolerance is not None:
        raise ArgumentError(
            f"nn.prepack: weights of {id} are packed as they are, without a tolerance"
        )
    if layout not in ("oi", "io"):
        raise ArgumentError(f"nn.prepack: layout is 'oi' or 'io', not {layout!r}")
    array = runtime.host_arrays.view(w, "nn.prepack: w")
    if array.ndim != 2:
        raise ShapeError(f"nn.prepack: w is a matrix, not of shape {array.shape}")
    allowed = ("i8",) if id == _BYTES else FLOATS
    if ir.as_dtype(array.dtype).name not in allowed:
        raise DTypeError(
            f"nn.prepack: w is one of {', '.join(allowed)}, not {array.dtype}; cast it"
        )
    rows = array if layout == "oi" else array.T
    lanes, group = (LANES, GROUP) if id == _BYTES else (STRIP, 1)
    packed = _strips(rows, lanes, group)
    return PackedWeight(id, packed, rows.shape, group)


def _strips(rows: np.ndarray, lanes: int, group: int) -> np.ndarray:
    """Strips `[columns / lanes, in / group, lanes * group]`, padded with zeros."""
    columns, depth = rows.shape
    count, steps = -(-columns // lanes), -(-depth // group)
    whole = np.zeros((count * lanes, steps * group), rows.dtype)
    whole[:columns, :depth] = rows
    shape = count, steps, lanes * group
    packed = runtime.buffers.empty(shape, rows.dtype)  # aligned to cache lines
    packed[...] = (
        whole.reshape(count, lanes, steps, group).transpose(0, 2, 1, 3).reshape(shape)
    )
    return read_only(packed) if packed.size else packed
