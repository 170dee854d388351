"""Channels of arrays: images or columns, and the moments of each channel.

Arrays are seen as images `[n, c, i]`, with a channel contiguous within an image, or as
columns `[1, n, c]`, with contiguous channels. The moments of each image are computed in
one pass over memory and then combined (Chan, Golub and LeVeque, 1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from tensorlang import ir
from tensorlang.frozen import frozen

Value: TypeAlias = "Callable[[ir.rows.Index], ir.Expr]"
# a value per channel, by channel index
Channel: TypeAlias = "Callable[[ir.Expr], ir.Expr]"
_IMAGES: Final = 1  # the channel dimension of images `[n, c, i]`
_COLUMNS: Final = 2  # the channel dimension of columns `[1, n, c]`


def by_channels(
    axis: int, arrays: dict[str, ir.Tensor], **by_channel: ir.Tensor | None
) -> tuple[tuple[ir.rows.Rows, ...], int]:
    """Arrays as images or columns, and their channel dimension."""
    ir.rows.same_shape(**arrays)
    x = arrays["x"]
    at = ir.rows.axis_of(axis, x.ndim)
    channels = int(x.shape[at])
    for name, each in by_channel.items():
        ir.require(
            each is None or (each.ndim == 1 and each.shape[0] == channels),
            f"{name} has shape {each and each.shape}; for x of shape {x.shape} with "
            f"its channels along axis {at} it is {(channels,)}",
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


def check_variance(x: ir.Tensor, rows: ir.rows.Rows, dim: int) -> None:
    """Check that channels have more than one value."""
    ir.require(
        dim == _IMAGES or rows.array.shape[1] != 1,
        f"x of shape {x.shape} has one value a channel, which has no variance",
    )


class Channels:
    """Per-channel sums and moments of an array.

    Args:
        rows: The array.
        dim: The channel dimension.
        given: The gradient `dy` of a result of the same shape, if any.
    """

    def __init__(
        self, rows: ir.rows.Rows, dim: int, given: ir.rows.Rows | None = None
    ) -> None:
        self.rows, self.dim, self.given = rows, dim, given
        self.array = rows.array

    def __getitem__(self, at: ir.rows.Index) -> ir.Expr:
        """An element, widened to the accumulation type."""
        return self.rows[at]

    @property
    def count(self) -> ir.Expr:
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

    def _over_images(
        self, value: Callable[[ir.Expr, ir.Expr], ir.Expr], name: str
    ) -> ir.Tensor:
        """The sum over images of a value per image and channel."""
        n, c, _ = self.array.shape
        axis = ir.reduce_axis(n, f"{name}_n")
        return ir.compute((c,), lambda c: ir.sum(value(axis.var, c), axis), name)

    def moments(self) -> Moments:
        """Mean and variance; with `dy`, its sums too."""
        return self._of_images() if self.dim == _IMAGES else self._of_columns()

    def _of_columns(self) -> Moments:
        total = self.sum(self.__getitem__, "total")

        def off(at: ir.rows.Index) -> ir.Expr:
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
        sums: ir.Tensor = rows.fold("sum", rows.__getitem__, "total_of_image")

        def off(at: ir.rows.Index) -> ir.Expr:
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

        def away(n: ir.Expr, c: ir.Expr) -> ir.Expr:
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


@frozen(eq=False)
class Moments:
    """Sums over each channel."""

    of: Channels
    total: Channel  # sum of the elements
    squares: Channel  # sum of squared deviations from the mean
    plain: Channel | None = None  # sum of dy
    moment: Channel | None = None  # sum of dy times the deviations

    def mean(self, c: ir.Expr) -> ir.Expr:
        """The mean of a channel."""
        return self.total(c) / self.of.count

    def variance(self, c: ir.Expr) -> ir.Expr:
        """The (biased) variance of a channel."""
        return self.squares(c) / self.of.count
