"""Places of temporaries in the workspace: apart, aligned, and in shallow formulas."""

from itertools import pairwise

import numpy as np
import pytest

from tensorlang.codegen.llvm.render import render
from tensorlang.codegen.llvm.workspace import layout
from tensorlang.codegen.lower import lower
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Expr, Var, as_expr
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import children
from tensorlang.targets import Target

MANY = 200
LENGTHS = np.array([0, 1, 16, 17])
TARGET = Target(
    device="a CPU",
    cpu="x",
    features=("sse2",),
    threads=4,
    vector_bits=128,
    vector_registers=16,
)


def chain(sizes, loop="range"):
    """`y` is `x` after it went through a temporary of each size."""
    names = ["x", *(f"t{i}" for i in range(len(sizes))), "y"]
    lines = [f"    t{i} = alloc(f32[{size}])" for i, size in enumerate(sizes)]
    for i, (source, into) in enumerate(pairwise(names)):
        lines.append(f"    for i{i} in {loop}(n):")
        lines.append(f"        {into}[i{i}] = {source}[i{i}]")
    head = "def f(x: f32[n], y: Out[f32[n]], *, n: i64):\n"
    return lower(parse(head + "\n".join(lines)), TARGET)


def levels(expr):
    below = (levels(child) for child in children(expr) if isinstance(child, Expr))
    return 1 + max(below, default=0)


def values(expr):
    """An offset or size for each `n` of `LENGTHS`."""
    return np.zeros_like(LENGTHS) + evaluate(expr, {Var("n", i64): LENGTHS})


@pytest.mark.parametrize(
    "sizes",
    [
        ["n"] * MANY,
        ["n", "64", "2 * n"] * (MANY // 3),
        [f"n + {16 * i}" for i in range(MANY)],
    ],
    ids=["one", "three", "all different"],
)
def test_many_temporaries(sizes):
    function = chain(sizes)
    pieces, size = layout(function)
    assert len(pieces) == len(sizes)
    assert max(levels(each) for each in (*(p.offset for p in pieces), size)) < 20
    end = np.zeros_like(LENGTHS)
    for piece in pieces:
        np.testing.assert_array_equal(values(piece.offset), end)
        np.testing.assert_array_equal(end % 64, 0)
        end = end + values(piece.size)
    np.testing.assert_array_equal(values(size), end)


@pytest.mark.parametrize("loop", ["range", "parallel"])
def test_code_with_many_temporaries(loop):
    assert f"%t{MANY - 1} = getelementptr" in render(chain(["n"] * MANY, loop), TARGET)


def test_no_temporaries():
    assert layout(chain([])) == ((), as_expr(0))
