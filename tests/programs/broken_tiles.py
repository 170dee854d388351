"""What the rules of caches and of reductions taken apart protect from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorlang_test_programs.broken import Broken, step

BROKEN_TILES: Final[Mapping[str, Broken]] = {
    "a cached buffer does not change while the copy is in use": Broken(
        """
def shift(x: f32[9], y: Out[f32[8]], t: Out[f32[9]]):
    for i in range(8):
        with block("t", vt=spatial(9, i)):
            t[vt] = x[vt]
        with block("y", vi=spatial(8, i)):
            y[vi] = t[vi] * 2.0
""",
        step("cache_read", "y", "t", "global"),
    ),
    "a cached result is used by its own block only": Broken(
        """
def two(x: f32[8], y: Out[f32[8]], z: Out[f32[8]]):
    for i in range(8):
        with block("y", vi=spatial(8, i)):
            y[vi] = x[vi]
        with block("z", vz=spatial(8, i)):
            z[vz] = y[vz]
""",
        step("cache_write", "y", "y", "global"),
    ),
    "a cached reduction is complete when it is written back": Broken(
        """
def rows(x: f32[4, 6], y: Out[f32[4]]):
    for k0 in range(2):
        for i in range(4):
            for k1 in range(3):
                with block("y", vi=spatial(4, i), vk=reduction(6, k0 * 3 + k1)):
                    reduce(sum, y[vi], x[vi, vk])
""",
        step("cache_write", "y", "y", "register", at="i"),
    ),
    "the block writes every element of its tile": Broken(
        """
def triangle(x: f32[6, 6], y: InOut[f32[6, 6]]):
    for i in range(6):
        for j in range(6):
            with block("y", vi=spatial(6, i), vj=spatial(6, j), where=j <= i):
                y[vi, vj] = x[vi, vj]
""",
        step("cache_write", "y", "y", "global"),
    ),
    "a cached reduction initializes its own state": Broken(
        """
def update(x: f32[6], y: InOut[f32[6]]):
    for i in range(6):
        with block("y", vi=spatial(6, i)):
            reduce(sum, y[vi], x[vi])
""",
        step("cache_write", "y", "y", "global", at="i"),
    ),
    "no partial result is empty": Broken(
        """
def rows(x: f32[4, 5], y: Out[f32[4]]):
    for k1 in range(4):
        for i in range(4):
            for k2 in range(2):
                with block("y", vi=spatial(4, i), vk=reduction(5, k1 * 2 + k2),
                           where=k1 * 2 + k2 < 5):
                    reduce(sum, y[vi], x[vi, vk])
""",
        step("cache_write", "y", "y", "register", at="i", accumulate=True),
    ),
    "only written elements are copied": Broken(
        """
def evens(x: f32[8], y: Out[f32[4]]):
    t = alloc(f32[8])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi * 2] = x[vi]
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = t[vi * 2]
""",
        step("cache_read", "y", "t", "global"),
    ),
    "the init precedes the whole reduction": Broken(
        """
def rows(x: f32[6, 50], m: Out[f32[6]], p: Out[i64[6]]):
    for i in range(6):
        for k_0 in range(7):
            for k_1 in range(8):
                with block("m", vi=spatial(6, i), vk=reduction(50, k_0 * 8 + k_1),
                           where=k_0 * 8 + k_1 < 50):
                    reduce(argmax, (m[vi], p[vi]), (x[vi, vk], vk))
""",
        step("decompose_reduction", "m", "k_1"),
    ),
    "nothing else uses the state of the init": Broken(
        """
def shared(x: f32[4, 3], y: Out[f32[4]], z: Out[f32[4]]):
    for i in range(4):
        with block("set", wi=spatial(4, i)):
            y[wi] = 5.0
            z[wi] = y[wi]
        for k in range(3):
            with block("y", vi=spatial(4, i), vk=reduction(3, k)):
                reduce(sum, y[vi], x[vi, vk])
""",
        step("decompose_reduction", "y", "i"),
    ),
    "a decomposed reduction is initialized once": Broken(
        """
def twice(x: f32[4, 3], y: Out[f32[4]]):
    for i in range(4):
        for r in range(2):
            for k in range(3):
                with block("y", vi=spatial(4, i), vk=reduction(3, k)):
                    reduce(sum, y[vi], x[vi, vk])
""",
        step("decompose_reduction", "y", "r"),
    ),
    "the operands of an init are available before": Broken(
        """
