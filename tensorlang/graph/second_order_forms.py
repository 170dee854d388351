"""What the kernels of gradients compute, said by operators that have gradients."""

from __future__ import annotations

import math as plain
from collections.abc import Callable
from typing import Any, Final

from tensorlang.errors import GraphError
from tensorlang.graph.gradient_rules import across, beside, by_channel, unbroadcast
from tensorlang.graph.values import Value, zeros
from tensorlang.ops import find, math, nn

# ------------------------------------------------------------ whole gradients


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
