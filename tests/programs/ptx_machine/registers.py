"""`setmaxnreg` (PTX ISA, 9.7.19.5): warpgroups give registers to a pool, and take some.

A block is taken to have all registers of a multiprocessor, as kernels with roles are
compiled. What one warpgroup gives up another one can have; it waits until then.
"""

from __future__ import annotations

import numpy as np

from .batch import Batch, Lanes, Read, Step
from .faults import Fault
from .operands import Names
from .program import Instruction, Number
from .warpgroups import GROUP, arrived

_REGISTERS = 65536


class Pools:
    """Registers of each thread, and those of each block that no thread has."""

    def __init__(self, threads: int, blocks: int) -> None:
        self.held = np.full(threads * blocks, min(_REGISTERS // threads // 8 * 8, 256))
        self.free = np.zeros(blocks, np.int64)
        self.taken = np.zeros(blocks, bool)

    def check(self) -> None:
        """What was given up is there for others to take."""
        lost = (self.free > 0) & ~self.taken & self._differ()
        if lost.any():
            raise Fault("warpgroups gave up registers that no other one took")

    def _differ(self) -> np.ndarray:
        held = self.held.reshape(len(self.free), -1)
        return (held != held[:, :1]).any(axis=1)


def setmaxnreg(ins: Instruction, _names: Names) -> tuple[Step, Read]:
    """`setmaxnreg.inc|dec.sync.aligned.u32 n`, by all of a warpgroup."""
    way, *rest = ins.modifiers
    (count,) = ins.operands
    if rest != ["sync", "aligned", "u32"] or not isinstance(count, Number):
        raise Fault(f"{ins.text} is not known")
    wanted = count.bits
    if way not in ("inc", "dec") or not 24 <= wanted <= 256 or wanted % 8:
        raise Fault(f"{ins.text} is not known")

    def step(s: Batch, ix: Lanes) -> None:
        lanes = s.lanes(ix)
        pools = pools_of(s)
        if (pools.held[lanes] > wanted).any() and way == "inc":
            raise Fault("setmaxnreg.inc to fewer registers", int(lanes[0]))
        if (pools.held[lanes] < wanted).any() and way == "dec":
            raise Fault("setmaxnreg.dec to more registers", int(lanes[0]))
        np.add.at(pools.free, s.owner[lanes], pools.held[lanes] - wanted)
        pools.held[lanes] = wanted
        pools.taken[s.owner[lanes]] |= way == "inc"

    def ready(s: Batch, ix: Lanes) -> np.ndarray:
        lanes = s.lanes(ix)
        here = arrived(s, ix)
        left = pools_of(s).free.copy()
        for first in lanes[here][::GROUP] if way == "inc" else ():
            block, need = s.owner[first], GROUP * (wanted - pools_of(s).held[first])
            if need > left[block]:
                here &= lanes // GROUP != first // GROUP
            else:
                left[block] -= need
        return here

    return step, ready


def pools_of(s: Batch) -> Pools:
    """The pools of a batch."""
    if s.pools is None:
        s.pools = Pools(s.block_size, s.count // s.block_size)
    return s.pools
