"""The gradients of folds against PyTorch, and against finite differences."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import math

torch = pytest.importorskip("torch")

NAMES = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
    "var": lambda x, axis, keepdim: torch.var(x, axis, correction=0, keepdim=keepdim),
    "logsumexp": torch.logsumexp,
}
CASES = [
    ((5, 7), 1),
    ((5, 100), -1),
    ((5, 7), 0),
    ((100,), None),
    ((3, 5, 20), 1),
    ((2, 3, 4, 5), (1, 3)),
    ((4, 1, 3), 1),
]


def drawn(*shape, seed=0):
    """Numbers with many ties."""
    return np.round(np.random.default_rng(seed).standard_normal(shape) * 2) / 2


def check(name, x, axis, tolerance, *, keepdims=False):
    wide = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    axes = tuple(range(x.ndim)) if axis is None else axis
    y = NAMES[name](wide, axes, keepdim=keepdims)
    dy = np.asarray(drawn(*y.shape, seed=1) + 0.25).astype(x.dtype)
    y.backward(torch.from_numpy(dy.astype(np.float64)))
    dx = getattr(math, f"{name}_grad")(dy, x, axis, keepdims=keepdims)
    assert dx.dtype == x.dtype
    np.testing.assert_allclose(
        dx.astype(np.float64), wide.grad.numpy(), rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("name", NAMES)
def test_forms(name):
    for shape, axis in CASES:
        check(name, drawn(*shape), axis, 1e-12)
    check(name, drawn(3, 5, 20), 1, 1e-12, keepdims=True)
    check(name, drawn(20, 6).T[::2], 1, 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_types(name):
    check(name, drawn(4, 90).astype(np.float32), 1, 1e-5)
    check(name, drawn(4, 90).astype(ml_dtypes.bfloat16), 1, 1e-2)


@pytest.mark.parametrize("name", ["var", "logsumexp"])
def test_finite_differences(name):
    op, grad = getattr(math, name), getattr(math, f"{name}_grad")
    x, dy, step = drawn(3, 4), drawn(3, seed=1), 1e-6
    made = grad(dy, x, 1)
    for at in np.ndindex(x.shape):
        held, ends = x[at], []
        for moved in (held + step, held - step):
            x[at] = moved
            ends.append((op(x, 1) * dy).sum())
        x[at] = held
        assert made[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-7)


def test_edges():
    x = np.array([[1.0, np.nan, 3.0], [-np.inf] * 3, [np.inf, 0.0, 1.0]])
    dy = np.ones(3)
    assert math.max_grad(dy, x, 1).tolist() == [[0, 1, 0], [1 / 3] * 3, [1, 0, 0]]
    assert np.isnan(math.logsumexp_grad(dy, x, 1)[1]).all()  # as in PyTorch
    lowest = np.full((1, 7), -np.inf, np.float32)
    assert np.isnan(math.logsumexp_grad(np.ones(1, np.float32), lowest, -1)).all()
    for name in NAMES:
        grad = getattr(math, f"{name}_grad")
        assert grad(np.zeros(3), np.zeros((3, 0)), 1).shape == (3, 0)
        assert grad(np.zeros(0), np.zeros((0, 3)), 1).shape == (0, 3)


def test_one_kernel_for_all_sizes():
    ops = [getattr(math, f"{name}_grad") for name in NAMES]

    def kernels():
        return [sum(key[0] == "kernel" for key in op.kernels) for op in ops]

    for name in NAMES:
        check(name, drawn(4, 90), 1, 1e-10)
    before = kernels()
    for name in NAMES:
        for shape in [(13, 90), (1000, 65), (64, 300)]:
            check(name, drawn(*shape), 1, 1e-10)
    assert kernels() == before


@pytest.mark.parametrize(
    ("name", "given", "error", "match"),
    [
        ("sum", (drawn(2), drawn(2, 3), 0), ShapeError, r"dy has shape \(2,\); .*\(3,"),
        ("max", (drawn(2), drawn(2, 3)), ShapeError, r"dy has shape \(2,\)"),
        ("var", (drawn(2), drawn(2, 3), 5), ArgumentError, "axis 5 does not exist"),
        (
            "max",
            (drawn(2), drawn(2, 3).astype(np.float32), 1),
            DTypeError,
            "f64, f32",
        ),
    ],
)
def test_bad_calls(name, given, error, match):
    with pytest.raises(error, match=match):
        getattr(math, f"{name}_grad")(*given)
