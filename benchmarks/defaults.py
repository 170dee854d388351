"""Default configurations of untuned shapes against the best known ones.

Each shape is tuned within a budget, in separate records; results of earlier runs
(`defaults.json` in the folder of results) are included. Then default and best are timed
interleaved.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tensorlang import records, runtime, targets
from tensorlang.errors import TensorlangError
from tensorlang.ops import (
    Operator,
    find,
)
from tensorlang.ops.kernels import building
from tensorlang.ops.spec.examples import arguments
from tensorlang.scheduling import Knobs
from tensorlang.tuner.measurement.rounds import interleaved, paired_ratio
from tensorlang.tuner.tuning import tune
from tensorlang.tuner.workers.protocol import Candidate
from tensorlang.workload import Workload

MEAN_FLOOR: Final = 0.8
FLOOR: Final = 0.6
BUDGET: Final = 30.0  # seconds to tune a shape
HEAD: Final = f"""\
Defaults of untuned shapes

The default rule's kernel against the best that any search found, timed in turn; wanted:
at least {MEAN_FLOOR}x in the geometric mean, none under {FLOOR}x."""
Shapes = tuple[tuple[int, ...], ...]
_PADDED: Final = {"padding": 1}
# operator, shapes, attributes
WORKS: Final[dict[str, tuple[str, Shapes, dict[str, Any]]]] = {
    **{
        f"dense {m}x{n}x{k}": ("nn.dense", ((m, k), (n, k)), {})
        for m, n, k in (
            (1024, 1024, 1024),
            (64, 512, 784),
            (128, 1024, 1024),
            (256, 4096, 1024),
            (1, 8192, 8192),
            (16, 10, 784),
        )
    },
    "dense 512x1024x1024, bias, gelu": (
        "nn.dense",
        ((512, 1024), (1024, 1024), (1024,)),
        {"activation": "gelu"},
    ),
    "matmul 8x256x256x256": ("math.matmul", ((8, 256, 256), (8, 256, 256)), {}),
    **{
        f"conv 3x3 1x{c}x{size}x{size} to {c}": (
            "nn.conv2d",
            ((1, c, size, size), (c, c, 3, 3)),
            _PADDED,
        )
        for c, size in ((64, 56), (128, 28), (256, 14), (512, 7))
    },
    "conv 3x3 8x64x56x56 to 64": (
        "nn.conv2d",
        ((8, 64, 56, 56), (64, 64, 3, 3)),
        _PADDED,
    ),
    "conv 7x7 s2 1x3x224x224 to 64": (
        "nn.conv2d",
        ((1, 3, 224, 224), (64, 3, 7, 7)),
        {"stride": 2, "padding": 3},
    ),
    "conv 1x1 1x64x56x56 to 256": (
        "nn.conv2d",
        ((1, 64, 56, 56), (256, 64, 1, 1)),
        {},
    ),
    "depthwise 3x3 1x128x56x56": (
        "nn.conv2d",
        ((1, 128, 56, 56), (128, 1, 3, 3)),
        {"padding": 1, "groups": 128},
    ),
    "max_pool 2x2 8x64x112x112": ("nn.max_pool2d", ((8, 64, 112, 112),), {"kernel": 2}),
    "softmax 512x4096": ("nn.softmax", ((512, 4096),), {}),
    "layer_norm 512x4096": ("nn.layer_norm", ((512, 4096), (4096,), (4096,)), {}),
    "gelu 2^24": ("nn.gelu", ((1 << 24,),), {}),
    "add 4096x4096, a row": ("math.add", ((4096, 4096), (4096,)), {}),
    "sum of rows 4096x4096": ("math.sum", ((4096, 4096),), {"axis": 1}),
    "sum of columns 4096x4096": ("math.sum", ((4096, 4096),), {"axis": 0}),
    "adam 2^24": ("optim.adam", ((1 << 24,),) * 4, {}),
    "dropout 2^24": ("nn.dropout", ((1 << 24,),), {}),
    "normal 2^24": ("random.normal", ((1 << 24,),), {}),
}


def rows(
    rounds: int, only: str, budget: float, earlier: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """A row for each shape; with a budget of 0, only earlier results are timed.

    Args:
        rounds: Timings of each side.
        only: Restrict to works whose title contains this.
        budget: Seconds of tuning per shape.
        earlier: Rows of earlier runs by title.
    """
    for title, (name, shapes, attributes) in WORKS.items():
        if only not in title:
            continue
        print(title, file=sys.stderr)
        op = find(name)
        known = [_candidate(earlier[title])] if title in earlier else []
        if budget:
            known += _tuned(op, shapes, attributes, budget)
        workload = op.workload(*shapes, **attributes)
        yield {"work": title} | _row(op, workload, known, rounds)


def _candidate(row: Mapping[str, Any]) -> Candidate:
    return Candidate(row["algorithm"], dict(row["knobs"]))


def _tuned(
    op: Operator, shapes: Shapes, attributes: Mapping[str, Any], budget: float
) -> list[Candidate]:
    """The best of a search from scratch; empty if it fails."""
    with from_nothing() as storage:
        try:
            report = tune(
                op, shapes=shapes, budget=budget, storage=storage, **attributes
            )
        except TensorlangError as problem:
            print(f"  {problem}", file=sys.stderr)
            return []
    return [report[0].best]


@contextmanager
def from_nothing() -> Iterator[str]:
    """Context without user records; yields the URL of an empty storage."""
    held = os.environ.get(records.FOLDER_VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[records.FOLDER_VARIABLE] = folder
        records.forget()
        try:
            yield f"sqlite:///{Path(folder) / 'trials.db'}"
        finally:
            os.environ.pop(records.FOLDER_VARIABLE)
            if held is not None:
                os.environ[records.FOLDER_VARIABLE] = held
            records.forget()


def _row(
    op: Operator, workload: Workload, known: list[Candidate], rounds: int
) -> dict[str, Any]:
    """Time default and all candidates interleaved; the fastest is the best known."""
    target = targets.get(None)
    schedule, knobs = building.default(op, workload, target, {})
    name = building.preferred(op, workload, target)
    usual = Candidate(name, dict(knobs.values))
    arrays, scalars = arguments(op, workload)
    kernels = {usual.key: runtime.build(schedule, target)}
    held = {usual.key: usual}
    for candidate in known:
        kernel = _built(op, workload, candidate)
        if kernel is not None:
            held.setdefault(candidate.key, candidate)
            kernels.setdefault(candidate.key, kernel)
    calls = {key: call(kernel, [*arrays, *scalars]) for key, kernel in kernels.items()}
    timings = interleaved(calls, rounds=rounds, min_sample=0.005, warm_up=0.05)
    base = timings[usual.key].samples
    ratios = {
        key: paired_ratio(timing.samples, base)
        for key, timing in timings.items()
        if key != usual.key
    }
    best = min(ratios, key=lambda key: ratios[key].median, default=usual.key)
    if best in ratios and ratios[best].median >= 1:
        best = usual.key
    ratio = ratios.get(best)
    return {
        "algorithm": held[best].algorithm,
        "knobs": dict(held[best].knobs),
        "seconds": {
            "default": timings[usual.key].median,
            "best": timings[best].median,
        },
        "ratio": {
            "median": ratio.median if ratio else 1.0,
            "low": ratio.low if ratio else 1.0,
            "high": ratio.high if ratio else 1.0,
        },
    }


def _built(
    op: Operator, workload: Workload, candidate: Candidate
) -> runtime.Kernel | None:
    """The kernel of a candidate; None if the schedule no longer accepts its knobs."""
    target, knobs = targets.get(None), Knobs.replay(dict(candidate.knobs))
    try:
        made = building.schedule(op, workload, target, candidate.algorithm, knobs)
        return runtime.build(made, target)
    except TensorlangError as problem:
        print(f"  {candidate}: {problem}", file=sys.stderr)
        return None


def call(kernel: runtime.Kernel, given: list[Any]) -> Callable[[], object]:
    """A call of a kernel with these arguments."""
    return lambda: kernel.launch(*given)


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """The measurements of one thread count as Markdown."""
    yield "| work | default, ms | best known, ms | best / default time | its knobs |"
    yield "| --- | --- | --- | --- | --- |"
    for row in found["rows"]:
        ratio, seconds = row["ratio"], row["seconds"]
        under = f", under {FLOOR}" if ratio["median"] < FLOOR else ""
        yield (
            f"| {row['work']} | {seconds['default'] * 1e3:.3f} | "
            f"{seconds['best'] * 1e3:.3f} | {ratio['median']:.2f}x "
            f"[{ratio['low']:.2f}, {ratio['high']:.2f}]{under} | "
            f"{row['algorithm']} {json.dumps(row['knobs'])} |"
        )
    ratios = [row["ratio"]["median"] for row in found["rows"]]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        yield ""
        yield (
            f"Geometric mean of {len(ratios)}: {mean:.2f}x, wanted {MEAN_FLOOR}x; "
            f"least {min(ratios):.2f}x, wanted {FLOOR}x."
        )
