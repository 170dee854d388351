"""Arrays that a kernel cannot take where they lie: there and back for a call.

These are arrays in host memory, and arrays on the GPU that begin at an address where it
cannot read and write as many bytes at once as the kernel does: a slice `x[1:]` of
PyTorch's. All copies are in the order of the call's stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tensorlang.runtime import cuda_driver
from tensorlang.runtime.device_arrays import PlacedArray
from tensorlang.runtime.signature import BufferSpec


def moved(arrays: Sequence[PlacedArray], alignments: Sequence[int]) -> list[int]:
    """The positions of the arrays that have to be moved.

    Args:
        arrays: NumPy's, or `DeviceArray`s.
        alignments: Bytes that each address must be a multiple of.
    """
    return [
        position
        for position, (array, size) in enumerate(zip(arrays, alignments, strict=True))
        if isinstance(array, np.ndarray) or (array.nbytes and array.memory % size)
    ]


def bring(spec: BufferSpec, array: PlacedArray, address: int, stream: int) -> None:
    """Copy what the kernel reads of an array to an address on the GPU."""
    if spec.role == "out" or not array.nbytes:
        return
    if isinstance(array, np.ndarray):
        name, source = "cuMemcpyHtoDAsync_v2", array.ctypes.data
    else:
        name, source = "cuMemcpyDtoDAsync_v2", array.memory
    cuda_driver.call(name, address, source, array.nbytes, stream)


def take_back(
    taken: Iterable[tuple[BufferSpec, PlacedArray, int]], stream: int
) -> None:
    """Copy what the kernel wrote to the arrays; wait for what goes to the host.

    What was only read needs no waiting: it was taken before its copy returned.

    Args:
        taken: Each array that was moved, and the address where it is.
        stream: The call's.
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
