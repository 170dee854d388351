"""Operators that move elements, against NumPy, to the bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import nn

RNG = np.random.default_rng(0)
DTYPES = [
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.int8,
    np.uint16,
    np.int32,
    np.uint64,
    bool,
]


def draw(shape, dtype=np.float32):
    return np.asarray(RNG.integers(0, 2 if dtype is bool else 100, shape)).astype(dtype)


def same(a, b):
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    assert a.tobytes() == np.ascontiguousarray(b).tobytes()


TRANSPOSES = [
    ((), None),
    ((3,), None),
    ((0, 4), None),
    ((1, 5), None),
    ((5, 7), None),
    ((16, 16), None),
    ((100, 33), None),
    ((17, 200), None),
    ((8, 20, 30), (0, 2, 1)),
    ((8, 20, 30), (1, 0, 2)),
    ((2, 3, 20, 30), (0, 2, 3, 1)),
    ((2, 20, 30, 3), (0, 3, 1, 2)),
    ((4, 17, 19, 21), (3, 2, 1, 0)),
    ((20, 3, 18), (-1, -2, -3)),
    ((2, 1, 33, 1, 40), (4, 3, 0, 1, 2)),
]


@pytest.mark.parametrize(("shape", "axes"), TRANSPOSES)
def test_transpose_and_its_gradient(shape, axes):
    x = draw(shape)
    y = nn.transpose(x, axes)
    same(y, x.transpose(axes))
    same(nn.transpose_grad(y, x, axes), x)
    assert nn.transpose.shape(shape, axes=axes) == y.shape


@pytest.mark.parametrize("dtype", DTYPES)
def test_transpose_of_every_type(dtype):
    x = draw((35, 50), dtype)
    same(nn.transpose(x), x.T)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16])
@pytest.mark.parametrize("few", [1, 2, 3, 5, 8, 16])
def test_transpose_of_a_short_dimension(dtype, few):
    for many in (1, 7, 15, 16, 17, 33, 1027):
        x = draw((2, few, many), dtype)
        moved = np.ascontiguousarray(x.transpose(0, 2, 1))
        same(nn.transpose(x, (0, 2, 1)), moved)
        same(nn.transpose(moved, (0, 2, 1)), x)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 16, 0), (0, 2, 1)),
        ((2, 0, 16), (0, 2, 1)),
        ((33, 130, 0), (2, 1, 0)),
        ((0, 2, 33, 16), (0, 2, 3, 1)),
        ((0, 2, 33, 4), (0, 2, 3, 1)),
        ((0, 32, 2, 130), (0, 3, 1, 2)),
    ],
)
def test_transpose_of_nothing(shape, axes):
    x = np.zeros(shape, np.float32)
    same(nn.transpose(x, axes), x.transpose(axes))


def test_transpose_of_strided_arrays_and_with_nan():
    x = draw((60, 80))
    x[3, 4] = np.nan
    same(nn.transpose(x[::2, ::-1]), x[::2, ::-1].T)
    same(nn.transpose(x.T), x)
    out = np.empty((80, 60), np.float32)
    assert nn.transpose(x, out=out) is out
    same(out, x.T)
    with pytest.raises(ShapeError, match="out has shape"):
        nn.transpose(x, out=np.empty((60, 80), np.float32))


def test_one_transpose_kernel_for_all_large_sizes():
    nn.transpose(draw((40, 50)))
    built = {id(k) for k in nn.transpose.kernels.values() if callable(k)}
    for shape in ((16, 16), (64, 17), (1000, 30)):
        x = draw(shape)
        same(nn.transpose(x), x.T)
    assert {id(k) for k in nn.transpose.kernels.values() if callable(k)} == built


@pytest.mark.parametrize(
    ("shape", "new"),
    [((4, 6), (3, 8)), ((4, 6), (-1,)), ((4, 6), 24), ((0, 3), (3, 0)), ((), (1, 1))],
)
def test_reshape(shape, new):
    x = draw(shape)
    y = nn.reshape(x, new)
    same(y, x.reshape(new))
    assert np.shares_memory(x, y) or not x.size
    same(nn.reshape_grad(y, x, new), x)
    same(nn.reshape(x.T, new), x.T.reshape(new))
    out = np.empty_like(y)
    assert nn.reshape(x, new, out=out) is out
    same(out, y)


def test_batch_flatten():
    for shape in ((2, 3, 4), (5,), (0, 3), (3, 0)):
        x = draw(shape)
        y = nn.batch_flatten(x)
        same(y, x.reshape(shape[0], int(np.prod(shape[1:]))))
        same(nn.batch_flatten_grad(y, x), x)
    assert nn.batch_flatten.shape((2, 3, 4)) == (2, 12)
    x = draw((4, 5, 6)).transpose(1, 0, 2)
    same(nn.batch_flatten(x), x.reshape(5, 24))


PADS = [
    ((), ()),
    ((5,), ((1, 2),)),
    ((5, 7), ((1, 2), (3, 0))),
    ((5, 7), ((0, 0), (0, 0))),
    ((0, 3), ((1, 1), (0, 0))),
    ((3, 4), ((2, 1), (0, 0))),
    ((2, 3, 10, 40), ((0, 0), (0, 0), (1, 1), (2, 2))),
    ((2, 10, 40, 3), ((0, 0), (1, 0), (0, 2), (0, 0))),
    ((50_000,), ((3, 5),)),
]


@pytest.mark.parametrize(("shape", "padding"), PADS)
def test_pad_and_its_gradient(shape, padding):
    x = draw(shape)
    y = nn.pad(x, padding, 2.5)
    same(y, np.pad(x, padding, constant_values=2.5) if shape else x)
    same(nn.pad_grad(y, x, padding), x)
    flat = tuple(n for pair in padding for n in pair)
    assert nn.pad.shape(shape, padding=flat) == y.shape
    assert nn.pad_grad.shape(y.shape, x.shape, padding=flat) == x.shape


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_of_every_type(dtype):
    value = {"b": True, "f": 0.5, "V": 0.5}.get(np.dtype(dtype).kind, 7)
    x, padding = draw((5, 6), dtype), [(1, 1), [2, 3]]
    same(nn.pad(x, padding, value), np.pad(x, padding, constant_values=value))
    same(nn.pad(x, padding), np.pad(x, padding))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool])
@pytest.mark.parametrize(
    ("shape", "padding"),
    [
        ((9,), [(-2, 1)]),
        ((9,), [(-4, -5)]),
        ((5, 6), [(1, -2), (-3, 4)]),
        ((3, 0, 4), [(-1, 0), (2, 1), (0, -1)]),
    ],
)
def test_negative_padding_crops(shape, padding, dtype):
    x = draw(shape, dtype)
    around = np.pad(x, np.maximum(padding, 0), constant_values=1)
    cut = tuple(
        slice(-min(a, 0), n + min(b, 0))
        for n, (a, b) in zip(around.shape, padding, strict=True)
    )
    y = nn.pad(x, padding, dtype(1).item() if dtype is not bool else True)
    same(y, around[cut])
    if dtype is np.float32:
        ones = nn.pad_grad(np.ones_like(y), x, padding)
        kept = nn.pad(np.ones_like(x), padding).sum()
        assert ones.sum() == kept


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", [(-2, 1), (2, -3), (-4, 1), (-1, -2), (-2, -3)])
def test_cropping_in_other_modes(mode, padding):
    x = draw((2, 5, 3))
    low, high = padding
    around = (max(low, 0), max(high, 0))
    if mode == "circular":  # of what is left
        left = x[:, max(-low, 0) : 5 + min(high, 0)]
        wanted = np.pad(left, ((0, 0), around, (0, 0)), "wrap")
    else:
        whole = np.pad(x, ((0, 0), around, (0, 0)), MODES[mode])
        wanted = whole[:, max(-low, 0) : whole.shape[1] + min(high, 0)]
    same(nn.pad(x, [(0, 0), padding, (0, 0)], mode=mode), wanted)
    ones = nn.pad_grad(np.ones_like(wanted), x, [(0, 0), padding, (0, 0)], mode=mode)
    assert ones.sum() == wanted.size


MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int16, bool])
@pytest.mark.parametrize(
    ("shape", "padding"),
    [
        ((9,), [(3, 2)]),
        ((4, 9), [(0, 0), (8, 0)]),
        ((5, 1, 7), [(0, 3), (0, 0), (2, 2)]),
        ((2, 3, 5, 6), [(0, 0), (0, 0), (2, 1), (3, 4)]),
        ((0, 6), [(0, 0), (1, 1)]),
    ],
)
def test_padding_by_elements_of_the_array(shape, padding, dtype, mode):
    x = draw(shape, dtype)
    same(nn.pad(x, padding, mode=mode), np.pad(x, padding, MODES[mode]))
    view = draw((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
    same(nn.pad(view, padding, mode=mode), np.pad(view, padding, MODES[mode]))


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_padding_by_elements(mode):
    x, padding = draw((2, 5, 6)), [(0, 0), (2, 1), (3, 4)]
    places = np.pad(np.arange(x.size).reshape(x.shape), padding, MODES[mode])
    dy = draw(places.shape)
    wanted = np.bincount(places.ravel(), dy.ravel()).reshape(x.shape)
    same(nn.pad_grad(dy, x, padding, mode=mode), wanted.astype(np.float32))


def test_pad_with_infinity_and_nan():
    x = np.array([np.nan, np.inf, -0.0], np.float32)
    same(nn.pad(x, [(1, 0)], float("-inf")), np.append(np.float32("-inf"), x))
    assert np.isnan(nn.pad(x, [(1, 0)], float("nan"))[0])


CONCATENATIONS = [
    (((5,), (0,), (2,)), 0),
    (((5, 7), (3, 7)), 0),
    (((5, 7), (5, 2), (5, 1)), 1),
    (((2, 3, 4), (2, 5, 4)), -2),
    (((0, 3), (0, 2)), 1),
    (((3, 0), (3, 2)), 1),
    (((70_000,), (3,)), 0),
    (((4, 6),), 1),
]


@pytest.mark.parametrize(("shapes", "axis"), CONCATENATIONS)
def test_concatenate_and_its_gradient(shapes, axis):
    arrays = [draw(shape) for shape in shapes]
    y = nn.concatenate(arrays, axis)
    same(y, np.concatenate(arrays, axis))
    parts = nn.concatenate_grad(y, arrays, axis)
    parts = parts if isinstance(parts, tuple) else (parts,)
    for part, array in zip(parts, arrays, strict=True):
        same(part, array)
    assert nn.concatenate.shape(*shapes, axis=axis) == y.shape


@pytest.mark.parametrize("sizes", [(1, 2, 1), (2, 1, 1), (1, 1, 2), (1, 3, 2, 1, 3)])
def test_concatenate_of_arrays_of_which_one_is_alone_along_the_axis(sizes):
    nn.concatenate.forget()
    arrays = [draw((size, 3, 4, 5)) for size in sizes]
    same(nn.concatenate(arrays, 0), np.concatenate(arrays, 0))


def test_concatenate_of_one_batch_and_many():
    nn.concatenate([draw((3, 4)), draw((3, 6))], 1)
    built = {id(k) for k in nn.concatenate.kernels.values() if callable(k)}
    for batch in (1, 13, 1000):
        a, b = draw((batch, 4)), draw((batch, 6))
        if batch > 1:
            same(nn.concatenate([a, b], 1), np.hstack([a, b]))
    assert {id(k) for k in nn.concatenate.kernels.values() if callable(k)} == built
    x = draw((6, 8), np.int16)
    same(nn.concatenate([x[::2], x[1::2]]), np.concatenate([x[::2], x[1::2]]))


def test_torch_tensors_stay_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.arange(24.0).reshape(4, 6)
    for ours, theirs in (
        (nn.transpose(x), x.T),
        (nn.reshape(x, (3, 8)), x.reshape(3, 8)),
        (nn.reshape(x.T, (3, 8)), x.T.reshape(3, 8)),
        (nn.batch_flatten(x.reshape(2, 3, 4)), x.reshape(2, 12)),
        (nn.pad(x, ((1, 0), (0, 1))), torch.nn.functional.pad(x, (0, 1, 1, 0))),
        (nn.concatenate([x, x], 1), torch.cat([x, x], 1)),
    ):
        assert isinstance(ours, torch.Tensor)
        assert torch.equal(ours, theirs)
    assert nn.reshape(x, (3, 8)).data_ptr() == x.data_ptr()


X = draw((2, 3))


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [
        (lambda: nn.transpose(X, (0, 0)), ArgumentError, "name each of 2 dimensions"),
        (lambda: nn.transpose(X, (0, 2)), ArgumentError, "axis 2 does not exist"),
        (lambda: nn.transpose(X, (0, "1")), ArgumentError, "a whole number or several"),
        (lambda: nn.transpose_grad(X, X), ShapeError, r"shape \(3, 2\) is needed"),
        (
            lambda: nn.reshape(X, (4, 2)),
            ShapeError,
            "6 elements, and shape .* not hold",
        ),
        (lambda: nn.reshape(X, 2**70), ShapeError, "its extents are too large"),
        (lambda: nn.reshape(X, (-1, -1)), ShapeError, "at most one extent may be -1"),
        (lambda: nn.reshape_grad(X, X, (6,)), ShapeError, r"shape \(6,\) is needed"),
        (lambda: nn.batch_flatten(draw(())), ShapeError, "has no batch"),
        (lambda: nn.pad(X, [(1, 1)]), ArgumentError, "1 pairs of padding for an array"),
        (lambda: nn.pad(X, [(1, -4)] * 2), ShapeError, "crops more than shape"),
        (
            lambda: nn.pad(X, [(3, 0)] * 2, mode="reflect"),
            ShapeError,
            "3 and 0 in mode 'reflect' takes more elements than the 2",
        ),
        (
            lambda: nn.pad(X[:0], [(0, 1)] * 2, mode="replicate"),
            ShapeError,
            "more elements than the 0 of its dimension",
        ),
        (
            lambda: nn.pad(X, [(-4, 5), (0, 0)], mode="circular"),
            ShapeError,
            "crops more than shape",
        ),
        (lambda: nn.pad(X, [(1, 1)] * 2, mode="wrap"), ArgumentError, "'wrap'"),
        (
            lambda: nn.pad(X, [(1, 1)] * 2, 1.0, mode="reflect"),
            ArgumentError,
            "a value is for constant padding",
        ),
        (lambda: nn.pad(X, [(1, 1)] * 2, X), ShapeError, "value is a number"),
        (lambda: nn.pad(X, 1), ArgumentError, "a pair of whole numbers for each"),
        (lambda: nn.pad(X, [(1.0, 1)] * 2), ArgumentError, "a pair of whole numbers"),
        (
            lambda: nn.pad(draw(3, np.int32), [(1, 1)], 0.5),
            DTypeError,
            "0.5 is no value of the i32",
        ),
        (lambda: nn.pad(X > 0, [(1, 1)] * 2, 3), DTypeError, "3 is no value of the"),
        (
            lambda: nn.pad_grad(X, X, [(1, 1)] * 2),
            ShapeError,
            r"dy has shape \(2, 3\); .* \(4, 5\) is needed",
        ),
        (
            lambda: nn.reshape(X[:0], (2**62, 2**62, 0)),
            ShapeError,
            "its extents are too large",
        ),
        (lambda: nn.concatenate([]), ArgumentError, "a list of arrays, at least one"),
        (lambda: nn.concatenate(X), ArgumentError, "a list of arrays"),
        (
            lambda: nn.concatenate([X, draw((3, 3))], 1),
            ShapeError,
            r"shapes \(2, 3\) and \(3, 3\) differ beside axis 1",
        ),
        (
            lambda: nn.concatenate([X.astype(np.uint64), X.astype(int)]),
            DTypeError,
            "one element type",
        ),
        (lambda: nn.concatenate([X, X], 2), ArgumentError, "axis 2 does not exist"),
        (
            lambda: nn.concatenate_grad(X, [X, X]),
            ShapeError,
            r"dy has shape \(2, 3\); .* \(4, 3\) is needed",
        ),
    ],
)
def test_calls_that_are_refused(call, error, complaint):
    with pytest.raises(error, match=complaint):
        call()
