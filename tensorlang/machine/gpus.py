"""GPU specifications: limits of a multiprocessor, nominal rates.

Limits (registers, warps, shared memory per multiprocessor) are from the compute
capability table of the CUDA C++ Programming Guide; rates are from the data sheets of
the A100 SXM 40 GB, the H100 SXM, the H200 SXM and the B200. They serve to rank kernels
of one architecture; times predicted from them are estimates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tensorlang.frozen import frozen
from tensorlang.ir.collectives import WARP

if TYPE_CHECKING:
    from tensorlang.targets import Target

GROUP_ROWS: Final = 64  # of a product of a warpgroup (`wgmma`)
GROUP_STEPS: Final = 16  # of it along k
LINE: Final = 128  # bytes that shared memory moves in a clock, of all its banks
PIECE: Final = 16  # bytes of a line that a swizzle permutes
PANEL: Final = LINE // 2  # columns of 16 bits in a line, as warpgroups read them
OBJECTS: Final = 2 << 10  # bytes of shared memory for barrier objects, and to align
MAPPED: Final = range(2, 6)  # dimensions of arrays that bulk copies read
LAUNCH: Final = 2e-6  # seconds to launch a kernel, about
MOST_REGISTERS: Final = 255  # per thread
REGISTER_FILE: Final = 1 << 16  # 32-bit registers per multiprocessor
_REGISTERS_AT_ONCE: Final = 256  # allocation granularity per warp
_SCHEDULERS: Final = 4  # each with a quarter of the registers and warps
_RESERVED: Final = 1 << 10  # bytes of shared memory reserved per block
_SHARED_AT_ONCE: Final = 128


@frozen
class Gpu:
    """GPU specification."""

    processors: int  # multiprocessors
    warps: int  # maximum resident warps per multiprocessor; `blocks` likewise
    blocks: int
    shared: int  # bytes of shared memory per multiprocessor
    clock: float  # cycles per second
    memory: float  # device memory bandwidth in bytes per second
    cache: int  # L2 cache bandwidth in bytes per cycle, for all multiprocessors
    # multiply-adds of 32-bit and of 64-bit floats per cycle and multiprocessor
    singles: int
    doubles: int
    # multiply-adds of 16-bit values per cycle and multiprocessor, by the tensor core
    # instructions of warps (`mma`)
    products: int
    group_products: int = 0  # same by those of warpgroups (`wgmma`); 0 if it has none

    @property
    def peak(self) -> float:
        """16-bit operations per second of all tensor cores; a multiply-add is two."""
        each = max(self.products, self.group_products)
        return 2 * self.processors * self.clock * each

    def resident(self, threads: int, registers: int, shared: int) -> int:
        """Resident blocks per multiprocessor; 0 if none fits.

        Args:
            threads: Threads per block.
            registers: Registers per thread.
            shared: Bytes of shared memory per block.
        """
        warps = -(-threads // WARP)
        portion = _rounded(max(registers, 16) * WARP, _REGISTERS_AT_ONCE)
        held = REGISTER_FILE // _SCHEDULERS // portion * _SCHEDULERS
        room = self.shared // _rounded(shared + _RESERVED, _SHARED_AT_ONCE)
        return min(self.blocks, self.warps // warps, held // warps, room)

    def occupancy(self, threads: int, registers: int, shared: int) -> float:
        """The fraction of a multiprocessor's warps that can be resident."""
        warps = -(-threads // WARP)
        return self.resident(threads, registers, shared) * warps / self.warps


# Of the L2 cache of Hopper, whose rate is not published, that of the A100 is taken:
# fast.cu's 704 TFLOP/s by tiles of 128 x 256 without multicast move 8.2 TB/s, so it is
# no less than 4500 bytes per cycle. Hopper issues `mma` at 63 % of the rate of `wgmma`.
GPUS: Final = {
    "sm_80": Gpu(108, 64, 32, 164 << 10, 1.41e9, 1.555e12, 5120, 64, 32, 1024),
    "sm_90a": Gpu(132, 64, 32, 228 << 10, 1.83e9, 3.35e12, 5120, 128, 64, 1290, 2048),
    "sm_100": Gpu(148, 64, 32, 228 << 10, 1.85e9, 8.0e12, 6144, 128, 64, 2048),
}
# part of a device's name -> its specification
DEVICES: Final = {
    "H100": GPUS["sm_90a"],
    "H200": replace(GPUS["sm_90a"], memory=4.8e12),
}


def gpu_of(target: Target) -> Gpu | None:
    """The specification of a target or of its architecture; None if it is not CUDA."""
    if target.kind != "cuda":
        return None
    named = (gpu for name, gpu in DEVICES.items() if name in target.device)
    return next(named, GPUS.get(target.arch))


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
