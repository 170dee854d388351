"""What is known of GPUs without having one: limits of a processor, nominal rates.

The limits (registers, warps, shared memory of a multiprocessor) are of the CUDA C++
Programming Guide's table of compute capabilities; the rates are those of the makers'
data sheets of the A100 SXM 40 GB, the H100 SXM and the B200, and serve to rank kernels
of one architecture, not to foretell times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tensorlang.targets import Target

WARP: Final = 32
MOST_REGISTERS: Final = 255  # of one thread
REGISTER_FILE: Final = 1 << 16  # 32-bit registers of a multiprocessor
_REGISTERS_AT_ONCE: Final = 256  # a warp is given them in such portions
_SCHEDULERS: Final = 4  # each has a quarter of the registers, and of the warps
_RESERVED: Final = 1 << 10  # bytes of shared memory that each block costs in any case
_SHARED_AT_ONCE: Final = 128


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: what its multiprocessors hold, and how fast it is.

    Attributes:
        processors: Multiprocessors.
        warps: Of a multiprocessor, at most; `blocks` likewise.
        shared: Bytes of shared memory of a multiprocessor.
        clock: Cycles a second.
        memory: Bytes a second from and to device memory.
        cache: Bytes a cycle from the second-level cache, over all multiprocessors.
        singles: 32-bit float operations a cycle and multiprocessor.
    """

    processors: int
    warps: int
    blocks: int
    shared: int
    clock: float
    memory: float
    cache: int
    singles: int

    def resident(self, threads: int, registers: int, shared: int) -> int:
        """How many blocks a multiprocessor holds at once; 0 where it can hold none.

        Args:
            threads: Of a block.
            registers: Of a thread.
            shared: Bytes of shared memory of a block.
        """
        warps = -(-threads // WARP)
        portion = _rounded(max(registers, 16) * WARP, _REGISTERS_AT_ONCE)
        held = REGISTER_FILE // _SCHEDULERS // portion * _SCHEDULERS
        room = self.shared // _rounded(shared + _RESERVED, _SHARED_AT_ONCE)
        return min(self.blocks, self.warps // warps, held // warps, room)

    def occupancy(self, threads: int, registers: int, shared: int) -> float:
        """The part of its warps that a multiprocessor can have at work."""
        warps = -(-threads // WARP)
        return self.resident(threads, registers, shared) * warps / self.warps


GPUS: Final = {
    "sm_80": Gpu(108, 64, 32, 164 << 10, 1.41e9, 1.555e12, 5120, 64),
    "sm_90a": Gpu(132, 64, 32, 228 << 10, 1.83e9, 3.35e12, 5120, 128),
    "sm_100": Gpu(148, 64, 32, 228 << 10, 1.85e9, 8.0e12, 6144, 128),
}


def gpu_of(target: Target) -> Gpu | None:
    """What is known of a target's architecture; None of what is no CUDA target."""
    return GPUS.get(target.arch) if target.kind == "cuda" else None


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
