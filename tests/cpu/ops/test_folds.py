"""Folds of one's own: what follows from a definition of rows."""

import numpy as np
import pytest

from tensorlang import graph, ir
from tensorlang.errors import ArgumentError, OperatorError, ShapeError
from tensorlang.ops import find, fold
from tensorlang.ops.spec.signature import Floats, Numbers, Scalar


@fold("test_folds.extent", Numbers, empty=False)
def extent(rows):
    """From the smallest to the largest."""
    low = rows.fold("min", rows.__getitem__, "low")
    high = rows.fold("max", rows.__getitem__, "high")
    dtype = rows.array.dtype
    return rows.row(lambda row: ir.stored(high[row] - low[row], dtype), "y")


@fold("test_folds.energy", Floats)
def energy(rows, scale: Scalar = 1.0):
    """The sum of squares, scaled."""
    total = rows.fold_long("sum", lambda at: rows[at] * rows[at], "total")
    dtype = rows.array.dtype
    return rows.row(lambda row: ir.stored(total[row] * scale, dtype), "y")


@energy.gradient
def energy_grad(dy, rows, scale: Scalar = 1.0):
    """`2 scale x dy`."""
    return rows.each_of(dy, lambda dy, at: rows[at] * (2.0 * scale) * dy)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, 2), [2], ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_all_axes_and_types(axis, keepdims):
    x = np.random.default_rng(0).integers(-9, 9, (3, 4, 5))
    axes = tuple(axis) if isinstance(axis, list) else axis
    wanted = x.max(axes, keepdims=keepdims) - x.min(axes, keepdims=keepdims)
    for dtype in ("i4", "i8", "f4", "f8", "f2"):
        got = extent(x.astype(dtype), axis, keepdims)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, wanted)


def test_it_has_a_gradient_beside_it_and_in_graphs():
    x = np.random.default_rng(1).standard_normal((3, 4)).astype("f4")
    dy = np.arange(3, dtype="f4")
    wanted = 6 * x * dy[:, None]
    grad = find("test_folds.energy_grad")
    np.testing.assert_allclose(grad(dy, x, 1, 3.0), wanted, rtol=1e-6)
    np.testing.assert_allclose(
        grad(dy[:, None], x, -1, scale=3.0, keepdims=True), wanted, rtol=1e-6
    )
    slope = graph.trace(
        lambda x: graph.gradients(energy(x, None, 3.0), [x])[0],
        (graph.TensorSpec(x.shape),),
    )
    np.testing.assert_allclose(slope(x), 6 * x, rtol=1e-6)
    with pytest.raises(ShapeError, match=r"dy has shape \(4,\); folding axis 1 of"):
        grad(np.ones(4, "f4"), x, 1)


def test_rows_of_any_number_and_length_run_one_kernel():
    for shape in [(70_000,), (1 << 20,), (1, 40_000)]:
        x = np.full(shape, 0.5, "f4")
        np.testing.assert_allclose(energy(x, -1), np.square(x).sum(-1))
    assert sum(key[0] == "kernel" for key in energy.kernels) <= 3


def test_what_does_not_fit_is_refused():
    x = np.zeros((3, 0), "f4")
    with pytest.raises(ShapeError, match=r"shape \(3, 0\) has nothing to choose from"):
        extent(x, 1)
    assert extent(x, 0).shape == (0,)
    assert energy(x, 1).tolist() == [0.0, 0.0, 0.0]
    for axis, says in (
        (2, "axis 2 does not exist"),
        ((0, -2), "names an axis twice"),
        (True, "None, a whole number or a tuple"),
        (1.0, "None, a whole number or a tuple"),
        (([0],), "None, a whole number or a tuple"),
        ("0", "None, a whole number or a tuple"),
    ):
        with pytest.raises(ArgumentError, match=says):
            energy(x, axis)
    with pytest.raises(ArgumentError, match="keepdims is True or False, not 'yes'"):
        energy(x, 0, keepdims="yes")
    with pytest.raises(OperatorError, match="is not a name"):
        fold("test_folds.no name", Floats)


def _pair(rows):
    return tuple(rows.fold(how, rows.__getitem__, how) for how in ("min", "max"))


@pytest.mark.parametrize(
    "body",
    [
        lambda rows: None,  # noqa: ARG005 - forgotten
        _pair,
        lambda rows: rows.each(rows.__getitem__, "y"),
        lambda rows: ir.compute((2,), lambda i: ir.as_expr(1.0)),  # noqa: ARG005
    ],
)
def test_what_makes_no_value_a_row_is_refused(body, request):
    number = request.node.callspec.indices["body"]
    wrong = fold(f"test_folds.wrong{number}", Floats)(body)
    with pytest.raises(OperatorError, match=r"one value a row, as rows\.fold"):
        wrong(np.ones((3, 4), np.float32), 1)


@fold("test_folds.plain", Floats)
def plain(rows):
    """A sum, whose gradient is wrong: it has a value a row."""
    return rows.fold("sum", rows.__getitem__, "y")


def test_a_gradient_has_the_shape_of_its_array():
    grad = plain.gradient(lambda dy, rows: rows.row(lambda _: ir.as_expr(1.0), "dx"))  # noqa: ARG005
    with pytest.raises(OperatorError, match=r"a value a place, as rows\.each"):
        grad(np.ones(3, np.float32), np.ones((3, 4), np.float32), 1)


@fold("test_folds.flat", Floats)
def flat(rows):
    """A sum, whose gradient is the array."""
    return rows.fold("sum", rows.__getitem__, "y")


flat_grad = flat.gradient(lambda dy, rows: rows.each(rows.__getitem__, "dx"))  # noqa: ARG005


@pytest.mark.parametrize("axis", [0, 1, (0, 2), (1, 2), None])
def test_a_gradient_of_rows_has_the_shape_of_its_array(axis):
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    dy = np.ones(x.sum(axis).shape, np.float32)
    np.testing.assert_array_equal(flat_grad(dy, x, axis), x)
