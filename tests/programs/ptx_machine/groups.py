"""Groups of `wgmma`: which of them are over, who knows it, and what they read.

A warp's products are over once it has waited for their group, by `wait_group`. Its
arrivals at barrier objects tell of those that are, and who waits for the phase of an
object knows of them. Bulk copies may overwrite what products read if their thread knows
that these are over, whatever the order in which the machine runs threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .faults import Fault

WARP, GROUP = 32, 128


@dataclass
class ProductGroups:
    """Numbers of groups, from 1, of each warp of all blocks.

    Attributes:
        threads: Threads of a block.
        committed: Groups so far, by warp; `over`: those that were waited for.
        reads: The last group of each warpgroup of a block that reads a unit of memory,
            [warpgroups, units].
        known: For each thread, the groups of each warp that it knows to be over.
    """

    threads: int
    committed: np.ndarray
    over: np.ndarray
    reads: np.ndarray
    known: dict[int, dict[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, count: int, threads: int, units: int) -> ProductGroups:
        """None yet, of so many threads altogether, and in a block."""
        none = np.zeros(-(-count // WARP), np.int64)
        reads = np.zeros((-(-threads // GROUP), units), np.int32)
        return cls(threads, none, none.copy(), reads)

    def read(self, lane: int, units: np.ndarray) -> int:
        """A product of the thread's warpgroup reads units; returns its group."""
        number = int(self.committed[lane // WARP]) + 1
        self.reads[lane % self.threads // GROUP, units] = number
        return number

    def commit(self, lanes: np.ndarray) -> None:
        """What the warps have begun is a group."""
        self.committed[np.unique(lanes // WARP)] += 1

    def wait(self, lanes: np.ndarray, left: int) -> None:
        """All but the last groups of the warps are over."""
        warps = np.unique(lanes // WARP)
        self.over[warps] = np.maximum(self.over[warps], self.committed[warps] - left)

    def is_over(self, lane: int, number: int) -> bool:
        """Whether a group of the warp of a thread was waited for."""
        return bool(self.over[lane // WARP] >= number)

    def tell(self, lane: int, told: dict[int, int]) -> None:
        """A thread arrives: whoever waits will know what is over."""
        told[lane // WARP] = int(self.over[lane // WARP])

    def hear(self, lanes: np.ndarray, told: dict[int, int]) -> None:
        """Threads have waited for arrivals."""
        for lane in lanes.tolist():
            self.known.setdefault(lane, {}).update(told)

    def overwrite(self, lane: int, units: np.ndarray) -> None:
        """A bulk copy of a thread writes units.

        Raises:
            Fault: a product may still read them.
        """
        first = lane // self.threads * self.threads // WARP
        known = self.known.get(lane, {})
        for group, number in enumerate(self.reads[:, units.ravel()].max(axis=1)):
            begin = first + group * GROUP // WARP
            warps = range(begin, begin + GROUP // WARP)
            if any(known.get(warp, 0) < number for warp in warps):
                raise Fault("it copies to where a wgmma may still read", lane)

    def barrier(self, block: int) -> None:
        """All threads of a block know what is over."""
        first, end = (n * self.threads for n in (block, block + 1))
        warps = range(first // WARP, -(-end // WARP))
        told = {warp: int(self.over[warp]) for warp in warps if self.over[warp]}
        if told:
            self.hear(np.arange(first, end), told)


__all__ = ["ProductGroups"]
