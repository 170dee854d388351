"""Gradients of convolutions for weights and bias: sums over batch and pixels.

`outer_products` sums them, vectorised over outputs. At each pixel, the contiguous
outputs of `dy` (copied if channels come first) are multiplied by broadcast elements of
the image: each weight's sum stays in its lane, so there are no cross-lane sums and no
gaps between lines to zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from tensorlang import ir
from tensorlang.ops.nn.convolution_images import Lines
from tensorlang.ops.nn.convolution_problem import Problem
from tensorlang.ops.nn.convolution_sides import sides
from tensorlang.ops.nn.convolution_stages import narrowed, widened
from tensorlang.ops.nn.images import SPATIAL, Layout, numbers, staged, window_names
from tensorlang.ops.nn.windows import LAYOUTS

Indices = tuple[Any, ...]
# splits the indices of a sum: channels of `dy`, channels of the image, window element
Order = Callable[[Indices], tuple[Indices, Indices, Indices]]
_LINE: Final = 64  # bytes of a vector register


def direct(dy: ir.Tensor, x: ir.Tensor, p: Problem) -> ir.Tensor:
    """The gradient for the weights: images times `dy`, summed over batch and pixels."""
    frame = Layout(p.layout)
    made, inner = channels_of(dy, x, p)
    cut = len(made) + len(inner)

    def order(at: Indices) -> tuple[Indices, Indices, Indices]:
        own, tap = at[:cut], at[cut:]
        return (own[:-1], (*own[:-2], own[-1]), tap) if inner else (own, own, tap)

    named = ("g", "o", "c")[2 - len(made) :] if inner else ("g",)
    names = (*named, *window_names(frame.rank))
    shape = (*made, *inner, *p.window)
    sums = _over_pixels(dy, frame, x, p, shape, names, order, "dw")
    return narrowed(sums, dy.dtype, names)


def outer_products(dy: ir.Tensor, x: ir.Tensor, p: Problem) -> ir.Tensor:
    """As `direct`, not for depthwise convolutions with channels first."""
    rank = len(p.window)
    (*groups, outputs), inner = channels_of(dy, x, p)
    pixels = dy if p.depthwise else _by_pixels(dy, Layout(p.layout))
    count, taps = len(groups), window_names(rank)
    named, inputs = ("g",)[:count], ("c",)[: len(inner)]

    def order(at: Indices) -> tuple[Indices, Indices, Indices]:
        group, tap, c, o = split(at, count, rank, len(inner))
        made = (*group, *o)
        return made, (*group, *c) if c else made, tap

    sums = _over_pixels(
        pixels,
        Layout(LAYOUTS[rank][1]),
        widened(x, "wide_image"),
        p,
        (*groups, *p.window, *inner, pixels.shape[-1]),
        (*named, *taps, *inputs, "o"),
        order,
        "products",
    )

    def transposed(at: Indices) -> ir.Expr:
        group, o, c, tap = split(at, count, 1, len(inner))
        return sums[(*group, *tap, *c, *o)]

    names, behind = (*named, "o", *inputs, *taps), (*inner, *p.window)
    whole = staged((*groups, pixels.shape[-1], *behind), names, transposed, "dw")
    dw = whole
    if pixels.shape[-1] != outputs:  # drop the padding outputs last
        shape = (*groups, outputs, *behind)
        dw = staged(shape, names, lambda at: whole[at], "dw_made")
    return narrowed(dw, dy.dtype, names)


def bias_gradient(dy: ir.Tensor, p: Problem) -> ir.Tensor:
    """The sum of `dy` over batch and pixels."""
    frame = Layout(p.layout)
    n, made, spatial = frame.parts(dy.shape)
    named = ("b", *SPATIAL[3 - frame.rank :])
    axes = [ir.reduce_axis(n, of) for n, of in zip((*n, *spatial), named, strict=True)]

    def element(own: Indices) -> Any:
        places = [axis.var for axis in axes]
        return ir.sum(ir.wide(dy[frame.joined(places[:1], own, places[1:])]), axes)

    names = ("g", "o")[2 - len(made) :]
    sums = staged(made, names, element, "db")
    return narrowed(sums, dy.dtype, names)


def channels_of(dy: ir.Tensor, x: ir.Tensor, p: Problem) -> tuple[Indices, Indices]:
    """Extents of groups and outputs, and of inputs unless depthwise."""
    frame = Layout(p.layout)
    _, made, _ = frame.parts(dy.shape)
    _, read, _ = frame.parts(x.shape)
    return made, () if p.depthwise else read[-1:]


def split(at: Indices, *sizes: int) -> tuple[Indices, ...]:
    """Consecutive parts of indices, and the rest."""
    ends = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    parts = [at[a:b] for a, b in itertools.pairwise(ends)]
    return *parts, at[ends[-1] :]


def _over_pixels(  # noqa: PLR0917 - operands of a sum
    dy: ir.Tensor,
    frame: Layout,
    x: ir.Tensor,
    p: Problem,
    shape: Sequence[Any],
    names: Sequence[str],
    order: Order,
    name: str,
) -> ir.Tensor:
    """Sums over batch and pixels.

    Args:
        dy: The gradient of the result.
        x: The images.
        p: The sizes.
        shape: Shape of the sums.
        names: Loop names over them.
        order: Splits their indices.
    """
    images, spatial = Lines(Layout(p.layout), sides(p)), SPATIAL[3 - frame.rank :]
    image, batch = images.laid(x, "image"), ir.reduce_axis(dy.shape[0], "b")
    axes = [ir.reduce_axis(n, of) for n, of in zip(p.result, spatial, strict=True)]

    def element(at: Indices) -> ir.Reduction:
        made, read, tap = order(at)
        place = tuple(axis.var for axis in axes)
        given = dy[frame.joined((batch.var,), made, place)]
        seen = image[images.at(batch.var, read, place, images.offsets(tap))]
        return ir.sum(ir.wide(given) * ir.wide(seen), (batch, *axes))

    return staged(shape, names, element, name)


def lanes_of(x: ir.Tensor) -> int:
    """Elements of a vector of sums."""
    return _LINE // (8 if x.dtype.name == "f64" else 4)


def _by_pixels(dy: ir.Tensor, frame: Layout) -> ir.Tensor:
    """`dy` with outputs last, zero-padded to whole vectors."""
    lanes = lanes_of(dy)
    n, made, spatial = frame.parts(dy.shape)
    (outputs,) = numbers(made[-1:])
    padded = -(-outputs // lanes) * lanes

    def element(at: Indices) -> ir.Expr:
        pixel, group, o = at[1 : frame.rank + 1], at[frame.rank + 1 : -1], at[-1]
        near = o if padded == outputs else ir.binary("min", o, ir.as_expr(outputs - 1))
        value = ir.wide(dy[frame.joined(at[:1], (*group, near), pixel)])
        if padded == outputs:
            return value
        return ir.select(o < outputs, value, ir.as_expr(0.0).cast(value.dtype))

    names = ("b", *SPATIAL[3 - frame.rank :], *("g",)[2 - len(made) :], "o")
    shape = (*n, *spatial, *made[:-1], padded)
    return staged(shape, names, element, "pixels")
