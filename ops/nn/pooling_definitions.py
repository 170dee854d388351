"""Pooling and its gradients as loop nests.

Images are `(n, *spatial)` with channels first, which are then part of the batch, or
`(n, *spatial, channels)` with channels last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from tensorlang import ir
from tensorlang.ops.nn.images import Layout, padded, staged
from tensorlang.ops.nn.pooling_stages import (
    counted,
    digit,
    element_of,
    first_max,
    first_places,
    image_axes,
    image_extents,
    nan_max,
    narrowed,
    or_zero,
    over_images,
    rank_of,
    reached,
    window_axes,
    windows_around,
    windows_before,
    windows_near,
)
from tensorlang.ops.nn.pooling_windows import Shares, at_fixed_stride

if TYPE_CHECKING:
    from tensorlang.ops.nn.pooling_windows import Slide

Indices: TypeAlias = "tuple[ir.Expr, ...]"


def max_pool(x: ir.Tensor, layout: str, slid: Sequence[Slide]) -> ir.Tensor:
    """The maximum of each window; NaN if it contains one."""
    frame, results = Layout(layout), [s.count for s in slid]
    image = reached(x, frame, slid, -math.inf)
    taps = window_axes([s.kernel for s in slid])

    def element(at: Indices) -> ir.Reduction:
        value: ir.Expr = image[element_of(frame, slid, at, taps)]
        if x.dtype.name == "bf16":  # LLVM may fail on single bf16 vectors
            value = ir.wide(value)
        return ir.reduction(nan_max(value.dtype), value, taps)

    name = "sums" if x.dtype.name == "bf16" else "y"
    return narrowed(over_images(frame, x, results, element, name), frame, x.dtype)


def max_pool_grad(
    dy: ir.Tensor, x: ir.Tensor, layout: str, slid: Sequence[Slide]
) -> ir.Tensor:
    """The gradient of max pooling: dy goes to the first maximum of each window.

    The position of each window's maximum is recomputed; then each pixel gathers the
    gradients of the windows whose maximum it is.
    """
    frame, results = Layout(layout), [s.count for s in slid]
    image = reached(x, frame, slid, -math.inf)
    sizes = [s.kernel for s in slid]
    taps, around = window_axes(sizes), window_axes([s.around for s in slid])

    def largest(at: Indices) -> ir.Reduction:
        value = ir.wide(image[element_of(frame, slid, at, taps)])
        number = rank_of(slid, frame.parts(at)[2], taps)
        return ir.reduction(first_max(value.dtype), (value, number), taps)

    axes = image_axes(frame, x, results)
    _, place = staged(*axes, largest, ("largest", "place"))

    def element(at: Indices) -> ir.Reduction:
        batch, own, pixel = frame.parts(at)
        near, there = windows_around(slid, pixel, around)
        where = frame.joined(batch, own, near)
        for n, (s, window, p) in enumerate(zip(slid, near, pixel, strict=True)):
            there = there & s.hits(window, digit(place[where], sizes, n), p)
        return ir.sum(or_zero(there, ir.wide(dy[where])), around)

    sums = over_images(frame, x, image_extents(frame, x), element, "dx")
    return narrowed(sums, frame, dy.dtype)


def max_pool_grad_interleaved(
    dy: ir.Tensor, x: ir.Tensor, layout: str, slid: Sequence[Slide]
) -> ir.Tensor:
    """As `max_pool_grad`, with channels first and windows at a fixed stride.

    Pixels a stride apart are the same elements of the windows that cover them and form
    vectors; `dy` and the positions of maxima are padded with dummy windows.
    """
    frame, results = Layout(layout), [s.count for s in slid]
    steps = at_fixed_stride(slid)
    image = reached(x, frame, slid, -math.inf)
    sizes = [s.kernel for s in steps]
    taps, around = window_axes(sizes), window_axes([s.around for s in steps])

    def seen(at: Indices) -> ir.Expr:
        return ir.wide(image[element_of(frame, slid, at, taps)])

    def number(at: Indices) -> ir.Expr:
        return rank_of(slid, frame.parts(at)[2], taps, ir.i32)

    place = first_places(frame, x, results, seen, number, taps)
    low = [windows_before(s) for s in steps]
    extents = [
        (s.extent - 1) // s.stride + (s.stride - 1 + s.low) // s.stride + 1 + before
        for s, before in zip(steps, low, strict=True)
    ]
    near = padded(place, frame, low, extents, value=-1, name="near")
    given = padded(dy, frame, low, extents, name="given")

    def element(at: Indices) -> ir.Reduction:
        batch, _, pixel = frame.parts(at)
        windows, number, there = windows_near(steps, pixel, around)
        where = (*batch, *windows)
        hit = there & near[where].equal(number.cast(ir.i32))
        return ir.sum(or_zero(hit, ir.wide(given[where])), around)

    sums = over_images(frame, x, image_extents(frame, x), element, "dx")
    return narrowed(sums, frame, dy.dtype)


def avg_pool(
    x: ir.Tensor,
    layout: str,
    slid: Sequence[Slide],
    *,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> ir.Tensor:
    """Average pooling: the mean of each window."""
    frame, results = Layout(layout), [s.count for s in slid]
    image = reached(x, frame, slid, 0.0)
    taps = window_axes([s.kernel for s in slid])

    def summed(at: Indices) -> ir.Reduction:
        value = ir.wide(image[element_of(frame, slid, at, taps)])
        for s, window, tap in zip(slid, frame.parts(at)[2], taps, strict=True):
            if isinstance(s, Shares):
                value = or_zero(s.has(window, tap.var), value)
        return ir.sum(value, taps)

    sums = over_images(frame, x, results, summed, "sums")

    def mean(at: Indices) -> ir.Expr:
        count = counted(slid, frame.parts(at)[2], count_include_pad, divisor)
        return ir.stored(sums[at] / count.cast(sums.dtype), x.dtype)

    return over_images(frame, x, results, mean, "y")


def avg_pool_grad(
    dy: ir.Tensor,
    x: ir.Tensor,
    layout: str,
    slid: Sequence[Slide],
    *,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> ir.Tensor:
    """The gradient of average pooling: each pixel gathers its windows' shares of dy."""
    del x  # not read
    frame, size = Layout(layout), [s.extent for s in slid]
    around = window_axes([s.around for s in slid])

    def share(at: Indices) -> ir.Expr:
        count = counted(slid, frame.parts(at)[2], count_include_pad, divisor)
        value = ir.wide(dy[at])
        return value / count.cast(value.dtype)

    shares = over_images(frame, dy, image_extents(frame, dy), share, "shares")

    def element(at: Indices) -> ir.Reduction:
        batch, own, pixel = frame.parts(at)
        near, there = windows_around(slid, pixel, around)
        for s, window, p in zip(slid, near, pixel, strict=True):
            there = there & s.covers(window, p)
        return ir.sum(or_zero(there, shares[frame.joined(batch, own, near)]), around)

    sums = over_images(frame, dy, size, element, "dx")
    return narrowed(sums, frame, dy.dtype)
