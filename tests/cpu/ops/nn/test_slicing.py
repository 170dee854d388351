"""Slices and where they go back to, against NumPy, to the bit."""

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import nn

RNG = np.random.default_rng(0)
DTYPES = [
    *(np.float32, np.float64, np.float16, ml_dtypes.bfloat16),
    *(np.int8, np.uint16, np.int32, np.uint64, bool),
]


def draw(shape, dtype=np.float32):
    return np.asarray(RNG.integers(0, 2 if dtype is bool else 100, shape)).astype(dtype)


def same(a, b):
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert a.tobytes() == np.ascontiguousarray(b).tobytes()


def bounds_of(cuts):
    """Python's slices as begin, end and step."""
    return tuple(zip(*((c.start, c.stop, c.step) for c in cuts), strict=True)) or (
        ((), (), ()) if not cuts else ()
    )


def check(x, cuts):
    begin, end, step = bounds_of(cuts)
    y = nn.slice(x, begin, end, step)
    same(y, x[cuts])
    back = np.zeros_like(x)
    back[cuts] = y
    same(nn.slice_grad(y, x, begin, end, step), back)


S = np.s_
CASES = [
    ((), ()),
    ((7,), S[2:5,]),
    ((7,), S[::-1,]),
    ((7,), S[5:1:-2,]),
    ((40, 96), S[:, 32:64]),
    ((40, 96), S[:, 31:64]),
    ((40, 96), S[3:4]),
    ((40, 96), S[::2]),
    ((40, 96), S[:, ::2]),
    ((40, 97), S[:, 1::3]),
    ((40, 96), S[:, ::-1]),
    ((40, 96), S[::-1, 5:6]),
    ((40, 96), S[:, 96:]),
    ((0, 96), S[:, 3:5]),
    ((5, 0), S[1:3, :]),
    ((3, 4, 5, 6), S[:, 0:1]),
    ((3, 4, 5, 6), S[:, 1:2, :, 2:3]),
    ((3, 4, 5, 6), S[1:, ::2, ::-1, 1:-1]),
    ((1, 4, 1, 6), S[:, 2:, ::-1, ::5]),
    ((2, 8, 30, 33), S[:, :, 3:-3, 2:-2]),
    ((2, 8, 30, 33), S[:, :, ::2, ::2]),
    ((200_000,), S[7:150_000,]),
    ((64, 3000), S[:, 0:3]),
    ((64, 5000), S[0:1, 4000:]),
]


