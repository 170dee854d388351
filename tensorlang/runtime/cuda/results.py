"""Results on GPUs: allocated by, and returned to, the first argument's library.

Libraries that cannot be asked for memory import ours by DLPack or
`__cuda_array_interface__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.ir.dtypes import bf16
from tensorlang.runtime.arrays import dlpack
from tensorlang.runtime.arrays.device_arrays import DeviceArray, Shape, Stream
from tensorlang.runtime.arrays.host_arrays import Foreign
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.runtime.cuda import driver as cuda_driver

if TYPE_CHECKING:
    import jax
    import torch

    from tensorlang.runtime.cuda.arrays import CudaPlace


def empty(
    place: CudaPlace, shape: Shape, dtype: np.dtype, kind: str, stream: Stream = None
) -> DeviceArray:
    """Memory for a library's array, in stream order; DeviceMemoryError if it is out."""
    made = _EMPTY.get(kind)
    if made is not None:
        return made(place, shape, dtype)
    return allocate(place, shape, dtype, stream)


def handed_over(array: DeviceArray) -> Foreign:
    """A fresh array as an array of its library."""
    return _HAND_OVER.get(array.kind, _owner)(array)


def current_stream(tensor: torch.Tensor) -> int:
    """PyTorch's current stream on a tensor's GPU."""
    return stream_of(tensor.device.index or 0)


def stream_of(index: int) -> int:
    """PyTorch's current stream on a GPU; by the fast private call if there is one."""
    torch = sys.modules["torch"]
    try:
        found: int = torch._C._cuda_getCurrentRawStream(index)  # noqa: SLF001 - fast
    except AttributeError:
        found = torch.cuda.current_stream(index).cuda_stream
    return found


def allocate(
    place: CudaPlace, shape: Shape, dtype: np.dtype, stream: Stream = None
) -> DeviceArray:
    """Memory of our own, for libraries that import it.

    It is allocated and freed in stream order; None is the default stream.

    Raises:
        DeviceMemoryError: out of device memory.
    """
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = cuda_device.Memory(place.device, size, stream or cuda_driver.LEGACY)
    return place.at(memory.address, shape, dtype, owner=memory)


def _of_jax(place: CudaPlace, shape: Shape, dtype: np.dtype) -> DeviceArray:
    return replace(allocate(place, shape, dtype), kind="jax")


def _of_pycuda(place: CudaPlace, shape: Shape, dtype: np.dtype) -> DeviceArray:
    return replace(allocate(place, shape, dtype), kind="pycuda")


def _of_torch(place: CudaPlace, shape: Shape, dtype: np.dtype) -> DeviceArray:
    torch = sys.modules["torch"]
    kind = getattr(torch, "bfloat16" if dtype == bf16.numpy else dtype.name)
    made = torch.empty(shape, dtype=kind, device=f"cuda:{place.index}")
    stream = current_stream(made)
    known = {"kind": "torch", "owner": made, "stream": stream}
    return place.at(made.data_ptr(), shape, dtype, **known)


def _of_cupy(place: CudaPlace, shape: Shape, dtype: np.dtype) -> DeviceArray:
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(place.index):
        made = cupy.empty(shape, dtype)
    interface = made.__cuda_array_interface__
    known = {"kind": "cupy", "owner": made, "stream": interface.get("stream")}
    return place.at(interface["data"][0] or 0, shape, dtype, **known)


def _owner(array: DeviceArray) -> Foreign:
    """The array its library allocated, or an exporter of ours."""
    if isinstance(array.owner, cuda_device.Memory):
        return dlpack.Exported(array)
    return array.owner


def _to_jax(array: DeviceArray) -> jax.Array:
    return sys.modules["jax"].dlpack.from_dlpack(dlpack.Exported(array))


def _to_pycuda(array: DeviceArray) -> Foreign:
    kind = sys.modules["pycuda.gpuarray"].GPUArray
    with cuda_device.device(array.place.key[1]).current():  # it queries the device
        return kind(array.shape, array.dtype, base=array.owner, gpudata=array.memory)


_EMPTY: Final[dict[str, Callable[[CudaPlace, Shape, np.dtype], DeviceArray]]] = {
    "torch": _of_torch,
    "jax": _of_jax,
    "cupy": _of_cupy,
    "pycuda": _of_pycuda,
}
_HAND_OVER: Final[dict[str, Callable[[DeviceArray], Foreign]]] = {
    "jax": _to_jax,
    "pycuda": _to_pycuda,
}
