"""DLPack: import and export of capsules.

The structs follow DLPack's `dlpack.h`, version 0.8: `DLManagedTensor`.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ir.dtypes import bf16
from tensorlang.runtime.arrays.device_arrays import DeviceArray
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.runtime.cuda import driver as cuda_driver

CPU: Final = 1
CUDA: Final = 2
_NAME: Final = b"dltensor"
_CODES: Final = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_TITLES: Final = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
)
_KINDS: Final = {"i": 0, "u": 1, "f": 2, "b": 6}
_BFLOAT: Final = 4
_EXCHANGE: Final = b"dlpack_exchange_api"
_MAJOR: Final = 1  # version of the exchange API


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _ExchangeApi(ctypes.Structure):
    """`DLPackExchangeAPI`, version 1.3."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export", ctypes.c_void_p),
        ("take", ctypes.c_void_p),
        ("describe", ctypes.c_void_p),  # dltensor_from_py_object_no_sync
        ("stream_of", ctypes.c_void_p),  # current_work_stream
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (
    ("tensor", _Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class Read:
    """An imported capsule; it keeps the memory alive.

    `device` is (type, id); strides are in bytes, None if contiguous.
    """

    capsule: object
    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype


def read(capsule: object, name: str) -> Read:
    """Import another library's capsule; `name` is used in error messages.

    Raises:
        DTypeError: NumPy has no such dtype.
        ArgumentError: the capsule was consumed before.
    """
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    if not api.PyCapsule_IsValid(capsule, _NAME):
        raise ArgumentError(f"{name}: its DLPack capsule was used before")
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    place = api.PyCapsule_GetPointer(capsule, _NAME)
    tensor = _Managed.from_address(place).tensor
    dtype = _dtype(tensor, name)
    count = range(tensor.ndim)
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[at] * dtype.itemsize for at in count)
    return Read(
        capsule,
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device_id),
        tuple(tensor.shape[at] for at in count),
        strides,
        dtype,
    )


def _dtype(tensor: _Tensor, name: str) -> np.dtype:
    kind = _CODES.get(tensor.code, "")
    if kind == "bfloat" and tensor.bits == 16:
        return bf16.numpy
    title = "bool" if kind == "bool" else f"{kind}{tensor.bits}"
    if tensor.lanes != 1 or title not in _TITLES:
        raise DTypeError(
            f"{name} has elements of DLPack's type {tensor.code}, {tensor.bits} bits, "
            f"{tensor.lanes} lanes, which kernels do not support"
        )
    return np.dtype(title)


def _code(dtype: np.dtype) -> int:
    """DLPack's number of a dtype's kind."""
    return _BFLOAT if dtype == bf16.numpy else _KINDS[dtype.kind]


def type_number(dtype: np.dtype) -> int:
    """A dtype as DLPack's struct of kind, bits and lanes, read as one integer."""
    parts = bytes([_code(dtype), 8 * dtype.itemsize, 1, 0])
    return int.from_bytes(parts, sys.byteorder)


@cache
def exchange(kind: type | None) -> tuple[int, int, int] | None:
    """How to read arrays of a type from compiled code, by the C exchange API.

    Returns:
        Addresses: of the type, and of the functions that describe an array and tell
        the current stream; None if the type has no such functions.
    """
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
    if capsule is None or not api.PyCapsule_IsValid(capsule, _EXCHANGE):
        return None
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    found = _ExchangeApi.from_address(api.PyCapsule_GetPointer(capsule, _EXCHANGE))
    if found.major != _MAJOR or not (found.describe and found.stream_of):
        return None
    return id(kind), found.describe, found.stream_of


class Exported:
    """Device memory that exports DLPack and `__cuda_array_interface__`."""

    def __init__(self, array: DeviceArray) -> None:
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """As in NumPy."""
        return self._array.shape

    @property
    def dtype(self) -> np.dtype:
        """As in NumPy."""
        return self._array.dtype

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        array = self._array
        return {
            "shape": array.shape,
            "strides": None,
            "data": (array.memory, not array.writeable),
            "typestr": array.dtype.str,
            "stream": array.stream or 1,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self._array.place.key[1])

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> object:
        there = stream if stream not in (None, -1) else None
        if there is not None:
            _order_streams(self._array, there, back=False)
        return capsule(self._array, self.__dlpack_device__(), there)


def _order_streams(array: DeviceArray, stream: int, *, back: bool) -> None:
    """Make the consumer's stream wait for the array's.

    With `back`, make the array's stream, in whose order its memory is freed, wait for
    the consumer's.
    """
    here = array.stream or cuda_driver.LEGACY
    if stream != here and (stream, here) != (1, cuda_driver.LEGACY):
        device = cuda_device.device(array.place.key[1])
        with device.current():
            mark = cuda_device.Event(device)
            mark.record(stream if back else here)
            mark.awaited_by(here if back else stream)


# objects kept alive until the capsules' consumers call the deleter
_HELD: Final[dict[int, tuple[_Managed, object, DeviceArray, int | None]]] = {}


def _done(managed: Any) -> None:
    held = _HELD.pop(ctypes.addressof(managed.contents), None)
    if held is not None and held[-1] is not None and not sys.is_finalizing():
        with suppress(Exception):  # called from foreign code: nothing to raise into
            _order_streams(held[-2], held[-1], back=True)


def _dropped(capsule: int) -> None:
    """Destructor of a capsule that was never consumed."""
    api = ctypes.pythonapi
    valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
        ("PyCapsule_IsValid", api)
    )
    if valid(capsule, _NAME):
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", api)
        )
        _HELD.pop(pointer(capsule, _NAME), None)


_DONE: Final = _Deleter(_done)
_DROPPED: Final = _Destructor(_dropped)


def capsule(
    array: DeviceArray, device: tuple[int, int], stream: int | None = None
) -> object:
    """A capsule over an array's memory, kept alive until its consumer releases it.

    Args:
        device: DLPack device (type, id).
        stream: The consumer's stream, if known.
    """
    dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    tensor = _Tensor(
        data=array.memory,
        device_type=device[0],
        device_id=device[1],
        ndim=array.ndim,
        code=_code(array.dtype),
        bits=8 * array.dtype.itemsize,
        lanes=1,
        shape=dims,
        strides=None,
        byte_offset=0,
    )
    managed = _Managed(tensor, None, _DONE)
    place = ctypes.addressof(managed)
    _HELD[place] = (managed, dims, array, stream)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, _Destructor)
    return make(place, _NAME, _DROPPED)
