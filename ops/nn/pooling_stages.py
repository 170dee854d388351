"""Building blocks of pooling and its gradients: windows, positions, reducers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import as_expr, reduce_axis, reduction, select
from tensorlang.ir import min as least
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.elementwise import stored
from tensorlang.ir.nodes import Const, Reducer, Select, Var, binary
from tensorlang.ops.nn.images import Layout, numbers, padded, staged

if TYPE_CHECKING:
    from tensorlang.ir import Reduction
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import ReduceAxis, Tensor
    from tensorlang.ir.nodes import Expr
    from tensorlang.ops.nn.pooling_windows import Slide, Steps

Indices = tuple[Any, ...]
_TAPS: Final = ("kz", "ky", "kx")


def window_axes(sizes: Sequence[int]) -> tuple[ReduceAxis, ...]:
    """Reduction axes over a window of these sizes."""
    names = _TAPS[3 - len(sizes) :]
    return tuple(reduce_axis(n, name) for n, name in zip(sizes, names, strict=True))


def image_extents(frame: Layout, x: Tensor) -> tuple[int, ...]:
    """The spatial extents of images."""
    return numbers(frame.parts(x.shape)[2])


def reached(x: Tensor, frame: Layout, slid: Sequence[Slide], value: float) -> Tensor:
    """The images padded with `value` to all that the windows span."""
    needed, low = [s.reached for s in slid], [s.low for s in slid]
    given = image_extents(frame, x)
    if not any(low) and all(n <= have for n, have in zip(needed, given, strict=True)):
        return x
    return padded(x, frame, low, needed, value=value)


def over_images(
    frame: Layout,
    x: Tensor,
    spatial: Sequence[object],
    body: Any,
    name: str | tuple[str, ...],
) -> Any:
    """`compute` over images like `x` with other spatial extents."""
    n, channels, _ = frame.parts(x.shape)
    shape = frame.joined(n, channels, tuple(spatial))
    return staged(shape, frame.names(*("c",)[: len(channels)]), body, name)


def narrowed(sums: Tensor, frame: Layout, dtype: DType) -> Tensor:
    """Sums rounded to the result dtype; unchanged if they have it."""
    if sums.dtype == dtype:
        return sums
    extents = image_extents(frame, sums)
    shown: Tensor = over_images(
        frame, sums, extents, lambda at: stored(sums[at], dtype), "narrow"
    )
    return shown


def element_of(
    frame: Layout, slid: Sequence[Slide], at: Indices, taps: Sequence[ReduceAxis]
) -> Indices:
    """The image index of a window element."""
    batch, own, windows = frame.parts(at)
    places = [
        s.place(window, tap.var)
        for s, window, tap in zip(slid, windows, taps, strict=True)
    ]
    return frame.joined(batch, own, places)


def or_zero(there: Expr, value: Expr) -> Expr:
    """`value` where `there` holds, else 0."""
    return select(there, value, as_expr(0.0).cast(value.dtype))


def number_of(taps: Sequence[ReduceAxis]) -> Expr:
    """The row-major number of a window element."""
    number: Expr = as_expr(0)
    for axis in taps:
        number = number * axis.extent + axis.var
    return number


def rank_of(
    slid: Sequence[Slide],
    windows: Sequence[Expr],
    taps: Sequence[ReduceAxis],
    dtype: DType = i64,
) -> Expr:
    """The number of a window element; padding gets larger numbers than any pixel.

    So a window of only -inf has its maximum at a pixel. Padding after the image comes
    after a pixel anyway.
    """
    number, real = number_of(taps), as_expr(True)
    for s, window, tap in zip(slid, windows, taps, strict=True):
        if s.low:
            real = real & (s.place(window, tap.var) >= s.low)
    if not any(s.low for s in slid):
        return number.cast(dtype)
    more = number + math.prod(s.kernel for s in slid)
    return select(real, number.cast(dtype), more.cast(dtype))


def digit(number: Expr, kernel: Sequence[int], at: int) -> Expr:
    """The coordinate of a numbered element along one dimension of the window."""
    behind = math.prod(kernel[at + 1 :])
    return number // behind % kernel[at]


def windows_around(
    slid: Sequence[Slide], pixel: Sequence[Expr], around: Sequence[ReduceAxis]
) -> tuple[list[Expr], Expr]:
    """Windows that start at or before a pixel, clamped, and whether they exist."""
    near, there = [], as_expr(True)
    for s, place, back in zip(slid, pixel, around, strict=True):
        window = s.last(place) - back.var
        there = there & (window >= 0) & (window < s.count)
        most = binary("min", window, as_expr(s.count - 1))
        near.append(binary("max", most, as_expr(0)))
    return near, there


def counted(
    slid: Sequence[Slide], windows: Sequence[Expr], padding: bool, divisor: int | None
) -> Expr:
    """The divisor of a window's sum."""
    if divisor is not None:
        return as_expr(divisor)
    count: Expr = as_expr(1)
    for s, window in zip(slid, windows, strict=True):
        count = count * s.pixels(window, padding=padding)
    return count


