"""What the kernels of gradients compute, said by operators that have gradients."""

from __future__ import annotations

import math as plain
from collections.abc import Callable
from typing import Final, TypeAlias

from tensorlang.errors import GraphError
from tensorlang.graph.gradient_rules import across, beside, by_channel, unbroadcast
from tensorlang.graph.values import Argument, Made, Tensor, Value, zeros
from tensorlang.ops import find, math, nn

Axes: TypeAlias = int | tuple[int, ...] | None
Maybe: TypeAlias = Tensor | None

# ------------------------------------------------------------ whole gradients


def _like(dy: Tensor, operand: Argument) -> Made:
    return unbroadcast(dy, operand) if isinstance(operand, Value) else None


def _matmul(
    dy: Tensor, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool
) -> Made:
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


def _dense(dy: Tensor, x: Tensor, w: Tensor, layout: str) -> Made:
    dx = nn.dense(dy, w, layout="io" if layout == "oi" else "oi")
    rows = [nn.reshape(each, (-1, each.shape[-1])) for each in (dy, x)]
    if layout == "io":
        rows.reverse()
    dw = math.matmul(*rows, transpose_a=True)
    return dx, dw, math.sum(dy, tuple(range(dy.ndim - 1)))


def _softmax(dy: Tensor, x: Tensor, axis: int) -> Made:
    y = nn.softmax(x, axis)
    return y * (dy - math.sum(dy * y, axis, keepdims=True))


def _log_softmax(dy: Tensor, x: Tensor, axis: int) -> Made:
    return dy - nn.softmax(x, axis) * math.sum(dy, axis, keepdims=True)


def _logsumexp(dy: Tensor, x: Tensor, axis: Axes, keepdims: bool) -> Made:
    del keepdims
    y = math.logsumexp(x, axis, keepdims=True)
    return math.exp(x - y) * nn.reshape(dy, y.shape)


def _var(dy: Tensor, x: Tensor, axis: Axes, correction: float, keepdims: bool) -> Made:
    del keepdims
    mean = math.mean(x, axis, keepdims=True)
    left = _count(x, axis) - correction
    return (x - mean) * (nn.reshape(dy, mean.shape) * 2.0 / left)


def _count(x: Tensor, axis: Axes = None) -> Made:
    """How many elements are folded along axes: a number, where no size has a name."""
    axes = (axis,) if isinstance(axis, int) else axis
    extents = [x.shape[at] for at in (range(x.ndim) if axes is None else axes)]
    known = [extent for extent in extents if isinstance(extent, int)]
    if len(known) == len(extents):
        return float(plain.prod(known))
    return math.sum(zeros(x.spec) + 1.0, axis, keepdims=True)


def _norm(  # noqa: PLR0917 - of three operators
    dy: Tensor,
    x: Tensor,
    weight: Maybe,
    eps: float,
    axis: int,
    folded: Axes,
    *,
    centred: bool,
) -> Made:
    """A norm's, whose weight lies along an axis, and whose moments fold others."""

    def mean(value: Tensor) -> Made:
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


def _layer_norm(dy: Tensor, x: Tensor, weight: Maybe, eps: float) -> Made:
    return _norm(dy, x, weight, eps, -1, -1, centred=True)


def _rms_norm(dy: Tensor, x: Tensor, weight: Maybe, eps: float) -> Made:
    return _norm(dy, x, weight, eps, -1, -1, centred=False)


def _batch_norm_train(
    dy: Tensor, x: Tensor, weight: Maybe, eps: float, axis: int
) -> Made:
    folded = beside(x.ndim, axis)
    return _norm(dy, x, weight, eps, axis, folded, centred=True)


def _batch_norm(  # noqa: PLR0917 - as the operator
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Maybe,
    eps: float,
    axis: int,
) -> Made:
    mean, scale = (across(v, x.ndim, axis) for v in (mean, math.rsqrt(var + eps)))
    inner = dy if weight is None else dy * across(weight, x.ndim, axis)
    others = beside(x.ndim, axis)
    by_weight = math.sum(dy * (x - mean) * scale, others)
    return inner * scale, by_weight, math.sum(dy, others)


def _convolution(rank: int) -> Callable[..., Made]:
    def gradient(dy: Tensor, x: Tensor, w: Tensor, **given: Argument) -> Made:
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


def _mse(dy: Tensor, prediction: Tensor, truth: Tensor, reduction: str) -> Made:
    twice = dy * (prediction - truth) * 2.0
    if reduction != "mean":
        return twice
    return twice / _count(prediction)


WORDS: Final[dict[str, Callable[..., Made]]] = {
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
