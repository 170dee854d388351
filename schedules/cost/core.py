"""A core as cost models see it: cycles and vectors, from a `Machine`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import hypot, log2
from typing import Final

from tensorlang import machine
from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import DType
from tensorlang.machine import Cache, Machine
from tensorlang.targets import Target

REFILL: Final = 16  # cycles to fill a pipeline again after a loop's last iteration
PAGE: Final = 4096  # bytes of memory whose addresses keep their order in a cache
_TRANSFER: Final = 1e-7  # seconds for a line to go from one core to another
_PORTS: Final = 4.0  # power by which arithmetic and loads in one loop overlap
_TRANSFERS: Final = 4  # a job, its result, and that each was seen
_ANY: Final = Target(vector_bits=512, vector_registers=32)  # of a schedule without one


def hypot_of(*times: float, power: float) -> float:
    """The time of work that overlaps in part: of a high power, the longest one."""
    return float(sum(time**power for time in times) ** (1.0 / power))


@frozen
class Level:
    """A cache as one core of a team uses it."""

    cache: Cache
    capacity: float  # bytes that the core may fill
    rate: float  # bytes per cycle that come into it


@frozen
class Core:
    """A core of a team of threads; times are in cycles."""

    clock: float  # cycles per second
    lanes: int  # elements of a vector
    vector: int  # bytes of a vector
    registers: int  # vector registers
    addresses: int  # registers for addresses: half of the general ones
    products: float  # vector multiply-adds that start per cycle
    latency: float  # cycles of a multiply-add
    loads: float  # vectors loaded per cycle
    levels: tuple[Level, ...]  # its caches, the first level first
    threads: int  # threads of the team

    @property
    def transfer(self) -> float:
        """Cycles until a line from beyond the core's own caches is there."""
        return self.clock * _TRANSFER

    @property
    def handover(self) -> float:
        """Cycles to hand work to the other threads and to wait for them."""
        others = self.threads - 1
        return self.transfer * (_TRANSFERS + others - 1) if others else 0.0

    def worth_threads(self, cycles: float) -> bool:
        """Whether two threads do work that takes so long faster than one.

        This does not depend on the number of threads, and so neither do results.
        """
        return cycles > 2 * self.transfer * _TRANSFERS

    @property
    def grain(self) -> int:
        """Elements of a unit of work: the power of two that fills the first cache.

        They take several times as long as handing them over.
        """
        size = self.levels[0].cache.bytes if self.levels else PAGE
        return 1 << round(log2(size * self.lanes / self.vector))

    @property
    def crossing(self) -> float:
        """Loads for each vector of an array that need not be aligned to lines."""
        return 1.0 + self.vector / self.levels[0].cache.line if self.levels else 1.0

    def holds(self, rows: int, vectors: int) -> bool:
        """Whether the registers hold a tile of rows by vectors.

        Beside its sums they hold the vectors of a step, which all rows use, and a row's
        factor.
        """
        return (rows + 1) * vectors < self.registers

    def tile(self, rows: int, vectors: int, loads: float) -> float:
        """Cycles for one step of the reduction of a register tile."""
        return self.step(rows * vectors, loads, vectors)

    def converted(self, size: int) -> float:
        """Operations to load a value of so many bytes: narrow ones are converted."""
        return 2.0 if size * self.lanes < self.vector else 1.0

    def dots(self, rows: int, columns: int, size: int) -> float:
        """Cycles for one step of a tile of dot products, whose operands are loaded."""
        loads = (rows + columns) * self.crossing * self.converted(size)
        return self.step(rows * columns, loads, min(rows, columns))

    def beside(self, busy: float, moving: Sequence[float]) -> float:
        """Cycles of arithmetic while lines come into each cache.

        Between outer caches they are prefetched, and overlap as loads do; into the
        first one and from memory they overlap in part.
        """
        near = hypot_of(busy, *moving[1:-1], power=_PORTS)
        return hypot(near, *moving[:1], *moving[1:][-1:])

    def step(self, sums: int, loads: float, operands: int) -> float:
        """Cycles for multiply-adds to sums in registers, beside loads.

        Each waits for the one before it. Sums for which no register is left, beside
        those for operands and a factor, are stored and loaded again.
        """
        spilled = max(0, sums + operands + 1 - self.registers)
        busy = hypot_of(sums / self.products, loads / self.loads, power=_PORTS)
        return max(busy, self.latency) + 2.0 * spilled


def core_of(target: Target | None, dtype: DType) -> Core:
    """A core of a target, for arithmetic in a type."""
    target = target or _ANY
    return modelled(machine.of(target), target, dtype)


@cache
def modelled(found: Machine, target: Target, dtype: DType) -> Core:
    """A core of a machine that runs code for a target."""
    clock, threads, vector = found.clock, target.threads, found.vector_bytes
    memory = min(found.memory_bandwidth, found.memory_bandwidth_all / threads)
    rates = [*(held.bandwidth for held in found.caches[1:]), memory]
    rate = found.fma_rate(dtype.name) or found.fma_rate()
    size = dtype.bytes if found.fma_rate(dtype.name) else 4
    levels = tuple(
        Level(held, held.bytes / min(held.shared_by, threads), (rate or clock) / clock)
        for held, rate in zip(found.caches, rates, strict=True)
    )
    first = found.caches[0].bandwidth if found.caches else 0.0
    return Core(
        clock=clock,
        lanes=target.lanes(dtype.bits),
        vector=target.vector_bits // 8,
        registers=target.vector_registers,
        addresses=found.general_registers // 2,
        products=max(rate / clock / 2 / (vector / size), 0.5),
        latency=found.fma_latency * clock or 4.0,
        loads=max(first / clock / vector, 1.0),
        levels=levels,
        threads=threads,
    )
