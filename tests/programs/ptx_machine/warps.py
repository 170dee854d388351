"""Instructions of a warp: shuffles, votes (PTX ISA, 9.7.8.6 and 9.7.13.9).

Each is given the threads that have arrived; the machine has seen to it that all of the
member mask have.
"""

from __future__ import annotations

import numpy as np

from .batch import WARP, Batch, Lanes, Read, Step
from .faults import Fault
from .forms import split
from .operands import Names, reader, writer
from .program import Instruction, Vector
from .types import named

B32, U32, PRED = named("b32"), named("u32"), named("pred")
_LANE = np.arange(WARP)


def shuffle(ins: Instruction, names: Names) -> Step:
    """`shfl.sync.mode.b32 d{|p}, a, b, c, mask`: a of the lane that b and c choose."""
    sync, mode, kind = ins.modifiers
    if (sync, kind) != ("sync", "b32") or mode not in ("up", "down", "bfly", "idx"):
        raise Fault(f"{ins.text} is not known")
    places = ins.operands[0]
    both = places.parts if isinstance(places, Vector) else (places, None)
    write = writer(both[0], B32, names)
    tell = writer(both[1], PRED, names) if both[1] is not None else None
    reads = [reader(o, B32, names) for o in ins.operands[1:4]]

    def step(s: Batch, ix: Lanes) -> None:
        a, b, c = (s.of_warps(ix, _each(s, ix, read)) for read in reads)
        source, inside = _source(mode, b.astype(np.int64), c.astype(np.int64))
        present = s.present(ix)
        absent = present & ~np.take_along_axis(present, source, axis=1)
        if absent.any():
            which = s.of_threads(ix, absent)
            first = int(s.lanes(ix)[np.flatnonzero(which)[0]])
            raise Fault("a shuffle reads a lane that takes no part", first)
        write(s, ix, s.of_threads(ix, np.take_along_axis(a, source, axis=1)))
        if tell:
            tell(s, ix, s.of_threads(ix, inside))

    return step


def _each(s: Batch, ix: Lanes, read: Read) -> np.ndarray:
    return np.broadcast_to(read(s, ix), len(s.lanes(ix)))


def _source(mode: str, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ISA's own lines: the lane that is read, and whether it is in the segment."""
    b, bound, segment = b & 31, c & 31, c >> 8 & 31
    least = _LANE & segment
    most = least | (bound & ~segment)
    if mode == "up":
        lane = _LANE - b
        inside = lane >= most
    else:
        lane = {"down": _LANE + b, "bfly": _LANE ^ b, "idx": least | (b & ~segment)}[
            mode
        ]
        inside = lane <= most
    return np.where(inside, lane, _LANE), inside


def vote(ins: Instruction, names: Names) -> Step:
    """`vote.sync.{all,any,uni}.pred p, a, mask` and `vote.sync.ballot.b32`."""
    sync, mode, _ = ins.modifiers
    if sync != "sync" or mode not in ("all", "any", "uni", "ballot"):
        raise Fault(f"{ins.text} is not known")
    read = reader(ins.operands[1], PRED, names)
    write = writer(ins.operands[0], B32 if mode == "ballot" else PRED, names)

    def step(s: Batch, ix: Lanes) -> None:
        yes = s.of_warps(ix, _each(s, ix, read))
        bits = np.broadcast_to(_bits(yes)[:, None], yes.shape)
        here = np.broadcast_to(_bits(s.present(ix))[:, None], yes.shape)
        made = {"ballot": bits, "any": bits != 0, "all": bits == here}
        made["uni"] = made["all"] | (bits == 0)
        write(s, ix, s.of_threads(ix, made[mode]))

    return step


def _bits(lanes: np.ndarray) -> np.ndarray:
    """A u32 a warp from a bool a lane."""
    return (lanes.astype(np.uint64) << _LANE.astype(np.uint64)).sum(1).astype(np.uint32)


def active_mask(ins: Instruction, names: Names) -> Step:
    """`activemask.b32 d`: the lanes that run this together."""
    write = writer(ins.operands[0], B32, names)

    def step(s: Batch, ix: Lanes) -> None:
        here = s.present(ix)
        bits = np.broadcast_to(_bits(here)[:, None], here.shape)
        write(s, ix, s.of_threads(ix, bits))

    return step


def elect(ins: Instruction, names: Names) -> Step:
    """`elect.sync _|p, mask`: p is true in the first of the lanes that take part."""
    if ins.modifiers != ("sync",) or not isinstance(ins.operands[0], Vector):
        raise Fault(f"{ins.text} is not known")
    write = writer(ins.operands[0].parts[1], PRED, names)

    def step(s: Batch, ix: Lanes) -> None:
        here = s.present(ix)
        first = (here.cumsum(axis=1) == 1) & here
        write(s, ix, s.of_threads(ix, first))

    return step


def members(ins: Instruction, names: Names) -> Read:
    """The member mask of an instruction of a warp: u32, one a thread."""
    words, _ = split(ins.modifiers)
    if "aligned" in words:
        return lambda s, ix: np.full(len(s.lanes(ix)), 0xFFFFFFFF, np.uint32)
    read = reader(ins.operands[-1], U32, names)
    return lambda s, ix: _each(s, ix, read)


def arrived(s: Batch, ix: Lanes, mask: np.ndarray, *, whole: bool) -> np.ndarray:
    """Which of the threads find all others of their member mask beside them.

    Lanes that are gone, or that a short last warp never had, are not waited for, unless
    the instruction wants `whole` warps.
    """
    lanes = s.lanes(ix)
    here = _bits(s.present(ix))
    alive = _bits(s.of_warps(None, s.state != 3))
    warp = s.slots[lanes] // WARP
    own = np.uint32(1) << (s.slots[lanes] % WARP).astype(np.uint32)
    if (mask & own == 0).any():
        first = int(lanes[np.flatnonzero(mask & own == 0)[0]])
        raise Fault("a thread is not in its own member mask", first)
    lost = mask & ~alive[warp]
    if whole and lost.any():
        raise Fault("lanes of the warp are gone", int(lanes[np.flatnonzero(lost)[0]]))
    return mask & alive[warp] & ~here[warp] == 0
