"""The slow path of a kernel call: all that the emitted wrapper does not handle.

Arrays of other libraries, non-contiguous views, overlapping buffers, NumPy scalars, and
every error message. It costs about ten microseconds a call.
"""

from __future__ import annotations

import ctypes
import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ir.dtypes import DType
from tensorlang.runtime.arrays.device_arrays import (
    DeviceArray,
    PlacedArray,
    layout_error,
)
from tensorlang.runtime.arrays.host_arrays import Array, immutable, view, written
from tensorlang.runtime.arrays.overlaps import separate_inputs, separate_written
from tensorlang.runtime.signature import (
    BufferSpec,
    Scalars,
    ScalarSpec,
    Signature,
    evaluate,
    show_dim,
)

_typed = cache(DType)
Slots: TypeAlias = "ctypes.Array[ctypes.c_uint64]"
"""A call's arguments, 8 bytes each: addresses, then the bits of scalars."""


@dataclass(slots=True)
class Call:
    """Prepared arguments, and the pairs of arrays to copy back after the call.

    The arrays are NumPy's, or device arrays if `prepare` was given such a reader.
    """

    arrays: list[Any]
    scalars: Scalars
    back: list[tuple[Array, Array]] = field(default_factory=list)


def run(
    signature: Signature, entry: Callable[[int], int], args: Sequence[object]
) -> int:
    """Call a kernel's `run` entry point; returns its fault code.

    Raises:
        ArgumentError: wrong number of arguments, a non-array, a read-only array that
            would be written, or written arrays that overlap.
        DTypeError: an array has the wrong dtype.
        ShapeError: a shape does not fit the kernel or the other shapes.
    """
    call = prepare(signature, args)
    addresses = [array.ctypes.data for array in call.arrays]
    block = block_of(signature, call, addresses)
    code = entry(ctypes.addressof(block))
    for target, source in call.back:
        np.copyto(target, source)
    return code


def block_of(signature: Signature, call: Call, addresses: Sequence[int]) -> Slots:
    """The argument block of compiled code: addresses, then the bits of scalars."""
    block = (ctypes.c_uint64 * (signature.slots + 1))(*addresses)
    for slot, spec in enumerate(signature.scalars, len(addresses)):
        block[slot] = bits(spec, call.scalars[spec.name])
    return block


def prepare(
    signature: Signature,
    args: Sequence[object],
    read: Callable[[object, str], PlacedArray] = view,
) -> Call:
    """Validate the arguments and convert them to what the kernel expects.

    Args:
        signature: The kernel's signature.
        args: Buffers, then free scalars.
        read: Views an argument (with its name for errors) as an array in place.
    """
    expected = len(signature.buffers) + len(signature.free)
    if len(args) != expected:
        names = [b.name for b in signature.buffers] + [s.name for s in signature.free]
        raise ArgumentError(
            f"{signature.name} takes {expected} arguments ({', '.join(names)}), "
            f"got {len(args)}"
        )
    given = [
        _array(signature, spec, arg, read)
        for spec, arg in zip(signature.buffers, args, strict=False)
    ]
    scalars = {
        spec.name: scalar(signature.name, spec, arg)
        for spec, arg in zip(signature.free, args[len(given) :], strict=True)
    }
    bind(signature, [array.shape for array in given], scalars)
    call = Call(given, scalars)
    separate_written(signature, call)
    _make_contiguous(signature, call)
    separate_inputs(signature, call)
    return call


def _array(
    signature: Signature,
    spec: BufferSpec,
    arg: object,
    read: Callable[[object, str], PlacedArray],
) -> PlacedArray:
    where = f"{signature.name}: {spec.name}"
    if spec.written and (reason := immutable(arg)):
        raise ArgumentError(f"{where} {reason}; pass a NumPy array")
    array = read(arg, where)
    if array.dtype != spec.numpy or not array.dtype.isnative:
        raise DTypeError(f"{where} has dtype {array.dtype}; it must be {spec.numpy}")
    if spec.written and not array.flags.writeable:
        raise ArgumentError(
            f"{where} is read-only, and the kernel writes it; pass a writable array"
        )
    if spec.written:
        written((arg,))
    if (
        spec.written
        and array.size
        and any(
            stride == 0 and size > 1
            for stride, size in zip(array.strides, array.shape, strict=True)
        )
    ):
        raise ArgumentError(
            f"{where} is a broadcast view whose elements share memory, "
            f"and the kernel writes it; pass a copy of it"
        )
    return array


