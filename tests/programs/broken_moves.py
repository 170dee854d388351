"""What the rules of blocks that move, grow or vanish protect from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorlang_test_programs.broken import Broken, step

BROKEN_MOVES: Final[Mapping[str, Broken]] = {
    "an atomic update needs an initialized state": Broken(
        """
def total(x: i32[6], y: Out[i32[1]]):
    for k in range(6):
        with block("y", vk=reduction(6, k)):
            reduce(sum, y[0], x[vk])
""",
        step("atomic", "y"),
    ),
    "an inlined value is determined by its indices": Broken(
        """
def f(x: f32[4, 3], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        for j in range(3):
            with block("t", vi=spatial(4, i), vj=spatial(3, j)):
                t[vi] = x[vi, vj]
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = t[vi]
""",
        step("inline", "t"),
    ),
    "an inlined block is the only writer of its buffer": Broken(
        """
def f(x: f32[4], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi]
    for i in range(4):
        with block("again", vi=spatial(4, i)):
            t[vi] = 9.0
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = t[vi]
""",
        step("inline", "t"),
    ),
    "the operands of a moved block do not change in between": Broken(
        """
def f(x: InOut[f32[4]], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi]
    for i in range(4):
        with block("x", vi=spatial(4, i)):
            x[vi] = 9.0
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = t[vi]
""",
        step("inline", "t"),
    ),
    "an epilogue runs once for each element": Broken(
        """
def f(x: f32[4], y: InOut[f32[4]]):
    t = alloc(f32[4])
    for r in range(2):
        for i in range(4):
            with block("t", vr=spatial(2, r), vi=spatial(4, i)):
                t[vi] = x[vi]
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = y[vi] + t[vi] + 1.0
""",
        step("inline", "y", reverse=True),
    ),
    "an epilogue of several blocks sees final values": Broken(
        """
def f(x: f32[4], y: InOut[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi]
    for i in range(4):
        with block("twice", vi=spatial(4, i)):
            t[vi] = x[vi] * 2.0
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = y[vi] + t[vi]
""",
        step("inline", "y", reverse=True),
    ),
    "an epilogue can run as soon as its element is computed": Broken(
        """
def f(x: f32[4], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi]
    s = alloc(f32[1])
    for k in range(4):
        with block("s", vk=reduction(4, k)):
            reduce(sum, s[0], x[vk])
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = t[vi] * s[0]
""",
        step("inline", "y", reverse=True),
    ),
    "all readers of a moved producer are under the loop": Broken(
        """
def rows(x: f32[6, 9], y: Out[f32[6, 9]]):
    m = alloc(f32[6])
    s = alloc(f32[6])
    for i in range(6):
        for k in range(9):
            with block("m", vi=spatial(6, i), vk=reduction(9, k)):
                reduce(max, m[vi], x[vi, vk])
    for i_1 in range(6):
        for k_1 in range(9):
            with block("s", vi=spatial(6, i_1), vk=reduction(9, k_1)):
                reduce(sum, s[vi], x[vi, vk] - m[vi])
    for i_2 in range(6):
        for k_2 in range(9):
            with block("y", vi=spatial(6, i_2), vj=spatial(9, k_2)):
                y[vi, vj] = x[vi, vj] * s[vi] - m[vi]
""",
        step("compute_at", "m", "i_2"),
    ),
    "a moved consumer sees finished values": Broken(
        """
def f(x: f32[8], y: Out[f32[8]]):
    t = alloc(f32[8])
    for i in range(8):
        with block("t", vi=spatial(8, i)):
            t[vi] = x[vi]
    for i_1 in range(8):
        with block("again", vi=spatial(8, i_1)):
            t[vi] = t[vi] + 1.0
    for j in range(8):
        with block("y", vj=spatial(8, j)):
            y[vj] = t[vj]
""",
        step("reverse_compute_at", "y", "i"),
    ),
    "a tile has a constant size": Broken(
        """
def rows(x: f32[n, 5], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        for k in range(5):
            with block("y", vi=spatial(n, i), vk=reduction(5, k)):
                reduce(max, y[vi], x[vi, vk])
""",
        step("cache_read", "y", "x", "register"),
        sizes={"n": 3},
    ),
    "a layout is one-to-one": Broken(
        """
def twice(x: f32[4, 3], y: Out[f32[4, 3]]):
    t = alloc(f32[4, 3])
    for i in range(4):
        for j in range(3):
            with block("t", vi=spatial(4, i), vj=spatial(3, j)):
                t[vi, vj] = x[vi, vj] * 2.0
    for k in range(4):
        for l in range(3):
            with block("y", vk=spatial(4, k), vl=spatial(3, l)):
                y[vk, vl] = t[vk, vl]
""",
        step("transform_layout", "t", "lambda i, j: (i + j,)"),
    ),
    "a reindexed block covers all of its axes": Broken(
        """
def half(x: f32[8], y: InOut[f32[8]]):
    for i in range(4):
        with block("y", vi=spatial(8, i)):
            y[vi] = x[vi]
""",
        step("reindex", "y", "y"),
    ),
    "a scattered result writes each element once": Broken(
        """
def last(x: f32[4], y: Out[f32[3]]):
    for i in range(2):
        for j in range(2):
            with block("y", vi=spatial(4, j * 2 + i)):
                y[(vi + 1) // 2] = x[vi]
""",
        step("reindex", "y", "y"),
    ),
    "a moved producer computes each element once": Broken(
        """
def rows(x: f32[3, 4], y: Out[f32[3]]):
    for i in range(3):
        for k in range(4):
            t = alloc(f32[1])
            with block("t", vi=spatial(3, i), vk=spatial(4, k)):
                t[0] = x[vi, vk]
            with block("y", wi=spatial(3, i), wk=reduction(4, k)):
                reduce(sum, y[wi], t[0])
""",
        step("compute_at", "t", "i"),
    ),
    "a moved producer finds its operands at its new place": Broken(
        """
def rows(x: f32[2, 4], y: Out[f32[2, 4]]):
    u = alloc(f32[2, 4])
    for i in range(2):
        for j in range(4):
            t = alloc(f32[2, 4])
            with block("u", vi=spatial(2, i), vj=spatial(4, j)):
                u[vi, vj] = x[vi, vj]
            with block("t", vi=spatial(2, i), vj=spatial(4, j)):
                t[vi, vj] = u[vi, vj] + 1.0
            with block("y", vi=spatial(2, i), vj=spatial(4, j)):
                y[vi, vj] = t[vi, vj]
""",
        step("compute_at", "t", "i"),
    ),
    "a moved producer computes the same in each iteration": Broken(
        """
def first(x: f32[3, 4], y: Out[f32[3, 4]]):
    t = alloc(f32[4])
    for o in range(3):
        if o == 0:
            for i in range(4):
                with block("t", vo=spatial(3, o), vi=spatial(4, i)):
                    t[vi] = x[vo, vi]
        for j in range(4):
            with block("y", vo=spatial(3, o), vj=spatial(4, j)):
                y[vo, vj] = t[vj]
""",
        step("compute_at", "t", "j"),
    ),
    "a moved consumer reads no partial result": Broken(
        """
def f(x: i32[4], y: Out[i32[4, 1]]):
    t = alloc(i32[1])
    for o in range(4):
        for i in range(1):
            with block("t", vo=reduction(4, o), vi=spatial(1, i)):
                reduce(sum, t[vi], x[vo])
        for j in range(1):
            with block("y", wo=spatial(4, o), vj=spatial(1, j)):
                y[wo, vj] = t[vj]
""",
        step("reverse_compute_at", "y", "i"),
    ),
    "a consumer leaves no loop that uses its results": Broken(
        """
def f(x: i32[3], y: Out[i32[3]]):
    t = alloc(i32[1])
    w = alloc(i32[3])
    for i in range(3):
        with block("w", vi=spatial(3, i)):
            w[vi] = x[vi]
    for a in range(3):
        for b in range(1):
            with block("t", va=spatial(3, a), vb=spatial(1, b)):
                t[vb] = w[va]
        for c in range(1):
            with block("y", ya=spatial(3, a), yc=spatial(1, c)):
                y[ya] = t[yc]
""",
        step("reverse_compute_at", "t", "i"),
    ),
    "a consumer uses no let after its producer": Broken(
        """
def f(x: i32[3], z: Out[i32[3]]):
    t = alloc(i32[3])
    for i in range(3):
        with block("t", vi=spatial(3, i)):
            t[vi] = x[vi]
    b: i32 = x[1]
    for a in range(3):
        with block("z", va=spatial(3, a)):
            z[va] = t[va] + b
""",
        step("reverse_compute_at", "z", "i"),
    ),
    "an epilogue runs under the conditions of its block": Broken(
        """
def some(x: f32[3, 4], y: InOut[f32[3, 4]]):
    t = alloc(f32[3, 4])
    for o in range(3):
        for i in range(4):
            with block("t", vo=spatial(3, o), vi=spatial(4, i)):
                t[vo, vi] = x[vo, vi]
        if o < 1:
            for j in range(4):
                with block("y", vo=spatial(3, o), vj=spatial(4, j)):
                    y[vo, vj] = t[vo, vj]
""",
        step("inline", "y", reverse=True),
    ),
    "a moved block covers all of its axes": Broken(
        """
def some(x: f32[4], y: InOut[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi] + 1.0
    for j in range(3):
        with block("y", vj=spatial(4, j)):
            y[vj] = y[vj] + t[vj]
""",
        step("reverse_compute_at", "y", "i"),
    ),
    "padding adds nothing to a reduction": Broken(
        """
def product(x: f32[5], y: Out[f32[4]]):
    t = alloc(f32[5])
    for i in range(5):
        with block("t", vi=spatial(5, i)):
            t[vi] = x[vi] + 5.0
    u = alloc(f32[4])
    for j in range(4):
        for k in range(5):
            with block("fold", vj=spatial(4, j), vk=reduction(5, k)):
                reduce(prod, u[vj], t[vk])
    for l in range(4):
        with block("y", vl=spatial(4, l)):
            y[vl] = u[vl]
""",
        step("pad", "fold", [1, 4]),
    ),
    "padded elements can be computed": Broken(
        """
def quotients(x: i64[5], y: Out[i64[5]]):
    t = alloc(i64[5])
    for i in range(5):
        with block("t", vi=spatial(5, i)):
            t[vi] = x[vi] * x[vi] + 1
    u = alloc(i64[5])
    for j in range(5):
        with block("quotient", vj=spatial(5, j)):
            u[vj] = 100 // t[vj]
    for k in range(5):
        with block("y", vk=spatial(5, k)):
            y[vk] = u[vk]
""",
        step("pad", "quotient", [4]),
    ),
}
