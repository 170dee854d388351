"""Pooling and its gradients as loop nests.

Images are `(n, *spatial)` with channels first, which are then part of the batch, or
`(n, *spatial, channels)` with channels last.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from tensorlang import ir
from tensorlang.ops.nn import pooling_stages as stages
from tensorlang.ops.nn.images import padded, staged
from tensorlang.ops.nn.pooling_stages import Windowed, or_zero
from tensorlang.ops.nn.pooling_windows import Shares, at_fixed_stride

Indices: TypeAlias = "tuple[ir.Expr, ...]"


def max_pool(x: ir.Tensor, p: Windowed) -> ir.Tensor:
    """The maximum of each window; NaN if it contains one."""
    image, taps = p.reached(x, x.dtype.lowest), p.taps

    def element(at: Indices) -> ir.Reduction:
        value: ir.Expr = image[p.element(at, taps)]
        if x.dtype.name == "bf16":  # LLVM may fail on single bf16 vectors
            value = ir.wide(value)
        return ir.reduction(stages.nan_max(value.dtype), value, taps)

    name = "sums" if x.dtype.name == "bf16" else "y"
    return p.narrowed(p.over(x, p.results, element, name), x.dtype)


def max_pool_with_indices(x: ir.Tensor, p: Windowed) -> tuple[ir.Tensor, ir.Tensor]:
    """The maximum of each window, and its position in the flattened image."""
    largest, place = _largest(x, p)
    sizes = [s.kernel for s in p.slid]

    def index(at: Indices) -> ir.Expr:
        found: ir.Expr = ir.as_expr(0)
        for n, (s, window) in enumerate(zip(p.slid, p.windows(at), strict=True)):
            tap = stages.digit(place[at], sizes, n)
            found = found * s.extent + (s.place(window, tap) - s.low)
        return found

    return p.narrowed(largest, x.dtype), p.over(x, p.results, index, "indices")


def _largest(x: ir.Tensor, p: Windowed) -> tuple[ir.Tensor, ...]:
    """The maximum of each window, and the number of its first element."""
    image, taps = p.reached(x, x.dtype.lowest), p.taps

    def largest(at: Indices) -> ir.Reduction:
        value = ir.wide(image[p.element(at, taps)])
        return ir.reduction(
            stages.first_max(value.dtype), (value, p.rank(at, taps)), taps
        )

    return staged(*p.axes(x, p.results), largest, ("largest", "place"))


def max_pool_grad(dy: ir.Tensor, x: ir.Tensor, p: Windowed) -> ir.Tensor:
    """The gradient of max pooling: dy goes to the first maximum of each window.

    The position of each window's maximum is recomputed; then each pixel gathers the
    gradients of the windows whose maximum it is.
    """
    _, place = _largest(x, p)
    around, sizes = p.around, [s.kernel for s in p.slid]

    def element(at: Indices) -> ir.Reduction:
        batch, own, pixel = p.frame.parts(at)
        near, there = p.nearby(pixel, around)
        where = p.frame.joined(batch, own, near)
        for n, (s, window, here) in enumerate(zip(p.slid, near, pixel, strict=True)):
            number = stages.digit(place[where], sizes, n)
            there = there & s.hits(window, number, here)
        return ir.sum(or_zero(there, ir.wide(dy[where])), around)

    return p.narrowed(p.over(x, p.extents, element, "dx"), dy.dtype)


def max_pool_grad_interleaved(dy: ir.Tensor, x: ir.Tensor, p: Windowed) -> ir.Tensor:
    """As `max_pool_grad`, with channels first and windows at a fixed stride.

    Pixels a stride apart are the same elements of the windows that cover them and form
    vectors; `dy` and the positions of maxima are padded with dummy windows.
    """
    image, taps, around = p.reached(x, -math.inf), p.taps, p.around
    steps = at_fixed_stride(p.slid)

    def seen(at: Indices) -> ir.Expr:
        return ir.wide(image[p.element(at, taps)])

    def number(at: Indices) -> ir.Expr:
        return p.rank(at, taps, ir.i32)

    place = stages.first_places(p, x, seen, number, taps)
    low = [stages.windows_before(s) for s in steps]
    extents = [
        (s.extent - 1) // s.stride + (s.stride - 1 + s.low) // s.stride + 1 + before
        for s, before in zip(steps, low, strict=True)
    ]
    near = padded(place, p.frame, low, extents, value=-1, name="near")
    given = padded(dy, p.frame, low, extents, name="given")

    def element(at: Indices) -> ir.Reduction:
        batch, _, pixel = p.frame.parts(at)
        windows, number, there = stages.windows_near(steps, pixel, around)
        where = (*batch, *windows)
        hit = there & near[where].equal(number.cast(ir.i32))
        return ir.sum(or_zero(hit, ir.wide(given[where])), around)

    return p.narrowed(p.over(x, p.extents, element, "dx"), dy.dtype)


def avg_pool(
    x: ir.Tensor,
    p: Windowed,
    *,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> ir.Tensor:
    """Average pooling: the mean of each window."""
    image, taps = p.reached(x, 0.0), p.taps

    def summed(at: Indices) -> ir.Reduction:
        value = ir.wide(image[p.element(at, taps)])
        for s, window, tap in zip(p.slid, p.windows(at), taps, strict=True):
            if isinstance(s, Shares):
                value = or_zero(s.has(window, tap.var), value)
        return ir.sum(value, taps)

    sums = p.over(x, p.results, summed, "sums")

    def mean(at: Indices) -> ir.Expr:
        count = p.pixels(p.windows(at), count_include_pad, divisor)
        return ir.stored(sums[at] / count.cast(sums.dtype), x.dtype)

    return p.over(x, p.results, mean, "y")


def avg_pool_grad(
    dy: ir.Tensor,
    x: ir.Tensor,
    p: Windowed,
    *,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> ir.Tensor:
    """The gradient of average pooling: each pixel gathers its windows' shares of dy."""
    del x  # not read
    around = p.around

    def share(at: Indices) -> ir.Expr:
        count = p.pixels(p.windows(at), count_include_pad, divisor)
        value = ir.wide(dy[at])
        return value / count.cast(value.dtype)

    shares = p.over(dy, p.results, share, "shares")

    def element(at: Indices) -> ir.Reduction:
        batch, own, pixel = p.frame.parts(at)
        near, there = p.nearby(pixel, around)
        for s, window, here in zip(p.slid, near, pixel, strict=True):
            there = there & s.covers(window, here)
        return ir.sum(or_zero(there, shares[p.frame.joined(batch, own, near)]), around)

    return p.narrowed(p.over(dy, p.extents, element, "dx"), dy.dtype)
