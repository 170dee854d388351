"""Padding and joining, as loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from tensorlang.errors import ShapeError
from tensorlang.ir import as_expr, boolean, compute, i64, select
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.nodes import Axis, Block, Buffer, Const, For, Load, Store, Var, seq
from tensorlang.ops.assembling import stored

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, Stmt


def pad(x: Tensor, *, padding: Sequence[int], value: Expr) -> Tensor:
    """`value`, and x in the middle of it."""
    low, high = padding[::2], padding[1::2]
    outer = [plus(*of) for of in zip(x.shape, low, high, strict=True)]

    truths = x.dtype == boolean
    around = value.not_equal(0.0) if truths else stored(value, x.dtype)

    def element(*i: Any) -> Expr:
        read = x[tuple(n - a if a else n for n, a in zip(i, low, strict=True))]
        limits = []
        for n, extent, a, b in zip(read.indices, x.shape, low, high, strict=True):
            limits += [n >= 0] * bool(a) + [n < extent] * bool(b)
        inside = reduce(and_, limits)
        return select(inside, Load(read.buffer, read.indices, inside), around)

    made: Tensor = compute(outer, element if any(padding) else _same(x), "y")
    return made


def crop(dy: Tensor, *, padding: Sequence[int]) -> Tensor:
    """What lies inside of the padding."""
    low, high = padding[::2], padding[1::2]
    inner = [plus(n, -a, -b) for n, a, b in zip(dy.shape, low, high, strict=True)]

    def element(*i: Any) -> Expr:
        return dy[tuple(n + before for n, before in zip(i, low, strict=True))]

    made: Tensor = compute(inner, element, "dx")
    return made


def concatenate(*arrays: Tensor, axis: int) -> Tensor:
    """The arrays behind each other along an axis: a nest of loops for each."""
    starts: list[Expr] = [as_expr(0)]
    for array in arrays:
        starts.append(plus(starts[-1], array.shape[axis]))
    extent = starts.pop()
    first = arrays[0].shape
    y = Buffer("y", arrays[0].dtype, (*first[:axis], extent, *first[axis + 1 :]))
    nests = [
        _moved(f"part{n}", x.buffer, y, axis, start)
        for n, (x, start) in enumerate(zip(arrays, starts, strict=True))
    ]
    return Tensor(y, Stage(seq(nests), (y,), tuple(arrays)))


def split(dy: Tensor, *, axis: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Parts of these sizes along an axis.

    Raises:
        ShapeError: they do not make its extent.
    """
    extent = dy.shape[axis]
    if isinstance(extent, Const) and int(extent.value) != sum(sizes):
        raise ShapeError(f"sizes {tuple(sizes)} do not make {extent.value} places")
    made, start = [], 0
    for n, size in enumerate(sizes):
        shape = [*dy.shape]
        shape[axis] = as_expr(size)
        made.append(compute(shape, _behind(dy, axis, start), f"dx{n}"))
        start += size
    return tuple(made)


def plus(*terms: Any) -> Expr:
    """A sum whose constants are added up."""
    known, free = 0, None
    for term in map(as_expr, terms):
        if isinstance(term, Const):
            known += int(term.value)
        else:
            free = term if free is None else free + term
    if free is None:
        return as_expr(known)
    return free + known if known else free


def _same(x: Tensor) -> Any:
    return lambda *i: x[i]


def _behind(dy: Tensor, axis: int, start: int) -> Any:
    return lambda *i: dy[(*i[:axis], i[axis] + start, *i[axis + 1 :])]


def _moved(name: str, x: Buffer, y: Buffer, axis: int, start: Expr) -> Stmt:
    """Loops that copy `x` to where it starts in `y`."""
    loops = [Var(f"{name}_{n}", i64) for n in range(x.ndim)]
    inside = tuple(Var(f"v{loop.name}", i64) for loop in loops)
    moved = plus(start, inside[axis])
    place = (*inside[:axis], moved, *inside[axis + 1 :])
    axes = tuple(
        Axis(var, "spatial", extent, loop)
        for var, extent, loop in zip(inside, x.shape, loops, strict=True)
    )
    nest: Stmt = Block(name, axes, Store(y, place, Load(x, inside)))
    for loop, extent in reversed(list(zip(loops, x.shape, strict=True))):
        nest = For(loop, extent, "serial", nest)
    return nest
