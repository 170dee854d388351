"""Every device gives LLVM's bits: random streams, dropout, all strict floats.

An operator is one of these if neither a declared tolerance nor a float reduction, whose
order is free, leaves its rounding open; the registry tells which.
"""

from itertools import chain

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ops import find
from tensorlang.ops.registry import operators
from tensorlang.ops.spec.examples import arguments
from tensorlang.tuner.correctness.ragged import served_workloads, small_variants
from tensorlang.tuner.correctness.tolerance import reassociation

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 3e38, 0.5, 2.5]
)


def is_strict(op):
    free = reassociation(op.function(op.default), op.sizes(op.default))
    return not free and not op.algorithms["direct"].tolerance


LIBRARY = [op for op in operators() if op.module.startswith("tensorlang.")]


def small(op):
    """A ragged shape, not an empty one, that the kernel of the default one takes."""
    return next(
        each
        for each in chain(
            served_workloads(op, op.default), small_variants(op, op.default, "odd")
        )
        if all(all(shape) for shape in each.shapes)
    )


def given(op, workload):
    """Arguments of a call, with special values among the floats that are read."""
    arrays, scalars = arguments(op, workload, seed=3)
    for number, array in enumerate(arrays):
        if array.dtype.kind not in "iub" and array.size > len(SPECIAL):
            with np.errstate(over="ignore"):
                values = np.roll(SPECIAL, number).astype(array.dtype)
            array.reshape(-1)[: len(SPECIAL)] = values
    return arrays, scalars


def results(op, workload, target):
    arrays, scalars = given(op, workload)
    kernel = op.build(op.default, target)
    kernel.launch(*arrays, *scalars)
    specs = kernel.signature.buffers
    return [a for spec, a in zip(specs, arrays, strict=True) if spec.role != "in"]


def words(array):
    raw = np.ascontiguousarray(array)
    return raw.view(f"u{raw.dtype.itemsize}")


def is_nan(array):
    return np.zeros(array.shape, bool) if array.dtype.kind in "iub" else np.isnan(array)


@pytest.mark.parametrize("op", LIBRARY, ids=lambda op: op.id)
def test_the_same_bits(op, device):
    if not is_strict(op):
        pytest.skip("its rounding is left open")
    workload = small(op)
    pairs = zip(
        results(op, workload, targets.host()),
        results(op, workload, device),
        strict=True,
    )
    for here, there in pairs:
        assert here.size
        same = (words(here) == words(there)) | (is_nan(here) & is_nan(there))
        assert same.all(), (here[~same][:5], there[~same][:5])


def test_which_operators_these_are():
    names = {op.id for op in LIBRARY if is_strict(op)}
    drawn = {op.id for op in operators() if op.id.startswith("random.")}
    assert drawn <= names
    assert {"nn.dropout", "nn.dropout_grad", "nn.gelu", "optim.adam"} <= names
    assert not {"nn.dense", "math.sum", "nn.softmax"} & names


def test_other_bits_are_seen(device):
    gelu = find("nn.gelu")
    here = results(gelu, small(gelu), device)[0]
    other = here.copy()
    other[-1] = np.nextafter(other[-1], np.float32(np.inf))
    assert (words(here) != words(other)).any()
