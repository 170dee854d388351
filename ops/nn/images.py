"""Stages on batches of images: padding, and naming their dimensions.

The dimensions are `(n, *channels, *spatial)`, or `(n, *spatial, *channels)` with
channels last.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, overload

from tensorlang import ir

SPATIAL: Final = ("z", "i", "j")


def window_names(rank: int) -> tuple[str, ...]:
    """Loop names over a window."""
    return ("kz", "ky", "kx")[3 - rank :]


class Layout:
    """The order of batch, channel and spatial dimensions: `NCHW` and the like."""

    def __init__(self, letters: str) -> None:
        self.rank = len(letters) - 2
        self.first = letters[1] == "C"

    def joined(
        self, n: Sequence[object], channels: Sequence[object], spatial: Sequence[object]
    ) -> tuple[Any, ...]:
        """Indices or extents in memory order."""
        if self.first:
            return (*n, *channels, *spatial)
        return (*n, *spatial, *channels)

    def parts(
        self, of: Sequence[object]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        """Split indices or extents into batch, channels and spatial dimensions."""
        n, rest = tuple(of[:1]), tuple(of[1:])
        if self.first:
            cut = len(rest) - self.rank
            return n, rest[:cut], rest[cut:]
        return n, rest[self.rank :], rest[: self.rank]

    def names(self, *channels: str) -> tuple[str, ...]:
        """Loop names over an image."""
        return self.joined(("b",), channels, SPATIAL[3 - self.rank :])


@overload
def staged(
    shape: Sequence[Any], names: Sequence[str], body: Callable[..., object], name: str
) -> ir.Tensor: ...
@overload
def staged(
    shape: Sequence[Any],
    names: Sequence[str],
    body: Callable[..., object],
    name: tuple[str, ...],
) -> tuple[ir.Tensor, ...]: ...
def staged(
    shape: Sequence[Any], names: Sequence[str], body: Callable[..., object], name: Any
) -> Any:
    """`compute` with named loops and a body that takes all indices as a tuple."""

    def value(*indices: object) -> Any:
        return body(indices)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(of, kind) for of in names]
    value.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return ir.compute(shape, value, name)


def channels_first(x: ir.Tensor, layout: Layout) -> ir.Tensor:
    """Images with their channels moved first; `x` itself if they are."""
    if layout.first:
        return x
    n, channels, spatial = layout.parts(x.shape)
    cut = 1 + len(channels)
    names = ("b", *("g", "c")[2 - len(channels) :], *SPATIAL[3 - layout.rank :])

    def element(at: tuple[ir.Expr, ...]) -> ir.Expr:
        return x[layout.joined(at[:1], at[1:cut], at[cut:])]

    return staged((*n, *channels, *spatial), names, element, "planes")


def channels_last(x: ir.Tensor, layout: Layout) -> ir.Tensor:
    """Images with their channels moved last; `x` itself if they are."""
    if not layout.first:
        return x
    n, channels, spatial = layout.parts(x.shape)
    cut = 1 + layout.rank
    names = ("b", *SPATIAL[3 - layout.rank :], *("g", "c")[2 - len(channels) :])

    def element(at: tuple[ir.Expr, ...]) -> ir.Expr:
        return x[layout.joined(at[:1], at[cut:], at[1:cut])]

    return staged((*n, *spatial, *channels), names, element, "moved")


def padded(
    x: ir.Tensor,
    layout: Layout,
    low: Sequence[int],
    extents: Sequence[int],
    *,
    spread: Sequence[int] = (),
    value: float = 0.0,
    name: str = "padded",
) -> ir.Tensor:
    """Images padded to these extents; the images themselves if nothing is to be done.

    Args:
        x: The images.
        low: Padding before the image; negative values crop.
        extents: Spatial extents of the result.
        spread: Spacing of the image's elements in the result (input dilation).
        value: The padding value.
        name: Name of the result.
    """
    n, channels, spatial = layout.parts(x.shape)
    spread = tuple(spread) or (1,) * layout.rank
    given = numbers(spatial)
    same = list(given) == list(extents)
    if same and not any(low) and set(spread) <= {1}:
        return x

    def element(indices: tuple[ir.Expr, ...]) -> ir.Expr:
        batch, channel, at = layout.parts(indices)
        places, inside = [], ir.as_expr(True)
        for place, before, step, extent in zip(at, low, spread, given, strict=True):
            taken, there = source(place - before, extent, step)
            places.append(taken)
            inside = inside & there
        read = x[layout.joined(batch, channel, places)]
        return ir.select(inside, read, ir.as_expr(value).cast(x.dtype))

    names = layout.names(*(f"c{at}" for at in range(len(channels))))
    shape = layout.joined(n, channels, tuple(extents))
    return staged(shape, names, element, name)


def source(place: ir.Expr, extent: int, step: int = 1) -> tuple[ir.Expr, ir.Expr]:
    """The clamped source index of an element of a copy, and whether it is inside.

    Args:
        place: The element's place, from the first element of the source.
        extent: Elements of the source.
        step: Spacing of the source's elements in the copy.
    """
    there = (place >= 0) & (place < (extent - 1) * step + 1)
    if step > 1:
        there = there & (place % step).equal(0)
        place = place // step
    last = max(extent - 1, 0)
    return ir.binary(
        "min", ir.binary("max", place, ir.as_expr(0)), ir.as_expr(last)
    ), there


def numbers(extents: Sequence[Any]) -> tuple[int, ...]:
    """Constant extents as Python integers."""
    return tuple(int(extent.value) for extent in extents)
