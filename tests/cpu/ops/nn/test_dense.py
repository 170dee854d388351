"""Dense layers against float64: shapes, layouts, epilogues, types, packed weights."""

import ml_dtypes
import numpy as np
import pytest
from scipy.special import erf

from tensorlang.errors import (
    ArgumentError,
    DTypeError,
    KeyReuseError,
    ShapeError,
    TargetError,
)
from tensorlang.ops import nn, random
from tensorlang.runtime.cpu import llvm

F32 = np.float32
ACTIVATIONS = {
    None: lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "gelu": lambda v: v * (1 + erf(v / np.sqrt(2))) / 2,
    "tanh": np.tanh,
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "silu": lambda v: v / (1 + np.exp(-v)),
}


def drawn(*shape, seed=0, dtype=F32):
    values = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return values.astype(dtype)


def exact(x, w, b=0.0):
    return x.astype(np.float64) @ w.astype(np.float64).T + np.float64(b)


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(64, 96, 80), (1, 10, 7), (13, 33, 5), (3, 1, 1), (7, 64, 16), (30, 70, 129)],
)
def test_any_shape_in_both_layouts_and_packed(m, n, k):
    x, w, b = drawn(m, k), drawn(n, k, seed=1), drawn(n, seed=2)
    expected = exact(x, w, b)
    close = {"rtol": 1e-5, "atol": 1e-5 * np.sqrt(k)}
    np.testing.assert_allclose(nn.dense(x, w, b), expected, **close)
    turned = np.ascontiguousarray(w.T)
    np.testing.assert_allclose(nn.dense(x, turned, b, layout="io"), expected, **close)
    packed = nn.prepack(nn.dense, w)
    np.testing.assert_allclose(nn.dense(x, packed, b), expected, **close)
    assert np.array_equal(packed.unpack(), w)


def test_one_build_serves_every_batch_of_many(monkeypatch):
    compiled = []
    compile_module = llvm.compile_module
    monkeypatch.setattr(
        llvm,
        "compile_module",
        lambda *a, **o: compiled.append(1) or compile_module(*a, **o),
    )
    w, b = drawn(40, 24), drawn(40)
    nn.dense(drawn(13, 24), w, b, activation="tanh")
    compiled.clear()
    for m in (1, 13, 64, 1000, 9):
        x = drawn(m, 24)
        result = nn.dense(x, w, b, activation="tanh")
        np.testing.assert_allclose(result, np.tanh(exact(x, w, b)), atol=1e-5)
    assert compiled == []


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name])
def test_activations_are_fused(activation):
    x, w, b = drawn(20, 16), drawn(33, 16), drawn(33)
    expected = ACTIVATIONS[activation](exact(x, w, b))
    result = nn.dense(x, w, b, activation=activation)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    kernel = nn.dense.kernel(x, w, b, activation=activation)
    assert "products = alloc" not in str(kernel.ir)


def test_bias_activation_dropout_and_residual_in_one():
    x, w, b, more = drawn(4, 5, 32), drawn(48, 32), drawn(48), drawn(4, 5, 48)
    key = random.key(3)
    result = nn.dense(x, w, b, activation="gelu", residual=more, dropout=0.25, key=key)
    plain = nn.dense(x, w, b, activation="gelu")
    expected = nn.dropout(plain, 0.25, key=random.key(3)) + more
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
    with pytest.raises(KeyReuseError):
        nn.dense(x, w, b, dropout=0.25, key=key)


def test_a_refused_call_keeps_its_key():
    key = random.key(0)
    with pytest.raises(ShapeError):
        nn.dense(drawn(3, 4), drawn(5, 6), dropout=0.5, key=key)
    random.bits(key, (2,))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
@pytest.mark.parametrize(("m", "n", "k"), [(21, 48, 36), (5, 9, 7)])
def test_other_types_accumulate_in_wider_ones(dtype, m, n, k):
    x, w = drawn(m, k, dtype=dtype), drawn(n, k, seed=1, dtype=dtype)
    result = nn.dense(x, w)
    assert result.dtype == dtype
    step, inner = (
        float(ml_dtypes.finfo(t).eps)
        for t in (dtype, np.float64 if dtype is np.float64 else F32)
    )
    expected = exact(x, w)
    sizes = exact(np.abs(x), np.abs(w))  # of the terms: what any order may lose
    allowed = step * np.abs(expected) + 2 * k * inner * sizes
    assert np.max(np.abs(result - expected) / allowed) <= 1


def test_strided_inputs_and_given_results():
    x, w = drawn(12, 40)[:, ::2], drawn(30, 20)
    held = np.zeros((12, 60), F32)
    nn.dense(x, w, out=held[:, ::2])
    np.testing.assert_allclose(held[:, ::2], exact(x, w), rtol=1e-5, atol=1e-5)
    assert not held[:, 1::2].any()


