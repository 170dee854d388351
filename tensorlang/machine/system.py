"""This machine as the system publishes it, without measuring anything.

Sizes come from `/sys` and the clock from `/proc/cpuinfo`. Rates follow from the clock
and from what vendors publish for an architecture: bits of FMA per cycle, its latency,
and bytes loaded per cycle from each cache. (Intel's Optimization Reference Manual,
AMD's and Arm's Software Optimization Guides; uops.info.)
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tensorlang import hardware
from tensorlang.instructions import DOT_PRODUCTS
from tensorlang.machine.description import Cache, Instruction, Machine
from tensorlang.targets import Target, host

_CPU0: Final = Path("/sys/devices/system/cpu/cpu0")
_USUAL_CLOCK: Final = 3e9
_MEMORY: Final = 12e9  # of one core; several cores reach a multiple of it
_MEMORY_CORES: Final = 4
_WAKE: Final = 20e-6  # a futex's wake-up


class Core(NamedTuple):
    """What an architecture does in a cycle; `fma_bits` of products."""

    fma_bits: int
    latency: int
    l1: int
    l2: int
    l3: int


_USUAL: Final = Core(512, 4, 64, 32, 12)
_CORES: Final = {
    "zen": Core(256, 5, 32, 32, 16),
    "zen2": Core(512, 5, 64, 32, 16),
    "zen3": Core(512, 4, 64, 32, 24),
    "zen4": Core(512, 4, 64, 32, 24),
    "zen5": Core(1024, 4, 128, 64, 24),
    "haswell": Core(512, 5, 64, 32, 16),
    "broadwell": Core(512, 5, 64, 32, 16),
    "skylake": Core(512, 4, 64, 32, 16),
    "skylakex": Core(1024, 4, 128, 48, 10),
    "icelake": Core(512, 4, 128, 48, 16),
    "tigerlake": Core(512, 4, 128, 48, 16),
    "icelakex": Core(1024, 4, 128, 48, 10),
    "sapphirerapids": Core(1024, 4, 128, 48, 10),
    "emeraldrapids": Core(1024, 4, 128, 48, 10),
    "graniterapids": Core(1024, 4, 128, 48, 10),
    "alderlake": Core(512, 4, 96, 48, 16),
    "raptorlake": Core(512, 4, 96, 48, 16),
}
_GENERAL: Final = {"x86_64": 16, "aarch64": 31}  # registers, by architecture
_BITS: Final = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "i8": 8, "u32": 32}
# feature of the CPU -> the instruction it adds, beside dot products
_EXTRAS: Final = {
    "avx512_fp16": ("fma", "f16"),
    "asimdhp": ("fma", "f16"),
    "bf16": ("dot", "bf16"),
    "amx_bf16": ("matrix", "bf16"),
    "amx_fp16": ("matrix", "f16"),
    "amx_int8": ("matrix", "i8"),
}
# operations per cycle: 16 x 16 sums of 32 bf16 or 64 i8 products in 16 cycles
_MATRIX: Final = {"bf16": 1024, "f16": 1024, "i8": 2048}
_MATRIX_LATENCY: Final = 52


def published(target: Target | None = None) -> Machine:
    """A CPU target (default: this machine's) with the figures of its architecture.

    Of a target that is not this machine only what the target says is used.
    """
    target = target or host()
    core = next((_CORES[at] for at in target.cpu.split("-") if at in _CORES), _USUAL)
    own = target.fingerprint == host().fingerprint
    clock, levels, cores, memory, threads = _USUAL_CLOCK, [], target.threads, 0, 1
    if own:
        clock = clock_of(_read(Path("/proc/cpuinfo")), _read(_MAX_CLOCK))
        levels = caches_of(_CPU0 / "cache", _threads_per_core())
        cores, memory, threads = hardware.cores(), _memory_bytes(), _threads_per_core()
    rates = {1: core.l1, 2: core.l2, 3: core.l3}
    return Machine(
        name=target.fingerprint,
        device=target.device,
        cores=cores,
        threads_per_core=threads,
        clock=clock,
        vector_bytes=target.vector_bits // 8,
        vector_registers=target.vector_registers,
        general_registers=_GENERAL.get(target.arch, 16),
        instructions=_instructions(target, core, clock),
        caches=tuple(
            Cache(*level, bandwidth=clock * rates.get(level[0], core.l3))
            for level in levels or _sizes(target)
        ),
        memory_bytes=memory,
        memory_bandwidth=_MEMORY,
        memory_bandwidth_all=_MEMORY * min(_MEMORY_CORES, cores),
        wake=_WAKE,
        scaling=float(cores),
    )


def _instructions(target: Target, core: Core, clock: float) -> tuple[Instruction, ...]:
    have = [("fma", "f32"), ("fma", "f64"), ("integer", "u32")]
    rows = [row for row in DOT_PRODUCTS.values() if row.fits(target.features)]
    have += [("dot", row.b) for row in rows]
    have += [held for name, held in _EXTRAS.items() if name in target.features]
    made = []
    for kind, dtype in dict.fromkeys(have):
        each, latency = 2 * core.fma_bits // _BITS[dtype], core.latency
        if kind == "matrix":
            each, latency = _MATRIX[dtype], _MATRIX_LATENCY
        if kind == "integer":
            each, latency = core.fma_bits // _BITS[dtype], 1
        made.append(Instruction(kind, dtype, clock * each, latency / clock))
    return tuple(made)


_MAX_CLOCK: Final = _CPU0 / "cpufreq/cpuinfo_max_freq"


def clock_of(cpuinfo: str, maximum: str) -> float:
    """Cycles per second: the maximum in kHz if known, else the current ones."""
    if maximum.strip().isdigit():
        return int(maximum) * 1e3
    found = re.search(r"^cpu MHz\s*:\s*([\d.]+)", cpuinfo, re.MULTILINE)
    return float(found[1]) * 1e6 if found and float(found[1]) else _USUAL_CLOCK


Level = tuple[int, int, int, int, int]


def caches_of(folder: Path, threads_per_core: int = 1) -> list[Level]:
    """Level, bytes, line, ways and cores that share each data cache, from `/sys`."""
    found: dict[int, Level] = {}
    for index in sorted(folder.glob("index*")):
        level, size = _read(index / "level").strip(), _read(index / "size").strip()
        data = _read(index / "type").strip() in ("Data", "Unified")
        if not (data and level.isdigit() and re.fullmatch(r"\d+[KMG]?", size)):
            continue
        line = _number(_read(index / "coherency_line_size"))
        ways = _number(_read(index / "ways_of_associativity"))
        shared = count_of(_read(index / "shared_cpu_list")) // threads_per_core
        number, bytes_ = int(level), hardware.bytes_of(size)
        found[number] = (number, bytes_, line or 64, ways, max(1, shared))
    return [found[level] for level in sorted(found)]


def _sizes(target: Target) -> list[Level]:
    """The caches of a target that publishes only sizes."""
    sizes = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    return [
        (level, size, target.cache_line, 0, 1)
        for level, size in enumerate(sizes, 1)
        if size
    ]


def count_of(listed: str) -> int:
    """The number of processors in a list such as `0-3,8`; 1 if it is empty."""
    total = 0
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", listed):
        total += int(last or first) - int(first) + 1
    return max(1, total)


@cache
def _threads_per_core() -> int:
    return count_of(_read(_CPU0 / "topology/thread_siblings_list"))


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def _number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
