"""Gradients of weights as sums of outer products: vectors of outputs, pixel by pixel.

At each pixel of `dy`, its outputs lie side by side (copied so where the channels come
first), and are multiplied by single elements of the image: a weight's sum stays in its
own lane, so that nothing is added across lanes, and nothing is between lines that would
have to be 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import as_expr, reduce_axis, select
from tensorlang.ir import sum as total
from tensorlang.ir.nodes import binary
from tensorlang.ops.assembling import NARROW, wide
from tensorlang.ops.nn.convolution_definitions import (
    Steps,
    framed,
    narrowed,
    window_names,
)
from tensorlang.ops.nn.images import SPATIAL, Layout, numbers, staged

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr

Indices = tuple[Any, ...]
_LINE: Final = 64  # bytes of a vector register


def conv_grad_weight(
    dy: Tensor,
    x: Tensor,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    layout: str,
    window: tuple[int, ...],
    depthwise: bool,
) -> Tensor:
    """As `convolution_definitions.conv_grad_weight`, of channels that are mixed."""
    frame, steps = Layout(layout), Steps(stride, dilation)
    image = framed(_widened(x, frame), frame, padding, name="image")
    if depthwise:
        return _alone(dy, image, frame, steps, window)
    pixels = _by_pixels(dy, frame)
    _, channels, _ = frame.parts(image.shape)
    _, made, spatial = frame.parts(dy.shape)
    names = SPATIAL[3 - frame.rank :]
    batch = reduce_axis(dy.shape[0], "b")
    places = [reduce_axis(n, of) for n, of in zip(spatial, names, strict=True)]

    def element(at: Indices) -> Any:
        group, tap, (c, o) = at[: len(made) - 1], at[len(made) - 1 : -2], at[-2:]
        pixel = [place.var for place in places]
        seen = frame.joined((batch.var,), (*group, c), steps.at(pixel, tap))
        given = pixels[(batch.var, *pixel, *group, o)]
        return total(image[seen] * given, (batch, *places))

    taps = window_names(frame.rank)
    shape = (*made[:-1], *window, channels[-1], pixels.shape[-1])
    named = ("g",)[2 - len(made) :]
    sums = staged(shape, (*named, *taps, "c", "o"), element, "products")

    def turned(at: Indices) -> Expr:
        group, (o, c), tap = at[: len(named)], at[len(named) :][:2], at[len(made) + 1 :]
        value: Expr = sums[(*group, *tap, c, o)]
        return value

    names = (*named, "o", "c", *taps)
    behind = (channels[-1], *window)
    whole: Tensor = staged((*made[:-1], pixels.shape[-1], *behind), names, turned, "dw")
    dw = whole
    if pixels.shape[-1] != made[-1]:  # where vectors are not full, all of them first
        dw = staged((*made, *behind), names, lambda at: whole[at], "dw_made")
    return narrowed(dw, dy.dtype, names)


def _alone(
    dy: Tensor, image: Tensor, frame: Layout, steps: Steps, window: tuple[int, ...]
) -> Tensor:
    """Of each channel for itself, where these come last: all are vectors."""
    _, made, spatial = frame.parts(dy.shape)
    batch = reduce_axis(dy.shape[0], "b")
    names = SPATIAL[3 - frame.rank :]
    places = [reduce_axis(n, of) for n, of in zip(spatial, names, strict=True)]

    def element(at: Indices) -> Any:
        pixel = [place.var for place in places]
        given = wide(dy[(batch.var, *pixel, at[-1])])
        seen = image[(batch.var, *steps.at(pixel, at[:-1]), at[-1])]
        return total(seen * given, (batch, *places))

    taps = window_names(frame.rank)
    sums = staged((*window, *made), (*taps, "o"), element, "products")
    dw: Tensor = staged(
        (*made, *window), ("o", *taps), lambda at: sums[(*at[1:], at[0])], "dw"
    )
    return narrowed(dw, dy.dtype, ("o", *taps))


def _widened(x: Tensor, frame: Layout) -> Tensor:
    """Images in the type that is computed in."""
    if x.dtype.name not in NARROW:
        return x
    names = frame.names(*(f"c{at}" for at in range(len(x.shape) - 1 - frame.rank)))
    made: Tensor = staged(x.shape, names, lambda at: wide(x[at]), "wide_image")
    return made


def _by_pixels(dy: Tensor, frame: Layout) -> Tensor:
    """`dy` with outputs last, in whole vectors."""
    lanes = _LINE // (8 if dy.dtype.name == "f64" else 4)
    n, made, spatial = frame.parts(dy.shape)
    (outputs,) = numbers(made[-1:])
    padded = -(-outputs // lanes) * lanes

    def element(at: Indices) -> Expr:
        pixel, group, o = at[1 : frame.rank + 1], at[frame.rank + 1 : -1], at[-1]
        near = o if padded == outputs else binary("min", o, as_expr(outputs - 1))
        value = wide(dy[frame.joined(at[:1], (*group, near), pixel)])
        if padded == outputs:
            return value
        return select(o < outputs, value, as_expr(0.0).cast(value.dtype))

    names = ("b", *SPATIAL[3 - frame.rank :], *("g",)[2 - len(made) :], "o")
    shape = (*n, *spatial, *made[:-1], padded)
    pixels: Tensor = staged(shape, names, element, "pixels")
    return pixels
