"""PyOpenCL arrays, used in their own context and on their own queue."""

from __future__ import annotations

import numpy as np

from tensorlang import lazy
from tensorlang.errors import ArgumentError
from tensorlang.runtime.arrays.device_arrays import DeviceArray, Place, Shape, row_major
from tensorlang.runtime.arrays.host_arrays import Array, Foreign
from tensorlang.runtime.opencl.device import Context, of_caller

with lazy.modules(__name__):  # loaded by the owner of the array
    import pyopencl as cl


class OpenCLPlace(Place):
    """A PyOpenCL context, with the queue and the allocator of an array there."""

    def __init__(
        self, context: Context, queue: cl.CommandQueue, allocator: object
    ) -> None:
        self.context = context
        self.queue = queue
        self.allocator = allocator
        self.name = f"opencl:{context.index}" if context.index else "opencl"
        self.key = ("opencl", context.context.int_ptr, context.handle.int_ptr)

    def empty(
        self,
        shape: Shape,
        dtype: np.dtype,
        kind: str,
        stream: object = None,  # noqa: ARG002 - the queue is the place's own
    ) -> DeviceArray:
        """Uninitialised memory for a PyOpenCL array."""
        del kind
        made = cl.array.empty(self.queue, shape, dtype, allocator=self.allocator)
        return from_pyopencl(made, "a result")

    def part(self, array: DeviceArray, first: int, count: int) -> DeviceArray:
        """A slice of `count` elements of a one-dimensional array, as a view."""
        held = array.owner[1]
        flat = held.reshape(-1)[first : first + count]
        return from_pyopencl(flat, "a part of an array")

    def copy(self, array: DeviceArray) -> DeviceArray:
        """A copy in a new buffer."""
        made = self.empty(array.shape, array.dtype, array.kind)
        if array.nbytes:
            cl.enqueue_copy(self.queue, made.owner[0], array.owner[0])
        return made

    def fetch(self, array: DeviceArray) -> Array:
        """A copy in host memory."""
        found: Array = array.owner[1].get()
        return found

    def hand_over(self, array: DeviceArray) -> Foreign:
        """The PyOpenCL array itself."""
        return array.owner[1]


def from_pyopencl(array: Foreign, name: str) -> DeviceArray:
    """The descriptor of a PyOpenCL array; `owner` is (buffer, array).

    Raises:
        ArgumentError: it has no queue, is not in a buffer, or is misaligned there.
    """
    if array.queue is None:
        raise ArgumentError(
            f"{name} has no command queue to compute on; pass its .with_queue(queue)"
        )
    context = of_caller(array.context, array.queue.device)
    offset, base = int(array.offset), array.base_data
    buffer = base
    _check_memory(array, name, offset)
    dtype, shape = np.dtype(array.dtype), tuple(map(int, array.shape))
    strides = tuple(map(int, array.strides)) if shape else ()
    place = OpenCLPlace(context, array.queue, array.allocator)
    handle = 0
    if array.nbytes:
        buffer = _part(context, base, offset, name) if offset else base
        handle = int(buffer.int_ptr)
    return DeviceArray(
        place,
        handle,
        shape,
        dtype,
        strides or row_major(shape, dtype),
        offset=offset,
        kind="pyopencl",
        owner=(buffer, array),
        allocation=int(base.int_ptr) if array.nbytes else None,
        stream=array.queue,
    )


def _check_memory(array: Foreign, name: str, offset: int) -> None:
    if not array.nbytes:
        return
    base = array.base_data
    if not hasattr(base, "int_ptr"):
        raise ArgumentError(
            f"{name} is in shared virtual memory, but kernels take buffers; allocate "
            "it with an allocator of buffers"
        )
    room = getattr(base, "size", None)
    if room is not None and array.flags.forc and offset + array.nbytes > room:
        raise ArgumentError(
            f"{name} ends {offset + array.nbytes} bytes into a buffer of {room}"
        )


def _part(context: Context, base: cl.Buffer, offset: int, name: str) -> cl.Buffer:
    """The sub-buffer from an offset on."""
    align = context.handle.mem_base_addr_align // 8
    if offset % align:
        raise ArgumentError(
            f"{name} begins {offset} bytes into its buffer, and sub-buffers must start "
            f"at multiples of {align} there; pass a copy of it"
        )
    try:
        return base[offset:]
    except cl.LogicError as error:
        raise ArgumentError(
            f"{name} begins {offset} bytes into its buffer, and OpenCL creates no "
            f"sub-buffer there ({error}); pass a copy of it"
        ) from error
