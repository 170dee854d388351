"""The f32 suite: fixed shapes by kind of work, without records, against every peer.

Products, convolutions in both layouts, gradients, batched products and attention, rows
and streams. What a user gets at once on a machine that nobody has tuned for, and, as
the table `tuned`, after a short search for each shape.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.attention_works import SHAPES as ATTENTIONS
from benchmarks.defaults import from_nothing
from benchmarks.layer_works import normal, rivals
from benchmarks.random_shapes import compared
from tensorlang.errors import TensorlangError
from tensorlang.ops import math, nn
from tensorlang.tuner.peers import layers as layer_peers
from tensorlang.tuner.tuning import tune

FLOOR: Final = 0.9
HEAD: Final = f"""\
The f32 suite, with defaults

No record is used: what an untuned machine runs. Ratios are the fastest peer's time over
ours, both with new results; wanted: a geometric mean of at least 1.15, no row below
{FLOOR}. Worst first."""
BUDGET: Final = 60.0  # seconds to tune a shape
TUNED_FLOOR: Final = 1.0
TUNED_HEAD: Final = f"""\
The f32 suite, tuned

Each shape was searched for from nothing. Ratios are the fastest peer's time over ours,
both with new results; wanted: a geometric mean of at least 1.25, no row below
{TUNED_FLOOR}. Worst first."""

_Array = np.ndarray[Any, Any]
Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A row: our call, and what peers are given."""

    kind: str
    title: str
    operator: str
    arrays: tuple[_Array, ...]
    ours: partial[object]
    floating: float
    attributes: Mapping[str, Any] = field(default_factory=dict)
    channels_last: bool = False


