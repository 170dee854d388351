"""Expressions against plain Python integers and NumPy floats."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.errors import InterpreterError
from tensorlang.ir.dtypes import DType, as_dtype
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import (
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Function,
    Let,
    Load,
    Param,
    Select,
    Store,
    Unary,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.text.parser import parse

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")


def value_of(expr, lets=()):
    """The value of one expression of scalars, through a function of no inputs."""
    y = Buffer("y", expr.dtype, (as_expr(1),))
    body = seq(lets, Store(y, (as_expr(0),), expr))
    out = np.zeros(1, expr.dtype.numpy)
    run(Function("f", (Param(y, "out"),), (), body), out)
    return out[0]


def wrapped(value: int, dtype: DType) -> int:
    low, high = dtype.limits
    return (value - low) % (high - low + 1) + low


OPERATIONS = {
    "add": lambda a, b, _: a + b,
    "sub": lambda a, b, _: a - b,
    "mul": lambda a, b, _: a * b,
    "min": lambda a, b, _: min(a, b),
    "max": lambda a, b, _: max(a, b),
    "and": lambda a, b, _: a & b,
    "or": lambda a, b, _: a | b,
    "xor": lambda a, b, _: a ^ b,
    "floordiv": lambda a, b, _: a // b if b else None,
    "floormod": lambda a, b, _: a % b if b else None,
    "shl": lambda a, b, bits: a << b if 0 <= b < bits else 0,
    "shr": lambda a, b, bits: a >> (b if 0 <= b < bits else bits - 1 + (a >= 0)),
}


@st.composite
def integer_programs(draw):
    """A chain of `Let`s over one type, and what each must be (None for a fault)."""
    dtype = DType(draw(st.sampled_from(INTEGERS)))
    low, high = dtype.limits
    numbers = st.one_of(st.integers(low, high), st.integers(0, min(high, 70)))
    known = [draw(numbers), draw(numbers)]
    exprs = [Const(value, dtype) for value in known]
    lets = []
    for n in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(sorted(OPERATIONS)))
        a, b = (draw(st.integers(0, len(known) - 1)) for _ in range(2))
        result = OPERATIONS[op](known[a], known[b], dtype.bits)
        lets.append(Let(Var(f"t{n}", dtype), Binary(op, exprs[a], exprs[b])))
        if result is None:
            return lets, None
        exprs.append(lets[-1].var)
        known.append(wrapped(result, dtype))
    return lets, known[-1]


@settings(max_examples=300)
@given(integer_programs())
def test_integer_programs_agree_with_python(program):
    lets, expected = program
    if expected is None:
        with pytest.raises(InterpreterError, match="division by zero"):
            value_of(lets[-1].var, lets)
    else:
        assert int(value_of(lets[-1].var, lets)) == expected


@settings(max_examples=300)
@given(
    st.sampled_from(FLOATS),
    st.lists(
        st.tuples(
            st.sampled_from(["add", "sub", "mul", "div"]),
            st.integers(0, 20),
            st.integers(0, 20),
        ),
        min_size=1,
        max_size=10,
    ),
    st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3),
)
def test_float_programs_round_after_every_operation(name, steps, start):
    dtype = DType(name)
    table = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
    }
    wide = np.float64 if name == "f64" else np.float32  # wide enough: 2p + 2 bits
    exprs = [Const(value, dtype) for value in start]
    known = [np.float64(e.value).astype(dtype.numpy) for e in exprs]
    lets = []
    with np.errstate(all="ignore"):
        for n, (op, *picks) in enumerate(steps):
            a, b = (pick % len(known) for pick in picks)
            lets.append(Let(Var(f"t{n}", dtype), Binary(op, exprs[a], exprs[b])))
            exprs.append(lets[-1].var)
            result = table[op](known[a].astype(wide), known[b].astype(wide))
            known.append(result.astype(dtype.numpy))
    got = value_of(lets[-1].var, lets)
    assert got.tobytes() == known[-1].tobytes() or (
        np.isnan(got.astype("f8")) and np.isnan(known[-1].astype("f8"))
    )


@settings(max_examples=200)
@given(st.sampled_from(FLOATS), st.sampled_from(INTEGERS), st.floats(allow_nan=True))
def test_casts_to_integers_truncate_and_saturate(source, target, number):
    value, dtype = Const(number, DType(source)), DType(target)
    low, high = dtype.limits
    number = value.value
    if math.isnan(number):
        expected = 0
    elif math.isinf(number):
        expected = high if number > 0 else low
    else:
        expected = min(max(math.trunc(number), low), high)
    assert int(value_of(Cast(dtype, value))) == expected


def nearest(number, dtype):
    """The f32 or narrower float nearest to an exact fraction, by search."""
    guess = np.float64(float(number)).astype(dtype.numpy)
    bits = f"u{dtype.bytes}"
    near = [(guess.view(bits) + np.array(d, bits)).view(dtype.numpy) for d in (0, 1)]
    near.append((guess.view(bits) - np.array(1, bits)).view(dtype.numpy))

    def distance(candidate):
        odd = int(candidate.view(bits)) & 1
        return abs(Fraction(float(candidate)) - number), odd

    finite = [c for c in near if np.isfinite(c.astype("f8"))]
    return min(finite, key=distance)


@settings(max_examples=200)
@given(
    st.sampled_from(["bf16", "f32"]),
    st.sampled_from(["i32", "i64", "u64"]),
    st.integers(1, 2**31 - 1),
    st.integers(0, 32),
)
def test_casts_of_integers_round_once(target, source, number, shift):
    dtype = DType(target)
    value = Const(number << shift, DType(source))
    expected = nearest(Fraction(value.value), dtype)
    assert value_of(Cast(dtype, value)).tobytes() == expected.tobytes()


@settings(max_examples=200)
@given(
    st.sampled_from(["f16", "bf16", "f32"]),
    *[st.floats(-1000, 1000, width=16) for _ in range(3)],
)
def test_contracted_addition_rounds_once(name, a, b, c):
    dtype = DType(name)
    x, y, z = (Const(v, dtype) for v in (a, b, c))
    exact = Fraction(x.value) * Fraction(y.value) + Fraction(z.value)
    got = value_of(Binary("add", z, Binary("mul", x, y), contract=True))
    if exact and np.isfinite(got.astype("f8")):
        assert got.tobytes() == nearest(exact, dtype).tobytes()


def test_contraction_follows_the_flag_and_the_sign():
    tiny = 2.0**-13
    a, c = Const(1 + tiny, DType("f32")), Const(1.0, DType("f32"))
    square = Binary("mul", a, a)
    exact = (1 + tiny) ** 2
    assert value_of(Binary("sub", square, c)) != exact - 1
    assert value_of(Binary("sub", square, c, contract=True)) == exact - 1
    assert value_of(Binary("sub", c, square, contract=True)) == 1 - exact
    marked = Binary("mul", a, a, contract=True)
    assert value_of(Binary("sub", marked, c)) == exact - 1


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("name", FLOATS)
def test_min_and_max_return_the_other_operand_for_one_nan(op, name):
    nan, one = Const(math.nan, DType(name)), Const(1.0, DType(name))
    assert value_of(Binary(op, nan, one)) == 1
    assert value_of(Binary(op, one, nan)) == 1
    assert np.isnan(value_of(Binary(op, nan, nan)).astype("f8"))


def test_comparisons_with_nan_hold_only_for_ne():
    nan, one = Const(math.nan, DType("f32")), Const(1.0, DType("f32"))
    held = {op: value_of(Compare(op, nan, one)) for op in ("eq", "ne", "lt", "ge")}
    assert held == {"eq": False, "ne": True, "lt": False, "ge": False}


def test_unary_operations_wrap_and_invert():
    lowest = Const(-128, DType("i8"))
    assert value_of(Unary("neg", lowest)) == -128
    assert value_of(Unary("abs", lowest)) == -128
    assert value_of(Unary("not", Const(5, DType("u8")))) == 250
    assert value_of(Unary("not", Const(True, DType("bool")))) == np.False_
    assert value_of(Unary("neg", Const(1, DType("u32")))) == 2**32 - 1


def test_a_fault_in_an_inactive_lane_is_none():
    func = parse("""
