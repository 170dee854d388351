"""Weight gradients as sums of outer products over pixels, vectorised over outputs.

At each pixel, the contiguous outputs of `dy` (copied if channels come first) are
multiplied by broadcast elements of the image: each weight's sum stays in its lane, so
there are no cross-lane sums and no gaps between lines to zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import as_expr, reduce_axis, select
from tensorlang.ir import sum as total
from tensorlang.ir.elementwise import NARROW, wide
from tensorlang.ir.nodes import binary
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
    from tensorlang.ops.nn.convolution_problem import Problem

Indices = tuple[Any, ...]
_LINE: Final = 64  # bytes of a vector register


def conv_grad_weight(dy: Tensor, x: Tensor, p: Problem) -> Tensor:
    """As `convolution_definitions.conv_grad_weight`.

    Not for depthwise convolutions with channels first.
    """
    frame, steps = Layout(p.layout), Steps.of(p)
    image = framed(_widened(x, frame), p, name="image")
    if p.depthwise:
        return _alone(dy, image, p)
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
    shape = (*made[:-1], *p.window, channels[-1], pixels.shape[-1])
    named = ("g",)[2 - len(made) :]
    sums = staged(shape, (*named, *taps, "c", "o"), element, "products")

    def turned(at: Indices) -> Expr:
        group, (o, c), tap = at[: len(named)], at[len(named) :][:2], at[len(made) + 1 :]
        value: Expr = sums[(*group, *tap, c, o)]
        return value

    names = (*named, "o", "c", *taps)
    behind = (channels[-1], *p.window)
    whole: Tensor = staged((*made[:-1], pixels.shape[-1], *behind), names, turned, "dw")
    dw = whole
    if pixels.shape[-1] != made[-1]:  # drop the padding outputs last
        dw = staged((*made, *behind), names, lambda at: whole[at], "dw_made")
    return narrowed(dw, dy.dtype, names)


def _alone(dy: Tensor, image: Tensor, p: Problem) -> Tensor:
    """Depthwise with channels last: both factors are vectors."""
    frame, steps = Layout(p.layout), Steps.of(p)
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
    sums = staged((*p.window, *made), (*taps, "o"), element, "products")
    dw: Tensor = staged(
        (*made, *p.window), ("o", *taps), lambda at: sums[(*at[1:], at[0])], "dw"
    )
    return narrowed(dw, dy.dtype, ("o", *taps))


def _widened(x: Tensor, frame: Layout) -> Tensor:
    """Images in the accumulation type."""
    if x.dtype.name not in NARROW:
        return x
    names = frame.names(*(f"c{at}" for at in range(len(x.shape) - 1 - frame.rank)))
    made: Tensor = staged(x.shape, names, lambda at: wide(x[at]), "wide_image")
    return made


def _by_pixels(dy: Tensor, frame: Layout) -> Tensor:
    """`dy` with outputs last, zero-padded to whole vectors."""
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
