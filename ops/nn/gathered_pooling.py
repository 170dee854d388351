"""Gradients of pooling at a fixed stride: each pixel gathers from its windows.

Windows that a pixel looks up but that do not exist are dummies over padding: a tile of
pixels then reads a full tile of windows, without boundary tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from tensorlang import ir
from tensorlang.ops.nn import pooling_stages as stages
from tensorlang.ops.nn.images import padded
from tensorlang.ops.nn.pooling_stages import Windowed, or_zero
from tensorlang.ops.nn.pooling_windows import Steps, at_fixed_stride

Indices: TypeAlias = "tuple[ir.Expr, ...]"


def max_pool_grad(dy: ir.Tensor, x: ir.Tensor, p: Windowed) -> ir.Tensor:
    """As `pooling_definitions.max_pool_grad`, for windows at a fixed stride."""
    steps, taps, around = at_fixed_stride(p.slid), p.taps, p.around
    framed = Windowed(p.frame, [_framed(s) for s in steps])
    low = [s.low for s in framed.slid]
    reached = [s.reached for s in framed.slid]
    image = padded(x, p.frame, low, reached, value=-math.inf)

    def seen(at: Indices) -> ir.Expr:
        return ir.wide(image[framed.element(at, taps)])

    def number(_: Indices) -> ir.Expr:
        return stages.number_of(taps).cast(ir.i32)

    def missing(at: Indices) -> ir.Expr:
        return _first_pixel(at_fixed_stride(framed.slid), p.windows(at))

    place = stages.first_places(framed, x, seen, number, taps, missing)
    before = [stages.windows_before(s) for s in steps]
    given = padded(dy, p.frame, before, framed.results, name="given")

    def element(at: Indices) -> ir.Reduction:
        batch, own, pixel = p.frame.parts(at)
        near, number, there = stages.windows_near(steps, pixel, around)
        where = p.frame.joined(batch, own, near)
        hit = there & place[where].equal(number.cast(ir.i32))
        return ir.sum(or_zero(hit, ir.wide(given[where])), around)

    return p.narrowed(p.over(x, p.extents, element, "dx"), dy.dtype)


def avg_pool_grad(
    dy: ir.Tensor,
    x: ir.Tensor,
    p: Windowed,
    *,
    count_include_pad: bool,
    divisor: int | None,
) -> ir.Tensor:
    """As `pooling_definitions.avg_pool_grad`, for windows at a fixed stride."""
    del x  # not read
    steps, around = at_fixed_stride(p.slid), p.around
    counts = [_framed(s).count for s in steps]
    low = [stages.windows_before(s) for s in steps]
    given = padded(dy, p.frame, low, counts, name="given")

    def share(at: Indices) -> ir.Expr:
        numbers = [w - n for w, n in zip(p.windows(at), low, strict=True)]
        count = p.pixels(numbers, count_include_pad, divisor)
        value = ir.wide(given[at])
        if divisor is None and any(low):  # dummies have no pixels
            count = ir.binary("max", count, ir.as_expr(1))
        return value / count.cast(value.dtype)

    shares = p.over(dy, counts, share, "shares")

    def element(at: Indices) -> ir.Reduction:
        batch, own, pixel = p.frame.parts(at)
        near, _, there = stages.windows_near(steps, pixel, around)
        where = p.frame.joined(batch, own, near)
        return ir.sum(or_zero(there, shares[where]), around)

    return p.narrowed(p.over(dy, p.extents, element, "dx"), dy.dtype)


def _framed(s: Steps) -> Steps:
    """The windows extended by the dummies that pixels look up."""
    before = stages.windows_before(s)
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
