"""Arrays that a definition reads together: neither is cut silently."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import ir
from tensorlang.errors import ShapeError
from tensorlang.ops import find, operator


@operator("shared.sum")
def plus(x, y):
    return ir.compute(x.shape, lambda i: x[i] + y[i])


@operator("shared.product")
def product(x, w):
    k = ir.reduce_axis(x.shape[1])
    shape = x.shape[0], w.shape[0]
    return ir.compute(shape, lambda i, j: ir.sum(x[i, k] * w[j, k], k))


@operator("shared.stages")
def stages(x, y):
    doubled = ir.compute(x.shape, lambda i: x[i] * 2.0, "doubled")
    return ir.compute(y.shape, lambda i: doubled[i] + y[i])


@operator("shared.prefix", sizes="n >= x.0")
def prefix(x, table):
    n = table.shape[0]
    del n
    return ir.compute(x.shape, lambda i, j: x[i, j] + table[i, j])


@operator("shared.differences")
def differences(x, y):
    return ir.compute(x.shape, lambda i: x[i] + y[i + 1] - y[i])


def ones(*shapes):
    return [np.ones(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize(
    ("op", "shapes", "said"),
    [
        (plus, ((3,), (5,)), r"y has shape \(5,\) and x has shape \(3,\); dimension 0"),
        (plus, ((5,), (3,)), r"y has shape \(3,\) and x has shape \(5,\); dimension 0"),
        (plus, ((0,), (3,)), "must be equal"),
        (plus, ((3,), (1,)), "must be equal"),
        (product, ((3, 4), (2, 5)), "dimension 1 of w is read along dimension 1 of x"),
        (stages, ((4,), (3,)), "dimension 0 of x is read along dimension 0 of y"),
        (prefix, ((3, 4), (9, 5)), "dimension 1 of table .* dimension 1 of x"),
    ],
)
def test_sizes_that_differ_are_refused(op, shapes, said):
    for _ in range(2):  # whatever was traced before
        with pytest.raises(ShapeError, match=said):
            op(*ones(*shapes))
        op(*ones(*[(4,) * len(shape) for shape in shapes]))


def test_sizes_that_are_stated_or_read_otherwise_may_differ():
    assert prefix(*ones((3, 4), (9, 4))).shape == (3, 4)
    assert differences(*ones((3,), (9,))).shape == (3,)
    dx, dtable = find("shared.prefix_grad")(*ones((3, 4), (3, 4), (9, 4)))
    np.testing.assert_array_equal(dx, np.ones((3, 4)))
    np.testing.assert_array_equal(dtable, np.arange(9)[:, None] < np.full(4, 3))
