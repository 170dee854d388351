"""A probe of this machine, of about two seconds: what `tensorlang.machine` describes.

Each number is the best of many short runs, so that other programs disturb it little.
Data caches and memory are read in order. Matrix instructions, and dot products of
processors without AVX-512 or unknown to LLVM, stay as published.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Final

from tensorlang import machine
from tensorlang.errors import CodegenError
from tensorlang.instructions import DOT_PRODUCTS, DotProduct
from tensorlang.machine import Cache, Instruction, Machine
from tensorlang.runtime.cpu import llvm, pool
from tensorlang.targets import host
from tensorlang.tuner.limits import loops

_SHOT: Final = 1e-3  # seconds of a run
_SHOTS: Final = 25
_ROUNDS: Final = 8  # of runs on all cores
_LOADS: Final = 16  # of 64 bytes each per iteration
_LEAST: Final = 64 << 20  # bytes to read from memory
_MOST: Final = 512 << 20
_WAKES: Final = 30
_PAUSE: Final = 3e-3  # until idle workers sleep
_FLOATS: Final = {"f32": ("float", 4), "f64": ("double", 8), "f16": ("half", 2)}
# LLVM's names of types, and factors of dot products
_TYPES: Final = {"f32": "float", "i32": "i32", "bf16": "bfloat", "i8": "i8", "u8": "i8"}
_FACTORS: Final = {"bf16": "bfloat 0xR3F00", "i8": "i8 1"}


def probe() -> Machine:
    """Measure this machine; `machine.keep` keeps the result."""
    known = machine.published(host())
    numbers = _Probe(known)
    clock = 64 * numbers.rate("clock")
    instructions = tuple(map(numbers.instruction, known.instructions))
    caches = tuple(map(numbers.cache, known.caches))
    one, together = numbers.memory()
    wake = _wake() if known.cores > 1 else known.wake
    names = ["clock", "scaling", "memory_bandwidth", "memory_bandwidth_all"]
    names += [f"{i.kind} {i.dtype}" for i in known.instructions if numbers.runs(i)]
    names += [f"L{held.level}" for held in caches]
    return replace(
        known,
        clock=clock,
        instructions=instructions,
        caches=caches,
        memory_bandwidth=one,
        memory_bandwidth_all=max(one, together),
        wake=wake,
        scaling=numbers.scaling(),
        measured=(*names, *(["wake"] if known.cores > 1 else [])),
    )


class _Probe:
    """The loops for one machine."""

    def __init__(self, known: Machine) -> None:
        self._known = known
        self._chains = known.vector_registers * 3 // 4
        self._operations: dict[str, int] = {}
        texts = {"clock": loops.dependent()}
        declared = set()
        for held in known.instructions:
            found = _step(held, known)
            if not found:
                continue
            name, (vector, declaration, step, each) = _name(held), found
            chain = loops.chains(f"{name}_chain", vector, step, 1)
            if not _compiles(f"{chain}\n{declaration}"):
                continue
            declared.add(declaration)
            self._operations[name] = each
            texts[name] = loops.chains(name, vector, step, self._chains)
            texts[f"{name}_chain"] = chain
        self._spans = {f"load{at.level}": _inside(at, known) for at in known.caches}
        self._spans["memory"] = _beyond(known)
        self._spans["share"] = _power(self._spans["memory"] // known.cores)
        texts |= {name: _load(name, size) for name, size in self._spans.items()}
        text = "\n".join([*texts.values(), *sorted(declared)])
        self._loops = loops.Loops(text, list(texts))
        self._block = loops.aligned(max(self._spans.values()))

    def rate(self, name: str) -> float:
        """The most iterations per second on one core."""
        count = 1
        self._loops.alone(name, count, self._block)  # loads its code and the timer's
        while (spent := self._loops.alone(name, count, self._block)) < _SHOT / 4:
            count *= 4
        count = max(1, int(count * _SHOT / spent))
        return count / min(
            self._loops.alone(name, count, self._block) for _ in range(_SHOTS)
        )

    def runs(self, held: Instruction) -> bool:
        """Whether there is a loop for an instruction."""
        return _name(held) in self._operations

    def instruction(self, held: Instruction) -> Instruction:
        """Its rate and latency, if there is a loop for it."""
        if not self.runs(held):
            return held
        name = _name(held)
        each = self._chains * self._operations[name]
        latency = 1 / self.rate(f"{name}_chain")
        return replace(held, rate=each * self.rate(name), latency=latency)

    def cache(self, held: Cache) -> Cache:
        """Its bandwidth."""
        self._block[: self._spans[f"load{held.level}"]].sum()  # into this cache
        return replace(held, bandwidth=64 * _LOADS * self.rate(f"load{held.level}"))

    def memory(self) -> tuple[float, float]:
        """Bytes per second from memory: of one core, and of all."""
        size, share = self._spans["memory"], self._spans["share"]
        count = size // (64 * _LOADS)
        times = [
            self._loops.alone("memory", count, self._block) for _ in range(_ROUNDS)
        ]
        one, cores = size / min(times), self._known.cores
        return one, cores * share / self._together("share", share, share)

    def scaling(self) -> float:
        """FMA on all cores, as a multiple of one core's."""
        cores = self._known.cores
        count = int(5 * _SHOT * self.rate("fma_f32"))  # shorter than a time slice
        small = self._chains * self._known.vector_bytes
        one, spent = (
            min(self._loops.run("fma_f32", count, n, small) for _ in range(_SHOTS))
            for n in (1, cores)
        )
        return min(float(cores), cores * one / spent)

    def _together(self, name: str, size: int, span: int) -> float:
        count, cores = size // (64 * _LOADS), self._known.cores
        return min(self._loops.run(name, count, cores, span) for _ in range(_ROUNDS))