_DENSE: Final = (
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (64, 512, 784),
    (128, 1024, 1024),
    (256, 4096, 1024),
    (96, 640, 900),
    (200, 1500, 1100),
    (1, 4096, 4096),
    (1, 1000, 2048),
    (4096, 1, 1024),
    (8, 3072, 768),
    (16, 10, 784),
    (33, 257, 129),
    (127, 255, 383),
    (48, 24, 1183),
    (512, 512, 64),
    (3000, 100, 100),
    (77, 768, 768),
    (384, 30, 3072),
    (1000, 1000, 10),
)
# image, weight, stride, padding
_CONV: Final = (
    ((1, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    ((1, 128, 28, 28), (128, 128, 3, 3), 1, 1),
    ((1, 256, 14, 14), (256, 256, 3, 3), 1, 1),
    ((1, 512, 7, 7), (512, 512, 3, 3), 1, 1),
    ((8, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    ((1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    ((1, 64, 56, 56), (256, 64, 1, 1), 1, 0),
    ((1, 128, 56, 56), (128, 1, 3, 3), 1, 1),
    ((1, 160, 20, 20), (160, 160, 3, 3), 1, 1),
    ((1, 3, 112, 112), (32, 3, 5, 5), 2, 2),
    ((4, 22, 8, 8), (8, 22, 3, 3), 2, 1),
    ((2, 37, 33, 47), (53, 37, 3, 3), 1, 1),
)
_CONV_GRADIENTS: Final = (0, 2, 5, 6)  # of these
_DENSE_GRADIENTS: Final = ((64, 512, 784), (1024, 1024, 1024), (200, 1500, 1100))
# batch, M, N, K
_BATCHED: Final = (
    (1000, 8, 8, 8),
    (64, 64, 64, 64),
    (8, 256, 256, 256),
    (96, 128, 64, 128),
    (12, 77, 77, 40),
)
_ROWS: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "nn.softmax": ((512, 4096), (4504, 10)),
    "nn.log_softmax": ((64, 1000),),
    "nn.layer_norm": ((512, 4096), (5064, 576)),
    "nn.rms_norm": ((512, 4096),),
    "nn.gelu": ((1 << 20,),),
    "nn.max_pool2d": ((8, 64, 56, 56),),
    "sum of rows": ((1024, 1000),),
    "sum of columns": ((1024, 1000),),
    "add, a row": ((1024, 1000),),
    "exp": ((1 << 20,),),
}

_OPERATORS: Final = {
    "sum of rows": "math.sum",
    "sum of columns": "math.sum",
    "add, a row": "math.add",
    "exp": "math.exp",
}


def rows(
    rounds: int, only: str, threads: int, budget: float = 0
) -> Iterator[dict[str, Any]]:
    """A row for each case whose title contains `only`, after `budget` seconds each."""
    with from_nothing() as storage:
        for case in _cases():
            title = f"{case.operator} {case.title}"
            if only in title:
                print(f"{threads} threads: {title}", file=sys.stderr)
                row = {"work": title, "kind": case.kind, "floating": case.floating}
                if budget:
                    row |= {"budget": budget, "gain": _tuned(case, budget, storage)}
                yield row | compared(case.ours, _peers(case, threads), rounds)


def _tuned(case: Case, budget: float, storage: str) -> float:
    """The default's time over that of what a search recorded; 1.0 if it stands."""
    try:
        report = tune(
            _OPERATORS.get(case.operator, case.operator),
            shapes=[array.shape for array in case.ours.args],
            budget=budget,
            storage=storage,
            **case.ours.keywords,
        )
    except TensorlangError as problem:
        print(f"  {problem}", file=sys.stderr)
        return float("nan")
    ratio = report[0].ratio
    return ratio.median if ratio else 1.0


def page(run: Mapping[str, Any], least: float = FLOOR) -> Iterator[str]:
    """The geometric means by kind, then every row, worst first."""
    found = sorted(run["rows"], key=lambda row: row["ratio"]["low"])
    yield "| kind | rows | geometric mean | least |"
    yield "|---|---|---|---|"
    for kind in (*dict.fromkeys(row["kind"] for row in run["rows"]), "all"):
        ratios = [
            row["ratio"]["median"] for row in found if kind in (row["kind"], "all")
        ]
        mean = statistics.geometric_mean(ratios)
        yield f"| {kind} | {len(ratios)} | {mean:.2f} | {min(ratios):.2f} |"
    yield ""
    tuned = any("gain" in row for row in found)
    more = " gain over the default |" if tuned else ""
    yield f"| work | ratio | interval | fastest peer | ours, GFLOP/s |{more}"
    yield "|---|---|---|---|---|" + "---|" * tuned
    for row in found:
        ratio, rate = row["ratio"], row["floating"] / row["seconds"]["ours"] / 1e9
        below = ", below" if ratio["low"] < least else ""
        yield (
            f"| {row['work']} | {ratio['median']:.2f}{below} | {ratio['low']:.2f} to "
            f"{ratio['high']:.2f} | {row['fastest']} | {rate:.0f} |"
            + (f" {row['gain']:.2f} |" if tuned else "")
        )


def _peers(case: Case, threads: int) -> dict[str, Call]:
    op, arrays, given = case.operator, case.arrays, case.attributes
    found = {peer.name: peer.make() for peer in rivals(op, arrays, given, threads)}
    if case.channels_last:
        found["torch channels_last"] = layer_peers.torch_call(
            op, arrays, given, threads, channels_last=True
        )
    return found


def _cases() -> Iterator[Case]:
    for m, n, k in _DENSE:
        x, w = normal(m, k), normal(n, k)
        ours = partial(nn.dense, x, w)
        yield Case("dense", f"{m}x{n}x{k}", "nn.dense", (x, w), ours, 2.0 * m * n * k)
    for image, weight, stride, padding in _CONV:
        yield from _convolutions(image, weight, stride, padding)
    for number in _CONV_GRADIENTS:
        yield from _convolution_gradients(*_CONV[number])
    for m, n, k in _DENSE_GRADIENTS:
        arrays = (normal(m, n), normal(m, k), normal(n, k))
        ours = partial(nn.dense_grad, *arrays)
        title, work = f"{m}x{n}x{k}", 4.0 * m * n * k
        yield Case("gradients", title, "nn.dense_grad", arrays, ours, work)
    for batch, m, n, k in _BATCHED:
        pair = (normal(batch, m, k), normal(batch, k, n))
        ours, title = partial(math.matmul, *pair), f"{batch}x{m}x{n}x{k}"
        work = 2.0 * batch * m * n * k
        yield Case("batched, attention", title, "math.matmul", pair, ours, work)
    for shape in ATTENTIONS:
        yield _attention(shape)
    for name, shapes in _ROWS.items():
        for shape in shapes:
            yield _rows_or_stream(name, shape)


def _convolutions(
    image: tuple[int, ...], weight: tuple[int, ...], stride: int, padding: int
) -> Iterator[Case]:
    x, w = normal(*image), normal(*weight)
    how, title = _geometry(image, weight, stride, padding)
    plain = partial(nn.conv2d, x, w, **how)
    work = 2.0 * np.asarray(plain()).size * w[0].size
    yield Case("convolutions", title, "nn.conv2d", (x, w), plain, work, how)
    last = partial(nn.conv2d, _channels_last(x), w, layout="NHWC", **how)
    title = f"NHWC {title}"
    yield Case("convolutions", title, "nn.conv2d", (x, w), last, work, how, True)


def _convolution_gradients(
    image: tuple[int, ...], weight: tuple[int, ...], stride: int, padding: int
) -> Iterator[Case]:
    x, w = normal(*image), normal(*weight)
    how, title = _geometry(image, weight, stride, padding)
    dy = normal(*np.asarray(nn.conv2d(x, w, **how)).shape)
    work, arrays = 2.0 * dy.size * w[0].size, (dy, x, w)
    for operator, ours in (
        (
            "nn.conv2d_grad_data",
            partial(nn.conv2d_grad_data, dy, w, size=image[2:], **how),
        ),
        (
            "nn.conv2d_grad_weight",
            partial(nn.conv2d_grad_weight, dy, x, window=weight[2:], **how),
        ),
    ):
        yield Case("gradients", title, operator, arrays, ours, work, how)


def _geometry(
    image: tuple[int, ...], weight: tuple[int, ...], stride: int, padding: int
) -> tuple[dict[str, int], str]:
    how = {"stride": stride, "padding": padding, "groups": image[1] // weight[1]}
    sizes = " by ".join("x".join(map(str, each)) for each in (image, weight))
    return how, f"{sizes}, stride {stride}"


def _channels_last(x: _Array) -> _Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def _attention(shape: tuple[int, int, int, int, int, int]) -> Case:
    batch, heads, groups, m, n, depth = shape
    q = normal(batch, heads, m, depth)
    k, v = (normal(batch, groups, n, depth) for _ in range(2))
    work, title = 4.0 * batch * heads * m * n * depth, "x".join(map(str, shape))
    ours, how = partial(nn.attention, q, k, v, causal=False), {"causal": False}
    kind = "batched, attention"
    return Case(kind, title, "nn.attention", (q, k, v), ours, work, how)


def _rows_or_stream(name: str, shape: tuple[int, ...]) -> Case:
    x = normal(*shape)
    weights = {"nn.layer_norm": 2, "nn.rms_norm": 1, "add, a row": 1}.get(name, 0)
    arrays = (x, *(normal(shape[-1]) for _ in range(weights)))
    ours: dict[str, partial[object]] = {
        "sum of rows": partial(math.sum, x, axis=1),
        "sum of columns": partial(math.sum, x, axis=0),
        "add, a row": partial(math.add, *arrays),
        "exp": partial(math.exp, x),
        "nn.max_pool2d": partial(nn.max_pool2d, x, kernel=2),
    }
    short = name.removeprefix("nn.")
    call = ours[name] if name in ours else partial(getattr(nn, short), *arrays)
    title = "x".join(map(str, shape))
    return Case("rows, streams", title, name, arrays, call, float(x.size))
