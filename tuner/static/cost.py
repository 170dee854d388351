"""A static cost model of GPU kernels, to rank candidates without a GPU.

Each launch takes the time of its tightest bound, as in the roofline model (Williams,
Waterman and Patterson, CACM 2009), with traffic split by memory:

*device memory*: the bytes its blocks touch of each array, at most all of it, over the
nominal bandwidth; *L2 cache*: all sectors requested by warps, so an uncoalesced access
counts up to 32 times (`accesses`); *schedulers*: the SASS instructions, weighted by
rate and loops (`sass`), scaled to the bytes that threads move in the IR; *shared
memory*: one pass per cycle, bank conflicts included, with what bulk copies bring and
products of warpgroups read; *tensor cores*: the products of warpgroups at the rate of
the data sheet.

A multiprocessor runs its share of the blocks in waves, and its resident blocks
(`machine.gpus.Gpu.resident`, from registers and shared memory) hide latency by Little's
law, following Volkov ("Understanding latency hiding on GPUs", 2016): each group of a
thread's loads in flight takes the device memory latency once, as measured by Luo et al.
("Benchmarking and dissecting the NVIDIA Hopper GPU architecture", 2024); a barrier
takes that of shared memory. A launch adds two microseconds.

Roles overlap: a step of a ring takes as long as the products of all warpgroups, or as
those of one with two waits, for its stage and, if they are not in flight, for its
products; and all stages as long as a copy from device memory with the products of one,
but for a stage that products in flight hold. The other instructions, such as
those of the epilogue, come on top, since the warpgroups of a block end a tile together.
Of blocks that stay, the one with most tiles decides.

The result is in seconds on the GPU of the data sheet, at its boost clock. Power limits,
L1 cache and divergence are not modelled; measured times always take precedence, and
records based on this model are marked (`Record.static`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Final

from tensorlang.codegen.simt.host import data_of, host_program, launches
from tensorlang.errors import TuningError
from tensorlang.frozen import frozen
from tensorlang.ir.collectives import WARP
from tensorlang.machine.gpus import LAUNCH, Gpu, gpu_of
from tensorlang.runtime import host_program as hosting
from tensorlang.tuner.static import sass
from tensorlang.tuner.static.accesses import SECTOR, Traffic, Unknown, traffic

if TYPE_CHECKING:
    from tensorlang.codegen.simt.host import Launch
    from tensorlang.ir.nodes import Buffer
    from tensorlang.ops.operator import Operator
    from tensorlang.runtime import Kernel
    from tensorlang.workload import Workload

_LATENCY: Final = 480.0  # cycles of a load from device memory
_BARRIER: Final = 30.0
_SCHEDULERS: Final = 4


@frozen
class StaticCost:
    """The estimate of one call and its main parts."""

    seconds: float  # for all launches
    # dominant part: `memory`, `cache`, `instructions`, `shared`, `tensor` or `latency`
    bound: str
    occupancy: float  # lowest occupancy of any launch


def static_cost(
    kernel: Kernel, op: Operator, workload: Workload, gpu: Gpu | None = None
) -> StaticCost:
    """Estimate one call of a compiled CUDA kernel.

    Args:
        workload: The shapes and dtypes of the call.
        gpu: The GPU; by default the target, or the usual one of its architecture.

    Raises:
        TuningError: it is compiled for an unknown architecture.
    """
    gpu = gpu or gpu_of(kernel.target)
    if gpu is None:
        raise TuningError(f"there is no cost model of {kernel.target.name}")
    made = launches(kernel.lowered)
    issued = sass.kernels(kernel.asm, gpu)
    program = host_program(kernel.lowered)
    resources = kernel.resources
    bounds: dict[str, float] = {}
    occupancy, seconds = 1.0, 0.0

    def launch(number: int, names: dict[str, int]) -> None:
        nonlocal occupancy, seconds
        one = made[number]
        grid = [hosting.number(n, names) for n in program["launches"][number]["grid"]]
        if min(grid) <= 0:
            return
        told = _Launch(one, prod(grid), names, gpu, resources)
        parts = told.parts(issued[one.name])
        bound = max(parts, key=lambda name: parts[name])
        bounds[bound] = bounds.get(bound, 0.0) + parts[bound]
        seconds += parts[bound] + LAUNCH
        occupancy = min(occupancy, told.occupancy)

    hosting.run(program["program"], _names(kernel, op, workload, program), launch)
    most = max(bounds, key=lambda name: bounds[name], default="memory")
    return StaticCost(seconds, most, occupancy)


def _names(
    kernel: Kernel, op: Operator, workload: Workload, program: hosting.Data
) -> dict[str, int]:
    """Values of the host's names: the sizes, and 1 for others."""
    sizes = {**op.scalars(workload), **op.sizes(workload)}
    named = zip(program["scalars"], kernel.signature.scalars, strict=True)
    return {name: sizes.get(spec.name, 1) for name, spec in named}


