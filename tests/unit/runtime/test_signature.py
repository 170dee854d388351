"""Signatures: from IR, through JSON, and which outputs may be in place."""

import json

import pytest

from tensorlang.errors import CodegenError
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Call, Var
from tensorlang.ir.text.parser import parse
from tensorlang.runtime.describing import dim_of, signature_of
from tensorlang.runtime.signature import Signature, evaluate, show_dim


def test_signature_of_a_function():
    signature = signature_of(
        parse(
            """
def f(x: f32[n, 784], y: Out[bf16[n * 2, m // 4]], *, n: i64, m: i64, rate: f32):
    pass
"""
        )
    )
    assert str(signature) == (
        "f(x: f32[n, 784], y: bf16[(n * 2), (m // 4)], *, n: i64, m: i64, rate: f32)"
    )
    assert [s.name for s in signature.free] == ["m", "rate"]
    assert signature.outs == (1,)
    assert signature.slots == 5
    text = json.dumps(signature.to_json())
    assert Signature.from_json(json.loads(text)) == signature


def test_dimensions_are_evaluated():
    dim = ("max", ("floordiv", ("sub", "n", 1), 4), ("floormod", "m", 3))
    assert evaluate(dim, {"n": 41, "m": 2}) == 10
    assert show_dim(dim) == "max(((n - 1) // 4), (m % 3))"


def test_a_dimension_that_nothing_can_compute_is_refused():
    with pytest.raises(CodegenError, match="is not a valid dimension"):
        dim_of(Call("sqrt", (Var("n"),), i64))


def aliases(body, params="x: f32[n, m], y: Out[f32[n, m]]"):
    return signature_of(parse(f"def f({params}, *, n: i64, m: i64):\n{body}")).aliases


LOOPS = """
    for i in parallel(n):
        for j in range(m):
            with block("b", vi=spatial(n, i), vj=spatial(m, j)):
"""


def test_elementwise_may_be_in_place():
    assert aliases(
        LOOPS + "                y[vi, vj] = x[vi, vj] * 2.0 + x[vi, vj]\n"
    ) == ((1, 0),)


def test_split_loops_may_be_in_place():
    body = """
    for i in parallel(n):
        for j_0 in range((m + 31) // 32):
            for j_1 in vectorized(32):
                with block("b", vi=spatial(n, i), vj=spatial(m, j_0 * 32 + j_1),
                           where=j_0 * 32 + j_1 < m):
                    y[vi, vj] = exp(x[vi, vj])
"""
    assert aliases(body) == ((1, 0),)


def test_a_value_with_a_name_may_be_in_place():
    body = """                t: f32 = x[vi, vj]
                y[vi, vj] = select(t < 0.0, 0.0, t)
"""
    assert aliases(LOOPS + body) == ((1, 0),)


CUT = """
    for i in parallel(n):
        for j_0 in range((m // 32 * 32 + 31) // 32):
            for j_1 in vectorized(32):
                with block("b", vi=spatial(n, i), vj=spatial(m, j_0 * 32 + j_1)):
                    y[vi, vj] = x[vi, vj] * 2.0
        for j_0 in range((m - m // 32 * 32 + 31) // 32):
            for j_1 in vectorized(32):
                with block("tail", ui=spatial(n, {row}),
                           uj=spatial(m, {start} + (j_0 * 32 + j_1)),
                           where={start} + (j_0 * 32 + j_1) < m):
                    y[ui, uj] = x[ui, uj] * 2.0
"""


def test_parts_of_a_nest_may_be_in_place():
    assert aliases(CUT.format(row="i", start="m // 32 * 32")) == ((1, 0),)


def test_parts_that_may_meet_may_not_be_in_place():
    assert aliases(CUT.format(row="i", start="m // 32 * 31")) == ()
    assert aliases(CUT.format(row="0", start="m // 32 * 32")) == ()


def test_rows_counted_by_one_loop_may_be_in_place():
    body = """
    for f in parallel(n * m * n):
        for j in range(m):
            with block("b", va=spatial(n, f // n // m), vb=spatial(m, f // n % m),
                       vc=spatial(n, f % n), vj=spatial(m, j)):
                y[va, vb, vc, vj] = x[va, vb, vc, vj] + 1.0
"""
    shape = "f32[n, m, n, m]"
    assert aliases(body, f"x: {shape}, y: Out[{shape}]") == ((1, 0),)


def test_of_two_cases_one_runs():
    body = """
    if n < 8:
        for i in range(n):
            for j in range(m):
                with block("b", vi=spatial(n, i), vj=spatial(m, j)):
                    y[vi, vj] = x[vi, vj]
    else:
        for i in parallel(n):
            for j in range(m):
                with block("c", vi=spatial(n, i), vj=spatial(m, j)):
                    y[vi, vj] = x[vi, vj]
"""
    assert aliases(body) == ((1, 0),)


@pytest.mark.parametrize(
    "body",
    [
        LOOPS + "                y[vi, vj] = x[vi, 0]\n",
        LOOPS
        + "                y[vi, vj] = x[vi, vj]\n                y[vi, vj] = 1.0\n",
        LOOPS
        + "                y[vi, vj] = 1.0\n                y[vi, vj] = x[vi, vj]\n",
        LOOPS + "                reduce(sum, y[vi, vj], x[vi, vj])\n",
        LOOPS + "                t: f32 = x[vi, vj]\n                y[vi, 0] = t\n",
        LOOPS.replace("vj=spatial(m, j)", "vj=spatial(m, 0)")
        + "                y[vi, vj] = x[vi, vj]\n",
        """
    for i in range(n):
        for j in range(m):
            for k in range(3):
                with block("b", vi=spatial(n, i), vj=spatial(m, j)):
                    y[vi, vj] = x[vi, vj] * 2.0
""",
        """
    for i in range(n):
        for j_0 in range((m + 15) // 16):
            for j_1 in range(32):
                with block("b", vi=spatial(n, i), vj=spatial(m, j_0 * 16 + j_1)):
                    y[vi, vj] = x[vi, vj] * 2.0
""",
    ],
    ids=[
        "other element",
        "two stores",
        "written first",
        "reduced",
        "named, other element",
        "one column",
        "again",
        "overlapping",
    ],
)
def test_what_could_tell_may_not_be_in_place(body):
    assert aliases(body) == ()


def test_another_shape_or_type_may_not_be_in_place():
    body = LOOPS + "                y[vi, vj] = cast(f32, x[vi, vj])\n"
    assert aliases(body, "x: i32[n, m], y: Out[f32[n, m]]") == ()
    body = LOOPS + "                y[vi, vj] = x[vi, vj]\n"
    assert aliases(body, "x: f32[n, m + 1], y: Out[f32[n, m]]") == ()
