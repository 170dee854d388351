"""Arrays on GPUs, of PyTorch, JAX, CuPy, PyCUDA, and whoever speaks their protocols.

They come in by `__cuda_array_interface__` or DLPack, and results go out in the kind of
the first argument, all without a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ir.dtypes import bf16
from tensorlang.runtime import cuda_device, cuda_driver, dlpack
from tensorlang.runtime.arrays import Array
from tensorlang.runtime.device_arrays import DeviceArray, Place, Shape, row_major

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

    def empty(self, shape: Shape, dtype: np.dtype[Any], kind: str) -> DeviceArray:
        """Unwritten memory for an array that is handed over to a library."""
        return _EMPTY.get(kind, _own)(self, shape, dtype)

    def part(self, array: DeviceArray, first: int, count: int) -> DeviceArray:
        """Some elements of an array of one dimension, where they lie."""
        place = array.memory + first * array.dtype.itemsize
        return replace(array, memory=place, offset=place, shape=(count,))

    def copy(self, array: DeviceArray) -> DeviceArray:
        """The elements in memory of their own, in the order of the array's stream."""
        made = replace(_own(self, array.shape, array.dtype), stream=array.stream)
        stream = array.stream or cuda_driver.LEGACY
        with self.device.current():
            cuda_driver.call(
                "cuMemcpyDtoDAsync_v2", made.memory, array.memory, array.nbytes, stream
            )
        return made

    def fetch(self, array: DeviceArray) -> Array:
        """The elements in host memory, in the order of the array's stream."""
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
        return found

    def hand_over(self, array: DeviceArray) -> Any:
        """A fresh array in its library's kind."""
        return _HAND_OVER.get(array.kind, _owner)(array)


@cache
def place_of(index: int) -> CudaPlace:
    """The place of a GPU."""
    return CudaPlace(index)


def array_at(
    index: int,
    address: int,
    shape: Shape,
    dtype: np.dtype[Any],
    *,
    strides: tuple[int, ...] | None = None,
    **known: Any,
) -> DeviceArray:
    """An array at an address of a GPU; without strides its elements lie in a row."""
    return DeviceArray(
        place_of(index),
        address,
        shape,
        dtype,
        row_major(shape, dtype) if strides is None else strides,
        offset=address,
        allocation=("cuda", index),
        **known,
    )


# ------------------------------------------------------------------- coming in


def from_torch(tensor: Any, name: str) -> DeviceArray:
    """A tensor of PyTorch, on its current stream.

    Raises:
        ArgumentError: it takes part in a gradient.
        DTypeError: NumPy has no such type.
    """
    if tensor.requires_grad:
        raise ArgumentError(
            f"{name} requires a gradient, which would be lost; pass {name}.detach()"
        )
    dtype = _numpy_type(str(tensor.dtype).partition(".")[2], name)
    return array_at(
        tensor.device.index or 0,
        tensor.data_ptr(),
        tuple(tensor.shape),
        dtype,
        strides=tuple(stride * dtype.itemsize for stride in tensor.stride()),
        kind="torch",
        owner=tensor,
        stream=current_stream(tensor),
    )


def current_stream(tensor: Any) -> int:
    """PyTorch's current stream on the GPU of a tensor."""
    found: int = sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream
    return found


def _numpy_type(name: str, array: str) -> np.dtype[Any]:
    if name == "bfloat16":
        return bf16.numpy
    try:
        return np.dtype(name)
    except TypeError:
        raise DTypeError(
            f"{array} has dtype {name}, which kernels do not have"
        ) from None


def from_interface(value: Any, name: str) -> DeviceArray:
    """An array that speaks `__cuda_array_interface__`, of version 2 or 3.

    Raises:
        ArgumentError: it has a mask, or lies in another context of the GPU.
    """
    told = value.__cuda_array_interface__
    if told.get("mask") is not None:
        raise ArgumentError(f"{name} has a mask, which would be lost; pass its data")
    address, read_only = told["data"]
    kind = type(value).__module__.partition(".")[0]
    index = _index_of(value, kind)
    if address and cuda_device.device(index).owner_of(address) not in (
        0,
        cuda_device.device(index).context,
    ):
        raise ArgumentError(f"{name} lies in a CUDA context of its own; {_CONTEXT}")
    strides = told.get("strides")
    return array_at(
        index,
        address or 0,
        tuple(map(int, told["shape"])),
        _told_type(value, told["typestr"]),
        strides=None if strides is None else tuple(map(int, strides)),
        writeable=not read_only,
        kind=kind,
        owner=value,
        stream=told.get("stream"),
    )


def _told_type(value: Any, typestr: str) -> np.dtype[Any]:
    """The element type: the array's own where the protocol has no name for it."""
    own = getattr(value, "dtype", None)
    if typestr[1] == "V" and own is not None and str(own) == "bfloat16":
        return bf16.numpy
    return np.dtype(typestr)


def _index_of(value: Any, kind: str) -> int:
    """Which GPU an array is on."""
    if kind == "cupy":
        return int(value.device.id)
    if hasattr(value, "__dlpack_device__"):
        return int(value.__dlpack_device__()[1])
    return 0


def from_dlpack(value: Any, name: str) -> DeviceArray:
    """An array that speaks DLPack; its library has our default stream wait for it.

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


# ------------------------------------------------------------------- going out


def _own(place: CudaPlace, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
    """Memory of our own, for libraries that take it over by a protocol."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = cuda_device.Memory(place.device, size)
    return array_at(place.index, memory.address, shape, dtype, owner=memory)


def _of_jax(place: CudaPlace, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
    return replace(_own(place, shape, dtype), kind="jax")


def _of_pycuda(place: CudaPlace, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
    return replace(_own(place, shape, dtype), kind="pycuda")


def _of_torch(place: CudaPlace, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
    torch = sys.modules["torch"]
    kind = getattr(torch, "bfloat16" if dtype == bf16.numpy else dtype.name)
    made = torch.empty(shape, dtype=kind, device=f"cuda:{place.index}")
    return from_torch(made, "a result")


def _of_cupy(place: CudaPlace, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(place.index):
        return from_interface(cupy.empty(shape, dtype), "a result")


def _owner(array: DeviceArray) -> Any:
    """The array that its library made, or one that speaks both protocols."""
    if isinstance(array.owner, cuda_device.Memory):
        return dlpack.Exported(array)
    return array.owner


def _to_jax(array: DeviceArray) -> Any:
    return sys.modules["jax"].dlpack.from_dlpack(dlpack.Exported(array))


def _to_pycuda(array: DeviceArray) -> Any:
    kind = sys.modules["pycuda.gpuarray"].GPUArray
    with cuda_device.device(array.place.key[1]).current():  # it asks for the device
        return kind(array.shape, array.dtype, base=array.owner, gpudata=array.memory)


_EMPTY: Final[dict[str, Callable[[CudaPlace, Shape, np.dtype[Any]], DeviceArray]]] = {
    "torch": _of_torch,
    "jax": _of_jax,
    "cupy": _of_cupy,
    "pycuda": _of_pycuda,
}
_HAND_OVER: Final[dict[str, Callable[[DeviceArray], Any]]] = {
    "jax": _to_jax,
    "pycuda": _to_pycuda,
}
