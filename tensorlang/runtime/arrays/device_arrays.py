"""Arrays on a device, of any library, as calls check and launch them.

`DeviceArray` is an internal descriptor of a caller's array during a call; results are
returned as arrays of the caller's library.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.once import cached_property
from tensorlang.runtime.arrays.host_arrays import Array, Foreign

Shape: TypeAlias = tuple[int, ...]
Stream: TypeAlias = Any  # a library's stream or queue: a handle of its own type
PlacedArray: TypeAlias = "Array | DeviceArray"  # in host memory, or on a device


class Place(ABC):
    """Where arrays are: a device, or a context on it."""

    name: str  # name of the target that computes there, such as `cuda:1`
    # equal for places that can access each other's arrays directly
    key: tuple[Any, ...]

    @abstractmethod
    def empty(
        self, shape: Shape, dtype: np.dtype, kind: str, stream: Stream = None
    ) -> DeviceArray:
        """Uninitialised memory for an array that will be handed to a library.

        It is allocated, used and freed in stream order.

        Raises:
            DeviceMemoryError: out of device memory.
        """

    @abstractmethod
    def part(self, array: DeviceArray, first: int, count: int) -> DeviceArray:
        """A slice of `count` elements of a one-dimensional array, as a view."""

    @abstractmethod
    def copy(self, array: DeviceArray) -> DeviceArray:
        """A copy in newly allocated memory on the same device."""

    @abstractmethod
    def fetch(self, array: DeviceArray) -> Array:
        """A copy of a contiguous array in host memory."""

    @abstractmethod
    def hand_over(self, array: DeviceArray) -> Foreign:
        """A fresh array as an array of its library."""


@dataclass(frozen=True)
class DeviceArray:
    """An array on a device.

    Attributes:
        place: Its place.
        memory: What launches take: an address, or a buffer handle.
        shape, dtype: As in NumPy.
        strides: In bytes, as in NumPy.
        offset: Start within its allocation, in bytes.
        writeable: Whether a kernel may write it.
        kind: Its library: `torch`, `jax`, `cupy`, `pycuda`, `pyopencl`, ...
        owner: The object that keeps the memory alive.
        allocation: Equal for arrays that may share memory.
        stream: Its library's current stream or queue.
    """

    place: Place
    memory: int
    shape: Shape
    dtype: np.dtype
    strides: tuple[int, ...]
    offset: int = 0
    writeable: bool = True
    kind: str = ""
    owner: Foreign = None
    allocation: object = None
    stream: Stream = None

    @property
    def flags(self) -> DeviceArray:
        """Itself: it has the attributes of NumPy's flags."""
        return self

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.dtype.itemsize

    @cached_property
    def c_contiguous(self) -> bool:
        """Whether it is C-contiguous."""
        expected = self.dtype.itemsize
        for size, stride in zip(self.shape[::-1], self.strides[::-1], strict=True):
            if size > 1 and stride != expected:
                return not self.size
            expected *= size
        return True

    @property
    def aligned(self) -> bool:
        """Whether its start is a multiple of the element size."""
        return self.offset % self.dtype.itemsize == 0

    @property
    def carray(self) -> bool:
        """Whether a kernel can write it in place."""
        return self.c_contiguous and self.aligned and self.writeable

    @property
    def extent(self) -> tuple[object, int, int]:
        """Its allocation, and the byte range that it spans there."""
        return self.allocation, self.offset, self.offset + self.nbytes

    def reshape(self, *shape: Any) -> DeviceArray:
        """A reshaped view; ArgumentError if the array is not contiguous."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if -1 in wanted:
            rest = -math.prod(wanted)
            wanted = tuple(self.size // rest if n == -1 else n for n in wanted)
        if not self.c_contiguous:
            raise ArgumentError(layout_error("an array", self))
        strides = row_major(wanted, self.dtype)
        return replace(self, shape=tuple(wanted), strides=strides)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> DeviceArray:
        """A slice of a one-dimensional array."""
        first, end, _ = part.indices(len(self))
        if (first, end) == (0, len(self)):
            return self
        return self.place.part(self, first, end - first)

    def copy(self) -> DeviceArray:
        """A copy in newly allocated memory on the same device."""
        return self.place.copy(self)


def row_major(shape: Iterable[int], dtype: np.dtype) -> tuple[int, ...]:
    """C-contiguous strides, in bytes."""
    strides, step = [], dtype.itemsize
    for size in reversed(tuple(shape)):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def layout_error(name: str, array: DeviceArray) -> str:
    """Error sentence for an array that is not contiguous or not aligned."""
    if array.c_contiguous:
        return (
            f"{name} on {array.place.name} begins at byte {array.offset}, which "
            f"is no multiple of {array.dtype.itemsize} bytes; pass a copy of it"
        )
    return (
        f"{name} of shape {array.shape} on {array.place.name} is not contiguous; pass "
        "a contiguous copy of it"
    )


def on_host(array: PlacedArray) -> Array:
    """The array in host memory, copied there if it is on a device."""
    return array.place.fetch(array) if isinstance(array, DeviceArray) else array


def empty_like(like: DeviceArray, shape: Shape, dtype: np.dtype) -> DeviceArray:
    """Uninitialised memory for the same library and place as `like`."""
    made = like.place.empty(shape, dtype, like.kind, like.stream)
    return replace(made, stream=like.stream)


def extent_of(array: PlacedArray) -> tuple[object, int, int]:
    """An array's allocation, and the byte range that it spans there."""
    if isinstance(array, DeviceArray):
        return array.extent
    begin = array.ctypes.data
    return None, begin, begin + array.nbytes
