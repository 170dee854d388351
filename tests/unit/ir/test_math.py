"""The mathematical functions: error bounds against better arithmetic, and edges."""

from __future__ import annotations

import math
from itertools import count

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import IRError
from tensorlang.ir import intrinsics as fn
from tensorlang.ir import natives
from tensorlang.ir.dtypes import DType, f32, f64
from tensorlang.ir.math import EXPANSIONS, expand
from tensorlang.ir.nodes import Call, Let, Select, Var
from tensorlang.ir.semantics import call, evaluate_lets
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import walk

LONG = np.longdouble
TYPES = {"f32": np.float32, "f64": np.float64}
COUNT = 20_000
INF, NAN = math.inf, math.nan


def erf_series(x):
    """erf in long double: `2/sqrt(pi) exp(-x^2) sum 2^n x^(2n+1) / (2n+1)!!`."""
    term, total = x.copy(), x.copy()
    for n in range(1, 250):
        term = term * (2 * x * x / (2 * n + 1))
        total = total + term
    return (
        2
        / np.sqrt(LONG(np.pi) + LONG(1.2246467991473532e-16))
        * (np.exp(-x * x) * total)
    )


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, LONG(1)) / (1 + e)


REFERENCE = {
    "cos": np.cos,
    "erf": erf_series,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "far_cos": np.cos,
    "far_sin": np.sin,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "sigmoid": sigmoid,
    "sin": np.sin,
    "tanh": np.tanh,
}
# the domain of each function: below 0 it is mirrored, inf is the largest float
REACH = {
    "cos": (1000, 1000),
    "erf": (4.5, 6.5),
    "exp": (104, 746),
    "exp2": (151, 1076),
    "expm1": (89, 710),
    "far_cos": (1000, 1000),
    "far_sin": (1000, 1000),
    "log": (INF, INF),
    "log1p": (INF, INF),
    "log2": (INF, INF),
    "sigmoid": (104, 746),
    "sin": (1000, 1000),
    "tanh": (12, 22),
}


def samples(name, dtype):
    """Uniform over the domain, over [-2, 2], over exponents, and subnormals."""
    rng = np.random.default_rng(11)
    info = np.finfo(dtype)
    reach = min(REACH[name][dtype is np.float64], float(info.max))
    sizes = np.exp(rng.uniform(np.log(info.tiny), np.log(reach), COUNT))
    x = np.concatenate(
        [
            rng.uniform(-1, 1, COUNT) * reach,
            rng.uniform(-2, 2, COUNT),
            sizes * rng.choice([-1, 1], COUNT),
            rng.uniform(-1, 1, 100) * float(info.tiny),
            1 + rng.uniform(-1e-3, 1e-3, COUNT),
        ]
    ).astype(dtype)
    if name in ("log", "log2"):
        return np.abs(x[x != 0])
    return x[x > -1] if name == "log1p" else x


