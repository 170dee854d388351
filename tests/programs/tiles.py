"""Tiles such as instructions are for: products, pairs of bf16, transposes."""

from __future__ import annotations

from hypothesis import strategies as st
from tensorlang_test_programs.draft import Draft

from tensorlang.ir.text.parser import parse

_PRODUCT = """
def f(a{T}: f{BITS}[{ROWS}, {STEPS}], b{T}: f{BITS}[{STEPS}, {LANES}],
      t{T}: Out[f{BITS}[{ROWS}, {LANES}]]):
    for y{T} in range({ROWS}):
        for z{T} in range({LANES}):
            with block("s{T}", vy{T}=spatial({ROWS}, y{T}),
                       vz{T}=spatial({LANES}, z{T})):
                t{T}[vy{T}, vz{T}] = f{BITS}(0.0)
    for i{T} in range({ROWS}):
        for k{T} in range({STEPS}):
            for j{T} in range({LANES}):
                with block("b{T}", vi{T}=spatial({ROWS}, i{T}),
                           vj{T}=spatial({LANES}, j{T}),
                           vk{T}=reduction({STEPS}, k{T})):
                    with init():
                        pass
                    reduce(sum, t{T}[vi{T}, vj{T}],
                           a{T}[vi{T}, vk{T}] * b{T}[vk{T}, vj{T}])
"""

_PAIRS = """
def f(a{T}: bf16[{ROWS}, {STEPS}], b{T}: bf16[{STEPS}, 16],
      t{T}: InOut[f32[{ROWS}, 16]]):
    for i{T} in range({ROWS}):
        for k{T} in range({STEPS} // 2):
            for j{T} in range(16):
                for q{T} in range(2):
                    with block("b{T}", vi{T}=spatial({ROWS}, i{T}),
                               vj{T}=spatial(16, j{T}),
                               vk{T}=reduction({STEPS}, k{T} * 2 + q{T})):
                        with init():
                            pass
                        reduce(sum, t{T}[vi{T}, vj{T}],
                               cast(f32, a{T}[vi{T}, vk{T}])
                               * cast(f32, b{T}[vk{T}, vj{T}]))
"""

_TURN = """
def f(a{T}: f32[{ROWS}, 8, 8], t{T}: Out[f32[{ROWS}, 8, 8]]):
    for l{T} in range({ROWS}):
        for i{T} in range(8):
            for j{T} in range(8):
                with block("b{T}", vl{T}=spatial({ROWS}, l{T}), vi{T}=spatial(8, i{T}),
                           vj{T}=spatial(8, j{T})):
                    t{T}[vl{T}, vj{T}, vi{T}] = a{T}[vl{T}, vi{T}, vj{T}]
"""

_STAGED = """
def f(a{T}: i32[{ROWS}, {LANES}], t{T}: Out[i32[{LANES}]]):
    for k{T} in range({ROWS}):
        s{T} = alloc(i32[{LANES}])
        for i{T} in range({LANES}):
            with block("c{T}", vk{T}=spatial({ROWS}, k{T}),
                       vi{T}=spatial({LANES}, i{T})):
                s{T}[vi{T}] = a{T}[vk{T}, vi{T}]
        for j{T} in range({LANES}):
            with block("b{T}", wk{T}=reduction({ROWS}, k{T}),
                       wj{T}=spatial({LANES}, j{T})):
                reduce(sum, t{T}[wj{T}], s{T}[wj{T}] * s{T}[wj{T}])
"""


def staged(draft: Draft, tag: str, *, last: bool) -> None:
    """A loop that copies what it computes from, as `pipeline` wants it."""
    del last
    rows, lanes = draft.draw(st.integers(2, 5)), draft.draw(st.integers(1, 4))
    func = parse(_STAGED.format(T=tag, ROWS=rows, LANES=lanes))
    draft.params += func.params
    draft.stmts.append(func.body)


def tile(draft: Draft, tag: str, *, last: bool) -> None:
    """Loops such as instructions are for, beside the stages."""
    del last
    whole = [(32, 8), (32, 16), (64, 4), (64, 8)]
    bits, lanes = draft.pick([*whole, (32, 12), (64, 6)])
    rows, steps = draft.draw(st.integers(1, 3)), draft.draw(st.integers(1, 2)) * 2
    text = draft.pick([_PRODUCT, _PRODUCT, _PAIRS, _TURN])
    func = parse(text.format(T=tag, ROWS=rows, STEPS=steps, BITS=bits, LANES=lanes))
    draft.loose |= draft.values == "fractions"
    draft.params += func.params
    draft.stmts.append(func.body)
