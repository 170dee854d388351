"""Arrays on a device, whoever made them, as calls check and launch them.

No array type of our own: a `DeviceArray` is what is known of a caller's array while a
call is being made. What a call returns is the caller's kind again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.runtime.arrays import Array, Foreign

Shape: TypeAlias = tuple[int, ...]
Stream: TypeAlias = Any  # where a library computes: a handle of its own sort
PlacedArray: TypeAlias = "Array | DeviceArray"  # in host memory, or on a device


class Place(ABC):
    """Where arrays lie: a device, or a context of it.

    Attributes:
        name: Of the target that computes there, such as `cuda:1`.
        key: The same for places between which no array has to be moved.
    """

    name: str
    key: tuple[Any, ...]

    @abstractmethod
    def empty(
        self, shape: Shape, dtype: np.dtype, kind: str, stream: Stream = None
    ) -> DeviceArray:
        """Unwritten memory for an array that is handed over to a library.

        It is had, used and given back in the order of a stream.

        Raises:
            DeviceMemoryError: there is no memory for it.
        """

    @abstractmethod
    def part(self, array: DeviceArray, first: int, count: int) -> DeviceArray:
        """Some elements of an array of one dimension, where they lie."""

    @abstractmethod
    def copy(self, array: DeviceArray) -> DeviceArray:
        """The elements in memory of their own."""

    @abstractmethod
    def fetch(self, array: DeviceArray) -> Array:
        """The elements of a contiguous array in host memory."""

    @abstractmethod
    def hand_over(self, array: DeviceArray) -> Foreign:
        """A fresh array in its library's kind."""


@dataclass(frozen=True)
class DeviceArray:
    """An array on a device.

    Attributes:
        place: Where.
        memory: What launches are given: an address, or a buffer's handle.
        shape, dtype: As NumPy's.
        strides: Bytes from element to element along each dimension.
        offset: Where it begins in its allocation, in bytes.
        writeable: Whether a kernel may write it.
        kind: Whose array it is: `torch`, `jax`, `cupy`, `pycuda`, `pyopencl`, ...
        owner: What keeps the memory alive.
        allocation: The same for arrays that may share memory.
        stream: Where its library computes: a handle of its own sort.
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
        """Itself: it has the flags that NumPy's arrays have there."""
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
        """Whether the elements lie in a row, the last dimension's side by side."""
        expected = self.dtype.itemsize
        for size, stride in zip(self.shape[::-1], self.strides[::-1], strict=True):
            if size > 1 and stride != expected:
                return not self.size
            expected *= size
        return True

    @property
    def aligned(self) -> bool:
        """Whether elements lie at multiples of their size."""
        return self.offset % self.dtype.itemsize == 0

    @property
    def carray(self) -> bool:
        """Whether a kernel can write it where it lies."""
        return self.c_contiguous and self.aligned and self.writeable

    @property
    def extent(self) -> tuple[object, int, int]:
        """What its memory is a part of, and where it begins and ends there."""
        return self.allocation, self.offset, self.offset + self.nbytes

    def reshape(self, *shape: Any) -> DeviceArray:
        """The same elements, which lie in a row, in another shape.

        Raises:
            ArgumentError: they do not.
        """
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if -1 in wanted:
            rest = -math.prod(wanted)
            wanted = tuple(self.size // rest if n == -1 else n for n in wanted)
        if not self.c_contiguous:
            raise ArgumentError(not_in_a_row("an array", self))
        strides = row_major(wanted, self.dtype)
        return replace(self, shape=tuple(wanted), strides=strides)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> DeviceArray:
        """A slice of an array of one dimension."""
        first, end, _ = part.indices(len(self))
        if (first, end) == (0, len(self)):
            return self
        return self.place.part(self, first, end - first)

    def copy(self) -> DeviceArray:
        """The elements in memory of their own on the same device."""
        return self.place.copy(self)


def row_major(shape: Iterable[int], dtype: np.dtype) -> tuple[int, ...]:
    """The strides of elements in a row, in bytes."""
    strides, step = [], dtype.itemsize
    for size in reversed(tuple(shape)):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def not_in_a_row(name: str, array: DeviceArray) -> str:
    """What is wrong with an array whose elements do not lie in a row, or between."""
    if array.c_contiguous:
        return (
            f"{name} on {array.place.name} begins at byte {array.offset}, between two "
            f"elements of {array.dtype.itemsize} bytes; pass a copy of it"
        )
    return (
        f"{name} of shape {array.shape} on {array.place.name} is not contiguous; pass "
        "a contiguous copy of it"
    )


def on_host(array: PlacedArray) -> Array:
    """The elements in host memory, fetched from where they are."""
    return array.place.fetch(array) if isinstance(array, DeviceArray) else array


def empty_like(like: DeviceArray, shape: Shape, dtype: np.dtype) -> DeviceArray:
    """Unwritten memory beside an array, for its library."""
    made = like.place.empty(shape, dtype, like.kind, like.stream)
    return replace(made, stream=like.stream)


def extent_of(array: PlacedArray) -> tuple[object, int, int]:
    """What an array's memory is a part of, and where it begins and ends there."""
    if isinstance(array, DeviceArray):
        return array.extent
    begin = array.ctypes.data
    return None, begin, begin + array.nbytes
