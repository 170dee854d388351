"""Every operator on a GPU, on a ragged shape, against the interpreter."""

import pytest

from tensorlang.ops.registry import operators
from tensorlang.tuner.correctness.gate import Gate
from tensorlang.tuner.correctness.ragged import batches, served_workloads

# minutes of interpreting: these are held against float64 on the CPU
SLOW = ("nn.conv3d_transpose", "nn.conv3d_grad_data", "nn.conv3d_grad")
# defined for few shapes, of which none is small
WHOLE = ("nn.conv2d_winograd",)
LIBRARY = [op for op in operators() if op.module.startswith("tensorlang.")]


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.id)
def test_as_the_interpreter(op, device):
    kernel = op.build(op.default, device)
    gate = Gate(op, op.default, op.algorithms["direct"].tolerance)
    assert gate.check(kernel, case_of(op, gate)) <= 1.0
    assert kernel.resources["spill_bytes"] == 0


def case_of(op, gate):
    if op.id in WHOLE:
        return gate.full
    if op.id in SLOW:
        return gate.compiled(next(batches(op.default, op.names(op.default))))
    own = {op.default, *served_workloads(op, op.default)}
    return next((case for case in gate.small if case.workload in own), gate.full)
