"""Steps divided by the root of squared gradients: AdaGrad and RMSProp, in place.

Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011; Hinton, "Neural networks
for machine learning", lecture 6, 2012, and Graves, "Generating sequences with recurrent
neural networks", 2013, which centres the squares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.ops.inplace import inplace, update
from tensorlang.ops.optim.numbers import count, positive, share, with_momentum

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

_HERE: Final = "tensorlang.ops.optim.definitions"
_READ: Final = ("grad",)


@inplace(
    "optim.rmsprop",
    f"{_HERE}:rmsprop",
    arrays=("param", "grad", "square", "velocity", "mean"),
    read=_READ,
    optional=("velocity", "mean"),
    scalars={
        "rate": 1e-2,
        "decay": 0.0,
        "alpha": 0.99,
        "share": 0.01,
        "momentum": 0.9,
        "eps": 1e-8,
    },
    aliases=("rmsprop",),
)
def rmsprop(
    param: Any,
    grad: Any,
    square: Any,
    velocity: Any = None,
    mean: Any = None,
    *,
    lr: float = 1e-2,
    alpha: float = 0.99,
    eps: float = 1e-8,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    target: Any = None,
) -> Launch:
    """One step of RMSProp, in place.

    Args:
        param: Floats of any shape, contiguous and writable; or a list of such arrays,
            and then each of the others is a list too.
        grad: The gradient; only read.
        square: The mean of squared gradients, zeros before the first step.
        velocity: What momentum keeps, zeros before the first step.
        mean: The mean of gradients, zeros before the first step: the squares are then
            centred.
        lr: The learning rate.
        alpha: How much of the means stays.
        eps: Added to the root of the mean of squares.
        momentum: How much of the velocity stays; it needs one where it is not 0.
        weight_decay: L2 penalty: this times `param` is added to the gradient.
        target: Where to compute.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    id = "optim.rmsprop"
    alpha = share(id, "alpha", alpha)
    momentum, velocity = with_momentum(id, momentum, velocity)
    scalars = (
        positive(id, "lr", lr),
        positive(id, "weight_decay", weight_decay),
        alpha,
        1.0 - alpha,
        momentum,
        positive(id, "eps", eps),
    )
    return update(rmsprop, (param, grad, square, velocity, mean), {}, scalars, target)


@inplace(
    "optim.adagrad",
    f"{_HERE}:adagrad",
    arrays=("param", "grad", "total"),
    read=_READ,
    scalars={"rate": 1e-2, "decay": 0.0, "eps": 1e-10},
    aliases=("adagrad",),
)
def adagrad(
    param: Any,
    grad: Any,
    total: Any,
    *,
    step: int = 1,
    lr: float = 1e-2,
    lr_decay: float = 0.0,
    eps: float = 1e-10,
    weight_decay: float = 0.0,
    target: Any = None,
) -> Launch:
    """One step of AdaGrad, in place.

    Args:
        param: Floats of any shape, contiguous and writable; or a list of such arrays,
            and then each of the others is a list too.
        grad: The gradient; only read.
        total: The sum of squared gradients; what it is before the first step, often 0,
            keeps the first steps from being long.
        step: The number of this step, counted from 1; `lr_decay` goes by it.
        lr: The learning rate.
        lr_decay: The rate is `lr / (1 + (step - 1) * lr_decay)`.
        eps: Added to the root of the sum.
        weight_decay: L2 penalty: this times `param` is added to the gradient.
        target: Where to compute.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    id = "optim.adagrad"
    slower = 1.0 + (count(id, step) - 1) * positive(id, "lr_decay", lr_decay)
    scalars = (
        positive(id, "lr", lr) / slower,
        positive(id, "weight_decay", weight_decay),
        positive(id, "eps", eps),
    )
    return update(adagrad, (param, grad, total), {}, scalars, target)