def biased(x: f32[4, 3], y: Out[f32[4]]):
    t = alloc(f32[4])
    for j in range(4):
        with block("zero", vj=spatial(4, j)):
            t[vj] = 0.0
    for i in range(4):
        with block("t", wi=spatial(4, i)):
            t[wi] = x[wi, 0] + 9.0
        for k in range(3):
            with block("y", vi=spatial(4, i), vk=reduction(3, k)):
                with init():
                    y[vi] = t[vi]
                reduce(sum, y[vi], x[vi, vk])
""",
        step("decompose_reduction", "y", "i"),
    ),
    "only bounds of axes guard a decomposed reduction": Broken(
        """
def guarded(x: f32[4, 8], y: InOut[f32[4]]):
    for i in range(4):
        for k in range(8):
            with block("y", vi=spatial(4, i), vk=reduction(8, k), where=i * k > 99):
                with init():
                    y[vi] = 0.0
                reduce(sum, y[vi], x[vi, vk])
""",
        step("decompose_reduction", "y", "k"),
    ),
    "a factored loop belongs to the reduction alone": Broken(
        """
def mixed(x: f32[4, 3], y: Out[f32[4]]):
    for f in range(12):
        with block("y", vi=spatial(4, f // 3), vk=reduction(3, f % 3)):
            reduce(sum, y[vi], x[vi, vk])
""",
        step("rfactor", "y", "f"),
    ),
    "partial results are combined in a valid order": Broken(
        """
@reducer(commutative=False)
def last(a: f32, b: f32):
    identity(0.0)
    return select(b == 0.0, a, b)


def rows(x: f32[40, 32], y: Out[f32[40]]):
    for i in range(40):
        for k_0 in range(4):
            for k_1 in range(8):
                with block("y", vi=spatial(40, i), vk=reduction(32, k_0 * 8 + k_1)):
                    reduce(last, y[vi], x[vi, vk])
""",
        step("rfactor", "y", "k_1"),
    ),
    "a factored reduction has its nest to itself": Broken(
        """
def shared(x: f32[4, 6], z: Out[f32[2]], y: Out[f32[4]]):
    for k_0 in range(2):
        with block("z", vz=spatial(2, k_0)):
            z[vz] = 1.0
        for i in range(4):
            for k_1 in range(3):
                with block("y", vi=spatial(4, i), vk=reduction(6, k_0 * 3 + k_1)):
                    reduce(sum, y[vi], x[vi, vk])
""",
        step("rfactor", "y", "k_1"),
    ),
    "iterations write disjoint tiles for a moved consumer": Broken(
        """
def f(x: f32[8], y: Out[f32[8]]):
    t = alloc(f32[8])
    for i_0 in range(4):
        for i_1 in range(2):
            with block("t", vi=spatial(8, i_0 + i_1 * 4)):
                t[vi] = x[vi]
    for j in range(8):
        with block("y", vj=spatial(8, j)):
            y[vj] = t[vj]
""",
        step("reverse_compute_at", "y", "i_0"),
    ),
    "each iteration has its own part of a temporary": Broken(
        """
def halves(x: f32[4], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi]
        with block("y", vy=spatial(4, i)):
            y[vy] = t[vy // 2]
""",
        step("store_at", "t", "i"),
    ),
    "a result holds a temporary until it overwrites it": Broken(
        """
def twice(x: f32[4], y: Out[f32[4]], z: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi]
    for i_1 in range(4):
        with block("y", vi=spatial(4, i_1)):
            y[vi] = t[vi] + 1.0
    for i_2 in range(4):
        with block("z", vi=spatial(4, i_2)):
            z[vi] = t[vi]
""",
        step("store_in", "t", "y"),
    ),
    "merged loops have equal extents": Broken(
        """
def two(x: f32[6], y: Out[f32[4]], z: Out[f32[6]]):
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = x[vi]
    for i_1 in range(6):
        with block("z", vi=spatial(6, i_1)):
            z[vi] = x[vi]
""",
        step("merge", "i", "i_1"),
    ),
    "merged iterations conflict only with their own": Broken(
        """
def shifted(x: f32[4], y: Out[f32[4]]):
    t = alloc(f32[4])
    for i in range(4):
        with block("t", vi=spatial(4, i)):
            t[vi] = x[vi]
    for i_1 in range(4):
        with block("y", vi=spatial(4, i_1)):
            y[vi] = t[3 - vi]
""",
        step("merge", "i", "i_1"),
    ),
}
