"""Rotary position embeddings and their gradients, against complex multiplication."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ShapeError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")

EPSILON = {np.float32: 1e-6, np.float16: 4e-3, ml_dtypes.bfloat16: 3e-2}


def rotated(x, cos, sin, *, interleaved):
    """Pairs times `cos + i sin`."""
    half = x.shape[-1] // 2
    pairs = (x[..., ::2], x[..., 1::2]) if interleaved else x.split(half, -1)
    turned = torch.complex(*pairs) * torch.complex(cos, sin)
    if interleaved:
        return torch.view_as_real(turned).flatten(-2)
    return torch.cat([turned.real, turned.imag], -1)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("shape", [(2, 3, 7, 40), (5, 2), (1, 2, 1, 16), (0, 3, 4)])
def test_results_and_gradients(shape, dtype, interleaved, batched):
    rng = np.random.default_rng(0)
    batch = shape[:1] if batched and len(shape) > 2 else ()
    angles = rng.uniform(0, 6, (*batch, shape[-2], shape[-1] // 2))
    arrays = [rng.standard_normal(shape), np.cos(angles), np.sin(angles)]
    arrays = [array.astype(dtype) for array in arrays]
    wide = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    heads = [1] * (len(shape) - 3)
    tables = [w.reshape(*batch, *heads, *angles.shape[-2:]) for w in wide[1:]]
    wanted = rotated(wide[0], *tables, interleaved=interleaved)
    dy = rng.standard_normal(shape).astype(dtype)
    wanted.backward(torch.tensor(dy.astype(np.float64)))
    y = nn.rotary(*arrays, interleaved=interleaved)
    found = [y, *nn.rotary_grad(dy, *arrays, interleaved=interleaved)]
    for got, right in zip(
        found, [wanted.detach(), *(w.grad for w in wide)], strict=True
    ):
        assert got.dtype == dtype
        size = float(right.abs().max()) if right.numel() else 1.0
        np.testing.assert_allclose(
            got.astype(np.float64), right.numpy(), rtol=0, atol=EPSILON[dtype] * size
        )


def test_shapes_that_do_not_fit():
    x = np.ones((2, 3, 4), np.float32)
    with pytest.raises(ShapeError, match="even depth"):
        nn.rotary(x[..., :3], x[0, :, :1], x[0, :, :1])
    with pytest.raises(ShapeError, match="half as wide"):
        nn.rotary(x, x[0], x[0])
