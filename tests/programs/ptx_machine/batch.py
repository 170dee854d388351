"""The threads that run together: registers, counters, and what a thread may ask of
itself.

`Lanes` says which threads an instruction is for: None is all of them, else their
numbers in rising order. Thread t of the batch is thread t % block_size of its block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .block_memory import OwnedMemory, SharedMemory
from .groups import ProductGroups
from .memory import GlobalMemory
from .types import WORDS, named

Lanes = np.ndarray | None
Three = tuple[int, int, int]
WARP = 32
SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW = (n << 56 for n in (1, 2, 3))  # generic
READY, AT_BARRIER, IN_WARP, GONE = range(4)


@dataclass(frozen=True)
class Layout:
    """What a kernel wants of each batch: registers' types, variables, parameters."""

    registers: tuple[str, ...]
    shared: tuple[tuple[str, int, int], ...]
    local: tuple[tuple[str, int, int], ...]
    unit: int


class Batch:
    """The state of some blocks' threads.

    Args:
        layout: The kernel's registers and variables.
        memory: What kernels find at addresses.
        params: The bytes of the parameters.
        sizes: Blocks of the launch, and threads of a block, in x, y, z.
        blocks: The numbers of the blocks that run here.
    """

    def __init__(
        self,
        layout: Layout,
        memory: GlobalMemory,
        params: bytes,
        sizes: tuple[Three, Three],
        blocks: np.ndarray,
    ) -> None:
        grid, block = sizes
        self.block_size = int(np.prod(block))
        self.count = len(blocks) * self.block_size
        self.all = np.arange(self.count)
        self.inside = self.all % self.block_size
        self.owner = self.all // self.block_size
        self.memory, self.params = memory, np.frombuffer(params, np.uint8)
        self.shared = SharedMemory(
            list(layout.shared), len(blocks), self.owner, layout.unit
        )
        self.local = OwnedMemory(list(layout.local), self.count, self.all)
        self.registers = [_poisoned(name, self.count) for name in layout.registers]
        self.state = np.zeros(self.count, np.int8)
        self.counter = np.zeros(self.count, np.int32)
        self.copies: list[Any] = []  # those of cp.async that nothing has waited for
        self.groups = np.zeros(self.count, np.int64)  # committed by each thread
        self.objects: dict[int, Any] = {}  # of mbarrier, by their place
        self.products: dict[Any, Any] = {}  # of wgmma, that nothing has waited for
        self.flying = ProductGroups.of(
            self.count, self.block_size, len(self.shared.state)
        )
        self.stores: list[Any] = []  # in bulk, that nothing has waited for
        self.fenced = np.zeros(self.count, bool)
        self.pools: Any = None  # of setmaxnreg
        warps = -(-self.block_size // WARP)
        self.slots = self.owner * warps * WARP + self.inside
        self.slot_count = len(blocks) * warps * WARP
        self.special = _special(self.inside, blocks[self.owner], grid, block)

    def lanes(self, ix: Lanes) -> np.ndarray:
        """The numbers of the threads."""
        return self.all if ix is None else ix

    def of_warps(self, ix: Lanes, values: np.ndarray) -> np.ndarray:
        """Values of threads as [warps, 32]; 0 where a lane takes no part."""
        made = np.zeros(self.slot_count, values.dtype)
        made[self.slots[self.lanes(ix)]] = values
        return made.reshape(-1, WARP)

    def of_threads(self, ix: Lanes, values: np.ndarray) -> np.ndarray:
        """Values of [warps, 32] for the threads that take part."""
        return values.reshape(-1)[self.slots[self.lanes(ix)]]

    def present(self, ix: Lanes) -> np.ndarray:
        """Which lanes take part: bool, [warps, 32]."""
        return self.of_warps(ix, np.ones(len(self.lanes(ix)), bool))


def _poisoned(kind: str, count: int) -> np.ndarray:
    if kind == "pred":
        return np.zeros(count, bool)
    bits = named(kind).bits
    return np.full(count, 0xCBCBCBCBCBCBCBCB & ((1 << bits) - 1), WORDS[bits])


def _special(
    inside: np.ndarray, blocks: np.ndarray, grid: Three, block: Three
) -> dict[str, np.ndarray]:
    lane = (inside % WARP).astype(np.uint32)
    found = {"%laneid": lane, "%warpid": (inside // WARP).astype(np.uint32)}
    one = np.uint32(1)
    found["%lanemask_eq"] = one << lane
    found["%lanemask_lt"] = (one << lane) - one
    found["%lanemask_le"] = (one << lane) | ((one << lane) - one)
    for name, number, sizes in (("tid", inside, block), ("ctaid", blocks, grid)):
        rest = number
        for axis, size in zip("xyz", sizes, strict=True):
            found[f"%{name}.{axis}"] = (rest % size).astype(np.uint32)
            found[f"%n{name}.{axis}"] = np.full(len(inside), size, np.uint32)
            rest = rest // size
    return found


Read = Callable[[Batch, Lanes], np.ndarray]
Write = Callable[[Batch, Lanes, np.ndarray], None]
Step = Callable[[Batch, Lanes], None]
