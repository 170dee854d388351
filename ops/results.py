"""What an operator returns: fresh arrays in the caller's kind, or the `out` given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.dispatch import Late
from tensorlang.runtime import arrays, buffers
from tensorlang.runtime.device_arrays import empty_like
from tensorlang.runtime.given_arrays import on_device, seen


def empty(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], like: object = None
) -> tuple[Any, Any]:
    """A fresh array, and the result: itself, or `Late` in the kind that `like` has.

    It is on the device where `like` is.

    Raises:
        ShapeError: there is no memory for it.
    """
    beside = None if like is None else on_device(like, name)
    if beside is not None:
        there = empty_like(beside, shape, dtype)
        return there, Late(there, there.kind)
    size = math.prod(shape) * dtype.itemsize
    try:
        made = buffers.empty(shape, dtype)
    except (MemoryError, OSError, ValueError, OverflowError) as problem:
        raise ShapeError(
            f"{name}: a {dtype} result of shape {shape}, {size / 2**30:.4g} GiB, "
            "cannot be allocated; compute it in parts, or give out="
        ) from problem
    kind = arrays.kind_of(like)
    return made, made if kind in ("numpy", "builtins") else Late(made, kind)


def made(
    name: str,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    like: object = None,
) -> tuple[Any, Any]:
    """The memory for a result, and the result: `out` where there is one, else fresh.

    Raises:
        ShapeError, DTypeError, ArgumentError: `out` does not fit, or no memory.
    """
    if out is None:
        return empty(name, shape, dtype, like)
    return given(name, out, shape, dtype), out


def given(
    name: str,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    known: Any = None,
) -> Any:
    """The memory of a caller's `out=`: a NumPy array, or one on a device.

    Args:
        name: What errors call the operator.
        out: What the caller gave.
        shape: The result's.
        dtype: Its element type.
        known: The same as it was already seen, if it was.

    Raises:
        ShapeError, DTypeError, ArgumentError: it does not fit the result.
    """
    reason = arrays.immutable(out)
    if reason:
        raise ArgumentError(f"{name}: out {reason}; pass a NumPy array")
    array = seen(out, f"{name}: out") if known is None else known
    if array.shape != shape:
        raise ShapeError(f"{name}: out has shape {array.shape}, the result {shape}")
    if array.dtype != dtype:
        raise DTypeError(f"{name}: out is {array.dtype}, the result is {dtype}")
    if not array.flags.writeable:
        raise ArgumentError(f"{name}: out is read-only; pass an array of your own")
    if _overlaps(array):
        raise ArgumentError(
            f"{name}: out is a broadcast or sliding view whose elements share memory; "
            "pass an array of your own"
        )
    arrays.written((out,))
    return array


def _overlaps(array: Any) -> bool:
    """Whether elements may share memory: a stride is shorter than what lies inside."""
    inside = array.dtype.itemsize
    dims = zip(map(abs, array.strides), array.shape, strict=True)
    for stride, extent in sorted((s, n) for s, n in dims if n > 1):
        if stride < inside:
            return 0 not in array.shape
        inside = stride * extent
    return False
