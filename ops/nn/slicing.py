"""Slices of arrays, as NumPy cuts them, and where their gradients go."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import takewhile
from operator import and_
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.definition import operator
from tensorlang.ops.signature import Anything, Like, Static

if TYPE_CHECKING:
    from tensorlang.ir import Expr, Tensor

    Bounds: TypeAlias = int | tuple[int | None, ...] | None
else:
    Bounds = Static(
        (int, tuple), (None,), "a whole number or None for each dimension", kind="other"
    )
_WHOLE: Final = (8192, 3072)
# the middle third of the columns: keys, of queries, keys and values side by side
_MIDDLE: Final = {"begin": (None, 1024), "end": (None, 2048)}


@operator("nn.slice", shapes=(_WHOLE,), usual=_MIDDLE, whole=True, aliases=("slice",))
def slice(x: Anything, begin: Bounds, end: Bounds, step: Bounds = None) -> Tensor:
    """The elements `x[begin[0]:end[0]:step[0], begin[1]:end[1]:step[1], ...]`.

    Bounds and steps are those of Python's slices: negative ones count from the end or
    go backwards, bounds beyond the end are the end, and None is left open. Dimensions
    for which none is given are taken whole. A symbolic tensor is indexed itself, as in
    `x[:, 1:3]`, which also takes places, new dimensions and `...`.

    Args:
        begin: For each dimension, the first place that is taken.
        end: For each dimension, the place before which it ends.
        step: For each dimension, how far it is to the next place; 1 where left out.
    """
    cuts = _cuts(x.shape, begin, end, step)
    runs = _runs(cuts)
    held = ir.reshaped(x, [cut.extent for cut in runs])
    several = [at for at, cut in enumerate(runs) if cut.whole or cut.count != 1]

    def element(*i: Expr) -> Expr:
        steps = dict(zip(several, i, strict=True))
        return held[tuple(cut.place(steps.get(at)) for at, cut in enumerate(runs))]

    made = ir.compute([runs[at].count for at in several], element, "y")
    return ir.reshaped(made, [cut.count for cut in cuts])


@operator(
    "nn.slice_grad",
    shapes=((8192, 1024), _WHOLE),
    usual=_MIDDLE,
    whole=True,
    scheduled_as="slice_grad",
    aliases=("slice_grad",),
)
def slice_grad(
    dy: Anything, x: Like, begin: Bounds, end: Bounds, step: Bounds = None
) -> Tensor:
    """The gradient of `slice`: `dy` where it was taken from, and 0 around it.

    Every place is written once, so nothing is added up.

    Args:
        begin: As in the forward call.
        end: As in the forward call.
        step: As in the forward call.
    """
    cuts = _cuts(x, begin, end, step)
    taken = tuple(cut.count for cut in cuts)
    ir.require(
        dy.shape == taken,
        "dy of shape {dy} is no such slice of x of shape {x}, which has shape {taken}",
        dy=dy.shape,
        x=x,
        taken=taken,
    )
    runs = _runs(cuts)
    held = ir.reshaped(dy, [cut.count for cut in runs])
    nothing = ir.as_expr(0, dy.dtype)

    def element(*i: Expr) -> Expr:
        found = [cut.origin(n) for cut, n in zip(runs, i, strict=True)]
        limits = [limit for _, within in found for limit in within]
        read = held[tuple(place for place, _ in found)]
        if not limits:
            return read
        inside = reduce(and_, limits)
        there = ir.nodes.Load(read.buffer, read.indices, inside)
        return ir.select(inside, there, nothing)

    def zero(*_: Expr) -> Expr:
        return nothing

    empty = any(cut.count == 0 for cut in cuts)
    shape = [cut.extent for cut in runs]
    return ir.reshaped(ir.compute(shape, zero if empty else element, "dx"), x)


class _Cut(NamedTuple):
    """The places that are taken along a dimension.

    Attributes:
        extent: The extent of the dimension.
        begin: The first place.
        count: How many there are.
        step: How far it is from one to the next.
        whole: Whether these are all of them, in order.
    """

    extent: Any
    begin: int
    count: Any
    step: int
    whole: bool

    def place(self, n: Expr | None) -> Expr:
        """The place of step n; the only one where there is no other."""
        if n is None:
            return ir.as_expr(self.begin)
        moved = n if self.step == 1 else n * self.step
        return moved + self.begin if self.begin else moved

    def origin(self, n: Expr) -> tuple[Expr, list[Expr]]:
        """Which step place n is, and what says that it is one."""
        if self.whole:
            return n, []
        by = abs(self.step)
        moved = n - self.begin if self.begin else n
        away = moved if self.step > 0 else self.begin - n
        behind = self.begin + (self.count - 1) * self.step
        low, high = min(self.begin, behind), max(self.begin, behind)
        limits = [n >= low] * (low > 0) + [n < high + 1] * (high + by < self.extent)
        if by == 1:
            return away, limits
        return away // by, [*limits, (away % by).equal(0)]


def _cuts(shape: Sequence[Any], begin: Bounds, end: Bounds, step: Bounds) -> list[_Cut]:
    """What is taken along each dimension of what NumPy writes `x[begin:end:step, ...]`.

    The sizes from the first dimension on that is not taken whole are fixed.

    Raises:
        ArgumentError: there are too many bounds, or a step is 0.
    """
    given = [
        _bounds(name, values, len(shape))
        for name, values in (("begin", begin), ("end", end), ("step", step))
    ]
    ir.require(
        0 not in given[2],
        "a step goes on or back, it is not 0: {step}",
        ArgumentError,
        step=step,
    )
    cuts: list[_Cut] = []
    for extent, low, high, by in zip(shape, *given, strict=True):
        forward = by in {None, 1} and low in {None, 0}
        open_ = forward and (high is None or high >= extent)
        if open_ and all(cut.whole for cut in cuts):
            cuts.append(_Cut(extent, 0, extent, 1, whole=True))
            continue
        size = int(extent)
        taken = range(size)[low:high:by]
        stride = taken.step if len(taken) > 1 else 1
        whole = (taken.start, len(taken), stride) == (0, size, 1)
        cuts.append(_Cut(size, taken.start, len(taken), stride, whole))
    return cuts


def _runs(cuts: Sequence[_Cut]) -> list[_Cut]:
    """The same in fewer dimensions.

    Those that are taken whole at first are one, any number of rows. One of which a
    single place is taken is one with the next.
    """
    first = [*takewhile(lambda cut: cut.whole, cuts)]
    rows = ir.elements(tuple(cut.extent for cut in first)) if first else 1
    made: list[_Cut] = []
    for cut in cuts[len(first) :]:
        if cut.extent == cut.count == 1:
            continue
        if made and made[-1].count == 1:
            last, width = made.pop(), cut.extent
            begin = last.begin * width + cut.begin
            made.append(_Cut(last.extent * width, begin, *cut[2:4], whole=False))
        else:
            made.append(cut)
    return [_Cut(rows, 0, rows, 1, whole=True)] * bool(first) + made


def _bounds(name: str, values: Bounds, rank: int) -> tuple[int | None, ...]:
    """A bound for each dimension, None where it is left open."""
    made = values if isinstance(values, tuple) else (values,)
    ir.require(
        len(made) <= rank or values is None,
        "{name} has {count} numbers for an array of {rank} dimensions",
        ArgumentError,
        name=name,
        count=len(made),
        rank=rank,
    )
    return made[:rank] + (None,) * (rank - len(made))
