"""Integer dense layers against exact sums in int64; quantisation and its inverse."""

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, GraphError, ShapeError
from tensorlang.ops import nn

F32, I8, U8 = np.float32, np.int8, np.uint8
SHAPES = [
    (64, 96, 128),
    (1, 33, 70),
    (13, 48, 20),
    (3, 1, 1),
    (30, 70, 129),
    (2, 16, 4),
]


def octets(*shape, dtype=I8, seed=0):
    """Integers of the whole range, the extremes among them."""
    limits = np.iinfo(dtype)
    made = np.random.default_rng((seed, *shape)).integers(
        limits.min, limits.max, shape, endpoint=True
    )
    made.reshape(-1)[:1], made.reshape(-1)[1:2] = limits.min, limits.max
    return made.astype(dtype)


def drawn(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).random(shape, F32) + F32(0.1)


def exact(x, w, scales, zero=0):
    """`(x - zero) @ w.T` with scales per tensor, channel or group."""
    x = x.astype(np.int64) - np.reshape(zero, (-1, 1)).astype(np.int64)
    scales = scales.reshape(len(scales), -1).astype(np.float64)
    groups = scales.shape[1]
    x, w = (v.reshape(len(v), groups, v.shape[1] // groups) for v in (x, w))
    sums = np.einsum("igk,jgk->ijg", x, w.astype(np.int64))
    return (sums * scales).sum(-1)


@pytest.mark.parametrize("dtype", [I8, U8])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_sums_are_exact(m, n, k, dtype):
    x, w = octets(m, k, dtype=dtype), octets(n, k, seed=1)
    y = nn.dense_int8(x, w, np.ones(1, F32))
    assert y.dtype == F32
    np.testing.assert_array_equal(y, exact(x, w, np.ones(1)))  # below 2**24
    packed, zero = nn.prepack(nn.dense_int8, w), octets(m, dtype=dtype, seed=3)
    np.testing.assert_array_equal(nn.dense_int8(x, packed, np.ones(1, F32)), y)
    assert np.array_equal(packed.unpack(), w)
    y = nn.dense_int8(x, packed, np.ones(n, F32), zero_points=zero)
    np.testing.assert_array_equal(y, exact(x, w, np.ones(1), zero))


@pytest.mark.parametrize("dtype", [I8, U8])
@pytest.mark.parametrize(("m", "n", "k", "groups"), [(7, 40, 96, 3), (1, 64, 128, 4)])
def test_scales_of_groups_and_rows_zero_points_and_a_bias(m, n, k, groups, dtype):
    x, w = octets(m, k, dtype=dtype), octets(n, k, seed=1)
    b, rows = drawn(n), drawn(m, seed=3)
    for scales in (drawn(1), drawn(n), drawn(n, groups)):
        for zero in (octets(1, dtype=dtype), octets(m, dtype=dtype, seed=5)):
            y = nn.dense_int8(
                x, w, scales, b, x_scales=rows, zero_points=zero, activation="relu"
            )
            expected = exact(x, w, scales, zero) * rows[:, None] + b
            size = exact(abs(x.astype(int)) + 255, abs(w.astype(int)), scales)
            assert (abs(y - np.maximum(expected, 0)) <= 1e-6 * (size + 1)).all()


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_results_are_requantised(dtype):
    x, w, scales = octets(9, 50), octets(20, 50, seed=1), drawn(20) / 1000
    kind = np.dtype(I8 if dtype == "i8" else U8)
    y = nn.dense_int8(x, w, scales, dtype=dtype, y_scale=0.25, y_zero_point=3)
    expected = np.rint(exact(x, w, scales) / 0.25) + 3
    limits = np.iinfo(kind)
    assert y.dtype == kind
    assert abs(y - expected.clip(limits.min, limits.max)).max() <= 1  # ties in f32
    assert (y == expected.clip(limits.min, limits.max)).mean() > 0.97
    assert {limits.min, limits.max} <= {*y.reshape(-1).tolist()}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        *(({"y_scale": n}, "y_scale is a finite") for n in (0.0, -1.0, np.nan, np.inf)),
        ({"y_scale": 1e-300}, "y_scale is a finite"),
        ({"y_zero_point": 256}, "y_zero_point is a value of u8, from 0 to 255"),
        ({"y_zero_point": -1}, "y_zero_point is a value of u8, from 0 to 255"),
    ],
)
def test_scales_and_zero_points_of_results_are_of_their_type(given, said):
    for _ in range(2):  # a call that is prepared is refused as well
        with pytest.raises(ArgumentError, match=said):
            nn.dense_int8(X, W, S, dtype="u8", **given)
        nn.dense_int8(X, W, S, dtype="u8", y_scale=1e-30, y_zero_point=255)


