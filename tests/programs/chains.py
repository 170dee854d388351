"""Stages that follow each other in networks: products, epilogues, softmax, attention.

What rounds differently from order to order (`real` parameters hold fractions) is read
by nothing that would make more of it, and is compared within a tolerance.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from tensorlang_test_programs.draft import Axes, Draft

from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import (
    Alloc,
    Binary,
    Buffer,
    Const,
    Expr,
    Load,
    Param,
    Reduce,
    Store,
    as_expr,
)
from tensorlang.ir.text.parser import parse

_SOFTMAX = """
    m{T} = alloc({TYPE}[{ROWS}])
    s{T} = alloc({TYPE}[{ROWS}])
    for i{T} in range({ROWS}):
        for k{T} in range({LANES}):
            with block("m{T}", vi{T}=spatial({ROWS}, i{T}),
                       vk{T}=reduction({LANES}, k{T})):
                reduce(max, m{T}[vi{T}], {FROM}[vi{T}, vk{T}])
    for e{T} in range({ROWS}):
        for q{T} in range({LANES}):
            with block("s{T}", ve{T}=spatial({ROWS}, e{T}),
                       vq{T}=reduction({LANES}, q{T})):
                reduce(sum, s{T}[ve{T}], exp({FROM}[ve{T}, vq{T}] - m{T}[ve{T}]))
    for y{T} in range({ROWS}):
        for z{T} in range({LANES}):
            with block("p{T}", vy{T}=spatial({ROWS}, y{T}),
                       vz{T}=spatial({LANES}, z{T})):
                {TO}[vy{T}, vz{T}] = (
                    exp({FROM}[vy{T}, vz{T}] - m{T}[vy{T}]) / s{T}[vy{T}])
"""

_SOFTMAX_ALONE = """
def f(real{T}: {TYPE}[{ROWS}, {LANES}], t{T}: Out[{TYPE}[{ROWS}, {LANES}]]):
""" + _SOFTMAX.replace("{FROM}", "real{T}").replace("{TO}", "t{T}")

_ATTENTION = (
    """
def f(realq{T}: {TYPE}[{ROWS}, {STEPS}], realk{T}: {TYPE}[{LANES}, {STEPS}],
      realv{T}: {TYPE}[{LANES}, {STEPS}], t{T}: Out[{TYPE}[{ROWS}, {STEPS}]]):
    x{T} = alloc({TYPE}[{ROWS}, {LANES}])
    w{T} = alloc({TYPE}[{ROWS}, {LANES}])
    for a{T} in range({ROWS}):
        for b{T} in range({LANES}):
            for c{T} in range({STEPS}):
                with block("x{T}", va{T}=spatial({ROWS}, a{T}),
                           vb{T}=spatial({LANES}, b{T}),
                           vc{T}=reduction({STEPS}, c{T})):
                    reduce(sum, x{T}[va{T}, vb{T}],
                           realq{T}[va{T}, vc{T}] * realk{T}[vb{T}, vc{T}])
"""
    + _SOFTMAX.replace("{FROM}", "x{T}").replace("{TO}", "w{T}")
    + """
    for d{T} in range({ROWS}):
        for g{T} in range({STEPS}):
            for h{T} in range({LANES}):
                with block("t{T}", vd{T}=spatial({ROWS}, d{T}),
                           vg{T}=spatial({STEPS}, g{T}),
                           vh{T}=reduction({LANES}, h{T})):
                    reduce(sum, t{T}[vd{T}, vg{T}],
                           w{T}[vd{T}, vh{T}] * realv{T}[vh{T}, vg{T}])
"""
)

_LOGSUMEXP = """
def f(real{T}: {TYPE}[{ROWS}, {LANES}], top{T}: Out[{TYPE}[{ROWS}]],
      t{T}: Out[{TYPE}[{ROWS}]]):
    for i{T} in range({ROWS}):
        for k{T} in range({LANES}):
            with block("b{T}", vi{T}=spatial({ROWS}, i{T}),
                       vk{T}=reduction({LANES}, k{T})):
                reduce(logsumexp, (top{T}[vi{T}], t{T}[vi{T}]),
                       (real{T}[vi{T}, vk{T}], {ONE}))