def error_in_ulp(got, exact, dtype):
    """The distance from the exact value in units of its last place."""
    info = np.finfo(dtype)
    size = np.maximum(np.abs(exact), LONG(info.tiny))
    unit = np.ldexp(LONG(1), np.floor(np.log2(size)).astype(int) - info.nmant)
    limit = np.abs(exact) > LONG(info.max)
    assert np.isinf(got[limit & (np.abs(exact) > LONG(info.max) * (1 + 1e-7))]).all()
    return np.abs(got.astype(LONG) - exact)[~limit] / unit[~limit]


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_error_bound(name, kind):
    dtype = TYPES[kind]
    x = samples(name, dtype)
    got = call(name, x)
    assert got.dtype == dtype
    with np.errstate(all="ignore"):
        exact = REFERENCE[name](x.astype(LONG))
    assert error_in_ulp(got, exact, dtype).max() <= fn.INTRINSICS[name].ulp[kind]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_pow_error_bound(kind):
    dtype, rng = TYPES[kind], np.random.default_rng(5)
    log_max = 88 if kind == "f32" else 709
    near = rng.uniform(0.5, 2, COUNT).astype(dtype)
    wide = np.exp(rng.uniform(-80, 80, COUNT)).astype(dtype)
    base = np.concatenate([near, wide])
    power = rng.uniform(-1, 1, 2 * COUNT) * log_max / np.abs(np.log(base.astype(float)))
    power = power.astype(dtype)
    got = call("pow", base, power)
    with np.errstate(all="ignore"):
        exact = np.power(base.astype(LONG), power.astype(LONG))
    # x87's pow keeps some 64 bits of a logarithm of size 2^10: allow for its error
    slack = 0.0 if kind == "f32" else 0.5
    worst = error_in_ulp(got, exact, dtype).max()
    assert worst <= fn.INTRINSICS["pow"].ulp[kind] + slack


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_erfinv_error_bound(kind):
    """Within the bound of erfinv at an argument moved by half an ulp."""
    from scipy.special import erfinv

    dtype, rng = TYPES[kind], np.random.default_rng(6)
    x = np.concatenate(
        [
            rng.uniform(-1, 1, COUNT),
            np.exp(rng.uniform(-60, 0, COUNT)),
            1 - 2.0 ** -rng.uniform(1, 20, COUNT),
        ]
    ).astype(dtype)
    exact = erfinv(x.astype(float)).astype(LONG)
    slope = np.sqrt(LONG(np.pi)) / 2 * np.exp(exact * exact)
    exact = exact - (erf_series(exact) - x.astype(LONG)) * slope  # Newton
    got = call("erfinv", x).astype(LONG)
    unit = np.spacing(np.abs(exact).astype(dtype)).astype(LONG)
    moved = slope * np.spacing(np.abs(x)).astype(LONG) / 2
    worst = ((np.abs(got - exact) - moved) / unit).max()
    assert worst <= fn.INTRINSICS["erfinv"].ulp[kind]


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_huge_arguments_are_reduced_exactly(name):
    # from the literature: the hardest cases of range reduction, and the largest floats
    wants = {
        6381956970095103.0 * 2.0**797: (1.0, -4.687165924254628e-19),
        1e22: (-0.8522008497671888, 0.523214785395139),
        2.0**120: (0.377820109360752, -0.9258790228548379),
    }
    for x, pair in wants.items():
        want = pair[name == "cos"]
        got = call(name, np.array([x]))[0]
        assert abs(got - want) <= np.spacing(abs(want))
    x = np.array([2.0**120], np.float32)
    want = np.float32(wants[2.0**120][name == "cos"])
    assert abs(call(name, x)[0] - want) <= np.spacing(abs(want))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_arguments_near_multiples_of_half_pi(name, kind):
    dtype = TYPES[kind]
    half = LONG(math.pi / 2) + LONG(6.123233995736766e-17)
    x = (np.arange(1, COUNT) * half).astype(dtype)
    x = np.concatenate([np.nextafter(x, dtype(0)), x, np.nextafter(x, dtype(INF))])
    # with pi in 64 bits, the reference is only good for the error in all of f32
    exact = REFERENCE[name](x.astype(LONG))
    far = call(f"far_{name}", x)
    assert np.abs(call(name, x) - far).max() <= np.spacing(np.abs(far).max())
    small = np.abs(far) < 1e-3
    np.testing.assert_array_max_ulp(call(name, x)[small], far[small], 1)
    if kind == "f32":
        worst = error_in_ulp(call(name, x), exact, dtype).max()
        assert worst <= fn.INTRINSICS[name].ulp[kind]


def numbered():
    """Variables of the names and types asked for, with a number each."""
    numbers = count()
    return lambda name, kind: Var(f"{name}{next(numbers)}", kind)