def f(x: i64[4], y: Out[i64[4]]):
    for i in parallel(4):
        if x[i] != 0:
            y[i] = 12 // x[i]
        else:
            y[i] = 0
""")
    y = np.zeros(4, "i8")
    run(func, np.array([3, 0, -5, 0]), y)
    assert y.tolist() == [4, 0, -3, 0]


VECTORS = [
    ("ramp(3, 2, 4)", [3, 5, 7, 9]),
    ("splat(7, 4)", [7, 7, 7, 7]),
    ("shuffle((load(x[ramp(0, 1, 4)]), splat(9, 4)), (5, 3, 0, 0))", [9, 13, 10, 10]),
    ("insert(ramp(0, 1, 4), 2, x[1])", [0, 1, 11, 3]),
    ("load(x[ramp(0, 1, 4)], mask=ramp(0, 1, 4) < splat(2, 4))", [10, 11, 0, 0]),
    ("select(ramp(0, 1, 4) < splat(2, 4), splat(1, 4), splat(2, 4))", [1, 1, 2, 2]),
    ("select(x[0] < 3, splat(1, 4), ramp(0, 1, 4))", [0, 1, 2, 3]),
    ("load(x[ramp(3, -1, 4)]) * splat(2, 4)", [26, 24, 22, 20]),
]


@pytest.mark.parametrize(
    ("text", "expected"), VECTORS, ids=[v[0][:24] for v in VECTORS]
)
@pytest.mark.parametrize("kind", ["parallel", "range"])
def test_vector_expressions(text, expected, kind):
    func = parse(f"""