def nan_max(dtype: DType) -> Reducer:
    """Reducer for the maximum that propagates NaN.

    It tests the incoming value for NaN, off the loop-carried dependency.
    """
    a, b = Var("a0", dtype), Var("b0", dtype)
    kept = Select(b.not_equal(b), b, Select(b > a, b, a))
    return Reducer("nan_max", (a,), (b,), (Const(-math.inf, dtype),), (kept,))


def first_max(dtype: DType) -> Reducer:
    """Reducer for the maximum and its first position; the last NaN, as in PyTorch."""
    a = (Var("a0", dtype), Var("a1", i64))
    b = (Var("b0", dtype), Var("b1", i64))
    a_nan, b_nan = a[0].not_equal(a[0]), b[0].not_equal(b[0])
    tie = a[0].equal(b[0]) & (a[1] < b[1])
    both = a_nan & b_nan & (a[1] > b[1])
    left = both | (~b_nan & (a_nan | (a[0] > b[0]) | tie))
    kept = tuple(Select(left, p, q) for p, q in zip(a, b, strict=True))
    start = (Const(-math.inf, dtype), Const(i64.limits[1], i64))
    return Reducer("first_max", a, b, start, kept)


def first_places(  # noqa: PLR0917 - operands of its stages
    frame: Layout,
    x: Tensor,
    windows: Sequence[int],
    seen: Callable[[Indices], Expr],
    number: Callable[[Indices], Expr],
    taps: Sequence[ReduceAxis],
    missing: Callable[[Indices], Expr] | None = None,
) -> Tensor:
    """The number of each window's first maximum; of the last NaN, as in PyTorch.

    Args:
        frame: Layout of the images.
        x: The images.
        windows: Number of windows along each dimension.
        seen: The value of a window's element.
        number: Its number, of i32.
        taps: Reduction axes over a window.
        missing: The number where all elements are -inf, if not the first one's.
    """
    most = 2 * math.prod(numbers([axis.extent for axis in taps]))  # above any number

    def largest(at: Indices) -> Reduction:
        value = seen(at)
        return reduction(nan_max(value.dtype), value, taps)

    top = over_images(frame, x, windows, largest, "largest")

    def ranked(at: Indices) -> Reduction:
        value, best, own = seen(at), top[at], number(at)
        lost = best.not_equal(best)
        found = select(lost, value.not_equal(value), value.equal(best))
        rank = select(lost, as_expr(most).cast(i32) - own, own)
        return least(select(found, rank, as_expr(2 * most).cast(i32)), taps)

    ranks = over_images(frame, x, windows, ranked, "ranks")

    def first(at: Indices) -> Expr:
        best, found = top[at], ranks[at]
        if missing:
            empty = best.equal(as_expr(-math.inf).cast(best.dtype))  # like padding
            found = select(empty, missing(at), found)
        lost = best.not_equal(best)
        return select(lost, as_expr(most).cast(i32) - ranks[at], found)

    place: Tensor = over_images(frame, x, windows, first, "place")
    return place


def windows_before(s: Steps) -> int:
    """Dummy windows before the first real one that pixels look up."""
    return max(s.around - 1 - s.low // s.stride, 0)


def windows_near(
    steps: Sequence[Steps], pixel: Sequence[Expr], around: Sequence[ReduceAxis]
) -> tuple[list[Expr], Expr, Expr]:
    """Windows around a pixel, the pixel's number in them, and whether they have it."""
    windows, number, there = [], as_expr(0), as_expr(True)
    for s, p, back in zip(steps, pixel, around, strict=True):
        phase = p % s.stride + s.low
        windows.append(p // s.stride + phase // s.stride + windows_before(s) - back.var)
        off = phase % s.stride + back.var * s.stride
        there = there & (off % s.dilation).equal(0) & (off // s.dilation < s.kernel)
        number = number * s.kernel + off // s.dilation
    return windows, number, there
