"""The loop nests of dot product instructions, and their form on vectors."""

from __future__ import annotations

from typing import Final

from tensorlang.instructions import DotProduct

SIGN: Final = 128  # the bit that is the sign of an i8
FLIPPED: Final = "_flipped"
LAYOUTS: Final = (
    *("columns", "rows", "strips", "along"),
    *("strips_flipped", "along_flipped"),
)


def dot_name(row: DotProduct, x: str, layout: str) -> str:
    """The name of a row's tensor intrinsic for a first operand of type `x`."""
    return f"{row.name}_{x}_{layout}"


def layouts(row: DotProduct, x: str) -> tuple[str, ...]:
    """The layouts that a row has for a first operand of type `x`."""
    flips = {row.a, row.b} == {"u8", "i8"} and x == "i8"
    return LAYOUTS if flips else LAYOUTS[:4]


def nests(name: str, row: DotProduct, x: str, layout: str) -> tuple[str, str]:
    """`c[l] += x[0] * w[0, l] + x[1] * w[1, l] + ...`, as loops and as an instruction.

    Args:
        name: The name of both functions.
        row: The instruction.
        x: Type of the first operand; the second has the row's other one.
        layout: How the second operand `w`, interleaved as (k // group, l, k % group),
            is indexed: (k, l) for `columns`, (l, k) for `rows`, in one dimension for
            `strips`; each lane multiplies the same group of `x`. With `along`, each has
            its own group of both, and these are contiguous. Those that end in
            `_flipped` take signed bytes of `w`, and add 128 to them.
    """
    lanes, group = row.lanes, row.group
    every, w = lanes * group, row.b if x == row.a else row.a
    column, part = (
        f"ramp(0, 1, {every}) {op} splat({group}, {every})" for op in ("//", "%")
    )
    along, flipped = layout.startswith("along"), layout.endswith(FLIPPED)
    count = every if along else group
    at_x = f"vl * {group} + vp" if along else "vp"
    shape, at, taken = {
        "columns": (f"{group}, {lanes}", "vp, vl", f"{part}, {column}"),
        "rows": (f"{lanes}, {group}", "vl, vp", f"{column}, {part}"),
        "strips": (f"{every}", f"vl * {group} + vp", f"ramp(0, 1, {every})"),
        "along": (f"{every}", at_x, f"ramp(0, 1, {every})"),
    }[layout.removesuffix(FLIPPED)]
    sums, held = row.sums, row.b if flipped else w
    factor, vector = f"w[{at}]", f"w[{taken}]"
    if flipped:
        factor = f"cast({w}, {factor}) ^ {w}({SIGN})"
        vector = f"cast({w}x{every}, {vector}) ^ splat({w}({SIGN}), {every})"
    head = (
        f"def {name}(c: InOut[{sums}[{lanes}]], x: {x}[{count}], w: {held}[{shape}]):\n"
    )
    meaning = f"""
    for l in range({lanes}):
        for p in range({group}):
            with block("dot", vl=spatial({lanes}, l), vp=reduction({group}, p)):
                with init():
                    pass
                reduce(sum, c[vl], cast({sums}, x[{at_x}]) * cast({sums}, {factor}))
"""
    of_x = _parts("u", row, 0 if count == group else group)
    of_w = _parts("v", row, group)
    a, b = (of_x, of_w) if x == row.a else (of_w, of_x)
    vectors = f"""
    u: {x}x{count} = x[ramp(0, 1, {count})]
    v: {w}x{every} = {vector}
    c[ramp(0, 1, {lanes})] = {row.name}(c[ramp(0, 1, {lanes})], {a}, {b})
"""
    return head + meaning, head + vectors


def _parts(vector: str, row: DotProduct, apart: int) -> str:
    """The factors of each part of a group: lane `l` of part `p` is `l * apart + p`."""
    taken = (
        ", ".join(str(lane * apart + part) for lane in range(row.lanes))
        for part in range(row.group)
    )
    return ", ".join(f"shuffle(({vector},), ({lanes}))" for lanes in taken)
