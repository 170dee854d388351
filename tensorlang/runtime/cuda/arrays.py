"""GPU arrays of PyTorch, JAX, CuPy, PyCUDA and others, imported without a copy.

They are read by `__cuda_array_interface__` or DLPack; `cuda_results` exports results.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ir.dtypes import bf16
from tensorlang.runtime.arrays import dlpack
from tensorlang.runtime.arrays.device_arrays import (
    DeviceArray,
    Place,
    Shape,
    Stream,
    row_major,
)
from tensorlang.runtime.arrays.host_arrays import Array, Foreign, untracked
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import results as cuda_results
from tensorlang.runtime.cuda.faults import faults_of

if TYPE_CHECKING:
    import torch

_CONTEXT: Final = "import pycuda.autoprimaryctx in place of pycuda.autoinit"


class CudaPlace(Place):
    """A GPU's primary context."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"cuda:{index}" if index else "cuda"
        self.key = ("cuda", index)

    @property
    def device(self) -> cuda_device.Device:
        """The GPU."""
        return cuda_device.device(self.index)

    def empty(
        self, shape: Shape, dtype: np.dtype, kind: str, stream: Stream = None
    ) -> DeviceArray:
        """Uninitialised memory for an array that will be handed to a library."""
        return cuda_results.empty(self, shape, dtype, kind, stream)

    def at(
        self,
        address: int,
        shape: Shape,
        dtype: np.dtype,
        *,
        strides: tuple[int, ...] | None = None,
        **known: Any,
    ) -> DeviceArray:
        """An array at an address; contiguous if no strides (in bytes) are given.

        Raises:
            ArgumentError: the address is null and the array is not empty.
        """
        if not address and 0 not in shape:
            raise ArgumentError(
                f"an array of shape {shape} on {self.name} has no memory: its address "
                "is 0"
            )
        return DeviceArray(
            self,
            address,
            shape,
            dtype,
            row_major(shape, dtype) if strides is None else strides,
            offset=address,
            allocation=self.key,
            **known,
        )

    def part(self, array: DeviceArray, first: int, count: int) -> DeviceArray:
        """A slice of `count` elements of a one-dimensional array, as a view."""
        place = array.memory + first * array.dtype.itemsize
        return replace(array, memory=place, offset=place, shape=(count,))

    def copy(self, array: DeviceArray) -> DeviceArray:
        """A copy in newly allocated memory, ordered on the array's stream."""
        own = cuda_results.allocate(self, array.shape, array.dtype, array.stream)
        made = replace(own, stream=array.stream)
        stream = array.stream or cuda_driver.LEGACY
        with self.device.current():
            cuda_driver.call(
                "cuMemcpyDtoDAsync_v2", made.memory, array.memory, array.nbytes, stream
            )
        return made

    def fetch(self, array: DeviceArray) -> Array:
        """A copy in host memory, ordered on the array's stream."""
        found = np.empty(array.shape, array.dtype)
        stream = array.stream or cuda_driver.LEGACY
        with self.device.current():
            cuda_driver.call(
                "cuMemcpyDtoHAsync_v2",
                found.ctypes.data,
                array.memory,
                array.nbytes,
                stream,
            )
            cuda_driver.call("cuStreamSynchronize", stream)
        faults_of(self.device).look()
        return found

    def hand_over(self, array: DeviceArray) -> Foreign:
        """A fresh array as an array of its library."""
        return cuda_results.handed_over(array)


@cache
def place_of(index: int) -> CudaPlace:
    """The place of a GPU."""
    return CudaPlace(index)


def array_at(
    index: int, address: int, shape: Shape, dtype: np.dtype, **known: Any
) -> DeviceArray:
    """An array at an address on a GPU; see `CudaPlace.at`."""
    return place_of(index).at(address, shape, dtype, **known)


def from_torch(tensor: torch.Tensor, name: str) -> DeviceArray:
    """A PyTorch tensor, on its device's current stream.

    Raises:
        ArgumentError: it requires a gradient, or is not a plain strided view.
        DTypeError: NumPy has no such dtype.
    """
    tensor = untracked(tensor, name)
    if tensor.is_neg() or tensor.layout is not sys.modules["torch"].strided:
        raise ArgumentError(
            f"{name} is {tensor.layout}, or a view that negates its memory; pass its "
            ".to_dense() or .resolve_neg()"
        )
    dtype = _of_torch(tensor.dtype)
    if dtype is None:
        title = str(tensor.dtype).partition(".")[2]
        raise DTypeError(f"{name} has dtype {title}, which kernels do not support")
    index = tensor.device.index or 0
    return array_at(
        index,
        tensor.data_ptr(),
        tuple(tensor.shape),
        dtype,
        strides=tuple([stride * dtype.itemsize for stride in tensor.stride()]),
        kind="torch",
        owner=tensor,
        stream=cuda_results.stream_of(index),
    )


@cache
def _of_torch(dtype: torch.dtype) -> np.dtype | None:
    """NumPy's equivalent of a PyTorch dtype; None if there is none."""
    name = str(dtype).partition(".")[2]
    if name == "bfloat16":
        return bf16.numpy
    try:
        return np.dtype(name)
    except TypeError:
        return None


def from_interface(value: Foreign, name: str) -> DeviceArray:
    """An array with `__cuda_array_interface__`, version 2 or 3.

    Raises:
        ArgumentError: it has a mask, or belongs to another context of the GPU.
    """
    interface = value.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise ArgumentError(f"{name} has a mask, which would be lost; pass its data")
    address, read_only = interface["data"]
    kind = type(value).__module__.partition(".")[0]
    index = _index_of(value, kind)
    if address and cuda_device.device(index).owner_of(address) not in (
        0,
        cuda_device.device(index).context,
    ):
        raise ArgumentError(f"{name} is in another CUDA context; {_CONTEXT}")
    strides, shape = interface.get("strides"), tuple(map(int, interface["shape"]))
    if strides is not None and len(strides) != len(shape):
        raise ArgumentError(f"{name} has shape {shape} and strides {tuple(strides)}")
    return array_at(
        index,
        address or 0,
        shape,
        _dtype_of(value, interface["typestr"]),
        strides=None if strides is None else tuple(map(int, strides)),
        writeable=not read_only,
        kind=kind,
        owner=value,
        stream=interface.get("stream"),
    )


def _dtype_of(value: object, typestr: str) -> np.dtype:
    """The dtype of a typestr; bfloat16 has none and is read from the array."""
    own = getattr(value, "dtype", None)
    if typestr[1] == "V" and own is not None and str(own) == "bfloat16":
        return bf16.numpy
    return np.dtype(typestr)


def _index_of(value: Foreign, kind: str) -> int:
    """Index of the GPU that an array is on."""
    if kind == "cupy":
        return int(value.device.id)
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[1])
    return 0


def from_dlpack(value: Foreign, name: str) -> DeviceArray:
    """A DLPack array; its library makes our default stream wait for it.

    Raises:
        ArgumentError: it is not on a GPU.
    """
    kind = type(value).__module__.partition(".")[0]
    found = dlpack.read(value.__dlpack__(stream=1), name)
    if found.device[0] != dlpack.CUDA:
        raise ArgumentError(f"{name} is on a device that this target cannot reach")
    return array_at(
        found.device[1],
        found.address,
        found.shape,
        found.dtype,
        strides=found.strides,
        writeable=not kind.startswith("jax"),
        kind="jax" if kind.startswith("jax") else kind,
        owner=(value, found),
        stream=cuda_driver.LEGACY,
    )