EDGES = {
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0)],
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN)],
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1e4, INF), (-1e4, 0.0)],
    "exp2": [(3.0, 8.0), (INF, INF), (-INF, 0.0), (-1e4, 0.0), (1e4, INF)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (-1e4, -1.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-2.0, NAN)],
    "log2": [(0.0, -INF), (1.0, 0.0), (8.0, 3.0), (INF, INF), (-INF, NAN)],
    "sigmoid": [(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (1e4, 1.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (1e4, 1.0)],
}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, "f4", "f8"])
@pytest.mark.parametrize("name", sorted(EDGES))
def test_edges(name, dtype):
    x, want = (np.array(c).astype(dtype) for c in zip(*EDGES[name], strict=True))
    got = call(name, x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got.astype(float), want.astype(float))
    np.testing.assert_array_equal(
        np.signbit(got)[want == 0], np.signbit(want)[want == 0]
    )
    nan = np.array([NAN]).astype(dtype)
    assert np.isnan(call(name, nan).astype(float)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_edges_are_those_of_c(dtype):
    values = [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e30, -1e30, INF, -INF, NAN]
    base, power = (v.ravel() for v in np.meshgrid(*[np.array(values, dtype)] * 2))
    with np.errstate(all="ignore"):
        want = np.power(base, power)
    got = call("pow", base, power)
    np.testing.assert_allclose(got, want, rtol=2 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(
        np.signbit(got)[want == 0], np.signbit(want)[want == 0]
    )


def test_powers_and_logarithms_of_two_are_exact():
    for dtype, low, high in ((np.float32, -149, 128), (np.float64, -1074, 1024)):
        k = np.arange(low, high).astype(dtype)
        x = np.ldexp(dtype(1), k.astype(int))
        np.testing.assert_array_equal(call("exp2", k), x)
        np.testing.assert_array_equal(call("log2", x), k)


@pytest.mark.parametrize("name", sorted(set(REFERENCE) - {"erf"}))
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_types_are_within_their_bound_everywhere(name, dtype):
    x = np.arange(2**16, dtype=np.uint16).view(dtype)
    with np.errstate(invalid="ignore"):
        x = x[np.isfinite(x.astype(float))]
    got = call(name, x).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = REFERENCE[name](x.astype(LONG)).astype(np.float64)
    info = ml_dtypes.finfo(dtype)
    size = np.maximum(np.abs(exact), float(info.smallest_normal))
    unit = np.exp2(np.floor(np.log2(size)) - info.nmant)
    inside = np.abs(exact) < float(info.max)
    worst = (np.abs(got[inside] - exact[inside]) / unit[inside]).max()
    assert worst <= fn.INTRINSICS[name].ulp["f16"]


@pytest.mark.parametrize("name", sorted(EXPANSIONS))
def test_an_expansion_is_straight_vector_code(name):
    for dtype in (f32.vector(16), f64.vector(8), f32):
        args = tuple(Var(f"x{n}", dtype) for n in range(fn.INTRINSICS[name].arity))
        lets, result = expand(fn.intrinsic(name, *args), numbered())
        assert result.dtype == dtype
        defined = set(args)
        for let in lets:
            used = [part for part in walk(let.value) if isinstance(part, Var)]
            assert set(used) <= defined, "a let before its use"
            assert sum(1 for _ in walk(let.value)) < 24, "a let is a small step"
            defined.add(let.var)
            assert let.var.dtype.lanes == dtype.lanes
        parts = [part for let in lets for part in walk(let.value)]
        rare = [p.a for p in parts if isinstance(p, Select) and isinstance(p.a, Call)]
        calls = [part for part in parts if isinstance(part, Call) and part not in rare]
        assert not any(fn.INTRINSICS[call.name].expands for call in calls)
        assert any(isinstance(part, Select) for part in parts)


def test_normal_stays_by_giles_polynomials():
    """Known answers of sqrt(2) * erfinv(u) from JAX's normal, key 0 and 42."""
    bits = np.array([0x3F729A4E, 0x3F7A8436, 0x3EAA221C, 0x3EEFF550], np.uint32)
    f = bits.view(np.float32)
    low = np.nextafter(np.float32(-1), np.float32(0))
    u = np.maximum(low, f * (np.float32(1) - low) + low)
    want = np.array([1.6226422, 2.0252647, -0.43359444, -0.07861735], np.float32)
    got = np.float32(np.sqrt(2)) * call("erfinv", u)
    steps = np.abs(got.view(np.int32).astype(int) - want.view(np.int32))
    assert steps.max() <= 3


def test_what_has_no_expansion_is_refused():
    with pytest.raises(IRError, match="fma has no expansion"):
        expand(natives.fma(Var("x", f32), 1.0, 2.0), lambda kind: Var("t", kind))


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(EXPANSIONS))
def test_simplifying_an_expansion_keeps_every_bit(name, kind):
    dtype, rng = DType(kind), np.random.default_rng(2)
    args = [Var(f"x{n}", dtype) for n in range(fn.INTRINSICS[name].arity)]
    lets, result = expand(fn.intrinsic(name, *args), numbered())
    simple = [Let(let.var, simplify(let.value)) for let in lets]
    raw = rng.integers(0, 256, (len(args), 4000 * dtype.bytes), dtype=np.uint8)
    values = dict(zip(args, raw.view(dtype.numpy), strict=True))
    before = evaluate_lets(lets, result, values)
    after = evaluate_lets(simple, simplify(result), values)
    bits = f"u{dtype.bytes}"
    np.testing.assert_array_equal(before.view(bits), after.view(bits))
