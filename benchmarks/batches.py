"""The cost of symbolic sizes: a batch-generic kernel against a static one per batch.

The static kernel uses the same definition with constant sizes and the same default
schedule; both are called with the same arrays.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tensorlang import runtime, targets
from tensorlang.ir.nodes import Const, Function, Var
from tensorlang.ir.visit import substitute, walk
from tensorlang.ops import (
    Operator,
    find,
)
from tensorlang.ops.kernels import building
from tensorlang.ops.spec.examples import arguments
from tensorlang.scheduling import Knobs
from tensorlang.tuner.measurement.rounds import interleaved, paired_ratio
from tensorlang.workload import Workload

FLOOR: Final = 0.9
HEAD: Final = f"""\
One kernel for all batches

The kernel built once for a symbolic batch against kernels of the same definition whose
sizes are constants; wanted: static over symbolic at least {FLOOR}."""
BATCHES: Final = (1, 13, 64, 1000)
_B: Final = -1  # placeholder for the batch
# operator, shapes, attributes
LAYERS: Final[dict[str, tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]]] = {
    "dense 784 to 512": ("nn.dense", ((_B, 784), (512, 784)), {}),
    "dense 784 to 512, bias, gelu": (
        "nn.dense",
        ((_B, 784), (512, 784), (512,)),
        {"activation": "gelu"},
    ),
    "dense_grad 784 to 512": ("nn.dense_grad", ((_B, 512), (_B, 784), (512, 784)), {}),
    "conv 3x3 64x28x28 to 64": (
        "nn.conv2d",
        ((_B, 64, 28, 28), (64, 64, 3, 3)),
        {"padding": 1},
    ),
    "conv 5x5 1x28x28 to 6": (
        "nn.conv2d",
        ((_B, 1, 28, 28), (6, 1, 5, 5)),
        {"padding": 2},
    ),
    "max_pool 2x2 64x28x28": ("nn.max_pool2d", ((_B, 64, 28, 28),), {"kernel": 2}),
    "softmax 1024": ("nn.softmax", ((_B, 1024),), {}),
    "softmax_grad 1024": ("nn.softmax_grad", ((_B, 1024), (_B, 1024)), {}),
    "log_softmax 10": ("nn.log_softmax", ((_B, 10),), {}),
    "cross_entropy 10": ("nn.cross_entropy", ((_B, 10), (_B,)), {}),
    "layer_norm 1024": ("nn.layer_norm", ((_B, 1024), (1024,), (1024,)), {}),
    "layer_norm_grad 1024": (
        "nn.layer_norm_grad",
        ((_B, 1024), (_B, 1024), (1024,)),
        {},
    ),
    "rms_norm 1024": ("nn.rms_norm", ((_B, 1024), (1024,)), {}),
    "batch_norm 64x28x28": ("nn.batch_norm", ((_B, 64, 28, 28), *(((64,),) * 4)), {}),
    "gelu 1024": ("nn.gelu", ((_B, 1024),), {}),
    "add 1024, a row": ("math.add", ((_B, 1024), (1024,)), {}),
    "add 1024": ("math.add", ((_B, 1024), (_B, 1024)), {}),
    "dropout 1024": ("nn.dropout", ((_B, 1024),), {}),
    "sum of rows 1024": ("math.sum", ((_B, 1024),), {"axis": 1}),
    "sum of columns 1024": ("math.sum", ((_B, 1024),), {"axis": 0}),
    "embedding 1000x64": ("nn.embedding", ((_B, 16), (1000, 64)), {}),
}


def rows(rounds: int, only: str) -> Iterator[dict[str, Any]]:
    """A row for each layer and batch."""
    for title, (name, shapes, attributes) in LAYERS.items():
        if only not in title:
            continue
        op = find(name)
        for batch in BATCHES:
            print(f"{title}, batch {batch}", file=sys.stderr)
            sized = [tuple(batch if n == _B else n for n in each) for each in shapes]
            workload = op.workload(*sized, **_types(op), **attributes)
            yield {"work": title, "batch": batch} | _row(op, workload, rounds)


def _types(op: Operator) -> dict[str, Any]:
    """The default dtypes, if an operator takes several."""
    held = op.default.dtypes if op.default else ()
    return {"dtypes": held} if len(set(held)) > 1 else {}


def _row(op: Operator, workload: Workload, rounds: int) -> dict[str, Any]:
    arrays, scalars = arguments(op, workload)
    kernels = {"static": static_kernel(op, workload), "symbolic": op.build(workload)}
    calls: dict[str, Callable[[], object]] = {
        name: _call(kernel, [*arrays, *scalars]) for name, kernel in kernels.items()
    }
    timings = interleaved(calls, rounds=rounds, min_sample=0.003, warm_up=0.03)
    ratio = paired_ratio(timings["static"].samples, timings["symbolic"].samples)
    return {
        "seconds": {name: timing.median for name, timing in timings.items()},
        "ratio": {"median": ratio.median, "low": ratio.low, "high": ratio.high},
    }


def _call(kernel: runtime.Kernel, given: list[Any]) -> Callable[[], object]:
    return lambda: kernel.launch(*given)


def static_kernel(op: Operator, workload: Workload) -> runtime.Kernel:
    """The kernel of a workload with constant sizes."""
    target = targets.get(None)
    algorithm = building.preferred(op, workload, target)
    func = fixed(op.function(workload, algorithm), op.sizes(workload))
    entry = building.schedules(op, algorithm, target)[0]
    return runtime.build(entry.run(func, target, Knobs()), target)


def fixed(func: Function, sizes: Mapping[str, int]) -> Function:
    """Substitute constants for a function's symbolic sizes."""
    found = {v for v in walk(func) if isinstance(v, Var) and v.name in sizes}
    free = tuple(v for v in func.scalars if v not in found)
    values = {v: Const(sizes[v.name], v.dtype) for v in found}
    return substitute(dataclasses.replace(func, scalars=free), values)


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """The measurements of one thread count as Markdown."""
    yield "| work | batch | static, µs | symbolic, µs | static over symbolic |"
    yield "| --- | --- | --- | --- | --- |"
    for row in found["rows"]:
        ratio, seconds = row["ratio"], row["seconds"]
        yield (
            f"| {row['work']} | {row['batch']} | {seconds['static'] * 1e6:.2f} | "
            f"{seconds['symbolic'] * 1e6:.2f} | {ratio['median']:.2f}x "
            f"[{ratio['low']:.2f}, {ratio['high']:.2f}]{_note(ratio)} |"
        )


def _note(ratio: Mapping[str, float]) -> str:
    return f", under {FLOOR}" if ratio["median"] < FLOOR else ""
