"""Operands of many shapes and types, and Python numbers, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ir.dtypes import DType
from tensorlang.ops import math

ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
COMPARISONS = (
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
)
LOGIC = ("logical_and", "logical_or")
ON_INTEGERS = ("add", "subtract", "multiply", "maximum", "minimum")
PRECISE = {"f32": 1e-6, "f64": 2e-15, "f16": 6e-4, "bf16": 5e-3}


def drawn(shape, dtype="f32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) * 2
    return np.asarray(x, DType(dtype).numpy)


def reference(name, a, b):
    """The operator in float64."""
    with np.errstate(all="ignore"):
        return getattr(np, name)(a.astype(np.float64), b.astype(np.float64))


@st.composite
def shapes_that_broadcast(draw):
    """Two shapes of up to four dimensions, each extent 0 to 5, or 1 in one of them."""
    whole = draw(st.lists(st.integers(0, 5), max_size=4))
    pair = []
    for _ in range(2):
        ones = draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        shape = [1 if one else n for n, one in zip(whole, ones, strict=True)]
        pair.append(tuple(shape[draw(st.integers(0, len(shape))) :]))
    return tuple(pair)


def test_any_shapes_broadcast_as_in_numpy():
    seen, kernels = set(), set()

    @settings(max_examples=150)
    @given(shapes_that_broadcast())
    def check(shapes):
        a, b = drawn(shapes[0]), drawn(shapes[1], seed=1)
        found, expected = math.subtract(a, b), a - b
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
        seen.add(shapes)
        kernels.add(math.subtract.kernel(a, b))

    check()
    assert 2 * len(kernels) < len(seen)


def test_shapes_that_broadcast_alike_share_a_kernel():
    cases = [
        ([(5, 7), (5, 7)], [(2, 3, 4), (2, 3, 4)], [(), ()], [(0, 3), (0, 3)]),
        ([(5, 7), (7,)], [(2, 3, 4), (4,)], [(9, 2, 3), (2, 3)], [(6, 1, 8), (1, 8)]),
        ([(5, 7), (5, 1)], [(2, 3, 4), (2, 1, 1)], [(2, 3, 4), (2, 3, 1)]),
        ([(5, 1), (1, 7)], [(2, 3, 1, 1), (4, 5)], [(8, 1), (9,)]),
    ]
    for case in cases:
        pairs = [(drawn(a), drawn(b)) for a, b in case]
        assert len({math.add.kernel(a, b) for a, b in pairs}) == 1


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("dtype", PRECISE)
def test_arithmetic(name, dtype):
    a, b = drawn((33, 17), dtype), drawn((33, 1), dtype, seed=1)
    if name == "power":
        a = np.exp(a / 8)
    for left, right in ((a, b), (b, a)) if name != "power" else ((a, b),):
        found = getattr(math, name)(left, right)
        assert found.dtype == a.dtype
        np.testing.assert_allclose(
            found.astype(np.float64),
            reference(name, left, right),
            rtol=PRECISE[dtype] * (1 if name != "power" else 3),
        )


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS, *LOGIC])
def test_odd_values_are_as_in_pytorch(name):
    torch = pytest.importorskip("torch")
    odd = np.array(
        [0, -0.0, 1, -1, 2.5, -3, np.inf, -np.inf, np.nan, 1e30, 1e-30], "f4"
    )
    a, b = np.broadcast_arrays(odd[:, None], odd)
    kind = {"power": "pow", "equal": "eq", "not_equal": "ne"}.get(name, name)
    expected = getattr(torch, kind)(torch.tensor(a), torch.tensor(b)).numpy()
    found = getattr(math, name)(odd[:, None], odd)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32", "u32", "i64", "u64"])
def test_integers_wrap_and_compare(dtype):
    low, high = DType(dtype).limits
    values = np.array([low, low + 1, 0, 1, 7, high // 2, high], DType(dtype).numpy)
    a, b = values[:, None], values
    for name in ("add", "multiply", "minimum", "less"):
        found, expected = getattr(math, name)(a, b), getattr(np, name)(a, b)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "equal", *LOGIC])
def test_truths(name):
    a, b = np.array([[True], [False]]), np.array([True, False])
    found = getattr(math, name)(a, b)
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, getattr(np, name)(a, b))


def test_logic_takes_numbers():
    x = np.array([0.0, -0.0, 2.0, np.nan], np.float32)
    np.testing.assert_array_equal(math.logical_not(x), np.logical_not(x))
    np.testing.assert_array_equal(
        math.logical_and(x, x[::-1]), np.logical_and(x, x[::-1])
    )
    np.testing.assert_array_equal(math.isnan(x), np.isnan(x))
    assert math.isinf(np.array([np.inf, -np.inf, 1], np.float16)).tolist() == [1, 1, 0]


# --------------------------------------------------------------- Python numbers


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_a_number_takes_the_arrays_type(dtype):
    x = drawn((3, 50), dtype)
    for name in ("add", "divide", "maximum", "less"):
        op, numpy = getattr(math, name), getattr(np, name)
        for number in (0.1, 3, True, -7.25):
            narrow = np.asarray(number, x.dtype)
            for found, left, right in (
                (op(x, number), x, narrow),
                (op(number, x), narrow, x),
            ):
                wide = numpy(left.astype(np.float64), right.astype(np.float64))
                assert found.dtype == numpy(left, right).dtype
                if found.dtype == np.bool_:
                    np.testing.assert_array_equal(found, wide)
                else:
                    close = found.astype(np.float64)
                    np.testing.assert_allclose(close, wide, rtol=PRECISE[dtype])


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_a_float_of_numpy_is_a_number(dtype):
    x, scale = drawn((3, 50), dtype), 1 / np.sqrt(50)
    assert type(scale) is np.float64
    for name in ("add", "divide", "maximum", "less"):
        op = getattr(math, name)
        for found, wanted in (
            (op(x, scale), op(x, float(scale))),
            (op(scale, x), op(float(scale), x)),
        ):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)
    low = np.float64(-0.5)
    np.testing.assert_array_equal(math.clip(x, low), math.clip(x, -0.5))
    np.testing.assert_array_equal(math.where(x > 0, x, low), math.where(x > 0, x, -0.5))


def test_a_scalar_of_numpy_beside_another_type():
    x = drawn((3, 4), "f64")
    assert math.add(x, np.float32(2)).dtype == np.float64
    assert math.add(drawn((3, 4)), np.float32(2)).dtype == np.float32
    with pytest.raises(DTypeError, match=r"bitwise_and: 0\.5 is no value of the i64"):
        math.bitwise_and(np.arange(3), np.float64(0.5))


def test_all_numbers_share_a_kernel():
    x = drawn((5, 6))
    kernels = {math.multiply.kernel(x, number) for number in (2.0, 3, -1.5, 1e9)}
    assert len(kernels) == 1
    assert math.multiply.kernel(2.0, x) not in kernels


def test_whole_numbers_beside_integers():
    x = np.arange(5, dtype=np.uint8)
    np.testing.assert_array_equal(math.add(x, 250), x + np.uint8(250))
    np.testing.assert_array_equal(math.less(x, 3), x < 3)
    np.testing.assert_array_equal(math.subtract(0, x), np.uint8(0) - x)
    with pytest.raises(DTypeError, match="b is 256; u8 holds 0 to 255"):
        math.add(x, 256)
    with pytest.raises(DTypeError, match=r"0\.5 is no value of the u8 beside it"):
        math.bitwise_or(x, 0.5)


# ------------------------------------------------------------------- bad calls


def test_operands_that_do_not_fit():
    x = drawn((3, 4))
    with pytest.raises(ShapeError, match=r"shapes \(3, 4\) and \(3,\) do not broad"):
        math.add(x, x[:, 0])
    with pytest.raises(DTypeError, match="have one element type, not u64, i32; cast"):
        math.add(x.astype(np.uint64), x.astype(np.int32))
    with pytest.raises(DTypeError, match=r"math\.bitwise_and takes .*, not f32"):
        math.bitwise_and(x, x.astype(np.int32))
    with pytest.raises(DTypeError, match=r"math\.subtract takes .*, not bool"):
        math.subtract(x > 0, x > 0)
    with pytest.raises(ArgumentError, match="one of the operands has to be an array"):
        math.add(2.0, 3.0)
    with pytest.raises(ArgumentError, match="is a list, not an array"):
        math.add(x, [1.0, 2.0])
    with pytest.raises(DTypeError, match="out is float32, the result is bool"):
        math.less(x, x, out=x)
    with pytest.raises(ShapeError, match="out has shape"):
        math.add(x, x[0], out=np.empty(4, np.float32))


@pytest.mark.parametrize(
    ("dtype", "most"), [("float16", 65504.0), ("float32", 3.4028235e38)]
)
def test_a_number_that_rounds_to_an_infinity_is_refused(dtype, most):
    x = np.ones(3, dtype)
    assert np.isfinite(math.maximum(x, most)).all()
    assert np.isinf(math.add(x, np.inf)).all()
    for call in (lambda: math.add(x, most * 1.01), lambda: math.clip(x, 0, most * 2)):
        with pytest.raises(DTypeError, match="rounds to an infinity"):
            call()


def test_arrays_of_other_libraries():
    torch = pytest.importorskip("torch")
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    assert torch.equal(math.add(x, x[0]), x + x[0])
    assert torch.equal(math.multiply(2.0, x), 2 * x)
    assert torch.equal(math.less(x.bfloat16(), 0.5), x.bfloat16() < 0.5)
    y = np.ones((3, 4), np.float32)
    assert isinstance(math.add(y, x), torch.Tensor)


def test_an_operand_may_be_the_result_where_it_has_its_shape():
    a, b = drawn((20, 30)), drawn((30,), seed=1)
    expected = a + b
    assert math.add(a, b, out=a) is a
    np.testing.assert_array_equal(a, expected)
    square = drawn((30, 30))
    expected = square + square[0]
    math.add(square, square[0], out=square)
    np.testing.assert_array_equal(square, expected)
    expected = square * square.T
    math.multiply(square, square.T, out=square)
    np.testing.assert_array_equal(square, expected)