def test_sums_are_exact_at_the_extremes_of_zero_points():
    for dtype, zero in ((U8, 0), (U8, 255), (I8, -128), (I8, 127)):
        limits = np.iinfo(dtype)
        x = np.full((2, 65_793), limits.min + limits.max - zero, dtype)
        w, ones = np.full((3, 65_793), -128, I8), np.ones(1, F32)
        y = nn.dense_int8(x, w, ones, zero_points=np.array([zero], dtype))
        np.testing.assert_array_equal(y, exact(x, w, ones, zero).astype(F32))


def test_packed_weights_of_any_depth():
    for depth in range(1, 9):
        x, w = octets(2, depth), octets(5, depth)
        packed = nn.prepack(nn.dense_int8, w)
        y = nn.dense_int8(x, packed, np.ones(1, F32))
        np.testing.assert_array_equal(y, exact(x, w, np.ones(1)))
        for other in (depth - 1, depth + 1):
            with pytest.raises(ShapeError, match=f"in the {depth} inputs"):
                nn.dense_int8(octets(2, other), packed, np.ones(1, F32))


def test_layers_of_one_input():
    ones = np.ones(17, F32)
    y = nn.dense_int8(np.ones((6, 1), I8), np.ones((17, 1), I8), ones)
    np.testing.assert_array_equal(y, np.ones((6, 17), F32))
    y = nn.dense_int4(np.ones((6, 2), F32), np.full((17, 1), 0x9A, U8), ones)
    np.testing.assert_array_equal(y, np.full((6, 17), 3, F32))


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_results_in_narrow_floats(dtype):
    x, w, scales = octets(3, 4, 24), octets(17, 24, seed=1), drawn(17) / 1000
    y = nn.dense_int8(x, w, scales, dtype=dtype)
    expected = exact(x.reshape(12, 24), w, scales).reshape(3, 4, 17)
    assert y.dtype == (np.float16 if dtype == "f16" else ml_dtypes.bfloat16)
    np.testing.assert_allclose(y.astype(F32), expected, rtol=2**-8, atol=1e-3)


def test_empty_strided_and_given_arrays():
    w, ones = octets(6, 8), np.ones(1, F32)
    assert nn.dense_int8(octets(2, 8)[:0], w, ones).shape == (0, 6)
    assert (nn.dense_int8(np.zeros((2, 0), I8), w[:, :0], ones) == 0).all()
    assert nn.dense_int8(octets(2, 8), w[:0], ones).shape == (2, 0)
    packed = nn.prepack(nn.dense_int8, w[:, :0])
    assert (nn.dense_int8(np.zeros((2, 0), I8), packed, ones) == 0).all()
    x, out = octets(4, 16)[:, ::2], np.zeros((4, 12), F32)
    nn.dense_int8(x, w, ones, out=out[:, ::2])
    np.testing.assert_array_equal(out[:, ::2], exact(x, w, ones))


def test_packed_weights_of_no_columns():
    x, w = octets(2, 8), octets(6, 8)[:0]
    packed = nn.prepack(nn.dense_int8, w)
    assert nn.dense_int8(x, packed, np.ones(1, F32)).shape == (2, 0)
    packed = nn.prepack(nn.dense, w.astype(F32))
    assert nn.dense(x.astype(F32), packed).shape == (2, 0)


