"""Signatures: from IR, through JSON, and which outputs may be in place."""

import json

import pytest

from tensorlang.errors import CodegenError
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Call, Var
from tensorlang.ir.parser import parse
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
    with pytest.raises(CodegenError, match="is no dimension"):
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


@pytest.mark.parametrize(
    "body",
    [
        LOOPS + "                y[vi, vj] = x[vi, 0]\n",
        LOOPS
        + "                y[vi, vj] = x[vi, vj]\n                y[vi, vj] = 1.0\n",
        LOOPS
        + "                y[vi, vj] = 1.0\n                y[vi, vj] = x[vi, vj]\n",
        LOOPS + "                reduce(sum, y[vi, vj], x[vi, vj])\n",
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
