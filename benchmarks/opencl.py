"""Operators through OpenCL against LLVM on this CPU.

Both write into existing arrays with all threads; times include launches and argument
checks, which dominate the last, small rows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from tensorlang import targets
from tensorlang.ops import math, nn, random
from tensorlang.tuner.measurement.rounds import interleaved, paired_ratio

HEAD: Final = """\
OpenCL on this CPU

The same operators through OpenCL and through LLVM, both into existing arrays; wanted:
hashes at least 0.7x of our LLVM kernels, elementwise 0.8x, products 0.3x."""
ELEMENTS: Final = 1 << 24
_SIDE: Final = 1024
Call = Callable[[str], object]
_GENERATOR: Final = np.random.default_rng(0)


def rows(rounds: int, only: str) -> Iterator[dict[str, Any]]:
    """A row for each work."""
    for title, (make, floor) in _WORKS.items():
        if only in title:
            print(title, file=sys.stderr)
            yield {"work": title, "floor": floor} | _row(make(), rounds)


def _row(call: Call, rounds: int) -> dict[str, Any]:
    calls = {kind: partial(call, kind) for kind in ("llvm", "opencl")}
    timings = interleaved(calls, rounds=rounds, min_sample=0.01, warm_up=0.2)
    ratio = paired_ratio(timings["llvm"].samples, timings["opencl"].samples)
    return {
        "device": targets.get("opencl").device,
        "seconds": {name: timing.median for name, timing in timings.items()},
        "ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
    }


def _normal(*shape: int) -> np.ndarray[Any, Any]:
    return _GENERATOR.standard_normal(shape, dtype=np.float32)


def _draw(name: str, dtype: str, count: int, **options: Any) -> Call:
    key, out = random.key(0), np.empty(count, dtype)
    draw = getattr(random, name)
    return lambda kind: draw(key.clone(), (count,), out=out, target=kind, **options)


def _dropout() -> Call:
    key, x = random.key(0), _normal(ELEMENTS)
    out = np.empty_like(x)
    return lambda kind: nn.dropout(x, 0.5, key=key.clone(), out=out, target=kind)


def _of_one(op: Any, *shape: int) -> Call:
    x = _normal(*shape)
    out = np.empty_like(x)
    return lambda kind: op(x, out=out, target=kind)


def _sum_of_two(count: int) -> Call:
    a, b = _normal(count), _normal(count)
    out = np.empty_like(a)
    return lambda kind: math.add(a, b, out=out, target=kind)


def _product(side: int, dtype: str = "float32") -> Call:
    x, w = (_normal(side, side).astype(_dtype(dtype)) for _ in range(2))
    out = np.empty_like(x)
    return lambda kind: nn.dense(x, w, out=out, target=kind)


def _dtype(name: str) -> Any:
    """The NumPy or ml_dtypes dtype of a name."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def _convolution() -> Call:
    x, w = _normal(8, 64, 56, 56), _normal(64, 64, 3, 3)
    out = np.empty((8, 64, 56, 56), np.float32)
    return lambda kind: nn.conv2d(x, w, padding=1, out=out, target=kind)


def _layer_norm() -> Call:
    x, scale, shift = _normal(4096, 1024), _normal(1024), _normal(1024)
    out = np.empty_like(x)
    return lambda kind: nn.layer_norm(x, scale, shift, out=out, target=kind)


# title -> (call, minimum ratio)
_WORKS: Final[dict[str, tuple[Callable[[], Call], float | None]]] = {
    "random.bits, 2^24": (partial(_draw, "bits", "uint32", ELEMENTS), 0.7),
    "random.bits, packed stream, 2^24": (
        partial(_draw, "bits", "uint32", ELEMENTS, stream="packed"),
        0.7,
    ),
    "random.uniform f32, 2^24": (partial(_draw, "uniform", "float32", ELEMENTS), 0.7),
    "random.normal f32, 2^24": (partial(_draw, "normal", "float32", ELEMENTS), 0.7),
    "dropout f32, 2^24": (_dropout, 0.7),
    "gelu f32, 2^24": (partial(_of_one, nn.gelu, ELEMENTS), 0.8),
    "add f32, 2^24": (partial(_sum_of_two, ELEMENTS), 0.8),
    "dense f32, 1024^3": (partial(_product, _SIDE), 0.3),
    "dense bf16, 1024^3": (partial(_product, _SIDE, "bfloat16"), None),
    "conv 3x3, 8x64x56x56 to 64": (_convolution, None),
    "softmax, 4096x1024": (partial(_of_one, nn.softmax, 4096, _SIDE), None),
    "layer_norm, 4096x1024": (_layer_norm, None),
    "add f32, 16": (partial(_sum_of_two, 16), None),
    "random.bits, 16": (partial(_draw, "bits", "uint32", 16), None),
}


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """The measurements as Markdown."""
    yield from sorted({row["device"] for row in found["rows"]})
    yield ""
    yield "| work | LLVM, µs | OpenCL, µs | LLVM over OpenCL |"
    yield "| --- | --- | --- | --- |"
    for row in found["rows"]:
        ratio, seconds = row["ratio"], row["seconds"]
        yield (
            f"| {row['work']} | {seconds['llvm'] * 1e6:.1f} | "
            f"{seconds['opencl'] * 1e6:.1f} | {ratio['median']:.2f}x "
            f"[{ratio['low']:.2f}, {ratio['high']:.2f}]{_note(row)} |"
        )


def _note(row: Mapping[str, Any]) -> str:
    floor = row["floor"]
    return f", under {floor}" if floor and row["ratio"]["low"] < floor else ""