@pytest.mark.parametrize(("shape", "cuts"), CASES)
def test_slices_and_their_gradients(shape, cuts):
    check(draw(shape), cuts if isinstance(cuts, tuple) else (cuts,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cuts", [S[:, 4:36], S[:, ::-2], S[1::3]])
def test_of_every_type(dtype, cuts):
    check(draw((9, 40), dtype), cuts if isinstance(cuts, tuple) else (cuts,))


def test_special_values_stay_as_they_are():
    x = np.array([np.nan, -0.0, np.inf, 1e-45, 0.0, -np.inf, 2, 3] * 4, np.float32)
    x.view(np.uint32)[8] = 0x7FA12345  # a NaN with a payload, which signals
    same(nn.slice(x, 1, -1, 2), x[1:-1:2])
    same(nn.slice(x, None, None, -1), x[::-1])
    same(nn.slice_grad(x[1:2], x[:3], 1, 2), np.array([0, -0.0, 0], np.float32))


@st.composite
def an_array_and_slices(draw_):
    shape = draw_(arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=6))
    bound = st.none() | st.integers(-8, 8)
    step = st.none() | st.integers(-3, 3).filter(bool)
    one = st.builds(slice, bound, bound, step)
    count = draw_(st.integers(0, len(shape)))
    return shape, tuple(draw_(st.lists(one, min_size=count, max_size=count)))


@given(an_array_and_slices())
@settings(max_examples=25)
def test_as_numpy(case):
    shape, cuts = case
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    check(x, cuts)


def test_one_kernel_for_all_batches():
    nn.slice(draw((3, 40)), (None, 8), (None, 24))
    built = {id(k) for k in nn.slice.kernels.values() if callable(k)}
    for batch in (1, 2, 13, 1000):
        x = draw((batch, 40))
        same(nn.slice(x, (None, 8), (None, 24)), x[:, 8:24])
    assert {id(k) for k in nn.slice.kernels.values() if callable(k)} == built


def test_backwards_takes_no_longer_way():
    """Neither numbers fetched one by one nor, of a gradient, a vector with no place."""
    x = draw((40, 96))
    back = nn.slice.kernel(x, (None, None), (None, None), (None, -1), target="llvm")
    third = nn.slice.kernel(draw((64, 3)), (None, 1), (None, 2), target="llvm")
    assert "gather" not in back.source
    whole = third.source.partition("@llvm.masked.gather")[0]  # before the ragged end
    for source in (back.source, whole):
        assert re.search(r"load <\d+ x float>", source)
        assert "shufflevector" in source
    dy = nn.slice(x, (None, 32), (None, 64))
    grad = nn.slice_grad.kernel(dy, x, (None, 32), (None, 64), target="llvm")
    assert "masked" not in grad.source
    assert "icmp slt <" not in grad.source


def test_shapes_without_data():
    given_ = {"begin": (None, 1), "end": (None, 6), "step": (1, 2)}
    assert nn.slice.shape((4, 6), **given_) == (4, 3)
    assert nn.slice_grad.shape((4, 3), (4, 6), **given_) == (4, 6)
    assert nn.slice.flops((4, 6), **given_) == 0
    assert nn.slice.bytes((4, 6), **given_) == (4 * 6 + 4 * 3) * 4


def test_out_and_strided_arrays_and_torch():
    x = draw((20, 30))
    out = np.empty((20, 4), np.float32)
    assert nn.slice(x, (None, 2), (None, 6), out=out) is out
    same(out, x[:, 2:6])
    same(nn.slice(x.T, (3,), (9,)), x.T[3:9])
    torch = pytest.importorskip("torch")
    y = nn.slice(torch.from_numpy(x), (None, 0), (None, 5), (None, 2))
    assert torch.equal(y, torch.from_numpy(x)[:, :5:2])


X = draw((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [
        (lambda: nn.slice(X, 0, 1, 0), ArgumentError, "goes on or back, it is not 0"),
        (lambda: nn.slice(X, "a", 1), ArgumentError, "begin is a whole number or None"),
        (lambda: nn.slice(X, 0, 1.5), ArgumentError, "end is a whole number or None"),
        (lambda: nn.slice(X, True, 1), ArgumentError, "begin is a whole number"),
        (lambda: nn.slice(X, [0, [1]], 1), ArgumentError, "begin is a whole number"),
        (lambda: nn.slice(X, (0, 0, 0), 1), ArgumentError, "3 numbers .* 2 dimensions"),
        (lambda: nn.slice(X.astype("c8"), 0, 1), DTypeError, "complex64"),
        (lambda: nn.slice([1.0], 0, 1), ArgumentError, "list"),
        (
            lambda: nn.slice_grad(X, X, 0, 1),
            ShapeError,
            r"dy has shape \(2, 3\); .* \(1, 3\) is needed",
        ),
        (
            lambda: nn.slice_grad.shape((2, 4), (2, 3), begin=0, end=2),
            ShapeError,
            r"dy has shape \(2, 4\); .* \(2, 3\) is needed",
        ),
        (
            lambda: nn.slice.shape((2, 3), begin=(0, 0, 0), end=None),
            ArgumentError,
            "3 numbers .* 2 dimensions",
        ),
        (
            lambda: nn.slice.shape((2, 3), begin=0, end=1, size=1),
            ArgumentError,
            "no attribute 'size'; it has begin, end, step",
        ),
    ],
)
def test_calls_that_are_refused(call, error, complaint):
    with pytest.raises(error, match=complaint):
        call()
