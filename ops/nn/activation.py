"""Activations, element by element.

Hendrycks and Gimpel, "Gaussian error linear units", 2016 (gelu). Elfwing, Uchibe and
Doya, "Sigmoid-weighted linear units for neural network function approximation in
reinforcement learning", 2018 (silu). Maas, Hannun and Ng, "Rectifier nonlinearities
improve neural network acoustic models", 2013 (leaky_relu).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.fronts import unary
from tensorlang.ops.nn.activation_arguments import (
    BETA,
    SLOPE,
    THRESHOLD,
    approximation,
    number,
    scaled,
)
from tensorlang.ops.tensors import call

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

_HERE: Final = "tensorlang.ops.nn.activation_scalars"

relu = unary("nn.relu", f"{_HERE}:relu", "max(x, 0); NaN stays NaN.")
sigmoid = unary("nn.sigmoid", f"{_HERE}:sigmoid", "1 / (1 + exp(-x)).")
silu = unary("nn.silu", f"{_HERE}:silu", "x times its sigmoid.")
tanh = unary("nn.tanh", f"{_HERE}:tanh", "The hyperbolic tangent.", short=False)


@elementwise(
    "nn.leaky_relu",
    f"{_HERE}:leaky_relu",
    scalars={"negative_slope": SLOPE},
    aliases=("leaky_relu",),
)
def leaky_relu(
    x: Any, negative_slope: float = SLOPE, *, target: Any = None, out: Any = None
) -> Launch:
    """The element where it is above 0, else `negative_slope` times it.

    Args:
        x: Floats of any shape.
        negative_slope: The slope below 0.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    slope = number("nn.leaky_relu", "negative_slope", negative_slope)
    return call(leaky_relu, (x,), {}, (slope,), target, out)


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
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    how = approximation("nn.gelu", approximate)
    return call(gelu, (x,), how, (), target, out)


@elementwise(
    "nn.softplus",
    f"{_HERE}:softplus",
    scalars={"beta": BETA, "threshold": THRESHOLD},
    aliases=("softplus",),
)
def softplus(
    x: Any,
    beta: float = BETA,
    threshold: float = THRESHOLD,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """log(1 + exp(beta x)) / beta, and x itself where `beta x` is above the threshold.

    Args:
        x: Floats of any shape.
        beta: The steepness; not 0.
        threshold: Above it the function is the identity.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    scalars = scaled("nn.softplus", beta, threshold)
    return call(softplus, (x,), {}, scalars, target, out)
