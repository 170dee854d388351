"""Results of kernels that are built for the processor this runs on, into a file.

`on_processor.py FILE [COUNT]` saves the first arrays, or all, by name. All but those
whose name begins with `about` are the same to the bit on every processor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import ml_dtypes
import numpy as np

from tensorlang import build, targets
from tensorlang.ir import parse
from tensorlang.ops import math, nn, random

FLOATS = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
EXPRESSIONS = (
    *("A + B", "A - B", "A * B", "A / B", "-A", "abs(A)", "select(A < B, A, B)"),
    *("floor(A)", "round(A)", "trunc(A)", "sqrt(abs(A))", "fma(A, B, A)"),
    *("min(A, B) + {0}(0.0)", "max(A, B) + {0}(0.0)"),  # of 0 and -0, either
    *("cast({0}, cast(f64, A) / f64(3.0))", "cast({0}, cast(i32, A) * i32(3))"),
)


def operations(kind: str) -> np.ndarray:
    """Every number of a type, beside another one, through every operation."""
    lines = [
        f"            y[{n}, i * 16 + j] = {text.format(kind)}"
        for n, text in enumerate(EXPRESSIONS)
    ]
    kernel = build(
        parse(
            f"def {kind}s(x: {kind}[65536], z: {kind}[65536], "
            f"y: Out[{kind}[{len(lines)}, 65536]]):\n    for i in range(4096):\n"
            f"        for j in vectorized(16):\n            A: {kind} = x[i * 16 + j]\n"
            f"            B: {kind} = z[i * 16 + j]\n" + "\n".join(lines)
        )
    )
    bits = np.arange(1 << 16, dtype=np.uint16)
    other = bits * np.uint16(40503) ^ np.uint16(1 << 14)
    y = np.zeros((len(lines), bits.size), FLOATS[kind])
    kernel(bits.view(y.dtype), other.view(y.dtype), y)
    return y


def results(count: int | None = None) -> dict[str, np.ndarray]:
    """The first of them, or all, by name."""
    numbers = np.random.default_rng(0).standard_normal((5, 33))
    bf16, f16 = (numbers.astype(dtype) for dtype in FLOATS.values())
    tiny = (numbers * 1e-39).astype(bf16.dtype)
    key = random.key(3)
    made: dict[str, Callable[[], np.ndarray]] = {
        "bf16 operations": lambda: operations("bf16"),
        "f16 operations": lambda: operations("f16"),
        "maximum": lambda: math.maximum(tiny, tiny[:, :1]),
        "normal": lambda: random.normal(key, (77,)),
        "about dense": lambda: nn.dense(f16, f16),
        "about softmax": lambda: nn.softmax(bf16),
        "wide normal": lambda: random.normal(
            random.fold_in(key, 2), (7,), dtype="float64"
        ),
        "exp": lambda: math.exp(bf16),
        "uniform": lambda: random.uniform(key, (77,), dtype="float16"),
        "about avg_pool1d": lambda: nn.avg_pool1d(bf16[None], 3, 1, 1),
    }
    return {name: made[name]() for name in list(made)[:count]}


if __name__ == "__main__":
    count = int(sys.argv[2]) if sys.argv[2:] else None
    saved = {name: a.view(f"u{a.dtype.itemsize}") for name, a in results(count).items()}
    np.savez(sys.argv[1], target=targets.host().fingerprint, **saved)
