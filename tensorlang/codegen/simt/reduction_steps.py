"""Reductions across threads: trees in shared memory, or warp shuffles.

    tree[t] = part[t]                      s = shuffle_xor(part[t], 16)
    barrier                                a = part[t] + s
    if t < 16:                             ...                     (8, 4, 2, 1)
        tree[t] += tree[t + 16]            if t % 32 == 0:
        tree[t] += tree[t + 32]                cross[t // 32] = e
        tree[t] += tree[t + 48]            barrier
    barrier                                total = cross[0] + cross[1]
    ...

All lanes of a warp end with bitwise the same value: unless `combine` is commutative in
rounding, the first lane's is broadcast. The order of combination depends only on the
number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, TypeAlias

from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.reduction_nests import Fold, nest
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARP, shuffle_index, shuffle_xor
from tensorlang.ir.contraction import combination
from tensorlang.ir.visit import substitute

State: TypeAlias = tuple[ir.Expr, ...]
_RADIX: Final = 4  # parts combined by a thread between two barriers
_SHUFFLED: Final = ("f32", "f64", "i32", "i64", "u32", "u64")
_SYMMETRIC: Final = ("add", "mul", "min", "max", "and", "or", "xor")


def state_buffers(
    fold: Fold, names: Names, what: str, dims: Sequence[ir.For]
) -> tuple[ir.Buffer, ...]:
    """Shared buffers for the components of a state, with these loops as dimensions.

    Raises:
        CodegenError: a loop's extent is not constant.
    """
    for loop in dims:
        if not isinstance(loop.extent, ir.Const):
            raise CodegenError(
                f"block {fold.block.name}: loop {loop.var.name} runs {loop.extent!r} "
                "times around a reduction across threads; split it by a constant"
            )
    shape = tuple(loop.extent for loop in dims)
    return tuple(
        ir.Buffer(names.fresh(f"{b.name}_{what}"), b.dtype, shape, "shared")
        for b in fold.update.buffers
    )


def lane_steps(fold: Fold, parts: tuple[ir.Buffer, ...]) -> Iterator[ir.Stmt]:
    """Reduce the parts of a thread's lanes into the first of them."""
    if not fold.lanes:
        return
    at = tuple(x.var for x in fold.results)
    lanes = product(*(range(int(x.extent.value)) for x in fold.lanes))  # type: ignore[attr-defined]
    first, *others = ((*at, *map(ir.as_expr, place)) for place in lanes)
    yield nest(
        fold.results, ir.seq(*(_update(fold, parts, first, other) for other in others))
    )


