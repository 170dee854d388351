"""The text of a kernel is the same in every process, however Python orders its sets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

OPERATORS = "nn.avg_pool2d_grad nn.max_pool1d_grad nn.softmax_grad math.matmul"
TEXTS = """
import sys
from tensorlang import targets
from tensorlang.ops.kernels import building; from tensorlang.ops import find
from tensorlang.runtime import backends

target = targets.get(sys.argv[1])
backend = backends.of(target)
for name in sys.argv[2:]:
    op = find(name)
    made, _ = building.default(op, op.default, target, {})
    print(made.function)
    print(backend.render(backend.lower(made.function, target), target, {}))
"""


def texts(target: str, seed: int) -> str:
    made = subprocess.run(
        [sys.executable, "-c", TEXTS, target, *OPERATORS.split()],
        env=os.environ | {"PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout


@pytest.mark.parametrize("target", ["llvm", "cuda:sm_90a"])
def test_kernels_are_the_same_text_in_every_process(target):
    first, *others = (texts(target, seed) for seed in (1, 2, 3))
    assert "nn_avg_pool2d_grad" in first
    assert others == [first, first]
