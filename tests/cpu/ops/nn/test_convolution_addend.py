"""Convolutions with an addend: added before the activation, in one kernel."""

import ml_dtypes
import numpy as np
import pytest

from tensorlang import graph
from tensorlang.errors import DTypeError, ShapeError
from tensorlang.graph import TensorSpec
from tensorlang.ops import math, nn

RNG = np.random.default_rng(7)
CASES = [
    ((2, 8, 9, 7), (16, 8, 3, 3), {"padding": 1}),
    ((2, 8, 9, 7), (16, 8, 1, 1), {}),
    ((2, 8, 9, 7), (8, 1, 3, 3), {"groups": 8, "stride": 2}),
    ((1, 3, 17, 13), (5, 3, 3, 3), {"stride": 2}),
    ((2, 8, 5, 5), (6, 4, 3, 3), {"groups": 2}),
    ((0, 8, 5, 5), (6, 8, 3, 3), {}),
]
ACTIVATIONS = {
    None: lambda y: y,
    "relu": lambda y: np.maximum(y, 0),
    "relu6": lambda y: np.clip(y, 0, 6),
}


def normal(shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def last(array):
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("image", "window", "how"), CASES)
def test_it_is_added_before_the_activation(image, window, how, biased, layout) -> None:
    x, w = normal(image), normal(window)
    b = normal(window[0]) if biased else None
    x = x if layout == "NCHW" else last(x)
    plain = nn.conv2d(x, w, b, layout=layout, **how)
    more = 4 * normal(plain.shape)
    every = (image, window, how) == CASES[0]
    for name in ACTIVATIONS if every else ["relu6"]:
        given = {"layout": layout, "activation": name, "addend": more, **how}
        wanted = ACTIVATIONS[name](plain + more)
        np.testing.assert_allclose(nn.conv2d(x, w, b, **given), wanted, atol=2e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_it_is_rounded_once(dtype) -> None:
    x, w = normal((2, 4, 5, 6), dtype), normal((3, 4, 3, 3), dtype)
    wide = nn.conv2d(x.astype(np.float64), w.astype(np.float64))
    more = normal(wide.shape, dtype)
    made = nn.conv2d(x, w, addend=more)
    assert made.dtype == dtype
    np.testing.assert_allclose(
        made.astype(np.float64),
        wide + more.astype(np.float64),
        rtol=float(ml_dtypes.finfo(dtype).eps),
        atol=float(ml_dtypes.finfo(dtype).eps),
    )


def test_it_may_be_a_view_and_the_result() -> None:
    x, w = normal((2, 4, 5, 6)), normal((3, 4, 1, 1))
    plain, more = nn.conv2d(x, w), normal((2, 5, 6, 3)).transpose(0, 3, 1, 2)
    wanted = plain + more
    np.testing.assert_allclose(nn.conv2d(x, w, addend=more), wanted, atol=1e-5)
    held = np.ascontiguousarray(more)
    nn.conv2d(x, w, addend=held, out=held)
    np.testing.assert_allclose(held, wanted, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 3, 5, 6), (2, 3, 5, 1), (2, 3, 5), (3,), ()])
def test_another_shape_is_refused(shape) -> None:
    with pytest.raises(ShapeError):
        nn.conv2d(normal((2, 4, 5, 6)), normal((3, 4, 1, 1)), addend=normal(shape))


def test_another_dtype_is_refused() -> None:
    with pytest.raises(DTypeError):
        nn.conv2d(
            normal((2, 4, 5, 6)),
            normal((3, 4, 1, 1)),
            addend=normal((2, 3, 5, 6), np.float64),
        )


@pytest.mark.parametrize("shape", [(2, 64, 28, 30), (3, 40, 57, 29)])
@pytest.mark.parametrize("tolerance", [2.0**-14, 2.0**-12])
def test_winograds_algorithms_add_it_too(shape, tolerance) -> None:
    x, w, b = normal(shape), normal((72, shape[1], 3, 3)), normal((72,))
    more = normal((shape[0], 72, *shape[2:]))
    how = {"padding": 1, "activation": "relu", "addend": more}
    given = (each.astype(np.float64) for each in (x, w, b))
    wanted = nn.conv2d(*given, **how | {"addend": more.astype(np.float64)})
    packed = nn.prepack(nn.conv2d, w, tolerance=tolerance)
    for windows in (w, packed):
        found = nn.conv2d(x, windows, b, tolerance=tolerance, **how)
        error = np.abs(found - wanted)
        assert error.max() <= tolerance * np.abs(wanted).max()
        assert error.any(), "the sums are the direct ones"
    held = more.copy()
    again = nn.conv2d(x, packed, b, out=held, **how | {"addend": held})
    np.testing.assert_array_equal(again, found)
    with pytest.raises(ShapeError, match="addend has shape"):
        nn.conv2d(x, packed, b, **how | {"addend": more[:1]})


def test_gradients() -> None:
    specs = [TensorSpec(s) for s in ((2, 4, 5, 6), (3, 4, 3, 3), (2, 3, 3, 4))]
    arrays = [normal(spec.shape) for spec in specs]

    def gradients_of(block):
        def body(x, w, more):
            return tuple(graph.gradients(math.sum(block(x, w, more)), [x, w, more]))

        return graph.trace(body, specs)(*arrays)

    for name, activation in (
        ("relu", nn.relu),
        ("silu", nn.silu),
        ("relu6", lambda y: math.clip(y, 0.0, 6.0)),
    ):
        wanted = gradients_of(
            lambda x, w, more, act=activation: act(nn.conv2d(x, w) + more)
        )
        found = gradients_of(
            lambda x, w, more, name=name: nn.conv2d(x, w, activation=name, addend=more)
        )
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)
