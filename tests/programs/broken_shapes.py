"""What the rules of shared copies, fused axes, dimensions and groups protect from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tensorlang_test_programs.broken import Broken, step
from tensorlang_test_programs.broken_warps import BROKEN_WARPS


def _copies(*, of: str = "x", between: str = "", second: str = "vk") -> str:
    """Two copies of one buffer, with something between them, and a use of both."""
    return f"""
def f(x: f32[4], y: Out[f32[4]], z: Out[f32[4]]):
    t = alloc(f32[4])
    a = alloc(f32[4])
    b = alloc(f32[4])
    for h in range(4):
        with block("t", vh=spatial(4, h)):
            t[vh] = x[vh] * 3.0
    for i in range(4):
        with block("a", vi=spatial(4, i)):
            a[vi] = {of}[vi]
    for j in range(4):
        with block("z", vj=spatial(4, j)):
            z[vj] = a[vj] + 1.0
{between}
    for k in range(4):
        with block("b", vk=spatial(4, k)):
            b[vk] = {of}[{second}]
    for l in range(4):
        with block("y", vl=spatial(4, l)):
            y[vl] = a[vl] * 2.0 - b[vl]
"""


def _changed(name: str) -> str:
    return f"""
    for m in range(4):
        with block("changed", vm=spatial(4, m)):
            {name}[vm] = {name}[vm] + 9.0
"""


_SUMS: Final = """
def sums(x: f32[3, 4], y: Out[f32[3]]):
    for i in range(3):
        for k in range(4):
            with block("y", vi=spatial(3, i), vk=reduction(4, k)):
                reduce(sum, y[vi], x[vi, vk])
"""

_TURN: Final = """
def turn(x: f32[4, 3], y: Out[f32[4, 3]]):
    t = alloc(f32[4, 3])
    for i in range(4):
        for j in range(3):
            with block("t", vi=spatial(4, i), vj=spatial(3, j)):
                t[vi, vj] = x[vi, vj] * 2.0
    for k in range(4):
        for l in range(3):
            with block("y", vk=spatial(4, k), vl=spatial(3, l)):
                y[vk, vl] = t[vk, vl]
"""

_LARGEST: Final = """
def largest(x: i32[3, 3, 2], y: Out[i64[3, 3]]):
    t = alloc(i32[3, 3])
    p = alloc(i64[3, 3])
    for i in range(3):
        for j in range(3):
            for k in range(2):
                with block("t", vi=spatial(3, i), vj=spatial(3, j), vk=reduction(2, k)):
                    reduce(argmax, (t[vi, vj], p[vi, vj]), (x[vi, vj, vk], vk))
    for l in range(3):
        for m in range(3):
            with block("y", vl=spatial(3, l), vm=spatial(3, m)):
                y[vl, vm] = p[vl, vm]
"""


def _placed(body: str) -> str:
    """Updates at places from data, in order."""
    return f"""
def add(ids: i64[8], x: f32[8], y: InOut[f32[4]], z: InOut[f32[1]]):
    for p in range(8):
        with block("add", vp=ordered(8, p)):
            row: i64 = ids[vp] % 4
            {body}
"""


_SCATTER: Final = """
def add(ids: i64[8], x: f32[8], y: Out[f32[4]]):
    t = alloc(f32[4])
    for z in range(4):
        t[z] = 1.0
    for p in range(8):
        with block("add", vp=ordered(8, p)):
            row: i64 = ids[vp] % 4
            t[row] = t[3 - row] + x[vp]
    for i in range(4):
        y[i] = t[i]
"""

BROKEN_SHAPES: Final[Mapping[str, Broken]] = {
    "a copy is not shared with itself": Broken(_copies(), step("share", "a", "a")),
    "a shared copy is filled by a nest of its own": Broken(
        _copies(between=_changed("a")), step("share", "a", "b")
    ),
    "a shared copy is filled before all of its readers": Broken(
        _copies(), step("share", "b", "a")
    ),
    "the source of shared copies is constant": Broken(
        _copies(of="t", between=_changed("t")), step("share", "a", "b")
    ),
    "shared copies have the same contents": Broken(
        _copies(second="3 - vk"), step("share", "a", "b")
    ),
    "fused axes are all spatial or all reduction axes": Broken(
        _SUMS, step("fuse_axes", "y", ["vi", "vk"])
    ),
    "reordered dimensions are a permutation": Broken(
        _TURN, step("permute_dims", "t", [0])
    ),
    "components of a state have the same indices": Broken(
        _LARGEST, step("permute_dims", "t", [1, 0])
    ),
    "groups partition the targets of one update": Broken(
        _placed("y[row] = y[row] - x[vp]\n            y[(row + 1) % 4] = x[vp]"),
        step("by_target", "add", 4),
    ),
    "a grouped update reads only its own target": Broken(
        _SCATTER, step("by_target", "add", 4)
    ),
}

_THIRDS: Final = """
def sums(x: f32[4, 3], y: Out[f32[4]]):
    for k in range(12):
        t = alloc(f32[1])
        with block("t", vk=spatial(12, k)):
            t[0] = x[vk // 3, vk % 3]
        for j in range(1):
            with block("y", wi=spatial(4, k // 3), wk=reduction(3, k % 3)):
                reduce(sum, y[wi], t[0])
"""
_FILLED: Final = "a stage is filled before it is used, and by nothing else"
_ORDER: Final = "iterations of a pipelined loop run in order"
_STAGED: Final = {
    _FILLED: BROKEN_WARPS[_FILLED].text,
    _ORDER: BROKEN_WARPS[_ORDER].text,
    "a stage is spatial or reduced in a block": _THIRDS,
}
_LAST: Final = """
def last(x: i32[6], y: Out[i32[1]]):
    for k in range(6):
        with block("y", vk=ordered(6, k)):
            y[0] = x[vk]
"""
_INDEPENDENT: Final = "parallel iterations are independent"
_FOLDS: Final = """reduce(sum, z[0], x[vp])
            y[row] = y[row] - x[vp]"""
_TWO: Final = """z[0] = x[vp] - z[0]
            y[row] = y[row] - x[vp]"""

# the same rules, as other primitives ask for them
BROKEN_AGAIN: Final[tuple[tuple[str, Broken], ...]] = (
    *((rule, Broken(text, step("pipeline", "k", 2))) for rule, text in _STAGED.items()),
    *(
        (rule, Broken(text, step("double_buffer", "k")))
        for rule, text in _STAGED.items()
    ),
    (_INDEPENDENT, Broken(_LAST, step("bind", "k", "thread.x"))),
    (_INDEPENDENT, Broken(_SUMS, step("bind", "k", "block.x"))),
    (
        "groups partition the targets of one update",
        Broken(_placed(_FOLDS), step("by_target", "add", 4)),
    ),
    (
        "a grouped update reads only its own target",
        Broken(_placed(_TWO), step("by_target", "add", 4, of="y")),
    ),
)