@frozen
class _Launch:
    """A launch of a number of blocks on a GPU."""

    launch: Launch
    blocks: int
    names: Mapping[str, int]
    gpu: Gpu
    resources: Mapping[str, int]

    @property
    def _resident(self) -> int:
        return max(self.gpu.resident(*self._shape), 1)

    @property
    def _shape(self) -> tuple[int, int, int]:
        shared = sum(_bytes(buffer, self.names) for buffer in self.launch.shared)
        return prod(self.launch.block), self.resources["registers"], shared

    @property
    def occupancy(self) -> float:
        """The occupancy of a multiprocessor."""
        return self.gpu.occupancy(*self._shape)

    def parts(self, issued: sass.Instructions) -> dict[str, float]:
        """Seconds by bound, each as if it were the only one."""
        gpu, moved = self.gpu, traffic(self.launch, self.names)
        warps = -(-prod(self.launch.block) // WARP)
        asked = sum(moved.sectors.values()) * SECTOR * self.blocks
        touched = sum(
            min(count * SECTOR * self.blocks, _bytes(buffer, self.names))
            for buffer, count in moved.sectors.items()
        )
        rounds = moved.loads / warps / issued.together
        rest = _issued(moved, issued, warps)
        around = zip(sass.ANCHORS, (moved.products, moved.copies), strict=True)
        looped = sum(count * issued.around[anchor] for anchor, count in around)
        waiting = rounds * _LATENCY + moved.barriers * _BARRIER + _LATENCY
        if moved.steps:
            waiting += self._ring(moved) + rest / _SCHEDULERS
        own = -(-self.blocks // gpu.processors)  # blocks of the busiest processor
        turns = -(-own // self._resident)
        multiplied = sum(moved.multiplied.values())
        return {
            "memory": touched / gpu.memory,
            "cache": asked / gpu.cache / gpu.clock,
            "instructions": own * (rest + looped) / _SCHEDULERS / gpu.clock,
            "shared": own * moved.passes / gpu.clock,
            "tensor": own * multiplied / (gpu.group_products or 1) / gpu.clock,
            "latency": turns * waiting / gpu.clock,
        }

    def _ring(self, moved: Traffic) -> float:
        """Cycles of all steps of a ring, of a block that is alone."""
        each = moved.multiplied.values()
        rate, steps = self.gpu.group_products or 1, max(moved.steps.values())
        waits = 1 if moved.in_flight else 2
        alone = max(each, default=0) / rate + steps * waits * _BARRIER
        used = max(sum(each) / rate, alone)
        ahead = max(moved.stages - moved.in_flight, 1)
        return max(used, (steps * _LATENCY + used) / ahead)


def _issued(moved: Traffic, issued: sass.Instructions, warps: int) -> float:
    """Cycles of issue of a block, but for the loops around asynchronous instructions.

    Machine code has no trip counts: it is scaled to the bytes that threads move.
    """
    scale = moved.moved / WARP / issued.moved if issued.moved * moved.moved else warps
    return scale * issued.cycles


def _bytes(buffer: Buffer, names: Mapping[str, int]) -> int:
    """Bytes of a buffer, for these values of the host's names."""
    extents = (hosting.number(data_of(extent), dict(names)) for extent in buffer.shape)
    return prod(extents) * buffer.dtype.bytes


__all__ = ["StaticCost", "Unknown", "static_cost"]
