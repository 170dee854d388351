"""Warp-level tensor intrinsics: their semantics as loops over lanes, and `mma` code.

Both are IR functions of the same parameters, whose loop over the 32 lanes is bound to
`thread.x`; a test compares them. In the semantics every lane reduces its own elements
of the tile from memory; in the implementation the lanes share their operands.

        mma_m16n16k16_bf16          c[i, j] += a[i, k] * b[j, k], contiguous along k
        mma_m16n16k16_bf16_at       a[k, i] instead
        mma_m16n16k16_bf16_ac       a[i, k], stored by columns: contiguous along i
        mma_m16n16k16_bf16_ar       a[i, k] in the lanes' registers, as sums are
        mma_m16n16k16_bf16_swapped  b[j, k] * a[i, k]
        mma_m16n16k16_bf16_wide     of 32 columns j, four of each eight: with two of
                                    these, each lane has eight neighbours, 16 bytes
        quad_sum, quad_top, quad_greatest_number
                                    c[i, l] is the sum or maximum of a[i, :], whose four
                                    elements are of four neighbouring lanes
"""

from __future__ import annotations

from functools import cache
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import f32
from tensorlang.ir.nodes import Var
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.tf32 import tf32
from tensorlang.scheduling.intrinsics.tensor import TensorIntrinsic

# the positions of a 16 x 16 result's elements in lanes: two neighbours of a row each
_ROW: Final = "p * 8 + lane // 4"
_COLUMN: Final = "q * 8 + lane % 4 * 2 + e"
_WIDE_COLUMN: Final = "lane % 4 * 8 + q * 2 + e"
# for a 16 x 16 operand, the row and the step from which each lane loads 8 steps
_ROWS: Final = {
    "a": ("lane % 16", "lane // 16 * 8"),
    "b": ("lane // 16 * 8 + lane % 8", "lane // 8 % 2 * 8"),
}
_WIDE_ROW: Final = "lane % 8 // 2 * 8 + lane // 16 * 2 + lane % 2"
# likewise, where each lane loads 8 rows of one step
_TURNED_ROWS: Final = {
    "a": ("lane // 8 % 2 * 8", "lane // 16 * 8 + lane % 8"),
    "b": ("lane // 16 * 8", "lane % 16"),
}


@frozen
class _Operand:
    """`a` or `b`: indexed [row, step], [step, row] (`t`), or stored by columns (`c`).

    `a` may be in registers (`r`), each lane with the elements that it multiplies: those
    of its sums, if these become an operand. `b` may have 32 rows, of which alternate
    ones are multiplied (`wide`).
    """

    name: str
    how: str
    wide: bool = False

    def at(self, row: str, step: str) -> str:
        """The text of an element."""
        indices = (step, row) if self.how == "t" else (row, step)
        return f"{self.name}[{', '.join(indices)}]"

    def fragment(self) -> str:
        """The text of a lane's fragment of a 16 x 16 operand of 16-bit elements."""
        if self.how == "r":
            own = [
                self.at(f"lane // 4 + {p * 8}", f"lane % 4 * 2 + {q * 8 + e}")
                for q in range(2)
                for p in range(2)
                for e in range(2)
            ]
            return f"shuffle(({', '.join(own)}), {tuple(range(len(own)))})"
        row, step = (_TURNED_ROWS if self.how else _ROWS)[self.name]
        row = _WIDE_ROW if self.wide else row
        if self.how:
            return f"ldmatrix_x4_trans({self.at(f'ramp({row}, 1, 8)', step)})"
        return f"ldmatrix_x4({self.at(row, f'ramp({step}, 1, 8)')})"

    def shape(self, depth: int) -> str:
        """The text of its shape."""
        rows = 32 if self.wide else 16
        return f"{depth}, {rows}" if self.how == "t" else f"{rows}, {depth}"


@frozen
class _Form:
    """An element type: its dtype, the steps of an instruction, the factors."""

    dtype: str
    depth: int
    factor: str


_FORMS: Final = {
    "bf16": _Form("bf16", 16, "cast(f32, {})"),
    "f16": _Form("f16", 16, "cast(f32, {})"),
    "tf32": _Form("f32", 8, show(tf32(Var("@", f32))).replace("@", "{}")),
}
_WAYS: Final = tuple(
    f"{a}{b}{swapped}"
    for a in ("", "_at", "_ac", "_ar")
    for b in ("", "_bt", "_bc", "_wide")
    for swapped in ("", "_swapped")
)
_NAMES: Final = {
    f"mma_m16n16k{form.depth}_{kind}{way}": (kind, way)
    for kind, form in _FORMS.items()
    for way in _WAYS
    if kind != "tf32" or not {"ac", "ar", "bc", "wide"} & set(way.split("_"))
}
# how four lanes reduce: the definition of the reducer, its name, and one step
_TOP: Final = """@reducer(commutative=True)
def top(a0: f32, b0: f32):
    identity(f32("-inf"))
    return select(a0 > b0, a0, b0)


"""
_GREATEST: Final = """@reducer(commutative=True)
def greatest_number(a0: f32, b0: f32):
    identity(f32("-inf"))
    return greater_number(a0, b0)


"""
_QUADS: Final = {
    "quad_sum": ("", "sum", "{a} + {b}"),
    "quad_top": (_TOP, "top", "select({a} > {b}, {a}, {b})"),
    "quad_greatest_number": (
        _GREATEST,
        "greatest_number",
        "greater_number({a}, {b})",
    ),
}
WARP_NAMES: Final = (*_NAMES, *_QUADS)


