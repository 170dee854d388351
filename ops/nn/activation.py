"""Activations, elementwise, and their gradients.

Hendrycks and Gimpel, "Gaussian error linear units", 2016 (gelu).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.tensors import call

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

_HERE: Final = "tensorlang.ops.nn.activation_scalars"


@elementwise("nn.relu", f"{_HERE}:relu", aliases=("relu",))
def relu(x: Any, *, target: Any = None, out: Any = None) -> Launch:
    """max(x, 0); NaN stays NaN.

    Args:
        x: Floats of any shape.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    return call(relu, (x,), {}, (), target, out)


@elementwise(
    "nn.gelu", f"{_HERE}:gelu", attributes={"approximate": "none"}, aliases=("gelu",)
)
def gelu(
    x: Any, approximate: str = "none", *, target: Any = None, out: Any = None
) -> Launch:
    """The product of x and the normal distribution function of x.

    Args:
        x: Floats of any shape.
        approximate: `none`, or `tanh`: the approximation by tanh.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(
            f"nn.gelu: approximate is 'none' or 'tanh', not {approximate!r}"
        )
    return call(gelu, (x,), {"approximate": approximate}, (), target, out)
