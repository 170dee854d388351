"""Random well-formed IR for property tests: expressions of a type, whole functions.

Tests reach this module through the `programs` fixture and draw inside the test:

    @given(data=st.data())
    def test_it(programs, data):
        func = data.draw(programs.functions())

Indices are wrapped into their dimension, divisors are literals other than 0 and shifts
stay below the width, so nothing here faults by itself. `functions(runnable=True)` also
leaves out what needs a schedule to be right: concurrent loops, `while`, barriers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from tensorlang.ir.dtypes import DType, boolean, f32, i32, i64
from tensorlang.ir.intrinsics import INTRINSICS
from tensorlang.ir.nodes import (
    BUFFER_SCOPES,
    COMPARISONS,
    EXECUTION_SCOPES,
    HINTS,
    LANE_REDUCTIONS,
    Alloc,
    AtomicUpdate,
    Axis,
    Barrier,
    Binary,
    Bitcast,
    Block,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Evaluate,
    Expr,
    Extract,
    For,
    Function,
    If,
    IndexMap,
    Insert,
    LaneReduce,
    Let,
    Load,
    Param,
    Ramp,
    Reduce,
    Reducer,
    Select,
    Seq,
    Shuffle,
    Splat,
    Stmt,
    Store,
    Unary,
    Var,
    While,
    as_expr,
    seq,
)
from tensorlang.ir.reducers import builtin

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
    """What a random program may use at a place."""

    variables: tuple[Var, ...] = ()
    readable: tuple[Buffer, ...] = ()
    writable: tuple[Buffer, ...] = ()
    steady: tuple[Var, ...] = ()
    in_block: bool = False
    runnable: bool = False
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
    makers = [make for fits, make in _MAKERS if fits(dtype, scope)]
    if depth <= 0 or not makers or draw(st.integers(0, 4)) == 0:
        return _leaf(draw, dtype, scope)
    chosen: Expr = draw(st.sampled_from(makers))(draw, dtype, scope, depth - 1)
    return chosen


def _leaf(draw: Draw, dtype: DType, scope: Scope) -> Expr:
    same = [var for var in scope.variables if var.dtype == dtype]
    if same and draw(st.booleans()):
        return draw(st.sampled_from(same))
    value: Expr = draw(constants(dtype.scalar))
    return value if dtype.lanes == 1 else Splat(value, dtype.lanes)


def _binary(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    ops = {
        "float": ("add", "sub", "mul", "div", "min", "max"),
        "bool": ("and", "or", "xor"),
    }.get(dtype.kind, ("add", "sub", "mul", "min", "max", "and", "or", "xor"))
    a, b = (draw(expressions(dtype, scope, depth)) for _ in range(2))
    return Binary(draw(st.sampled_from(ops)), a, b, draw(st.integers(0, 5)) == 0)


def _divide(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    """An integer divided or shifted by a literal for which that is defined."""
    op = draw(st.sampled_from(["floordiv", "floormod", "shl", "shr"]))
    high = dtype.bits - 1 if op in ("shl", "shr") else 9
    by = Const(draw(st.integers(op.startswith("floor"), high)), dtype.scalar)
    right = by if dtype.lanes == 1 else Splat(by, dtype.lanes)
    return Binary(op, draw(expressions(dtype, scope, depth)), right)


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
    source = draw(st.sampled_from(SCALARS)).vector(dtype.lanes)
    return Cast(dtype, draw(expressions(source, scope, depth)))


def _bitcast(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    same = [kind for kind in (*FLOATS, *INTEGERS) if kind.bits == dtype.bits]
    source = draw(st.sampled_from(same)).vector(dtype.lanes)
    return Bitcast(dtype, draw(expressions(source, scope, depth)))


def _compare(draw: Draw, dtype: DType, scope: Scope, depth: int) -> Expr:
    kind = draw(st.sampled_from(SCALARS)).vector(dtype.lanes)
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
    loaded = Load(buffer, indices, mask, draw(_hints()))
    return loaded if lanes == dtype.lanes else Splat(loaded, dtype.lanes)


def _hints() -> Any:
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
    op = draw(st.sampled_from(_folds(dtype)))
    return LaneReduce(op, draw(expressions(dtype.vector(4), scope, depth)))


def _folds(dtype: DType) -> tuple[str, ...]:
    kinds = {"float": ("add", "mul", "min", "max"), "bool": ("and", "or", "xor")}
    return kinds.get(dtype.kind, LANE_REDUCTIONS)


def _has_buffer(dtype: DType, scope: Scope) -> bool:
    return any(b.dtype == dtype.scalar for b in scope.readable)


_MAKERS: tuple[tuple[Callable[[DType, Scope], bool], Callable[..., Expr]], ...] = (
    (lambda t, s: True, _binary),
    (lambda t, s: t.is_integer, _divide),
    (lambda t, s: True, _unary),
    (lambda t, s: True, _select),
    (lambda t, s: True, _cast),
    (lambda t, s: not t.is_bool, _bitcast),
    (lambda t, s: t.is_bool, _compare),
    (lambda t, s: t.kind in UNARY_CALLS, _call),
    (lambda t, s: t.is_float, _fma),
    (_has_buffer, _load),
    (lambda t, s: t.lanes > 1 and t.is_integer, _ramp),
    (lambda t, s: t.lanes > 1, _splat),
    (lambda t, s: True, _shuffle),
    (lambda t, s: t.lanes > 1, _insert),
    (lambda t, s: t.lanes == 1, _extract),
    (lambda t, s: t.lanes == 1, _lane_reduce),
)


@st.composite
def functions(draw: Draw, *, runnable: bool = False) -> Function:
    """A verified function with random parameters, scalars and statements."""
    n = Var("n")
    scalars = (n, *draw(st.sampled_from([(), (Var("rate", f32),), (Var("s", i32),)])))
    base = Scope(scalars, steady=scalars, runnable=runnable)
    roles = draw(st.lists(st.sampled_from(["in", "inout"]), max_size=2))
    params = [Param(_buffer(draw, base, "p"), role) for role in (*roles, "out")]
    scope = replace(
        base,
        readable=tuple(p.buffer for p in params if p.role != "out"),
        writable=tuple(p.buffer for p in params if p.role != "in"),
    )
    return Function("random", tuple(params), scalars, _body(draw, scope, 3))


def _buffer(draw: Draw, scope: Scope, stem: str, memory: str = "global") -> Buffer:
    extent = st.integers(1, 6).map(as_expr) | st.just(scope.steady[0])
    shape = tuple(draw(st.lists(extent, max_size=3)))
    layout = draw(_layouts(shape)) if draw(st.integers(0, 2)) == 0 else None
    kind = draw(st.sampled_from(SCALARS))
    return Buffer(scope.name(stem), kind, shape, memory, layout)


@st.composite
def _layouts(draw: Draw, shape: tuple[Expr, ...]) -> IndexMap:
    """The indices in another order, one of them perhaps split into two."""
    variables = tuple(Var(f"d{axis}") for axis in range(len(shape)))
    results: list[Expr] = []
    for var in variables:
        results += [var // 4, var % 4] if draw(st.booleans()) else [var]
    return IndexMap(variables, tuple(draw(st.permutations(results))))


def _body(draw: Draw, scope: Scope, depth: int) -> Stmt:
    stmts: list[Stmt] = []
    for _ in range(draw(st.integers(0, 3))):
        made, scope = _statement(draw, scope, depth)
        stmts.extend(made)
    return seq(stmts)


def _statement(draw: Draw, scope: Scope, depth: int) -> tuple[list[Stmt], Scope]:
    """Statements, and the scope of what follows them."""
    makers = [*_FLAT, *(_NESTING if depth > 0 else ())]
    if not scope.runnable:
        makers += [*_FREE_FLAT, *(_FREE_NESTING if depth > 0 else ())]
    made, after = draw(st.sampled_from(makers))(draw, scope, depth - 1)
    return ([made] if isinstance(made, Stmt) else made), after


def _store(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    del depth
    buffer = draw(st.sampled_from(scope.writable))
    indices = draw(places(buffer, draw(st.sampled_from([1, 1, 4])), scope))
    lanes = max((index.dtype.lanes for index in indices), default=1)
    value = draw(expressions(buffer.dtype.vector(lanes), scope, 2))
    masked = draw(st.integers(0, 3)) == 0
    mask = draw(expressions(boolean.vector(lanes), scope, 1)) if masked else None
    return Store(buffer, indices, value, mask, draw(_hints())), scope


def _let(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    del depth
    kind = draw(st.sampled_from(SCALARS)).vector(draw(st.sampled_from([1, 1, 4])))
    var = Var(scope.name("h"), kind)
    return Let(var, draw(expressions(kind, scope, 2))), scope.having(var)


def _alloc(draw: Draw, scope: Scope, depth: int) -> tuple[list[Stmt], Scope]:
    """A temporary, with one element written so that it may be read."""
    del depth
    buffer = _buffer(draw, scope, "t", draw(st.sampled_from(BUFFER_SCOPES)))
    fill = draw(expressions(buffer.dtype, scope, 1))
    loops = [Var(scope.name("z")) for _ in buffer.shape]
    write: Stmt = Store(buffer, tuple(loops), fill)
    for var, extent in zip(reversed(loops), reversed(buffer.shape), strict=True):
        write = For(var, extent, "serial", write)
    after = replace(
        scope,
        readable=(*scope.readable, buffer),
        writable=(*scope.writable, buffer),
    )
    return [Alloc(buffer), write], after


def _atomic(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    both = [b for b in scope.writable if b in scope.readable]
    if not both:
        return _store(draw, scope, depth)
    buffer = draw(st.sampled_from(both))
    indices = draw(places(buffer, 1, scope))
    op = draw(st.sampled_from(_folds(buffer.dtype)))
    value = draw(expressions(buffer.dtype, scope, 2))
    return AtomicUpdate(op, buffer, indices, value), scope


def _barrier(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    del depth
    return Barrier(draw(st.sampled_from(["team", *EXECUTION_SCOPES]))), scope


def _evaluate(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    if scope.readable and draw(st.booleans()):
        buffer = draw(st.sampled_from(scope.readable))
        load = Load(buffer, draw(places(buffer, 1, scope)))
        return Evaluate(Call("prefetch", (load,), boolean)), scope
    if scope.runnable:
        return Evaluate(draw(expressions(f32, scope, depth))), scope
    cond = draw(expressions(boolean, scope, 2))
    return Evaluate(Call("check", (cond, as_expr(7)), boolean)), scope


def _for(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    kinds = ["serial", "unrolled"]
    if not scope.runnable:
        kinds += ["parallel", "vectorized", "bound"]
    kind = draw(st.sampled_from(kinds))
    dtype = draw(st.sampled_from([i64, i64, i32]))
    var = Var(scope.name("i"), dtype)
    extent = Const(draw(st.integers(0, 4)), dtype)
    body = _body(draw, scope.having(var), depth)
    thread = f"{scope.name('').translate(_LETTERS)}.x" if kind == "bound" else ""
    return For(var, extent, kind, body, thread), scope


_LETTERS = {ord(str(digit)): "abcdefghij"[digit] for digit in range(10)}


def _while(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    cond = draw(expressions(boolean, scope, 2))
    return While(cond, _body(draw, scope, depth)), scope


def _if(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    orelse = _body(draw, scope, depth) if draw(st.booleans()) else None
    cond = draw(expressions(boolean, scope, 2))
    return If(cond, _body(draw, scope, depth), orelse), scope


def _block(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    """A block with ordered axes, which may do anything inside."""
    kinds = st.lists(st.sampled_from(["ordered", "opaque"]), min_size=1, max_size=2)
    axes = tuple(_axis(draw, scope, kind) for kind in draw(kinds))
    inner = replace(scope, variables=scope.steady, in_block=True)
    inner = inner.having(*(axis.var for axis in axes))
    where = draw(expressions(boolean, scope, 1)) if draw(st.booleans()) else None
    level = "thread" if scope.runnable else draw(st.sampled_from(EXECUTION_SCOPES))
    body = _body(draw, inner, depth)
    return Block(scope.name("block"), axes, body, where, None, level), scope


def _axis(draw: Draw, scope: Scope, kind: str) -> Axis:
    return Axis(
        Var(scope.name("v")),
        kind,
        as_expr(draw(st.integers(1, 4))),
        draw(expressions(i64, scope, 1)) % 1,
    )


def _first_of_two(kind: DType) -> Reducer:
    """A reducer that is not built in: the component with the smaller number."""
    left, right = (
        (Var(f"{side}_at", i64), Var(side, kind)) for side in ("left", "right")
    )
    wins = left[0] <= right[0]
    combine = tuple(Select(wins, a, b) for a, b in zip(left, right, strict=True))
    identity = (Const(i64.limits[1], i64), Const(0, kind))
    return Reducer("earliest", left, right, identity, combine, commutative=False)


def _reduction(draw: Draw, scope: Scope, depth: int) -> tuple[list[Stmt], Scope]:
    """A temporary folded along an axis: one component, or a tuple of two."""
    del depth
    kind = draw(st.sampled_from([*FLOATS, *INTEGERS]))
    reducers = [builtin("sum", (kind,)), builtin("argmax", (kind, i64))]
    reducer = draw(st.sampled_from([*reducers, _first_of_two(kind)]))
    buffers = tuple(
        Buffer(scope.name("r"), dtype, (as_expr(2),)) for dtype in reducer.dtypes
    )
    i, k = Var(scope.name("i")), Var(scope.name("k"))
    row = Axis(Var(scope.name("v")), "spatial", as_expr(2), i)
    folded = Axis(Var(scope.name("v")), "reduction", as_expr(3), k)
    inner = replace(scope, variables=(*scope.steady, row.var, folded.var))
    values = tuple(draw(expressions(dtype, inner, 2)) for dtype in reducer.dtypes)
    init: Stmt | None = None
    if draw(st.booleans()):
        fills = zip(buffers, reducer.identity, strict=True)
        init = seq(Store(buffer, (row.var,), value) for buffer, value in fills)
    reduce = Reduce(reducer, buffers, (row.var,), values)
    block = Block(scope.name("block"), (row, folded), reduce, None, init)
    nest = For(i, as_expr(2), "serial", For(k, as_expr(3), "serial", block))
    after = replace(scope, readable=(*scope.readable, *buffers))
    return [*map(Alloc, buffers), nest], after


def _empty(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    del draw, depth
    return Seq(()), scope


_FLAT = (_store, _store, _let, _alloc, _evaluate, _empty)
_FREE_FLAT = (_atomic, _barrier)
_NESTING = (_for, _if, _block, _reduction)
_FREE_NESTING = (_while,)
