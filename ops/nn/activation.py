"""Elementwise activations."""

from __future__ import annotations

import math
from typing import Literal

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.spec.signature import Float, Real, Scalar


@elementwise("nn.relu", onnx="Relu")
def relu(x: Real) -> Real:
    """Rectified linear unit, `max(x, 0)`; NaN stays NaN."""
    zero = ir.as_expr(0, x.dtype)
    return ir.select(x < zero, zero, x)


@relu.gradient  # 0 at x = 0, as in PyTorch
def relu_grad(dy: Float, x: Float) -> Float:
    """The gradient of `nn.relu`: dy where `x > 0`, else 0."""
    return ir.select(x <= 0.0, 0.0, dy)


@elementwise("nn.leaky_relu")
def leaky_relu(x: Float, negative_slope: Scalar = 0.01) -> Float:
    """Leaky rectified linear unit: `x` where positive, else `negative_slope * x`.

    Maas, Hannun and Ng, "Rectifier nonlinearities improve neural network acoustic
    models", 2013.

    Args:
        negative_slope: Slope for negative x.
    """
    return ir.select(x > 0.0, x, x * negative_slope)


@elementwise("nn.sigmoid", onnx="Sigmoid")
def sigmoid(x: Float) -> Float:
    """Logistic sigmoid, `1 / (1 + exp(-x))`."""
    return ir.sigmoid(x)


@elementwise("nn.silu")
def silu(x: Float) -> Float:
    """Sigmoid linear unit (swish), `x * sigmoid(x)`.

    Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units for neural network function
    approximation in reinforcement learning", 2018.
    """
    return x * ir.sigmoid(x)


@elementwise("nn.hard_swish", onnx="HardSwish")
def hard_swish(x: Float) -> Float:
    """Piecewise approximation of swish, `x * min(max(x / 6 + 1 / 2, 0), 1)`.

    Howard et al., "Searching for MobileNetV3", 2019.
    """
    return x * ir.minimum(ir.maximum(x * (1 / 6) + 0.5, 0.0), 1.0)


@elementwise("nn.tanh", aliases=(), onnx="Tanh")
def tanh(x: Float) -> Float:
    """Hyperbolic tangent."""
    return ir.tanh(x)


@elementwise("nn.gelu")
def gelu(x: Float, approximate: Literal["none", "tanh"] = "none") -> Float:
    """Gaussian error linear unit, `x * Phi(x)`, with Phi the standard normal CDF.

    Hendrycks and Gimpel, "Gaussian error linear units", 2016.

    Args:
        approximate: `none` for the exact function, `tanh` for the approximation by
            tanh.
    """
    if approximate == "none":
        return x * 0.5 * (ir.erf(x * math.sqrt(0.5)) + 1.0)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return x * 0.5 * (ir.tanh(inner) + 1.0)


@elementwise("nn.softplus")
def softplus(x: Float, beta: Scalar = 1.0, threshold: Scalar = 20.0) -> Float:
    """`log(1 + exp(beta * x)) / beta`; `x` itself where `beta * x > threshold`.

    Args:
        beta: Steepness; must not be 0.
        threshold: Value of `beta * x` above which the function is the identity.
    """
    ir.require(
        ir.as_expr(beta).not_equal(0.0),
        "beta divides the result, and cannot be 0",
        ArgumentError,
    )
    steep = x * beta
    return ir.select(steep > threshold, x, ir.log1p(ir.exp(steep)) / beta)
