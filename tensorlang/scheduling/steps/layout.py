"""`transform_layout`: map a temporary's indices to memory addresses."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import TypeAlias

from tensorlang.errors import ParseError, ScheduleError
from tensorlang.ir.contents import allocations
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import Slice, linear, slice_of
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.nodes import Buffer, Const, Function, IndexMap, Var, as_expr
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.layouts import MAX_EXHAUSTIVE, layout_fault
from tensorlang.ir.visit import replace_buffers
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.tree import find_buffer
from tensorlang.scheduling.primitives import primitive

Layout: TypeAlias = IndexMap | Callable[..., object] | str


def index_map(given: Layout, ndim: int) -> IndexMap:
    """A layout from an IR tree, a Python function of indices, or IR text.

    Args:
        given: `lambda i, j: (j // 16, i, j % 16)`, as a function or as text.
        ndim: The number of indices of the buffer.

    Raises:
        ScheduleError: the number of indices differs, or the text does not parse.
    """
    made = given if isinstance(given, IndexMap) else None
    if isinstance(given, str):
        made = _parsed(given)
    elif callable(given):
        names = list(inspect.signature(given).parameters)
        vars = tuple(Var(name, i64) for name in names)
        results = given(*vars) if len(names) == ndim else ()
        parts = results if isinstance(results, tuple) else (results,)
        made = IndexMap(vars, tuple(as_expr(part) for part in parts))
    if made is None or len(made.vars) != ndim:
        count = "no" if made is None else len(made.vars)
        raise ScheduleError(f"the layout takes {count} indices, its buffer {ndim}")
    return made


def _parsed(text: str) -> IndexMap:
    try:
        func = parse(f"def f():\n    b = alloc(f32[1], layout={text})\n")
    except ParseError as error:
        raise ScheduleError(f"the layout {text!r} does not parse: {error}") from None
    layouts = [buffer.layout for buffer in allocations(func)]
    if len(layouts) != 1 or layouts[0] is None:
        raise ScheduleError(f"{text!r} is not one layout")
    return layouts[0]


@legality("a layout is one-to-one")
def one_to_one(buffer: Buffer, layout: IndexMap) -> str | None:
    """No two elements share an address: by enumeration, or by the digits of indices."""
    fault = layout_fault(layout, buffer.shape)
    if fault is None and not (_is_enumerable(buffer) or _keeps_digits(buffer, layout)):
        fault = (
            "is not known to be one-to-one on this size; build it from i // c and i % c"
        )
    return fault and f"the layout of {buffer.name!r} {fault}"


def _is_enumerable(buffer: Buffer) -> bool:
    sizes = [int(e.value) for e in buffer.shape if isinstance(e, Const)]
    return len(sizes) == buffer.ndim and 0 < math.prod(sizes) <= MAX_EXHAUSTIVE


def _keeps_digits(buffer: Buffer, layout: IndexMap) -> bool:
    """Whether the results contain all digits of every index, each recoverable."""
    slices: list[Slice] = []
    extents = dict(zip(layout.vars, map(linear, buffer.shape), strict=True))
    for result in layout.results:
        terms = [(slice_of(atom), c) for atom, c in linear(result).terms]
        if not _readable(terms, extents):
            return False
        slices += [part for part, _ in terms if part]
    return all(
        _complete([s for s in slices if s.var == var], extent)
        for var, extent in extents.items()
    )


def _readable(terms: list[tuple[Slice | None, int]], extents: dict[Var, Poly]) -> bool:
    """Whether distinct combinations of digits sum to distinct addresses."""
    reach: int | None = 0
    for part, weight in sorted(terms, key=lambda term: term[1]):
        if part is None or reach is None or weight <= reach:
            return False
        size = part.size
        if size is None and extents[part.var].is_constant:
            size = -(-extents[part.var].constant // part.start)
        reach = None if size is None else reach + weight * (size - 1)
    return True


def _complete(slices: list[Slice], extent: Poly) -> bool:
    """Whether the slices of one index include all its digits."""
    filled: int | None = 1
    for part in sorted(slices, key=lambda part: part.start):
        if filled is None or part.start != filled:
            return False
        filled = None if part.size is None else filled * part.size
    return filled is None or (extent.is_constant and filled >= extent.constant)


@primitive
def transform_layout(func: Function, buffer: str, layout: Layout) -> Function:
    """Lay a temporary out in memory by a map of its indices.

    Semantics and all indices in the text stay the same; lowering applies the map. To
    pack a matrix, `cache_read` it and transform the copy.

    Args:
        buffer: A temporary.
        layout: `lambda i, j: (j // 16, i, j % 16)`, or its text; one-to-one.

    Raises:
        ScheduleError: the buffer is a parameter, or two elements would share an
            address.

    Before:

        t = alloc(f32[64, 32])

    After `transform_layout("t", "lambda i, j: (j // 16, i, j % 16)")`:

        t = alloc(f32[64, 32], layout=lambda i, j: (j // 16, i, j % 16))
    """
    old = find_buffer(func, buffer)
    if old in func.buffers:
        raise ScheduleError(
            f"{buffer!r} is a parameter and has the caller's layout; cache_read "
            "or cache_write it, and transform the copy"
        )
    made = index_map(layout, old.ndim)
    return with_buffer(func, old, dataclasses.replace(old, layout=made))


def with_buffer(func: Function, old: Buffer, new: Buffer) -> Function:
    """The function with another temporary; ScheduleError if not laid out one-to-one."""
    if new.layout is not None:
        one_to_one(new, new.layout)
    return dataclasses.replace(func, body=replace_buffers(func.body, {old: new}))
