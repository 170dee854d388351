"""Slices of arrays, with NumPy's semantics."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Anything, Static

Bounds: TypeAlias = Annotated[
    int | tuple[int | None, ...] | None,
    Static(
        (int, tuple), (None,), "a whole number or None for each dimension", kind="other"
    ),
]
_WHOLE: Final = (8192, 3072)
# the middle third of the columns, as K of a packed QKV
_MIDDLE: Final = {"begin": (None, 1024), "end": (None, 2048)}


@operator(
    "nn.slice",
    shapes=(_WHOLE,),
    usual=_MIDDLE,
    whole=True,
    gradient={"scheduled_as": "slice_grad"},
)
def slice(x: Anything, begin: Bounds, end: Bounds, step: Bounds = None) -> ir.Tensor:
    """The slice `x[begin[0]:end[0]:step[0], begin[1]:end[1]:step[1], ...]`.

    Bounds and steps follow Python's slices: negative bounds count from the end,
    negative steps go backwards, bounds past the end are clipped, and None is open.
    Dimensions without bounds are kept whole. Symbolic tensors can be indexed directly,
    as in `x[:, 1:3]`, also with integers, new axes and `...`.

    Args:
        begin: First index, per dimension.
        end: End index (exclusive), per dimension.
        step: Step, per dimension; 1 by default.
    """
    cuts = _cuts(x.shape, begin, end, step)
    runs = _runs(cuts)
    held = ir.reshaped(x, [cut.extent for cut in runs])
    several = [at for at, cut in enumerate(runs) if cut.whole or cut.count != 1]

    def element(*i: ir.Expr) -> ir.Expr:
        steps = dict(zip(several, i, strict=True))
        return held[tuple(cut.place(steps.get(at)) for at, cut in enumerate(runs))]

    made = ir.compute([runs[at].count for at in several], element, "y")
    return ir.reshaped(made, [cut.count for cut in cuts])


class _Cut(NamedTuple):
    """The indices taken along a dimension."""

    extent: Any  # extent of the dimension
    begin: int  # first index
    count: Any  # number of indices
    step: int  # step from one to the next
    whole: bool  # whether the whole dimension is taken, in order

    def place(self, n: ir.Expr | None) -> ir.Expr:
        """The source index of result index n; None for a single index."""
        if n is None:
            return ir.as_expr(self.begin)
        moved = n if self.step == 1 else n * self.step
        return moved + self.begin if self.begin else moved


def _cuts(
    shape: Sequence[object], begin: Bounds, end: Bounds, step: Bounds
) -> list[_Cut]:
    """The indices taken along each dimension.

    Extents from the first dimension on that is not taken whole are constants.
    """
    given = [
        _bounds(name, values, len(shape))
        for name, values in (("begin", begin), ("end", end), ("step", step))
    ]
    ir.require(
        0 not in given[2], f"a step goes on or back, it is not 0: {step}", ArgumentError
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
    """Collapse the cuts into fewer dimensions.

    Leading dimensions taken whole become one, of open size. A dimension with a single
    index is merged into the next.
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
    """One bound per dimension, None where open."""
    made = values if isinstance(values, tuple) else (values,)
    ir.require(
        len(made) <= rank or values is None,
        f"{name} has {len(made)} numbers for an array of {rank} dimensions",
        ArgumentError,
    )
    return made[:rank] + (None,) * (rank - len(made))
