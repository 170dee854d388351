"""Adam and its relatives, in place.

Kingma and Ba, "Adam: a method for stochastic optimization", 2015 (adam, adamax);
Loshchilov and Hutter, "Decoupled weight decay regularization", 2019 (adamw); Reddi,
Kale and Kumar, "On the convergence of Adam and beyond", 2018 (`max_v`, AMSGrad).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ops.inplace import inplace, update
from tensorlang.ops.optim.numbers import count, positive, share

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

_HERE: Final = "tensorlang.ops.optim.definitions"
_READ: Final = ("grad",)
_ADAM: Final = {
    "rate": 1e-2,
    "keep": 1.0,
    "decay": 0.0,
    "beta1": 0.9,
    "share1": 0.1,
    "beta2": 0.999,
    "share2": 0.001,
    "scale": 30.0,
    "eps": 1e-8,
}


@inplace(
    "optim.adam",
    f"{_HERE}:adam",
    arrays=("param", "grad", "m", "v", "max_v"),
    read=_READ,
    optional=("max_v",),
    scalars=_ADAM,
    aliases=("adam",),
)
def adam(
    param: Any,
    grad: Any,
    m: Any,
    v: Any,
    max_v: Any = None,
    *,
    step: int,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    epsilon_hat: bool = False,
    target: Any = None,
) -> Launch:
    """One step of Adam, in place: `param` and its moments `m` and `v` are updated.

    Args:
        param: Floats of any shape, contiguous and writable; or a list of such arrays,
            and then each of the others is a list too.
        grad: The gradient; only read.
        m: The first moment, zeros before step 1.
        v: The second moment, zeros before step 1.
        max_v: The largest second moment so far, zeros before step 1: AMSGrad.
        step: The number of this step, counted from 1: the moments' bias is corrected.
        lr: The learning rate.
        beta1: How much of the first moment stays.
        beta2: How much of the second moment stays.
        eps: Added to the root of the corrected second moment.
        weight_decay: L2 penalty: this times `param` is added to the gradient.
        epsilon_hat: Whether `eps` is added to the root before the correction, as in
            TensorFlow and in the last lines of the paper's section 2.
        target: Where to compute.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    decay = positive("optim.adam", "weight_decay", weight_decay)
    scalars = _adam_scalars(
        "optim.adam", step, lr, beta1, beta2, eps, 0.0, decay, epsilon_hat=epsilon_hat
    )
    return update(adam, (param, grad, m, v, max_v), {}, scalars, target)


@inplace(
    "optim.adamw",
    f"{_HERE}:adam",
    arrays=("param", "grad", "m", "v", "max_v"),
    read=_READ,
    optional=("max_v",),
    scalars=_ADAM,
    aliases=("adamw",),
)
def adamw(
    param: Any,
    grad: Any,
    m: Any,
    v: Any,
    max_v: Any = None,
    *,
    step: int,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    epsilon_hat: bool = False,
    target: Any = None,
) -> Launch:
    """One step of AdamW, in place: Adam whose weight decay leaves the moments alone.

    Args:
        param: Floats of any shape, contiguous and writable; or a list of such arrays,
            and then each of the others is a list too.
        grad: The gradient; only read.
        m: The first moment, zeros before step 1.
        v: The second moment, zeros before step 1.
        max_v: The largest second moment so far, zeros before step 1: AMSGrad.
        step: The number of this step, counted from 1.
        lr: The learning rate.
        beta1: How much of the first moment stays.
        beta2: How much of the second moment stays.
        eps: Added to the root of the corrected second moment.
        weight_decay: `param` first loses `lr * weight_decay` of itself.
        epsilon_hat: Whether `eps` is added to the root before the correction.
        target: Where to compute.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    decay = positive("optim.adamw", "weight_decay", weight_decay)
    scalars = _adam_scalars(
        "optim.adamw", step, lr, beta1, beta2, eps, decay, 0.0, epsilon_hat=epsilon_hat
    )
    return update(adamw, (param, grad, m, v, max_v), {}, scalars, target)


def _adam_scalars(  # noqa: PLR0917 - one line a call, by position
    id: str,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    lost: float,
    decay: float,
    *,
    epsilon_hat: bool,
) -> tuple[float, ...]:
    """The scalars of `definitions.adam`, in order."""
    step = count(id, step)
    lr, eps = positive(id, "lr", lr), positive(id, "eps", eps)
    beta1, beta2 = share(id, "beta1", beta1), share(id, "beta2", beta2)
    rate, root = lr / (1.0 - beta1**step), math.sqrt(1.0 - beta2**step)
    scale = 1.0 / root
    if epsilon_hat:
        rate, scale = rate * root, 1.0
    keep = 1.0 - lr * lost
    return (rate, keep, decay, beta1, 1.0 - beta1, beta2, 1.0 - beta2, scale, eps)


@inplace(
    "optim.adamax",
    f"{_HERE}:adamax",
    arrays=("param", "grad", "m", "u"),
    read=_READ,
    scalars={
        "rate": 1e-2,
        "decay": 0.0,
        "beta1": 0.9,
        "share1": 0.1,
        "beta2": 0.999,
        "eps": 1e-8,
    },
    aliases=("adamax",),
)
def adamax(
    param: Any,
    grad: Any,
    m: Any,
    u: Any,
    *,
    step: int,
    lr: float = 2e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    target: Any = None,
) -> Launch:
    """One step of AdaMax, in place: Adam by the infinity norm.

    Args:
        param: Floats of any shape, contiguous and writable; or a list of such arrays,
            and then each of the others is a list too.
        grad: The gradient; only read.
        m: The first moment, zeros before step 1.
        u: The largest gradient, fading, zeros before step 1.
        step: The number of this step, counted from 1.
        lr: The learning rate.
        beta1: How much of the first moment stays.
        beta2: How much of `u` stays.
        eps: Added to each gradient's size.
        weight_decay: L2 penalty: this times `param` is added to the gradient.
        target: Where to compute.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    id = "optim.adamax"
    beta1 = share(id, "beta1", beta1)
    scalars = (
        positive(id, "lr", lr) / (1.0 - beta1 ** count(id, step)),
        positive(id, "weight_decay", weight_decay),
        beta1,
        1.0 - beta1,
        share(id, "beta2", beta2),
        positive(id, "eps", eps),
    )
    return update(adamax, (param, grad, m, u), {}, scalars, target)
