"""What limits a kernel: its work, the machine's measured rates, and the time reached.

The work is that of the definition, and bytes are those that must move: each parameter
once. The limits are those that the machine's probe measured; they are optimistic: data
may come from the nearest cache that could hold all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tensorlang import machine
from tensorlang.errors import IRError
from tensorlang.ir.cost import cost_at
from tensorlang.ir.nodes import Function
from tensorlang.machine import Machine
from tensorlang.targets import Target

NOT_MEASURED: Final = "not measured: run tlang machine --probe"
_ON_GPUS: Final = "not measured: tlang machine probes CPUs"
_WIDTH: Final = 300  # of the plot
_HEIGHT: Final = 160


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of a call, and the bytes that it must move."""

    floats: int
    integers: int
    read: int
    written: int

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """Floating-point operations per byte; integer ones if there are no others."""
        return (self.floats or self.integers) / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A rate of the machine, in units per second, and how much of it a call needs."""

    name: str
    rate: float
    unit: str
    amount: int

    @property
    def seconds(self) -> float:
        """The least time of a call."""
        return self.amount / self.rate


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a kernel."""

    work: Work | None  # work of a call; None if data decides
    known: Sequence[Limit] = ()  # measured limits
    missing: str = ""  # why there are no others; else empty
    measured: float = 0.0  # seconds of a call by the tuned record; 0 without one

    @property
    def tightest(self) -> Limit | None:
        """The limit that applies, if all are known."""
        if self.missing or not self.known:
            return None
        return max(self.known, key=lambda limit: limit.seconds)

    @property
    def reached(self) -> float:
        """The part of the limit that the record reaches; 0 if unknown."""
        tightest = self.tightest
        return tightest.seconds / self.measured if tightest and self.measured else 0.0


def work_of(function: Function, sizes: Mapping[str, int]) -> Work | None:
    """The work of a definition; None if data decides."""
    try:
        return Work(*cost_at(function, sizes))
    except IRError:
        return None


def limits_of(
    function: Function, sizes: Mapping[str, int], target: Target, measured: float
) -> Limits:
    """The limits of a definition on a target."""
    work = work_of(function, sizes)
    if work is None:
        return Limits(None, (), "the work depends on data", measured)
    if target.model == "simt":
        return Limits(work, (), _ON_GPUS, measured)
    found = machine.of(target)
    threads = min(target.threads, found.cores)
    known = [_memory(found, threads, work.bytes)]
    missing = ""
    if work.floats:
        kinds = {
            p.buffer.dtype.name for p in function.params if p.buffer.dtype.is_float
        }
        known.insert(0, _arithmetic(found, threads, kinds, work.floats))
    elif work.integers:
        missing = "integer operations have no measured rate"
    if None in known:
        missing = NOT_MEASURED
    return Limits(work, [limit for limit in known if limit], missing, measured)


def _arithmetic(
    found: Machine, threads: int, dtypes: set[str], amount: int
) -> Limit | None:
    """The fastest instruction for any of the types; None if one is not measured."""
    own = dtypes & {known.dtype for known in found.instructions} or {"f32"}
    able = [known for known in found.instructions if known.dtype in own]
    if not able or not {f"{i.kind} {i.dtype}" for i in able} <= {*found.measured}:
        return None
    if threads > 1 and "scaling" not in found.measured:
        return None
    best = max(able, key=lambda known: known.rate)
    rate = best.rate * (min(threads, found.scaling) if threads > 1 else 1)
    return Limit(f"{best.kind} {best.dtype}", rate, "FLOP", amount)


def _memory(found: Machine, threads: int, amount: int) -> Limit | None:
    """The nearest cache that holds all data, else the memory; None if not measured."""
    for held in found.caches:
        if amount <= held.bytes * -(-threads // held.shared_by):
            name, rate = f"L{held.level}", held.bandwidth * threads
            return Limit(name, rate, "B", amount) if name in found.measured else None
    if not {"memory_bandwidth", "memory_bandwidth_all"} <= {*found.measured}:
        return None
    rate = min(found.memory_bandwidth * threads, found.memory_bandwidth_all)
    return Limit("memory", rate, "B", amount)


@dataclass(frozen=True, slots=True)
class Roofline:
    """A plot of operations per second by operations per byte, both logarithmic.

    Attributes:
        roof: The points of the limits, in the picture's coordinates.
        point: The call: as fast as measured, or as its limit if it was not.
        across: Decades of the intensity with their places; `up`: those of the rate.
    """

    roof: Sequence[tuple[float, float]]
    point: tuple[float, float]
    across: Sequence[tuple[float, float]]
    up: Sequence[tuple[float, float]]
    width: int = _WIDTH
    height: int = _HEIGHT


def roofline(limits: Limits) -> Roofline | None:
    """The plot of a kernel's limits; None without measured ones."""
    work, tightest = limits.work, limits.tightest
    if work is None or tightest is None or not (work.floats and work.bytes):
        return None
    peak, stream = (limit.rate for limit in limits.known)
    ridge = peak / stream
    rate = work.floats / (limits.measured or tightest.seconds)
    low, high = _decades(ridge / 10, work.intensity)
    bottom, top = _decades(peak / 10, peak, rate)

    def at(intensity: float, speed: float) -> tuple[float, float]:
        x = (math.log10(intensity) - low) / (high - low) * _WIDTH
        y = (top - math.log10(speed)) / (top - bottom) * _HEIGHT
        return round(x, 1), round(y, 1)

    start = max(10.0**low, 10.0**bottom / stream)
    roof = [at(start, start * stream), at(ridge, peak), at(10.0**high, peak)]
    across = [(10.0**n, at(10.0**n, peak)[0]) for n in range(low, high + 1)]
    up = [(10.0**n, at(ridge, 10.0**n)[1]) for n in range(bottom, top + 1)]
    return Roofline(roof, at(work.intensity, rate), across, up)


def _decades(*values: float) -> tuple[int, int]:
    """The exponents of the powers of ten around some numbers."""
    logarithms = [math.log10(value) for value in values]
    return math.floor(min(logarithms)), math.floor(max(logarithms)) + 1