def bind(
    signature: Signature, shapes: Sequence[tuple[int, ...] | None], scalars: Scalars
) -> None:
    """Infer scalars from shapes, and check every dimension against them.

    `scalars` holds the known ones and is extended in place; a shape of None is unknown.

    Raises:
        ShapeError: a rank or dimension does not fit, or a size is negative; names both
            sides.
    """
    for name in signature.sizes:
        if scalars.get(name, 0) < 0:
            raise ShapeError(
                f"{signature.name}: {name} is {scalars[name]}; it is a size, which is "
                "not negative"
            )
    origin: dict[str, str] = {}
    for spec, shape in zip(signature.buffers, shapes, strict=True):
        if shape is None:
            continue
        if len(shape) != len(spec.shape):
            raise ShapeError(
                f"{signature.name}: {spec.name} has shape {shape}; "
                f"it must have {len(spec.shape)} dimensions: {spec}"
            )
        for dim, size in zip(spec.shape, shape, strict=True):
            if isinstance(dim, str) and dim not in scalars:
                scalars[dim] = size
                origin[dim] = spec.name
    for spec, shape in zip(signature.buffers, shapes, strict=True):
        if shape is not None:
            _check_shape(signature, spec, shape, scalars, origin)


def _check_shape(
    signature: Signature,
    spec: BufferSpec,
    shape: tuple[int, ...],
    scalars: Scalars,
    origin: dict[str, str],
) -> None:
    for axis, (dim, size) in enumerate(zip(spec.shape, shape, strict=True)):
        wanted = evaluate(dim, scalars)
        if size == wanted:
            continue
        because = "" if isinstance(dim, int) else f" ({show_dim(dim)}"
        if because:
            source = origin.get(dim, "") if isinstance(dim, str) else ""
            because += f", as in {source})" if source else ")"
        raise ShapeError(
            f"{signature.name}: {spec.name} has shape {shape}; "
            f"dimension {axis} must be {wanted}{because}"
        )


def scalar(kernel: str, spec: ScalarSpec, value: Any) -> float:
    """A scalar argument as a Python number of the right kind and range.

    Raises:
        DTypeError: not a number of that kind, or out of the dtype's range.
    """
    dtype = _typed(spec.dtype)
    where = f"{kernel}: {spec.name}"
    if dtype.is_float:
        return _float(where, dtype, value)
    try:
        number = operator.index(value)
    except TypeError:
        if isinstance(value, np.bool_):
            number = int(value)
        else:
            raise DTypeError(f"{where} must be a whole number, not {value!r}") from None
    low, high = dtype.limits
    if not low <= number <= high:
        raise DTypeError(f"{where} is {number}; {dtype} holds {low} to {high}")
    return number


def _float(where: str, dtype: DType, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise DTypeError(f"{where} must be a number, not {value!r:.80}") from None
    with np.errstate(over="ignore"):
        rounded = dtype.numpy.type(number)
    if math.isfinite(number) and not np.isfinite(rounded):
        raise DTypeError(
            f"{where} is {number}, which rounds to an infinity in {dtype}; give "
            "math.inf where that is meant"
        )
    return number


def bits(spec: ScalarSpec, value: float) -> int:
    """A scalar's bits, in the low end of an 8-byte slot."""
    dtype = _typed(spec.dtype)
    if dtype.name == "f64":
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if dtype.name == "f32":
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    if dtype.is_float:
        raw = np.asarray(value).astype(dtype.numpy).tobytes()
        return int.from_bytes(raw, "little")
    return int(value) & ((1 << dtype.bits) - 1)


def _make_contiguous(signature: Signature, call: Call) -> None:
    """Replace non-contiguous or misaligned arrays by copies; written ones copy back."""
    for i, spec in enumerate(signature.buffers):
        array = call.arrays[i]
        if array.flags.c_contiguous and array.flags.aligned:
            continue
        if isinstance(array, DeviceArray):
            raise ArgumentError(layout_error(f"{signature.name}: {spec.name}", array))
        if spec.role == "out":
            call.arrays[i] = np.empty(array.shape, array.dtype)
        else:
            call.arrays[i] = np.array(array, order="C", copy=True)
        if spec.written:
            call.back.append((array, call.arrays[i]))
