"""Batch normalisation for training and inference, and the gradients.

Ioffe and Szegedy, "Batch normalization", 2015.

Arrays are seen as images `[n, c, i]`, with a channel contiguous within an image, or as
columns `[1, n, c]`, with contiguous channels. The moments of each image are computed in
one pass over memory and then combined (Chan, Golub and LeVeque, 1979). Gradients are
written by hand: identities of normalised channels leave two sums per channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from tensorlang import ir
from tensorlang.ops.definition import operator
from tensorlang.ops.nn.norms import inverse_root
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.signature import Floats, Scalar, Weights

if TYPE_CHECKING:
    from tensorlang.ir import Expr, Tensor
    from tensorlang.ir.rows import Index, Rows

Value: TypeAlias = "Callable[[Index], Expr]"
# a value per channel, by channel index
Channel: TypeAlias = "Callable[[Expr], Expr]"
_USUAL: Final = (8, 64, 56, 56)
_RESULTS: Final = {"dx": "x", "dweight": "weight", "dbias": "weight"}  # of gradients
_IMAGES: Final = 1  # the channel dimension of images `[n, c, i]`
_COLUMNS: Final = 2  # the channel dimension of columns `[1, n, c]`
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
) -> Tensor:
    """Batch normalisation with given moments, as in inference.

    `(x - mean) / sqrt(var + eps) * weight + bias`, per channel.

    Args:
        x: Floats, at least two dimensions.
        out: Output array; may be `x`.
    """
    (rows,), dim = _seen(axis, {"x": x}, mean=mean, var=var, weight=weight, bias=bias)

    def deviation(c: Expr) -> Expr:
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
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation with the moments of the batch, and updated running moments.

    Running moments become `(1 - momentum) * running + momentum * batch`, with the
    unbiased variance of the batch.

    Args:
        x: Floats, at least two dimensions, with more than one value per channel.
        momentum: Weight of the batch in the running moments.
        out: Three output arrays: y, mean and variance; the latter two may be
            `running_mean` and `running_var`.
    """
    (rows,), dim = _seen(
        axis,
        {"x": x},
        running_mean=running_mean,
        running_var=running_var,
        weight=weight,
        bias=bias,
    )
    _with_variance(x, rows, dim)
    channels = Channels(rows, dim)
    found = channels.moments()

    def deviation(c: Expr) -> Expr:
        return _scaled(inverse_root(found.variance(c) + eps), weight, c)

    def spread(c: Expr) -> Expr:
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
    (given, rows), dim = _seen(
        axis, {"dy": dy, "x": x}, mean=mean, var=var, weight=weight
    )
    channels = Channels(rows, dim)
    scale = _by_channel(x, axis, lambda c: inverse_root(ir.wide(var[c]) + eps), "scale")

    def element(at: Index) -> Expr:
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
    (given, rows), dim = _seen(axis, {"dy": dy, "x": x}, weight=weight)
    _with_variance(x, rows, dim)
    channels = Channels(rows, dim, given)
    found, count = channels.moments(), channels.count
    plain, moment = found.plain, found.moment
    assert plain is not None
    assert moment is not None
    scale = _by_channel(
        x, axis, lambda c: inverse_root(found.variance(c) + eps), "scale"
    )

    def element(at: Index) -> Expr:
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


# --------------------------------------------------------------------------- shapes


def _seen(
    axis: int, arrays: dict[str, Tensor], **by_channel: Tensor | None
) -> tuple[tuple[Rows, ...], int]:
    """Arrays as images or columns, and their channel dimension."""
    ir.rows.same_shape(**arrays)
    x = arrays["x"]
    at = ir.rows.axis_of(axis, x.ndim)
    channels = int(x.shape[at])
    for name, each in by_channel.items():
        ir.require(
            each is None or (each.ndim == 1 and each.shape[0] == channels),
            "{name} has shape {shape}; for x of shape {x} with its channels along axis "
            "{at} it is {wanted}",
            name=name,
            shape=each and each.shape,
            x=x.shape,
            at=at,
            wanted=(channels,),
        )
    before, behind = ir.elements(x.shape[:at]), x.shape[at + 1 :]
    if all(extent == 1 for extent in behind):
        seen, dim = (1, before, channels), _COLUMNS
    else:
        seen, dim = (before, channels, math.prod(map(int, behind))), _IMAGES
    axes = tuple(n for n in range(x.ndim) if n != at)
    dims = (2 if dim == _IMAGES else 1,)
    return tuple(
        ir.rows.Rows(ir.reshaped(array, seen), dims, array, axes)
        for array in arrays.values()
    ), dim


def _with_variance(x: Tensor, rows: Rows, dim: int) -> None:
    """Check that channels have more than one value."""
    ir.require(
        dim == _IMAGES or rows.array.shape[1] != 1,
        "x of shape {x} has one value a channel, which has no variance",
        x=x.shape,
    )


# ------------------------------------------------------------------------ the loops