def test_no_depth_leaves_the_bias():
    bias = drawn(5)
    assert np.array_equal(
        nn.dense(np.empty((3, 0), F32), np.empty((5, 0), F32)), np.zeros((3, 5))
    )
    assert np.array_equal(
        nn.dense(np.empty((2, 0), F32), np.empty((5, 0), F32), bias), [bias, bias]
    )


def test_nan_and_infinity_go_through():
    x, w = drawn(13, 8), drawn(40, 8)
    x[3, 2], x[12, 0] = np.nan, np.inf
    result = nn.dense(x, w)
    with np.errstate(invalid="ignore"):
        expected = exact(x, w)
    assert np.array_equal(np.isnan(result), np.isnan(expected))
    assert np.array_equal(np.isinf(result), np.isinf(expected))


@pytest.mark.parametrize("layout", ["oi", "io"])
@pytest.mark.parametrize(("m", "n", "k"), [(20, 33, 17), (96, 64, 64), (1, 5, 3)])
def test_gradients(layout, m, n, k):
    x, w, dy = drawn(m, k), drawn(n, k), drawn(m, n)
    given = w if layout == "oi" else np.ascontiguousarray(w.T)
    dx, dw, db = nn.dense_grad(dy, x, given, layout=layout)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(dx, dy.astype(float) @ w, **close)
    expected = dy.astype(float).T @ x
    np.testing.assert_allclose(dw, expected if layout == "oi" else expected.T, **close)
    np.testing.assert_allclose(db, dy.astype(float).sum(0), **close)


def test_shapes_and_costs_need_no_data():
    assert nn.dense.shape((8, 3), (5, 3)) == (8, 5)
    assert nn.dense.shape((2, 7, 3), (5, 3)) == (2, 7, 5)
    assert nn.dense.flops((64, 784), (512, 784)) == 2 * 64 * 512 * 784
    assert nn.dense.bytes((64, 784), (512, 784)) == 4 * (
        64 * 784 + 512 * 784 + 64 * 512
    )


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: nn.dense(drawn(3, 4), drawn(5, 6)), ShapeError, r"\(3, 4\).*6 inputs"),
        (lambda: nn.dense(drawn(3, 4), drawn(5)), ShapeError, "is a matrix"),
        (lambda: nn.dense(drawn(3, 4), drawn(5, 4), drawn(4)), ShapeError, "bias"),
        (
            lambda: nn.dense(drawn(3, 4), drawn(5, 4), residual=drawn(3, 4)),
            ShapeError,
            r"residual has shape \(3, 4\)",
        ),
        (
            lambda: nn.dense(drawn(3, 4), drawn(5, 4, dtype=np.float64)),
            DTypeError,
            "one element type",
        ),
        (
            lambda: nn.dense(drawn(3, 4), drawn(5, 4), layout="ij"),
            ArgumentError,
            "'ij'",
        ),
        (
            lambda: nn.dense(drawn(3, 4), drawn(5, 4), activation="swish"),
            ArgumentError,
            "or 'tanh' or None, not 'swish'",
        ),
        (
            lambda: nn.dense(drawn(3, 4), drawn(5, 4), dropout=0.5),
            ArgumentError,
            "key=",
        ),
        (
            lambda: nn.dense(drawn(3, 4), drawn(5, 4), dropout=1.0, key=random.key(0)),
            ArgumentError,
            "0 <= dropout < 1",
        ),
        (lambda: nn.prepack(nn.relu, drawn(3, 4)), ArgumentError, "takes no packed"),
        (lambda: nn.prepack(None, drawn(3, 4)), ArgumentError, "None takes no packed"),
        (
            lambda: nn.prepack(nn.conv2d, drawn(3, 4, 3, 3), tolerance="a"),
            ArgumentError,
            "tolerance is None or a number, not 'a'",
        ),
        (
            lambda: nn.prepack(nn.dense, drawn(3, 4), tolerance=0.1),
            ArgumentError,
            "without a tolerance",
        ),
        (lambda: nn.prepack(nn.dense, np.ones((3, 4), int)), DTypeError, "int64; cast"),
        (
            lambda: nn.dense(
                drawn(4, 8), nn.PackedWeight("nn.dense", drawn(1), (6, 8))
            ),
            ShapeError,
            "holds no packed weight of 6 columns",
        ),
        (
            lambda: nn.dense(drawn(3, 4), drawn(5, 4), target=[]),
            TargetError,
            r"\[\] is no target",
        ),
        (
            lambda: nn.dense_grad(drawn(3, 4), drawn(3, 5), drawn(5, 5)),
            ShapeError,
            "not of one dense layer",
        ),
    ],
)
def test_bad_calls_get_a_sentence(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_packed_weight_is_refused_where_none_is_taken():
    dy, x, w = (np.ones(shape, np.float32) for shape in ((3, 5), (3, 8), (5, 8)))
    packed = nn.prepack(nn.dense, w)
    with pytest.raises(
        ArgumentError, match=r"packed for nn\.dense; pass w\.unpack\(\)"
    ):
        nn.dense_grad(dy, x, packed)
