"""Poolings and their gradients as loops.

Images are `(n, *spatial)` where the channels come first, all of them batch, and
`(n, *spatial, channels)` where they come last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import as_expr, reduce_axis, reduction, select
from tensorlang.ir import min as least
from tensorlang.ir import sum as total
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.nodes import Const, Reducer, Select, Var, binary
from tensorlang.ops.assembling import stored, wide
from tensorlang.ops.nn.images import Layout, numbers, padded, staged
from tensorlang.ops.nn.sliding import Slide, Steps, slides

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import ReduceAxis, Tensor
    from tensorlang.ir.nodes import Expr

Indices = tuple[Any, ...]
_TAPS: Final = ("kz", "ky", "kx")


def max_pool(x: Tensor, *, layout: str, results: tuple[int, ...], **how: Any) -> Tensor:
    """The largest element of each window; NaN where there is one."""
    frame = Layout(layout)
    slid = slides(_extents(frame, x), results, **how)
    image = _reached(x, frame, slid, -math.inf)
    taps = _axes([s.kernel for s in slid])

    def element(at: Indices) -> Any:
        value: Expr = image[_element(frame, slid, at, taps)]
        if x.dtype.name == "bf16":  # whose single vectors LLVM may fail at
            value = wide(value)
        return reduction(_largest(value.dtype), value, taps)

    name = "sums" if x.dtype.name == "bf16" else "y"
    return _narrowed(_over(frame, x, results, element, name), frame, x.dtype)


def max_pool_grad(
    dy: Tensor, x: Tensor, *, layout: str, results: tuple[int, ...], **how: Any
) -> Tensor:
    """To the first largest element of each window goes the window's gradient.

    First the place of each window's maximum is found again. Then each pixel adds up
    the gradients of the windows around it that have their maximum there.
    """
    frame = Layout(layout)
    slid = slides(_extents(frame, x), results, **how)
    image = _reached(x, frame, slid, -math.inf)
    sizes = [s.kernel for s in slid]
    taps, around = _axes(sizes), _axes([s.around for s in slid])

    def largest(at: Indices) -> Any:
        value = wide(image[_element(frame, slid, at, taps)])
        number = _ranked(slid, frame.parts(at)[2], taps)
        return reduction(_first(value.dtype), (value, number), taps)

    _, place = _over(frame, x, results, largest, ("largest", "place"))

    def element(at: Indices) -> Any:
        batch, own, pixel = frame.parts(at)
        near, there = _windows(slid, pixel, around)
        where = frame.joined(batch, own, near)
        for n, (s, window, p) in enumerate(zip(slid, near, pixel, strict=True)):
            there = there & s.hits(window, _digit(place[where], sizes, n), p)
        return total(_where(there, wide(dy[where])), around)

    sums = _over(frame, x, _extents(frame, x), element, "dx")
    return _narrowed(sums, frame, dy.dtype)


def max_pool_grad_woven(
    dy: Tensor, x: Tensor, *, layout: str, results: tuple[int, ...], **how: Any
) -> Tensor:
    """As `max_pool_grad`, of channels that come first and windows at a fixed step.

    Pixels a step apart have the same elements of the windows around them, so that they
    are vectors; `dy` and the places of maxima get a frame of windows that are none.
    """
    frame = Layout(layout)
    slid = slides(_extents(frame, x), results, **how)
    steps = [s for s in slid if isinstance(s, Steps)]
    image = _reached(x, frame, slid, -math.inf)
    sizes = [s.kernel for s in steps]
    taps, around = _axes(sizes), _axes([s.around for s in steps])

    most = 2 * math.prod(sizes)  # more than any element's number

    def seen(at: Indices) -> Expr:
        return wide(image[_element(frame, slid, at, taps)])

    def largest(at: Indices) -> Any:
        value = seen(at)
        return reduction(_largest(value.dtype), value, taps)

    top = _over(frame, x, results, largest, "largest")

    def ranked(at: Indices) -> Any:
        value, best = seen(at), top[at]
        number = _ranked(slid, frame.parts(at)[2], taps, i32)
        lost = best.not_equal(best)
        found = select(lost, value.not_equal(value), value.equal(best))
        rank = select(lost, as_expr(most).cast(i32) - number, number)
        return least(select(found, rank, as_expr(2 * most).cast(i32)), taps)

    ranks = _over(frame, x, results, ranked, "ranks")

    def first(at: Indices) -> Expr:
        lost = top[at].not_equal(top[at])  # of NaNs, the last one
        return select(lost, as_expr(most).cast(i32) - ranks[at], ranks[at])

    place = _over(frame, x, results, first, "place")
    low = [max(s.around - 1 - s.low // s.stride, 0) for s in steps]
    extents = [
        (s.extent - 1) // s.stride + (s.stride - 1 + s.low) // s.stride + 1 + before
        for s, before in zip(steps, low, strict=True)
    ]
    near = padded(place, frame, low, extents, value=-1, name="near")
    given = padded(dy, frame, low, extents, name="given")

    def element(at: Indices) -> Any:
        batch, _, pixel = frame.parts(at)
        windows, number, there = [], as_expr(0), as_expr(True)
        for s, p, back, before in zip(steps, pixel, around, low, strict=True):
            phase = p % s.stride + s.low
            windows.append(p // s.stride + phase // s.stride + before - back.var)
            off = phase % s.stride + back.var * s.stride
            there = there & (off % s.dilation).equal(0) & (off // s.dilation < s.kernel)
            number = number * s.kernel + off // s.dilation
        where = (*batch, *windows)
        hit = there & near[where].equal(number.cast(i32))
        return total(_where(hit, wide(given[where])), around)

    sums = _over(frame, x, _extents(frame, x), element, "dx")
    return _narrowed(sums, frame, dy.dtype)


def avg_pool(
    x: Tensor,
    *,
    layout: str,
    results: tuple[int, ...],
    count_include_pad: bool,
    divisor: int | None,
    **how: Any,
) -> Tensor:
    """The mean of each window."""
    frame = Layout(layout)
    slid = slides(_extents(frame, x), results, **how)
    image = _reached(x, frame, slid, 0.0)
    taps = _axes([s.kernel for s in slid])

    def summed(at: Indices) -> Any:
        value = wide(image[_element(frame, slid, at, taps)])
        _, _, windows = frame.parts(at)
        if not how["kernel"]:
            for s, window, tap in zip(slid, windows, taps, strict=True):
                value = _where(s.has(window, tap.var), value)
        return total(value, taps)

    sums = _over(frame, x, results, summed, "sums")

    def mean(at: Indices) -> Any:
        count = _count(slid, frame.parts(at)[2], count_include_pad, divisor)
        return stored(sums[at] / count.cast(sums.dtype), x.dtype)

    y: Tensor = _over(frame, x, results, mean, "y")
    return y


def avg_pool_grad(
    dy: Tensor,
    *,
    layout: str,
    size: tuple[int, ...],
    count_include_pad: bool,
    divisor: int | None,
    **how: Any,
) -> Tensor:
    """Each pixel: the sum over the windows around it of their gradient's share."""
    frame = Layout(layout)
    slid = slides(size, _extents(frame, dy), **how)
    around = _axes([s.around for s in slid])

    def share(at: Indices) -> Any:
        count = _count(slid, frame.parts(at)[2], count_include_pad, divisor)
        value = wide(dy[at])
        return value / count.cast(value.dtype)

    shares = _over(frame, dy, _extents(frame, dy), share, "shares")

    def element(at: Indices) -> Any:
        batch, own, pixel = frame.parts(at)
        near, there = _windows(slid, pixel, around)
        for s, window, p in zip(slid, near, pixel, strict=True):
            there = there & s.covers(window, p)
        return total(_where(there, shares[frame.joined(batch, own, near)]), around)

    sums = _over(frame, dy, size, element, "dx")
    return _narrowed(sums, frame, dy.dtype)


