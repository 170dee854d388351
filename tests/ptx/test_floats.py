"""Instructions on floats by hand-written PTX: rounded once, to the nearest even."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

RNG = np.random.default_rng(12)
BITS = RNG.integers(0, 1 << 32, 500, np.uint32)
SPECIAL = np.array(
    [
        0,
        -0.0,
        1,
        -1,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-40,
        3.4e38,
        2**-126,
        1 + 2**-23,
    ],
    np.float32,
)
A = np.concatenate([BITS.view(np.float32), SPECIAL])
B = np.concatenate([np.roll(A, 31)[:256], np.full(256, 1.5, np.float32)])


def same(made, wanted):
    wide = f"u{made.itemsize}"
    nan = np.isnan(made.astype(np.float64)) & np.isnan(wanted.astype(np.float64))
    return bool(((made.view(wide) == wanted.view(wide)) | nan).all())


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("add.rn.f32", np.add),
        ("sub.f32", np.subtract),
        ("mul.rn.f32", np.multiply),
        ("div.rn.f32", np.divide),
        ("copysign.f32", lambda a, b: np.copysign(b, a)),
        ("max.f32", np.fmax),
        ("min.f32", np.fmin),
        ("max.NaN.f32", np.maximum),
    ],
)
def test_two_floats(applied, name, wanted):
    some = ~((A == 0) & (B == 0))  # of zeros with two signs, a test of its own
    assert same(applied(name, "f4", A, B)[some], wanted(A, B)[some])


def test_zeros_have_an_order(applied):
    a, b = np.array([0.0, -0.0], "f4"), np.array([-0.0, 0.0], "f4")
    assert not np.signbit(applied("max.f32", "f4", a, b)).any()
    assert np.signbit(applied("min.f32", "f4", a, b)).all()


def test_a_made_nan_is_the_one_of_the_isa(applied):
    a = np.array([0x7FC12345, 0xFF800000], np.uint32).view(np.float32)
    made = applied("add.rn.f32", "f4", a, np.array([1, np.inf], "f4"))
    assert made.view(np.uint32).tolist() == [0x7FFFFFFF, 0x7FFFFFFF]


def nearest(exact, kind):
    """The float of a type that is nearest to a fraction: integers decide ties."""
    digits, least = {"f4": (24, -149), "f8": (53, -1074)}[kind]
    if exact == 0:
        return 0.0
    size = abs(exact)
    exponent = max(
        size.numerator.bit_length() - size.denominator.bit_length() - digits - 1, least
    )
    while size / Fraction(2) ** exponent >= 2**digits:
        exponent += 1
    scaled = size / Fraction(2) ** exponent
    made = float(round(scaled)) * 2.0**exponent if exponent < 900 else np.inf
    return -made if exact < 0 else made


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_an_fma_rounds_once(applied, kind):
    count = 700
    a, b = (RNG.normal(size=count).astype(kind) for _ in range(2))
    c = RNG.normal(size=count).astype(kind)
    c[:200] = -(a[:200] * b[:200])  # nothing but the product's error is left
    tiny = np.array(2.0 ** (-60 if kind == "f4" else -530), kind)
    c[200:300] = (a[200:300] * b[200:300]) * np.array(2.0**-24, kind)
    a[300:400], c[300:400] = a[300:400] * tiny, c[300:400] * tiny * tiny
    b[300:400] *= tiny
    made = applied(f"fma.rn.{'f32' if kind == 'f4' else 'f64'}", kind, a, b, c)
    for x, y, z, got in zip(a, b, c, made, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert float(got) == nearest(exact, kind), (x, y, z)


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_an_fma_keeps_the_sign_of_zero(applied, kind):
    a, c = np.array([[0.0, -0.0, 0.0, -0.0, 3.0], [0.0, -0.0, -0.0, 0.0, -6.0]], kind)
    name = f"fma.rn.f{8 * a.itemsize}"
    made = applied(name, kind, a, np.full(5, 2, kind), c)
    assert not made.any()
    assert np.signbit(made).tolist() == [False, True, False, False, False]


def test_roots_and_reciprocals(applied):
    positive = np.abs(A)
    assert same(applied("sqrt.rn.f32", "f4", positive), np.sqrt(positive))
    assert same(applied("rcp.rn.f32", "f4", A), np.float32(1) / A)
    assert same(applied("neg.f32", "f4", A), -A)
    assert same(applied("abs.f32", "f4", A), np.abs(A))
    np.testing.assert_allclose(
        applied("ex2.approx.f32", "f4", SPECIAL[:4]), [1, 1, 2, 0.5], rtol=1e-6
    )


EVERY = np.arange(1 << 16, dtype=np.uint16)


def test_every_f16_is_an_f32_and_back(applied):
    made = applied("cvt.f32.f16", "f4", EVERY)
    assert same(made, EVERY.view(np.float16).astype(np.float32))
    back = applied("cvt.rn.f16.f32", "u2", made)
    nan = np.isnan(made)
    np.testing.assert_array_equal(back[~nan], EVERY[~nan])
    assert (back[nan] == 0x7FFF).all()


@pytest.mark.parametrize(
    ("name", "kind"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]
)
def test_f32_is_rounded_to_16_bits(applied, name, kind):
    middles = EVERY.astype(np.uint32) << 16 | 0x8000
    ties = np.concatenate([middles[:-1], A.view(np.uint32), middles + 1, middles - 1])
    x = np.concatenate(
        [ties.view(np.float32), np.linspace(-70000, 70000, 700, dtype="f4")]
    )
    made = applied(f"cvt.rn.{name}.f32", "u2", x[: len(x) // 64 * 64])
    assert same(made.view(kind), x[: len(made)].astype(kind))


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "fma"])
def test_sixteen_bits(applied, name, op):
    kind = np.dtype(np.float16 if name == "f16" else ml_dtypes.bfloat16)
    x = [RNG.normal(size=512).astype(kind) for _ in range(3)]
    x[2][:256] = (-(x[0].astype("f8") * x[1].astype("f8"))[:256]).astype(kind)
    given = [a.view(np.uint16) for a in (x if op == "fma" else x[:2])]
    made = applied(f"{op}.rn.{name}", "u2", *given).view(kind)
    a, b, c = (v.astype(np.float64) for v in x)
    exact = {"add": a + b, "sub": a - b, "mul": a * b, "fma": a * b + c}[op]
    wanted = (
        exact.astype(np.float16) if name == "f16" else exact.astype("f4").astype(kind)
    )
    assert same(made, wanted)
    pairs = [np.stack([g, g[::-1]], 1).copy().view(np.uint32)[:, 0] for g in given]
    packed = applied(f"{op}.rn.{name}x2", "u4", *pairs).view(np.uint16).reshape(-1, 2)
    assert same(packed[:, 0].copy().view(kind), wanted)
    assert same(packed[:, 1].copy().view(kind), wanted[::-1].copy())


def test_floats_become_integers_of_their_range(applied):
    x = np.array([1.5, -1.5, 2.5, 3e9, -3e9, np.inf, -np.inf, np.nan], np.float32)
    made = applied("cvt.rzi.s32.f32", "i4", x)
    assert made.tolist() == [1, -1, 2, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0]
    assert applied("cvt.rni.s32.f32", "i4", x)[:3].tolist() == [2, -2, 2]
    made = applied("cvt.rzi.u32.f32", "u4", x)
    assert made.tolist() == [1, 0, 2, 3 * 10**9, 0, 2**32 - 1, 0, 0]
    made = applied("cvt.rzi.s64.f64", "i8", x.astype("f8"))
    assert made.tolist()[-2:] == [-(2**63), -(2**63)]


def test_rounding_to_whole_numbers_and_tf32(applied):
    x = np.array([0.5, 1.5, -0.5, -2.5, 1e20, np.nan], np.float32)
    for name, wanted in {
        "rni": np.rint,
        "rzi": np.trunc,
        "rmi": np.floor,
        "rpi": np.ceil,
    }.items():
        assert same(applied(f"cvt.{name}.f32.f32", "f4", x), wanted(x))
    bits = np.array([0x3F800FFF, 0x3F801000, 0xBF801000, 0x3F802FFF], np.uint32)
    made = applied("cvt.rna.tf32.f32", "u4", bits.view(np.float32))
    assert made.tolist() == [0x3F800000, 0x3F802000, 0xBF802000, 0x3F802000]


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_integers_become_floats(applied, kind):
    bytes_ = int(kind[1:]) // 8
    number = f"{'i' if kind[0] == 's' else 'u'}{bytes_}"
    x = RNG.integers(0, 256, (64, bytes_), np.uint8).view(number)[:, 0]
    for to in ("f32", "f64"):
        made = applied(f"cvt.rn.{to}.{kind}", f"f{int(to[1:]) // 8}", x)
        wanted = [nearest(Fraction(int(v)), "f4" if to == "f32" else "f8") for v in x]
        assert made.tolist() == wanted


TESTS = {
    "eq": (False, True, False),
    "ne": (True, False, False),
    "lt": (True, False, False),
    "ge": (False, True, False),
    "neu": (True, False, True),
    "geu": (False, True, True),
    "equ": (False, True, True),
    "num": (True, True, False),
    "nan": (False, False, True),
}


@pytest.mark.parametrize("name", TESTS)
def test_comparisons_know_nan(run, name):
    a, made = np.array([1, 2, np.nan], "f4"), np.zeros((2, 3), "u4")
    body = f"""
        mul.wide.u32 %b1, %t, 4;
        add.u64 %b2, %a0, %b1; add.u64 %b3, %a1, %b1;
        ld.global.f32 %f1, [%b2];
        setp.{name}.f32 %p1|%p2, %f1, 0f40000000;
        selp.u32 %w1, 1, 0, %p1; selp.u32 %w2, 1, 0, %p2;
        st.global.u32 [%b3], %w1; st.global.u32 [%b3+12], %w2;"""
    run(body, a, made, threads=3)
    assert made.astype(bool).tolist() == [
        list(TESTS[name]),
        [not t for t in TESTS[name]],
    ]
