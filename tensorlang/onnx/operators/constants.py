"""Constants and operators of constants."""

from __future__ import annotations

from math import isfinite

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.onnx.calls import Call, Operand, dtype_in
from tensorlang.onnx.folding import checked_size
from tensorlang.onnx.operators.elementwise import where
from tensorlang.onnx.operators.shapes import filled
from tensorlang.onnx.reading import Ints, Number, Results, Sizes, reads


@reads("Constant", folds=True)
def constant(
    *,
    value: np.ndarray | None = None,
    value_int: int | None = None,
    value_ints: Ints | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
) -> Results:
    """A constant array, in one of several forms."""
    forms = [
        *(
            np.array(each, np.int64)
            for each in (value_int, value_ints)
            if each is not None
        ),
        *(
            np.array(each, np.float32)
            for each in (value_float, value_floats)
            if each is not None
        ),
        *([] if value is None else [value]),
    ]
    if len(forms) != 1:
        raise GraphError(f"{len(forms)} values are given instead of one")
    return forms[0]


@reads("ConstantOfShape", folds=True)
def constant_of_shape(input: Sizes, *, value: np.ndarray | None = None) -> Results:
    """A constant array filled with one value, 0.0 by default."""
    fill = np.zeros(1, np.float32) if value is None else value
    if fill.size != 1:
        raise GraphError(f"attribute value has {fill.size} elements, not one")
    return filled(input, fill.reshape(()))


@reads("Range", folds=True)
def arange(
    call: Call, start: Number, limit: Number, delta: Number, *, stash_type: int = 1
) -> Results:
    """Numbers from `start` up to but excluding `limit`, in steps of `delta`."""
    dtype = call.known(call.inputs[0], "start").dtype
    if stash_type != 1 or not delta or not all(map(isfinite, (start, limit, delta))):
        raise ShapeError(f"from {start} to {limit} in steps of {delta} is not a range")
    count = max(-int((start - limit) // delta), 0)
    checked_size((count,), dtype.itemsize)
    return (start + np.arange(count) * delta).astype(dtype)


@reads("Trilu", folds=True)
def triangle(input: Operand, k: Number = 0, *, upper: bool) -> Results:
    """The upper or lower triangle; zeros elsewhere."""
    sizes = [n for n in input.shape[-2:] if isinstance(n, int)]
    if len(sizes) < 2:
        raise ShapeError(f"of {input.shape}, the last two sizes have to be known")
    rows, columns = sizes
    checked_size(sizes, 1, "a mask")
    diagonal = min(max(int(k), -rows), columns)
    mask = np.tri(rows, columns, diagonal - upper, bool)
    return where(mask != upper, input, np.zeros((), dtype_in(input)))
