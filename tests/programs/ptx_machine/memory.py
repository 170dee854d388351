"""Memory by bytes, each access checked: it is inside, aligned, and may be read now.

Addresses are arrays of u64, one a thread; what is read or written is an array of words
(unsigned integers of 1, 2, 4 or 8 bytes) of shape [count, threads].
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np

from .faults import Fault
from .types import WORDS

POISON = 0xCB  # what nothing has written yet


def _first(bad: np.ndarray) -> int:
    return int(np.flatnonzero(bad)[0])


def check_alignment(addresses: np.ndarray, size: int, lanes: np.ndarray) -> None:
    """Raise where an address is no multiple of the bytes that an access moves."""
    bad = addresses % np.uint64(size) != 0
    if bad.any():
        at = _first(bad)
        what = f"address {int(addresses[at]):#x} is no multiple of {size}"
        raise Fault(what, int(lanes[at]))


@dataclass
class Region:
    """Bytes from an address on; `dirty` is where this launch has written."""

    start: int
    raw: np.ndarray
    views: dict[int, tuple[int, np.ndarray]] = field(default_factory=dict)
    dirty: np.ndarray | None = None

    def view(self, width: int) -> tuple[int, np.ndarray]:
        """Words of a width, and the address of the first that is aligned."""
        if width not in self.views:
            first = -(-self.start // width) * width
            part = self.raw[first - self.start :]
            words = part[: len(part) // width * width].view(WORDS[8 * width])
            self.views[width] = (first, words)
        return self.views[width]


class GlobalMemory:
    """Registered bytes of this process, at the addresses where kernels find them."""

    def __init__(self) -> None:
        self._regions: list[Region] = []
        self._starts = np.zeros(0, np.uint64)
        self._ends = np.zeros(0, np.uint64)

    def add(self, address: int, raw: np.ndarray) -> None:
        """Let kernels use the bytes `raw`, u8, at an address."""
        self._regions.append(Region(address, raw))
        self._regions.sort(key=lambda region: region.start)
        starts = [region.start for region in self._regions]
        ends = [region.start + len(region.raw) for region in self._regions]
        self._starts = np.array(starts, np.uint64)
        self._ends = np.array(ends, np.uint64)

    def add_array(self, array: np.ndarray) -> int:
        """Let kernels use an array, and tell its address."""
        size = array.nbytes
        held = (ctypes.c_ubyte * size).from_address(array.ctypes.data)
        self.add(array.ctypes.data, np.frombuffer(held, np.uint8))
        return int(array.ctypes.data)

    def forget_writes(self) -> None:
        """A launch begins: nothing of what is here was written by it."""
        for region in self._regions:
            region.dirty = None

    def load(
        self,
        addresses: np.ndarray,
        width: int,
        count: int,
        lanes: np.ndarray,
        *,
        constant: bool = False,
    ) -> np.ndarray:
        """Words from each address on; `constant` ones must not have been written."""
        made = np.empty((count, len(addresses)), WORDS[8 * width])
        for region, which, offsets in self._places(addresses, width * count, lanes):
            first, words = region.view(width)
            at = (offsets - np.uint64(first)) // np.uint64(width)
            for number in range(count):
                made[number, which] = words[at + np.uint64(number)]
            if constant and region.dirty is not None:
                self._check_constant(region, offsets, width * count, lanes[which])
        return made

    def _check_constant(
        self, region: Region, at: np.ndarray, size: int, lanes: np.ndarray
    ) -> None:
        begin = (at - np.uint64(region.start)).astype(np.int64)
        bad = region.dirty[begin[:, None] + np.arange(size)].any(axis=1)
        if bad.any():
            what = f"ld.global.nc of {int(at[_first(bad)]):#x}, which the kernel writes"
            raise Fault(what, int(lanes[_first(bad)]))

    def store(
        self, addresses: np.ndarray, values: np.ndarray, lanes: np.ndarray
    ) -> None:
        """Write words from each address on."""
        count, width = len(values), values.dtype.itemsize
        for region, which, offsets in self._places(addresses, width * count, lanes):
            first, words = region.view(width)
            at = (offsets - np.uint64(first)) // np.uint64(width)
            for number in range(count):
                words[at + np.uint64(number)] = values[number, which]
            self._mark(region, offsets, width * count)

    def _mark(self, region: Region, at: np.ndarray, size: int) -> None:
        if region.dirty is None:
            region.dirty = np.zeros(len(region.raw), bool)
        begin = (at - np.uint64(region.start)).astype(np.int64)
        region.dirty[begin[:, None] + np.arange(size)] = True

    def words(
        self, addresses: np.ndarray, width: int, lanes: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | slice]]:
        """For updates in place: views of words, where in them, of which threads."""
        found = []
        for region, which, offsets in self._places(addresses, width, lanes):
            first, words = region.view(width)
            self._mark(region, offsets, width)
            at = (offsets - np.uint64(first)) // np.uint64(width)
            found.append((words, at, which))
        return found

    def _places(
        self, addresses: np.ndarray, size: int, lanes: np.ndarray
    ) -> list[tuple[Region, np.ndarray | slice, np.ndarray]]:
        check_alignment(addresses, size, lanes)
        number = np.searchsorted(self._starts, addresses, "right") - 1
        ends = self._ends[np.maximum(number, 0)] if len(self._ends) else addresses
        bad = (number < 0) | (addresses + np.uint64(size) > ends)
        if bad.any():
            at = _first(bad)
            what = f"{size} bytes at {int(addresses[at]):#x} are outside of memory"
            raise Fault(what, int(lanes[at]))
        if (number == number[0]).all():
            return [(self._regions[number[0]], slice(None), addresses)]
        return [
            (self._regions[n], number == n, addresses[number == n])
            for n in np.unique(number)
        ]
