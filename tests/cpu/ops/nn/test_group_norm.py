"""Group normalisation and its gradients, against PyTorch in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")

EPSILON = {np.float32: 4e-6, np.float16: 4e-3, ml_dtypes.bfloat16: 3e-2}


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((3, 6, 5, 7), 2), ((2, 24), 4), ((1, 4, 9), 1), ((2, 4, 130), 4)],
)
def test_results_and_gradients(shape, groups, dtype):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n).astype(dtype) for n in (shape, shape[1], shape[1])]
    wide = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    x, weight, bias = wide
    wanted = torch.nn.functional.group_norm(x, groups, weight, bias)
    dy = rng.standard_normal(shape).astype(dtype)
    wanted.backward(torch.tensor(dy.astype(np.float64)))
    given = (arrays[0], groups, *arrays[1:])
    found = [nn.group_norm(*given), *nn.group_norm_grad(dy, *given)]
    for got, right in zip(
        found, [wanted.detach(), *(w.grad for w in wide)], strict=True
    ):
        assert got.dtype == dtype
        tolerance = EPSILON[dtype] * float(right.abs().max())
        np.testing.assert_allclose(
            got.astype(np.float64), right.numpy(), rtol=0, atol=tolerance
        )


def test_bad_calls():
    x, w = np.ones((2, 6, 5), np.float32), np.ones(6, np.float32)
    with pytest.raises(ArgumentError, match="4 groups do not divide 6"):
        nn.group_norm(x, 4, w, w)
    with pytest.raises(ArgumentError, match="0 groups"):
        nn.group_norm(x, 0, w, w)
    for weights in ((w[:5], w), (w, w[:5]), (None, w[:, None])):
        with pytest.raises(ShapeError, match="each of 6"):
            nn.group_norm(x, 2, *weights)
    with pytest.raises(ArgumentError, match="group_norm_grad needs groups"):
        nn.group_norm_grad(x, x)
    said = "_grad has groups by position and by name; the order is dy, x, groups, wei"
    with pytest.raises(ArgumentError, match=said):
        nn.group_norm_grad(x, x, w, w, groups=2)
    with pytest.raises(
        ArgumentError, match=r"takes 6 arguments \(dy, .*, eps\), got 7"
    ):
        nn.group_norm_grad(x, x, 2, w, w, 1e-5, x)
    assert nn.group_norm(x[:0], 2, w, w).shape == (0, 6, 5)


@pytest.mark.parametrize("given", [(), ("weight",), ("bias",)])
def test_weight_and_bias_are_optional(given):
    rng = np.random.default_rng(0)
    dy, x, weight, bias = (
        rng.standard_normal(n, np.float32) for n in ((3, 6, 5), (3, 6, 5), 6, 6)
    )
    held = {"weight": weight, "bias": bias}
    arrays = {name: held[name] for name in given}
    wide = {n: torch.tensor(a, requires_grad=True) for n, a in arrays.items()}
    seen = {"weight": torch.ones(6), **wide}  # PyTorch fails on a bias without it
    tx = torch.tensor(x, requires_grad=True)
    wanted = torch.nn.functional.group_norm(tx, 2, **seen)
    wanted.backward(torch.tensor(dy))
    found = nn.group_norm_grad(dy, x, 2, **arrays)
    found = found if isinstance(found, tuple) else (found,)
    rights = [wanted.detach(), *(each.grad for each in (tx, *wide.values()))]
    for got, right in zip([nn.group_norm(x, 2, **arrays), *found], rights, strict=True):
        np.testing.assert_allclose(got, right.numpy(), rtol=1e-5, atol=1e-5)


def test_inputs_of_the_gradient_are_moderate():
    op = nn.group_norm.grad
    shapes = (2, 4, 3), (2, 4, 3), (4,), (4,)
    huge = [np.full(shape, 1e8, np.float32) for shape in shapes]
    huge[2][1] = np.inf
    workload = op.workload(*shapes, groups=2)
    dy, x, weight, _ = op.declared.projected(workload, huge)
    assert (dy == 16).all()
    assert (x == 1e8).all()
    assert (weight == np.array([16, np.inf, 16, 16])).all()
