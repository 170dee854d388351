"""Every operator on a GPU, on a ragged shape, against the interpreter."""

import pytest

from tensorlang.ops.registry import operators
from tensorlang.tuner.gate import Gate

# minutes of interpreting; their kernels are those of two dimensions with one more loop
SLOW = ("nn.conv3d_transpose", "nn.conv3d_grad_data", "nn.conv3d_grad")
# defined for few shapes, of which none is small
WHOLE = ("nn.conv2d_winograd",)
LIBRARY = [
    op
    for op in operators()
    if op.module.startswith("tensorlang.") and op.id not in SLOW
]


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.id)
def test_as_the_interpreter(op, device):
    kernel = op.build(op.default, device)
    gate = Gate(op, op.default, op.algorithms["direct"].tolerance)
    small = [] if op.id in WHOLE else gate.small
    assert gate.check(kernel, (small or [gate.full])[0]) <= 1.0
    assert kernel.resources["spill_bytes"] == 0
