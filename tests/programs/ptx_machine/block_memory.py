"""Memory of a block or of a thread, and what of it is not visible yet.

Between the variables of a block lie bytes that nothing may touch. What a thread writes
to shared memory, others may read after a barrier only; what an asynchronous copy
writes, nobody before the wait for it, and others than its thread after a barrier, too.
"""

from __future__ import annotations

import numpy as np

from .faults import Fault
from .memory import POISON, check_alignment
from .types import WORDS

_GAP = 128  # bytes between variables
_BASE = 1024  # where the first one begins: an address near 0 is a mistake


class OwnedMemory:
    """As many equal pieces of memory as there are owners: blocks, or threads.

    Args:
        sizes: Name, bytes and alignment of each variable.
        owner: The piece of each thread.
    """

    def __init__(
        self, sizes: list[tuple[str, int, int]], pieces: int, owner: np.ndarray
    ) -> None:
        self.places: dict[str, int] = {}
        self.owner = owner
        spans, end = [], _BASE
        for name, size, align in sizes:
            step = max(align, 16)
            start = -(-end // step) * step
            self.places[name] = start
            spans.append((start, start + size))
            end = start + size + _GAP
        self.size = -(-end // 1024) * 1024
        self.valid = np.zeros(self.size, bool)
        for start, stop in spans:
            self.valid[start:stop] = True
        count = pieces if spans else 0
        self.raw = np.full(count * self.size, POISON, np.uint8)

    def at(self, addresses: np.ndarray, size: int, lanes: np.ndarray) -> np.ndarray:
        """Where accesses of so many bytes lie in `raw`."""
        check_alignment(addresses, size, lanes)
        inside = addresses < np.uint64(self.size - size)
        low = np.where(inside, addresses, 0).astype(np.int64)
        bad = ~(inside & self.valid[low] & self.valid[low + size - 1])
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            what = f"{size} bytes at {int(addresses[at]):#x} are in no variable"
            raise Fault(what, int(lanes[at]))
        return self.owner[lanes] * self.size + low

    def load(
        self,
        addresses: np.ndarray,
        width: int,
        count: int,
        lanes: np.ndarray,
        *,
        proxy: bool = False,
    ) -> np.ndarray:
        """Words from each address on, of shape [count, threads].

        With `proxy`, they are read asynchronously on behalf of these threads.
        """
        at = self.at(addresses, width * count, lanes)
        self.reading(at, width * count, lanes, proxy=proxy)
        words = self.raw.view(WORDS[8 * width])
        return words[at // width + np.arange(count)[:, None]]

    def store(
        self, addresses: np.ndarray, values: np.ndarray, lanes: np.ndarray
    ) -> None:
        """Write words from each address on."""
        count, width = len(values), values.dtype.itemsize
        at = self.at(addresses, width * count, lanes)
        words = self.raw.view(WORDS[8 * width])
        words[at // width + np.arange(count)[:, None]] = values
        self.wrote(at, width * count, lanes)

    def words(
        self, addresses: np.ndarray, width: int, lanes: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray, slice]]:
        """For updates in place: a view of words, where in them, of which threads."""
        at = self.at(addresses, width, lanes)
        return [(self.raw.view(WORDS[8 * width]), at // width, slice(None))]

    def reading(
        self, at: np.ndarray, size: int, lanes: np.ndarray, *, proxy: bool
    ) -> None:
        """Only what is visible may be read: of a thread's own memory, everything."""

    def wrote(self, at: np.ndarray, size: int, lanes: np.ndarray) -> None:
        """Note who wrote."""


class SharedMemory(OwnedMemory):
    """Memory of blocks, with what threads did to it since their last barrier.

    `unit` bytes, the smallest access of the kernel, are told of together. `state`: 0 is
    visible to all; t + 1: an asynchronous copy of thread t is on its way there;
    -(t + 1): thread t has written it. `readers`: 0 is none, t + 1 is thread t, and -1
    are several. `unfenced`: by whether it was a write, the last thread t + 1 whose
    access no `fence.proxy.async` followed.
    """

    def __init__(
        self,
        sizes: list[tuple[str, int, int]],
        pieces: int,
        owner: np.ndarray,
        unit: int,
    ) -> None:
        super().__init__(sizes, pieces, owner)
        self.unit = unit
        self.state = np.zeros(len(self.raw) // unit, np.int32)
        self.readers = np.zeros_like(self.state)
        self.unfenced = np.zeros((2, *self.state.shape), np.int32)

    def units(self, at: np.ndarray, size: int) -> np.ndarray:
        """The units of accesses of so many bytes, [accesses, units]."""
        return at[:, None] // self.unit + np.arange(size // self.unit)

    def _refuse(
        self, bad: np.ndarray, why: str, at: np.ndarray, lanes: np.ndarray
    ) -> None:
        bad = bad.any(axis=1)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            what = f"{why}, at {int(at[first] % self.size):#x} of shared memory"
            raise Fault(what, int(lanes[first]))

    def reading(
        self, at: np.ndarray, size: int, lanes: np.ndarray, *, proxy: bool
    ) -> None:
        where = self.units(at, size)
        self._check_visible(where, at, lanes)
        me = 1 + lanes[:, None].astype(np.int32)
        if not proxy:
            self.unfenced[0][where] = me
        before = self.readers[where]
        self.readers[where] = me
        several = (self.readers[where] != me) | ((before != 0) & (before != me))
        self.readers[where[several]] = -1

    def _check_visible(
        self, where: np.ndarray, at: np.ndarray, lanes: np.ndarray
    ) -> None:
        state = self.state[where]
        if state.any():
            why = "it reads what an asynchronous copy writes that it has not waited for"
            self._refuse(state > 0, why, at, lanes)
            foreign = (state < 0) & (state != -1 - lanes[:, None])
            why = "it reads what another thread wrote since the last barrier"
            self._refuse(foreign, why, at, lanes)

    def wrote(self, at: np.ndarray, size: int, lanes: np.ndarray) -> None:
        self._note(at, size, lanes, -1)
        self.unfenced[1][self.units(at, size)] = 1 + lanes[:, None].astype(np.int32)

    def wrote_unit(self, at: int, lane: int) -> None:
        """A thread makes an object."""
        self.state[at // self.unit] = -1 - lane

    def check_unit(self, at: int, lane: int) -> None:
        """An object of another thread is used after a barrier."""
        where = np.array([[at // self.unit]])
        self._check_visible(where, where[0] * self.unit, np.array([lane]))

    def forget_readers(self, at: np.ndarray, size: int) -> None:
        """What was read there is ordered before what is to come."""
        self.readers[self.units(at, size)] = 0

    def fence_proxies(self, lanes: np.ndarray) -> None:
        """The asynchronous proxy sees what these threads did before."""
        self.unfenced[np.isin(self.unfenced, 1 + lanes)] = 0

    def check_proxies(
        self, at: np.ndarray, size: int, lanes: np.ndarray, *, writes: bool
    ) -> None:
        """An access of the asynchronous proxy comes after a fence of earlier ones."""
        where = self.units(at, size)
        why = "the asynchronous proxy may not see what a thread wrote there unfenced"
        self._refuse(self.unfenced[1][where] != 0, why, at, lanes)
        if writes:
            why = "the asynchronous proxy writes what a thread read there unfenced"
            self._refuse(self.unfenced[0][where] != 0, why, at, lanes)

    def promise(self, at: np.ndarray, size: int, lanes: np.ndarray) -> None:
        """Asynchronous copies to these places begin: what was there is lost."""
        self.raw[at[:, None] + np.arange(size)] = POISON
        self._note(at, size, lanes, 1)

    def _note(self, at: np.ndarray, size: int, lanes: np.ndarray, sign: int) -> None:
        where = self.units(at, size)
        me = 1 + lanes[:, None].astype(np.int32)
        before = self.readers[where]
        why = "it writes what another thread read since the last barrier"
        self._refuse((before != 0) & (before != me), why, at, lanes)
        self.state[where] = sign * me

    def landed(self, at: np.ndarray, size: int, lanes: np.ndarray) -> None:
        """Asynchronous copies are waited for: their own threads see what they wrote."""
        self.state[self.units(at, size)] = -1 - lanes[:, None].astype(np.int32)

    def barrier(self, blocks: np.ndarray | slice) -> None:
        """All that threads of these blocks wrote is visible in them."""
        if len(self.raw):
            state = self.state.reshape(-1, self.size // self.unit)
            state[blocks] = np.maximum(state[blocks], 0)
            self.readers.reshape(state.shape)[blocks] = 0

    def barrier_of(self, lanes: np.ndarray) -> None:
        """All that these threads wrote and read is over; they are whole warps."""
        self.state[np.isin(self.state, -1 - lanes)] = 0
        self.readers[np.isin(self.readers, 1 + lanes)] = 0
