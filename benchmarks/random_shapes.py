"""Shapes drawn at random against PyTorch, JAX and NumPy: the distribution, worst first.

Rules that suit the shapes of a suite, and no others, show here.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import ml_dtypes  # noqa: F401 - names `bfloat16` to NumPy
import numpy as np

from benchmarks.layer_works import normal, rivals
from tensorlang.ops import nn
from tensorlang.tuner.measurement.rounds import interleaved, paired_ratio

HEAD: Final = """\
Shapes drawn at random

Each row has other sizes: logarithmically uniform, half of them multiples of 8. Ratios
are the fastest peer's time over ours, both with new results; worst first."""
TYPES_HEAD: Final = """\
Shapes drawn at random, in other types than f32

As in `random`, in a type that is drawn as well, against PyTorch alone."""
TYPES: Final = ("bfloat16", "float16", "float64")
COUNT: Final = 60
_WORK: Final = (2e5, 2e9)  # floating-point operations of a call
_SHOWN: Final = 15
Call = Callable[[], object]
Drawn = tuple[
    str, tuple[np.ndarray[Any, Any], ...], dict[str, Any], partial[object], float
]


def rows(
    rounds: int, only: str, seed: int, threads: int, types: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """A row for each draw, of a type drawn from `types` if there are any."""
    generator, left = random.Random(seed), COUNT  # noqa: S311 - of sizes
    while left:
        name = generator.choice(list(_FAMILIES))
        drawn = _FAMILIES[name](generator)
        if types:
            kind = generator.choice(types)
            drawn, name = _converted(drawn, np.dtype(kind)), f"{name} {kind}"
        op, arrays, given, ours, floating = drawn
        if not _WORK[0] < floating < _WORK[1]:
            continue
        left -= 1
        title = f"{name} " + " by ".join("x".join(map(str, a.shape)) for a in arrays)
        title += "".join(f", {key} {value}" for key, value in given.items())
        if only in title:
            print(f"{threads} threads: {title}", file=sys.stderr)
            peers = {
                peer.name: peer.make()
                for peer in rivals(op, arrays, given, threads)
                if not types or peer.name == "torch"
            }
            yield {"work": title, "floating": floating} | compared(ours, peers, rounds)


def _converted(drawn: Drawn, kind: np.dtype[Any]) -> Drawn:
    """A draw with its arrays in another type."""
    op, arrays, given, ours, floating = drawn
    made = (array.astype(kind) for array in ours.args)
    ours = partial(ours.func, *made, **ours.keywords)
    return op, tuple(each.astype(kind) for each in arrays), given, ours, floating


def compared(ours: Call, peers: Mapping[str, Call], rounds: int) -> dict[str, Any]:
    """Seconds of all, timed in turn, and the ratio to the fastest peer."""
    timings = interleaved(
        {"ours": ours, **peers}, rounds=rounds, min_sample=0.005, warm_up=0.1, rest=0.02
    )
    fastest = min(peers, key=lambda name: timings[name].median)
    ratio = paired_ratio(timings[fastest].samples, timings["ours"].samples)
    return {
        "seconds": {name: timing.median for name, timing in timings.items()},
        "fastest": fastest,
        "ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
    }


def page(run: Mapping[str, Any]) -> Iterator[str]:
    """The distribution, and the worst rows."""
    found = sorted(run["rows"], key=lambda row: row["ratio"]["median"])
    ratios = [row["ratio"]["median"] for row in found]
    tenths = statistics.quantiles(ratios, n=10)
    mean = statistics.geometric_mean(ratios)
    yield (
        f"{len(found)} shapes, seed {run['seed']}: geometric mean {mean:.2f}, tenths "
        + ", ".join(f"{ratio:.2f}" for ratio in tenths)
        + f"; {sum(ratio < 1 for ratio in ratios)} below 1, "
        + f"{sum(ratio < 0.9 for ratio in ratios)} below 0.9."
    )
    yield ""
    yield "| work | ratio | interval | fastest peer | ours, GFLOP/s |"
    yield "|---|---|---|---|---|"
    for row in found[:_SHOWN]:
        ratio, rate = row["ratio"], row["floating"] / row["seconds"]["ours"] / 1e9
        yield (
            f"| {row['work']} | {ratio['median']:.2f} | {ratio['low']:.2f} to "
            f"{ratio['high']:.2f} | {row['fastest']} | {rate:.0f} |"
        )


def _size(generator: random.Random, low: int, high: int) -> int:
    """A size: half of them are multiples of 8."""
    drawn = round(math.exp(generator.uniform(math.log(low), math.log(high))))
    return drawn if drawn < 8 or generator.random() < 0.5 else drawn // 8 * 8


def _dense(generator: random.Random) -> Drawn:
    m, n, k = (_size(generator, low, 4096) for low in (1, 1, 8))
    x, w = normal(m, k), normal(n, k)
    return "nn.dense", (x, w), {}, partial(nn.dense, x, w), 2.0 * m * n * k


def _conv(generator: random.Random, *, last: bool = False) -> Drawn:
    window, stride = generator.choice((1, 3, 3, 5, 7)), generator.choice((1, 1, 2))
    side, images = _size(generator, 7, 112), generator.choice((1, 1, 2, 4, 8))
    inputs, outputs = (_size(generator, 3, 512) for _ in range(2))
    how = {"stride": stride, "padding": window // 2}
    x, w = normal(images, inputs, side, side), normal(outputs, inputs, window, window)
    places = ((side - 1) // stride + 1) ** 2 * images
    layout = {"layout": "NHWC"} if last else {}
    given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    ours = partial(nn.conv2d, given, w, **how, **layout)
    floating = 2.0 * places * outputs * inputs * window**2
    return "nn.conv2d", (x, w), how | {"groups": 1}, ours, floating


def _rows(generator: random.Random, op: str) -> Drawn:
    m, n = _size(generator, 1, 1 << 14), _size(generator, 2, 1 << 14)
    arrays = (normal(m, n), normal(n), normal(n))[: 3 if op == "layer_norm" else 1]
    return f"nn.{op}", arrays, {}, partial(getattr(nn, op), *arrays), 8.0 * m * n


_FAMILIES: Final[dict[str, Callable[[random.Random], Drawn]]] = {
    "dense": _dense,
    "conv2d": _conv,
    "conv2d NHWC": partial(_conv, last=True),
    "softmax": partial(_rows, op="softmax"),
    "layer_norm": partial(_rows, op="layer_norm"),
}
