"""What the kernels of gradients compute, said by operators that have gradients."""

from __future__ import annotations

import math as plain
from collections.abc import Callable
from typing import Any, Final

from tensorlang.errors import GraphError
from tensorlang.graph.gradient_rules import by_channel, unbroadcast
from tensorlang.graph.values import Value
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
    del threshold  # beyond it, the slope is 1 but for less than a bit
    return nn.sigmoid(x * beta)


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
    return _like(dy / b, a), _like(dy * a / math.square(b) * -1.0, b)


def _power(dy: Any, a: Any, b: Any) -> Any:
    by_base = _like(dy * b * math.power(a, b - 1.0), a)
    if not isinstance(b, Value):
        return by_base, None
    return by_base, _like(dy * math.power(a, b) * math.log(a), b)


def _where(dy: Any, cond: Any, a: Any, b: Any) -> Any:
    picked = math.where(cond, dy, 0.0), math.where(cond, 0.0, dy)
    return tuple(_like(each, of) for each, of in zip(picked, (a, b), strict=True))


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


def _layer_norm(dy: Any, x: Any, weight: Any, eps: float) -> Any:
    centred = x - math.mean(x, -1, keepdims=True)
    scale = math.rsqrt(math.mean(math.square(centred), -1, keepdims=True) + eps)
    normal, inner = centred * scale, dy if weight is None else dy * weight
    dx = inner - math.mean(inner, -1, keepdims=True)
    dx = scale * (dx - normal * math.mean(inner * normal, -1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    return dx, math.sum(dy * normal, rows), math.sum(dy, rows)


def _rms_norm(dy: Any, x: Any, weight: Any, eps: float) -> Any:
    scale = math.rsqrt(math.mean(math.square(x), -1, keepdims=True) + eps)
    normal, inner = x * scale, dy if weight is None else dy * weight
    dx = scale * (inner - normal * math.mean(inner * normal, -1, keepdims=True))
    return dx, math.sum(dy * normal, tuple(range(x.ndim - 1)))


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
    return twice / math.sum((prediction - prediction) + 1.0)


WORDS: Final[dict[str, Callable[..., Any]]] = {
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky,
    "math.multiply": _multiply,
    "math.divide": _divide,
    "math.power": _power,
    "math.where": _where,
    "math.matmul": _matmul,
    "nn.dense": _dense,
    "nn.softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.mse": _mse,
    **{f"nn.conv{rank}d": _convolution(rank) for rank in (1, 2, 3)},
}
