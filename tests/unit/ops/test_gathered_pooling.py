"""Gradients of poolings by the windows around each pixel: as they are defined."""

import numpy as np
import pytest

from tensorlang.ir.interpreter import run
from tensorlang.ops import find

WAYS = [
    {"kernel": 3, "stride": 2, "padding": 1},
    {"kernel": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel": 2},
    {"kernel": 3, "stride": 1, "padding": 1},
    {"kernel": 2, "stride": 3},
    {"kernel": 3, "stride": 2, "dilation": 2, "padding": 1},
    {"kernel": (3, 2), "stride": (1, 2), "padding": (1, 0), "layout": "NHWC"},
]


def gradients(op, workload, *arrays):
    """By the definition, and by the algorithm for GPUs."""
    for algorithm in ("direct", "gathered"):
        func = op.function(workload, algorithm)
        rest = [[n.value for n in param.buffer.shape[1:]] for param in func.params]
        shaped = [a.reshape(-1, *s) for a, s in zip(arrays, rest, strict=False)]
        made = np.full((len(shaped[0]), *rest[-1]), np.nan, "f4")
        run(func, *shaped, made)
        yield made


def images(generator, shape):
    """Few values, so that maxima are many; some lost, some of padding's value."""
    x = generator.integers(0, 3, shape).astype("f4")
    x[generator.random(shape) < 0.1] = np.nan
    x[generator.random(shape) < 0.3] = -np.inf
    x[0] = -np.inf
    return x


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_ties_and_nan_and_nothing_but_minus_infinity(way):
    generator = np.random.default_rng(0)
    x = images(generator, (2, 7, 8, 3) if "layout" in way else (2, 3, 7, 8))
    shape = find("nn.max_pool2d").shape(x.shape, **way)
    op = find("nn.max_pool2d_grad")
    workload = op.workload(shape, x.shape, **way)
    dy = generator.integers(1, 9, shape).astype("f4")
    expected, made = gradients(op, workload, dy, x)
    np.testing.assert_array_equal(made, expected)


# Windows that lie apart gather nothing: the definition is the one algorithm there.
OVERLAPPING = [way for way in WAYS if "stride" in way and way["stride"] != 3]


@pytest.mark.parametrize(
    "way", [way for way in OVERLAPPING if "dilation" not in way], ids=str
)
@pytest.mark.parametrize("padding", [True, False])
def test_means(way, padding):
    image = (2, 7, 8, 3) if "layout" in way else (2, 3, 7, 8)
    way = way | {"count_include_pad": padding}
    shape = find("nn.avg_pool2d").shape(image, **way)
    op = find("nn.avg_pool2d_grad")
    workload = op.workload(shape, image, **way)
    dy = np.random.default_rng(0).integers(1, 9, shape).astype("f4")
    expected, made = gradients(op, workload, dy, np.full(image, np.nan, "f4"))
    np.testing.assert_allclose(made, expected, rtol=1e-6)
