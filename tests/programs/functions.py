"""Random well-formed functions, statement by statement."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from tensorlang_test_programs.expressions import (
    FLOATS,
    INTEGERS,
    SCALARS,
    Draw,
    Scope,
    expressions,
    folds,
    hint_tuples,
    places,
)

from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.dtypes import DType, boolean, f32, i32, i64
from tensorlang.ir.nodes import (
    BUFFER_SCOPES,
    EXECUTION_SCOPES,
    Alloc,
    Arrive,
    AtomicUpdate,
    Axis,
    Barrier,
    BarrierObject,
    Block,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    IndexMap,
    Let,
    Load,
    Param,
    Reduce,
    Reducer,
    Role,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    Wait,
    While,
    as_expr,
    seq,
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
    varying = scope.steady[0] if memory in ("global", "private") else as_expr(4)
    extent = st.integers(1, 6).map(as_expr) | st.just(varying)
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
    return Store(buffer, indices, value, mask, draw(hint_tuples())), scope


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
    op = draw(st.sampled_from(folds(buffer.dtype)))
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


def _roles(draw: Draw, scope: Scope, depth: int) -> tuple[list[Stmt], Scope]:
    """Threads in roles that meet at barrier objects."""
    del depth
    objects = BarrierObject(scope.name("m"), draw(st.integers(1, 9)), 3)
    var = Var(scope.name("i"))
    inner = scope.having(var)
    at = draw(expressions(i64, inner, 1)) % 3
    copies = _store(draw, inner, 0)[0] if draw(st.booleans()) else None
    roles = [
        Role(
            draw(expressions(boolean, inner, 1)),
            seq(_body(draw, inner, 0), meeting),
            draw(st.sampled_from([0, 24, 240])),
        )
        for meeting in (
            Arrive(objects.name, at, copies),
            Wait(objects.name, at, draw(expressions(i64, inner, 1))),
        )
    ]
    return [objects, For(var, as_expr(96), "bound", seq(*roles), "thread.x")], scope


def _empty(draw: Draw, scope: Scope, depth: int) -> tuple[Stmt, Scope]:
    del draw, depth
    return Seq(()), scope


_FLAT = (_store, _store, _let, _alloc, _evaluate, _empty)
_FREE_FLAT = (_atomic, _barrier)
_NESTING = (_for, _if, _block, _reduction)
_FREE_NESTING = (_while, _roles)