@cache
def warp_intrinsic(name: str) -> TensorIntrinsic:
    """The warp intrinsic of this name; ScheduleError if there is none."""
    if name not in WARP_NAMES:
        raise ScheduleError(
            f"{name!r} is not a warp intrinsic; these: {', '.join(WARP_NAMES)}"
        )
    if name in _QUADS:
        return _quad(name)
    kind, way = _NAMES[name]
    form, parts = _FORMS[kind], way.split("_")
    pair = [
        _Operand(
            side,
            next((p[1] for p in parts if p[:1] == side and len(p) == 2), ""),
            side == "b" and "wide" in parts,
        )
        for side in "ab"
    ]
    a, b = pair
    given = [f"{o.name}: {form.dtype}[{o.shape(form.depth)}]" for o in pair]
    head = f"def {name}(c: InOut[f32[16, {32 if b.wide else 16}]], {', '.join(given)}):"
    meaning = _meaning(head, pair[::-1] if "swapped" in parts else pair, form)
    loads = _rounded(a, b) if kind == "tf32" else _halves(a, b, form.dtype)
    call = f"mma_m16n8k{form.depth}_{kind}(wa, wb{{q}}, {{old}})"
    sums = _sums(call, wide=b.wide)
    how = f'{head}\n    for lane in bound(32, "thread.x"):\n{loads}{sums}'
    return TensorIntrinsic(name, parse(meaning), parse(how), ("mma", "ldmatrix"))


def _quad(name: str) -> TensorIntrinsic:
    """Each lane has what its quad of neighbours reduces, by two exchanges."""
    definition, reducer, step = _QUADS[name]
    head = f"def {name}(c: Out[f32[8, 4]], a: f32[8, 4]):"
    start = f'{head}\n    for lane in bound(32, "thread.x"):\n'
    meaning = f"""{definition}{start}        for k in range(4):
            with block(
                "quad",
                vi=spatial(8, lane // 4),
                vl=spatial(4, lane % 4),
                vk=reduction(4, k),
            ):
                reduce({reducer}, c[vi, vl], a[vi, vk])
"""
    at = "[lane // 4, lane % 4]"
    how, old = f"{start}        own: f32 = a{at}\n", "own"
    for distance in (1, 2):
        how += f"        other{distance}: f32 = shuffle_xor({old}, {distance})\n"
        value = step.format(a=old, b=f"other{distance}")
        how += f"        of{2 * distance}: f32 = {value}\n"
        old = f"of{2 * distance}"
    how += f"        c{at} = {old}\n"
    return TensorIntrinsic(name, parse(meaning), parse(how), ("shuffle",))


def _meaning(head: str, factors: list[_Operand], form: _Form) -> str:
    """Each lane reduces its 8 elements over k."""
    rows = {"a": "vi", "b": "vj"}
    wide = any(o.wide for o in factors)
    columns = f"32, {_WIDE_COLUMN}" if wide else f"16, {_COLUMN}"
    product = " * ".join(form.factor.format(o.at(rows[o.name], "vk")) for o in factors)
    return f"""{head}
    for lane in bound(32, "thread.x"):
        for p in range(2):
            for q in range(2):
                for e in range(2):
                    for k in range({form.depth}):
                        with block(
                            "mma",
                            vi=spatial(16, {_ROW}),
                            vj=spatial({columns}),
                            vk=reduction({form.depth}, k),
                        ):
                            with init():
                                pass
                            reduce(sum, c[vi, vj], {product})
"""


def _halves(a: _Operand, b: _Operand, dtype: str) -> str:
    """The fragments of 16-bit elements."""
    return f"""        wa: {dtype}x8 = {a.fragment()}
        wb: {dtype}x8 = {b.fragment()}
        wb0: {dtype}x4 = shuffle((wb,), (0, 1, 2, 3))
        wb1: {dtype}x4 = shuffle((wb,), (4, 5, 6, 7))
"""


def _rounded(a: _Operand, b: _Operand) -> str:
    """The fragments of f32 elements, one by one: the instruction rounds them itself."""
    row, step = "lane // 4 + {}", "lane % 4 + {}"
    own = [a.at(row.format(n % 2 * 8), step.format(n // 2 * 4)) for n in range(4)]
    text = f"        wa: f32x4 = shuffle(({', '.join(own)}), (0, 1, 2, 3))\n"
    for q in range(2):
        own = [b.at(row.format(q * 8), step.format(n * 4)) for n in range(2)]
        text += f"        wb{q}: f32x2 = shuffle(({', '.join(own)}), (0, 1))\n"
    return text


def _sums(call: str, *, wide: bool) -> str:
    """The 8 sums of a lane, by `call`: two products of 8 columns each."""
    text = ""
    for q in range(2):
        row, column = "lane // 4 + {}", f"lane % 4 * {8 if wide else 2} + {{}}"
        places = [
            f"c[{row.format(p * 8)}, {column.format(q * (2 if wide else 8) + e)}]"
            for p in range(2)
            for e in range(2)
        ]
        old = f"shuffle(({', '.join(places)}), (0, 1, 2, 3))"
        text += f"        d{q}: f32x4 = {call.format(q=q, old=old)}\n"
        for n, place in enumerate(places):
            text += f"        {place} = extract(d{q}, {n})\n"
    return text
