"""Adam and its variants, in place.

Kingma and Ba, "Adam: a method for stochastic optimization", 2015 (adam, adamax);
Loshchilov and Hutter, "Decoupled weight decay regularization", 2019 (adamw); Reddi,
Kale and Kumar, "On the convergence of Adam and beyond", 2018 (`max_v`, AMSGrad).
"""

from __future__ import annotations

import math

from tensorlang import ir
from tensorlang.ops.calls.updates import update
from tensorlang.ops.optim.elements import decayed, largest
from tensorlang.ops.optim.numbers import MEANINGS, Count, Part, Positive
from tensorlang.ops.spec.signature import Float, InOut, Scalar


def _adam(
    *,
    step: Count,
    lr: Positive = 1e-3,
    beta1: Part = 0.9,
    beta2: Part = 0.999,
    eps: Positive = 1e-8,
    weight_decay: Positive = 0.0,
    epsilon_hat: bool = False,
) -> tuple[float, ...]:
    """One step of Adam, in place: updates `param` and the moments `m` and `v`.

    Args:
        step: The number of this step, counted from 1, for bias correction.
        epsilon_hat: Whether `eps` is added to the square root before its bias
            correction, as in TensorFlow and at the end of section 2 of the paper.
    """
    rate, root = lr / (1.0 - beta1**step), math.sqrt(1.0 - beta2**step)
    rate, scale = (rate * root, 1.0) if epsilon_hat else (rate, 1.0 / root)
    share1, share2 = 1.0 - beta1, 1.0 - beta2
    return rate, 1.0, weight_decay, beta1, share1, beta2, share2, scale, eps


def _adamw(
    *,
    step: Count,
    lr: Positive = 1e-3,
    beta1: Part = 0.9,
    beta2: Part = 0.999,
    eps: Positive = 1e-8,
    weight_decay: Positive = 1e-2,
    epsilon_hat: bool = False,
) -> tuple[float, ...]:
    """One step of AdamW, in place: Adam with decoupled weight decay.

    Args:
        weight_decay: `param` is first multiplied by `1 - lr * weight_decay`.
        epsilon_hat: Whether `eps` is added to the square root before its bias
            correction.
    """
    rate, _, _, *rest = _adam(
        step=step, lr=lr, beta1=beta1, beta2=beta2, eps=eps, epsilon_hat=epsilon_hat
    )
    return rate, 1.0 - lr * weight_decay, 0.0, *rest


def _step(
    param: InOut[Float],
    grad: Float,
    m: InOut[Float],
    v: InOut[Float],
    max_v: InOut[Float] | None = None,
    *,
    rate: Scalar = 1e-2,
    keep: Scalar = 1.0,
    decay: Scalar = 0.0,
    beta1: Scalar = 0.9,
    share1: Scalar = 0.1,
    beta2: Scalar = 0.999,
    share2: Scalar = 0.001,
    scale: Scalar = 30.0,
    eps: Scalar = 1e-8,
) -> tuple[Float, ...]:
    """Adam and AdamW: `keep` scales the parameter, `decay` is the L2 penalty.

    `rate` and `scale` include the bias corrections of the moments.
    """
    g = decayed(grad, param, decay)
    new_m = beta1 * m + share1 * g
    new_v = beta2 * v + share2 * (g * g)
    top = new_v if max_v is None else largest(new_v, max_v)
    step = rate * (new_m / (ir.sqrt(top) * scale + eps))
    new = (keep * param - step, new_m, new_v)
    return new if max_v is None else (*new, top)


adam = update("optim.adam", host=_adam, meanings=MEANINGS)(_step)
adamw = update("optim.adamw", host=_adamw, meanings=MEANINGS)(_step)


def _adamax(
    *,
    step: Count,
    lr: Positive = 2e-3,
    beta1: Part = 0.9,
    beta2: Part = 0.999,
    eps: Positive = 1e-8,
    weight_decay: Positive = 0.0,
) -> tuple[float, ...]:
    rate = lr / (1.0 - beta1**step)
    return rate, weight_decay, beta1, 1.0 - beta1, beta2, eps


@update("optim.adamax", host=_adamax, meanings=MEANINGS)
def adamax(
    param: InOut[Float],
    grad: Float,
    m: InOut[Float],
    u: InOut[Float],
    *,
    rate: Scalar = 1e-2,
    decay: Scalar = 0.0,
    beta1: Scalar = 0.9,
    share1: Scalar = 0.1,
    beta2: Scalar = 0.999,
    eps: Scalar = 1e-8,
) -> tuple[Float, ...]:
    """One step of AdaMax, in place: Adam with the infinity norm.

    Args:
        u: The exponentially weighted infinity norm of gradients, zeros before step 1.
        beta2: The decay rate of `u`.
        eps: Added to the absolute value of each gradient.
    """
    g = decayed(grad, param, decay)
    new_m = beta1 * m + share1 * g
    new_u = largest(ir.unary("abs", g) + eps, beta2 * u)
    return param - rate * (new_m / new_u), new_m, new_u
