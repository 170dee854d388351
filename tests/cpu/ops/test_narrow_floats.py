"""f16 and bf16 in operators: subnormal numbers, and shapes of few or odd elements."""

import ml_dtypes
import numpy as np
import pytest

from tensorlang.ops import math, nn

DTYPES = (ml_dtypes.bfloat16, np.float16)
each = pytest.mark.parametrize("dtype", DTYPES, ids=["bf16", "f16"])


def subnormal(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Numbers of which most are below the normal ones, of both signs."""
    bits = np.random.default_rng(1).integers(0, 1 << 8, shape).astype(np.uint16)
    bits |= np.where(bits & 1, 0x8000, 0).astype(np.uint16)
    return bits.view(dtype)


@each
@pytest.mark.parametrize("columns", [1, 2, 3, 16, 33])
@pytest.mark.parametrize("name", ["maximum", "minimum", "add", "subtract", "multiply"])
def test_subnormal_numbers_stay(name, columns, dtype):
    a, b = subnormal((2, 1), dtype), subnormal((7, 1, columns), dtype)
    b[0] = -17
    got, want = getattr(math, name)(a, b), getattr(np, name)(a, b)
    np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))


@each
@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_activations_keep_them(name, dtype):
    x = subnormal((3, 35), dtype)
    wide = getattr(nn, name)(x.astype(np.float32)).astype(dtype)
    assert (getattr(nn, name)(x) == wide).all()
    assert (wide != 0).any()


@each
@pytest.mark.parametrize(
    "call",
    [
        lambda x: nn.avg_pool1d(x[:, :1, :9], 3, 1, 1),
        lambda x: nn.avg_pool2d(x[:, :, :, None], (3, 1), ceil_mode=True),
        lambda x: nn.max_pool1d(x, 2, 2, 1),
        lambda x: nn.split(x, [1, 2])[1],
        lambda x: nn.pad(x, ((0, 0), (0, 1), (1, 0))),
        lambda x: math.cumsum(x, axis=2),
        lambda x: math.sort(x, axis=1),
        lambda x: nn.softmax(x, axis=1),
        lambda x: nn.layer_norm(x, x[0, 0], x[0, 1]),
        lambda x: math.mean(x, axis=(0, 2)),
    ],
)
def test_odd_shapes_are_computed(call, dtype):
    x = np.random.default_rng(0).standard_normal((3, 5, 11)).astype(dtype)
    wide = call(x.astype(np.float32))
    np.testing.assert_allclose(
        call(x).astype(np.float32), wide, rtol=0.02, atol=0.02, strict=True
    )