# --------------------------------------------------------------------- stages


def _axes(sizes: Sequence[int]) -> tuple[ReduceAxis, ...]:
    names = _TAPS[3 - len(sizes) :]
    return tuple(reduce_axis(n, name) for n, name in zip(sizes, names, strict=True))


def _extents(frame: Layout, x: Tensor) -> tuple[int, ...]:
    return numbers(frame.parts(x.shape)[2])


def _reached(x: Tensor, frame: Layout, slid: Sequence[Slide], value: float) -> Tensor:
    """The images with all that the windows reach; `value` where there is no pixel."""
    needed, low = [s.reached for s in slid], [s.low for s in slid]
    given = _extents(frame, x)
    if not any(low) and all(n <= have for n, have in zip(needed, given, strict=True)):
        return x
    return padded(x, frame, low, needed, value=value)


def _over(
    frame: Layout,
    x: Tensor,
    spatial: Sequence[Any],
    body: Any,
    name: str | tuple[str, ...],
) -> Any:
    """`compute` over images like `x` of another extent."""
    n, channels, _ = frame.parts(x.shape)
    shape = frame.joined(n, channels, tuple(spatial))
    return staged(shape, frame.names(*("c",)[: len(channels)]), body, name)


def _narrowed(sums: Tensor, frame: Layout, dtype: DType) -> Tensor:
    if sums.dtype == dtype:
        return sums
    extents = _extents(frame, sums)
    shown: Tensor = _over(
        frame, sums, extents, lambda at: stored(sums[at], dtype), "narrow"
    )
    return shown


