"""What the templates write for nodes of the IR, run as PTX: against the interpreter."""

import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir import run
from tensorlang.ir.dtypes import DType
from tensorlang.ir.text.parser import parse

pytestmark = pytest.mark.usefixtures("ptx_driver")
RNG = np.random.default_rng(21)
INTEGERS = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
EVERY = np.arange(1 << 16, dtype=np.uint16)
ENDS = [0.0, -0.0, 0.5, 1.5, -2.5, 127.5, 128, -129, 255.5, 32767.5, 65504, 65520, 1e9]
ENDS += [2.0**31, -(2.0**31) - 1, 2.0**32, 2.0**63, -(2.0**63), 2.0**64, 3e38, np.inf]
ENDS += [-np.inf, np.nan, 1e-45, 2.0**-25, 2.0**-24 * 1.5, 6e-8, 1e-40, 1 + 2.0**-11]


def both(text, *arrays):
    """The results on the GPU, and those of the interpreter."""
    func = parse(text)
    here, there = ([a.copy() for a in arrays] for _ in range(2))
    with np.errstate(all="ignore"):
        run(func, *here)
    build(func, "cuda").launch(*there)
    return here, there


def assert_same(here, there):
    for a, b in zip(here, there, strict=True):
        same = a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")
        if a.dtype.kind not in "iub":
            same |= np.isnan(a) & np.isnan(b)
        assert same.all(), (a[~same][:5], b[~same][:5])


def numpy_of(kind):
    return DType(kind).numpy.type


def values_of(kind, count):
    """Random bits, with the ends of ranges among them."""
    dtype = np.dtype(numpy_of(kind))
    made = RNG.integers(0, 256, (count, dtype.itemsize), np.uint8).view(dtype)[:, 0]
    with np.errstate(all="ignore"):
        ends = np.array(ENDS).astype(dtype)
    made[: len(ends)] = ends
    return made


def loop(body, count, threads=256):
    return f"""
    for b in bound({count // threads}, "block.x"):
        for t in bound({threads}, "thread.x"):
            i: i64 = b * {threads} + t
            {body}
"""


def mapped(body, kind, kinds, count):
    """`y_u8[i] = body` for outputs of some types, from x: {to} is each in turn."""
    outs = ", ".join(f"y_{to}: Out[{to}[{count}]]" for to in kinds)
    lines = [f"y_{to}[i] = {body.replace('{to}', to)}" for to in kinds]
    head = f"def f(x: {kind}[{count}], {outs}):"
    return head + loop("\n            ".join(lines), count)


def compared(body, kind, kinds, x):
    """Assert that the GPU and the interpreter agree."""
    made = [np.zeros(len(x), numpy_of(to)) for to in kinds]
    assert_same(*both(mapped(body, kind, kinds, len(x)), x, *made))


CAST = "cast({to}, x[i])"


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_every_number_of_16_bits_is_converted(kind):
    kinds = [to for to in (*FLOATS, *INTEGERS) if to != kind]
    compared(CAST, kind, kinds, EVERY.view(numpy_of(kind)))


@pytest.mark.parametrize("kind", ["f32", "f64", *INTEGERS])
def test_numbers_are_converted(kind):
    x = values_of(kind, 4096)
    if kind == "f32":  # ties between numbers of 16 bits, for either type
        near = EVERY[:2048].astype(np.uint32)
        x[1024:3072] = (near << 16 | 0x8000 | near << 13).view(np.float32)
    compared(CAST, kind, [to for to in (*FLOATS, *INTEGERS) if to != kind], x)


BY_WIDTH = [("i8", "u8"), ("f16", "i16", "u16", "bf16"), ("f32", "i32", "u32")]
BY_WIDTH += [("f64", "i64", "u64")]


@pytest.mark.parametrize("kinds", BY_WIDTH, ids=lambda kinds: kinds[-1])
def test_bits_are_kept(kinds):
    for kind in kinds:
        x = values_of(kind, 512)
        made = [np.zeros(512, numpy_of(to)) for to in kinds]
        text = mapped("bitcast({to}, x[i])", kind, kinds, 512)
        some = slice(None) if kind[0] in "iu" else ~np.isnan(x)
        for y in both(text, x, *made)[1][1:]:
            assert y[some].tobytes() == x[some].tobytes(), (kind, y.dtype)


FOLD = """
def fold(x: {T}[96], y: InOut[{T}[8]]):
    for b in bound(2, "block.x"):
        for j in bound(48, "thread.x"):
            atomic("{OP}", y[j % 8], x[b * 48 + j])
"""
BITWISE = ("and", "or", "xor")


@pytest.mark.parametrize("op", ["add", "mul", "min", "max", *BITWISE])
def test_atomic_updates(op):
    for kind in INTEGERS + ([] if op in BITWISE else FLOATS):
        dtype = numpy_of(kind)
        if op == "mul":  # twelve numbers meet: their product is exact
            x = RNG.choice([1, 2], 96).astype(dtype)
        else:
            x = RNG.integers(0, 20, 96).astype(dtype)
        text = FOLD.replace("{T}", kind).replace("{OP}", op)
        assert_same(*both(text, x, np.arange(1, 9).astype(dtype)))


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS])
def test_shuffles(kind):
    text = f"""
def f(x: {kind}[64], y: Out[{kind}[64]]):
    for t in bound(64, "thread.x"):
        a: {kind} = shuffle_xor(x[t], 16)
        b: {kind} = shuffle_down(a, 1)
        y[t] = shuffle_index(b, t // 2)
"""
    x = values_of(kind, 64)
    x[np.isnan(x.astype(np.float64))] = 1
    assert_same(*both(text, x, np.zeros(64, numpy_of(kind))))


BODIES = [
    "x[i] // {t}(7)",
    "x[i] % {t}(7)",
    "min(x[i], x[255 - i]) * x[i] - max(x[i], x[255 - i])",
    "(x[i] & x[255 - i]) ^ (x[i] >> {t}(3) | ~x[i] << {t}(2))",
]


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(kind):
    x = values_of(kind, 256)
    for body in BODIES:
        compared(body.replace("{t}", kind), kind, [kind], x)


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_are_strict(kind):
    body = "fma(x[i], x[255 - i], x[i] * x[i] - x[255 - i]) / x[17]"
    compared(body, kind, [kind], values_of(kind, 256))
