"""Packed weights: strips of columns in the order in which the inner loop reads them.

Weights are packed once, ahead of many calls, into a value of a type of its own.
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

STRIP: Final = 32  # columns: two f32 vectors, the width of a register tile
_DENSE: Final = "nn.dense"


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """A weight in the layout of an operator's inner loop.

    Attributes:
        operator: Id of the operator it is packed for.
        array: Strips `[ceil(out / 32), in, 32]`, zero-padded; read-only.
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
        """The strips and the number of columns, for an operator.

        Raises:
            ArgumentError: the weight is packed for another operator.
        """
        if id != self.operator:
            raise ArgumentError(f"{id}: this weight was packed for {self.operator}")
        return self.array, self.shape[0]

    @property
    def not_an_array(self) -> str:
        """The error text of operators that take no packed weight."""
        return f"a weight packed for {self.operator}; pass w.unpack()"

    def unpack(self) -> NDArray[Any]:
        """A copy of the weight as `[out, in]`."""
        columns, depth = self.shape
        rows = self.array.transpose(0, 2, 1).reshape(-1, depth)
        return np.ascontiguousarray(rows[:columns])


def prepack(
    op: Operator, w: Any, *, layout: str = "oi", tolerance: float | None = None
) -> PackedWeight | PackedWindows:
    """Pack a weight once for many calls of `op`.

    Args:
        op: `nn.dense`, or `nn.conv2d` with 3x3 windows.
        w: For `nn.dense`, `[out, in]`, or `[in, out]` with `layout="io"`; for
            `nn.conv2d`, `[out, in, 3, 3]`.
        layout: `"oi"` or `"io"`, for `nn.dense`.
        tolerance: For `nn.conv2d`, the error allowed, as in its calls: weights are
            packed for Winograd's algorithms.

    Raises:
        ArgumentError: the operator takes no packed weights, the layout is unknown, or
            no Winograd algorithm is within the tolerance.
        ShapeError: not a matrix, or not 3x3 windows.
        DTypeError: not floats.
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
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only for packing
    from tensorlang.runtime import buffers  # noqa: PLC0415 - loads the runtime
    from tensorlang.runtime.arrays import view  # noqa: PLC0415 - likewise

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
    packed = buffers.empty(
        (strips, depth, STRIP), array.dtype
    )  # aligned to cache lines
    packed[...] = whole.reshape(strips, STRIP, depth).transpose(0, 2, 1)
    if packed.size:
        packed = read_only(packed)
    return PackedWeight(_DENSE, packed, (columns, depth))
