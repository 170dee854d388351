"""Packed weights: what an inner loop reads lies in the order that it reads it.

A packed weight is a typed value: its strips of columns lie as the inner loop reads
them, so a call packs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.nn.winograd_packing import (
    CONVOLUTION,
    PackedWindows,
    pack,
    read_only,
)
from tensorlang.ops.signature import FLOATS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorlang.ops.operator import Operator

STRIP: Final = 32  # columns: two vectors of f32, a register tile's
_DENSE: Final = "nn.dense"


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """A weight in the layout that an operator's inner loop reads.

    Attributes:
        operator: The id of the operator that it is for.
        array: Strips `[ceil(out / 32), in, 32]`, columns past the end 0; read-only.
        shape: The logical shape, `(out, in)`.
    """

    operator: str
    array: NDArray[Any]
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.array.dtype

    def of(self, id: str) -> tuple[NDArray[Any], int]:
        """The strips, and how many columns they have, for an operator.

        Raises:
            ArgumentError: they are packed for another one.
        """
        if id != self.operator:
            raise ArgumentError(f"{id}: this weight was packed for {self.operator}")
        return self.array, self.shape[0]

    @property
    def not_an_array(self) -> str:
        """What operators say of it that take no packed weight."""
        return f"a weight packed for {self.operator}; pass w.unpack()"

    def unpack(self) -> NDArray[Any]:
        """The weight as `[out, in]`: a copy."""
        columns, depth = self.shape
        rows = self.array.transpose(0, 2, 1).reshape(-1, depth)
        return np.ascontiguousarray(rows[:columns])


def prepack(
    op: Operator, w: Any, *, layout: str = "oi", tolerance: float | None = None
) -> PackedWeight | PackedWindows:
    """A weight packed once for many calls of `op`.

    Args:
        op: `nn.dense`, or `nn.conv2d` for windows of 3 by 3.
        w: `[out, in]`, or `[in, out]` with `layout="io"`; of a convolution, `[out, in,
            3, 3]`.
        layout: Which of the first two.
        tolerance: Of a convolution, the error that is allowed, as in its calls: packed
            are weights of Winograd's algorithms.

    Raises:
        ArgumentError: the operator takes no packed weights, or no such layout; no
            algorithm that takes them is as exact.
        ShapeError: the weight is no matrix, or its windows are others.
        DTypeError: it is not of floats.
    """
    id = getattr(op, "id", None)
    if id not in (CONVOLUTION, _DENSE):
        raise ArgumentError(
            f"{id or repr(op)} takes no packed weight; nn.dense and nn.conv2d do"
        )
    if tolerance is not None and not isinstance(tolerance, (int, float)):
        raise ArgumentError(
            f"nn.prepack: tolerance is None or a number, not {tolerance!r}"
        )
    if id == CONVOLUTION:
        return pack(w, tolerance)
    if tolerance is not None:
        raise ArgumentError(
            "nn.prepack: weights of nn.dense are packed as they are, "
            "without a tolerance"
        )
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only to pack
    from tensorlang.runtime import buffers  # noqa: PLC0415 - loads the runtime
    from tensorlang.runtime.arrays import view  # noqa: PLC0415 - the same

    if layout not in ("oi", "io"):
        raise ArgumentError(f"nn.prepack: layout is 'oi' or 'io', not {layout!r}")
    array = view(w, "nn.prepack: w")
    if array.ndim != 2:
        raise ShapeError(f"nn.prepack: w is a matrix, not of shape {array.shape}")
    if as_dtype(array.dtype).name not in FLOATS:
        raise DTypeError(
            f"nn.prepack: w is one of {', '.join(FLOATS)}, not {array.dtype}; cast it"
        )
    rows = array if layout == "oi" else array.T
    columns, depth = rows.shape
    strips = -(-columns // STRIP)
    whole = np.zeros((strips * STRIP, depth), array.dtype)
    whole[:columns] = rows
    packed = buffers.empty((strips, depth, STRIP), array.dtype)  # on cache lines
    packed[...] = whole.reshape(strips, STRIP, depth).transpose(0, 2, 1)
    if packed.size:
        packed = read_only(packed)
    return PackedWeight(_DENSE, packed, (columns, depth))
