"""Names of common subexpressions: after what they index, or the digits they are."""

from __future__ import annotations

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.common_subexpressions import bind_common
from tensorlang.ir.text.parser import parse

TEXT = """
def f(x: f32[4096], y: Out[f32[4096]], z: Out[f32[4096]]):
    for b in bound(4, "block.x"):
        for t in bound(64, "thread.x"):
            for i in range(4):
                y[b * 256 + t * 4 + i] = 1.0
                y[b * 256 + t * 4 + i + 2048] = x[t // 8 % 2 * 8 + t // 8 % 2]
            for j in range(4):
                z[b * 256 + t * 4 + j] = x[b * 256 + t * 4 + j]
                z[t // 8 % 2 * 8 + t // 8 % 2] = 2.0
    for b in bound(4, "block.x"):
        for t in bound(64, "thread.x"):
            z[b * 256 + t * 4] = x[b * 256 + t * 4]
"""


def test_values_are_named_after_what_they_index_once_in_a_launch() -> None:
    func = parse(TEXT)
    made = str(bind_common(func, Names(func)))
    assert made.count("y_at: i64 = b * 256 + t * 4 + i\n") == 1
    assert made.count("t_div_8_mod_2: i64 = t // 8 % 2\n") == 2  # of one value
    assert made.count("at: i64 = b * 256 + t * 4 + j\n") == 1
    assert made.count("    at: i64 = b * 256 + t * 4\n") == 1  # another launch
    assert parse(made) == bind_common(func, Names(func))
