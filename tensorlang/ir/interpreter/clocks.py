"""Happens-before between warps: vector clocks over barrier objects.

Warps in roles are ordered by arrivals and waits, pairwise; the race check of frames
only knows groups. So each warp of a block, and each barrier object on behalf of its
copies, is an *agent* with a clock. A warp's clock advances with each arrival, an
object's with each of its phases. An access happens before a warp's next one if the warp
has seen the agent's clock of that access: at a wait a warp sees what those who arrived
had seen.

Copies and products of warpgroups access shared memory by another proxy than threads:
they see what a thread wrote only once it has met its warpgroup at a barrier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.errors import InterpreterError
from tensorlang.ir.collectives import WARP, WARPGROUP

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.undo import Undo

_AGENT: Final = "@agent"
_CLOCK: Final = "@clock"
# kind of access -> the accesses it must be ordered after, besides the last write
_AGAINST: Final = {
    "read": ("atomics",),
    "write": ("reads", "atomics"),
    "atomic": ("reads",),
}
_DID: Final = {"reads": "read", "atomics": "updated"}
_NOBODY: Final = 0  # clock 0 of this agent has been seen by all


class Record:
    """For each element of a memory, its last write and the accesses since then.

    Attributes:
        block: The block that accessed it; all blocks share the record.
        writer: The agent of the last write, at its time `clock`.
        reads: By agent, the clock of its last read since; None before any.
        atomics: Likewise for atomic updates.
    """

    __slots__ = ("atomics", "block", "clock", "reads", "writer")

    def __init__(self, size: int) -> None:
        self.block = np.full(size, -1, np.int64)
        self.writer = np.full(size, _NOBODY, np.int64)
        self.clock = np.zeros(size, np.int64)
        self.reads: Array | None = None
        self.atomics: Array | None = None

    def table(self, name: str, agents: int) -> Array:
        """The clocks of reads or atomics, by element and agent."""
        found = getattr(self, name)
        if found is None:
            found = np.zeros((self.block.size, agents), np.int64)
            setattr(self, name, found)
        return found

    def forget(self, at: Array) -> None:
        """Clear these elements: earlier accesses are ordered before all later ones."""
        for table in (self.reads, self.atomics):
            if table is not None:
                table[at] = 0

    def save(self, undo: Undo) -> None:
        """Save the record, for a speculative batch."""
        for name in self.__slots__:
            array = getattr(self, name)
            if array is not None:
                undo.save(array)


class Clocks:
    """The clocks of one loop over threads."""

    __slots__ = (
        "_block",
        "_published",
        "_released",
        "_warp",
        "agents",
        "blocks",
        "fenced",
        "seen",
        "threads",
        "warps",
    )

    def __init__(self, lanes: Lanes, objects: int) -> None:
        threads = lanes.frame
        if threads.thread != "thread.x" or threads.parent is None:
            raise InterpreterError("barrier objects need one loop of threads, thread.x")
        self.threads = threads  # loop's lanes
        self.blocks = threads.parent  # lanes around it, each being a block
        self.warps = -(-threads.extent // WARP)
        self.agents = self.warps + objects
        self._block, self._warp = threads.parent_flat, threads.position // WARP
        shape = self.blocks.count, self.warps, self.agents
        # by block, warp and agent: the agent's clock that the warp has seen
        self.seen = np.zeros(shape, np.int64)
        self.seen[:, range(self.warps), range(self.warps)] = 1
        # by block and warp: its clock at its last barrier of a warpgroup
        self.fenced = np.zeros(shape[:2], np.int64)
        self._released = np.zeros((shape[0], objects, self.agents), np.int64)
        self._published = np.zeros_like(self._released)
        lanes.bind(_AGENT, np.array([-1]))
        lanes.bind(_CLOCK, np.array([0]))

    def _number(self, lanes: Lanes) -> Array:
        """The thread of each lane, as its number in the loop's frame."""
        for frame, flat in lanes.path():
            if frame is self.threads:
                return flat
        raise InterpreterError("a barrier object is used outside of its threads")

    def thread(self, lanes: Lanes) -> Array:
        """The thread of each lane, numbered within its block."""
        return self.threads.position[self._number(lanes)]

    def warp(self, lanes: Lanes) -> Array:
        """The warp of each lane, numbered across all blocks."""
        thread = self._number(lanes)
        return self._block[thread] * self.warps + self._warp[thread]

    def block(self, lanes: Lanes) -> Array:
        """The block of each lane."""
        return self._block[self._number(lanes)]

    def beside(self, lanes: Lanes, number: Array, phase: Array) -> None:
        """Let these lanes act for objects in their open phase, not for their warp."""
        lanes.bind(_AGENT, self.warps + number)
        lanes.bind(_CLOCK, phase + 1)

    def release(self, lanes: Lanes, number: Array) -> None:
        """The warps of these lanes arrive: waiters will see what they have seen."""
        thread = self._number(lanes)
        block, warp = self._block[thread], self._warp[thread]
        np.maximum.at(self._released, (block, number), self.seen[block, warp])
        once = np.unique(np.stack([block, warp]), axis=1)
        self.seen[once[0], once[1], once[1]] += 1

    def publish(self, block: int, number: int, phases: int) -> None:
        """Mark this many phases of an object as complete."""
        self._released[block, number, self.warps + number] = phases
        self._published[block, number] = self._released[block, number]

    def phases(self, lanes: Lanes, number: Array) -> Array:
        """The number of phases of an object whose end each lane's warp has seen."""
        thread = self._number(lanes)
        return self.seen[self._block[thread], self._warp[thread], self.warps + number]

    def acquire(self, lanes: Lanes, number: Array) -> None:
        """The warps of these lanes have waited: they see what the arrivals had seen."""
        thread = self._number(lanes)
        block, warp = self._block[thread], self._warp[thread]
        news = self._published[block, number]
        np.maximum.at(self.seen, (block, warp), news)

    def meet(self, lanes: Lanes, warps: int) -> None:
        """Groups of `warps` warps (0: all of a block) met at a barrier."""
        thread = self._number(lanes)
        block, warp = self._block[thread], self._warp[thread]
        span = warps or self.warps
        for b, group in np.unique(np.stack([block, warp // span]), axis=1).T:
            those = slice(group * span, (group + 1) * span)
            if warps * WARP == WARPGROUP:  # one of the whole block is no fence
                own = np.arange(self.warps)[those]
                self.fenced[b, own] = self.seen[b, own, own]
            self.seen[b, those] = self.seen[b, those].max(axis=0)
        once = np.unique(np.stack([block, warp]), axis=1)
        self.seen[once[0], once[1], once[1]] += 1

    def unfenced(
        self, record: Record, at: Array, who: Array, lanes: Lanes, *, collective: bool
    ) -> int | None:
        """An access by a copy or product to what a thread wrote without a fence since.

        Args:
            record: The record of the shared memory.
            at: Elements accessed.
            who: For each, the lane.
            lanes: The lanes.
            collective: Whether a warpgroup accesses them together.
        """
        block = self._block[self._number(lanes)[who]]
        beside = np.broadcast_to(lanes.lookup(_AGENT), lanes.count)[who] >= 0
        writer = record.writer[at]
        by_warp = (record.block[at] == block) & (writer < self.warps)
        fenced = self.fenced[block, np.minimum(writer, self.warps - 1)]
        late = (collective | beside) & by_warp & (record.clock[at] > fenced)
        return int(np.argmax(late)) if late.any() else None

    def touch(
        self,
        kind: str,
        record: Record,
        at: Array,
        who: Array,
        *,
        lanes: Lanes,
        span: int,
        undo: Undo,
    ) -> tuple[int, str] | None:
        """Record accesses; returns one unordered with an earlier access, and its kind.

        Args:
            kind: `read`, `write` or `atomic`.
            record: The record of the memory.
            at: Elements accessed.
            who: For each, the lane.
            span: Number of warps that act together, starting with the lane's.
            undo: Saves the previous record.
        """
        if kind != "write":
            record.table(f"{kind}s", self.agents)
        record.save(undo)
        thread = self._number(lanes)[who]
        block, warp = self._block[thread], self._warp[thread]
        fresh = at[record.block[at] != block]
        record.forget(fresh)
        record.clock[fresh] = 0
        record.block[at] = block
        for by in range(span):
            late = self._late(kind, record, at, self.seen[block, warp + by])
            if late is not None:
                return late
        beside, phase = (
            np.broadcast_to(lanes.lookup(name), lanes.count)[who]
            for name in (_AGENT, _CLOCK)
        )
        for by in range(1 if kind == "write" else span):
            agent = np.where(beside < 0, warp + by, beside)
            own = self.seen[block, warp + by, warp + by]
            self._note(kind, record, at, agent, np.where(beside < 0, own, phase))
        if kind == "write" and (record.writer[at] != agent).any():
            return int(np.argmax(record.writer[at] != agent)), "wrote"
        return None

    def _late(
        self, kind: str, record: Record, at: Array, known: Array
    ) -> tuple[int, str] | None:
        """An access whose warp has not seen an earlier conflicting one."""
        rows = np.arange(at.size)
        late = record.clock[at] > known[rows, record.writer[at]]
        if late.any():
            return int(np.argmax(late)), "wrote"
        for slot in _AGAINST[kind]:
            table = getattr(record, slot)
            late = late if table is None else (table[at] > known).any(axis=1)
            if late.any():
                return int(np.argmax(late)), _DID[slot]
        return None

    def _note(
        self, kind: str, record: Record, at: Array, agent: Array, clock: Array
    ) -> None:
        if kind == "write":
            record.forget(at)
            record.writer[at], record.clock[at] = agent, clock
        else:
            record.table(f"{kind}s", self.agents)[at, agent] = clock
