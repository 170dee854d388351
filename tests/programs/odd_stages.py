"""Stages of other forms: several results, loops in a block, a start set elsewhere."""

from __future__ import annotations

from tensorlang_test_programs.draft import Axes, Draft, size
from tensorlang_test_programs.values import computed

from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.dtypes import boolean
from tensorlang.ir.nodes import (
    Alloc,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Param,
    Reduce,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)


def several(draft: Draft, tag: str, *, last: bool) -> None:
    """Two results of one block, the second one perhaps transposed."""
    axes = Axes(draft, tag)
    places = axes.spatial(draft.shape(2))
    first, large = computed(draft, axes)
    second, larger = computed(draft, axes)
    turned = places[::-1] if draft.chance(2) else places
    extents = {axis.var: axis.extent for axis in axes.axes}
    one = draft.result(f"t{tag}", tuple(extents[v] for v in places), last=last)
    other = draft.result(f"o{tag}", tuple(extents[v] for v in turned), last=last)
    body = seq(Store(one, places, first), Store(other, turned, second))
    draft.done(axes.nest(body), one, large)
    draft.done(Seq(()), other, larger)


def inner_loop(draft: Draft, tag: str, *, last: bool) -> None:
    """A block whose body has a loop of its own."""
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    places = axes.spatial(shape)
    value, large = computed(draft, axes)
    count = draft.pick([1, 2, 3])
    along = Var(f"l{tag}")
    out = draft.result(f"t{tag}", (*shape, as_expr(count)), last=last)
    body = For(along, as_expr(count), "serial", Store(out, (*places, along), value))
    draft.done(axes.nest(body), out, large)


def set_before(draft: Draft, tag: str, *, last: bool) -> None:
    """A fold whose state is set by a nest of its own."""
    axes, before = Axes(draft, tag), Axes(draft, f"s{tag}")
    shape = draft.shape(2)
    places, starts = axes.spatial(shape), before.spatial(shape)
    start, first = computed(draft, before)
    folded = axes.folded()
    value, large = computed(draft, axes)
    name = "max" if draft.rounds(large * 200 + first) else draft.pick(["sum", "max"])
    reducer = builtin(name, (draft.dtype,))
    assert reducer is not None
    out = draft.result(f"t{tag}", shape, last=last)
    draft.stmts.append(before.nest(Store(out, starts, start)))
    update = Reduce(reducer, (out,), places, (value,))
    nest = axes.nest(update, init=Seq(()) if folded else None)
    draft.done(nest, out, max(first, large) if name == "max" else large * 200 + first)


def triangle(draft: Draft, tag: str, *, last: bool) -> None:
    """A fold of rows that grow: an extent that depends on the loop around."""
    axes = Axes(draft, tag)
    extent = draft.pick([e for e in draft.extents if isinstance(e, Const)])
    row, along = axes.add("spatial", extent, "i"), axes.add("reduction", extent, "k")
    value, large = computed(draft, axes)
    name = "max" if draft.rounds(large * size(extent)) else "sum"
    reducer = builtin(name, (draft.dtype,))
    assert reducer is not None
    out = draft.result(f"t{tag}", (extent,), last=last)
    del along
    body: Stmt = Block(
        f"b{tag}", tuple(axes.axes), Reduce(reducer, (out,), (row,), (value,))
    )
    (i, _), (k, _) = axes.loops
    body = For(i, extent, "serial", For(k, i + 1, "serial", body))
    draft.done(body, out, large * size(extent))


def flags(draft: Draft, tag: str, *, last: bool) -> None:
    """Truth values of comparisons, perhaps folded."""
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    places = axes.spatial(shape)
    folded = axes.folded() if draft.chance(2) else []
    (a, _), (b, _) = computed(draft, axes), computed(draft, axes)
    value: Expr = draft.pick([a < b, a.equal(b), ~(a <= b)])
    out = Buffer(f"t{tag}", boolean, shape)
    if last or draft.chance(3):
        draft.params.append(Param(out, "out"))
    else:
        draft.stmts.append(Alloc(out))
    body: Stmt = Store(out, places, value)
    if folded:
        reducer = builtin(draft.pick(["any", "all"]), (boolean,))
        assert reducer is not None
        body = Reduce(reducer, (out,), places, (value,))
    draft.done(axes.nest(body), out, 1)
