"""`python -m benchmarks.gpu.limits`: measure a GPU's limits; print JSON at the end.

Arithmetic limits are measured with kernels that do nothing else, in registers, with
every multiprocessor fully occupied: chains of fused multiply-adds, and of integer
operations for both pipes that take them, half rotations and exclusive ors and half
multiply-adds, so that every issue slot is used. The memory limit is a copy of much more
than the L2 cache holds. The tensor core limit is computed: results per cycle in
NVIDIA's data sheets, times the clock read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import reduce
from operator import add
from statistics import median
from typing import Any

from tensorlang.ir import compute, named, placeholder
from tensorlang.ir.definitions.assembly import function
from tensorlang.ir.dtypes import f32, u32
from tensorlang.ir.natives import fma, rotl
from tensorlang.ir.nodes import Const, Expr
from tensorlang.runtime import build
from tensorlang.scheduling import Schedule
from tensorlang.targets import Target, get

STEPS = 256  # per thread
THREADS = 256  # per block
FLOATS, INTEGERS = 2, 4  # operations per step
_BLOCKS = 8 * 64  # blocks per multiprocessor, to make the tail negligible
_COPIED = 1 << 30  # bytes
_ROUNDS = 9
# architecture -> 16-bit tensor core operations per cycle and multiprocessor
TENSOR_CORES = {"sm_80": 2048, "sm_90a": 4096, "sm_100": 8192}


def limits(target: Target, scale: int = 1) -> dict[str, Any]:
    """Operations and bytes per second: `floats`, `integers`, `copy`, `products`.

    `products` is 0 if the clock is unknown; `state` describes the clocks.

    Args:
        target: The GPU.
        scale: Divisor of the extents; 1 on a GPU, more for a rehearsal.

    Raises:
        DeviceError: the GPU fails, or has less than three GiB of free memory.
    """
    from tensorlang.tuner.measurement.telemetry import described
    from tensorlang.tuner.measurement.timers import CudaTimer

    timer = CudaTimer(target)
    count = max(_BLOCKS // scale, 1) * target.threads * THREADS
    copied = _COPIED // scale
    calls = {
        "floats": _chains(timer, chains_of_floats(count), target, "float32"),
        "integers": _chains(timer, chains_of_integers(count), target, "uint32"),
        "copy": timer.copy(copied),
    }
    found = timer.against(calls, _ROUNDS)
    seconds = {name: median(timing.samples) for name, timing in found.items()}
    states = [state for timing in found.values() for state in timing.states]
    clocks = [state.sm_mhz for state in states if state is not None]
    clock = median(clocks) * 1e6 if clocks else 0.0
    return {
        "floats": FLOATS * STEPS * count / seconds["floats"],
        "integers": INTEGERS * STEPS * count / seconds["integers"],
        "copy": 2 * copied / seconds["copy"],
        "products": TENSOR_CORES.get(target.arch, 0) * target.threads * clock,
        "state": described(states),
        "device": timer.measured(()).partition(";")[0],
    }


def chains_of_floats(count: int) -> Any:
    """A function of `count` elements with chains of multiply-adds."""
    half = Const(0.5, f32)
    return _function("float_limit", count, "f32", lambda x, _: fma(x, half, half))


def chains_of_integers(count: int) -> Any:
    """The same with integers: a chain for each of the two pipes, added at the end."""

    def turned(x: Expr, n: int) -> Expr:
        return rotl(x, Const(13, u32)) ^ Const(n * 77 + 1, u32)

    def squared(x: Expr, n: int) -> Expr:
        once = named(f"once_{n}", x * x + Const(0x9E3779B9 + 4 * n, u32))
        return once * once + Const(0x85EBCA6B + 4 * n, u32)

    return _function("integer_limit", count, "u32", turned, squared)


def _function(
    name: str, count: int, kind: str, *steps: Callable[[Expr, int], Expr]
) -> Any:
    """A function whose elements go through chains of steps, added up at the end."""
    x = placeholder((count,), kind, "x")

    def chain(i: Any) -> Expr:
        values: list[Expr] = [x[i] for _ in steps]
        for n in range(STEPS):
            for at, step in enumerate(steps):
                values[at] = named(f"step_{n}_{at}", step(values[at], n))
        return reduce(add, values)

    y = compute((count,), chain, name="y")
    s = Schedule(function(name, [x], [y]))
    (loop,) = s.loops("y")
    block, thread = s.split(loop, [None, THREADS])
    s.bind(block, "block.x")
    s.bind(thread, "thread.x")
    return s.function


def _chains(timer: Any, func: Any, target: Target, kind: str) -> Callable[[], object]:
    import numpy as np

    kernel = build(func, target)
    ones = np.ones(int(func.buffers[0].shape[0].value), kind)
    x, y = timer.keep([ones, ones])
    return lambda: kernel.launch(x, y)


def main() -> None:
    """Measure, and print the limits as the last line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.limits")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--scale", type=int, default=1)
    given = parser.parse_args()
    print(json.dumps(limits(get(given.target), given.scale)))


if __name__ == "__main__":
    main()
