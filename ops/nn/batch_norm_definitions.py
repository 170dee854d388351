"""Batch normalisation as loops, and its gradients.

Images are `[n, c, i]`, with a channel's elements of one image as neighbours, or
`[1, n, c]`, where channels are. In the first form each image of a channel gives moments
of its own, in one trip through memory, which are then put together (Chan, Golub and
LeVeque, 1979).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tensorlang.ir import compute, reduce_axis
from tensorlang.ir import sum as total_of
from tensorlang.ops.along import Index, Rows, behind
from tensorlang.ops.assembling import stored, wide
from tensorlang.ops.math.reduction_definitions import folded
from tensorlang.ops.nn.norm_definitions import inverse_root

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr

Value: TypeAlias = "Callable[[Index], Expr]"
# of a channel
Channel: TypeAlias = "Callable[[Expr], Expr]"
_IMAGES = 1  # the dimension of the channels where each image has its own rows


class Channels:
    """An array by its channels: sums over all else, and moments.

    Args:
        array: The array.
        dim: The dimension of the channels.
        long: Whether sums down a long column are folded in parts.
        dy: The gradient of a result of its shape, where there is one.
    """

    def __init__(
        self, array: Tensor, dim: int, *, long: bool, dy: Tensor | None = None
    ) -> None:
        self.array = array
        self.dim = dim
        self.long = long
        self.rows = Rows(array, (2 if dim == _IMAGES else 1,))
        self.given = None if dy is None else Rows(dy)

    def __getitem__(self, at: Index) -> Expr:
        """An element, in the type that is computed in."""
        return self.rows[at]

    @property
    def count(self) -> Expr:
        """How many elements a channel has, in the type that is computed in."""
        n, *_ = extents = self.array.shape
        number: Expr = n * extents[2] if self.dim == _IMAGES else extents[1]
        return number.cast(self.rows.dtype)

    def sum(self, value: Value, name: str) -> Channel:
        """The sum of a value over a channel."""
        if self.dim != _IMAGES:
            whole = folded(
                self.array, "sum", lambda _, at: value(at), long=self.long, name=name
            )
            return lambda c: whole[0, c]
        part = self.rows.fold("sum", value, f"{name}_of_image")
        whole = self._over_images(lambda n, c: part[n, c], name)
        return whole.__getitem__

    def _over_images(self, value: Callable[[Expr, Expr], Expr], name: str) -> Tensor:
        """The sum over images of a value that each has for each channel."""
        n, c, _ = self.array.shape
        axis = reduce_axis(n, f"{name}_n")
        made: Tensor = compute((c,), lambda c: total_of(value(axis.var, c), axis), name)
        return made

    def moments(self) -> Moments:
        """Mean and variance; with dy, its sums."""
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
        """Moments of each image first, in one trip through memory."""
        rows, given = self.rows, self.given
        size: Expr = self.array.shape[2].cast(rows.dtype)
        sums: Tensor = rows.fold("sum", rows.__getitem__, "total_of_image")

        def off(at: Index) -> Expr:
            return rows[at] - sums[at[0], at[1]] / size

        inside = rows.fold("sum", lambda at: off(at) * off(at), "squares_of_image")
        own = [inside]
        if given is not None:
            plain = rows.fold("sum", given.__getitem__, "plain_of_image")
            moment = rows.fold("sum", lambda at: given[at] * off(at), "moment_of_image")
            own += [plain, moment]
        total = behind(self._over_images(lambda n, c: sums[n, c], "total"), *own)

        def away(n: Expr, c: Expr) -> Expr:
            """How far the mean of an image is from that of all."""
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
    """What is summed over each channel.

    Attributes:
        of: The channels.
        total: Of the elements.
        squares: Of the squared differences from the mean.
        plain: Of dy.
        moment: Of dy times the differences.
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
        """The mean squared difference from it."""
        return self.squares(c) / self.of.count


def _scaled(value: Expr, weight: Tensor | None, c: Expr) -> Expr:
    return value if weight is None else value * wide(weight[c])


