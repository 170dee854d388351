"""Matrix products and their gradients against NumPy in float64."""

from unittest.mock import Mock

import ml_dtypes  # noqa: F401 - names `bfloat16` to NumPy
import numpy as np
import pytest

from tensorlang.errors import DTypeError, ShapeError
from tensorlang.ops.math import matmul, matmul_grad
from tensorlang.runtime import calling

SHAPES = [
    ((5, 7), (7, 9)),
    ((3, 5, 7), (7, 9)),
    ((2, 3, 20, 17), (2, 3, 17, 33)),
    ((4, 24, 32), (1, 32, 48)),
    ((20, 16), (3, 16, 8)),
    ((0, 3), (3, 4)),
]


def drawn(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape, np.float32)


def turned(x, really):
    return np.ascontiguousarray(np.swapaxes(x, -1, -2)) if really else x


def summed_to(gradient, shape):
    """The gradient of a broadcast array."""
    gradient = gradient.sum(tuple(range(gradient.ndim - len(shape))))
    ones = tuple(n for n, size in enumerate(shape) if size == 1)
    return gradient.sum(ones, keepdims=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("a", "b"),
    [*SHAPES[:-1], ((5, 64), (64, 17)), ((300, 41), (41, 16)), ((9, 1), (1, 40))],
)
def test_narrow_floats(a, b, dtype):
    """Matrices without a batch as well, whose copies have fewer loops."""
    x, y = drawn(*a).astype(dtype), drawn(*b, seed=1).astype(dtype)
    made = matmul(x, y).astype("f8")
    expected = x.astype("f8") @ y.astype("f8")
    size = np.abs(x.astype("f8")) @ np.abs(y.astype("f8"))
    assert (np.abs(made - expected) <= 2**-8 * np.abs(expected) + 2**-19 * size).all()


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_products_and_gradients(a, b, transpose_a, transpose_b):
    x, y = drawn(*a), drawn(*b, seed=1)
    how = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    given = turned(x, transpose_a), turned(y, transpose_b)
    expected = np.matmul(x.astype(float), y.astype(float))
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(matmul(*given, **how), expected, **close)
    dy = drawn(*expected.shape, seed=2)
    da, db = matmul_grad(dy, *given, **how)
    wanted = summed_to(np.matmul(dy.astype(float), np.swapaxes(y, -1, -2)), a)
    np.testing.assert_allclose(turned(da, transpose_a), wanted, **close)
    wanted = summed_to(np.matmul(np.swapaxes(x, -1, -2).astype(float), dy), b)
    np.testing.assert_allclose(turned(db, transpose_b), wanted, **close)


VECTORS = [
    ((10,), (10,)),
    ((10,), (10, 5)),
    ((5, 10), (10,)),
    ((10,), (4, 10, 5)),
    ((2, 4, 5, 10), (10,)),
    ((0,), (0,)),
    ((1,), (1, 3)),
]


@pytest.mark.parametrize(("a", "b"), VECTORS)
def test_vectors(a, b):
    """Gradients against differences along a random direction."""
    x, y = drawn(*a).astype(float), drawn(*b, seed=1).astype(float)
    made, wanted = matmul(x, y), np.matmul(x, y)
    assert np.shape(made) == np.shape(wanted)
    np.testing.assert_allclose(made, wanted)
    dy = drawn(*np.shape(wanted), seed=2).astype(float)
    for n, slope in enumerate(matmul_grad(dy, x, y)):
        way, at = drawn(*(a, b)[n], seed=3).astype(float), [x, y]
        ends = []
        for step in (1e-6, -1e-6):
            moved = [z + step * way if k == n else z for k, z in enumerate(at)]
            ends.append(np.sum(np.matmul(*moved) * dy))
        expected = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(np.sum(slope * way), expected, rtol=1e-5, atol=1e-8)


def test_strided_inputs():
    x, y = drawn(6, 20)[:, ::2], drawn(8, 10).T
    np.testing.assert_allclose(matmul(x, y), x @ y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_transposed_views_are_read_as_they_lie(library, batch):
    convert = pytest.importorskip(library).asarray
    x, y = convert(drawn(*batch, 7, 5)), convert(drawn(*batch, 6, 7))
    x_view, y_view = x.swapaxes(-1, -2), y.swapaxes(-1, -2)
    both, one = {"transpose_a": True, "transpose_b": True}, {"transpose_b": True}
    for found, expected, product in (
        (matmul(x_view, y_view), matmul(x, y, **both), x_view @ y_view),
        (matmul(x, x_view), matmul(x, x, **one), x @ x_view),
        (matmul(x_view, y, **one), matmul(x, y, **both), x_view @ y_view),
        (matmul(y, x_view, **one), matmul(y, x), y @ x),  # back again
    ):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(found, product, rtol=1e-5, atol=1e-5)


def test_a_transposed_view_is_not_copied(monkeypatch):
    copied = Mock()
    monkeypatch.setattr(calling, "_make_contiguous", copied)
    matmul(drawn(7, 5).T, drawn(6, 7).T)
    assert not copied.called
    matmul(drawn(5, 14)[:, ::2], drawn(6, 7).T)  # its rows are not contiguous
    assert copied.called


def test_an_error_has_the_sizes_of_the_product():
    with pytest.raises(ShapeError, match="matrices of 4 x 3 by 5 x 6: 3 columns"):
        matmul(drawn(3, 4).T, drawn(5, 6))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: matmul(drawn(3, 4), drawn(5, 6)), ShapeError, "4 columns meet 5 rows"),
        (lambda: matmul(drawn(), drawn(3, 4)), ShapeError, "takes vectors, matrices"),
        (lambda: matmul(drawn(4), drawn(3, 4)), ShapeError, "4 columns meet 3 rows"),
        (
            lambda: matmul(drawn(2, 3, 4), drawn(3, 4, 5)),
            ShapeError,
            "do not broadcast",
        ),
        (
            lambda: matmul(drawn(3, 4), drawn(4, 5).astype(float)),
            DTypeError,
            "one element type",
        ),
        (
            lambda: matmul_grad(drawn(3, 3), drawn(3, 4), drawn(4, 5)),
            ShapeError,
            r"dy has shape \(3, 3\)",
        ),
    ],
)
def test_bad_calls_get_a_sentence(call, error, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 16, 31, 47, 101])
def test_gradients_whose_columns_are_open(rows, transpose_b):
    """The rows of a transposed factor are the columns of its gradient."""
    x, y = drawn(70, rows), drawn(70, 40, seed=1)
    dy = drawn(rows, 40, seed=2)
    how = {"transpose_a": True, "transpose_b": transpose_b}
    da, db = matmul_grad(dy, x, turned(y, transpose_b), **how)
    assert np.allclose(da, y @ dy.T, atol=1e-4)
    assert np.allclose(db, turned(x @ dy, transpose_b), atol=1e-4)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "i8", "u8"])
@pytest.mark.parametrize("shape", [(3, 5, 7), (64, 100, 33), (1, 17, 9), (5, 0, 3)])
def test_integers_wrap(dtype, shape):
    rng, (m, k, n) = np.random.default_rng(0), shape
    a, b = (rng.integers(0, 100, each).astype(dtype) for each in [(2, m, k), (k, n)])
    np.testing.assert_array_equal(matmul(a, b), a @ b)
    np.testing.assert_array_equal(matmul(a[0, 0], b), a[0, 0] @ b)
    stored = np.ascontiguousarray(b.T)
    np.testing.assert_array_equal(matmul(a, stored, transpose_b=True), a @ b)