"""

_WELFORD = """
def f(real{T}: {TYPE}[{ROWS}, {LANES}], count{T}: Out[{TYPE}[{ROWS}]],
      mean{T}: Out[{TYPE}[{ROWS}]], t{T}: Out[{TYPE}[{ROWS}]]):
    for k{T} in range({LANES}):
        for i{T} in range({ROWS}):
            with block("b{T}", vi{T}=spatial({ROWS}, i{T}),
                       vk{T}=reduction({LANES}, k{T})):
                reduce(welford, (count{T}[vi{T}], mean{T}[vi{T}], t{T}[vi{T}]),
                       ({ONE}, real{T}[vi{T}, vk{T}], {ZERO}))
"""


REAL: Final = tuple(map(DType, ("f32", "f64")))
_LANES: Final = (3, 4, 8, 9, 16, 17)  # around what instructions have


def product(draft: Draft, tag: str, *, last: bool) -> None:
    """A product of matrices."""
    del last
    _multiply(draft, tag, Buffer(f"t{tag}", draft.dtype, _sizes(draft)))


def epilogue(draft: Draft, tag: str, *, last: bool) -> None:
    """A product of matrices, and what comes behind one: a bias, and max(x, 0)."""
    del last
    dtype, shape = draft.dtype, _sizes(draft)
    held, out = Buffer(f"m{tag}", dtype, shape), Buffer(f"t{tag}", dtype, shape)
    draft.stmts.append(Alloc(held))
    _multiply(draft, tag, held)
    bias = draft.param(f"bias{tag}", "in", shape[1:])
    draft.params.append(Param(out, "out"))
    axes = Axes(draft, f"e{tag}")
    row, column = axes.spatial(shape)
    total = Load(held, (row, column)) + Load(bias.buffer, (column,))
    value = Binary("max", total, Const(0, dtype))
    draft.stmts.append(axes.nest(Store(out, (row, column), value)))


def _sizes(draft: Draft) -> tuple[Expr, ...]:
    return as_expr(draft.draw(st.integers(1, 3))), as_expr(draft.pick(_LANES))


def _multiply(draft: Draft, tag: str, out: Buffer) -> None:
    """`out` as the product of two new parameters."""
    rows, lanes = out.shape
    steps = as_expr(draft.draw(st.integers(1, 4)))
    a = draft.param(f"a{tag}", "in", (rows, steps))
    b = draft.param(f"b{tag}", "in", (steps, lanes))
    axes = Axes(draft, tag)
    i, j = axes.spatial(out.shape)
    k = axes.add("reduction", steps, "k")
    value = Load(a.buffer, (i, k)) * Load(b.buffer, (k, j))
    total = builtin("sum", (draft.dtype,))
    assert total is not None
    if not any(isinstance(s, Alloc) and s.buffer == out for s in draft.stmts):
        draft.params.append(Param(out, "out"))
    draft.loose |= draft.rounds(80)
    draft.stmts.append(axes.nest(Reduce(total, (out,), (i, j), (value,))))


def _put(draft: Draft, tag: str, text: str) -> None:
    """Add the parameters and statements of a text."""
    kind = draft.pick(REAL).name
    func = parse(
        text.format(
            T=tag,
            TYPE=kind,
            ZERO=f"{kind}(0.0)",
            ONE=f"{kind}(1.0)",
            ROWS=draft.draw(st.integers(1, 3)),
            STEPS=draft.draw(st.integers(1, 4)),
            LANES=draft.pick(_LANES),
        )
    )
    draft.params += func.params
    draft.stmts.append(func.body)
    draft.loose = True


def softmax(draft: Draft, tag: str, *, last: bool) -> None:
    """Rows of numbers that add up to 1."""
    del last
    _put(draft, tag, _SOFTMAX_ALONE)


def attention(draft: Draft, tag: str, *, last: bool) -> None:
    """Two products with a softmax between them."""
    del last
    _put(draft, tag, _ATTENTION)


def means(draft: Draft, tag: str, *, last: bool) -> None:
    """Folds of states of several floats."""
    del last
    _put(draft, tag, draft.pick([_LOGSUMEXP, _WELFORD]))
