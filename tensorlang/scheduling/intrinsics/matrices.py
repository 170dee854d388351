"""The loop nests of matrix product instructions, and their form on vectors."""

from __future__ import annotations

from typing import Final

from tensorlang.instructions import MatrixProduct

HEIGHTS: Final = (16, 8, 4, 2, 1)
LAYOUTS: Final = ("columns", "rows", "strips")


def matrix_name(row: MatrixProduct, height: int, layout: str) -> str:
    """The name of a tile's tensor intrinsic."""
    return f"{row.name}_{height}_{layout}"


def nests(name: str, row: MatrixProduct, height: int, layout: str) -> tuple[str, str]:
    """`c[m, l] += x[m, k] * w[k, l]` for all `k`, as loops and as an instruction.

    Args:
        name: The name of both functions.
        row: The instruction.
        height: Rows of the tile.
        layout: How the second operand `w`, interleaved as (k // group, l, k % group),
            is indexed: (k, l) for `columns`, (l, k) for `rows`, (k // group, the rest)
            for `strips`.
    """
    lanes, steps, group, depth = row.lanes, row.steps, row.group, row.depth
    wide = lanes * group
    every = f"ramp(0, 1, {depth * lanes})"

    def over(op: str, number: int) -> str:
        return f"{every} {op} splat({number}, {depth * lanes})"

    column = f"{over('%', wide)} // splat({group}, {depth * lanes})"
    k = f"{over('//', wide)} * splat({group}, {depth * lanes}) + {over('%', group)}"
    shape, at, taken = {
        "columns": (f"{depth}, {lanes}", f"vs * {group} + vp, vl", f"{k}, {column}"),
        "rows": (f"{lanes}, {depth}", f"vl, vs * {group} + vp", f"{column}, {k}"),
        "strips": (
            f"{steps}, {wide}",
            f"vs, vl * {group} + vp",
            f"{over('//', wide)}, {over('%', wide)}",
        ),
    }[layout]
    head = (
        f"def {name}(c: InOut[{row.sums}[{height}, {lanes}]], "
        f"x: {row.a}[{height}, {depth}], w: {row.b}[{shape}]):\n"
    )
    meaning = f"""
    for m in range({height}):
        for l in range({lanes}):
            for s in range({steps}):
                for p in range({group}):
                    with block("dot", vm=spatial({height}, m), vl=spatial({lanes}, l),
                               vs=reduction({steps}, s), vp=reduction({group}, p)):
                        with init():
                            pass
                        reduce(sum, c[vm, vl],
                            cast({row.sums}, x[vm, vs * {group} + vp])
                            * cast({row.sums}, w[{at}]))
"""
    sums, left = tile(height, lanes), tile(height, depth)
    vectors = f"    c[{sums}] = {row.name}(c[{sums}], x[{left}], w[{taken}])\n"
    return head + meaning, head + vectors


def tile(height: int, lanes: int) -> str:
    """The indices of the elements of a tile, row by row."""
    count = height * lanes
    every, wide = f"ramp(0, 1, {count})", f"splat({lanes}, {count})"
    return f"{every} // {wide}, {every} % {wide}"


def zeros(name: str, dtype: str, height: int, lanes: int) -> tuple[str, str]:
    """`c[m, l] = 0`, as loops and on a tile."""
    zero = "0.0" if dtype == "f32" else f"{dtype}(0)"
    head = f"def {name}(c: Out[{dtype}[{height}, {lanes}]]):\n"
    vectors = f"    c[{tile(height, lanes)}] = splat({zero}, {height * lanes})\n"
    return head + _each(height, lanes, zero), head + vectors


def copies(name: str, dtype: str, height: int, lanes: int) -> tuple[str, str]:
    """`c[m, l] = a[m, l]`, as loops and on a tile; copies have no loop over one row."""
    kind, place = f"{dtype}[{height}, {lanes}]", tile(height, lanes)
    head = f"def {name}(a: {kind}, c: Out[{kind}]):\n"
    vectors = f"    c[{place}] = a[{place}]\n"
    if height > 1:
        return head + _each(height, lanes, "a[vm, vl]"), head + vectors
    row = f"""
    for l in range({lanes}):
        with block("tile", vl=spatial({lanes}, l)):
            c[0, vl] = a[0, vl]
"""
    return head + row, head + vectors


def _each(height: int, lanes: int, value: str) -> str:
    """Loops over the elements `c` of a tile."""
    return f"""
    for m in range({height}):
        for l in range({lanes}):
            with block("tile", vm=spatial({height}, m), vl=spatial({lanes}, l)):
                c[vm, vl] = {value}
"""