class Channels:
    """Per-channel sums and moments of an array.

    Args:
        rows: The array.
        dim: The channel dimension.
        given: The gradient `dy` of a result of the same shape, if any.
    """

    def __init__(self, rows: Rows, dim: int, given: Rows | None = None) -> None:
        self.rows, self.dim, self.given = rows, dim, given
        self.array = rows.array

    def __getitem__(self, at: Index) -> Expr:
        """An element, widened to the accumulation type."""
        return self.rows[at]

    @property
    def count(self) -> Expr:
        """The number of elements per channel, in the accumulation type."""
        n, *_ = extents = self.array.buffer.shape
        number = n * extents[2] if self.dim == _IMAGES else extents[1]
        return number.cast(self.rows.dtype)

    def sum(self, value: Value, name: str) -> Channel:
        """The sum of `value` over each channel."""
        if self.dim != _IMAGES:
            whole = self.rows.fold_long("sum", value, name)
            return lambda c: whole[0, c]
        part = self.rows.fold("sum", value, f"{name}_of_image")
        whole = self._over_images(lambda n, c: part[n, c], name)
        return whole.__getitem__

    def _over_images(self, value: Callable[[Expr, Expr], Expr], name: str) -> Tensor:
        """The sum over images of a value per image and channel."""
        n, c, _ = self.array.shape
        axis = ir.reduce_axis(n, f"{name}_n")
        made: Tensor = ir.compute(
            (c,), lambda c: ir.sum(value(axis.var, c), axis), name
        )
        return made

    def moments(self) -> Moments:
        """Mean and variance; with `dy`, its sums too."""
        return self._of_images() if self.dim == _IMAGES else self._of_columns()

    def _of_columns(self) -> Moments:
        total = self.sum(self.__getitem__, "total")

        def off(at: Index) -> Expr:
            return self[at] - total(at[2]) / self.count

        squares = self.sum(lambda at: off(at) * off(at), "squares")
        given = self.given
        if given is None:
            return Moments(self, total, squares)
        plain = self.sum(given.__getitem__, "plain")
        moment = self.sum(lambda at: given[at] * off(at), "moment")
        return Moments(self, total, squares, plain, moment)

    def _of_images(self) -> Moments:
        """Moments of each image in one pass over memory, then combined."""
        rows, given = self.rows, self.given
        size = self.array.buffer.shape[2].cast(rows.dtype)
        sums: Tensor = rows.fold("sum", rows.__getitem__, "total_of_image")

        def off(at: Index) -> Expr:
            return rows[at] - sums[at[0], at[1]] / size

        inside = rows.fold("sum", lambda at: off(at) * off(at), "squares_of_image")
        own = [inside]
        if given is not None:
            plain = rows.fold("sum", given.__getitem__, "plain_of_image")
            moment = rows.fold("sum", lambda at: given[at] * off(at), "moment_of_image")
            own += [plain, moment]
        total = ir.rows.behind(
            self._over_images(lambda n, c: sums[n, c], "total"), *own
        )

        def away(n: Expr, c: Expr) -> Expr:
            """The deviation of an image's mean from the total mean."""
            return sums[n, c] / size - total[c] / self.count

        squares = self._over_images(
            lambda n, c: inside[n, c] + away(n, c) * away(n, c) * size, "squares"
        )
        found = Moments(self, total.__getitem__, squares.__getitem__)
        if given is None:
            return found
        return replace(
            found,
            plain=self._over_images(lambda n, c: plain[n, c], "plain").__getitem__,
            moment=self._over_images(
                lambda n, c: moment[n, c] + away(n, c) * plain[n, c], "moment"
            ).__getitem__,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Sums over each channel.

    Attributes:
        of: The channels.
        total: Sum of the elements.
        squares: Sum of squared deviations from the mean.
        plain: Sum of dy.
        moment: Sum of dy times the deviations.
    """

    of: Channels
    total: Channel
    squares: Channel
    plain: Channel | None = None
    moment: Channel | None = None

    def mean(self, c: Expr) -> Expr:
        """The mean of a channel."""
        return self.total(c) / self.of.count

    def variance(self, c: Expr) -> Expr:
        """The (biased) variance of a channel."""
        return self.squares(c) / self.of.count


def _scaled(value: Expr, weight: Tensor | None, c: Expr) -> Expr:
    return value if weight is None else value * ir.wide(weight[c])


def _by_channel(x: Tensor, axis: int, value: Channel, name: str) -> Tensor:
    made: Tensor = ir.compute((x.shape[axis],), value, name)
    return made


def _normalised(
    rows: Rows, dim: int, mean: Channel, scale: Tensor, bias: Tensor | None
) -> Tensor:
    """`(x - mean) * scale + bias`."""

    def element(at: Index) -> Expr:
        c = at[dim]
        value = (rows[at] - mean(c)) * scale[c]
        value = value if bias is None else value + ir.wide(bias[c])
        return ir.stored(value, rows.array.dtype)

    return rows.whole(rows.each(element, "y"))


def _moved(running: Tensor, own: Channel, momentum: Scalar, name: str) -> Tensor:
    """`(1 - momentum) * running + momentum * own`."""

    def value(c: Expr) -> Expr:
        held = ir.wide(running[c])
        share = ir.as_expr(momentum).cast(held.dtype)
        moved = held * (1.0 - share) + own(c).cast(held.dtype) * share
        return ir.stored(moved, running.dtype)

    made: Tensor = ir.compute(running.shape, value, name)
    return made


def _as_weight(weight: Tensor, value: Channel, name: str) -> Tensor:
    made: Tensor = ir.compute(
        weight.shape, lambda c: ir.stored(value(c), weight.dtype), name
    )
    return made
