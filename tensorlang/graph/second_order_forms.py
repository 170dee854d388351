"""The gradient kernels expressed by differentiable operators."""

from __future__ import annotations

import math as plain
from collections.abc import Callable
from typing import Final, TypeAlias

from tensorlang.errors import GraphError
from tensorlang.graph.gradient_rules import (
    along_axis,
    by_channel,
    other_axes,
    unbroadcast,
)
from tensorlang.graph.values import Argument, OpResult, Tensor, Value, zeros
from tensorlang.ops import find, math, nn

Axes: TypeAlias = int | tuple[int, ...] | None
Maybe: TypeAlias = Tensor | None

# ------------------------------------------------------------ whole gradients


def _like(dy: Tensor, operand: Argument) -> OpResult:
    return unbroadcast(dy, operand) if isinstance(operand, Value) else None


def _matmul(
    dy: Tensor, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool
) -> OpResult:
    if min(a.ndim, b.ndim) < 2:
        raise GraphError(
            "second-order gradients of matmul are only supported for matrices"
        )
    if transpose_a:
        da = math.matmul(b, dy, transpose_a=transpose_b, transpose_b=True)
    else:
        da = math.matmul(dy, b, transpose_b=not transpose_b)
    if transpose_b:
        db = math.matmul(dy, a, transpose_a=True, transpose_b=transpose_a)
    else:
        db = math.matmul(a, dy, transpose_a=not transpose_a)
    return _like(da, a), _like(db, b)


def _dense(dy: Tensor, x: Tensor, w: Tensor, layout: str) -> OpResult:
    dx = nn.dense(dy, w, layout="io" if layout == "oi" else "oi")
    rows = [nn.reshape(each, (-1, each.shape[-1])) for each in (dy, x)]
    if layout == "io":
        rows.reverse()
    dw = math.matmul(*rows, transpose_a=True)
    return dx, dw, math.sum(dy, tuple(range(dy.ndim - 1)))


def _norm(  # noqa: PLR0917 - shared by three operators
    dy: Tensor,
    x: Tensor,
    weight: Maybe,
    eps: float,
    axis: int,
    folded: Axes,
    *,
    centred: bool,
) -> OpResult:
    """A norm with its weight along `axis` and moments over the `folded` axes."""

    def mean(value: Tensor) -> OpResult:
        return math.mean(value, folded, keepdims=True)

    inner = dy if weight is None else dy * along_axis(weight, x.ndim, axis)
    if centred:
        x = x - mean(x)
        inner = inner - mean(inner)
    scale = math.rsqrt(mean(math.square(x)) + eps)
    normal = x * scale
    dx = scale * (inner - normal * mean(inner * normal))
    others = other_axes(x.ndim, axis)
    return dx, math.sum(dy * normal, others), math.sum(dy, others)


def _layer_norm(dy: Tensor, x: Tensor, weight: Maybe, eps: float) -> OpResult:
    return _norm(dy, x, weight, eps, -1, -1, centred=True)


def _rms_norm(dy: Tensor, x: Tensor, weight: Maybe, eps: float) -> OpResult:
    return _norm(dy, x, weight, eps, -1, -1, centred=False)


def _batch_norm_train(
    dy: Tensor, x: Tensor, weight: Maybe, eps: float, axis: int
) -> OpResult:
    folded = other_axes(x.ndim, axis)
    return _norm(dy, x, weight, eps, axis, folded, centred=True)


def _batch_norm(  # noqa: PLR0917 - the operator's parameters
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Maybe,
    eps: float,
    axis: int,
) -> OpResult:
    mean, scale = (along_axis(v, x.ndim, axis) for v in (mean, math.rsqrt(var + eps)))
    inner = dy if weight is None else dy * along_axis(weight, x.ndim, axis)
    others = other_axes(x.ndim, axis)
    by_weight = math.sum(dy * (x - mean) * scale, others)
    return inner * scale, by_weight, math.sum(dy, others)


def _convolution(rank: int) -> Callable[..., OpResult]:
    def gradient(dy: Tensor, x: Tensor, w: Tensor, **given: Argument) -> OpResult:
        rest = {name: given[name] for name in WINDOW}
        if given["activation"] is not None or not _first(rest["layout"]):
            raise GraphError(
                "second-order gradients of convolutions are only supported for "
                "channels first"
            )
        data, weight = (find(f"nn.conv{rank}d_grad_{w}") for w in ("data", "weight"))
        dx = data(dy, w, x.shape[2:], **rest)
        return dx, weight(dy, x, w.shape[2:], **rest), by_channel(dy, rest["layout"])

    return gradient


WINDOW: Final = ("stride", "padding", "dilation", "groups", "layout")


def _first(layout: str | None) -> bool:
    return layout is None or layout.index("C") == 1


def _mse(dy: Tensor, prediction: Tensor, truth: Tensor, reduction: str) -> OpResult:
    twice = dy * (prediction - truth) * 2.0
    if reduction != "mean":
        return twice
    extents = [extent for extent in prediction.shape if isinstance(extent, int)]
    if len(extents) == prediction.ndim:
        return twice / float(plain.prod(extents))
    return twice / math.sum(zeros(prediction.spec) + 1.0)


WORDS: Final[dict[str, Callable[..., OpResult]]] = {
    "math.matmul": _matmul,
    "nn.dense": _dense,
    "nn.batch_norm": _batch_norm,
    "nn.batch_norm_train": _batch_norm_train,
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.mse": _mse,
    **{f"nn.conv{rank}d": _convolution(rank) for rank in (1, 2, 3)},
}
