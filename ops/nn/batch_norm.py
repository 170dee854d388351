"""Batch normalisation for training and inference, and the gradients.

Ioffe and Szegedy, "Batch normalization", 2015.

Gradients are written by hand: identities of normalised channels leave two sums per
channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorlang import ir
from tensorlang.ops.nn.channel_moments import (
    Channel,
    Channels,
    by_channels,
    check_variance,
)
from tensorlang.ops.nn.norms import inverse_root
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats, Scalar, Weights

_USUAL: Final = (8, 64, 56, 56)
_RESULTS: Final = {"dx": "x", "dweight": "weight", "dbias": "weight"}  # of gradients
_MEANINGS: Final = {
    "mean": "Mean per channel.",
    "var": "Variance per channel.",
    "running_mean": "Running mean per channel.",
    "running_var": "Running variance per channel.",
    "weight": "Scale per channel, or None.",
    "bias": "Offset per channel, or None.",
    "eps": "Added to the variance.",
    "axis": "The channel axis.",
}


def _operator(
    name: str, arrays: int, weights: int, of: str = ""
) -> Callable[[Body], Operator]:
    """An operator on images and per-channel arrays, or the gradient of `of`."""
    return operator(
        f"nn.{name}",
        shapes=(_USUAL,) * arrays + (_USUAL[1:2],) * weights,
        scheduled_as="rows",
        whole=True,
        meanings=None if of else _MEANINGS,
        gradient={"linear": False, "results": _RESULTS} if of else None,
    )


@_operator("batch_norm", 1, 4)
def batch_norm(
    x: Floats,
    mean: Weights,
    var: Weights,
    weight: Weights | None = None,
    bias: Weights | None = None,
    *,
    eps: Scalar = 1e-5,
    axis: int = 1,
) -> ir.Tensor:
    """Batch normalisation with given moments, as in inference.

    `(x - mean) / sqrt(var + eps) * weight + bias`, per channel.

    Args:
        x: Floats, at least two dimensions.
        out: Output array; may be `x`.
    """
    (rows,), dim = by_channels(
        axis, {"x": x}, mean=mean, var=var, weight=weight, bias=bias
    )

    def deviation(c: ir.Expr) -> ir.Expr:
        return _scaled(inverse_root(ir.wide(var[c]) + eps), weight, c)

    scale = _by_channel(x, axis, deviation, "scale")
    return _normalised(rows, dim, lambda c: ir.wide(mean[c]), scale, bias)


@_operator("batch_norm_train", 1, 4)
def batch_norm_train(
    x: Floats,
    running_mean: Weights,
    running_var: Weights,
    weight: Weights | None = None,
    bias: Weights | None = None,
    *,
    momentum: Scalar = 0.1,
    eps: Scalar = 1e-5,
    axis: int = 1,
) -> tuple[ir.Tensor, ir.Tensor, ir.Tensor]:
    """Batch normalisation with the moments of the batch, and updated running moments.

    Running moments become `(1 - momentum) * running + momentum * batch`, with the
    unbiased variance of the batch.

    Args:
        x: Floats, at least two dimensions, with more than one value per channel.
        momentum: Weight of the batch in the running moments.
        out: Three output arrays: y, mean and variance; the latter two may be
            `running_mean` and `running_var`.
    """
    (rows,), dim = by_channels(
        axis,
        {"x": x},
        running_mean=running_mean,
        running_var=running_var,
        weight=weight,
        bias=bias,
    )
    check_variance(x, rows, dim)
    channels = Channels(rows, dim)
    found = channels.moments()

    def deviation(c: ir.Expr) -> ir.Expr:
        return _scaled(inverse_root(found.variance(c) + eps), weight, c)

    def spread(c: ir.Expr) -> ir.Expr:
        return found.squares(c) / (channels.count - 1.0)

    scale = _by_channel(x, axis, deviation, "scale")
    return (
        _normalised(rows, dim, found.mean, scale, bias),
        _moved(running_mean, found.mean, momentum, "next_mean"),
        _moved(running_var, spread, momentum, "next_var"),
    )


@_operator("batch_norm_grad", 2, 3, "batch_norm")
def batch_norm_grad(
    dy: Floats,
    x: Floats,
    mean: Weights,
    var: Weights,
    weight: Weights | None = None,
    *,
    eps: Scalar = 1e-5,
    axis: int = 1,
) -> object:
    """The gradients of `nn.batch_norm` for x, weight and bias.

    Args:
        weight: As for `nn.batch_norm`; if None, only the gradient for x is returned.
        out: Output arrays: three, or one without weight.
    """
    (given, rows), dim = by_channels(
        axis, {"dy": dy, "x": x}, mean=mean, var=var, weight=weight
    )
    channels = Channels(rows, dim)
    scale = _by_channel(x, axis, lambda c: inverse_root(ir.wide(var[c]) + eps), "scale")

    def element(at: ir.rows.Index) -> ir.Expr:
        c = at[dim]
        return ir.stored(given[at] * _scaled(scale[c], weight, c), x.dtype)

    dx = rows.whole(given.each(element, "dx"))
    if weight is None:
        return dx
    by_unit = channels.sum(
        lambda at: given[at] * (channels[at] - ir.wide(mean[at[dim]])), "by_unit"
    )
    plain = channels.sum(given.__getitem__, "plain")
    return (
        dx,
        _as_weight(weight, lambda c: by_unit(c) * scale[c], "dweight"),
        _as_weight(weight, plain, "dbias"),
    )


@_operator("batch_norm_train_grad", 2, 1, "batch_norm_train")
def batch_norm_train_grad(
    dy: Floats,
    x: Floats,
    weight: Weights | None = None,
    *,
    eps: Scalar = 1e-5,
    axis: int = 1,
) -> object:
    """The gradients of `nn.batch_norm_train` for x, weight and bias, from that of y.

    Includes the gradient through the moments: with `u` the normalised x and
    `scale = 1 / sqrt(variance + eps)`,
    `dx = scale * weight * (dy - mean(dy) - u * mean(dy * u))`.

    Args:
        dy: The gradient of y.
        weight: As for `nn.batch_norm_train`; if None, only the gradient for x is
            returned.
        out: Output arrays: three, or one without weight.
    """
    (given, rows), dim = by_channels(axis, {"dy": dy, "x": x}, weight=weight)
    check_variance(x, rows, dim)
    channels = Channels(rows, dim, given)
    found, count = channels.moments(), channels.count
    plain, moment = found.plain, found.moment
    assert plain is not None
    assert moment is not None
    scale = _by_channel(
        x, axis, lambda c: inverse_root(found.variance(c) + eps), "scale"
    )

    def element(at: ir.rows.Index) -> ir.Expr:
        c = at[dim]
        unit = (channels[at] - found.mean(c)) * scale[c]
        slope = moment(c) * scale[c] / count
        rest = given[at] - plain(c) / count - unit * slope
        return ir.stored(_scaled(scale[c], weight, c) * rest, x.dtype)

    dx = rows.whole(given.each(element, "dx"))
    if weight is None:
        return dx
    return (
        dx,
        _as_weight(weight, lambda c: moment(c) * scale[c], "dweight"),
        _as_weight(weight, plain, "dbias"),
    )


# ------------------------------------------------------------------------ the loops


def _scaled(value: ir.Expr, weight: ir.Tensor | None, c: ir.Expr) -> ir.Expr:
    return value if weight is None else value * ir.wide(weight[c])


def _by_channel(x: ir.Tensor, axis: int, value: Channel, name: str) -> ir.Tensor:
    return ir.compute((x.shape[axis],), value, name)


def _normalised(
    rows: ir.rows.Rows,
    dim: int,
    mean: Channel,
    scale: ir.Tensor,
    bias: ir.Tensor | None,
) -> ir.Tensor:
    """`(x - mean) * scale + bias`."""

    def element(at: ir.rows.Index) -> ir.Expr:
        c = at[dim]
        value = (rows[at] - mean(c)) * scale[c]
        value = value if bias is None else value + ir.wide(bias[c])
        return ir.stored(value, rows.array.dtype)

    return rows.whole(rows.each(element, "y"))


def _moved(running: ir.Tensor, own: Channel, momentum: Scalar, name: str) -> ir.Tensor:
    """`(1 - momentum) * running + momentum * own`."""

    def value(c: ir.Expr) -> ir.Expr:
        held = ir.wide(running[c])
        share = ir.as_expr(momentum).cast(held.dtype)
        moved = held * (1.0 - share) + own(c).cast(held.dtype) * share
        return ir.stored(moved, running.dtype)

    return ir.compute(running.shape, value, name)


def _as_weight(weight: ir.Tensor, value: Channel, name: str) -> ir.Tensor:
    return ir.compute(weight.shape, lambda c: ir.stored(value(c), weight.dtype), name)
