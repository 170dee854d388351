"""AdaGrad and RMSProp, in place.

Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011; Hinton, "Neural networks
for machine learning", lecture 6, 2012, and Graves, "Generating sequences with recurrent
neural networks", 2013 (the centred variant).
"""

from __future__ import annotations

from typing import Any

from tensorlang import ir
from tensorlang.ops.calls.updates import update
from tensorlang.ops.optim.elements import decayed
from tensorlang.ops.optim.numbers import MEANINGS, Count, Part, Positive, with_momentum
from tensorlang.ops.spec.signature import Float, InOut, Scalar


def _rmsprop(
    velocity: Any,
    *,
    lr: Positive = 1e-2,
    alpha: Part = 0.99,
    eps: Positive = 1e-8,
    momentum: Positive = 0.0,
    weight_decay: Positive = 0.0,
) -> tuple[object, ...]:
    velocity = with_momentum("optim.rmsprop", momentum, velocity)
    return velocity, lr, weight_decay, alpha, 1.0 - alpha, momentum, eps


@update("optim.rmsprop", host=_rmsprop, meanings=MEANINGS)
def rmsprop(
    param: InOut[Float],
    grad: Float,
    square: InOut[Float],
    velocity: InOut[Float] | None = None,
    mean: InOut[Float] | None = None,
    *,
    rate: Scalar = 1e-2,
    decay: Scalar = 0.0,
    alpha: Scalar = 0.99,
    share: Scalar = 0.01,
    momentum: Scalar = 0.9,
    eps: Scalar = 1e-8,
) -> tuple[Float, ...]:
    """One step of RMSProp, in place.

    Args:
        square: The moving average of squared gradients, zeros before the first step.
        mean: The moving average of gradients, zeros before the first step. If given,
            the gradient is normalised by an estimate of its variance (centred RMSProp).
        alpha: The decay rate of the averages.
        eps: Added to the square root of the average, or of the variance.
    """
    g = decayed(grad, param, decay)
    new_square = alpha * square + share * (g * g)
    more: tuple[Float, ...] = ()
    spread = new_square
    if mean is not None:
        new_mean = alpha * mean + share * g
        more = (new_mean,)
        variance = new_square - new_mean * new_mean
        spread = ir.select(variance < 0.0, 0.0, variance)
    ahead = g / (ir.sqrt(spread) + eps)
    if velocity is not None:
        ahead = momentum * velocity + ahead
        more = (ahead, *more)
    return param - rate * ahead, new_square, *more


def _adagrad(
    *,
    step: Count = 1,
    lr: Positive = 1e-2,
    lr_decay: Positive = 0.0,
    eps: Positive = 1e-10,
    weight_decay: Positive = 0.0,
) -> tuple[float, ...]:
    return lr / (1.0 + (step - 1) * lr_decay), weight_decay, eps


@update("optim.adagrad", host=_adagrad, meanings=MEANINGS)
def adagrad(
    param: InOut[Float],
    grad: Float,
    total: InOut[Float],
    *,
    rate: Scalar = 1e-2,
    decay: Scalar = 0.0,
    eps: Scalar = 1e-10,
) -> tuple[Float, ...]:
    """One step of AdaGrad, in place.

    Args:
        total: The sum of squared gradients. Its initial value, often 0, limits the
            length of the first steps.
        step: The number of this step, counted from 1; used by `lr_decay`.
        lr_decay: The rate is `lr / (1 + (step - 1) * lr_decay)`.
        eps: Added to the square root of the sum.
    """
    g = decayed(grad, param, decay)
    new = total + g * g
    return param - rate * (g / (ir.sqrt(new) + eps)), new
