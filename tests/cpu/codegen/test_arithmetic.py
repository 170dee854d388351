"""Every operation on every type, scalar and in lanes: the interpreter's bits."""

import numpy as np
import pytest

from tensorlang.ir.dtypes import as_dtype
from tensorlang.ir.interpreter import run

COUNT = 48
FLOATS = ("f16", "bf16", "f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
EXPRESSIONS = {
    "float": "a + b|a - b|a * b|a / b|min(a, b)|max(a, b)|-a|abs(a)|floor(a)|ceil(a)|"
    "round(a)|trunc(a)|sqrt(abs(a))|copysign(a, b)|fma(a, b, a)|"
    "select(a < b, a, b)|select(a >= b, a, b)|select(a != b, a, b)|"
    "select(isnan(a), b, a)",
    "int": "a + b|a - b|a * b|a // b|a % b|a // 8|a % 8|a // 7|a % 7|a // -3|a % -3|"
    "min(a, b)|max(a, b)|a & b|a | b|a ^ b|a << 3|a >> 2|-a|~a|abs(a)|popcount(a)|"
    "clz(a)|select(a < b, a, b)|select(a == b, a, b)|select(a >= b, a, b)",
    "uint": "a + b|a - b|a * b|a // b|a % b|a // 8|a % 8|a // 7|a % 7|min(a, b)|"
    "max(a, b)|a & b|a | b|a ^ b|a << 3|a >> 2|~a|popcount(a)|clz(a)|rotl(a, 5)|"
    "select(a < b, a, b)|select(a == b, a, b)|select(a >= b, a, b)",
}


def samples(name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    dtype = as_dtype(name)
    if dtype.is_float:
        a, b = rng.normal(size=(2, COUNT)) * 9
        a[:4] = [0.0, np.inf, -np.inf, np.nan]
        b[3:6] = [1.0, np.nan, 2.5]
        return a.astype(dtype.numpy), b.astype(dtype.numpy)
    low, high = dtype.limits
    a = rng.integers(low, high, COUNT, dtype=dtype.numpy, endpoint=True)
    b = rng.integers(low, high, COUNT, dtype=dtype.numpy, endpoint=True)
    b[b == 0] = 3
    a[:3], b[:3] = (low, low, high), (high, -1 if low else 1, 2)
    return a, b


def same(got: np.ndarray, want: np.ndarray, message: str) -> None:
    """Equal values; any NaN equals any other (NumPy cannot compare those of bf16)."""
    wide = np.float64 if got.dtype.kind in "fV" else got.dtype
    np.testing.assert_array_equal(got.astype(wide), want.astype(wide), err_msg=message)


def typed(expression: str, name: str) -> str:
    """Integer literals of the operands' type."""
    words = expression.replace("(", "( ").replace(")", " )").split()
    out = []
    for word in words:
        bare = word.rstrip(",")
        number = bare.lstrip("-").isdigit()
        out.append(f"{name}({bare})" + word[len(bare) :] if number else word)
    return " ".join(out).replace("( ", "(").replace(" )", ")")


def program(name: str, kind: str) -> str:
    expressions = EXPRESSIONS[as_dtype(name).kind].split("|")
    lines = [
        f"            z[{n}, i * 16 + v] = {typed(text, name)}"
        for n, text in enumerate(expressions)
    ]
    return f"""
def ops(x: {name}[48], y: {name}[48], z: Out[{name}[{len(lines)}, 48]]):
    for i in range(3):
        for v in {kind}(16):
            a: {name} = x[i * 16 + v]
            b: {name} = y[i * 16 + v]
""" + "\n".join(lines)


@pytest.mark.parametrize("kind", ["range", "vectorized"])
@pytest.mark.parametrize("name", FLOATS + SIGNED + UNSIGNED)
def test_operations(build, name, kind):
    kernel = build(program(name, kind))
    a, b = samples(name)
    count = len(EXPRESSIONS[as_dtype(name).kind].split("|"))
    got = np.zeros((count, COUNT), a.dtype)
    want = np.zeros_like(got)
    kernel(a, b, got)
    run(kernel.function, a, b, want)
    for n, text in enumerate(EXPRESSIONS[as_dtype(name).kind].split("|")):
        same(got[n], want[n], text)


# the numbers that are divided, and the type of the instruction in lanes
DIVIDENDS = {
    "i * 16 + v": "urem <16 x i32>",
    f"i * 16 + v + {2**32 - 48}": "urem <16 x i32>",  # to 2^32 - 1
    f"i * 16 + v + {2**32 - 47}": "urem <16 x i64>",
    f"i * 16 + v + {2**63 - 48}": "urem <16 x i64>",  # to 2^63 - 1
    f"i * 16 + v + {2**63 - 47}": "srem <16 x i64>",  # the last wraps
    "i * 16 + v - 1": "srem <16 x i64>",
    "x[i] % 40 * 16 + v": "urem <16 x i32>",
}


@pytest.mark.parametrize("kind", ["range", "vectorized"])
@pytest.mark.parametrize("text", DIVIDENDS)
def test_divisions_of_what_is_known_to_be_natural(build, text, kind):
    kernel = build(f"""
def divisions(x: i64[3], z: Out[i64[4, 48]], *, n: i64):
    for i in range(3):
        for v in {kind}(16):
            z[0, i * 16 + v] = ({text}) // 7
            z[1, i * 16 + v] = ({text}) % 7
            z[2, i * 16 + v] = ({text}) // (x[i] % 3)
            z[3, i * 16 + v] = ({text}) % max(n, 1)
""")
    x = np.array([-5, 2**62 + 1, 7], np.int64)
    got, want = np.zeros((2, 4, COUNT), np.int64)
    kernel(x, got, n=5)
    run(kernel.function, x, want, n=5)
    np.testing.assert_array_equal(got, want)
    if kind == "vectorized":
        assert DIVIDENDS[text] in kernel.source


@pytest.mark.parametrize("kind", ["range", "vectorized"])
@pytest.mark.parametrize("source", FLOATS + SIGNED + UNSIGNED + ("bool",))
def test_casts(build, source, kind):
    targets = [*FLOATS, *SIGNED, *UNSIGNED, "bool"]
    outs = ", ".join(f"z_{name}: Out[{name}[48]]" for name in targets)
    lines = [
        f"            z_{name}[i * 16 + v] = cast({name}, x[i * 16 + v])"
        for name in targets
        if name != source
    ] + [f"            z_{source}[i * 16 + v] = x[i * 16 + v]"]
    kernel = build(
        f"def casts(x: {source}[48], {outs}):\n    for i in range(3):\n"
        f"        for v in {kind}(16):\n" + "\n".join(lines)
    )
    if source == "bool":
        a = np.arange(COUNT) % 3 == 0
    else:
        a = samples(source)[0]
        if as_dtype(source).is_float:
            a[5:9] = np.array([1e4, -1e4, 3e4, 255.5]).astype(a.dtype)
    got = [np.zeros(COUNT, as_dtype(name).numpy) for name in targets]
    want = [np.zeros_like(array) for array in got]
    kernel(a, *got)
    run(kernel.function, a, *want)
    for name, mine, meant in zip(targets, got, want, strict=True):
        same(mine, meant, f"{source} to {name}")


@pytest.mark.parametrize("name", ["u32", "u64"])
def test_upper_half_of_a_product(build, name):
    kernel = build(f"""
def high(x: {name}[48], y: {name}[48], z: Out[{name}[48]]):
    for i in range(3):
        for v in vectorized(16):
            z[i * 16 + v] = mulhi(x[i * 16 + v], y[i * 16 + v])
""")
    a, b = samples(name)
    z = np.zeros_like(a)
    kernel(a, b, z)
    bits = as_dtype(name).bits
    want = [int(p) * int(q) >> bits for p, q in zip(a, b, strict=True)]
    assert [int(value) for value in z] == want


def test_mathematics_has_the_interpreters_bits(build):
    kernel = build("""
def maths(x: f32[48], z: Out[f32[4, 48]]):
    for i in range(3):
        for v in vectorized(16):
            z[0, i * 16 + v] = exp(x[i * 16 + v])
            z[1, i * 16 + v] = tanh(x[i * 16 + v])
            z[2, i * 16 + v] = log1p(abs(x[i * 16 + v]))
            z[3, i * 16 + v] = erf(x[i * 16 + v])
""")
    a, _ = samples("f32")
    got, want = np.zeros((4, COUNT), np.float32), np.zeros((4, COUNT), np.float32)
    kernel(a, got)
    run(kernel.lowered, a, want.reshape(-1), tid=0, team=1)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(got[0], np.exp(a), rtol=1e-6)


def test_additions_round_twice_unless_they_say_contract(build):
    kernel = build("""
def twice(x: f32[16], z: Out[f32[2, 16]]):
    for v in vectorized(16):
        z[0, v] = x[v] * x[v] - 1.0
        z[1, v] = contract(x[v] * x[v] - 1.0)
""")
    x = (1 + np.arange(16) * 2.0**-12 + 2.0**-23).astype(np.float32)
    z = np.zeros((2, 16), np.float32)
    kernel(x, z)
    np.testing.assert_array_equal(z[0], x * x - np.float32(1))
    exact = x.astype(np.float64) * x.astype(np.float64) - 1
    np.testing.assert_array_equal(z[1], exact.astype(np.float32))


@pytest.mark.parametrize("lanes", [2, 3, 5, 6, 7, 11, 16])
@pytest.mark.parametrize("op", ["add", "min"])
@pytest.mark.parametrize("kind", ["f32", "bf16", "i32"])
def test_lanes_fold_in_the_interpreters_order(build, lanes, op, kind):
    kernel = build(f"""
def f(x: {kind}[{lanes}], y: Out[{kind}[1]]):
    y[0] = lane_reduce("{op}", x[ramp(0, 1, {lanes})])
""")
    x = (np.random.default_rng(lanes).normal(size=lanes) * 1e4).astype(
        as_dtype(kind).numpy
    )
    got, want = (np.zeros(1, x.dtype) for _ in range(2))
    kernel(x, got)
    run(kernel.function, x, want)
    assert got.tobytes() == want.tobytes()


def test_a_name_of_a_negative_number_and_of_a_loop_is_bounded_by_neither(build):
    kernel = build("""
def shared(p: i64[4], z: Out[i64[8]]):
    for i in range(2):
        x: i64 = p[i] - 9
        z[i] = x // 7
    for x in range(2):
        z[x + 4] = x // 7
""")
    p = np.array([1, 2, 3, 4], np.int64)
    got, want = np.zeros((2, 8), np.int64)
    kernel(p, got)
    run(kernel.function, p, want)
    np.testing.assert_array_equal(got, want)
    assert list(got[:2]) == [-2, -1]
