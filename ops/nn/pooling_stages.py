"""Building blocks of pooling and its gradients: windows, positions, reducers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ops.nn.images import Layout, numbers, padded, staged, window_names

if TYPE_CHECKING:
    from tensorlang.ops.nn.pooling_windows import Slide, Steps

Indices = tuple[Any, ...]


@frozen
class Windowed:
    """Images with windows: what definitions of pooling have in common."""

    frame: Layout  # layout of the images
    slid: Sequence[Slide]  # windows along each dimension

    @property
    def results(self) -> list[int]:
        """The number of windows along each dimension."""
        return [s.count for s in self.slid]

    @property
    def extents(self) -> list[int]:
        """The spatial extents of the images."""
        return [s.extent for s in self.slid]

    @property
    def taps(self) -> tuple[ir.ReduceAxis, ...]:
        """Reduction axes over a window."""
        return _axes([s.kernel for s in self.slid])

    @property
    def around(self) -> tuple[ir.ReduceAxis, ...]:
        """Reduction axes over the windows that span a pixel."""
        return _axes([s.around for s in self.slid])

    def windows(self, at: Indices) -> tuple[Any, ...]:
        """The window numbers, or the pixel, of an index."""
        return self.frame.parts(at)[2]

    def reached(self, x: ir.Tensor, value: float) -> ir.Tensor:
        """The images padded with `value` to all that the windows span."""
        needed, low = [s.reached for s in self.slid], [s.low for s in self.slid]
        given = numbers(self.windows(x.shape))
        inside = all(n <= have for n, have in zip(needed, given, strict=True))
        if inside and not any(low):
            return x
        return padded(x, self.frame, low, needed, value=value)

    def axes(
        self, x: ir.Tensor, spatial: Sequence[object]
    ) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """The shape of images like `x` with other spatial extents, and its loops."""
        n, channels, _ = self.frame.parts(x.shape)
        shape = self.frame.joined(n, channels, tuple(spatial))
        return shape, self.frame.names(*("c",)[: len(channels)])

    def over(
        self, x: ir.Tensor, spatial: Sequence[object], body: Any, name: str
    ) -> ir.Tensor:
        """`compute` over images like `x` with other spatial extents."""
        return staged(*self.axes(x, spatial), body, name)

    def narrowed(self, sums: ir.Tensor, dtype: ir.DType) -> ir.Tensor:
        """Sums rounded to the result dtype; unchanged if they have it."""
        if sums.dtype == dtype:
            return sums
        extents = numbers(self.windows(sums.shape))
        return self.over(sums, extents, lambda at: ir.stored(sums[at], dtype), "narrow")

    def element(self, at: Indices, taps: Sequence[ir.ReduceAxis]) -> Indices:
        """The image index of a window element."""
        batch, own, windows = self.frame.parts(at)
        each = zip(self.slid, windows, taps, strict=True)
        return self.frame.joined(
            batch, own, [s.place(w, tap.var) for s, w, tap in each]
        )

    def rank(
        self, at: Indices, taps: Sequence[ir.ReduceAxis], dtype: ir.DType = ir.i64
    ) -> ir.Expr:
        """The number of a window element; padding gets larger numbers than any pixel.

        So a window of only -inf has its maximum at a pixel. Padding after the image
        comes after a pixel anyway.
        """
        number, real = number_of(taps), ir.as_expr(True)
        for s, window, tap in zip(self.slid, self.windows(at), taps, strict=True):
            if s.low:
                real = real & (s.place(window, tap.var) >= s.low)
        if not any(s.low for s in self.slid):
            return number.cast(dtype)
        more = number + math.prod(s.kernel for s in self.slid)
        return ir.select(real, number.cast(dtype), more.cast(dtype))

    def nearby(
        self, pixel: Sequence[ir.Expr], around: Sequence[ir.ReduceAxis]
    ) -> tuple[list[ir.Expr], ir.Expr]:
        """Windows that start at or before a pixel, clamped, and whether they exist."""
        near, there = [], ir.as_expr(True)
        for s, place, back in zip(self.slid, pixel, around, strict=True):
            window = s.last(place) - back.var
            there = there & (window >= 0) & (window < s.count)
            most = ir.binary("min", window, ir.as_expr(s.count - 1))
            near.append(ir.binary("max", most, ir.as_expr(0)))
        return near, there

    def pixels(
        self, windows: Sequence[ir.Expr], padding: bool, divisor: int | None
    ) -> ir.Expr:
        """The divisor of a window's sum."""
        if divisor is not None:
            return ir.as_expr(divisor)
        count: ir.Expr = ir.as_expr(1)
        for s, window in zip(self.slid, windows, strict=True):
            count = count * s.pixels(window, padding=padding)
        return count


def _axes(sizes: Sequence[int]) -> tuple[ir.ReduceAxis, ...]:
    names = window_names(len(sizes))
    return tuple(ir.reduce_axis(n, name) for n, name in zip(sizes, names, strict=True))


