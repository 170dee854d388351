"""Instructions of a warp on tiles: what each means, as loops of its lanes, and how.

Both sides are IR functions of the same parameters, whose loop over the 32 lanes is
bound to `thread.x`; a test runs both. In the meaning every lane folds its own elements
of the tile from memory; in the implementation the lanes bring their operands together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.dtypes import f32
from tensorlang.ir.nodes import Var
from tensorlang.ir.parser import parse
from tensorlang.ir.printer import show
from tensorlang.ir.tf32 import tf32
from tensorlang.scheduling.tensor_intrinsics import TensorIntrinsic

# where the elements of a 16 by 16 result lie in lanes: two of a row side by side
_ROW: Final = "p * 8 + lane // 4"
_COLUMN: Final = "q * 8 + lane % 4 * 2 + e"
# the rows that lanes load of an operand whose rows run along k, and along the other way
_A: Final = {
    "": "ldmatrix_x4(a[lane % 16, ramp(lane // 16 * 8, 1, 8)])",
    "t": "ldmatrix_x4_trans(a[lane // 16 * 8 + lane % 8, "
    "ramp(lane // 8 % 2 * 8, 1, 8)])",
}
_B: Final = {
    "": "ldmatrix_x4(b[lane // 16 * 8 + lane % 8, ramp(lane // 8 % 2 * 8, 1, 8)])",
    "t": "ldmatrix_x4_trans(b[lane % 16, ramp(lane // 16 * 8, 1, 8)])",
}


# what a product is of: narrow numbers made wide, or f32 rounded to tf32
_WIDE: Final = "cast(f32, {})"
_ROUNDED: Final = show(tf32(Var("@", f32))).replace("@", "{}")


def _meaning(head: str, a: str, b: str, depth: int, form: str) -> str:
    """Each lane folds its 8 elements over k, from operands read as given."""
    x, w = (form.format(load) for load in (a, b))
    return f"""{head}
    for lane in bound(32, "thread.x"):
        for p in range(2):
            for q in range(2):
                for e in range(2):
                    for k in range({depth}):
                        with block(
                            "mma",
                            vi=spatial(16, {_ROW}),
                            vj=spatial(16, {_COLUMN}),
                            vk=reduction({depth}, k),
                        ):
                            with init():
                                pass
                            reduce(sum, c[vi, vj], {x} * {w})
"""


def _sums(call: str) -> str:
    """The 8 sums of a lane, by `call`: two products of 8 columns each."""
    text = ""
    for q in range(2):
        row, column = "lane // 4 + {}", "lane % 4 * 2 + {}"
        places = [
            f"c[{row.format(p * 8)}, {column.format(q * 8 + e)}]"
            for p in range(2)
            for e in range(2)
        ]
        old = f"shuffle(({', '.join(places)}), (0, 1, 2, 3))"
        text += f"        d{q}: f32x4 = {call.format(q=q, old=old)}\n"
        for n, place in enumerate(places):
            text += f"        {place} = extract(d{q}, {n})\n"
    return text


def _halves(name: str) -> TensorIntrinsic:
    """`mma_m16n16k16_bf16_at_bt`: at stands for a[k, i], bt for b[k, j]."""
    _, _, dtype, *turned = name.split("_")
    a_turned, b_turned = "at" in turned, "bt" in turned
    head = f"def {name}(c: InOut[f32[16, 16]], a: {dtype}[16, 16], b: {dtype}[16, 16]):"
    a = "a[vk, vi]" if a_turned else "a[vi, vk]"
    b = "b[vk, vj]" if b_turned else "b[vj, vk]"
    meaning = _meaning(head, a, b, 16, _WIDE)
    call = f"mma_m16n8k16_{dtype}(wa, wb{{q}}, {{old}})"
    how = f"""{head}
    for lane in bound(32, "thread.x"):
        wa: {dtype}x8 = {_A["t" if a_turned else ""]}
        wb: {dtype}x8 = {_B["t" if b_turned else ""]}
        wb0: {dtype}x4 = shuffle((wb,), (0, 1, 2, 3))
        wb1: {dtype}x4 = shuffle((wb,), (4, 5, 6, 7))
{_sums(call)}"""
    return TensorIntrinsic(name, parse(meaning), parse(how), ("mma", "ldmatrix"))


def _single(name: str) -> TensorIntrinsic:
    """`mma_m16n16k8_tf32`: as `_halves`, of f32 that is rounded to tf32."""
    _, _, _, *turned = name.split("_")
    head = f"def {name}(c: InOut[f32[16, 16]], a: f32[{{}}], b: f32[{{}}]):"
    a_turned, b_turned = "at" in turned, "bt" in turned
    head = head.format(
        "8, 16" if a_turned else "16, 8", "8, 16" if b_turned else "16, 8"
    )

    def a(i: str, k: str) -> str:
        return f"a[{k}, {i}]" if a_turned else f"a[{i}, {k}]"

    def b(j: str, k: str) -> str:
        return f"b[{k}, {j}]" if b_turned else f"b[{j}, {k}]"

    meaning = _meaning(head, a("vi", "vk"), b("vj", "vk"), 8, _ROUNDED)
    rows = [a(f"lane // 4 + {n % 2 * 8}", f"lane % 4 + {n // 2 * 4}") for n in range(4)]
    columns = [
        [b(f"lane // 4 + {q * 8}", f"lane % 4 + {n * 4}") for n in range(2)]
        for q in range(2)
    ]
    call = "mma_m16n8k8_tf32(wa, wb{q}, {old})"
    how = f"""{head}
    for lane in bound(32, "thread.x"):
        wa: f32x4 = shuffle(({", ".join(rows)}), (0, 1, 2, 3))
        wb0: f32x2 = shuffle(({", ".join(columns[0])}), (0, 1))
        wb1: f32x2 = shuffle(({", ".join(columns[1])}), (0, 1))
{_sums(call)}"""
    return TensorIntrinsic(name, parse(meaning), parse(how), ("mma",))


_TURNED: Final = ("", "_at", "_bt", "_at_bt")
_MAKERS: Final[dict[str, Callable[[str], TensorIntrinsic]]] = {
    **{f"mma_m16n16k16_{t}{end}": _halves for t in ("bf16", "f16") for end in _TURNED},
    **{f"mma_m16n16k8_tf32{end}": _single for end in _TURNED},
}
WARP_NAMES: Final = tuple(_MAKERS)


@cache
def warp_intrinsic(name: str) -> TensorIntrinsic:
    """The instruction of a warp of this name.

    Raises:
        ScheduleError: there is none.
    """
    if name not in _MAKERS:
        known = ", ".join(WARP_NAMES)
        raise ScheduleError(f"{name!r} is no instruction of a warp; these: {known}")
    return _MAKERS[name](name)
