"""Cross-entropy and its gradient against PyTorch; labels are checked in the kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, KernelError, ShapeError
from tensorlang.ops import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional


def drawn(*shape, seed=0, dtype=np.float32):
    values = np.random.default_rng(seed).standard_normal(shape) * 3
    return values.astype(dtype)


def labelled(x, ignored=-100, dtype=np.int64):
    shape = (x.shape[0], *x.shape[2:])
    labels = np.random.default_rng(1).integers(0, x.shape[1], shape).astype(dtype)
    labels.reshape(-1)[::5] = ignored
    return labels


def check(x, labels, tolerance=3e-6, **given):
    """Loss and gradient are those of PyTorch in float64."""
    theirs = dict(given)
    wide = torch.from_numpy(x.astype(np.float64)).requires_grad_()
    wanted = F.cross_entropy(wide, torch.from_numpy(labels.astype(np.int64)), **theirs)
    dy = np.asarray(drawn(*wanted.shape, seed=3, dtype=x.dtype))
    wanted.backward(torch.from_numpy(dy.astype(np.float64)))
    loss = nn.cross_entropy(x, labels, **given)
    dx = nn.cross_entropy_grad(dy, x, labels, **given)
    assert (loss.dtype, dx.dtype) == (x.dtype, x.dtype)
    for got, right in ((loss, wanted.detach()), (dx, wide.grad)):
        right = right.numpy()  # noqa: PLW2901 - as NumPy has it
        size = np.abs(right).max(initial=1)
        np.testing.assert_allclose(
            got.astype(np.float64), right, rtol=tolerance, atol=tolerance * size
        )


@pytest.mark.parametrize(
    ("shape", "reduction", "smoothing"),
    [
        ((13, 70), "mean", 0.0),
        ((13, 70), "sum", 0.2),
        ((13, 70), "none", 0.0),
        ((2, 7, 3, 5), "mean", 0.2),
        ((2, 7, 3, 5), "none", 0.0),
    ],
)
def test_reductions(shape, reduction, smoothing):
    x = drawn(*shape)
    check(x, labelled(x), reduction=reduction, label_smoothing=smoothing)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float64, 1e-13), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)],
)
def test_types(dtype, tolerance):
    x = drawn(6, 19, dtype=dtype)
    check(x, labelled(x, dtype=np.int32), tolerance)
    if dtype is ml_dtypes.bfloat16:
        x = drawn(2, 5, 20, dtype=dtype)
        check(x, labelled(x), tolerance)


def test_what_is_ignored_and_axes():
    x = drawn(9, 11)
    check(x, labelled(x, ignored=3), ignore_index=3)
    nothing = np.full(9, -100)
    assert np.isnan(nn.cross_entropy(x, nothing))
    assert nn.cross_entropy(x, nothing, "sum") == 0.0
    assert not nn.cross_entropy_grad(1.0, x, nothing, "sum").any()
    labels = labelled(x)
    turned = nn.cross_entropy(np.ascontiguousarray(x.T), labels, axis=0)
    assert turned == pytest.approx(nn.cross_entropy(x, labels), rel=1e-6)
    single = nn.cross_entropy(x[0], np.asarray(labels[1]))
    assert single == pytest.approx(nn.cross_entropy(x[:1], labels[1:2]), rel=1e-6)


def test_one_kernel_for_all_batches_and_none():
    x = drawn(13, 70)
    check(x, labelled(x))
    nn.cross_entropy_grad(1.0, x, labelled(x))  # of a number, another kernel

    def kernels():
        ops = (nn.cross_entropy, nn.cross_entropy_grad)
        return [sum(key[0] == "kernel" for key in op.kernels) for op in ops]

    before = kernels()
    for rows in (1, 64, 1000):
        x = drawn(rows, 70)
        check(x, labelled(x, ignored=-100 if rows > 1 else 2))
    none, empty = np.zeros((0, 70), np.float32), np.zeros(0, np.int64)
    assert np.isnan(nn.cross_entropy(none, empty))
    assert nn.cross_entropy_grad(1.0, none, empty).shape == (0, 70)
    assert kernels() == before


def test_huge_values_nan_and_infinities():
    x = drawn(7, 33)
    x[0] *= 1e30
    x[1, 4] = np.inf
    x[2, 4] = -np.inf
    x[3] = np.nan
    x[4] = -np.inf
    labels = np.full(7, 4)
    wanted = F.cross_entropy(
        torch.from_numpy(x), torch.from_numpy(labels), reduction="none"
    )
    got = nn.cross_entropy(x, labels, "none")
    np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5)


def test_the_gradient_is_finite_differences():
    x = drawn(3, 4, dtype=np.float64)
    labels, step = np.array([1, -100, 3]), 1e-6
    made = nn.cross_entropy_grad(1.0, x, labels, label_smoothing=0.1)
    for at in np.ndindex(x.shape):
        held, ends = x[at], []
        for moved in (held + step, held - step):
            x[at] = moved
            ends.append(float(nn.cross_entropy(x, labels, label_smoothing=0.1)))
        x[at] = held
        assert made[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("wrong", [5, -1, 2**62, -(2**63)])
@pytest.mark.parametrize("shape", [(4, 5), (2, 5, 18)])
def test_labels_that_are_no_class_are_refused(wrong, shape):
    x = drawn(*shape)
    labels = labelled(x)
    labels.reshape(-1)[-1] = wrong
    with pytest.raises(KernelError, match=f"a label is {wrong}; 5 classes are counted"):
        nn.cross_entropy(x, labels)
    with pytest.raises(KernelError, match=r"\(1 are out of range\)"):
        nn.cross_entropy_grad(1.0, x, labels)


@pytest.mark.parametrize(
    ("given", "named", "error", "match"),
    [
        ((drawn(4, 5), np.zeros(3, int)), {}, ShapeError, r"labels have shape \(3,\)"),
        (
            (drawn(4, 5), np.zeros(4, np.uint8)),
            {},
            DTypeError,
            "labels takes i64, i32, f32, bf16, f16, f64, not u8",
        ),
        ((drawn(4, 5), np.zeros(4, int), "all"), {}, ArgumentError, "not 'all'"),
        (
            (drawn(4, 5), np.zeros(4, int)),
            {"label_smoothing": 2},
            ArgumentError,
            "label_smoothing is from 0 to 1, not 2",
        ),
        (
            (drawn(4, 5), np.zeros(4, int)),
            {"ignore_index": 1.5},
            ArgumentError,
            "ignore_index is a whole number, not 1.5",
        ),
        ((drawn(4, 0), np.zeros(4, int)), {}, ShapeError, "have no classes"),
    ],
)
def test_bad_calls(given, named, error, match):
    with pytest.raises(error, match=match):
        nn.cross_entropy(*given, **named)


def test_a_gradient_of_another_shape_is_refused():
    x = drawn(4, 5)
    with pytest.raises(ShapeError, match=r"dy has shape \(4,\), nn.cross_entropy"):
        nn.cross_entropy_grad(drawn(4), x, labelled(x))


@pytest.mark.parametrize(
    ("shape", "reduction", "smoothing", "shares", "weighed"),
    [
        ((13, 70), "mean", 0.2, False, True),
        ((2, 7, 3, 5), "mean", 0.0, False, True),
        ((13, 70), "mean", 0.2, True, True),
        ((2, 7, 3, 5), "none", 0.0, True, False),
    ],
)
def test_weights_and_shares_of_classes(shape, reduction, smoothing, shares, weighed):
    x, classes = drawn(*shape), shape[1]
    labels = labelled(x)
    if shares:
        labels = nn.softmax(drawn(*shape, seed=4), 1)
    weight = np.random.default_rng(2).uniform(0, 2, classes) * weighed + (not weighed)
    given = {"reduction": reduction, "label_smoothing": smoothing}
    arrays = [torch.from_numpy(each) for each in (x, labels)]
    wide = [a.double() if a.is_floating_point() else a for a in arrays]
    asked = [a.requires_grad_() for a in wide if a.is_floating_point()]
    factors = torch.from_numpy(weight)
    if shares and weighed:
        asked.append(factors.requires_grad_())
    wanted = F.cross_entropy(*wide, weight=factors, **given)
    dy = drawn(*wanted.shape, seed=3)
    dys = torch.autograd.grad(wanted, asked, torch.from_numpy(np.asarray(dy)).double())
    given["weight"] = weight.astype(np.float32) if weighed else None
    found = nn.cross_entropy(x, labels, **given)
    np.testing.assert_allclose(found, wanted.detach(), rtol=1e-5, atol=1e-5)
    made = nn.cross_entropy_grad(np.asarray(dy), x, labels, **given)
    for got, right in zip(made if shares else [made], dys, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


def test_shares_of_another_type():
    x, shares = drawn(6, 5), nn.softmax(drawn(6, 5, seed=4), 1)
    wide = nn.cross_entropy(x, shares.astype(np.float64))
    np.testing.assert_allclose(wide, nn.cross_entropy(x, shares), rtol=1e-6)


def test_weights_of_a_last_axis():
    x, labels = drawn(2, 7, 5), np.arange(14).reshape(2, 7) % 5
    weight = np.arange(1, 6, dtype=np.float32)
    given = (torch.from_numpy(np.moveaxis(x, -1, 1)), torch.from_numpy(labels))
    wanted = F.cross_entropy(*given, weight=torch.from_numpy(weight))
    found = nn.cross_entropy(x, labels, weight=weight, axis=-1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    with pytest.raises(ShapeError, match=r"have weights of \(5,\), not \(1,\)"):
        nn.cross_entropy(x, labels, weight=weight[:1], axis=-1)


def test_weights_that_do_not_fit():
    x = drawn(4, 3)
    with pytest.raises(ShapeError, match=r"have weights of \(3,\), not \(4,\)"):
        nn.cross_entropy(x, labelled(x), weight=x[:, 0].copy())
    with pytest.raises(ShapeError, match="the labels have shape"):
        nn.cross_entropy(x, x[:, 0].copy())
