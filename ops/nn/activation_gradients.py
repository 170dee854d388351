"""Gradients of the activations: of what they were applied to, for the result's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.fronts import unary_grad
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

_HERE: Final = "tensorlang.ops.nn.activation_gradient_scalars"

relu_grad = unary_grad("nn.relu", f"{_HERE}:relu", "dy where x is above 0, else 0")
sigmoid_grad = unary_grad("nn.sigmoid", f"{_HERE}:sigmoid", "dy s (1 - s)")
silu_grad = unary_grad("nn.silu", f"{_HERE}:silu", "dy s (1 + x (1 - s))")
tanh_grad = unary_grad("nn.tanh", f"{_HERE}:tanh", "dy (1 - tanh(x)^2)", short=False)


@elementwise(
    "nn.leaky_relu_grad",
    f"{_HERE}:leaky_relu",
    operands=("dy", "x"),
    alike=True,
    scalars={"negative_slope": SLOPE},
    aliases=("leaky_relu_grad",),
)
def leaky_relu_grad(
    dy: Any,
    x: Any,
    negative_slope: float = SLOPE,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `nn.leaky_relu` at `x`: dy above 0, else the slope times it.

    Args:
        dy: The gradient of the result.
        x: What `nn.leaky_relu` was applied to; floats of the same shape.
        negative_slope: The slope below 0.
        target: Where to compute.
        out: Where the result goes; may be `dy` or `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    slope = number("nn.leaky_relu_grad", "negative_slope", negative_slope)
    return call(leaky_relu_grad, (dy, x), {}, (slope,), target, out)


@elementwise(
    "nn.gelu_grad",
    f"{_HERE}:gelu",
    operands=("dy", "x"),
    alike=True,
    attributes={"approximate": "none"},
    aliases=("gelu_grad",),
)
def gelu_grad(
    dy: Any, x: Any, approximate: str = "none", *, target: Any = None, out: Any = None
) -> Launch:
    """The gradient of `nn.gelu` at `x`.

    Args:
        dy: The gradient of the result.
        x: What `nn.gelu` was applied to; floats of the same shape.
        approximate: As for `nn.gelu`.
        target: Where to compute.
        out: Where the result goes; may be `dy` or `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    how = approximation("nn.gelu_grad", approximate)
    return call(gelu_grad, (dy, x), how, (), target, out)


@elementwise(
    "nn.softplus_grad",
    f"{_HERE}:softplus",
    operands=("dy", "x"),
    alike=True,
    scalars={"beta": BETA, "threshold": THRESHOLD},
    aliases=("softplus_grad",),
)
def softplus_grad(
    dy: Any,
    x: Any,
    beta: float = BETA,
    threshold: float = THRESHOLD,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `nn.softplus` at `x`: dy times the sigmoid of beta x.

    Args:
        dy: The gradient of the result.
        x: What `nn.softplus` was applied to; floats of the same shape.
        beta: As for `nn.softplus`.
        threshold: As for `nn.softplus`.
        target: Where to compute.
        out: Where the result goes; may be `dy` or `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    scalars = scaled("nn.softplus_grad", beta, threshold)
    return call(softplus_grad, (dy, x), {}, scalars, target, out)
