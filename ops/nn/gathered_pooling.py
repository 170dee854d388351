"""Gradients of pooling at a fixed stride: each pixel gathers from its windows.

Windows that a pixel looks up but that do not exist are dummies over padding: a tile of
pixels then reads a full tile of windows, without boundary tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tensorlang import ir
from tensorlang.ops.nn.images import Layout, padded
from tensorlang.ops.nn.pooling_stages import (
    counted,
    element_of,
    first_places,
    image_extents,
    narrowed,
    number_of,
    or_zero,
    over_images,
    window_axes,
    windows_before,
    windows_near,
)
from tensorlang.ops.nn.pooling_windows import Steps, at_fixed_stride

if TYPE_CHECKING:
    from tensorlang.ops.nn.pooling_windows import Slide

Indices: TypeAlias = "tuple[ir.Expr, ...]"


def max_pool_grad(
    dy: ir.Tensor, x: ir.Tensor, layout: str, slid: Sequence[Slide]
) -> ir.Tensor:
    """As `pooling_definitions.max_pool_grad`, for windows at a fixed stride."""
    frame, steps = Layout(layout), at_fixed_stride(slid)
    framed = [_framed(s) for s in steps]
    windows, low = [s.count for s in framed], [windows_before(s) for s in steps]
    image = padded(
        x, frame, [s.low for s in framed], [s.reached for s in framed], value=-math.inf
    )
    sizes = [s.kernel for s in steps]
    taps, around = window_axes(sizes), window_axes([s.around for s in steps])

    def seen(at: Indices) -> ir.Expr:
        return ir.wide(image[element_of(frame, framed, at, taps)])

    def number(_: Indices) -> ir.Expr:
        return number_of(taps).cast(ir.i32)

    def missing(at: Indices) -> ir.Expr:
        return _first_pixel(framed, frame.parts(at)[2])

    place = first_places(frame, x, windows, seen, number, taps, missing)
    given = padded(dy, frame, low, windows, name="given")

    def element(at: Indices) -> ir.Reduction:
        batch, own, pixel = frame.parts(at)
        near, number, there = windows_near(steps, pixel, around)
        where = frame.joined(batch, own, near)
        hit = there & place[where].equal(number.cast(ir.i32))
        return ir.sum(or_zero(hit, ir.wide(given[where])), around)

    sums = over_images(frame, x, image_extents(frame, x), element, "dx")
    return narrowed(sums, frame, dy.dtype)


def avg_pool_grad(
    dy: ir.Tensor,
    x: ir.Tensor,
    layout: str,
    slid: Sequence[Slide],
    *,
    count_include_pad: bool,
    divisor: int | None,
) -> ir.Tensor:
    """As `pooling_definitions.avg_pool_grad`, for windows at a fixed stride."""
    del x  # not read
    frame, steps = Layout(layout), at_fixed_stride(slid)
    windows, low = [_framed(s).count for s in steps], [windows_before(s) for s in steps]
    around = window_axes([s.around for s in steps])
    given = padded(dy, frame, low, windows, name="given")

    def share(at: Indices) -> ir.Expr:
        own = frame.parts(at)[2]
        numbers = [w - before for w, before in zip(own, low, strict=True)]
        count = counted(slid, numbers, count_include_pad, divisor)
        value = ir.wide(given[at])
        if divisor is None and any(low):  # dummies have no pixels
            count = ir.binary("max", count, ir.as_expr(1))
        return value / count.cast(value.dtype)

    shares = over_images(frame, dy, windows, share, "shares")

    def element(at: Indices) -> ir.Reduction:
        batch, own, pixel = frame.parts(at)
        near, _, there = windows_near(steps, pixel, around)
        where = frame.joined(batch, own, near)
        return ir.sum(or_zero(there, shares[where]), around)

    sums = over_images(frame, dy, [s.extent for s in steps], element, "dx")
    return narrowed(sums, frame, dy.dtype)


def _framed(s: Steps) -> Steps:
    """The windows extended by the dummies that pixels look up."""
    before = windows_before(s)
    last = (s.extent - 1) // s.stride + (s.stride - 1 + s.low) // s.stride
    count = max(last + 1, s.count) + before
    return replace(s, count=count, low=s.low + before * s.stride)


def _first_pixel(steps: Sequence[Steps], windows: Sequence[ir.Expr]) -> ir.Expr:
    """The number of a window's first element that is not leading padding."""
    number: ir.Expr = ir.as_expr(0)
    for s, window in zip(steps, windows, strict=True):
        missing = ir.as_expr(s.low + s.dilation - 1) - window * s.stride
        number = number * s.kernel + ir.binary(
            "max", missing // s.dilation, ir.as_expr(0)
        )
    return number.cast(ir.i32)
