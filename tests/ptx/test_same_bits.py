"""Operators run as PTX give LLVM's bits where nothing leaves their rounding open.

A few of each family; all of them with `pytest --ptx tests/targets`.
"""

from itertools import chain

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ops import find
from tensorlang.ops.spec.examples import arguments
from tensorlang.tuner.correctness.ragged import served_workloads, small_variants

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, 0.5]
NAMES = [
    "math.sin",
    "math.cos_grad",
    "math.exp",
    "math.log",
    "math.tanh",
    "math.erf",
    "math.power",
    "math.floor_divide",
    "math.remainder",
    "math.cumsum",
    "math.sort",
    "math.argmax",
    "nn.transpose",
    "nn.gelu",
    "nn.dropout",
    "nn.max_pool2d_grad",
    "optim.adam",
    "random.normal",
    "random.randint",
    "random.split",
    "random.categorical",
]


def given(op, workload):
    arrays, scalars = arguments(op, workload, seed=3)
    for array in arrays:
        if array.dtype.kind not in "iub" and array.size > len(SPECIAL):
            array.reshape(-1)[: len(SPECIAL)] = SPECIAL
    return arrays, scalars


def results(op, workload, target):
    arrays, scalars = given(op, workload)
    kernel = op.build(op.default, target)
    kernel.launch(*arrays, *scalars)
    specs = kernel.signature.buffers
    return [a for spec, a in zip(specs, arrays, strict=True) if spec.role != "in"]


def assert_same(here, there):
    word = f"u{here.dtype.itemsize}"
    same = here.view(word) == there.view(word)
    if here.dtype.kind not in "iub":
        same |= np.isnan(here) & np.isnan(there)
    assert here.size
    assert same.all(), (here[~same][:5], there[~same][:5])


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits(name, ptx_driver):
    op = find(name)
    workload = next(
        chain(served_workloads(op, op.default), small_variants(op, op.default, "odd"))
    )
    here = results(op, workload, targets.host())
    there = results(op, workload, targets.get("cuda"))
    for a, b in zip(here, there, strict=True):
        assert_same(a, b)
    assert ptx_driver.issued
