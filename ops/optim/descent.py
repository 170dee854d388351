"""Gradient descent, plain and with momentum, in place.

Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum
in deep learning", 2013 (Nesterov's momentum, in PyTorch's form).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError
from tensorlang.ops.inplace import inplace, update
from tensorlang.ops.optim.numbers import count, positive, with_momentum

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

_HERE: Final = "tensorlang.ops.optim.definitions"


@inplace(
    "optim.sgd",
    f"{_HERE}:sgd",
    arrays=("param", "grad", "velocity"),
    read=("grad",),
    optional=("velocity",),
    attributes={"nesterov": False},
    scalars={
        "rate": 1e-2,
        "decay": 0.0,
        "momentum": 0.9,
        "keep": 0.9,
        "share": 1.0,
    },
    aliases=("sgd",),
)
def sgd(
    param: Any,
    grad: Any,
    velocity: Any = None,
    *,
    lr: float = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    step: int | None = None,
    target: Any = None,
) -> Launch:
    """One step of gradient descent, in place.

    Args:
        param: Floats of any shape, contiguous and writable; or a list of such arrays,
            and then each of the others is a list too.
        grad: The gradient; only read.
        velocity: What momentum keeps, zeros before step 1.
        lr: The learning rate.
        momentum: How much of the velocity stays; it needs one where it is not 0.
        dampening: The share of a gradient that does not enter the velocity.
        nesterov: Whether to look ahead: the step takes the gradient and `momentum`
            times the new velocity.
        weight_decay: L2 penalty: this times `param` is added to the gradient.
        step: The number of this step, counted from 1. Only dampening needs it: as in
            PyTorch, the first gradient enters the velocity whole.
        target: Where to compute.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    id = "optim.sgd"
    momentum, velocity = with_momentum(id, momentum, velocity)
    damped = positive(id, "dampening", dampening)
    if nesterov and (damped or not momentum):
        raise ArgumentError(
            f"{id}: nesterov needs a momentum, here {momentum}, and no dampening, "
            f"here {damped}"
        )
    keep = momentum
    if damped and momentum:
        if step is None:
            raise ArgumentError(
                f"{id}: dampening starts after the first step; pass step="
            )
        keep, damped = (0.0, 0.0) if count(id, step) == 1 else (keep, damped)
    scalars = (
        positive(id, "lr", lr),
        positive(id, "weight_decay", weight_decay),
        momentum,
        keep,
        1.0 - damped,
    )
    asked = {"nesterov": bool(nesterov)}
    return update(sgd, (param, grad, velocity), asked, scalars, target)
