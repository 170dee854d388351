"""Gradients of arithmetic, `where` and `clip`: of broadcast operands, too."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ir.dtypes import DType
from tensorlang.ops import math

ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
PAIRS = [
    ((33, 20), (33, 20)),
    ((33, 20), (20,)),
    ((33, 20), (33, 1)),
    ((33, 20), ()),
    ((33, 1), (20,)),
    ((3, 4, 5), (4, 1)),
    ((2, 1, 5), (3, 1)),
    ((1, 1), (7,)),
    ((1,), (1,)),
]


def drawn(shape, dtype="f32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) + 0.1
    return np.asarray(x, DType(dtype).numpy)


def operands(name, shapes, dtype="f32"):
    a, b = (drawn(shape, dtype, seed) for seed, shape in enumerate(shapes))
    if name == "power":
        a = np.abs(a) + np.asarray(0.1, a.dtype)
    shape = np.broadcast_shapes(*shapes)
    return drawn(shape, dtype, 2), a, b


@pytest.mark.parametrize("name", ARITHMETIC)
def test_gradients_are_finite_differences(name):
    op, step = getattr(math, name), 1e-6
    for shapes in PAIRS if name == "multiply" else PAIRS[1:5:3]:
        dy, a, b = operands(name, shapes, "f64")
        for at, gradient in enumerate(getattr(math, f"{name}_grad")(dy, a, b)):
            moved = (a, b)[at]
            assert gradient.shape == moved.shape
            for place in (
                np.ndindex(moved.shape) if moved.size < 9 else [(0,) * moved.ndim]
            ):
                kept = moved[place]
                moved[place] = kept + step
                above = (dy * op(a, b)).sum()
                moved[place] = kept - step
                below = (dy * op(a, b)).sum()
                moved[place] = kept
                slope = (above - below) / (2 * step)
                np.testing.assert_allclose(gradient[place], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_gradients_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    kind = {"power": "pow"}.get(name, name)
    for shapes in PAIRS if name == "add" else PAIRS[:2]:
        dy, a, b = operands(name, shapes)
        theirs = [torch.tensor(x, requires_grad=True) for x in (a, b)]
        getattr(torch, kind)(*theirs).backward(torch.tensor(dy))
        found = getattr(math, f"{name}_grad")(dy, a, b)
        for ours, expected in zip(found, theirs, strict=True):
            assert ours.shape == tuple(expected.shape)
            np.testing.assert_allclose(ours, expected.grad, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["maximum", "minimum", "power", "divide"])
def test_odd_values_are_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    odd = np.array([0, -0.0, 1, -1, 2.5, -3, np.inf, -np.inf, np.nan], np.float32)
    a, b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(odd[:, None], odd))
    theirs = [torch.tensor(x, requires_grad=True) for x in (a, b)]
    getattr(torch, {"power": "pow"}.get(name, name))(*theirs).sum().backward()
    found = getattr(math, f"{name}_grad")(np.ones_like(a), a, b)
    for ours, expected in zip(found, theirs, strict=True):
        np.testing.assert_allclose(ours, expected.grad, rtol=1e-6)


def test_of_a_number_there_is_no_gradient():
    dy, x = drawn((4, 5), seed=1), drawn((4, 5))
    np.testing.assert_array_equal(math.multiply_grad(dy, x, 3.0), dy * 3)
    np.testing.assert_array_equal(math.subtract_grad(dy, 1.0, x), -dy)
    out = np.empty_like(x)
    assert math.divide_grad(dy, x, 4, out=out) is out
    np.testing.assert_array_equal(out, dy / 4)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_narrow_floats_are_summed_in_f32(dtype):
    dy, a, b = operands("multiply", [(500, 40), (40,)], dtype)
    _, db = math.multiply_grad(dy, a, b)
    exact = (dy.astype(np.float64) * a.astype(np.float64)).sum(0)
    assert db.dtype == b.dtype
    np.testing.assert_allclose(db.astype(np.float64), exact, rtol=8e-3, atol=1e-3)


@pytest.mark.parametrize("columns", [3, 100])
def test_long_sums_keep_their_digits(columns):
    dy = np.full((200_003, columns), 0.1, np.float32)
    _, db = math.add_grad(dy, dy, dy[0])
    exact = len(dy) * np.float64(np.float32(0.1))
    np.testing.assert_allclose(db, np.full(columns, exact), rtol=1e-5)


def test_sums_of_nothing_are_0():
    dy, a, b = np.empty((0, 5), "f4"), np.empty((0, 5), "f4"), np.ones(5, "f4")
    da, db = math.multiply_grad(dy, a, b)
    assert da.shape == (0, 5)
    np.testing.assert_array_equal(db, np.zeros(5))
    _, total = math.multiply_grad(dy, a, np.ones((), "f4"))
    assert total.shape == ()
    assert total == 0


def test_one_kernel_for_all_sizes():
    kernels = set()
    for rows in (1, 2, 13, 64, 1000):
        dy, a, b = operands("multiply", [(rows, 40), (40,)])
        if rows > 1:
            kernels.add(math.multiply_grad.kernel(dy, a, b))
        _, db = math.multiply_grad(dy, a, b)
        np.testing.assert_allclose(db, (dy * a).sum(0), rtol=1e-4, atol=1e-4)
    assert len(kernels) == 1


def test_operands_that_do_not_fit():
    dy, a, b = operands("add", [(3, 4), (4,)])
    with pytest.raises(ShapeError, match=r"dy has shape \(4,\), .* of \(3, 4\)"):
        math.add_grad(dy[0], a, b)
    with pytest.raises(ShapeError, match="do not broadcast"):
        math.add_grad(dy, a, b[:3])
    with pytest.raises(DTypeError, match=r"takes f32, .*, not u64; cast it"):
        math.add_grad(dy.astype(np.uint64), a.astype(np.int32), b.astype(np.int32))
    with pytest.raises(ArgumentError, match="2 results, out= gives 1"):
        math.add_grad(dy, a, b, out=(a,))
