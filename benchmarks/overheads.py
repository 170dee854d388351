"""Overheads: imports, small and first calls, new result arrays."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import Any

import numpy as np

from tensorlang import build
from tensorlang.ir import compute, function, placeholder, size
from tensorlang.ops import nn, random
from tensorlang.tuner.measurement.rounds import interleaved, paired_ratio

_IMPORT = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
_FIRST = """
import time; t = time.perf_counter()
import numpy as np
from tensorlang.ops import random
random.bits(random.key(0), (1000,))
print(time.perf_counter() - t)
"""
_COLD = """
import time
from tensorlang.ops import random
key = random.key(0)
t = time.perf_counter()
random.bits(key, (1000,))
print(time.perf_counter() - t)
"""
_COLD_BUILD = """
import time
import llvmlite.binding, jinja2, tensorlang.codegen.lower, tensorlang.scheduling
from tensorlang.ops import find; from tensorlang.ops.kernels import building
from tensorlang import targets
from tensorlang.runtime import build
from tensorlang.scheduling import Knobs
op = find("random.bits")
t = time.perf_counter()
build(building.schedule(op, op.default, targets.host(), "direct", Knobs()))
print(time.perf_counter() - t)
"""


def overheads() -> dict[str, float]:
    """Seconds by name; ratios where the name says so."""
    found = {
        f"import {m}": _fresh_process(_IMPORT.format(f"import {m}"))
        for m in ("numpy", "tensorlang.ops")
    }
    found["import ratio, tensorlang.ops / numpy"] = (
        found["import tensorlang.ops"] / found["import numpy"]
    )
    found["first call in a warm process, imports included"] = _fresh_process(_FIRST)
    found["first call, nothing cached"] = _cold(_COLD)
    found["cold build of Threefry, libraries loaded"] = _cold(_COLD_BUILD)
    return found | _small_calls() | _fresh_array()


def _run(program: str, environment: dict[str, str]) -> float:
    done = subprocess.run(  # noqa: S603 - our own programs, above
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(done.stdout)


def _fresh_process(program: str) -> float:
    _run(program, _usual())  # warm the page cache, bytecode and kernel cache
    return median(_run(program, _usual()) for _ in range(9))


def _usual() -> dict[str, str]:
    """The default environment, in which Python writes bytecode."""
    unset = "PYTHONDONTWRITEBYTECODE"
    return {name: value for name, value in os.environ.items() if name != unset}


def _cold(program: str) -> float:
    times = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            times.append(_run(program, _usual() | {"TENSORLANG_CACHE": folder}))
    return median(times)


def _small_calls() -> dict[str, float]:
    n = size("n")
    x = placeholder((n,), "f32", "x")
    kernel = build(function("scaled", [x], [compute((n,), lambda i: x[i] * 2.0, "y")]))
    given, out = np.ones(16, np.float32), np.empty(16, np.float32)
    bits, key = np.empty(16, np.uint32), random.key(0)
    base = random.key(1)
    calls: dict[str, Any] = {
        "Kernel on 16 elements, out=": lambda: kernel(given, out=out),
        "random.bits of 16, out=, with its key's clone": lambda: random.bits(
            base.clone(), (16,), out=bits
        ),
        "a key's clone": base.clone,
        "nn.dropout_grad on 16 elements, out=": lambda: nn.dropout_grad(
            given, 0.5, key=key, out=out
        ),
        "numpy maximum of 16, out=": lambda: np.maximum(given, 0, out=out),
    }
    timings = interleaved(calls, rounds=15)
    return {name: timing.median for name, timing in timings.items()}


def _fresh_array() -> dict[str, float]:
    key, out = random.key(0), np.empty(1 << 24, np.float32)
    timings = interleaved(
        {
            "fresh": lambda: random.uniform(key.clone(), (1 << 24,)),
            "into": lambda: random.uniform(key.clone(), (1 << 24,), out=out),
        },
        rounds=15,
    )
    ratio = paired_ratio(timings["fresh"].samples, timings["into"].samples)
    return {"fresh 64 MiB result, ratio to out=": ratio.median}