def _name(held: Instruction) -> str:
    return f"{held.kind}_{held.dtype}"


_Step = tuple[str, str, Callable[[int], list[str]], int]


def _step(held: Instruction, known: Machine) -> _Step | None:
    """Vector, declaration, instructions and operations of a chain's step."""
    if held.kind == "fma" and held.dtype in _FLOATS:
        scalar, size = _FLOATS[held.dtype]
        lanes = known.vector_bytes // size
        vector = f"<{lanes} x {scalar}>"
        called, factors = f"llvm.fma.v{lanes}f{8 * size}", vector
        value, each = f"{scalar} 0.5", 2 * lanes
        order = "{v} %x{n}, {v} {half}, {v} {half}"
    elif held.kind == "integer":
        return _mix(known.vector_bytes // 4)
    elif held.kind == "dot" and (row := _dot(held.dtype)):
        called, each = row.llvm, 2 * row.lanes * row.group
        vector = f"<{row.lanes} x {_TYPES[row.sums]}>"
        factors = f"<{row.lanes * row.group} x {_TYPES[row.a]}>"
        value, order = _FACTORS[row.b], "{v} %x{n}, {f} {half}, {f} {half}"
    else:
        return None
    declaration = f"declare {vector} @{called}({vector}, {factors}, {factors})"

    def step(n: int) -> list[str]:
        given = order.format(v=vector, f=factors, n=n, half=f"splat ({value})")
        return [f"  %y{n} = call {vector} @{called}({given})"]

    return vector, declaration, step, each


def _mix(lanes: int) -> _Step:
    """Threefry's mix: an addition, a rotation and an exclusive or."""
    v = f"<{lanes} x i32>"
    rotate = f"{v} @llvm.fshl.v{lanes}i32"

    def step(n: int) -> list[str]:
        return [
            f"  %a{n} = add {v} %x{n}, splat (i32 {2654435761 + n})",
            f"  %r{n} = call {rotate}({v} %a{n}, {v} %a{n}, {v} splat (i32 13))",
            f"  %y{n} = xor {v} %r{n}, splat (i32 {n + 77})",
        ]

    return v, f"declare {rotate}({v}, {v}, {v})", step, 3 * lanes


def _dot(dtype: str) -> DotProduct | None:
    """The widest dot product of this machine with second factors of a type."""
    rows = (row for row in DOT_PRODUCTS.values() if row.fits(host().features))
    return next((row for row in rows if row.b == dtype), None)


def _compiles(text: str) -> bool:
    """Whether LLVM knows the instructions: it may be older than the processor."""
    try:
        llvm.compile_module(text)
    except CodegenError:
        return False
    return True


def _load(name: str, size: int) -> str:
    """Loads from `size` bytes, a power of two, again and again."""
    body = [f"  %at = and i64 %i, {size // (64 * _LOADS) - 1}"]
    body += [f"  %start = mul i64 %at, {64 * _LOADS}"]
    for n in range(_LOADS):
        body += [f"  %o{n} = add i64 %start, {64 * n}"]
        body += [f"  %p{n} = getelementptr i8, ptr %out, i64 %o{n}"]
        body += [f"  %v{n} = load volatile <16 x i32>, ptr %p{n}, align 64"]
    return loops.HEAD.format(name=name, entry="", body="\n".join(body), exit="")


def _power(size: int) -> int:
    """The largest power of two that is at most `size`."""
    return 1 << max(12, size.bit_length() - 1)


def _inside(held: Cache, known: Machine) -> int:
    """Bytes that fill half a cache, and no more than a few times the level before."""
    before = known.cache(held.level - 1)
    half = held.bytes // 2
    return _power(min(half, 8 * before.bytes) if before else half)


def _beyond(known: Machine) -> int:
    """Bytes that no cache holds, as far as there is memory for it."""
    last = known.caches[-1].bytes if known.caches else 0
    size = min(max(4 * last, _LEAST), _MOST)
    return _power(min(size, known.memory_bytes // 8) if known.memory_bytes else size)


_NOTHING: Final = "define i32 @nothing(ptr %a, i64 %t, i64 %n, ptr %b) { ret i32 0 }"


def _wake() -> float:
    """Seconds to launch a kernel that does nothing on two threads, one asleep."""
    library = llvm.link([llvm.compile_quickly(_NOTHING)], ["nothing"])
    number = ctypes.c_int64
    kind = (ctypes.c_void_p, ctypes.c_void_p, number, number, ctypes.c_bool)
    launch = ctypes.CFUNCTYPE(ctypes.c_int32, *kind)(
        pool.symbols()["tensorlang_launch"]
    )
    times = []
    pool.always_share()
    try:
        for _ in range(_WAKES):
            time.sleep(_PAUSE)
            start = time.perf_counter()
            launch(library["nothing"], None, 2, 2, False)
            times.append(time.perf_counter() - start)
    finally:
        pool.always_share(False)
    return median(times)
