"""Every operator on an OpenCL device, on a ragged shape, against the interpreter."""

from functools import lru_cache

import pytest

from tensorlang.ops.kernels.building import preferred
from tensorlang.ops.registry import operators
from tensorlang.tuner.correctness.gate import Gate
from tensorlang.tuner.correctness.ragged import batches, served_workloads

# minutes of interpreting: these are held against float64 on the CPU
SLOW = ("nn.conv3d_transpose", "nn.conv3d_grad_data", "nn.conv3d_grad")
# defined for few shapes, of which none is small
WHOLE = ("nn.conv2d_winograd",)
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
    kernel = op.build(op.default, device)
    built = op.algorithms[preferred(op, op.default, device)]
    gate, case = reference(op, built.tolerance, finite=built.finite)
    assert gate.check(kernel, case) <= 1.0
    assert kernel.resources["launches"] >= 1


def test_kinds_of_schedules_for_threads():
    assert set(THREADS) <= {op.id for op in LIBRARY}


@lru_cache(maxsize=1)
def reference(op, tolerance, *, finite):
    gate = Gate(op, op.default, tolerance, finite=finite)
    return gate, case_of(op, gate)


def case_of(op, gate):
    if op.id in WHOLE:
        return gate.full
    if op.id in SLOW:
        return gate.compiled(next(batches(op.default, op.names(op.default))))
    small = next(served_workloads(op, op.default), None)
    return gate.full if small is None else gate.case(small)
