"""Machine limits: arithmetic in registers, memory reads and writes.

The memory limits are kernels without other work, launched like ours.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from benchmarks.ceilings import Loops, registers
from benchmarks.work import Limit
from tensorlang import build, ir, targets
from tensorlang.ir import Const, Function, compute, function, placeholder, size, u32
from tensorlang.schedules.library import schedules_for
from tensorlang.schedules.streaming import Stream, stream
from tensorlang.scheduling import Knobs, Schedule

_STREAM: Final = Stream(lanes=64, chunk=64, nontemporal=True)
_STEPS: Final = 4_000_000  # register loop iterations: 12 ms hide the start of threads
_loops = cache(Loops)


def multiply_adds(
    floating: int, threads: int, floor: float | None = None, rate: int = 1
) -> Limit:
    """Peak rate of fused multiply-adds in registers; `rate` multiplies it."""
    lanes, chains = registers()
    done = 2 * lanes * chains * _STEPS * threads * rate

    def make() -> Callable[[], object]:
        return lambda: _loops().run("fma", _STEPS, threads, chains * lanes * 4)

    return Limit("FMA peak", make, floating / done, floor)


def integer_mix(operations: int, threads: int, floor: float | None = None) -> Limit:
    """Threefry's mix of adds, rotations and exclusive ors in registers."""
    lanes, chains = registers()
    done = 3 * lanes * chains * _STEPS * threads

    def make() -> Callable[[], object]:
        return lambda: _loops().run("mix", _STEPS, threads, chains * lanes * 4)

    return Limit("integer limit", make, operations / done, floor)


def fill(count: int, floor: float | None = None) -> Limit:
    """Write `count` words with non-temporal stores."""

    def make() -> Callable[[], object]:
        n = size("n")
        seven = compute((n,), lambda i: Const(7, u32), "filled")  # noqa: ARG005
        s = Schedule(function("fill", [], [seven]), target=targets.host())
        stream(s, s.loops("filled")[0], _STREAM)
        s.hint("filled", "filled", "nontemporal")
        kernel, out = build(s), np.empty(count, np.uint32)
        return lambda: kernel.launch(out)

    return Limit("fill", make, 1.0, floor)


def read(count: int, floor: float | None = None) -> Limit:
    """Read `count` f32 elements once."""

    def make() -> Callable[[], object]:
        n = size("n")
        x = placeholder((n,), "f32", "x")
        k = ir.reduce_axis(n, "k")
        total = compute((1,), lambda i: ir.sum(x[k], k), "total")  # noqa: ARG005
        kernel = build(_scheduled(function("read", [x], [total])))
        given, out = np.ones(count, np.float32), np.empty(1, np.float32)
        return lambda: kernel.launch(given, out)

    return Limit("read", make, 1.0, floor)


def update(count: int, floor: float | None = None) -> Limit:
    """Adam's memory traffic: reads four f32 arrays, writes three of them in place."""

    def make() -> Callable[[], object]:
        n = size("n")
        grad = placeholder((n,), "f32", "grad")
        held = tuple(placeholder((n,), "f32", name) for name in ("param", "m", "v"))

        def body(i: Any) -> Any:
            return tuple(x[i] + grad[i] for x in held)

        new = compute((n,), body, ("next_param", "next_m", "next_v"))
        pairs = tuple(zip(held, new, strict=True))
        kernel = build(_scheduled(function("update", [grad], [], inplace=pairs)))
        arrays = [np.ones(count, np.float32) for _ in range(4)]
        return lambda: kernel.launch(*arrays)

    return Limit("4-read 3-write stream", make, 1.0, floor)


def _scheduled(func: Function) -> Schedule:
    """The function with the generic schedule."""
    (entry,) = schedules_for("generic", model="cpu")
    return entry.run(func, targets.host(), Knobs())