def f(x: i64[4], y: Out[i64[3, 4]]):
    for r in {kind}(3):
        store(y[r, ramp(0, 1, 4)], {text})
""")
    y = np.zeros((3, 4), "i8")
    run(func, np.arange(10, 14), y)
    assert y.tolist() == [expected] * 3


def test_extract_takes_one_lane():
    func = parse("""
def f(x: i64[4], y: Out[i64[1]]):
    y[0] = extract(load(x[ramp(0, 1, 4)]), 2)
""")
    y = np.zeros(1, "i8")
    run(func, np.arange(10, 14), y)
    assert y[0] == 12


@pytest.mark.parametrize("lanes", [2, 4, 5, 8])
def test_lane_reduce_folds_halves_first(lanes):
    values = np.array([1e8, 1, -1e8, 1, 3, 0.25, 7, 1e-3], "f4")[:lanes]
    func = parse(f"""
def f(x: f32[{lanes}], y: Out[f32[1]]):
    y[0] = lane_reduce("add", load(x[ramp(0, 1, {lanes})]))
""")
    y = np.zeros(1, "f4")
    run(func, values, y)
    rest = list(values)
    while len(rest) > 1:
        half = len(rest) // 2
        folded = [rest[i] + rest[i + half] for i in range(half)]
        rest = folded + rest[2 * half :]
    assert y[0] == rest[0]


def test_bitcast_reads_the_bits():
    func = parse("""
def f(x: f32[4], y: Out[u32[4]]):
    for i in vectorized(4):
        y[i] = bitcast(u32, x[i])
""")
    x, y = np.array([1, -0.0, np.inf, 3.5], "f4"), np.zeros(4, "u4")
    run(func, x, y)
    assert y.tolist() == [struct.unpack("<I", struct.pack("<f", v))[0] for v in x]


@pytest.mark.parametrize("name", ["exp", "tanh", "log", "erf", "sigmoid"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_mathematics_runs_through_its_expansion(name, dtype):
    from scipy import special

    exact = {"erf": special.erf, "sigmoid": special.expit}.get(name) or getattr(
        np, name
    )
    x = np.linspace(0.1, 4, 64).astype(as_dtype(dtype).numpy)
    func = parse(f"""
def f(x: {dtype}[64], y: Out[{dtype}[64]]):
    for i in range(64):
        y[i] = {name}(x[i])
""")
    y = np.zeros_like(x)
    run(func, x, y)
    expected = exact(x.astype("f8"))
    assert np.allclose(y.astype("f8"), expected, rtol=1e-6 if dtype == "f32" else 8e-3)


def test_a_prefetch_touches_no_memory():
    func = parse("""
def f(x: f32[4], y: Out[f32[1]]):
    evaluate(prefetch(x[1000]))
    y[0] = x[0]
""")
    y = np.zeros(1, "f4")
    run(func, np.ones(4, "f4"), y)
    assert y[0] == 1


def test_a_value_from_both_branches_of_a_select():
    x = Buffer("x", DType("f32"), (as_expr(1),))
    with pytest.raises(InterpreterError, match="out of bounds"):
        value_of_with(x, Select(as_expr(True), Load(x, (as_expr(0),)), x[5]))


def value_of_with(x, expr):
    y = Buffer("y", expr.dtype, (as_expr(1),))
    func = Function(
        "f", (Param(x, "in"), Param(y, "out")), (), Store(y, (as_expr(0),), expr)
    )
    out = np.zeros(1, expr.dtype.numpy)
    run(func, np.ones(1, "f4"), out)
    return out[0]


def test_an_unknown_intrinsic_is_an_error():
    with pytest.raises(InterpreterError, match="'frobnicate' is not an intrinsic"):
        value_of(Call("frobnicate", (), DType("f32")))