def or_zero(there: ir.Expr, value: ir.Expr) -> ir.Expr:
    """`value` where `there` holds, else 0."""
    return ir.select(there, value, ir.as_expr(0.0).cast(value.dtype))


def number_of(taps: Sequence[ir.ReduceAxis]) -> ir.Expr:
    """The row-major number of a window element."""
    number: ir.Expr = ir.as_expr(0)
    for axis in taps:
        number = number * axis.extent + axis.var
    return number


def digit(number: ir.Expr, kernel: Sequence[int], at: int) -> ir.Expr:
    """The coordinate of a numbered element along one dimension of the window."""
    behind = math.prod(kernel[at + 1 :])
    return number // behind % kernel[at]


def nan_max(dtype: ir.DType) -> ir.Reducer:
    """Reducer for the maximum that propagates NaN.

    It tests the incoming value for NaN, off the loop-carried dependency.
    """
    a, b = ir.Var("a0", dtype), ir.Var("b0", dtype)
    kept = ir.Select(b.not_equal(b), b, ir.Select(b > a, b, a))
    return ir.Reducer("nan_max", (a,), (b,), (ir.Const(dtype.lowest, dtype),), (kept,))


def first_max(dtype: ir.DType) -> ir.Reducer:
    """Reducer for the maximum and its first position; the last NaN, as in PyTorch."""
    a = (ir.Var("a0", dtype), ir.Var("a1", ir.i64))
    b = (ir.Var("b0", dtype), ir.Var("b1", ir.i64))
    a_nan, b_nan = a[0].not_equal(a[0]), b[0].not_equal(b[0])
    tie = a[0].equal(b[0]) & (a[1] < b[1])
    both = a_nan & b_nan & (a[1] > b[1])
    left = both | (~b_nan & (a_nan | (a[0] > b[0]) | tie))
    kept = tuple(ir.Select(left, p, q) for p, q in zip(a, b, strict=True))
    start = (ir.Const(dtype.lowest, dtype), ir.Const(ir.i64.limits[1], ir.i64))
    return ir.Reducer("first_max", a, b, start, kept)


def first_places(  # noqa: PLR0917 - operands of its stages
    p: Windowed,
    x: ir.Tensor,
    seen: Callable[[Indices], ir.Expr],
    number: Callable[[Indices], ir.Expr],
    taps: Sequence[ir.ReduceAxis],
    missing: Callable[[Indices], ir.Expr] | None = None,
) -> ir.Tensor:
    """The number of each window's first maximum; of the last NaN, as in PyTorch.

    Args:
        p: The windows.
        x: The images.
        seen: The value of a window's element.
        number: Its number, of i32.
        taps: Reduction axes over a window.
        missing: The number where all elements are -inf, if not the first one's.
    """
    most = 2 * math.prod(numbers([axis.extent for axis in taps]))  # above any number

    def largest(at: Indices) -> ir.Reduction:
        value = seen(at)
        return ir.reduction(nan_max(value.dtype), value, taps)

    top = p.over(x, p.results, largest, "largest")

    def ranked(at: Indices) -> ir.Reduction:
        value, best, own = seen(at), top[at], number(at)
        lost = best.not_equal(best)
        found = ir.select(lost, value.not_equal(value), value.equal(best))
        rank = ir.select(lost, ir.as_expr(most).cast(ir.i32) - own, own)
        return ir.min(ir.select(found, rank, ir.as_expr(2 * most).cast(ir.i32)), taps)

    ranks = p.over(x, p.results, ranked, "ranks")

    def first(at: Indices) -> ir.Expr:
        best, found = top[at], ir.as_expr(ranks[at])
        if missing:
            empty = best.equal(ir.as_expr(-math.inf).cast(best.dtype))  # like padding
            found = ir.select(empty, missing(at), found)
        lost = best.not_equal(best)
        return ir.select(lost, ir.as_expr(most).cast(ir.i32) - ranks[at], found)

    return p.over(x, p.results, first, "place")


def windows_before(s: Steps) -> int:
    """Dummy windows before the first real one that pixels look up."""
    return max(s.around - 1 - s.low // s.stride, 0)


def windows_near(
    steps: Sequence[Steps], pixel: Sequence[ir.Expr], around: Sequence[ir.ReduceAxis]
) -> tuple[list[ir.Expr], ir.Expr, ir.Expr]:
    """Windows around a pixel, the pixel's number in them, and whether they have it."""
    windows, number, there = [], ir.as_expr(0), ir.as_expr(True)
    for s, p, back in zip(steps, pixel, around, strict=True):
        phase = p % s.stride + s.low
        windows.append(p // s.stride + phase // s.stride + windows_before(s) - back.var)
        off = phase % s.stride + back.var * s.stride
        there = there & (off % s.dilation).equal(0) & (off // s.dilation < s.kernel)
        number = number * s.kernel + off // s.dilation
    return windows, number, there
