"""Folds along axes: sums, extremes and where they are, moments, truth.

Axes are folded as in NumPy: one, several, or all of them. Floats keep their type and
are summed in f32 at least; integers are summed in 64 bits. A result is the same with
any number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError
from tensorlang.ops.binding import number
from tensorlang.ops.math.folding import fold, launch_of
from tensorlang.ops.signature import ANY, REALS
from tensorlang.ops.tensors import FLOATS, TensorOperator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Ints

_DOC: Final = """{says}

Args:
    x: {kind} of any shape.
    axis: The axes to fold: a number, a tuple of numbers, or all of them.
    keepdims: Whether folded axes stay, with an extent of 1.
    target: Where to compute.
    out: Where the result goes.

Raises:
    DTypeError, ShapeError, ArgumentError: an argument does not fit.
"""
_KINDS: Final = {FLOATS: "Floats", REALS: "Numbers", ANY: "Numbers or truths"}


def _fold(
    name: str, says: str, allowed: tuple[str, ...], *, empty: bool = True
) -> TensorOperator:
    """A fold without arguments of its own; its definition has its name."""

    def front(
        x: Any,
        axis: Ints | None = None,
        keepdims: bool = False,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        return launch_of(made, x, axis, keepdims, (), target, out)

    front.__name__ = front.__qualname__ = name
    front.__module__ = __name__
    front.__doc__ = _DOC.format(says=says, kind=_KINDS[allowed])
    made = fold(f"math.{name}", allowed=allowed, empty=empty)(front)
    return made


sum = _fold("sum", "The sum; 0 of nothing.", ANY)
prod = _fold("prod", "The product; 1 of nothing.", ANY)
mean = _fold("mean", "The mean; NaN of nothing.", FLOATS)
max = _fold("max", "The largest; NaN where there is one.", REALS, empty=False)
min = _fold("min", "The smallest; NaN where there is one.", REALS, empty=False)
any = _fold("any", "Whether one is not 0; False of nothing.", ANY)
all = _fold("all", "Whether none is 0; True of nothing.", ANY)
logsumexp = _fold(
    "logsumexp", "The logarithm of the sum of exponentials; -inf of nothing.", FLOATS
)


def _position(name: str, says: str) -> TensorOperator:
    """A fold whose result is a position along one axis, or in the whole array."""

    def front(
        x: Any,
        axis: Ints | None = None,
        keepdims: bool = False,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        if isinstance(axis, (tuple, list)):
            raise ArgumentError(
                f"math.{name}: axis is None or a whole number, not {axis!r}"
            )
        return launch_of(made, x, axis, keepdims, (), target, out)

    front.__name__ = front.__qualname__ = name
    front.__module__ = __name__
    front.__doc__ = _POSITION.format(says=says)
    made = fold(f"math.{name}", allowed=REALS, empty=False)(front)
    return made


_POSITION: Final = """{says}

Of equal ones it is the first; NaN counts as the extreme.

Args:
    x: Numbers of any shape.
    axis: The axis along which positions count; None counts in the flattened array.
    keepdims: Whether folded axes stay, with an extent of 1.
    target: Where to compute.
    out: Where the result goes: int64.

Raises:
    DTypeError, ShapeError, ArgumentError: an argument does not fit.
"""
argmax = _position("argmax", "The position of the largest.")
argmin = _position("argmin", "The position of the smallest.")


@fold("math.var", allowed=FLOATS, scalars={"correction": 0.0})
def var(
    x: Any,
    axis: Ints | None = None,
    correction: float = 0.0,
    keepdims: bool = False,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The mean of squared differences from the mean; NaN of nothing.

    Args:
        x: Floats of any shape.
        axis: The axes to fold: a number, a tuple of numbers, or all of them.
        correction: Taken off the number of elements that is divided by: 1 estimates
            the variance of what the elements were drawn from.
        keepdims: Whether folded axes stay, with an extent of 1.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    less = number("math.var", "correction", correction)
    return launch_of(var, x, axis, keepdims, (less,), target, out)
