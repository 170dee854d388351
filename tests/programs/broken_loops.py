"""What the rules of loops, annotations, layouts and instructions protect from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorlang_test_programs.broken import Broken, step

COPY: Final = """
def copy(x: f32[10], y: Out[f32[10]]):
    for i in range(10):
        with block("y", vi=spatial(10, i)):
            y[vi] = x[vi]
"""

ROW_SUM: Final = """
def row_sum(x: f32[3, 4], y: Out[f32[3]]):
    for i in range(3):
        y[i] = 0.0
        for j in range(4):
            y[i] = y[i] + x[i, j]
"""

TRIANGLE: Final = """
def triangle(x: f32[5], y: Out[f32[5]]):
    for i in range(5):
        for j in range(i + 1):
            with block("y", vi=spatial(5, i), vj=reduction(5, j)):
                reduce(sum, y[vi], x[vj])
"""

SUM: Final = """
def total(x: f32[7], y: Out[f32[1]]):
    for k in range(7):
        with block("y", vk=reduction(7, k)):
            reduce(sum, y[0], x[vk])
"""

LANES: Final = """
def lanes(a: f32[1], x: f32[8], y: InOut[f32[8]]):
    for j in range(8):
        with block("y", vj=spatial(8, j)):
            reduce(sum, y[vj], a[0] + x[vj])
"""

BROKEN_LOOPS: Final[Mapping[str, Broken]] = {
    "split factors cover the loop": Broken(COPY, step("split", "i", [2, 4])),
    "fused loops are perfectly nested": Broken(ROW_SUM, step("fuse", "i", "j")),
    "fused extents are independent": Broken(TRIANGLE, step("fuse", "i", "j")),
    "reordered loops are perfectly nested": Broken(ROW_SUM, step("reorder", "j", "i")),
    "an extent is invariant in its loop": Broken(
        """
def growing(x: f32[9], y: InOut[f32[9]]):
    n = alloc(i64[1])
    n[0] = 4
    for i in range(n[0]):
        y[i] = x[i]
        n[0] = 9
""",
        step("split", "i", [4, None]),
    ),
    "extents are defined outside": Broken(TRIANGLE, step("reorder", "j", "i")),
    "dependences keep their order": Broken(
        """
def skewed(x: f32[4, 6], y: Out[f32[4, 6]]):
    for i in range(4):
        for j in range(6):
            if (i == 0) | (j == 5):
                y[i, j] = x[i, j]
            else:
                y[i, j] = y[i - 1, j + 1] + x[i, j]
""",
        step("reorder", "j", "i"),
    ),
    "a reduction is initialized in one part": Broken(
        """
def sums(x: f32[n, 7], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        for k in range(7):
            with block("y", vi=spatial(n, i), vk=reduction(7, k)):
                reduce(sum, y[vi], x[vi, vk])
""",
        step("partition", "k", "n"),
        after=(step("decompose_reduction", "y_tail", "k_tail"),),
        sizes={"n": 3},
    ),
    "parallel iterations are independent": Broken(SUM, step("parallel", "k")),
    "lanes are independent or reduce": Broken(
        """
def scan(x: f32[9], y: Out[f32[9]]):
    for j in range(9):
        with block("y", vj=ordered(9, j)):
            if vj == 0:
                y[vj] = x[vj]
            else:
                y[vj] = y[vj - 1] + x[vj]
""",
        step("vectorize", "j"),
    ),
    "threads share no temporary of one thread": Broken(
        """
def staged(x: f32[4], y: Out[f32[4]]):
    for i in bound(4, "thread.x"):
        t = alloc(f32[1])
        with block("t", vi=spatial(4, i)):
            t[0] = x[vi]
        with block("y", wi=spatial(4, i)):
            y[wi] = t[0]
""",
        step("set_scope", "t", "shared"),
    ),
    "an intrinsic computes what it replaces": Broken(
        LANES, step("tensorize", "y", "fma_8xf32")
    ),
    "a tensorized tile is whole": Broken(
        """
def ends(a: f32[1], x: f32[12], y: InOut[f32[12]]):
    for i in range(2):
        for j in range(8):
            with block("y", vj=spatial(12, i * 8 + j), where=i * 8 + j < 12):
                reduce(sum, y[vj], a[0] * x[vj])
""",
        step("tensorize", "j", "fma_8xf32"),
    ),
    "an intrinsic does not reduce across threads": Broken(
        """
def rows(a: f32[2], b: f32[2, 8], c: InOut[f32[8]]):
    for k in bound(2, "thread.x"):
        for j in range(8):
            with block("c", vj=spatial(8, j), vk=reduction(2, k)):
                with init():
                    pass
                reduce(sum, c[vj], a[vk] * b[vk, vj])
""",
        step("tensorize", "j", "fma_8xf32"),
    ),
    "operands of an instruction do not overlap": Broken(
        """
def chain(x: f32[8], b: f32[8], y: Out[f32[8]]):
    t = alloc(f32[8])
    for i in range(8):
        with block("t", vi=spatial(8, i)):
            t[vi] = x[vi] + 3.0
    for j in range(8):
        with block("c", vj=ordered(8, j)):
            reduce(sum, t[vj], t[3] * b[vj])
    for k in range(8):
        with block("y", vk=spatial(8, k)):
            y[vk] = t[vk]
""",
        step("tensorize", "j", "fma_8xf32"),
    ),
}
