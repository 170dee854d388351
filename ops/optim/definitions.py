"""Steps of optimizers, element by element: new values from old ones.

What follows from hyper-parameters alone, such as 1 - beta, is computed by the callers
in f64 and comes as a scalar: in f32, 1 - 0.999 has an error of 5e-5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir import compute, f64, reduce_axis
from tensorlang.ir import sum as fold
from tensorlang.ir.chunks import Parts
from tensorlang.ir.frontend import Tensor
from tensorlang.ir.intrinsics import isnan, sqrt
from tensorlang.ir.nodes import Buffer, Expr, Select, Unary, as_expr
from tensorlang.ir.rows import Rows

if TYPE_CHECKING:
    from tensorlang.ir.chunks import Folded
    from tensorlang.ir.frontend import Reduction
    from tensorlang.ir.rows import Index


def adam(
    param: Expr,
    grad: Expr,
    m: Expr,
    v: Expr,
    max_v: Expr | None = None,
    *,
    rate: Expr,
    keep: Expr,
    decay: Expr,
    beta1: Expr,
    share1: Expr,
    beta2: Expr,
    share2: Expr,
    scale: Expr,
    eps: Expr,
) -> tuple[Expr, ...]:
    """Adam and AdamW: `keep` is how much of a parameter stays, `decay` is added to g.

    `rate` and `scale` hold the corrections of the moments' bias.
    """
    g = _decayed(grad, param, decay)
    new_m = beta1 * m + share1 * g
    new_v = beta2 * v + share2 * (g * g)
    top = new_v if max_v is None else _largest(new_v, max_v)
    step = rate * (new_m / (sqrt(top) * scale + eps))
    new = (keep * param - step, new_m, new_v)
    return new if max_v is None else (*new, top)


def sgd(
    param: Expr,
    grad: Expr,
    velocity: Expr | None = None,
    *,
    rate: Expr,
    decay: Expr,
    momentum: Expr,
    keep: Expr,
    share: Expr,
    nesterov: bool,
) -> tuple[Expr, ...]:
    """Gradient descent; the velocity becomes `keep` of itself and `share` of g."""
    g = _decayed(grad, param, decay)
    if velocity is None:
        return (param - rate * g,)
    new = keep * velocity + share * g
    ahead = g + momentum * new if nesterov else new
    return param - rate * ahead, new


def rmsprop(
    param: Expr,
    grad: Expr,
    square: Expr,
    velocity: Expr | None = None,
    mean: Expr | None = None,
    *,
    rate: Expr,
    decay: Expr,
    alpha: Expr,
    share: Expr,
    momentum: Expr,
    eps: Expr,
) -> tuple[Expr, ...]:
    """RMSProp; with a mean it is centred, with a velocity it has momentum."""
    g = _decayed(grad, param, decay)
    new_square = alpha * square + share * (g * g)
    more: tuple[Expr, ...] = ()
    spread = new_square
    if mean is not None:
        new_mean = alpha * mean + share * g
        more = (new_mean,)
        variance = new_square - new_mean * new_mean
        spread = Select(variance < 0.0, as_expr(0.0, g.dtype), variance)
    ahead = g / (sqrt(spread) + eps)
    if velocity is not None:
        ahead = momentum * velocity + ahead
        more = (ahead, *more)
    return param - rate * ahead, new_square, *more


def adagrad(
    param: Expr, grad: Expr, total: Expr, *, rate: Expr, decay: Expr, eps: Expr
) -> tuple[Expr, ...]:
    """AdaGrad: steps by the root of the sum of all squares."""
    g = _decayed(grad, param, decay)
    new = total + g * g
    return param - rate * (g / (sqrt(new) + eps)), new


def adamax(
    param: Expr,
    grad: Expr,
    m: Expr,
    u: Expr,
    *,
    rate: Expr,
    decay: Expr,
    beta1: Expr,
    share1: Expr,
    beta2: Expr,
    eps: Expr,
) -> tuple[Expr, ...]:
    """AdaMax: Adam with the largest gradient, fading, in place of the second moment."""
    g = _decayed(grad, param, decay)
    new_m = beta1 * m + share1 * g
    new_u = _largest(Unary("abs", g) + eps, beta2 * u)
    return param - rate * (new_m / new_u), new_m, new_u


def sum_of_squares(x: Tensor) -> Tensor:
    """The sum of the squares of x [n], in f64."""
    k = reduce_axis(x.shape[0], "k")

    def total() -> Reduction:
        value = x[k].cast(f64)
        return fold(value * value, k)

    made: Tensor = compute((), total, "total")
    return made


def squares_of_parts(x: Tensor) -> Tensor:
    """The sums of the squares of x [n] in parts of one length, in f64."""
    row = Tensor(Buffer(x.buffer.name, x.dtype, (as_expr(1), x.shape[0])))

    def square(_: int, __: Index, at: Index) -> Expr:
        value = x[at[1]].cast(f64)
        return value * value

    made: Folded = Parts(Rows(row)).fold("sum", square, "squares")
    return made.every


def scaled(x: Expr, *, factor: Expr) -> tuple[Expr, ...]:
    """`x` times a factor."""
    return (x * factor,)


def _decayed(grad: Expr, param: Expr, decay: Expr) -> Expr:
    """The gradient with that of the penalty on the parameter, where there is one."""
    return Select(decay.equal(0.0), grad, grad + decay * param)


def _largest(new: Expr, old: Expr) -> Expr:
    """The larger one; NaN where one is."""
    return Select((new > old) | isnan(new), new, old)
