"""The native intrinsics: types, and meanings against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.errors import DTypeError, IRError
from tensorlang.ir import intrinsics as fn
from tensorlang.ir import natives
from tensorlang.ir.dtypes import boolean, f32, f64, i64, u32, u64
from tensorlang.ir.nodes import Buffer, Const, Var, as_expr


def exact_fma(a: float, b: float, c: float, dtype: str) -> float:
    """One rounding of the exact result, found by comparing neighbours."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = np.dtype(dtype).type(float(exact))
    inf = near.dtype.type(np.inf)
    around = [near, np.nextafter(near, inf), np.nextafter(near, -inf)]
    finite = [x for x in around if np.isfinite(x)]
    return min(
        finite, key=lambda x: (abs(Fraction(float(x)) - exact), x.view(bits(dtype)) & 1)
    )


def bits(dtype: str) -> str:
    return f"u{np.dtype(dtype).itemsize}"


def bf16_exact(a: float, b: float, c: float) -> float:
    import ml_dtypes

    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = np.asarray(float(exact), np.float32).view(np.uint32)
    around = [
        np.uint16(max(0, (int(near) >> 16) + step)).view(ml_dtypes.bfloat16)
        for step in (-1, 0, 1)
    ]
    finite = [x for x in around if np.isfinite(x)]
    return float(
        min(
            finite,
            key=lambda x: (abs(Fraction(float(x)) - exact), x.view(np.uint16) & 1),
        )
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_fma_rounds_once(dtype):
    rng = np.random.default_rng(7)
    scale = {"float16": 8, "float32": 60, "float64": 200}[dtype]
    a, b, c = (
        (
            rng.standard_normal(3000)
            * 2.0 ** rng.integers(-scale // 2, scale // 2, 3000)
        ).astype(dtype)
        for _ in range(3)
    )
    c[:1000] = -(a * b)[:1000]  # cancellation
    c[1000:1500] = (a * b)[1000:1500] * np.dtype(dtype).type(2.0**-9)
    keep = np.isfinite(a * b) & np.isfinite(c)
    got = fn.INTRINSICS["fma"].numpy(a, b, c)
    for x, y, z, result in zip(a[keep], b[keep], c[keep], got[keep], strict=True):
        assert result == exact_fma(float(x), float(y), float(z), dtype)


def test_fma_of_bf16_rounds_once():
    import ml_dtypes

    rng = np.random.default_rng(8)
    a, b, c = (
        (rng.standard_normal(3000) * 2.0 ** rng.integers(-9, 9, 3000)).astype(
            ml_dtypes.bfloat16
        )
        for _ in range(3)
    )
    got = fn.INTRINSICS["fma"].numpy(a, b, c)
    assert got.dtype == a.dtype
    for x, y, z, result in zip(a, b, c, got, strict=True):
        assert float(result) == bf16_exact(float(x), float(y), float(z))


def test_fma_at_the_edges_of_f64():
    inf, big, tiny = math.inf, 1.5e308, 5e-324
    cases = [
        (big, 2.0, -inf, -inf),
        (big, big, 0.0, inf),
        (big, 2.0, -big, big),
        (tiny, 0.5, 0.0, 0.0),
        (tiny, 0.5, tiny, 2 * tiny),
        (-tiny, 0.25, 0.0, -0.0),
        (1.0, 1.0, -1.0, 0.0),
        (-0.0, 1.0, -0.0, -0.0),
        (inf, 0.0, 1.0, math.nan),
        (1 + 2**-52, 1 + 2**-52, -1.0, 2**-51 + 2**-104),
    ]
    a, b, c, want = (np.array(column) for column in zip(*cases, strict=True))
    got = fn.INTRINSICS["fma"].numpy(a, b, c)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[:8]), np.signbit(want[:8]))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_mulhi_is_the_upper_half(a, b):
    mulhi = fn.INTRINSICS["mulhi"].numpy
    assert int(mulhi(np.uint64(a), np.uint64(b))) == a * b >> 64
    a, b = a >> 32, b >> 32
    assert int(mulhi(np.uint32(a), np.uint32(b))) == a * b >> 32


@pytest.mark.parametrize("name", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"])
def test_bit_counts(name):
    rng = np.random.default_rng(3)
    width = 8 * np.dtype(name).itemsize
    raw = rng.integers(0, 256, (500, width // 8), dtype=np.uint8)
    raw[:200] &= rng.integers(0, 256, (200, width // 8), dtype=np.uint8)
    raw[0], raw[1] = 0, 255
    x = raw.view(name).ravel()
    whole = [int(v) % (1 << width) for v in x]
    ones = fn.INTRINSICS["popcount"].numpy(x)
    zeros = fn.INTRINSICS["clz"].numpy(x)
    assert ones.dtype == zeros.dtype == x.dtype
    assert list(ones) == [v.bit_count() for v in whole]
    assert list(zeros) == [width - v.bit_length() for v in whole]


@given(st.integers(0, 2**32 - 1), st.integers(0, 100))
def test_rotl_turns_modulo_the_width(x, amount):
    turn = amount % 32
    want = ((x << turn) | (x >> (32 - turn))) & 0xFFFFFFFF
    assert int(fn.INTRINSICS["rotl"].numpy(np.uint32(x), np.uint32(amount))) == want


def test_numbers_take_the_type_and_lanes_of_the_expression():
    x = Var("x", f32)
    call = natives.fma(x, 2.0, 1)
    assert call.dtype == f32
    assert call.args[1] == Const(2.0, f32)
    assert natives.rotl(Var("w", u64), 13).args[1] == Const(13, u64)
    vector = Var("v", f32.vector(8))
    assert natives.fma(vector, x, 0.0).dtype == f32.vector(8)
    assert natives.isnan(vector).dtype == boolean.vector(8)


def test_check_and_prefetch_are_effects():
    x = Buffer("x", f64, (as_expr(4),))
    cond = Var("i") < 3
    assert natives.check(cond, 7).args == (cond, Const(7, i64))
    assert not fn.INTRINSICS["check"].pure
    assert natives.prefetch(x[0]).dtype == boolean
    with pytest.raises(IRError, match="prefetch takes a load"):
        natives.prefetch(Var("i"))


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("fma", (Var("i"), 1, 2), "fma needs floats, got i64"),
        ("mulhi", (Var("i"), 1), "mulhi takes u32, u64, got i64"),
        ("rotl", (Var("a", u32), Var("b", u64)), "one type"),
        ("popcount", (Var("x", f32),), "popcount takes"),
        ("check", (Var("i"), 1), "a bool and an i64 code"),
    ],
)
def test_wrong_types_are_refused(name, args, message):
    with pytest.raises(DTypeError, match=message):
        fn.intrinsic(name, *args)


def test_unknown_names_and_counts_are_refused():
    with pytest.raises(IRError, match="'nosuch' is not an intrinsic"):
        fn.intrinsic("nosuch", Var("i"))
    with pytest.raises(IRError, match="fma takes 3 arguments, got 1"):
        fn.intrinsic("fma", Var("x", f32))
