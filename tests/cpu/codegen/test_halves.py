"""f16 and bf16: every value through every operation, with and without instructions.

What a processor lacks is left out of the target here: the text is then for less than
this machine, which runs it all the same.
"""

import numpy as np
import pytest

from tensorlang.ir.dtypes import as_dtype, bf16
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Const

EVERY = np.arange(1 << 16, dtype=np.uint16)
SPECIAL = [0, 1, 2, 0x7F, 0x80, 0x3FF, 0x400, 0x401, 0x7BFF, 0x7C00, 0x7F7F, 0x7F80]
TIES = (EVERY.astype(np.uint32)[:, None] << 16) | np.array(
    [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32
)
LACKING = {"as it is": (), "bare": ("f16c", "fma", "avx512_bf16", "avx512_fp16")}
FLOATS = ("f16", "bf16")
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
MOVED = ("-A", "abs(A)", "select(A < B, A, B)")  # which keep the bits of NaN
UNARY = "floor(A)|ceil(A)|round(A)|trunc(A)|sqrt(A)|sqrt(abs(A))|exp(A)|tanh(A)"
BINARY = "A + B|A - B|A * B|A / B|min(A, B)|max(A, B)|copysign(A, B)|fma(A, B, A)"

lacking = pytest.mark.parametrize("without", LACKING.values(), ids=LACKING)
vectors = pytest.mark.parametrize("loop", ["range", "vectorized"])


def program(source: str, results: dict[str, str], loop: str) -> str:
    """`results` of every element, by the expression: its type."""
    outs = [f"y{n}: Out[{kind}[n]]" for n, kind in enumerate(results.values())]
    lines = [f"                y{n}[p] = {text}" for n, text in enumerate(results)]
    return f"""
def f(x: {source}[n], z: {source}[n], {", ".join(outs)}, *, n: i64):
    for i in range((n + 15) // 16):
        for j in {loop}(16):
            p: i64 = i * 16 + j
            if p < n:
                A: {source} = x[p]
                B: {source} = z[p]
""" + "\n".join(lines)


def check(kernel, kinds: dict[str, str], x: np.ndarray, z: np.ndarray) -> None:
    """The bits of all results are the interpreter's; which NaN it is may differ."""
    got = [np.zeros(x.shape, as_dtype(kind).numpy) for kind in kinds.values()]
    want = [np.zeros_like(array) for array in got]
    kernel(x, z, *got, n=x.size)
    with np.errstate(all="ignore"):
        run(kernel.function, x, z, *want, n=x.size)
        for text, mine, meant in zip(kinds, got, want, strict=True):
            same = alike(text, mine, meant)
            at = np.argmin(same)
            assert same.all(), (text, x[at], z[at], mine[at], meant[at])


def alike(text: str, mine: np.ndarray, meant: np.ndarray) -> np.ndarray:
    """Where the bits are the same, or the IR leaves them open."""
    words = f"u{mine.dtype.itemsize}"
    same = mine.view(words) == meant.view(words)
    if mine.dtype.kind in "fV" and text not in MOVED:
        same |= np.isnan(mine.astype("f8")) & np.isnan(meant.astype("f8"))
    if text in ("min(A, B)", "max(A, B)"):  # of 0 and -0, either
        same |= (mine.astype("f8") == 0) & (meant.astype("f8") == 0)
    return same


@lacking
@vectors
@pytest.mark.parametrize("kind", FLOATS)
def test_every_value_through_every_function(build, kind, loop, without):
    results = dict.fromkeys([*MOVED[:2], *UNARY.split("|")], kind)
    numbers = ("f32", "f64", *FLOATS, *INTEGERS, "bool")
    results |= {f"cast({to}, A)": to for to in numbers if to != kind}
    results |= {"isnan(A)": "bool", "isinf(A)": "bool", f"A < {kind}(1.0)": "bool"}
    x = EVERY.view(as_dtype(kind).numpy)
    check(build(program(kind, results, loop), without), results, x, x)


@lacking
@vectors
@pytest.mark.parametrize("kind", FLOATS)
def test_pairs_through_every_operation(build, kind, loop, without):
    results = dict.fromkeys([*BINARY.split("|"), MOVED[2]], kind)
    results |= {f"A {op} B": "bool" for op in ("<", "<=", ">", ">=", "==", "!=")}
    bits = np.array([*SPECIAL, *(0x8000 | n for n in SPECIAL)], np.uint16)
    pairs = np.stack(np.meshgrid(bits, bits)).reshape(2, -1)
    chance = np.random.default_rng(0).integers(0, 1 << 16, (2, 20_000), np.uint16)
    near = np.stack([EVERY, EVERY ^ np.uint16(0x8003)])
    x, z = np.concatenate([pairs, chance, near], axis=1).view(as_dtype(kind).numpy)
    check(build(program(kind, results, loop), without), results, x, z)


@lacking
@vectors
@pytest.mark.parametrize("source", ["f32", "f64"])
def test_what_lies_around_every_value_is_rounded_once(build, source, loop, without):
    x = np.concatenate([TIES.reshape(-1), (TIES >> 3).reshape(-1)]).view(np.float32)
    with np.errstate(all="ignore"):
        x = x.astype(as_dtype(source).numpy)
    if source == "f64":  # ties of f32, and not of f64
        x[1::3], x[2::3] = np.nextafter(x[1::3], 0), np.nextafter(x[2::3], np.inf)
    results = {f"cast({kind}, A)": kind for kind in FLOATS}
    check(build(program(source, results, loop), without), results, x, x)


@lacking
@pytest.mark.parametrize("source", ["i32", "u32", "i64", "u64"])
def test_integers_are_rounded_once(build, source, without):
    shifts = np.arange(as_dtype(source).bits, dtype=np.uint64)
    ones = np.uint64(1) << shifts
    near = ones[:, None] + np.array([-2, -1, 0, 1, 2]).astype(np.uint64)
    ties = (near[..., None] * np.uint64(257) + np.array([0, 1], np.uint64)).reshape(-1)
    chance = np.random.default_rng(1).integers(0, 1 << 63, 999, np.uint64) >> (
        np.arange(999, dtype=np.uint64) % np.uint64(60)
    )
    x = np.concatenate([near.reshape(-1), ties, chance]).astype(as_dtype(source).numpy)
    results = {f"cast({kind}, A)": kind for kind in FLOATS}
    check(build(program(source, results, "vectorized"), without), results, x, x)


@lacking
@pytest.mark.parametrize("kind", FLOATS)
def test_atomic_updates(build, kind, without):
    kernel = build(
        f"""
def f(x: {kind}[30], y: InOut[{kind}[3]]):
    for i in parallel(30):
        atomic("add", y[0], x[i])
        atomic("mul", y[1], x[i])
        atomic("min", y[2], x[i])
""",
        without,
    )
    x = np.linspace(0.5, 1.5, 30).astype(as_dtype(kind).numpy)
    got, want = np.ones((2, 3), x.dtype)
    kernel(x, got)
    run(kernel.function, x, want)
    np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))


def test_only_conversions_name_a_type_of_16_bits(build):
    results = dict.fromkeys(BINARY.split("|"), "bf16")
    source = build(program("bf16", results, "vectorized")).source
    assert "bfloat" not in source
    bare = build(program("f16", dict.fromkeys(results, "f16"), "range"), ("f16c",))
    assert "half" not in bare.source


def test_a_constant_is_rounded_once():
    assert Const(1 + 2.0**-8 + 2.0**-40, bf16).value == 1 + 2.0**-7
    assert Const(1 + 2.0**-8, bf16).value == 1
