"""Gradient clipping by the norm of all gradients together.

Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks",
2013.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ops.inplace import inplace, update
from tensorlang.ops.inplace_checks import Arrays, checked
from tensorlang.ops.optim.numbers import positive
from tensorlang.ops.tensors import Names, Plan, Shape, call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.optim.definitions"
_CLIPPED: Final = Arrays("optim.clip_by_global_norm", ("grads",))
_EPS: Final = 1e-6  # PyTorch's: a norm of 0 divides


def _flat(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], attributes: dict[str, Any]
) -> Plan:
    return Plan(((math.prod(shapes[0]),),), dtypes, ((),), attributes)


def _length(_: Workload) -> Names:
    return (("n",),)


@tensor_operator(
    "optim.sum_of_squares",
    f"{_HERE}:sum_of_squares",
    plan=_flat,
    names=_length,
    shapes=((1 << 24,),),
)
def sum_of_squares(x: Any, *, target: Any = None, out: Any = None) -> Launch:
    """The sum of all elements' squares, in f64 whatever the type of `x`.

    Args:
        x: Floats of any shape.
        target: Where to compute.
        out: Where the result goes, an f64 array without dimensions.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    return call(sum_of_squares, (x,), {}, (), target, out)


@inplace(
    "optim.scale",
    f"{_HERE}:scaled",
    arrays=("x",),
    read=(),
    scalars={"factor": 0.5},
)
def scale(x: Any, factor: float, *, target: Any = None) -> Launch:
    """Multiply by a number, in place.

    Args:
        x: Floats of any shape, contiguous and writable; or a list of such arrays.
        factor: What to multiply by.
        target: Where to compute.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    return update(scale, (x,), {}, (float(factor),), target)


def clip_by_global_norm(grads: Any, max_norm: float, *, target: Any = None) -> float:
    """Scale all gradients, in place, so that their common norm is at most `max_norm`.

    They are multiplied by `max_norm / (norm + 1e-6)` where that is below 1, as PyTorch
    does it; where it is not, nothing is written. An infinite gradient makes it 0 and
    itself NaN; NaN makes all NaN. The norm is the root of the sum of all squares, which
    is summed in f64: it does not overflow for gradients in f32.

    Args:
        grads: A list of float arrays, contiguous and writable; or one.
        max_norm: The largest norm that is left alone.
        target: Where to compute.

    Returns:
        The norm as it was.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    id = _CLIPPED.id
    if max_norm != math.inf:
        max_norm = positive(id, "max_norm", max_norm)
    arrays: Sequence[Any] = grads if isinstance(grads, (list, tuple)) else (grads,)
    held = [array for (array,) in checked(_CLIPPED, _CLIPPED.names, [tuple(arrays)])]
    norm = math.sqrt(sum(float(sum_of_squares(g, target=target)) for g in held))
    factor = max_norm / (norm + _EPS)
    if not factor >= 1.0:
        scale(held, factor, target=target)
    return norm
