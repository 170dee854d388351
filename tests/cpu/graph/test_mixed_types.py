"""Programs of arrays of different types: conversions are nodes, with gradients."""

import numpy as np
import pytest

from tensorlang import graph, ir
from tensorlang.ops import math


def drawn(shape, dtype):
    numbers = np.random.default_rng(0).integers(0, 5, shape)
    return numbers.astype(ir.as_dtype(dtype).numpy)


MIXED = {
    "product": (math.multiply, "f16", "i32"),
    "quotient": (math.divide, "f32", "f64"),
    "sum": (math.add, "bf16", "f16"),
    "largest": (math.maximum, "i8", "f32"),
}


@pytest.mark.parametrize("name", MIXED)
def test_programs_have_gradients_in_the_types_of_their_arrays(name):
    op, *kinds = MIXED[name]
    x, y = (
        graph.input(graph.TensorSpec(shape, kind))
        for kind, shape in zip(kinds, [(3, 4), (4,)], strict=True)
    )
    made = op(x, y)
    dx, dy = graph.gradients(math.sum(math.cast(made, "f32")), [x, y])
    assert [dx.dtype, dy.dtype] == kinds
    data = drawn((3, 4), kinds[0]), drawn((4,), kinds[1]) + 1
    found = graph.Graph([x, y], (made, dx, dy))(*data)
    assert found[0].dtype == ir.as_dtype(made.dtype).numpy
    np.testing.assert_array_equal(found[0], op(*data))
    wide = [each.astype("f") for each in data]
    one = np.ones((3, 4), "f")
    wanted = getattr(math, f"{op.__name__}_grad")(one, *wide)
    for kind, ours, theirs in zip(kinds, found[1:], wanted, strict=True):
        there = ir.DType(kind).is_float
        np.testing.assert_allclose(ours, theirs if there else 0, 1e-2, 1e-2)


def test_numbers_in_programs():
    x = graph.input(graph.TensorSpec((4,), "i32"))
    for number, kind in ((2, "i32"), (0.5, "f32"), (np.float32(2), "f32")):
        made = x * number
        assert made.dtype == kind
        found = graph.Graph([x], made)(np.arange(4, dtype="i"))
        np.testing.assert_array_equal(found, np.arange(4) * number)
