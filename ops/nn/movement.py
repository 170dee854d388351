"""Operators that move elements: other shapes, other orders of dimensions.

None computes anything, so they take every element type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.definition import operator
from tensorlang.ops.signature import Anything, Like, Sizes

if TYPE_CHECKING:
    from tensorlang.ir import Tensor

_SQUARE: Final = (4096, 4096)
_PICTURES: Final = (64, 32, 28, 28)
_FLAT: Final = (64 * 32 * 28 * 28,)
_ROWS: Final = (64, 32 * 28 * 28)
_TOO_MANY: Final = 1 << 60  # elements; NumPy counts their bytes in 63 bits


@operator(
    "nn.transpose",
    shapes=(_SQUARE,),
    whole=True,
    scheduled_as="transpose",
    aliases=("transpose",),
)
def transpose(x: Anything, axes: Sizes | None = None) -> Tensor:
    """The array with its dimensions in another order, moved in memory.

    Args:
        axes: For each dimension of the result, the one of `x` that it is; the reverse
            order where it is left out.
    """
    return _moved(x, _order(axes, x.ndim))


@operator(
    "nn.transpose_grad",
    shapes=(_SQUARE, _SQUARE),
    whole=True,
    scheduled_as="transpose",
    aliases=("transpose_grad",),
)
def transpose_grad(dy: Anything, x: Like, axes: Sizes | None = None) -> Tensor:
    """The gradient of `transpose`: the dimensions in their old order.

    Args:
        axes: As in the forward call.
    """
    order = _order(axes, len(x))
    _same(dy.shape, [x[axis] for axis in order])
    return _moved(dy, sorted(range(len(order)), key=order.__getitem__))


def _moved(x: Tensor, order: Sequence[int]) -> Tensor:
    """Dimension n of the result is dimension `order[n]` of `x`."""
    shape = [x.shape[axis] for axis in order]
    real = [axis for axis in range(x.ndim) if x.shape[axis] != 1]
    held = ir.reshaped(x, [x.shape[axis] for axis in real])
    moved = [axis for axis in order if axis in real]

    def element(*i: Any) -> ir.Expr:
        place = dict(zip(moved, i, strict=True))
        return held[tuple(place[axis] for axis in real)]

    made = ir.compute([x.shape[axis] for axis in moved], element, "y")
    return ir.reshaped(made, shape)


def _order(axes: int | tuple[int, ...] | None, rank: int) -> list[int]:
    """The order of dimensions, each counted from the front.

    Raises:
        ArgumentError: it does not name each dimension once.
    """
    if axes is None:
        return [*reversed(range(rank))]
    given = axes if isinstance(axes, tuple) else (axes,)
    order = [ir.rows.axis_of(axis, rank) for axis in given]
    ir.require(
        sorted(order) == [*range(rank)],
        "axes name each of {rank} dimensions once, not {axes}",
        ArgumentError,
        rank=rank,
        axes=given,
    )
    return order


# ------------------------------------------------------------ the same in order


def _completed(given: Sequence[Any], shape: int | tuple[int, ...]) -> tuple[Any, ...]:
    """The shape of as many elements, with what is left in the place of -1.

    Raises:
        ShapeError: the elements are not as many, or too many for any array.
    """
    made = shape if isinstance(shape, tuple) else (shape,)
    ir.require(
        math.prod(extent for extent in made if extent > 0) < _TOO_MANY,
        "no array can have the shape {made}: its extents are too large",
        made=made,
    )
    left = [n for n, extent in enumerate(made) if extent == -1]
    total, known = math.prod(given), math.prod(e for e in made if e != -1)
    if len(left) == 1 and known > 0 and total % known == 0:
        made = tuple(total // known if e == -1 else e for e in made)
    ir.require(
        min(made, default=0) >= 0 and math.prod(made) == total,
        "an array of shape {given} has {total} elements, and shape {made} does not "
        "hold as many; at most one extent may be -1",
        given=tuple(given),
        total=total,
        made=made,
    )
    return made


def _flat(shape: Sequence[Any]) -> tuple[Any, ...]:
    ir.require(shape, "an array of shape () has no batch")
    return shape[0], math.prod(shape[1:])


def _same(shape: Sequence[Any], wanted: Sequence[Any]) -> None:
    ir.require(
        tuple(shape) == tuple(wanted),
        "an array of shape {wanted} is needed, not {given}",
        wanted=tuple(wanted),
        given=tuple(shape),
    )


def _reshaped_back(dy: Sequence[Any], x: Any, shape: Any) -> Any:
    _same(dy, _completed(x, shape))
    return x


def _flat_back(dy: Sequence[Any], x: Any) -> Any:
    _same(dy, _flat(x))
    return x


@operator(
    "nn.reshape",
    shapes=(_PICTURES,),
    usual={"shape": (-1,)},
    whole=True,
    view=_completed,
    aliases=("reshape",),
)
def reshape(x: Anything, shape: Sizes) -> Tensor:
    """The same elements, in row-major order, as an array of another shape.

    Nothing is moved where `x` lies in a row: the result is a view of it, unless there
    is an `out`. (An array of JAX is copied.)

    Args:
        shape: The new shape; one extent may be -1, for what is left.
    """
    return _copied(x, _completed(x.shape, shape))


@operator(
    "nn.reshape_grad",
    shapes=(_FLAT, _FLAT),
    usual={"shape": (-1,)},
    whole=True,
    view=_reshaped_back,
    aliases=("reshape_grad",),
)
def reshape_grad(dy: Anything, x: Like, shape: Sizes) -> Tensor:
    """The gradient of `reshape`: `dy` in the shape of `x`; a view where it can be.

    Args:
        shape: As in the forward call.
    """
    return _copied(dy, _reshaped_back(dy.shape, x, shape))


@operator(
    "nn.batch_flatten",
    shapes=(_PICTURES,),
    whole=True,
    view=_flat,
    aliases=("batch_flatten",),
)
def batch_flatten(x: Anything) -> Tensor:
    """All dimensions behind the first one as one; a view where it can be."""
    return _copied(x, _flat(x.shape))


@operator(
    "nn.batch_flatten_grad",
    shapes=(_ROWS, _PICTURES),
    whole=True,
    view=_flat_back,
    aliases=("batch_flatten_grad",),
)
def batch_flatten_grad(dy: Anything, x: Like) -> Tensor:
    """The gradient of `batch_flatten`: `dy` in the shape of `x`."""
    return _copied(dy, _flat_back(dy.shape, x))


def _copied(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """The same elements in another shape."""
    held = ir.reshaped(x, (ir.elements(x.shape),))
    made = ir.compute(held.shape, lambda i: held[i], "y")
    return ir.reshaped(made, shape)
