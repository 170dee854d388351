"""Reshape, flatten and transpose, for every dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Anything, Sizes

_SQUARE: Final = (4096, 4096)
_PICTURES: Final = (64, 32, 28, 28)
_TOO_MANY: Final = 1 << 60  # elements; NumPy limits arrays to 2**63 bytes


@operator(
    "nn.transpose", shapes=(_SQUARE,), whole=True, scheduled_as="transpose", gradient={}
)
def transpose(x: Anything, axes: Sizes | None = None) -> ir.Tensor:
    """Permute the dimensions; the elements are moved in memory.

    Args:
        axes: Permutation: dimension n of the result is dimension `axes[n]` of `x`.
            None reverses the dimensions.
    """
    return _moved(x, _order(axes, x.ndim))


def _moved(x: ir.Tensor, order: Sequence[int]) -> ir.Tensor:
    """Dimension n of the result is dimension `order[n]` of `x`."""
    shape = [x.shape[axis] for axis in order]
    real = [axis for axis in range(x.ndim) if x.shape[axis] != 1]
    held = ir.reshaped(x, [x.shape[axis] for axis in real])
    moved = [axis for axis in order if axis in real]

    def element(*i: object) -> ir.Expr:
        place = dict(zip(moved, i, strict=True))
        return held[tuple(place[axis] for axis in real)]

    made = ir.compute([x.shape[axis] for axis in moved], element, "y")
    return ir.reshaped(made, shape)


def _order(axes: int | tuple[int, ...] | None, rank: int) -> list[int]:
    """The permutation, with nonnegative axes."""
    if axes is None:
        return [*reversed(range(rank))]
    given = axes if isinstance(axes, tuple) else (axes,)
    order = [ir.rows.axis_of(axis, rank) for axis in given]
    ir.require(
        sorted(order) == [*range(rank)],
        f"axes name each of {rank} dimensions once, not {given}",
        ArgumentError,
    )
    return order


# ---------------------------------------------------------------------- reshape


def _completed(
    given: Sequence[Any], shape: int | tuple[int, ...]
) -> tuple[object, ...]:
    """The target shape, with -1 replaced by the inferred extent."""
    made = shape if isinstance(shape, tuple) else (shape,)
    ir.require(
        math.prod(extent for extent in made if extent > 0) < _TOO_MANY,
        f"no array can have the shape {made}: its extents are too large",
    )
    left = [n for n, extent in enumerate(made) if extent == -1]
    total, known = math.prod(given), math.prod(e for e in made if e != -1)
    if len(left) == 1 and known > 0 and total % known == 0:
        made = tuple(total // known if e == -1 else e for e in made)
    ir.require(
        min(made, default=0) >= 0 and math.prod(made) == total,
        f"an array of shape {tuple(given)} has {total} elements, and shape {made} "
        "does not hold as many; at most one extent may be -1",
    )
    return made


def _flat(shape: Sequence[object]) -> tuple[Any, ...]:
    ir.require(shape, "an array of shape () has no batch")
    return shape[0], math.prod(shape[1:])


@operator(
    "nn.reshape",
    shapes=(_PICTURES,),
    usual={"shape": (-1,)},
    whole=True,
    view=_completed,
    gradient={},
)
def reshape(x: Anything, shape: Sizes) -> ir.Tensor:
    """Reshape, in row-major order.

    The result is a view if `x` is contiguous and no `out` is given. (JAX arrays are
    always copied.)

    Args:
        shape: The new shape; one extent may be -1, to be inferred.
    """
    return _copied(x, _completed(x.shape, shape))


@operator("nn.batch_flatten", shapes=(_PICTURES,), whole=True, view=_flat, gradient={})
def batch_flatten(x: Anything) -> ir.Tensor:
    """Flatten all dimensions but the first; a view where possible."""
    return _copied(x, _flat(x.shape))


def _copied(x: ir.Tensor, shape: Sequence[Any]) -> ir.Tensor:
    """A copy of the elements in another shape."""
    held = ir.reshaped(x, (ir.elements(x.shape),))
    made = ir.compute(held.shape, lambda i: held[i], "y")
    return ir.reshaped(made, shape)
