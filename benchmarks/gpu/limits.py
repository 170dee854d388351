"""`python -m benchmarks.gpu.limits`: measure a GPU's limits; print JSON at the end.

Arithmetic limits are measured with kernels that do nothing else, in registers, with
every multiprocessor fully occupied: chains of fused multiply-adds, and Threefry's mix
of additions, rotations and exclusive ors. The memory limit is a driver copy of much
more than the L2 cache holds. The tensor core limit is computed: results per cycle in
NVIDIA's data sheets, times the clock read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
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
FLOATS, INTEGERS = 2, 3  # operations per step
_BLOCKS = 8 * 64  # blocks per multiprocessor, to make the tail negligible
_COPIED = 1 << 30  # bytes
_ROUNDS = 9
# architecture -> 16-bit tensor core operations per cycle and multiprocessor
TENSOR_CORES = {"sm_80": 2048, "sm_90a": 4096, "sm_100": 8192}


def limits(target: Target) -> dict[str, Any]:
    """Operations and bytes per second: `floats`, `integers`, `copy`, `products`.

    `products` is 0 if the clock is unknown; `state` describes the clocks.

    Raises:
        DeviceError: the GPU fails, or has less than three GiB of free memory.
    """
    from tensorlang.tuner.measurement.telemetry import described
    from tensorlang.tuner.measurement.timers import CudaTimer

    timer = CudaTimer(target)
    count = _BLOCKS * target.threads * THREADS
    calls = {
        "floats": _chains(timer, chains_of_floats(count), target, "float32"),
        "integers": _chains(timer, chains_of_integers(count), target, "uint32"),
        "copy": timer.copy(_COPIED),
    }
    found = timer.against(calls, _ROUNDS)
    seconds = {name: median(timing.samples) for name, timing in found.items()}
    states = [state for timing in found.values() for state in timing.states]
    clocks = [state.sm_mhz for state in states if state is not None]
    clock = median(clocks) * 1e6 if clocks else 0.0
    return {
        "floats": FLOATS * STEPS * count / seconds["floats"],
        "integers": INTEGERS * STEPS * count / seconds["integers"],
        "copy": 2 * _COPIED / seconds["copy"],
        "products": TENSOR_CORES.get(target.arch, 0) * target.threads * clock,
        "state": described(states),
        "device": timer.measured(()).partition(";")[0],
    }


def chains_of_floats(count: int) -> Any:
    """A function of `count` elements with chains of multiply-adds."""
    half = Const(0.5, f32)
    return _function("float_limit", count, "f32", lambda x, _: fma(x, half, half))


def chains_of_integers(count: int) -> Any:
    """The same for Threefry's mix."""

    def step(x: Expr, n: int) -> Expr:
        turned = rotl(x + Const(0x9E3779B9 + n, u32), Const(13, u32))
        return turned ^ Const(n * 77 + 1, u32)

    return _function("integer_limit", count, "u32", step)


def _function(
    name: str, count: int, kind: str, step: Callable[[Expr, int], Expr]
) -> Any:
    x = placeholder((count,), kind, "x")

    def chain(i: Any) -> Expr:
        value: Expr = x[i]
        for n in range(STEPS):
            value = named(f"step_{n}", step(value, n))
        return value

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
    print(json.dumps(limits(get(parser.parse_args().target))))


if __name__ == "__main__":
    main()
