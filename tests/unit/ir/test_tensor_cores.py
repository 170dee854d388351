"""Tensor cores in the interpreter: fragments loaded, multiplied, stored."""

from textwrap import indent

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import CodegenError
from tensorlang.ir.interpreter import run
from tensorlang.ir.mma import tf32
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.targets import get

RESULT = """
y[lane // 4, lane % 4 * 2] = extract(d, 0)
y[lane // 4, lane % 4 * 2 + 1] = extract(d, 1)
y[lane // 4 + 8, lane % 4 * 2] = extract(d, 2)
y[lane // 4 + 8, lane % 4 * 2 + 1] = extract(d, 3)
"""
ROWS = {
    True: "ldmatrix_x4_trans(b_s[lane % 16, ramp(lane // 16 * 8, 1, 8)])",
    False: "ldmatrix_x4(b_s[lane % 8 + lane // 16 * 8, ramp(lane // 8 % 2 * 8, 1, 8)])",
}
ZERO = "splat(0.0, 4)"


def program(dtype, b):
    """One warp; `b` is the load of its operand of 16 by 16."""
    a = "ldmatrix_x4(a_s[lane % 16, ramp(lane // 16 * 8, 1, 8)])"
    body = f"""
a_s = alloc({dtype}[16, 16], scope="shared")
b_s = alloc({dtype}[16, 16], scope="shared")
for i in range(16):
    for j in range(16):
        a_s[i, j] = a[i, j]
        b_s[i, j] = b[i, j]
for lane in bound(32, "thread.x"):
    wa: {dtype}x8 = {a}
    wb: {dtype}x8 = {b}
    d: f32x4 = mma_m16n8k16_{dtype}(wa, shuffle((wb,), (0, 1, 2, 3)), {ZERO})
{indent(RESULT, "    ")}
"""
    return parse(
        f"def f(a: {dtype}[16, 16], b: {dtype}[16, 16], y: Out[f32[16, 8]]):\n"
        f'    for block in bound(1, "block.x"):\n{indent(body, "        ")}'
    )


def outcome(func, a, b):
    verify(func)
    assert show(parse(show(func))) == show(func)
    y = np.zeros((16, 8), "f4")
    run(func, a, b, y)
    return y


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_tile_of_sixteen(dtype, turned):
    kind = np.dtype("f2") if dtype == "f16" else parse_kind()
    generator = np.random.default_rng(0)
    a = generator.normal(size=(16, 16)).astype(kind)
    b = generator.normal(size=(16, 16)).astype(kind)
    got = outcome(program(dtype, ROWS[turned]), a, b)
    wide_a, wide_b = a.astype("f8"), b.astype("f8")
    want = wide_a @ (wide_b[:, :8] if turned else wide_b[:8].T)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def parse_kind():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return np.dtype(ml_dtypes.bfloat16)


def test_rows_that_no_instruction_loads_are_refused():
    func = parse(
        """
def f(a: bf16[16, 16], y: Out[bf16[32]]):
    for lane in bound(32, "thread.x"):
        w: bf16x8 = ldmatrix_x4(a[lane % 16, ramp(lane // 16 * 8, 1, 8)])
        y[lane] = extract(w, 0)
"""
    )
    with pytest.raises(
        CodegenError, match="rows of 8 contiguous elements of shared memory"
    ):
        lower(func, get("cuda:sm_80"))


def test_tf32_rounds_its_operands():
    func = parse(
        f"""
def f(a: f32[16, 8], b: f32[8, 8], y: Out[f32[16, 8]]):
    for lane in bound(32, "thread.x"):
        p: i64 = lane // 4
        q: i64 = lane % 4
        wa: f32x4 = shuffle(
            (a[p, q], a[p + 8, q], a[p, q + 4], a[p + 8, q + 4]), (0, 1, 2, 3)
        )
        wb: f32x2 = shuffle((b[q, p], b[q + 4, p]), (0, 1))
        d: f32x4 = mma_m16n8k8_tf32(wa, wb, splat(1.0, 4))
{indent(RESULT, " " * 8)}
"""
    )
    generator = np.random.default_rng(0)
    a, b = (generator.normal(size=s).astype("f4") for s in ((16, 8), (8, 8)))
    want = tf32(a).astype("f8") @ tf32(b).astype("f8") + 1
    np.testing.assert_allclose(outcome(func, a, b), want, rtol=1e-6, atol=1e-6)
    assert abs(outcome(func, a, b) - (a.astype("f8") @ b + 1)).max() > 1e-5
    assert tf32(np.float32(1 + 2**-11)) == np.float32(1 + 2**-10)
