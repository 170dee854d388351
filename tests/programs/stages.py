"""The stages that random nests are made of, one function each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st
from tensorlang_test_programs.chains import attention, epilogue, means, product, softmax
from tensorlang_test_programs.draft import Axes, Draft, size
from tensorlang_test_programs.further_stages import placed, twins
from tensorlang_test_programs.odd_stages import (
    flags,
    inner_loop,
    set_before,
    several,
    triangle,
)
from tensorlang_test_programs.shared_states import named, running, together
from tensorlang_test_programs.tiles import staged, tile
from tensorlang_test_programs.values import begun, computed, converted

from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.nodes import (
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Param,
    Reduce,
    Reducer,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from tensorlang.ir.visit import substitute


def _map(draft: Draft, tag: str, *, last: bool) -> None:
    """Every element of a new buffer from a few others; perhaps with a `Let`."""
    axes = Axes(draft, tag)
    places = axes.spatial(draft.shape(3))
    value, large = computed(draft, axes)
    order = draft.draw(st.permutations(list(zip(places, axes.axes, strict=True))))
    out = draft.result(f"t{tag}", tuple(a.extent for _, a in order), last=last)
    indices = tuple(var for var, _ in order)
    body: Stmt = Store(out, indices, value)
    if draft.chance(3) and large <= draft.limit // 4:
        let = Var(f"h{tag}", draft.dtype)
        body = seq(Let(let, value), Store(out, indices, let + let))
        large *= 2
    draft.done(axes.nest(body), out, large)


def _again(draft: Draft, tag: str, *, last: bool) -> None:
    """Every element of the latest result made again, at its own place."""
    held = draft.latest
    if held is None:
        return _map(draft, tag, last=last)
    axes = Axes(draft, tag)
    places = axes.spatial(held.buffer.shape)
    value, large = converted(draft, Load(held.buffer, places), held.largest)
    out = draft.result(f"t{tag}", held.buffer.shape, last=last)
    return draft.done(axes.nest(Store(out, places, value + 1)), out, large + 1)


def _fold(draft: Draft, tag: str, *, last: bool) -> None:
    """A sum (of products), a minimum or a maximum; perhaps with an init of its own."""
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    places = axes.spatial(shape)
    start, first = computed(draft, axes)
    folded = axes.folded()
    value, large = computed(draft, axes)
    count = math.prod(size(a.extent) for a in axes.axes if a.var in folded)
    names = ["sum", "sum", "max", "min"]
    if draft.rounds(large * count):
        names = ["max", "min"]
    if draft.dtype.is_integer:
        names += ["xor", "prod"]
    name = draft.pick(names)
    reducer = builtin(name, (draft.dtype,))
    assert reducer is not None
    out = draft.result(f"t{tag}", shape, last=last)
    if not folded:
        return draft.done(axes.nest(Store(out, places, value)), out, large)
    own = Store(out, places, begun(reducer, start))
    init = own if draft.chance(3) else None
    nest = axes.nest(Reduce(reducer, (out,), places, (value,)), init=init)
    grown = large * count if name == "sum" else large
    return draft.done(nest, out, grown if init is None else grown + first)


def _where_largest(draft: Draft, tag: str, *, last: bool) -> None:
    """argmax or argmin over one axis: a state of two components."""
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    places = axes.spatial(shape)
    extent = draft.pick(draft.extents)
    at = axes.add("reduction", extent, "k")
    value, large = computed(draft, axes)
    reducer = builtin(draft.pick(["argmax", "argmin"]), (draft.dtype, i64))
    assert reducer is not None
    out = draft.result(f"t{tag}", shape, last=last)
    where = Buffer(f"p{tag}", i64, shape)
    draft.params.append(Param(where, "out"))
    body = Reduce(reducer, (out, where), places, (value, at))
    draft.done(axes.nest(body), out, large)


def _last_of(dtype: DType) -> Reducer:
    """A reducer that does not commute: the last value that is not 0."""
    a, b = Var("a", dtype), Var("b", dtype)
    zero = Const(0, dtype)
    keep = Select(b.equal(zero), a, b)
    return Reducer("last", (a,), (b,), (zero,), (keep,), commutative=False)


def _last(draft: Draft, tag: str, *, last: bool) -> None:
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    places = axes.spatial(shape)
    folded = axes.folded()
    value, large = computed(draft, axes)
    out = draft.result(f"t{tag}", shape, last=last)
    body: Stmt = Reduce(_last_of(draft.dtype), (out,), places, (value,))
    if not folded:
        body = Store(out, places, value)
    draft.done(axes.nest(body), out, large)


def _scan(draft: Draft, tag: str, *, last: bool) -> None:
    """Running maxima or differences along an ordered axis."""
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    *rows, along = shape
    places = axes.spatial(tuple(rows))
    step = axes.add("ordered", along, "o")
    value, large = computed(draft, axes)
    out = draft.result(f"t{tag}", shape, last=last)
    before = Load(out, (*places, step - 1))
    grown: Expr = Binary("max", before, value)
    if large * size(along) <= draft.limit // 2:
        grown, large = value - before, large * size(along)
    body = If(
        step.equal(0),
        Store(out, (*places, step), value),
        Store(out, (*places, step), grown),
    )
    draft.done(axes.nest(body), out, large)


def _update(draft: Draft, tag: str, *, last: bool) -> None:
    """A parameter changed in place: by a store, or folded into; perhaps guarded."""
    del last
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    places = axes.spatial(shape)
    value, _ = computed(draft, axes)
    held = draft.param(f"u{tag}", "inout", shape)
    total = builtin("max", (draft.dtype,))
    assert total is not None
    body: Stmt = Store(held.buffer, places, Load(held.buffer, places) - value)
    if draft.chance(2):
        body = Reduce(total, (held.buffer,), places, (value,))
    draft.stmts.append(axes.nest(body, where=_guard(draft, axes)))


def _guard(draft: Draft, axes: Axes) -> Expr | None:
    """A condition on the loops of a stage."""
    (a, extent), (b, _) = axes.loops[0], axes.loops[-1]
    options = [None, a < size(extent) - 1, a <= b, (a + b) % 2 < 1, a >= 1]
    chosen: Expr | None = draft.pick(options)
    return chosen


def _guarded(draft: Draft, tag: str, *, last: bool) -> None:
    """An output that is written here and there."""
    del last
    axes = Axes(draft, tag)
    shape = draft.shape(2)
    places = axes.spatial(shape)
    value, _ = computed(draft, axes)
    out = Buffer(f"t{tag}", draft.dtype, shape)
    draft.params.append(Param(out, "out"))
    draft.stmts.append(axes.nest(Store(out, places, value), _guard(draft, axes)))


def _scatter(draft: Draft, tag: str, *, last: bool) -> None:
    """Rows put where data says: an opaque axis."""
    del last
    axes = Axes(draft, tag)
    into = draft.pick([e for e in draft.extents if isinstance(e, Const)])
    rows, width = draft.pick(draft.extents), draft.pick(draft.extents)
    row = axes.add("opaque", rows, "r")
    column = axes.add("spatial", width, "j")
    value, large = computed(draft, axes)
    at = Buffer(f"at{tag}", i64, (rows,))
    held = Buffer(f"u{tag}", draft.dtype, (into, width))
    draft.params += [Param(at, "in"), Param(held, "inout")]
    name = "max" if draft.rounds(large * size(rows)) else "sum"
    total = builtin(name, (draft.dtype,))
    assert total is not None
    target = (Load(at, (row,)) % into, column)
    draft.stmts.append(axes.nest(Reduce(total, (held,), target, (value,))))


def _plain(draft: Draft, tag: str, *, last: bool) -> None:
    """Loops around a store, without a block."""
    axes = Axes(draft, tag)
    places = axes.spatial(draft.shape(2))
    value, large = computed(draft, axes)
    shape = tuple(axis.extent for axis in axes.axes)
    out = draft.result(f"t{tag}", shape, last=last)
    nest = axes.nest(Seq(()))
    loops = dict(zip(places, (loop for loop, _ in axes.loops), strict=True))
    draft.done(_unblocked(nest, Store(out, places, value), loops), out, large)


def _unblocked(nest: Stmt, body: Stmt, loops: dict[Var, Var]) -> Stmt:
    if isinstance(nest, For):
        inner = _unblocked(nest.body, body, loops)
        return For(nest.var, nest.extent, nest.kind, inner)
    return substitute(body, loops)


STAGES: Final[tuple[Callable[..., None], ...]] = (
    *(_map, _map, _map, _map, _fold, _fold, _fold, _fold),
    *(
        _again,
        _again,
        _where_largest,
        _last,
        _scan,
        _update,
        _guarded,
        _scatter,
        _plain,
    ),
    *(placed, twins, twins, staged, tile, tile),
    *(several, inner_loop, set_before, triangle, flags),
    *(running, running, together, together, named),
    *(product, product, epilogue, softmax, attention, means),
)
