"""Gradient descent, plain and with momentum, in place.

Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum
in deep learning", 2013 (Nesterov's momentum, in PyTorch's form).
"""

from __future__ import annotations

from typing import Any

from tensorlang.errors import ArgumentError
from tensorlang.ops.calls.updates import update
from tensorlang.ops.optim.elements import decayed
from tensorlang.ops.optim.numbers import MEANINGS, Count, Positive, with_momentum
from tensorlang.ops.spec.signature import Float, InOut, Scalar


def _numbers(
    velocity: Any,
    *,
    lr: Positive = 1e-3,
    momentum: Positive = 0.0,
    dampening: Positive = 0.0,
    nesterov: bool = False,
    weight_decay: Positive = 0.0,
    step: Count | None = None,
) -> tuple[Any, ...]:
    id, keep = "optim.sgd", momentum
    velocity = with_momentum(id, momentum, velocity)
    if nesterov and (dampening or not momentum):
        raise ArgumentError(
            f"{id}: nesterov needs a momentum, here {momentum}, and no dampening, "
            f"here {dampening}"
        )
    if dampening and momentum:
        if step is None:
            raise ArgumentError(
                f"{id}: dampening starts after the first step; pass step="
            )
        keep, dampening = (0.0, 0.0) if step == 1 else (keep, dampening)
    return velocity, lr, weight_decay, momentum, keep, 1.0 - dampening, nesterov


@update("optim.sgd", host=_numbers, meanings=MEANINGS)
def sgd(
    param: InOut[Float],
    grad: Float,
    velocity: InOut[Float] | None = None,
    *,
    rate: Scalar = 1e-2,
    decay: Scalar = 0.0,
    momentum: Scalar = 0.9,
    keep: Scalar = 0.9,
    share: Scalar = 1.0,
    nesterov: bool = False,
) -> tuple[Float, ...]:
    """One step of stochastic gradient descent, with optional momentum, in place.

    Args:
        dampening: The fraction of each gradient that is not added to the velocity.
        nesterov: Whether to use Nesterov momentum: the step is along the gradient plus
            `momentum` times the new velocity.
        step: The number of this step, counted from 1. Needed only with dampening,
            which, as in PyTorch, does not apply to the first step.
    """
    g = decayed(grad, param, decay)
    if velocity is None:
        return (param - rate * g,)
    new = keep * velocity + share * g  # `keep` is 0 in step 1 with dampening
    ahead = g + momentum * new if nesterov else new
    return param - rate * ahead, new
