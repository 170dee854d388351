"""What an operator returns: fresh arrays in the caller's kind, or the `out` given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.dispatch import Late
from tensorlang.runtime import arrays, buffers


def empty(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], like: object = None
) -> tuple[arrays.Array, Any]:
    """A fresh array, and the result: itself, or `Late` in the kind that `like` has.

    Raises:
        ShapeError: there is no memory for it.
    """
    size = math.prod(shape) * dtype.itemsize
    try:
        made = buffers.empty(shape, dtype)
    except (MemoryError, OSError, ValueError, OverflowError) as problem:
        raise ShapeError(
            f"{name}: a {dtype} result of shape {shape}, {size / 2**30:.4g} GiB, "
            "cannot be allocated; draw it in parts with offset=, or give out="
        ) from problem
    kind = arrays.kind_of(like)
    return made, made if kind in ("numpy", "builtins") else Late(made, kind)


def made(
    name: str,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    like: object = None,
) -> tuple[arrays.Array, Any]:
    """The memory for a result, and the result: `out` where there is one, else fresh.

    Raises:
        ShapeError, DTypeError, ArgumentError: `out` does not fit, or no memory.
    """
    if out is None:
        return empty(name, shape, dtype, like)
    return given(name, out, shape, dtype), out


def given(
    name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> arrays.Array:
    """The memory of a caller's `out=` as a NumPy array.

    Raises:
        ShapeError, DTypeError, ArgumentError: it does not fit the result.
    """
    reason = arrays.immutable(out)
    if reason:
        raise ArgumentError(f"{name}: out {reason}; pass a NumPy array")
    array = arrays.view(out, f"{name}: out")
    if array.shape != shape:
        raise ShapeError(f"{name}: out has shape {array.shape}, the result {shape}")
    if array.dtype != dtype:
        raise DTypeError(f"{name}: out is {array.dtype}, the result is {dtype}")
    if not array.flags.writeable:
        raise ArgumentError(f"{name}: out is read-only; pass an array of your own")
    return array