X, W, S = octets(2, 8), octets(6, 8), np.ones(6, F32)
LONG, PACKED = np.zeros((1, 70_000), I8), nn.prepack(nn.dense_int8, W)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: nn.dense_int8(X[:, 1:], W, S), ShapeError, "does not end"),
        (lambda: nn.dense_int8(X, W, S[:2]), ShapeError, "scales of shape"),
        (lambda: nn.dense_int8(X, W, drawn(6, 3)), ShapeError, "that divide 8"),
        (lambda: nn.dense_int8(X, W, S, S[:1]), ShapeError, "bias has shape"),
        (lambda: nn.dense_int8(X, W, S, x_scales=S), ShapeError, "x_scales of shape"),
        (lambda: nn.dense_int8(X, W, S, dtype="i16"), DTypeError, "dtype is one of"),
        (lambda: nn.dense_int8(X * 1.0, W, S), DTypeError, "takes u8, i8"),
        (lambda: nn.dense_int8(X, W.view(U8), S), DTypeError, "w is an array of i8"),
        (lambda: nn.dense_int8(LONG, LONG, S[:1]), ShapeError, "may overflow"),
        (lambda: nn.dense_int8(X[:, :3], PACKED, S), ShapeError, "in the 8 inputs"),
        (
            lambda: nn.dense_int8(X[:, :5], nn.prepack(nn.dense_int8, W[:, :6]), S),
            ShapeError,
            "in the 6 inputs",
        ),
        (
            lambda: nn.dense_int8(X, W, S, zero_points=np.array([2**31 - 1], "i4")),
            DTypeError,
            "zero_points takes u8, i8, not i32",
        ),
        (
            lambda: nn.dense_int8(X, W, S, zero_points=np.array([200], U8)),
            DTypeError,
            "one element type, not i8, u8",
        ),
        (lambda: nn.dense_int8(X, PACKED, drawn(6, 2)), ShapeError, "no scales of gr"),
        (lambda: nn.dense(drawn(2, 8), PACKED), ArgumentError, "packed for nn.dense_i"),
        (lambda: nn.prepack(nn.dense_int8, drawn(6, 8)), DTypeError, "w is one of i8"),
        (lambda: nn.dense_int4(X * F32(1), W, S), DTypeError, "array of u8"),
        (lambda: nn.dense_int4(drawn(2, 18), W.view(U8), S), ShapeError, "not end"),
        (lambda: nn.quantize(drawn(4, 6), per=4), ShapeError, "do not divide"),
        (lambda: nn.quantize(drawn(4, 6), per=0), ShapeError, "do not divide"),
        (lambda: nn.quantize(drawn(4, 5), bits=4), ShapeError, "odd number"),
        (lambda: nn.quantize(drawn(4, 6), bits=3), ArgumentError, "bits is"),
        (lambda: nn.quantize(X), DTypeError, "takes f32, bf16, f16"),
        (lambda: nn.dequantize(X, S[:2], bits=4), DTypeError, "4-bit"),
        (lambda: nn.dequantize(X, S), ShapeError, "do not fit"),
    ],
)
def test_mistakes_are_named(call, error, said):
    with pytest.raises(error, match=said):
        call()