def tree_steps(
    fold: Fold, names: Names, mine: State, *, alike: bool
) -> Iterator[ir.Stmt]:
    """Reduce all parts in shared memory, and store the result.

    Args:
        fold: The reduction.
        names: Names in use.
        mine: A thread's part.
        alike: Whether every thread stores the result, for itself.
    """
    bound = [x for x in fold.results if x.thread]
    slowest_first = sorted(bound, key=lambda loop: loop.thread, reverse=True)
    dims = (*(x for x in fold.results if not x.thread), *slowest_first)
    trees = state_buffers(fold, names, "tree", dims)
    place = tuple(x.var for x in dims)
    own = ir.seq(*(ir.Store(t, place, v) for t, v in zip(trees, mine, strict=True)))
    done = tuple(ir.Load(tree, _at(fold, place, ir.as_expr(0))) for tree in trees)
    yield from map(ir.Alloc, trees)
    yield nest(fold.results, own)
    size = fold.threads
    while size > 1:
        step = -(-size // _RADIX) if size > 2 else 1
        fewer = [_shorter(x, fold.across, step) for x in fold.results]
        ends = (fold.state(done),) if step == 1 and not alike else ()
        yield nest(fewer, ir.seq(*_round(fold, trees, place, (size, step)), *ends))
        size = step
    if alike:
        yield nest(fold.every, fold.state(done))


def _round(
    fold: Fold, trees: tuple[ir.Buffer, ...], place: State, sizes: tuple[int, int]
) -> Iterable[ir.Stmt]:
    """Reduce `size` parts to `step`, for one thread."""
    size, step = sizes
    var = fold.across.var
    for start in range(step, size, step):
        update = _update(fold, trees, place, _at(fold, place, var + start))
        full = start + step <= size
        yield update if full else ir.If(var < size - start, update)


def _update(
    fold: Fold, into: tuple[ir.Buffer, ...], at: State, other: State
) -> ir.Reduce:
    values = tuple(ir.Load(buffer, other) for buffer in into)
    return ir.Reduce(fold.update.reducer, into, at, values)


def _at(fold: Fold, place: State, value: ir.Expr) -> State:
    return tuple(substitute(index, {fold.across.var: value}) for index in place)


def _shorter(loop: ir.For, across: ir.For, extent: int) -> ir.For:
    return replace(loop, extent=ir.as_expr(extent)) if loop is across else loop


# ------------------------------------------------------------------------- warps


def in_warps(fold: Fold) -> bool:
    """Whether whole warps reduce, on types that shuffles support."""
    types = {buffer.dtype.name for buffer in fold.update.buffers}
    whole = fold.across.thread == "thread.x" and fold.threads % WARP == 0
    return whole and types <= {*_SHUFFLED}


def warp_steps(
    fold: Fold, names: Names, mine: State, *, alike: bool
) -> Iterator[ir.Stmt]:
    """As `tree_steps`, by shuffles within warps and shared memory between them."""
    made, state = _butterfly(fold, names, mine)
    if fold.threads == WARP and alike:
        yield nest(fold.results, ir.seq(*made, fold.state(state)))
        return
    first = fold.across.var % WARP
    if fold.threads == WARP:
        store = ir.If(first.equal(0), fold.state(state))
        yield nest(fold.results, ir.seq(*made, store))
        return
    warps = replace(fold.across, extent=ir.as_expr(fold.threads // WARP))
    dims = [x for x in (*fold.results[::-1], fold.across) if x is not fold.across]
    across = state_buffers(fold, names, "warps", (*dims, warps))
    place = (*(x.var for x in dims), fold.across.var // WARP)
    stores = (ir.Store(b, place, v) for b, v in zip(across, state, strict=True))
    yield from map(ir.Alloc, across)
    yield nest(fold.results, ir.seq(*made, ir.If(first.equal(0), ir.seq(*stores))))
    joined, whole = _joined(fold, names, across, place[:-1])
    alone = tuple(_shorter(x, fold.across, 1) for x in fold.every)
    yield nest(fold.every if alike else alone, ir.seq(*joined, fold.state(whole)))


def _butterfly(fold: Fold, names: Names, mine: State) -> tuple[list[ir.Stmt], State]:
    """A butterfly reduction within a warp, and the result, equal in all lanes."""
    made: list[ir.Stmt] = []
    state = _named(names, "own", mine, made)
    mask = WARP // 2
    while mask:
        given = tuple(shuffle_xor(part, mask) for part in state)
        other = _named(names, "other", given, made)
        state = _combined(fold.update.reducer, names, (state, other), made)
        mask //= 2
    if not _is_symmetric(fold.update.reducer):
        first = tuple(shuffle_index(part, 0) for part in state)
        state = _named(names, "first", first, made)
    return made, state


def _joined(
    fold: Fold, names: Names, across: tuple[ir.Buffer, ...], place: State
) -> tuple[list[ir.Stmt], State]:
    """Reduce the states of all warps, in order."""
    made: list[ir.Stmt] = []
    state: State | None = None
    for warp in range(fold.threads // WARP):
        loads = tuple(ir.Load(buffer, (*place, ir.as_expr(warp))) for buffer in across)
        other = _named(names, "warp", loads, made)
        both = (state, other) if state else None
        state = _combined(fold.update.reducer, names, both, made) if both else other
    assert state is not None
    return made, state


def _combined(
    reducer: ir.Reducer, names: Names, sides: tuple[State, State], made: list[ir.Stmt]
) -> State:
    return _named(names, "both", combination(reducer, *sides), made)


def _named(names: Names, what: str, values: State, made: list[ir.Stmt]) -> State:
    """Bind values to variables, as each is used several times."""
    found = []
    for value in values:
        var = names.var(what, value.dtype)
        made.append(ir.Let(var, value))
        found.append(var)
    return tuple(found)


def _is_symmetric(reducer: ir.Reducer) -> bool:
    """Whether swapping the operands gives bitwise the same result."""
    (whole, *more) = reducer.combine
    return not more and isinstance(whole, ir.Binary) and whole.op in _SYMMETRIC
