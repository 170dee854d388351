"""Stages of states that are seen or changed by others: partial sums, folds together."""

from __future__ import annotations

import math

from tensorlang_test_programs.draft import Axes, Draft, size
from tensorlang_test_programs.values import begun, computed

from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import (
    Alloc,
    Axis,
    Buffer,
    Const,
    For,
    Let,
    Load,
    Reduce,
    Reducer,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)


def _reducer(name: str, dtype: DType) -> Reducer:
    found = builtin(name, (dtype,))
    assert found is not None
    return found


def running(draft: Draft, tag: str, *, last: bool) -> None:
    """Partial results, each read as soon as it is made, in the loop that folds."""
    rows, along = Axes(draft, tag), Axes(draft, f"s{tag}")
    shape, loop = draft.shape(1), Var(f"q{tag}")
    extent = draft.pick([e for e in draft.extents if isinstance(e, Const)])
    places, there = rows.spatial(shape), along.spatial(shape)
    step, at = Var(f"vq{tag}"), Var(f"vw{tag}")
    rows.axes.append(Axis(step, "reduction", extent, loop))
    value, large = computed(draft, rows)
    name = "max" if draft.rounds(large * size(extent)) else draft.pick(["sum", "max"])
    state = Buffer(f"r{tag}", draft.dtype, shape)
    folded = rows.nest(Reduce(_reducer(name, draft.dtype), (state,), places, (value,)))
    draft.stmts.append(Alloc(state))
    if draft.chance(3):  # a fold of what is folded so far
        along.axes.append(Axis(at, "reduction", extent, loop))
        out = draft.result(f"t{tag}", shape, last=last)
        seen: Stmt = Reduce(
            _reducer("max", draft.dtype), (out,), there, (Load(state, there),)
        )
    else:
        along.axes.append(Axis(at, "spatial", extent, loop))
        out = draft.result(f"t{tag}", (extent, *shape), last=last)
        seen = Store(out, (at, *there), Load(state, there))
    nest = For(loop, extent, "serial", seq(folded, along.nest(seen)))
    draft.done(nest, out, large * size(extent))


def together(draft: Draft, tag: str, *, last: bool) -> None:
    """Two states of one block: both folded, perhaps with a start of their own."""
    axes = Axes(draft, tag)
    places = axes.spatial(draft.shape(1))
    start, first = computed(draft, axes)
    folded = axes.folded()
    value, large = computed(draft, axes)
    count = math.prod(size(a.extent) for a in axes.axes if a.var in folded)
    grown = large * count + first
    names = ["max", "min"] if draft.rounds(grown) else ["sum", "max"]
    shape = tuple(axis.extent for axis in axes.axes[: len(places)])
    outs = [draft.result(f"{c}{tag}", shape, last=last) for c in "to"]
    if folded:
        updates: list[Stmt] = [
            Reduce(_reducer(name, draft.dtype), (out,), places, (value,))
            for name, out in zip(names, outs, strict=True)
        ]
    else:
        updates = [Store(out, places, value) for out in outs]
    starts = [
        Store(out, places, begun(_reducer(name, draft.dtype), start))
        for name, out in zip(names, outs, strict=True)
    ]
    init = seq(*starts) if folded and draft.chance(2) else None
    draft.done(axes.nest(seq(*updates), init=init), outs[0], grown)


def named(draft: Draft, tag: str, *, last: bool) -> None:
    """A value that is named outside of all loops, and a stage that uses it."""
    given = draft.sources[0]
    draft.dtype = given.buffer.dtype
    let = Var(f"n{tag}", draft.dtype)
    first = tuple(as_expr(0) for _ in given.buffer.shape)
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    places = axes.spatial(shape)
    value, large = computed(draft, axes)
    if any(not isinstance(extent, Const) for extent in given.buffer.shape):
        first = ()  # which may be empty
    out = draft.result(f"t{tag}", shape, last=last)
    if first:
        draft.stmts.append(Let(let, Load(given.buffer, first)))
        value, large = value + let, large + given.largest
    draft.done(axes.nest(Store(out, places, value)), out, large)
