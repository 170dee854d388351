"""Every operator on an OpenCL device, on a ragged shape, against the interpreter."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from tensorlang.ops.kernels.building import default, preferred
from tensorlang.ops.registry import find, operators
from tensorlang.tuner.correctness.gate import Gate
from tensorlang.tuner.correctness.ragged import served_workloads

MACHINE = Path(__file__).parents[1] / "data/machines/zen4.json"
# where the default is too large for the interpreter, and the kernel serves no smaller
# shapes: sizes whose schedule has the same knobs
SMALLER = {
    "nn.conv2d_winograd": ((1, 64, 30, 30), (2, 36, 65, 32)),
    "nn.conv3d_grad": ((1, 64, 3, 4, 28), (1, 64, 5, 6, 30), (64, 64, 3, 3, 3)),
    "nn.conv3d_grad_data": ((1, 64, 3, 4, 11), (64, 64, 3, 3, 3)),
    "nn.conv3d_transpose": ((1, 64, 3, 4, 11), (64, 64, 3, 3, 3)),
    "nn.dense_int4": ((37, 1024), (512, 512), (512,)),
    "nn.dense_int4_grad": ((13, 1024), (13, 1024), (1024, 512), (1024,)),
}
LIBRARY = [op for op in operators() if op.module.startswith("tensorlang.")]


# one of each kind of schedule for threads
THREADS = [
    "math.add",
    "math.argmax",
    "math.cumsum",
    "math.logsumexp",
    "math.matmul",
    "math.mean",
    "nn.avg_pool2d_grad",
    "nn.batch_norm_train",
    "nn.conv2d",
    "nn.cross_entropy",
    "nn.dense",
    "nn.dense_grad",
    "nn.dropout_train",
    "nn.embedding_grad",
    "nn.layer_norm_grad",
    "nn.softmax",
    "nn.slice",
    "nn.slice_grad",
    "nn.transpose",
    "optim.adam",
    "optim.sum_of_squares",
    "random.categorical",
    "random.normal",
]


# a target after the other, so that both are compared with one reference
CASES = [
    pytest.param(op, target, id=f"{op.id}{suffix}")
    for op in LIBRARY
    for target, suffix in (("device", ""), ("gpu_like", "-threads"))
    if target == "device" or op.id in THREADS
]


@pytest.mark.parametrize(("op", "target"), CASES)
def test_as_the_interpreter(op, target, request):
    device = request.getfixturevalue(target)
    workload = workload_of(op)
    kernel = op.build(workload, device)
    built = op.algorithms[preferred(op, workload, device)]
    gate, case = reference(op, built.tolerance, finite=built.finite)
    assert gate.check(kernel, case) <= 1.0
    assert kernel.resources["launches"] >= 1


@pytest.mark.parametrize("name", SMALLER)
def test_smaller_sizes_have_the_schedule_of_the_default(name, device, monkeypatch):
    """On the machine for which they were chosen."""
    monkeypatch.setenv("TENSORLANG_MACHINE", str(MACHINE))
    device = replace(device, vector_bits=512, vector_registers=32)
    op = find(name)
    small, full = (default(op, w, device, {})[1] for w in (workload_of(op), op.default))
    assert small.values == full.values


def test_kinds_of_schedules_for_threads():
    assert set(THREADS) <= {op.id for op in LIBRARY}


@lru_cache(maxsize=1)
def reference(op, tolerance, *, finite):
    workload = workload_of(op)
    gate = Gate(op, workload, tolerance, finite=finite)
    small = next(served_workloads(op, workload), None)
    return gate, gate.full if small is None else gate.case(small)


def workload_of(op):
    if op.id not in SMALLER:
        return op.default
    small = op.default.with_shapes(*SMALLER[op.id])
    sizes = dict(small.attributes)
    if "size" in sizes:  # of the images, here of `nn.conv3d_grad_data`
        sizes["size"] = tuple(n + 2 for n in small.shapes[0][2:])
    return replace(small, attributes=tuple(sizes.items()))