def batch_norm(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    dim: int,
    long: bool,
    eps: Expr,
) -> Tensor:
    """`(x - mean) / sqrt(var + eps) * weight + bias` with moments that are given."""
    del long
    rows = Rows(x)
    scale = _by_channel(
        x, dim, lambda c: _scaled(inverse_root(wide(var[c]) + eps), weight, c), "scale"
    )

    def element(at: Index) -> Expr:
        c = at[dim]
        value = (rows[at] - wide(mean[c])) * scale[c]
        return stored(value if bias is None else value + wide(bias[c]), x.dtype)

    made: Tensor = rows.each(element, "y")
    return made


def _by_channel(x: Tensor, dim: int, value: Channel, name: str) -> Tensor:
    made: Tensor = compute((x.shape[dim],), value, name)
    return made


def batch_norm_train(
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    dim: int,
    long: bool,
    momentum: Expr,
    eps: Expr,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same with the moments of the batch, which the running ones move towards."""
    channels = Channels(x, dim, long=long)
    found = channels.moments()

    def deviation(c: Expr) -> Expr:
        return _scaled(inverse_root(found.variance(c) + eps), weight, c)

    scale = _by_channel(x, dim, deviation, "scale")

    def element(at: Index) -> Expr:
        c = at[dim]
        value = (channels[at] - found.mean(c)) * scale[c]
        return stored(value if bias is None else value + wide(bias[c]), x.dtype)

    def spread(c: Expr) -> Expr:
        return found.squares(c) / (channels.count - 1.0)

    y: Tensor = channels.rows.each(element, "y")
    return (
        y,
        _moved(running_mean, found.mean, momentum, "next_mean"),
        _moved(running_var, spread, momentum, "next_var"),
    )


def _moved(running: Tensor, own: Channel, momentum: Expr, name: str) -> Tensor:
    """`(1 - momentum) running + momentum own`."""

    def value(c: Expr) -> Expr:
        held = wide(running[c])
        share = momentum.cast(held.dtype)
        moved = held * (1.0 - share) + own(c).cast(held.dtype) * share
        return stored(moved, running.dtype)

    made: Tensor = compute(running.shape, value, name)
    return made


def batch_norm_grad(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    *,
    dim: int,
    long: bool,
    eps: Expr,
) -> Tensor | tuple[Tensor, ...]:
    """Of x, and of weight and bias where there is a weight."""
    channels, given = Channels(x, dim, long=long), Rows(dy)
    scale = _by_channel(x, dim, lambda c: inverse_root(wide(var[c]) + eps), "scale")

    def element(at: Index) -> Expr:
        c = at[dim]
        return stored(given[at] * _scaled(scale[c], weight, c), x.dtype)

    dx: Tensor = given.each(element, "dx")
    if weight is None:
        return dx
    by_unit = channels.sum(
        lambda at: given[at] * (channels[at] - wide(mean[at[dim]])), "by_unit"
    )
    plain = channels.sum(given.__getitem__, "plain")
    return (
        dx,
        _as_weight(weight, lambda c: by_unit(c) * scale[c], "dweight"),
        _as_weight(weight, plain, "dbias"),
    )


def _as_weight(weight: Tensor, value: Channel, name: str) -> Tensor:
    made: Tensor = compute(weight.shape, lambda c: stored(value(c), weight.dtype), name)
    return made


def batch_norm_train_grad(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None = None,
    *,
    dim: int,
    long: bool,
    eps: Expr,
) -> Tensor | tuple[Tensor, ...]:
    """Of x, and of weight and bias where there is a weight; through the moments too.

    With `u` the normalised x: `dx = scale weight (dy - mean(dy) - u mean(dy u))`.
    """
    channels, given = Channels(x, dim, long=long, dy=dy), Rows(dy)
    found, count = channels.moments(), channels.count
    plain, moment = found.plain, found.moment
    assert plain is not None
    assert moment is not None
    scale = _by_channel(
        x, dim, lambda c: inverse_root(found.variance(c) + eps), "scale"
    )

    def element(at: Index) -> Expr:
        c = at[dim]
        unit = (channels[at] - found.mean(c)) * scale[c]
        slope = moment(c) * scale[c] / count
        rest = given[at] - plain(c) / count - unit * slope
        return stored(_scaled(scale[c], weight, c) * rest, x.dtype)

    dx: Tensor = given.each(element, "dx")
    if weight is None:
        return dx
    return (
        dx,
        _as_weight(weight, lambda c: moment(c) * scale[c], "dweight"),
        _as_weight(weight, plain, "dbias"),
    )
