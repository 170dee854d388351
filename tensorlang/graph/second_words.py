"""What the kernels of gradients compute, said by operators that have gradients."""

from __future__ import annotations

import math as plain
from collections.abc import Callable
from typing import Any, Final

from tensorlang.errors import GraphError
from tensorlang.graph.gradient_rules import across, beside, by_channel, unbroadcast
from tensorlang.graph.values import Value, zeros
from tensorlang.ops import find, math, nn

# ---------------------------------------------------- dy times a function of x


def _sigmoid_slope(x: Any) -> Any:
    y = nn.sigmoid(x)
    return y * (1.0 - y)


def _tanh_slope(x: Any) -> Any:
    return 1.0 - math.square(math.tanh(x))


def _silu_slope(x: Any) -> Any:
    y = nn.sigmoid(x)
    return y * (1.0 + x * (1.0 - y))


def _gelu_slope(x: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        share = (math.erf(x * plain.sqrt(0.5)) + 1.0) * 0.5
        return share + x * math.exp(math.square(x) * -0.5) * (2 * plain.pi) ** -0.5
    root, cubic = plain.sqrt(2 / plain.pi), 0.044715
    bent = math.tanh((x + math.square(x) * x * cubic) * root)
    slope = (1.0 + math.square(x) * (3 * cubic)) * root
    return (bent + 1.0) * 0.5 + x * 0.5 * (1.0 - math.square(bent)) * slope


def _softplus_slope(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    far = math.greater(x * beta, threshold)
    return math.where(far, 1.0, nn.sigmoid(x * beta))


SLOPES: Final[dict[str, Callable[..., Any]]] = {
    "math.square": lambda x: x * 2.0,
    "math.sin": math.cos,
    "math.cos": lambda x: math.negative(math.sin(x)),
    "math.exp": math.exp,
    "math.expm1": math.exp,
    "math.log": math.reciprocal,
    "math.log1p": lambda x: math.reciprocal(x + 1.0),
    "math.sqrt": lambda x: math.rsqrt(x) * 0.5,
    "math.rsqrt": lambda x: math.rsqrt(x) / x * -0.5,
    "math.reciprocal": lambda x: math.negative(math.square(math.reciprocal(x))),
    "math.tanh": _tanh_slope,
    "math.erf": lambda x: math.exp(math.negative(math.square(x))) * 2 / plain.pi**0.5,
    "math.abs": math.sign,
    **dict.fromkeys(("math.sign", "math.floor", "math.ceil"), lambda x: zeros(x.spec)),
    "nn.sigmoid": _sigmoid_slope,
    "nn.tanh": _tanh_slope,
    "nn.silu": _silu_slope,
    "nn.gelu": _gelu_slope,
    "nn.softplus": _softplus_slope,
}


# ------------------------------------------------------------ whole gradients


def _relu(dy: Any, x: Any) -> Any:
    return math.where(math.greater(x, 0.0), dy, 0.0)


def _leaky(dy: Any, x: Any, negative_slope: float) -> Any:
    return math.where(math.greater(x, 0.0), dy, dy * negative_slope)


def _multiply(dy: Any, a: Any, b: Any) -> Any:
    return _like(dy * b, a), _like(dy * a, b)


def _divide(dy: Any, a: Any, b: Any) -> Any:
    by_b = dy * a / math.square(b) * -1.0 if isinstance(b, Value) else None
    return _like(dy / b, a), _like(by_b, b)


def _power(dy: Any, a: Any, b: Any) -> Any:
    base = isinstance(a, Value)
    by_base = dy * b * math.power(a, b - 1.0) if base else None
    by_base = _like(by_base, a)
    if not isinstance(b, Value):
        return by_base, None
    by_exponent = dy * math.power(a, b)
    return by_base, _like(by_exponent * (math.log(a) if base else _log(a)), b)


def _log(a: float) -> float:
    if a > 0:
        return plain.log(a)
    return -plain.inf if a == 0 else plain.nan


def _where(dy: Any, cond: Any, a: Any, b: Any) -> Any:
    picked = math.where(cond, dy, 0.0), math.where(cond, 0.0, dy)
    return tuple(_like(each, of) for each, of in zip(picked, (a, b), strict=True))


def _maximum(dy: Any, a: Any, b: Any) -> Any:
    return _chosen(dy, a, b, math.less)


def _minimum(dy: Any, a: Any, b: Any) -> Any:
    return _chosen(dy, a, b, math.greater)


def _chosen(dy: Any, a: Any, b: Any, lost: Any) -> Any:
    """Dy where an operand did not lose, half of it in a tie."""
    tied = math.where(math.equal(a, b), dy * 0.5, dy)
    made = (math.where(lost(a, b), 0.0, tied), math.where(lost(b, a), 0.0, tied))
    return tuple(_like(each, of) for each, of in zip(made, (a, b), strict=True))


def _clip(dy: Any, x: Any, low: Any, high: Any) -> Any:
    low, high = (
        (-plain.inf if low is None else low),
        (plain.inf if high is None else high),
    )
    below, above = math.less(x, low), math.greater(x, high)
    inside = math.logical_not(math.logical_or(below, above))
    made = [_like(math.where(inside, dy, 0.0), x), None, None]
    if isinstance(low, Value):
        lowest = math.logical_and(below, math.less(low, high))
        made[1] = _like(math.where(lowest, dy, 0.0), low)
    if isinstance(high, Value):
        highest = math.logical_or(above, math.less(high, low))
        made[2] = _like(math.where(highest, dy, 0.0), high)
    return tuple(made)


def _like(dy: Any, operand: Any) -> Any:
    return unbroadcast(dy, operand) if isinstance(operand, Value) else None


def _matmul(dy: Any, a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Any:
    if min(a.ndim, b.ndim) < 2:
        raise GraphError("a gradient of a gradient of matmul is there for matrices")
    if transpose_a:
        da = math.matmul(b, dy, transpose_a=transpose_b, transpose_b=True)
    else:
        da = math.matmul(dy, b, transpose_b=not transpose_b)
    if transpose_b:
        db = math.matmul(dy, a, transpose_a=True, transpose_b=transpose_a)
    else:
        db = math.matmul(a, dy, transpose_a=not transpose_a)
    return _like(da, a), _like(db, b)


def _dense(dy: Any, x: Any, w: Any, layout: str) -> Any:
    dx = nn.dense(dy, w, layout="io" if layout == "oi" else "oi")
    rows = [nn.reshape(each, (-1, each.shape[-1])) for each in (dy, x)]
    if layout == "io":
        rows.reverse()
    dw = math.matmul(*rows, transpose_a=True)
    return dx, dw, math.sum(dy, tuple(range(dy.ndim - 1)))


def _softmax(dy: Any, x: Any, axis: int) -> Any:
    y = nn.softmax(x, axis)
    return y * (dy - math.sum(dy * y, axis, keepdims=True))


def _log_softmax(dy: Any, x: Any, axis: int) -> Any:
    return dy - nn.softmax(x, axis) * math.sum(dy, axis, keepdims=True)


def _logsumexp(dy: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    del keepdims
    y = math.logsumexp(x, axis, keepdims=True)
    return math.exp(x - y) * nn.reshape(dy, y.shape)


def _var(dy: Any, x: Any, axis: Any, correction: float, keepdims: bool) -> Any:
    del keepdims
    mean = math.mean(x, axis, keepdims=True)
    left = _count(x, axis) - correction
    return (x - mean) * (nn.reshape(dy, mean.shape) * 2.0 / left)


def _count(x: Any, axis: Any = None) -> Any:
    """How many elements are folded along axes: a number, where no size has a name."""
    axes = (axis,) if isinstance(axis, int) else axis
    extents = [x.shape[at] for at in (range(x.ndim) if axes is None else axes)]
    if all(isinstance(extent, int) for extent in extents):
        return float(plain.prod(extents))
    return math.sum(zeros(x.spec) + 1.0, axis, keepdims=True)


def _norm(  # noqa: PLR0917 - of three operators
    dy: Any, x: Any, weight: Any, eps: float, axis: int, folded: Any, *, centred: bool
) -> Any:
    """A norm's, whose weight lies along an axis, and whose moments fold others."""

    def mean(value: Any) -> Any:
        return math.mean(value, folded, keepdims=True)

    inner = dy if weight is None else dy * across(weight, x.ndim, axis)
    if centred:
        x = x - mean(x)
        inner = inner - mean(inner)
    scale = math.rsqrt(mean(math.square(x)) + eps)
    normal = x * scale
    dx = scale * (inner - normal * mean(inner * normal))
    others = beside(x.ndim, axis)
    return dx, math.sum(dy * normal, others), math.sum(dy, others)


def _layer_norm(dy: Any, x: Any, weight: Any, eps: float) -> Any:
    return _norm(dy, x, weight, eps, -1, -1, centred=True)


def _rms_norm(dy: Any, x: Any, weight: Any, eps: float) -> Any:
    return _norm(dy, x, weight, eps, -1, -1, centred=False)


def _batch_norm_train(dy: Any, x: Any, weight: Any, eps: float, axis: int) -> Any:
    folded = beside(x.ndim, axis)
    return _norm(dy, x, weight, eps, axis, folded, centred=True)


def _batch_norm(  # noqa: PLR0917 - as the operator
    dy: Any, x: Any, mean: Any, var: Any, weight: Any, eps: float, axis: int
) -> Any:
    mean, scale = (across(v, x.ndim, axis) for v in (mean, math.rsqrt(var + eps)))
    inner = dy if weight is None else dy * across(weight, x.ndim, axis)
    others = beside(x.ndim, axis)
    by_weight = math.sum(dy * (x - mean) * scale, others)
    return inner * scale, by_weight, math.sum(dy, others)


def _convolution(rank: int) -> Callable[..., Any]:
    def gradient(dy: Any, x: Any, w: Any, **given: Any) -> Any:
        rest = {name: given[name] for name in WINDOW}
        if given["activation"] is not None or not _first(rest["layout"]):
            raise GraphError(
                "a gradient of a convolution's gradient has channels first"
            )
        data, weight = (find(f"nn.conv{rank}d_grad_{w}") for w in ("data", "weight"))
        dx = data(dy, w, x.shape[2:], **rest)
        return dx, weight(dy, x, w.shape[2:], **rest), by_channel(dy, rest["layout"])

    return gradient


WINDOW: Final = ("stride", "padding", "dilation", "groups", "layout")


def _first(layout: str | None) -> bool:
    return layout is None or layout.index("C") == 1


def _mse(dy: Any, prediction: Any, truth: Any, reduction: str) -> Any:
    twice = dy * (prediction - truth) * 2.0
    if reduction != "mean":
        return twice
    return twice / _count(prediction)


WORDS: Final[dict[str, Callable[..., Any]]] = {
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky,
    "math.multiply": _multiply,
    "math.divide": _divide,
    "math.power": _power,
    "math.where": _where,
    "math.maximum": _maximum,
    "math.minimum": _minimum,
    "math.clip": _clip,
    "math.matmul": _matmul,
    "nn.dense": _dense,
    "nn.softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "math.logsumexp": _logsumexp,
    "math.var": _var,
    "nn.batch_norm": _batch_norm,
    "nn.batch_norm_train": _batch_norm_train,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.mse": _mse,
    **{f"nn.conv{rank}d": _convolution(rank) for rank in (1, 2, 3)},
}
