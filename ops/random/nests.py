"""Loop nests that compute one hash per iteration and write all its elements.

for j in range(n // 2):                       tail: for t in range(n % 2):
    with block("out", vj=spatial(...)):           with block("out_tail", ...):
        h0, h1 = hash(key, vj)                         h0, h1 = hash(key, n // 2)
        out[vj * 2] = element(h0)                      out[n // 2 * 2 + vt] = ...
        out[vj * 2 + 1] = element(h1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ir.definitions import nests
from tensorlang.ir.simplification import sharing

Elements: TypeAlias = Callable[[ir.Expr, tuple[ir.Expr, ...]], Sequence[ir.Expr]]
Value: TypeAlias = Callable[..., ir.Expr]


@frozen
class Nest:
    """The computation of an elementwise random kernel.

    `elements(index of the hash, leading indices)` gives the raw bits of one hash,
    `value(bits, *inputs)` the output element. `rows` holds the extents of the axes
    before the element axis: the batch of keys. `count` is the number of elements, or,
    if `by_rows`, of hashes: each then fills a row of `out` of `per_hash` columns.
    `axis` names the loop over single elements or rows.
    """

    out: ir.Buffer
    rows: tuple[ir.Expr, ...]
    count: ir.Expr
    per_hash: int
    elements: Elements
    value: Value
    inputs: tuple[ir.Buffer, ...] = ()
    by_rows: bool = False
    axis: str = "i"


def statements(nest: Nest) -> ir.Stmt:
    """The nest over whole hashes, and one for the remaining elements."""
    if nest.per_hash == 1 or nest.by_rows:
        return _nest(nest, nest.out.name, nest.axis, nest.count, _whole)
    hashes = nest.count // nest.per_hash
    rest = nest.count % nest.per_hash
    return ir.seq(
        _nest(nest, nest.out.name, "j", hashes, _whole),
        _nest(nest, f"{nest.out.name}_tail", "t", rest, _left_over),
    )


# indices of an element, after the leading ones, and its bits
_Drawn: TypeAlias = "tuple[tuple[ir.Expr, ...], ir.Expr]"
_Body: TypeAlias = "Callable[[Nest, ir.Expr, tuple[ir.Expr, ...]], list[_Drawn]]"


def _whole(nest: Nest, index: ir.Expr, rows: tuple[ir.Expr, ...]) -> list[_Drawn]:
    """All elements of hash `index`."""
    bits = nest.elements(index, rows)
    if nest.by_rows:
        return [((index, ir.as_expr(lane)), b) for lane, b in enumerate(bits)]
    base = index * nest.per_hash if nest.per_hash > 1 else index
    return [((base + lane if lane else base,), b) for lane, b in enumerate(bits)]


def _left_over(nest: Nest, index: ir.Expr, rows: tuple[ir.Expr, ...]) -> list[_Drawn]:
    """Element `index` of the last, partially used hash."""
    last = nest.count // nest.per_hash
    *others, chosen = nest.elements(last, rows)
    for lane in reversed(range(len(others))):
        chosen = ir.Select(index.equal(lane), others[lane], chosen)
    return [((last * nest.per_hash + index,), chosen)]


def _nest(nest: Nest, name: str, axis: str, extent: ir.Expr, body: _Body) -> ir.Stmt:
    row = "tb" if axis == "t" else "b"
    axes = [
        nests.axis(f"{row}{n}" if n else row, size) for n, size in enumerate(nest.rows)
    ]
    axes.append(nests.axis(axis, extent))
    *rows, index = (each.var for each in axes)
    taken = {nest.out.name, *(each.var.name for each in axes)}
    taken |= {each.var.name[1:] for each in axes}  # the loops
    taken |= {buffer.name for buffer in nest.inputs}
    with sharing.labelling() as labels:
        drawn = body(nest, index, tuple(rows))
        block = _stores(nest, tuple(rows), drawn, labels, taken)
    return nests.nest(name, axes, block)


def _stores(
    nest: Nest,
    rows: tuple[ir.Expr, ...],
    drawn: Sequence[_Drawn],
    labels: sharing.Labels,
    taken: set[str],
) -> ir.Stmt:
    """The body: common subexpressions as lets, then a store for each element."""
    loads: dict[ir.Var, ir.Expr] = {}
    places, values = [], []
    for at, bits in drawn:
        place = (*rows, *at)
        given = []
        for buffer in nest.inputs:
            # a placeholder for the load, so that its indices are not split into lets
            stand_in = ir.Var(ir.visit.fresh(f"{buffer.name}_at", taken), buffer.dtype)
            loads[stand_in] = ir.Load(buffer, place)
            given.append(stand_in)
        places.append(place)
        values.append(nest.value(bits, *given))
    lets, results = sharing.lets(values, labels, taken)
    stores = (
        ir.Store(nest.out, place, value)
        for place, value in zip(places, results, strict=True)
    )
    return ir.visit.substitute(ir.seq(lets, stores), loads)
