"""Contractions and their gradients against NumPy and PyTorch in float64."""

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops.math import einsum, einsum_grad

CONTRACTIONS = [
    ("ij,jk->ik", (5, 7), (7, 9)),
    (" ij, jk ", (5, 7), (7, 9)),
    ("ij,jk->ki", (20, 17), (17, 33)),
    ("bij,bjk->bik", (10, 8, 8), (10, 8, 8)),
    ("bij,jk->bik", (3, 5, 7), (7, 9)),
    ("bihd,bjhd->bhij", (2, 9, 3, 8), (2, 11, 3, 8)),
    ("bhij,bjhd->bihd", (2, 3, 9, 11), (2, 11, 3, 8)),
    ("abcd,dcef->abef", (2, 3, 4, 5), (5, 4, 6, 7)),
    ("bij,bjk->ikb", (3, 4, 5), (3, 5, 6)),
    ("ijb,jkb->ikb", (4, 5, 3), (5, 6, 3)),
    ("bij,bj->ib", (3, 4, 5), (3, 5)),
    ("bA,Ab", (3, 4), (4, 3)),
    ("...ij,...jk->...ik", (2, 1, 4, 5), (3, 5, 6)),
    ("i...,ij->...j", (4, 3), (4, 5)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    ("ij,j->i", (40, 50), (50,)),
    ("i,i->", (5,), (5,)),
    ("i,j->ij", (5,), (7,)),
    ("ij,ij->ij", (4, 5), (4, 5)),
    ("ij,jk->k", (4, 5), (5, 6)),
    ("ij,kl->", (3, 4), (5, 6)),
    ("iij,jk->ik", (4, 4, 5), (5, 6)),
    (",", (), ()),
    ("ij,jk->ik", (0, 5), (5, 3)),
    ("ij,jk->ik", (4, 0), (0, 3)),
]
SINGLE = [
    ("ij->ji", (4, 5)),
    ("ba", (4, 5)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("i...->...", (3, 4, 5)),
    ("ij->", (4, 5)),
    ("ij->i", (4, 0)),
]
EVERY = [*CONTRACTIONS, *SINGLE]


def drawn(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape, np.float32)


def arrays(*shapes):
    return [drawn(*shape, seed=n) for n, shape in enumerate(shapes)]


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_sums_of_products(case):
    subscripts, *shapes = case
    given = arrays(*shapes)
    expected = np.einsum(subscripts, *(x.astype(float) for x in given))
    found = einsum(subscripts, *given)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_gradients(case):
    torch = pytest.importorskip("torch", reason="the extra interop is not installed")
    subscripts, *shapes = case
    given = arrays(*shapes)
    theirs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in given]
    y = torch.einsum(subscripts, *theirs)
    dy = drawn(*y.shape, seed=2)
    y.backward(torch.tensor(dy, dtype=torch.float64))
    found = einsum_grad(dy, subscripts, *given)
    found = found if isinstance(found, tuple) else (found,)
    for ours, their in zip(found, theirs, strict=True):
        np.testing.assert_allclose(ours, their.grad.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "close"), [("float16", 2e-3), ("bfloat16", 1e-2), ("float64", 1e-13)]
)
def test_other_types(dtype, close):
    kind = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    a, b = drawn(2, 3, 40).astype(kind), drawn(2, 5, 40, seed=1).astype(kind)
    found = einsum("bij,bkj->bik", a, b)
    expected = np.einsum("bij,bkj->bik", a.astype(float), b.astype(float))
    assert found.dtype == kind
    np.testing.assert_allclose(found.astype(float), expected, rtol=close, atol=close)


def test_sums_of_one_operand_are_not_rounded():
    a = np.ones((4097, 2), np.float16)  # 4097 is no float16
    a[0, 1] = 0
    b = np.array([[1], [-1]], np.float16)
    np.testing.assert_array_equal(einsum("ij,jk->k", a, b), [1])


def test_strided_inputs():
    a, b = drawn(6, 20)[:, ::2], drawn(8, 10).T
    found = einsum("ij,jk->ik", a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (("i1,jk", (3, 4), (4, 5)), ArgumentError, "'1' is no letter"),
        (("ij-jk", (3, 4), (4, 5)), ArgumentError, "'-' is no letter"),
        (("......ij", (3, 4)), ArgumentError, "'.' is no letter"),
        (("é,é", (3,), (3,)), ArgumentError, "'é' is no letter"),
        (("ij,jk->iz", (3, 4), (4, 5)), ArgumentError, "'z', which no operand has"),
        (("ij,jk->ii", (3, 4), (4, 5)), ArgumentError, "'i' twice"),
        (("ij,jk", (3, 4)), ArgumentError, "name 2 operands, and the call has 1"),
        (("ij,jk,kl", (3, 4), (4, 5)), ArgumentError, "contract more in pairs"),
        (("ijk,jk", (3, 4), (4, 5)), ArgumentError, "'ijk' does not fit an array of 2"),
        (("ij...k", (3, 4)), ArgumentError, "does not fit an array of 2"),
        (("i...,jk->ik", (3, 4), (4, 5)), ArgumentError, "the result needs it, too"),
        (("ij,ij", (3, 4), (4, 5)), ShapeError, "'i' has sizes 3 and 4"),
        (("ii", (3, 4)), ShapeError, "'i' has sizes 3 and 4"),
        (("ii", (1, 3)), ShapeError, "'i' has sizes 1 and 3"),
        (("...,...", (2, 3), (2, 4)), ShapeError, r"'...\[-1\]' has sizes 3 and 4"),
    ],
    ids=str,
)
def test_bad_subscripts_get_a_sentence(call, error, match):
    subscripts, *shapes = call
    with pytest.raises(error, match=match):
        einsum(subscripts, *arrays(*shapes))


def test_other_types_are_refused():
    a, b = arrays((3, 4), (4, 5))
    with pytest.raises(DTypeError, match="one element type"):
        einsum("ij,jk", a, b.astype(float))
    with pytest.raises(DTypeError, match="not i64"):
        einsum("ij,jk", a.astype(int), b.astype(int))


def test_one_kernel_for_all_batches_and_rows():
    def kernels():
        return sum(key[0] == "kernel" for key in einsum.kernels)

    def call(batch, rows):
        a, b = arrays((batch, rows, 6), (batch, 6, 50))
        np.testing.assert_allclose(
            einsum("bij,bjk->bik", a, b), a @ b, rtol=1e-4, atol=1e-4
        )

    call(7, 11)
    before = kernels()
    for batch, rows in [(9, 13), (13, 9), (20, 31)]:
        call(batch, rows)
    assert kernels() == before