@pytest.mark.parametrize("per", ["row", "tensor", 16, 32])
@pytest.mark.parametrize("bits", [8, 4])
def test_quantisation_is_within_half_a_step(per, bits):
    x = np.random.default_rng(0).standard_normal((5, 3, 64)).astype(F32)
    x[0, 0], x[1, 1, :16] = 0, -(2.0**-130)
    q, scales = nn.quantize(x, per=per, bits=bits)
    shape = {"row": (5, 3), "tensor": (1,)}.get(per) or (5, 3, 64 // per)
    assert (q.dtype, scales.shape) == (I8 if bits == 8 else U8, shape)
    y = nn.dequantize(q, scales, bits=bits)
    steps = np.repeat(scales, x.size // scales.size).reshape(x.shape)
    assert (abs(x - y) <= steps * F32(0.5001)).all()
    assert (y[0, 0] == 0).all()


@pytest.mark.parametrize("per", ["row", "tensor", 2])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("shape", [(3, 0), (0, 10), (0, 0), (0,), (2, 0, 4), (2, 3, 0)])
def test_nothing_is_quantised_to_nothing(per, bits, shape):
    q, scales = nn.quantize(np.zeros(shape, F32), per=per, bits=bits)
    *lead, depth = shape
    assert q.shape == (*lead, depth * bits // 8)
    wanted = {"row": (*lead,), "tensor": (1,), 2: (*lead, depth // 2)}[per]
    np.testing.assert_array_equal(scales, np.zeros(wanted, F32))
    assert nn.dequantize(q, scales, bits=bits).shape == shape


def test_pairs_have_the_even_one_below():
    q, scales = nn.quantize(np.array([[7, -7, 1, 0]], F32), bits=4)
    np.testing.assert_array_equal(q, [[15 | 1 << 4, 9 | 8 << 4]])
    assert scales == [1]


def test_numbers_that_are_none_become_zero():
    x = np.array([[1, np.nan, 2], [1, np.inf, -np.inf]], F32)
    q, _ = nn.quantize(x)
    np.testing.assert_array_equal(q, [[64, 0, 127], [0, 0, 0]])


@pytest.mark.parametrize("dtype", [F32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize(
    ("m", "n", "k", "per"),
    [
        (1, 64, 128, 32),
        (1, 33, 70, "row"),
        (5, 40, 96, 16),
        (3, 37, 96, "tensor"),
        (40, 70, 62, "tensor"),
        (2, 9, 24, 4),
    ],
)
def test_layers_of_4_bits(m, n, k, per, dtype):
    x = np.random.default_rng(0).standard_normal((m, k)).astype(dtype)
    w, b = drawn(n, k, seed=1) - F32(0.6), drawn(n, seed=2)
    q, scales = nn.quantize(w, per=per, bits=4)
    y = nn.dense_int4(x, q, scales, b, activation="tanh")
    wide, whole = x.astype(np.float64), nn.dequantize(q, scales, bits=4)
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert y.dtype == dtype
    expected = np.tanh(wide @ whole.T.astype(np.float64) + b)
    allowed = eps + 1e-6 * (abs(wide) @ abs(whole.T) + 1)
    assert (abs(y.astype(np.float64) - expected) <= allowed).all()
    empty = nn.dense_int4(x[:0], q, scales)
    assert empty.shape == (0, n)


def test_layers_without_inputs():
    y = nn.dense_int4(np.zeros((2, 0), F32), np.zeros((3, 0), U8), np.ones(3, F32))
    np.testing.assert_array_equal(y, np.zeros((2, 3), F32))


def test_gradients_of_float_arrays():
    torch = pytest.importorskip("torch")
    from tensorlang.interop import torch as ours

    x = torch.randn(3, 16, requires_grad=True)
    q, scales = ours.quantize(torch.randn(5, 16), per=8, bits=4)
    whole = ours.dequantize(q, scales, bits=4)
    ours.dense_int4(x, q, scales).sum().backward()
    torch.testing.assert_close(x.grad, whole.sum(0).expand(3, 16))
    scales.requires_grad_()
    with pytest.raises(GraphError, match=r"nn.dense_int8 .* has no gradient"):
        ours.dense_int8(
            q.to(torch.int8), q.to(torch.int8), scales[:, 0]
        ).sum().backward()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_gradients_of_4_bit_layers_have_the_type_of_their_array(dtype):
    """The scales stay f32 beside narrow activations, and so does their gradient."""
    x, dy = drawn(7, 64).astype(dtype), drawn(7, 24, seed=1).astype(dtype)
    w, scales = octets(24, 32, dtype=U8), drawn(24, 4)
    dx, dscales = nn.dense_int4_grad(dy, x, w, scales)
    assert (dx.dtype, dscales.dtype, dscales.shape) == (x.dtype, F32, scales.shape)
    pairs = np.stack([w & 15, w >> 4], axis=-1).reshape(24, 4, 16).astype(float) - 8
    wide = (pairs * scales[..., None]).reshape(24, 64)
    rounding = float(ml_dtypes.finfo(dtype).eps) * np.abs(wide).sum(0).max()
    np.testing.assert_allclose(dx.astype(float), dy.astype(float) @ wide, 0, rounding)
    each = (dy.astype(float).T @ x.astype(float)).reshape(24, 4, 16)
    np.testing.assert_allclose(dscales, (each * pairs).sum(-1), 1e-5, 1e-4)


@pytest.mark.parametrize("dtype", [I8, U8])
def test_packed_weights_are_read_in_vectors(dtype):
    packed = nn.prepack(nn.dense_int8, octets(40, 72))
    x = octets(20, 72, dtype=dtype)
    assert "gather" not in nn.dense_int8.kernel(x, packed, np.ones(1, F32)).source


def test_few_rows_read_each_byte_once():
    x, (q, scales) = drawn(2, 256), nn.quantize(drawn(40, 256), per=32, bits=4)
    kernel = nn.dense_int4.kernel(x, q, scales)
    assert "numbers" not in str(kernel.ir)
    assert "products_rf" in str(kernel.ir)
