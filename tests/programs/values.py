"""Random values of a stage: loads at random indices, and what is computed of them."""

from __future__ import annotations

from tensorlang_test_programs.draft import ANY, Axes, Draft, Source

from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.nodes import (
    Axis,
    Binary,
    Buffer,
    Const,
    Expr,
    Load,
    Param,
    Reducer,
    Select,
    Unary,
    as_expr,
)

SMALL = 8  # what numbers are cut to that are too large to be added up


def _index(draft: Draft, axes: list[Axis], extent: Expr) -> Expr:
    """An index that stays in 0 .. extent-1, along one axis or two."""
    same = [axis.var for axis in axes if axis.extent == extent]
    options: list[Expr] = [var for var in same for _ in range(4)]
    options += [extent - 1 - var for var in same]
    if isinstance(extent, Const):
        options += _windows(axes, int(extent.value))
    if len(options) < 3:
        options += [draft.pick(axes).var % extent if axes else as_expr(0)]
    if draft.chance(12):
        options = [*_clamped(axes, extent), _from_data(draft, axes, extent)]
    chosen: Expr = draft.pick(options)
    return chosen


def _windows(axes: list[Axis], room: int) -> list[Expr]:
    """Indices such as `v + 2`, `v * 2` and `v + w` that stay below `room`."""
    sizes = {a.var: int(a.extent.value) for a in axes if isinstance(a.extent, Const)}
    found: list[Expr] = [as_expr(room // 2)]
    for var, count in sizes.items():
        found += [var + (room - count)] if count < room else []
        found += [var * 2] if 2 * count - 1 <= room else []
        for other, more in sizes.items():
            if other.name < var.name and count + more - 1 <= room:
                found += [var + other] * 2
    return found


def _clamped(axes: list[Axis], extent: Expr) -> list[Expr]:
    """A neighbour of each place, at the ends the place itself."""
    found = []
    for axis in axes:
        found += [
            Binary("min", axis.var + 1, extent - 1),
            Binary("max", Binary("min", axis.var - 1, extent - 1), as_expr(0)),
        ]
    return found


def _from_data(draft: Draft, axes: list[Axis], extent: Expr) -> Expr:
    """A place that is read from memory."""
    along = draft.pick(axes) if axes else None
    count = as_expr(1) if along is None else along.extent
    buffer = Buffer(f"from{len(draft.params)}", i64, (count,))
    draft.params.append(Param(buffer, "in"))
    return Load(buffer, (as_expr(0) if along is None else along.var,)) % extent


def load(draft: Draft, axes: Axes, source: Source) -> Load:
    """An element of a source."""
    shape = source.buffer.shape
    indices = tuple(_index(draft, axes.axes, extent) for extent in shape)
    return Load(source.buffer, indices)


def operand(draft: Draft, axes: Axes) -> tuple[Expr, int]:
    """A load, preferably of the latest result, and how large it can be."""
    fitting = [s for s in draft.sources if s is draft.latest] * 3 + draft.sources
    source = draft.pick(fitting)
    return converted(draft, load(draft, axes, source), source.largest)


def converted(draft: Draft, value: Expr, large: int) -> tuple[Expr, int]:
    """A value in the type of the stage, not larger than what can be added up."""
    dtype, given = draft.dtype, value.dtype
    if given.is_bool:
        value, large = Select(value, Const(1, dtype), Const(0, dtype)), 1
    elif dtype.is_float and large > draft.limit // 8:
        value, large = _cut(value), SMALL
    if given.is_float and draft.values == "special" and not dtype.is_float:
        large = ANY  # of an infinity
    return value.cast(dtype), _bounded(dtype, large)


def _cut(value: Expr) -> Expr:
    """A value brought below `SMALL`; a NaN stays one."""
    if value.dtype.is_integer:
        return value & Const(SMALL - 1, value.dtype)
    top, bottom = Const(SMALL, value.dtype), Const(-SMALL, value.dtype)
    return Select(value > top, top, Select(value < bottom, bottom, value))


def _bounded(dtype: DType, large: int) -> int:
    """What is known of a number's size: of one that may have wrapped, nothing."""
    if dtype.is_float:
        return large
    return ANY if dtype.kind == "uint" or large > dtype.limits[1] else large


def computed(draft: Draft, axes: Axes) -> tuple[Expr, int]:
    """An expression of one or two loads."""
    a, large = operand(draft, axes)
    options = ["none", "add", "sub", "mul", "min", "max", "scale", "select", "sign"]
    if draft.dtype.is_integer:
        options += ["bits", "divide"]
    op = draft.pick(options)
    if op == "none" or (op == "scale" and large > draft.limit // 3):
        return a, large
    if op == "scale":
        return a * 3 + 1, _bounded(draft.dtype, large * 3 + 1)
    if op == "sign":
        return Unary(draft.pick(["neg", "abs"]), a), _bounded(draft.dtype, large)
    if op == "divide":
        return _divided(draft, a), _bounded(draft.dtype, large)
    b, other = operand(draft, axes)
    if op == "bits":
        return Binary(draft.pick(["and", "or", "xor"]), a, b), ANY
    if op == "select":
        return Select(a < b, a, b + 1), _bounded(draft.dtype, max(large, other + 1))
    if op == "mul" and large * other > draft.limit // 8:
        op = "min"
    bound = {"mul": large * other, "add": large + other, "sub": large + other}
    return Binary(op, a, b), _bounded(draft.dtype, bound.get(op, max(large, other)))


def _divided(draft: Draft, a: Expr) -> Expr:
    """An integer divided or shifted by a literal."""
    op = draft.pick(["floordiv", "floormod", "shl", "shr"])
    by = draft.pick([1, 2, 3, 7])
    if draft.dtype.kind == "int":
        by = draft.pick([by, -by]) if op.startswith("floor") else by
    return Binary(op, a, Const(by, draft.dtype))


def begun(reducer: Reducer, start: Expr) -> Expr:
    """A start that a fold may have: `min` and `max` take a NaN for nothing."""
    if reducer.name in ("min", "max") and start.dtype.is_float:
        return Binary(reducer.name, start, reducer.identity[0])
    return start
