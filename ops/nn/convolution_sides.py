"""What a convolution, or its transpose, reads along one dimension of an image.

Result `u` of a convolution reads pixel `u * stride + k * dilation` of the padded image
for each window element `k`.

The transpose computes the pixels of the image from the results. With stride `s`, pixel
`u * s + t` is reached only by every `s / gcd(s, dilation)`-th window element, starting
from the same one for all `u`: pixels of one *phase* `t` are a convolution of stride 1
with a subset of the weights. No zeros of a dilated image are multiplied. Phases with
equally many window elements are computed together; at most two such counts occur.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce as folded
from operator import and_
from typing import Any

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ops.nn.convolution_problem import Problem
from tensorlang.ops.nn.windows import Windows

Indices = tuple[Any, ...]


@frozen
class Part:
    """Phases with first elements from `first` up to `end`, and `taps` elements each."""

    first: int
    end: int
    taps: int

    @property
    def phases(self) -> int:
        """The number of phases."""
        return self.end - self.first

    def place(self, element: ir.Expr) -> ir.Expr:
        """The index of a phase by its first element; arbitrary for other phases."""
        most = ir.binary("min", element - self.first, ir.as_expr(self.phases - 1))
        return ir.binary("max", most, ir.as_expr(0))

    def has(self, element: ir.Expr) -> ir.Expr:
        """Whether the phase with this first element is one of these."""
        return (element >= self.first) & (element < self.end)


@frozen
class Side:
    """One dimension of the images that a convolution, or its transpose, reads."""

    given: int  # pixels of the images
    before: int  # padding before them; negative if pixels are cropped
    extent: int  # pixels with padding
    step: int  # pixels from what a result reads to what the next one of its phase reads
    lines: int  # results per phase
    phases: int  # number of phases: the stride of a transposed convolution, or 1
    window: int  # elements of a window
    apart: int  # distance between window elements of the same phase
    slope: int  # pixels from one of these elements to the next
    # common divisor of phases and dilation: one in this many phases is reached
    common: int
    dilation: int  # dilation of the windows
    low: int  # padding of the convolution

    @property
    def residues(self) -> int:
        """Pixels of a step, up to the last one that is read."""
        if self.step == 1:
            return 1
        return 1 + max(k * self.slope % self.step for k in range(self.window))

    @property
    def most(self) -> int:
        """The largest offset."""
        if self.slope > 0:
            return (self.window - 1) * self.slope
        return self.extent - self.lines

    @property
    def parts(self) -> tuple[Part, ...]:
        """Phases grouped by the number of window elements that reach them."""
        whole, more = divmod(self.window, self.apart)
        found = (Part(0, more, whole + 1), Part(more, self.apart, whole))
        return tuple(p for p in found if p.taps and p.first < p.end)

    def element(self, first: Any, tap: Any) -> Any:
        """The number of a window element.

        Args:
            first: The first window element that reaches the phase.
            tap: The number of the element among those that do.
        """
        own = tap if self.apart == 1 else tap * self.apart
        return first + own if self.slope < 0 else own

    def offset(self, first: Any, tap: Any) -> Any:
        """What a window element adds to the place that a result reads; as above."""
        if self.slope > 0:
            return tap * self.slope
        least = -self.low // self.phases
        more = -least * self.phases - self.low  # keeps the dividend nonnegative
        behind = (first * self.dilation + more) // self.phases + least
        return self.before - behind + tap * self.slope

    def first(self, phase: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """The first window element that reaches a phase, and whether any does."""
        shifted = phase + self.low % self.phases
        inverse = pow(self.dilation // self.common, -1, self.apart)
        element = shifted // self.common * inverse % self.apart
        return element, (shifted % self.common).equal(0)


def sides(p: Problem) -> list[Side]:
    """The dimensions of a convolution."""
    return [
        Side(image, low, image + low + high, step, lines, 1, k, 1, apart, 1, apart, low)
        for image, low, high, step, lines, k, apart in _each(p)
    ]


def transposed_sides(p: Problem) -> list[Side]:
    """The dimensions of the transposed convolution, which reads the results."""
    found = []
    for image, low, _, stride, given, k, dilation in _each(p):
        common, lines = math.gcd(stride, dilation), -(-image // stride)
        before = ((k - 1) * dilation - low) // stride
        extent, slope = lines + before - -low // stride, -(dilation // common)
        phases = stride, k, stride // common, slope, common, dilation, low
        found.append(Side(given, before, extent, 1, lines, *phases))
    return found


def of_phases(p: Problem) -> Problem:
    """The convolutions that compute the phases of a transposed one, as one of a batch.

    Phases that no window element reaches are left out; the others have as many of them
    as those that have the most.
    """
    found = transposed_sides(p)
    phases = [sum(part.phases for part in side.parts) for side in found]
    windows = Windows(
        tuple(side.parts[0].taps for side in found),
        (1,) * len(found),
        tuple(-side.slope for side in found),
        tuple(
            n
            for side in found
            for n in (side.before, side.extent - side.given - side.before)
        ),
    )
    return replace(
        p,
        batch=p.batch * math.prod(phases),
        inputs=p.outputs,
        outputs=p.inputs,
        image=p.result,
        result=tuple(side.lines for side in found),
        windows=windows,
    )


def _each(p: Problem) -> Iterator[tuple[int, ...]]:
    """Image, padding, stride, results, window and dilation of each dimension."""
    low, high = p.padding[::2], p.padding[1::2]
    return zip(
        p.image, low, high, p.stride, p.result, p.window, p.dilation, strict=True
    )


def interleaved(
    pixel: Sequence[ir.Expr],
    sides: Sequence[Side],
    found: Sequence[tuple[Sequence[Part], ir.Tensor]],
    read: Callable[[ir.Tensor, Indices, Indices], ir.Expr],
) -> ir.Expr:
    """The sum of a result, selected from its phase; 0 if no window element reaches it.

    Args:
        pixel: Index of the result.
        sides: The dimensions.
        found: The sums of each combination of parts.
        read: Reads a sum, given the sums of a part, the phase index along dimensions
            with several phases, and the line along each dimension.
    """
    if all(side.phases == 1 for side in sides):
        return read(found[0][1], (), tuple(pixel))
    firsts, there = zip(
        *(side.first(p % side.phases) for side, p in zip(sides, pixel, strict=True)),
        strict=True,
    )
    needed = [t for side, t in zip(sides, there, strict=True) if side.common > 1]
    lines = tuple(p // side.phases for side, p in zip(sides, pixel, strict=True))
    value: ir.Expr | None = None
    complete = all(side.window >= side.apart for side in sides)  # every phase has taps
    for parts, sums in reversed(found):
        pairs = list(zip(parts, firsts, strict=True))
        place = tuple(part.place(n) for part, n in pairs if part.phases > 1)
        own = read(sums, place, lines)
        has = folded(and_, (part.has(n) for part, n in pairs))
        if not complete and value is None:
            value = ir.select(has, own, _zero(own))
        else:
            value = own if value is None else ir.select(has, own, value)
    assert value is not None
    return ir.select(folded(and_, needed), value, _zero(value)) if needed else value


def _zero(like: ir.Expr) -> ir.Expr:
    return ir.as_expr(0.0).cast(like.dtype)
