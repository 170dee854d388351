"""Copies of arrays that a kernel cannot access in place, to the GPU and back.

These are host arrays, and GPU arrays misaligned for the kernel's vector accesses, such
as a slice `x[1:]` of a PyTorch tensor. All copies are ordered on the call's stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tensorlang.runtime.arrays.device_arrays import PlacedArray
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.signature import BufferSpec


def moved(arrays: Sequence[PlacedArray], alignments: Sequence[int]) -> list[int]:
    """Positions of the arrays that must be copied.

    Args:
        arrays: NumPy arrays or `DeviceArray`s.
        alignments: Required alignment of each address, in bytes.
    """
    return [
        position
        for position, (array, size) in enumerate(zip(arrays, alignments, strict=True))
        if isinstance(array, np.ndarray) or (array.nbytes and array.memory % size)
    ]


def bring(spec: BufferSpec, array: PlacedArray, address: int, stream: int) -> None:
    """Copy an array that the kernel reads to an address on the GPU."""
    if spec.role == "out" or not array.nbytes:
        return
    if isinstance(array, np.ndarray):
        name, source = "cuMemcpyHtoDAsync_v2", array.ctypes.data
    else:
        name, source = "cuMemcpyDtoDAsync_v2", array.memory
    cuda_driver.call(name, address, source, array.nbytes, stream)


def take_back(
    taken: Iterable[tuple[BufferSpec, PlacedArray, int]], stream: int
) -> bool:
    """Copy written arrays back; synchronise if one goes to the host, and return that.

    Read-only host arrays need no synchronisation: pageable copies are staged before
    the copy call returns.

    Args:
        taken: Copied arrays with their addresses on the GPU.
        stream: The call's stream.
    """
    wait = False
    for spec, array, address in taken:
        if not (spec.written and array.nbytes):
            continue
        if isinstance(array, np.ndarray):
            wait = True
            name, target = "cuMemcpyDtoHAsync_v2", array.ctypes.data
        else:
            name, target = "cuMemcpyDtoDAsync_v2", array.memory
        cuda_driver.call(name, target, address, array.nbytes, stream)
    if wait:
        cuda_driver.call("cuStreamSynchronize", stream)
    return wait
