"""Stages with copies that agree, and with updates at places from data."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from tensorlang_test_programs.draft import ANY, Axes, Draft, size
from tensorlang_test_programs.values import computed

from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import (
    Alloc,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Param,
    Stmt,
    Store,
    Var,
    seq,
)


def twins(draft: Draft, tag: str, *, last: bool) -> None:
    """Two copies of a parameter, most often the same, and a result of both."""
    given, draft.dtype = draft.sources[0].buffer, draft.sources[0].buffer.dtype
    order = draft.draw(st.permutations(range(given.ndim)))
    held = [_copy(draft, f"{name}{tag}", given, order) for name in "sr"]
    axes = Axes(draft, tag)
    places = axes.spatial(given.shape)
    out = draft.result(f"t{tag}", given.shape, last=last)
    value = Binary("sub", Load(held[0], places) * 2, Load(held[1], places))
    large = ANY if given.dtype.is_integer else 16
    draft.done(axes.nest(Store(out, places, value)), out, large)


def _copy(draft: Draft, name: str, given: Buffer, order: Sequence[int]) -> Buffer:
    """A temporary that is filled from a parameter; its values are below 6."""
    held = Buffer(name, given.dtype, given.shape)
    axes = Axes(draft, name)
    places = axes.spatial(given.shape)
    value: Expr = Load(given, places)
    if draft.chance(6):
        value = value + 1
    nest: Stmt = Block(f"b{name}", tuple(axes.axes), Store(held, places, value))
    for number in order:
        var, extent = axes.loops[number]
        nest = For(var, extent, "serial", nest)
    draft.stmts += [Alloc(held), nest]
    return held


def placed(draft: Draft, tag: str, *, last: bool) -> None:
    """Places from data changed one after the other, in an order that matters."""
    del last
    axes = Axes(draft, tag)
    into = draft.pick([e for e in draft.extents if isinstance(e, Const)])
    rows, width = draft.pick(draft.extents), draft.pick(draft.extents)
    row = axes.add("ordered", rows, "p")
    column = axes.add("spatial", width, "j")
    value, large = computed(draft, axes)
    at = Buffer(f"at{tag}", i64, (rows,))
    held = Buffer(f"u{tag}", draft.dtype, (into, width))
    draft.params += [Param(at, "in"), Param(held, "inout")]
    place = Var(f"h{tag}", i64)
    before = Load(held, (place, column))
    grown = value - before
    if large * size(rows) > draft.limit // 2:
        grown = Binary("max", before, value)
    body: Stmt = Store(held, (place, column), grown)
    if draft.chance(3):
        body = If(place >= 1, body)
    draft.stmts.append(axes.nest(seq(Let(place, Load(at, (row,)) % into), body)))