def _element(
    frame: Layout, slid: Sequence[Slide], at: Indices, taps: Sequence[ReduceAxis]
) -> Indices:
    """Where the element of a window is."""
    batch, own, windows = frame.parts(at)
    places = [
        s.place(window, tap.var)
        for s, window, tap in zip(slid, windows, taps, strict=True)
    ]
    return frame.joined(batch, own, places)


def _where(there: Expr, value: Expr) -> Expr:
    return select(there, value, as_expr(0.0).cast(value.dtype))


def _number(taps: Sequence[ReduceAxis]) -> Expr:
    """The number of a window's element, in the order of scanning."""
    number: Expr = as_expr(0)
    for axis in taps:
        number = number * axis.extent + axis.var
    return number


def _ranked(
    slid: Sequence[Slide],
    windows: Sequence[Expr],
    taps: Sequence[ReduceAxis],
    dtype: DType = i64,
) -> Expr:
    """The number of a window's element; of padding a larger one than any pixel's.

    A window of nothing but -inf then has its maximum at a pixel. Padding behind the
    image comes after a pixel as it is.
    """
    number, real = _number(taps), as_expr(True)
    for s, window, tap in zip(slid, windows, taps, strict=True):
        if s.low:
            real = real & (s.place(window, tap.var) >= s.low)
    if not any(s.low for s in slid):
        return number.cast(dtype)
    more = number + math.prod(s.kernel for s in slid)
    return select(real, number.cast(dtype), more.cast(dtype))


def _digit(number: Expr, kernel: Sequence[int], at: int) -> Expr:
    """The element's place along one dimension of the window."""
    behind = math.prod(kernel[at + 1 :])
    return number // behind % kernel[at]


def _windows(
    slid: Sequence[Slide], pixel: Sequence[Expr], around: Sequence[ReduceAxis]
) -> tuple[list[Expr], Expr]:
    """Windows that start at or before a pixel, and whether there are such ones."""
    near, there = [], as_expr(True)
    for s, place, back in zip(slid, pixel, around, strict=True):
        window = s.last(place) - back.var
        there = there & (window >= 0) & (window < s.count)
        most = binary("min", window, as_expr(s.count - 1))
        near.append(binary("max", most, as_expr(0)))
    return near, there


def _count(
    slid: Sequence[Slide], windows: Sequence[Expr], padding: bool, divisor: int | None
) -> Expr:
    """The number that a window's sum is divided by."""
    if divisor is not None:
        return as_expr(divisor)
    count: Expr = as_expr(1)
    for s, window in zip(slid, windows, strict=True):
        count = count * s.pixels(window, padding=padding)
    return count


def _largest(dtype: DType) -> Reducer:
    """The largest value; NaN where there is one.

    The test for NaN is on what comes in, off the way from one state to the next.
    """
    a, b = Var("a0", dtype), Var("b0", dtype)
    kept = Select(b.not_equal(b), b, Select(b > a, b, a))
    return Reducer("nan_max", (a,), (b,), (Const(-math.inf, dtype),), (kept,))


def _first(dtype: DType) -> Reducer:
    """The largest value and its first place; of NaNs the last, as PyTorch scans."""
    a = (Var("a0", dtype), Var("a1", i64))
    b = (Var("b0", dtype), Var("b1", i64))
    a_nan, b_nan = a[0].not_equal(a[0]), b[0].not_equal(b[0])
    tie = a[0].equal(b[0]) & (a[1] < b[1])
    both = a_nan & b_nan & (a[1] > b[1])
    left = both | (~b_nan & (a_nan | (a[0] > b[0]) | tie))
    kept = tuple(Select(left, p, q) for p, q in zip(a, b, strict=True))
    start = (Const(-math.inf, dtype), Const(i64.limits[1], i64))
    return Reducer("first_max", a, b, start, kept)
