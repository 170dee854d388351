"""Every operator on an OpenCL device, on a ragged shape, against the interpreter."""

import pytest

from tensorlang.ops.building import preferred
from tensorlang.ops.registry import find, operators
from tensorlang.tuner.gate import Gate
from tensorlang.tuner.ragged import batches, served_workloads

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


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.id)
def test_as_the_interpreter(op, device):
    check(op, device)


@pytest.mark.parametrize("name", THREADS)
def test_threads_as_the_interpreter(name, gpu_like):
    check(find(name), gpu_like)


def check(op, device):
    kernel = op.build(op.default, device)
    built = op.algorithms[preferred(op, op.default, device)]
    gate = Gate(op, op.default, built.tolerance, finite=built.finite)
    assert gate.check(kernel, case_of(op, gate)) <= 1.0
    assert kernel.resources["launches"] >= 1


def case_of(op, gate):
    if op.id in WHOLE:
        return gate.full
    if op.id in SLOW:
        return gate.compiled(next(batches(op.default, op.names(op.default))))
    small = next(served_workloads(op, op.default), None)
    return gate.full if small is None else gate.case(small)
