"""Threads beside others': all threads against one, while others compute.

Beside a process that never sleeps, and beside onnxruntime in this process, which
computes before each call and whose threads then spin for a while. A round times some
calls with one thread and with all of them; the time of onnxruntime is not counted.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.batches import LAYERS
from tensorlang import targets
from tensorlang.ops import find
from tensorlang.ops.spec.examples import arguments
from tensorlang.tuner.measurement.rounds import Ratio, paired_ratio

CEILING: Final = 1.05
HEAD: Final = f"""\
Threads beside others'

All threads against one, batch 64: alone, beside a busy process, and beside onnxruntime
in the same process; wanted: all threads over one at most {CEILING}."""
_BATCH: Final = 64
_SAMPLE: Final = 0.02  # seconds of a sample
_PEER_SIZE: Final = 512
Call = Callable[[], object]


def rows(rounds: int, only: str) -> Iterator[dict[str, Any]]:
    """A row for each layer: its ratios in each surrounding."""
    for title, (name, shapes, attributes) in LAYERS.items():
        if only not in title:
            continue
        print(title, file=sys.stderr)
        sized = [tuple(_BATCH if n < 0 else n for n in each) for each in shapes]
        op = find(name)
        held = op.default.dtypes if op.default else ()
        types = {"dtypes": held} if len(set(held)) > 1 else {}
        workload = op.workload(*sized, **types, **attributes)
        arrays, scalars = arguments(op, workload)
        every = targets.host()
        kernels = [op.build(workload, each) for each in (every.with_threads(1), every)]
        calls = [partial(kernel.launch, *arrays, *scalars) for kernel in kernels]
        found: dict[str, Any] = {"work": title, "ratios": {}}
        for place, surroundings in _PLACES.items():
            with surroundings() as before:
                one, team = _samples(calls, before, rounds)
            ratio = paired_ratio(team, one)
            found["ratios"][place] = [ratio.median, ratio.low, ratio.high]
            found.setdefault("seconds", min(one))
        yield found


def _samples(
    calls: list[Call], before: Call, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds per call, by round: with one thread, and with all of them."""
    samples: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for call, kept in zip(calls, samples, strict=True):
            spent, count = 0.0, 0
            while spent < _SAMPLE:
                before()
                start = time.perf_counter()
                call()
                spent += time.perf_counter() - start
                count += 1
            if number:  # the first round warms up
                kept.append(spent / count)
    return samples


@contextlib.contextmanager
def _alone() -> Iterator[Call]:
    yield lambda: None


@contextlib.contextmanager
def _busy() -> Iterator[Call]:
    """A process that never sleeps."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        time.sleep(0.2)
        yield lambda: None
        process.kill()


@contextlib.contextmanager
def _spinning() -> Iterator[Call]:
    """A matrix product of onnxruntime, on as many threads as ours."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    size = (_PEER_SIZE, _PEER_SIZE)
    x = np.random.default_rng(0).standard_normal(size, np.float32)
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, size) for n in ("x", "y")
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    weights = [numpy_helper.from_array(x, "w")]
    graph = helper.make_graph([node], "product", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = targets.host().threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    yield lambda: session.run(None, {"x": x})


_PLACES: Final[dict[str, Callable[[], contextlib.AbstractContextManager[Call]]]] = {
    "alone": _alone,
    "a busy process": _busy,
    "onnxruntime": _spinning,
}


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """The measurements of one thread count as Markdown."""
    yield f"| work | one thread, µs | {' | '.join(_PLACES)} |"
    yield f"| --- | --- |{' --- |' * len(_PLACES)}"
    for row in found["rows"]:
        ratios = (Ratio(*row["ratios"][place], rounds=0) for place in _PLACES)
        shown = " | ".join(
            f"{ratio}{', above' * (ratio.low > CEILING)}" for ratio in ratios
        )
        yield f"| {row['work']} | {row['seconds'] * 1e6:.1f} | {shown} |"
