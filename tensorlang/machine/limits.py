"""What limits a kernel: its work, and the rates of the machine.

The work is that of the definition, and bytes are those that must move: each parameter
once. Rates of a CPU are those that the machine's probe measured, else published ones;
those of a GPU are of its data sheet. They are optimistic: data may come from the
nearest cache that could hold all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tensorlang import machine
from tensorlang.errors import IRError
from tensorlang.frozen import frozen
from tensorlang.ir.cost import cost_at
from tensorlang.ir.nodes import Function
from tensorlang.machine.description import Machine
from tensorlang.machine.gpus import Gpu, gpu_of
from tensorlang.targets import Target

_NO_GPU: Final = "the rates of this GPU are not known"
_HALVES: Final = frozenset(("f16", "bf16"))


@frozen
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


@frozen
class Limit:
    """A rate of the machine, in units per second, and how much of it a call needs.

    Attributes:
        name: What has the rate: an instruction, a cache or the memory.
        rate: Units per second.
        unit: The unit.
        amount: How many units a call needs.
        source: What the rate is: `measured`, or `published`.
    """

    name: str
    rate: float
    unit: str
    amount: int
    source: str

    @property
    def seconds(self) -> float:
        """The least time of a call."""
        return self.amount / self.rate


@frozen
class Limits:
    """The limits of a kernel.

    Attributes:
        work: The work of a call; None if data decides.
        known: The limits, arithmetic first; none if there are no rates.
        missing: Why there are none; else empty.
        measured: Seconds of a call by the tuned record; 0 without one.
    """

    work: Work | None
    known: Sequence[Limit] = ()
    missing: str = ""
    measured: float = 0.0

    @property
    def tightest(self) -> Limit | None:
        """The limit that applies, if there are any."""
        return max(self.known, key=lambda limit: limit.seconds, default=None)

    @property
    def is_measured(self) -> bool:
        """Whether all rates were measured."""
        return bool(self.known) and all(
            each.source == "measured" for each in self.known
        )

    @property
    def reached(self) -> float:
        """The part of a measured limit that the record reaches; 0 if unknown."""
        tightest = self.tightest if self.is_measured else None
        return tightest.seconds / self.measured if tightest and self.measured else 0.0

    @property
    def said(self) -> str:
        """What limits a call, in words."""
        return ", ".join(self._said())

    def _said(self) -> Iterator[str]:
        if self.tightest:
            least, source = self.tightest.seconds * 1e6, self.tightest.source
            yield f"{self.tightest.name}: {least:,.1f} µs a call at the {source} rate"
        else:
            yield self.missing
        if self.reached > 1:
            yield "not known well enough: a call was measured below it"
        elif self.reached:
            yield f"{self.reached:.0%} of it reached"
        if self.work:
            yield f"{self.work.intensity:.3g} operations per byte"


def work_of(function: Function, sizes: Mapping[str, int]) -> Work | None:
    """The work of a definition; None if data decides."""
    try:
        return Work(*cost_at(function, sizes))
    except IRError:
        return None


def limits_of(
    function: Function, sizes: Mapping[str, int], target: Target, measured: float = 0.0
) -> Limits:
    """The limits of a definition on a target, of which a call was measured or not."""
    work = work_of(function, sizes)
    if work is None:
        return Limits(None, (), "the work depends on data", measured)
    names = {p.buffer.dtype.name for p in function.params if p.buffer.dtype.is_float}
    if target.model == "simt":
        gpu = gpu_of(target)
        known = list(_of_gpu(gpu, names, work)) if gpu else []
        return Limits(work, known, "" if known else _NO_GPU, measured)
    found = machine.of(target)
    threads = min(target.threads, found.cores)
    limits = [_arithmetic(found, threads, names, work), _memory(found, threads, work)]
    return Limits(work, [limit for limit in limits if limit], "", measured)


def _of_gpu(gpu: Gpu, dtypes: set[str], work: Work) -> Iterator[Limit]:
    """The limits of a GPU's data sheet: tensor cores for halves, none for doubles."""
    rate = gpu.processors * gpu.clock * gpu.singles
    if work.floats and dtypes and dtypes <= _HALVES:
        yield Limit("tensor cores", gpu.peak, "FLOP", work.floats, "published")
    elif work.floats and "f64" not in dtypes:
        yield Limit("fma f32", 2 * rate, "FLOP", work.floats, "published")
    elif work.integers and not work.floats:
        yield Limit("integers", rate, "OP", work.integers, "published")
    yield Limit("memory", gpu.memory, "B", work.bytes, "published")


def _arithmetic(
    found: Machine, threads: int, dtypes: set[str], work: Work
) -> Limit | None:
    """The fastest instruction for any of the types, or for integers; None without."""
    have = [i for i in found.instructions if (i.kind == "integer") != bool(work.floats)]
    able = [i for i in have if i.dtype in dtypes] or [
        i for i in have if i.dtype in ("f32", "u32")
    ]
    amount = work.floats or work.integers
    if not (able and amount):
        return None
    best = max(able, key=lambda known: known.rate)
    needed = {f"{each.kind} {each.dtype}" for each in able}
    needed |= {"scaling"} if threads > 1 else set()
    rate = best.rate * (min(threads, found.scaling) if threads > 1 else 1)
    name, unit = f"{best.kind} {best.dtype}", "FLOP" if work.floats else "OP"
    return Limit(name, rate, unit, amount, _source(found, needed))


def _memory(found: Machine, threads: int, work: Work) -> Limit:
    """The nearest cache that holds all data, else the memory."""
    for held in found.caches:
        if work.bytes <= held.bytes * -(-threads // held.shared_by):
            name, rate = f"L{held.level}", held.bandwidth * threads
            return Limit(name, rate, "B", work.bytes, _source(found, {name}))
    rate = min(found.memory_bandwidth * threads, found.memory_bandwidth_all)
    needed = {"memory_bandwidth", "memory_bandwidth_all"}
    return Limit("memory", rate, "B", work.bytes, _source(found, needed))


def _source(found: Machine, needed: set[str]) -> str:
    return "measured" if needed <= {*found.measured} else "published"
