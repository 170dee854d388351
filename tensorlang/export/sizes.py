"""The sizes that a caller of an exported operator passes.

A dimension is a constant if all workloads have it fixed to one value. Dimensions that
are the same size in all of them have one name, that of the first: `x_0`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from tensorlang import ir
from tensorlang.errors import ShapeError
from tensorlang.export.c_expressions import condition_text
from tensorlang.export.library import Array, c_name
from tensorlang.frozen import frozen
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import substitute

if TYPE_CHECKING:
    from tensorlang.ops import Operator
    from tensorlang.ops.kernels.tracing import Trace
    from tensorlang.workload import Workload

Row: TypeAlias = tuple[str | None, ...]  # of each dimension, the name of its size
_SHAPE: Final = "shape"  # of a result, in names of its sizes


@frozen
class Interface:
    """The arrays and sizes of a function."""

    sizes: dict[str, int]  # names and examples
    # names of the sizes of each array, or shape; None for constants
    places: tuple[Row, ...]
    arrays: tuple[Array, ...]


def interface(op: Operator, given: Sequence[Workload]) -> Interface:
    """A function's arrays and sizes for workloads; ShapeError if ranks differ."""
    traces = [op.traced(workload) for workload in given]
    if len({tuple(map(len, workload.shapes)) for workload in given}) > 1:
        raise ShapeError(f"{op.id}: the arrays of all calls have as many dimensions")
    params = traces[0].function.params
    inputs = [param for param in params if param.role != "out"]
    labels = [c_name(param.buffer.name) for param in inputs]
    labels += [_SHAPE] * (len(given[0].shapes) - len(labels))
    sizes, places = _named(labels, given, traces)
    arrays = [
        Array(label, param.buffer.dtype, param.role, extents(row, shape))
        for label, param, row, shape in zip(
            labels, inputs, places, given[0].shapes, strict=False
        )
    ]
    widest = max(range(len(given)), key=lambda n: len(traces[n].open))
    values = symbols(traces[widest], given[widest], places)
    outputs = (param for param in params if param.role == "out")
    for param, result in zip(outputs, traces[widest].results, strict=True):
        shown = tuple(substitute(extent, values) for extent in result.shown)
        arrays.append(Array(c_name(param.buffer.name), result.dtype, "out", shown))
    return Interface(sizes, places, tuple(arrays))


def _named(
    labels: Sequence[str], given: Sequence[Workload], traces: Sequence[Trace]
) -> tuple[dict[str, int], tuple[Row, ...]]:
    """Each size with an example, and the name of each dimension's."""
    known: dict[tuple[str | int, ...], str] = {}
    sizes: dict[str, int] = {}

    def name(label: str, at: int, d: int) -> str | None:
        extents = [workload.shapes[at][d] for workload in given]
        own = zip(traces, extents, strict=True)
        told = tuple(trace.names[at][d] or extent for trace, extent in own)
        if set(told) == {extents[0]}:
            return None
        if told not in known:
            sizes[known.setdefault(told, f"{label}_{d}")] = extents[0]
        return known[told]

    places = tuple(
        tuple(name(label, at, d) for d in range(len(given[0].shapes[at])))
        for at, label in enumerate(labels)
    )
    return sizes, places


def extents(row: Row, shape: Sequence[int]) -> tuple[ir.Expr, ...]:
    """A shape in terms of named sizes."""
    return tuple(
        ir.as_expr(extent) if name is None else ir.Var(name, ir.i64)
        for name, extent in zip(row, shape, strict=True)
    )


def symbols(
    trace: Trace, workload: Workload, places: Sequence[Row]
) -> dict[ir.Var, ir.Expr]:
    """The symbols of a trace in terms of named sizes."""
    rows = zip(trace.symbols, places, workload.shapes, strict=True)
    named = {
        var: extent
        for called, row, shape in rows
        for var, extent in zip(called, extents(row, shape), strict=True)
        if var is not None
    }
    return {var: ir.as_expr(value) for var, value in trace.constants.items()} | named


def declared(op: Operator, workload: Workload, places: Sequence[Row]) -> list[str]:
    """The condition that an operator declares on sizes, as C; none if it is met."""
    own = op.declared
    if own.sizes is None:
        return []
    known = own.values(workload).items()
    names = {name: f"{value:d}" for name, value in known if isinstance(value, int)}
    for array, row in zip(own.arrays, places, strict=False):
        for n, place in enumerate(row):
            if place is not None:
                names |= {f"{array}.{n}": place, f"{array}.{n - len(row)}": place}
    names |= {name: names[at] for name, at in own.called.items() if at in names}
    if not {names[name] for name in own.sizes.names} & {*filter(None, sum(places, ()))}:
        return []
    return [condition_text(own.sizes.tree, names)]


def guards(
    trace: Trace, workload: Workload, places: Sequence[Row]
) -> Iterator[ir.Expr]:
    """The conditions under which a trace serves named sizes."""
    values = symbols(trace, workload, places)
    for names, row, shape in zip(trace.names, places, workload.shapes, strict=True):
        for name, place, extent in zip(names, row, shape, strict=True):
            if name is None and place is not None:
                yield ir.Var(place, ir.i64).equal(extent)
    made = (simplify(substitute(guard, values)) for guard in trace.guards)
    yield from (guard for guard in made if not isinstance(guard, ir.Const))
