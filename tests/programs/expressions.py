"""Random expressions of a given type, over what a `Scope` holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from tensorlang.ir.dtypes import DType, boolean, i64
from tensorlang.ir.intrinsics import INTRINSICS
from tensorlang.ir.nodes import (
    COMPARISONS,
    HINTS,
    LANE_REDUCTIONS,
    Binary,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    Insert,
    LaneReduce,
    Load,
    Ramp,
    Select,
    Shuffle,
    Splat,
    Unary,
    Var,
    splat,
)
from tensorlang.ir.simplification.folding import constant_of

Draw = Callable[[Any], Any]

FLOATS = tuple(map(DType, ("f16", "bf16", "f32", "f64")))
INTEGERS = tuple(map(DType, ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")))
SCALARS = (*FLOATS, *INTEGERS, boolean)
UNARY_CALLS = {
    "float": ("sqrt", "floor", "exp"),
    "uint": ("popcount",),
    "int": ("clz",),
}


@dataclass(frozen=True)
class Scope:
    """What a random program may use at a place.

    A `strict` one leaves out what may differ from machine to machine: the sign of the
    smaller zero, the bits of a NaN, and halves but as steps between other types. A
    `scalar` one has no vectors.
    """

    variables: tuple[Var, ...] = ()
    readable: tuple[Buffer, ...] = ()
    writable: tuple[Buffer, ...] = ()
    steady: tuple[Var, ...] = ()
    in_block: bool = False
    runnable: bool = False
    strict: bool = False
    scalar: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def name(self, stem: str) -> str:
        """A name that nothing else in the program has."""
        return f"{stem}{next(self.numbers)}"

    def having(self, *variables: Var) -> Scope:
        return replace(self, variables=(*self.variables, *variables))


@st.composite
def constants(draw: Draw, dtype: DType) -> Const:
    """A literal of a scalar type, extremes, infinities and NaN included."""
    if dtype.is_bool:
        return Const(draw(st.booleans()), dtype)
    if dtype.is_float:
        return Const(draw(st.floats() | st.sampled_from([0.1, -0.0, 1.0, -3.0])), dtype)
    low, high = dtype.limits
    return Const(draw(st.integers(max(low, -9), 9) | st.integers(low, high)), dtype)


@st.composite
def expressions(
    draw: Draw, dtype: DType, scope: Scope | None = None, depth: int = 3
) -> Expr:
    """An expression of `dtype` over what `scope` holds, at most `depth` deep."""
    scope = scope or Scope()
    if depth <= 0 or draw(st.integers(0, 4)) == 0:
        return _leaf(draw, dtype, scope)
    makers = st.sampled_from(_makers(dtype, scope))
    chosen: Expr = draw(makers)(draw, dtype, scope, depth - 1)
    return chosen


def _leaf(draw: Draw, dtype: DType, scope: Scope) -> Expr:
    same = [var for var in scope.variables if var.dtype == dtype]
    if same and draw(st.booleans()):
        return draw(st.sampled_from(same))
    value: Expr = draw(constants(dtype.scalar))
    return value if dtype.lanes == 1 else Splat(value, dtype.lanes)


def _binary(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    extremes = () if scope.strict else ("min", "max")
    ops = {
        "float": ("add", "sub", "mul", "div", *extremes),
        "bool": ("and", "or", "xor"),
    }.get(dtype.kind, ("add", "sub", "mul", "min", "max", "and", "or", "xor"))
    a, b = (draw(expressions(dtype, scope, depth)) for _ in range(2))
    return Binary(draw(st.sampled_from(ops)), a, b, draw(st.integers(0, 5)) == 0)


def _divide(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    """An integer divided or shifted, most often by a literal, and never by 0."""
    op = draw(st.sampled_from(["floordiv", "floormod", "shl", "shr"]))
    left = draw(expressions(dtype, scope, depth))
    by = draw(expressions(dtype, scope, depth))
    if constant_of(by) is None and draw(st.integers(0, 3)) == 0:
        one = splat(Const(1, dtype.scalar), dtype.lanes)
        shifts = op in ("shl", "shr")
        return Binary(op, left, by if shifts else Binary("or", by, one))
    high = dtype.bits - 1 if op in ("shl", "shr") else 9
    number = Const(draw(st.integers(op.startswith("floor"), high)), dtype.scalar)
    return Binary(op, left, splat(number, dtype.lanes))


def _unary(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    ops = {"float": ("neg", "abs"), "bool": ("not",)}.get(
        dtype.kind, ("neg", "abs", "not")
    )
    return Unary(draw(st.sampled_from(ops)), draw(expressions(dtype, scope, depth)))


def _select(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    lanes = draw(st.sampled_from([1, dtype.lanes]))
    kinds = (boolean.vector(lanes), dtype, dtype)
    return Select(*(draw(expressions(kind, scope, depth)) for kind in kinds))


def _cast(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    source = draw(_sources(scope)).vector(dtype.lanes)
    value = draw(expressions(source, scope, depth))
    if scope.strict and draw(st.integers(0, 3)) == 0:
        half = draw(st.sampled_from(FLOATS[:2])).vector(dtype.lanes)
        value = Cast(half, value)
    return Cast(dtype, value)


def _sources(scope: Scope) -> Any:
    """The types that others may come from."""
    return st.sampled_from(SCALARS[2:] if scope.strict else SCALARS)


def _bitcast(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    kinds = INTEGERS if scope.strict else (*FLOATS, *INTEGERS)
    same = [kind for kind in kinds if kind.bits == dtype.bits]
    source = draw(st.sampled_from(same)).vector(dtype.lanes)
    return Bitcast(dtype, draw(expressions(source, scope, depth)))


def _compare(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    kind = draw(_sources(scope)).vector(dtype.lanes)
    a, b = (draw(expressions(kind, scope, depth)) for _ in range(2))
    return Compare(draw(st.sampled_from(COMPARISONS)), a, b)


def _call(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    name = draw(st.sampled_from(UNARY_CALLS[dtype.kind]))
    args = (draw(expressions(dtype, scope, depth)),)
    return Call(name, args, INTRINSICS[name].result((dtype,)))


def _fma(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    args = tuple(draw(expressions(dtype, scope, depth)) for _ in range(3))
    return Call("fma", args, dtype)


def _load(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    buffer = draw(
        st.sampled_from([b for b in scope.readable if b.dtype == dtype.scalar])
    )
    indices = draw(places(buffer, dtype.lanes, scope, depth))
    lanes = max((index.dtype.lanes for index in indices), default=1)
    masked = draw(st.integers(0, 3)) == 0
    mask = draw(expressions(boolean.vector(lanes), scope, depth)) if masked else None
    loaded = Load(buffer, indices, mask, draw(hint_tuples()))
    return loaded if lanes == dtype.lanes else Splat(loaded, dtype.lanes)


def hint_tuples() -> Any:
    """Hints of a load or store, often none."""
    return st.just(()) | st.lists(st.sampled_from(HINTS), unique=True).map(tuple)


@st.composite
def places(
    draw: Draw, buffer: Buffer, lanes: int, scope: Scope, depth: int = 1
) -> tuple[Expr, ...]:
    """Indices of an element of `buffer`, or of `lanes` elements, all inside it."""
    indices = []
    for axis, extent in enumerate(buffer.shape):
        kind = i64.vector(lanes if axis == buffer.ndim - 1 else 1)
        index = draw(expressions(kind, scope, depth))
        limit = extent if kind.lanes == 1 else Splat(extent, lanes)
        indices.append(Binary("floormod", index, limit))
    return tuple(indices)


def _ramp(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    base = draw(expressions(dtype.scalar, scope, depth))
    return Ramp(base, draw(constants(dtype.scalar)), dtype.lanes)


def _splat(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    return Splat(draw(expressions(dtype.scalar, scope, depth)), dtype.lanes)


def _shuffle(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    widths = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=2))
    vectors = tuple(
        draw(expressions(dtype.vector(width), scope, depth)) for width in widths
    )
    lane = st.integers(0, sum(widths) - 1)
    taken = draw(st.lists(lane, min_size=dtype.lanes, max_size=dtype.lanes))
    return Shuffle(vectors, tuple(taken))


def _insert(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    vector = draw(expressions(dtype, scope, depth))
    lane = draw(st.integers(0, dtype.lanes - 1))
    return Insert(vector, lane, draw(expressions(dtype.scalar, scope, depth)))


def _extract(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    vector = draw(expressions(dtype.vector(4), scope, depth))
    return Extract(vector, draw(st.integers(0, 3)))


def _lane_reduce(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    op = draw(st.sampled_from(folds(dtype)))
    return LaneReduce(op, draw(expressions(dtype.vector(4), scope, depth)))


def folds(dtype: DType) -> tuple[str, ...]:
    """The operations that fold lanes of `dtype`."""
    kinds = {"float": ("add", "mul", "min", "max"), "bool": ("and", "or", "xor")}
    return kinds.get(dtype.kind, LANE_REDUCTIONS)


def _makers(dtype: DType, scope: Scope) -> tuple[Callable[..., Expr], ...]:
    """What can make an expression of `dtype` here."""
    table = {
        _divide: dtype.is_integer,
        _bitcast: not dtype.is_bool,
        _compare: dtype.is_bool,
        _call: dtype.kind in UNARY_CALLS,
        _fma: dtype.is_float,
        _load: any(buffer.dtype == dtype.scalar for buffer in scope.readable),
        _ramp: dtype.is_integer and dtype.lanes > 1,
        _splat: dtype.lanes > 1,
        _insert: dtype.lanes > 1,
        _extract: dtype.lanes == 1 and not scope.scalar,
        _lane_reduce: dtype.lanes == 1
        and not scope.scalar
        and not (scope.strict and dtype.is_float),
        _shuffle: not scope.scalar,
    }
    fitting = (make for make, fits in table.items() if fits)
    return (_binary, _unary, _select, _cast, *fitting)
