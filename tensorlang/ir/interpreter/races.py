"""Races: an element written in one lane and accessed by another without ordering.

Every lane of every frame gets a number. An element remembers its writer, and the lowest
and highest numbers among its readers and among its atomic updaters. When a loop ends,
or its lanes meet at a barrier, its numbers *die*: they then resolve to the lane that
forked them, to which their effects are ordered. So two lanes are concurrent exactly if,
after resolving dead numbers, they differ within one living frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Frame, Lanes
    from tensorlang.ir.interpreter.undo import Undo

_KIND: Final = {  # slot of an element -> the kind of access that it remembers
    "writer": "write",
    "reads_low": "read",
    "reads_high": "read",
    "atomics_low": "atomic",
    "atomics_high": "atomic",
}
_SLOTS: Final = tuple(_KIND)
# kind of access -> the earlier accesses it must be ordered after
_AGAINST: Final = {
    "read": ("writer", "atomics_low", "atomics_high"),
    "write": _SLOTS,
    "atomic": ("writer", "reads_low", "reads_high"),
}
_RANGES: Final = {
    "read": ("reads_low", "reads_high"),
    "atomic": ("atomics_low", "atomics_high"),
}


class Conflict(Exception):  # noqa: N818 - a signal internal to this package
    """Two lanes of `frame` conflict on the element of access number `access`."""

    def __init__(self, frame: Frame, access: int, other: str) -> None:
        super().__init__()
        self.frame = frame
        self.access = access
        self.other = other


class Shadow:
    """The lane numbers that a memory remembers for each element (0: none).

    Attributes:
        highest: For each kind of access, an upper bound of the numbers remembered.
    """

    __slots__ = (*_SLOTS, "highest", "name", "undo")

    def __init__(self, name: str, size: int, undo: Undo) -> None:
        self.name = name
        self.undo = undo
        self.highest = dict.fromkeys(_AGAINST, 0)
        self.writer = np.zeros(size, np.int64)
        self.reads_low = np.zeros(size, np.int64)
        self.reads_high = np.zeros(size, np.int64)
        self.atomics_low = np.zeros(size, np.int64)
        self.atomics_high = np.zeros(size, np.int64)


class Races:
    """The numbers of lanes, which of them are dead, and what those resolve to."""

    __slots__ = ("_alive", "_bases", "_elder", "_epochs", "_floor", "_next", "clocked")

    def __init__(self) -> None:
        self.clocked = False  # warps are ordered by clocks, see `clocks`
        self._next = 1
        self._floor = 1  # numbers below belong to loops that ended at the root
        self._bases = np.zeros(64, np.int64)  # first number of each epoch
        self._alive = np.zeros(64, np.bool_)
        self._alive[0] = True
        self._epochs = 1
        self._elder = np.zeros(1024, np.int64)  # number of the forking lane

    def enter(self, frame: Frame) -> None:
        """Number the lanes of a frame, or renumber them after a barrier."""
        assert frame.parent is not None
        if self._epochs == self._bases.size:
            self._bases = np.concatenate([self._bases, self._bases])
            self._alive = np.concatenate([self._alive, np.zeros_like(self._alive)])
        end = self._next - self._floor + frame.count
        while end > self._elder.size:
            self._elder = np.concatenate([self._elder, np.zeros_like(self._elder)])
        frame.base = self._next
        self._elder[end - frame.count : end] = frame.parent.base + frame.parent_flat
        self._bases[self._epochs] = frame.base
        self._alive[self._epochs] = True
        self._epochs += 1
        self._next += frame.count

    def leave(self, frame: Frame, *, joins: bool = True) -> None:
        """Kill the numbers of `frame`: its lanes are joined, or get new ones."""
        if frame.base >= self._floor:
            self._alive[self._epoch(frame.base)] = False
        if joins and frame.parent is not None and frame.parent.parent is None:
            self._floor = self._next
            self._epochs = 1

    def _epoch(self, base: int) -> int:
        return int(self._bases[: self._epochs].searchsorted(base, side="right")) - 1

    def _resolve(self, numbers: Array) -> Array:
        """The living lane that each number resolves to."""
        numbers = np.where(numbers < self._floor, 0, numbers)
        bases = self._bases[: self._epochs]
        while True:
            epoch = np.searchsorted(bases, numbers, side="right") - 1
            dead = np.flatnonzero(~self._alive[epoch])
            if not dead.size:
                return numbers
            elder = self._elder[numbers[dead] - self._floor]
            numbers[dead] = np.where(elder < self._floor, 0, elder)

    def touch(
        self, kind: str, shadow: Shadow, at: Array, who: Array, lanes: Lanes
    ) -> None:
        """Check and record accesses of the elements `at` by the lanes `who`.

        Raises:
            Conflict: an access is not ordered after an earlier one.
        """
        for slot in _AGAINST[kind]:
            self._check(shadow, slot, at, who, lanes)
        own = (lanes.frame.base + lanes.flat)[who]
        first = shadow.highest[kind] < self._floor
        shadow.highest[kind] = self._next - 1
        if kind == "write":
            shadow.undo.put(shadow.writer, at, own)
            self._check(shadow, "writer", at, who, lanes)
            return
        low, high = (getattr(shadow, name) for name in _RANGES[kind])
        for array in (low, high):
            shadow.undo.save(array)
        if first:  # nothing that is remembered matters any more
            low[at] = high[at] = own
            _extend(low, high, at, own)
        else:
            self._merge(low, high, at, who, lanes)

    def _check(
        self, shadow: Shadow, slot: str, at: Array, who: Array, lanes: Lanes
    ) -> None:
        if shadow.highest[_KIND[slot]] < self._floor:
            return  # all of them were ordered before these lanes
        earlier: Array = getattr(shadow, slot)[at]
        own = (lanes.frame.base + lanes.flat)[who]
        suspects = np.flatnonzero((earlier >= self._floor) & (earlier != own))
        if not suspects.size:
            return
        numbers = self._resolve(earlier[suspects])
        level = np.full(suspects.size, -1)
        path = lanes.path()
        for depth, (frame, flat) in enumerate(path):  # the outermost wins
            if frame.parent is None:
                continue
            mine = frame.base + flat[who[suspects]]
            inside = (numbers >= frame.base) & (numbers < frame.base + frame.count)
            by_clocks = self.clocked and frame.kind in ("warp", "warpgroup")
            if shadow.name not in frame.folds:
                level[inside & (numbers != mine)] = -1 if by_clocks else depth
            elders = frame.parent_flat[numbers[inside] - frame.base]
            numbers[inside] = frame.parent.base + elders
        if level.max() >= 0:
            outermost = path[level.max()][0]
            first = int(suspects[level.argmax()])
            raise Conflict(outermost, first, slot.split("_", maxsplit=1)[0])

    def _merge(
        self, low: Array, high: Array, at: Array, who: Array, lanes: Lanes
    ) -> None:
        """Extend the range of accessing lanes of each element by `who`.

        A range of two lanes of an outer frame stays in that frame: both are then
        concurrent with any writer. Otherwise the innermost numbers are kept.
        """
        first, last = self._resolve(low[at]), self._resolve(high[at])
        for frame, flat in reversed(lanes.path()):
            if frame.parent is None:
                continue
            mine = frame.base + flat[who]
            inside = (first >= frame.base) & (first < frame.base + frame.count)
            if frame is lanes.frame:
                low[at] = np.where(inside, first, mine)
                high[at] = np.where(inside, last, mine)
                _extend(low, high, at, mine)
                continue
            wider = inside & ((first != mine) | (last != mine))
            if not wider.any():
                continue
            low[at[inside]], high[at[inside]] = first[inside], last[inside]
            _extend(low, high, at[wider], mine[wider])
            rest = ~np.isin(at, at[wider])
            at, who, first, last = at[rest], who[rest], first[rest], last[rest]


def _extend(low: Array, high: Array, at: Array, numbers: Array) -> None:
    """Extend the ranges of elements by numbers; an element may have several."""
    outside = (numbers < low[at]) | (numbers > high[at])
    if outside.any():
        np.minimum.at(low, at[outside], numbers[outside])
        np.maximum.at(high, at[outside], numbers[outside])
