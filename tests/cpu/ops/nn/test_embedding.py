"""Rows of tables by numbers, and the gradient, against NumPy and PyTorch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, KernelError, ShapeError
from tensorlang.ops import nn

RNG = np.random.default_rng(0)
CASES = [  # rows, width, shape of ids
    (10, 7, (3, 4)),
    (10, 64, ()),
    (1000, 72, (5000,)),
    (50, 16, (3000,)),
    (9, 300, (2, 3, 4)),
    (5, 1, (9,)),
    (20, 7, (0,)),
    (4, 0, (3,)),
]


def draw(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def summed(dy, ids, rows):
    """The gradient in f64."""
    width = dy.shape[-1]
    total = np.zeros((rows, width))
    np.add.at(total, ids.reshape(-1), dy.reshape(ids.size, width).astype(float))
    return total


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize(("rows", "width", "shape"), CASES)
def test_embedding_and_its_gradient(rows, width, shape, kind):
    table, ids = draw(rows, width), np.asarray(RNG.integers(0, rows, shape), kind)
    y = nn.embedding(ids, table)
    np.testing.assert_array_equal(y, table[ids])
    assert nn.embedding.shape(shape, (rows, width)) == y.shape
    dy = draw(*y.shape)
    found = nn.embedding_grad(dy, ids, table)
    assert found.shape == table.shape
    np.testing.assert_allclose(found, summed(dy, ids, rows), rtol=1e-5, atol=2e-5)


def test_the_gradient_is_summed_in_order():
    """To the bit, as a loop would."""
    ids, dy = RNG.integers(0, 3, 500), draw(500, 40)
    expected = np.zeros((3, 40), np.float32)
    for row, step in zip(ids, dy, strict=True):
        expected[row] += step
    np.testing.assert_array_equal(nn.embedding_grad(dy, ids, draw(3, 40)), expected)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_other_types(dtype):
    """Narrow ones are summed in f32, and rounded once."""
    table, ids = draw(6, 20, dtype=dtype), RNG.integers(0, 6, 400)
    np.testing.assert_array_equal(nn.embedding(ids, table), table[ids])
    dy = draw(400, 20, dtype=dtype)
    wide = np.float64 if dtype is np.float64 else np.float32
    expected = np.zeros((6, 20), wide)
    for row, step in zip(ids, dy, strict=True):
        expected[row] += step.astype(wide)
    found = nn.embedding_grad(dy, ids, table)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected.astype(dtype))


def test_against_torch_with_a_padding_row():
    torch = pytest.importorskip("torch")
    table = torch.randn(12, 24, generator=torch.manual_seed(0))
    ids = torch.randint(0, 12, (5, 30), generator=torch.manual_seed(1))
    for padding in (None, 3, -1):
        leaf = table.clone().requires_grad_()
        theirs = torch.nn.functional.embedding(ids, leaf, padding_idx=padding)
        dy = torch.ones_like(theirs)
        theirs.backward(dy)
        ours = nn.embedding(ids, table)
        assert isinstance(ours, torch.Tensor)
        assert torch.equal(ours, theirs.detach())
        found = nn.embedding_grad(dy, ids, table, padding_idx=padding)
        assert torch.equal(found, leaf.grad)


def test_strided_arrays_and_out():
    table, ids = draw(20, 12), RNG.integers(0, 10, (6, 8))
    half, some = table[::2, ::-1], ids[:, ::2]
    out = np.empty((6, 4, 12), np.float32)
    assert nn.embedding(some, half, out=out) is out
    np.testing.assert_array_equal(out, half[some])
    dy = draw(6, 12, 4).transpose(0, 2, 1)
    np.testing.assert_allclose(
        nn.embedding_grad(dy, some, half), summed(dy, some, 10), rtol=1e-5, atol=1e-5
    )


def test_nan_and_infinity_go_where_they_belong():
    table = np.array([[np.nan, 1.0], [np.inf, -np.inf]], np.float32)
    ids = np.array([1, 0, 1])
    np.testing.assert_array_equal(nn.embedding(ids, table), table[ids])
    found = nn.embedding_grad(table[ids], ids, np.zeros((3, 2), np.float32))
    np.testing.assert_array_equal(found, [table[0], table[1], [0, 0]])


def test_one_kernel_for_all_batches_and_tables():
    nn.embedding(RNG.integers(0, 5, 3), draw(5, 24))
    built = {id(k) for k in nn.embedding.kernels.values() if callable(k)}
    for batch, rows in ((1, 7), (13, 5), (1000, 300)):
        ids, table = RNG.integers(0, rows, batch), draw(rows, 24)
        np.testing.assert_array_equal(nn.embedding(ids, table), table[ids])
    assert {id(k) for k in nn.embedding.kernels.values() if callable(k)} == built


@pytest.mark.parametrize("wrong", [7, -1, 1 << 40])
def test_numbers_of_no_row(wrong):
    table, ids = draw(7, 20), np.array([[0, 1], [wrong, 6]])
    with pytest.raises(KernelError, match=rf"is {wrong}, and what .* 7 rows") as caught:
        nn.embedding(ids, table)
    assert caught.value.code == 1
    with pytest.raises(KernelError, match=r"nn\.embedding_grad: an index is"):
        nn.embedding_grad(draw(2, 2, 20), ids, table)
    with pytest.raises(KernelError, match="has 0 rows"):
        nn.embedding(np.array([0]), draw(0, 20))


def test_a_table_without_rows():
    ids, table = np.zeros(0, np.int64), np.zeros((0, 13), np.float32)
    assert nn.embedding(ids, table).shape == (0, 13)
    assert nn.embedding_grad(table, ids, table).shape == (0, 13)
    kernel = nn.embedding_grad.kernel(table, ids, table)
    kernel.launch(table, ids, table, table.copy())


IDS, TABLE = np.array([0, 1]), draw(3, 4)


@pytest.mark.parametrize(
    ("call", "error", "complaint"),
    [
        (lambda: nn.embedding(IDS * 1.0, TABLE), DTypeError, "ids takes i32, i64, not"),
        (lambda: nn.embedding(IDS, TABLE[0]), ShapeError, "a table has rows and col"),
        (
            lambda: nn.scatter(IDS, TABLE, IDS[:, None]),
            DTypeError,
            "one element type, not",
        ),
        (lambda: nn.scatter(IDS, TABLE, TABLE), ShapeError, "go with updates of"),
        (
            lambda: nn.embedding_grad(draw(2, 3), IDS, TABLE),
            ShapeError,
            r"make a dy of shape \(2, 4\), not \(2, 3\)",
        ),
        (
            lambda: nn.embedding_grad(draw(2, 4), IDS * 1.0, TABLE),
            DTypeError,
            "ids takes i32, i64, not f64",
        ),
        (
            lambda: nn.embedding_grad(draw(2, 4, dtype=float), IDS, TABLE),
            DTypeError,
            "one element type, not f64, f32",
        ),
        (
            lambda: nn.embedding_grad(draw(2, 4), IDS, TABLE, padding_idx=3),
            ArgumentError,
            "padding_idx is the number of one of 3 rows, not 3",
        ),
    ],
)
def test_calls_that_are_refused(call, error, complaint):
    with pytest.raises(error, match=complaint):
        call()


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool"])
@pytest.mark.parametrize("width", [1, 17])
def test_rows_are_scattered_in_order(reduction, dtype, width) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 3, (7, width)).astype(dtype)
    for count in (0, 1, 20):
        ids = rng.integers(0, 7, count)
        updates = rng.integers(0, 3, (count, width)).astype(dtype)
        wanted = x.copy()
        at = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
        if reduction == "none":
            for row, update in zip(ids, updates, strict=True):
                wanted[row] = update
        else:
            at[reduction].at(wanted, ids, updates)
        found = nn.scatter(ids, x, updates, reduction)
        np.testing.assert_array_equal(found, wanted, strict=True)
        if count:
            np.testing.assert_array_equal(nn.embedding(ids, x), x[ids], strict=True)
    with pytest.raises(KernelError, match="an index is -1"):
        nn.scatter(np.array([-1]), x, x[:1], reduction)
