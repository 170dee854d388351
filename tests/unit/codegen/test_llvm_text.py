"""The LLVM source, kept as text: it is the same to the byte for the same function."""

import pytest

from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.lower import lower
from tensorlang.errors import CodegenError
from tensorlang.ir.text.parser import parse
from tensorlang.targets import Target

TARGET = Target(
    device="a CPU",
    cpu="x",
    features=("avx512f", "f16c", "fma", "sse2"),
    threads=4,
    vector_bits=512,
    vector_registers=32,
)


def source(program, **knobs):
    return render(lower(parse(program), TARGET), TARGET, knobs)


def test_a_masked_vector_kernel(golden):
    golden(
        source(
            """
def relu(x: f32[n], y: Out[f32[n]], *, n: i64, slope: f32):
    for i in parallel((n + 15) // 16):
        for v in vectorized(16):
            with block("relu", vi=spatial(n, i * 16 + v), where=i * 16 + v < n):
                y[vi] = select(x[vi] > 0.0, x[vi], slope * x[vi])
""",
            lanes=16,
            unroll=1,
        )
    )


def test_stages_barriers_and_workspace(golden):
    golden(
        source("""
def center(x: f32[n], y: Out[f32[n]], *, n: i64):
    t = alloc(f32[n])
    s = alloc(f32[1])
    for i in parallel(n):
        t[i] = x[i] * 2.0
    for k in range(n):
        with block("sum", vo=spatial(1, 0), vk=reduction(n, k)):
            reduce(sum, s[vo], t[vk])
    for i2 in parallel(n):
        y[i2] = t[i2] - s[0]
""")
    )


def test_a_register_tile(golden):
    golden(
        source("""
def dense(x: f32[64, 4], w: f32[64, 32], y: Out[f32[4, 32]]):
    acc = alloc(f32[4, 32], scope="register")
    for k in range(64):
        for a in unrolled(4):
            for b in unrolled(2):
                for v in vectorized(16):
                    with block("dot", va=spatial(4, a), vb=spatial(32, b * 16 + v),
                               vk=reduction(64, k)):
                        reduce(sum, acc[va, vb], x[vk, va] * w[vk, vb])
    for a2 in unrolled(4):
        for b2 in unrolled(2):
            for v2 in vectorized(16):
                y[a2, b2 * 16 + v2] = acc[a2, b2 * 16 + v2]
""")
    )


def test_checks_branches_and_stores_around_the_caches(golden):
    golden(
        source("""
def rows(at: i64[n], t: bf16[50, 32], y: Out[bf16[n, 32]], *, n: i64):
    for i in parallel(n):
        r: i64 = at[i]
        evaluate(check((r >= 0) & (r < 50), 3))
        if (r >= 0) & (r < 50):
            for j in vectorized(32):
                store(y[i, j], t[r, j] * bf16(2.0), hints=("nontemporal",))
""")
    )


def test_what_was_not_lowered_is_refused():
    function = parse(
        "def f(y: Out[f32[4]]):\n    for i in range(4):\n        y[i] = 1.0\n"
    )
    with pytest.raises(CodegenError, match="f was not lowered"):
        render(function, TARGET)


def test_a_deep_formula():
    value = "x[i]"
    for number in range(80):
        value = f"({value} * 0.5 + {number}.0)"
    text = source(f"""
def f(x: f32[n], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        y[i] = {value}
""")
    assert text.count(" fmul ") == text.count(" fadd ") == 80
