"""Results of operators: fresh arrays of the caller's library, or the `out` argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorlang import runtime
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.calls.dispatch import Late


def empty(
    name: str, shape: tuple[int, ...], dtype: np.dtype, like: object = None
) -> tuple[Any, Any]:
    """A fresh array on the device of `like`, and the result to return.

    The result is the array itself, or a `Late` of the library of `like`.

    Raises:
        ShapeError: the memory cannot be allocated.
    """
    beside = None if like is None else runtime.foreign_arrays.on_device(like, name)
    if beside is not None:
        there = runtime.device_arrays.empty_like(beside, shape, dtype)
        return there, Late(there, there.kind)
    size = math.prod(shape) * dtype.itemsize
    try:
        made = runtime.buffers.empty(shape, dtype)
    except (MemoryError, OSError, ValueError, OverflowError) as problem:
        raise ShapeError(
            f"{name}: a {dtype} result of shape {shape}, {size / 2**30:.4g} GiB, "
            "cannot be allocated; compute it in parts, or give out="
        ) from problem
    kind = runtime.host_arrays.kind_of(like)
    return made, made if kind in ("numpy", "builtins") else Late(made, kind)


def given(name: str, out: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """The memory of the `out` argument, as a NumPy array or one on a device.

    Args:
        name: The operator's name in errors.
        out: The caller's argument.
        shape: The shape of the result.
        dtype: The element type of the result.

    Raises:
        ShapeError, DTypeError, ArgumentError: it does not fit the result.
    """
    reason = runtime.host_arrays.immutable(out)
    if reason:
        raise ArgumentError(f"{name}: out {reason}; pass a NumPy array")
    array: Any = runtime.foreign_arrays.as_placed(out, f"{name}: out")
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
    runtime.host_arrays.written((out,))
    return array


def _overlaps(array: Any) -> bool:
    """Whether elements may overlap: a stride is less than the span of inner ones."""
    inside = array.dtype.itemsize
    dims = zip(map(abs, array.strides), array.shape, strict=True)
    for stride, extent in sorted((s, n) for s, n in dims if n > 1):
        if stride < inside:
            return 0 not in array.shape
        inside = stride * extent
    return False
