"""Transposed convolutions and data gradients by phases, for any stride.

Along a dimension with stride `s`, pixel `u * s + t` is reached only by every
`s / gcd(s, dilation)`-th window element, starting from the same one for all `u`: pixels
of one *phase* `t` are a stride-1 convolution of `dy` with a subset of the weights. No
zeros of a dilated `dy` are multiplied.

Phases with equally many window elements are computed together; along a dimension, at
most two such counts occur.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as folded
from operator import and_
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import as_expr, reduce_axis, select
from tensorlang.ir import sum as total
from tensorlang.ir.nodes import binary
from tensorlang.ops.nn import convolution_definitions as plain
from tensorlang.ops.nn import depthwise_gradients, outer_products
from tensorlang.ops.nn.flat_convolution import Flat, flat_image, widened
from tensorlang.ops.nn.images import Layout, staged

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr
    from tensorlang.ops.nn.convolution_problem import Problem

Indices = tuple[Any, ...]
_TAPS: Final = ("kz", "ky", "kx")
_FIRST: Final = ("tz", "ty", "tx")


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension.

    Attributes:
        window: Elements of a window.
        stride: Pixels from window to window.
        dilation: Pixels from element to element of a window.
        low: Padding before the image.
        size: Pixels of the image.
    """

    window: int
    stride: int
    dilation: int
    low: int
    size: int

    @property
    def common(self) -> int:
        """Common divisor of stride and dilation: one in this many phases is reached."""
        return math.gcd(self.stride, self.dilation)

    @property
    def step(self) -> int:
        """Distance between window elements of the same phase."""
        return self.stride // self.common

    @property
    def lines(self) -> int:
        """Pixels per phase."""
        return -(-self.size // self.stride)

    @property
    def reach(self) -> tuple[int, int]:
        """How far before a pixel its windows start, in strides: minimum and maximum."""
        last = (self.window - 1) * self.dilation - self.low
        return -self.low // self.stride, last // self.stride

    @property
    def padded(self) -> int:
        """Extent of `dy` with the padding that all phases need."""
        return self.lines + self.reach[1] - self.reach[0]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Phases grouped by the number of window elements that reach them."""
        whole, more = divmod(self.window, self.step)
        found = (Part(0, more, whole + 1), Part(more, self.step, whole))
        return tuple(p for p in found if p.taps and p.first < p.end)

    def first(self, phase: Expr) -> tuple[Expr, Expr]:
        """The first window element that reaches a phase, and whether any does."""
        shifted = phase + self.low % self.stride
        inverse = pow(self.dilation // self.common, -1, self.step)
        element = shifted // self.common * inverse % self.step
        return element, (shifted % self.common).equal(0)

    def line(self, first: Any, tap: Any) -> Any:
        """Offset from a pixel's line of the padded `dy` to that of a window element.

        Args:
            first: The first window element that reaches the phase.
            tap: The number of the element among those that do.
        """
        least, most = self.reach
        more = -least * self.stride - self.low  # keeps the dividend nonnegative
        before = (first * self.dilation + more) // self.stride + least
        return most - before - tap * (self.dilation // self.common)


@dataclass(frozen=True, slots=True)
class Part:
    """Phases with first elements from `first` up to `end`, and `taps` elements each."""

    first: int
    end: int
    taps: int

    @property
    def phases(self) -> int:
        """The number of phases."""
        return self.end - self.first

    def place(self, element: Expr) -> Expr:
        """The index of a phase by its first element; arbitrary for other phases."""
        most = binary("min", element - self.first, as_expr(self.phases - 1))
        return binary("max", most, as_expr(0))

    def has(self, element: Expr) -> Expr:
        """Whether the phase with this first element is one of these."""
        return (element >= self.first) & (element < self.end)


def sides_of(p: Problem) -> list[Side]:
    """The dimensions of a transposed convolution."""
    given = p.window, p.stride, p.dilation, p.padding[::2], p.image
    return [Side(*each) for each in zip(*given, strict=True)]


def conv_grad_data(dy: Tensor, w: Tensor, p: Problem) -> Tensor:
    """As `convolution_definitions.conv_grad_data`, with channels first."""
    return conv_transposed(dy, w, None, p)


def conv_grad(dy: Tensor, x: Tensor, w: Tensor, p: Problem) -> tuple[Tensor, Tensor]:
    """As `convolution_definitions.conv_grad`, with channels first."""
    by: ModuleType = outer_products
    if p.depthwise:
        by = depthwise_gradients if p.result[-1] > 1 else plain
    return conv_grad_data(dy, w, p), by.conv_grad_weight(dy, x, p)


def conv_transposed(
    x: Tensor, w: Tensor, b: Tensor | None, p: Problem, activation: str | None = None
) -> Tensor:
    """As `convolution_definitions.conv_transposed`, with channels first."""
    frame, sides = Layout(p.layout), sides_of(p)
    flat = _laid(sides, p.result)
    most = [side.reach[1] - side.reach[0] + 1 for side in sides]
    image = flat_image(x, flat, frame, tuple(most))
    weights = widened(w)
    found: list[tuple[Sequence[Part], Tensor]] = []
    for parts in itertools.product(*(side.parts for side in sides)):
        name = f"sums_{len(found)}" if found else "sums"
        found.append((parts, _sums(image, weights, sides, parts, flat, name)))

    def placed(at: Indices) -> Expr:
        batch, own, pixel = frame.parts(at)

        def read(sums: Tensor, place: Indices, lines: Indices) -> Expr:
            steps = [n * pitch for n, pitch in zip(lines, flat.pitch, strict=True)]
            value: Expr = sums[(*batch, *place, *own, sum(steps[1:], steps[0]))]
            return value

        return interleaved(pixel, sides, found, read)

    channels = w.shape[: len(w.shape) - frame.rank]
    own = (*channels[:-2], channels[-1])
    shape = (x.shape[0], *own, *p.image)
    return plain.finished(
        found[0][1], b, frame, activation, x.dtype, shape=shape, read=placed, name="y"
    )


def _laid(sides: Sequence[Side], given: tuple[int, ...]) -> Flat:
    """The sizes of `dy`, padded by what all phases reach and flattened."""
    ones = (1,) * len(sides)
    before = tuple(side.reach[1] for side in sides)
    lines = tuple(side.lines for side in sides)
    extents = tuple(side.padded for side in sides)
    return Flat(given, before, ones, ones, lines, extents, pixels=False)


def _sums(  # noqa: PLR0917 - operands of a sum
    image: Tensor,
    w: Tensor,
    sides: Sequence[Side],
    parts: Sequence[Part],
    flat: Flat,
    name: str,
) -> Tensor:
    """The sums of a part's phases, including junk between lines."""
    rank = len(sides)
    channels = w.shape[: len(w.shape) - rank]
    depthwise = len(channels) == 1
    inner = () if depthwise else (reduce_axis(channels[-2], "o"),)
    names = _TAPS[3 - rank :]
    taps = [reduce_axis(p.taps, of) for p, of in zip(parts, names, strict=True)]
    several = [n for n, part in enumerate(parts) if part.phases > 1]

    def element(at: Indices) -> Any:
        batch, own, q = at[0], at[1 + len(several) : -1], at[-1]
        phases = dict(zip(several, at[1:], strict=False))
        firsts = [phases.get(n, 0) + part.first for n, part in enumerate(parts)]
        lines, elements = [], []
        for side, first, tap in zip(sides, firsts, taps, strict=True):
            lines.append(side.line(first, tap.var))
            elements.append(first + tap.var * side.step)
        steps = [n * pitch for n, pitch in zip(lines, flat.pitch, strict=True)]
        summed = tuple(o.var for o in inner)
        read = own if depthwise else (*own[:-1], *summed)
        value = image[(batch, *read, *(0,) * rank, q + sum(steps[1:], steps[0]))]
        weight = own if depthwise else (*own[:-1], *summed, own[-1])
        return total(value * w[(*weight, *elements)], (*inner, *taps))

    own = channels if depthwise else (*channels[:-2], channels[-1])
    phases = [parts[n].phases for n in several]
    shape = (image.shape[0], *phases, *own, flat.length)
    stacked = [_FIRST[3 - rank :][n] for n in several]
    called = ("b", *stacked, *("g", "c")[2 - len(own) :], "q")
    made: Tensor = staged(shape, called, element, name)
    return made


def interleaved(
    pixel: Sequence[Expr],
    sides: Sequence[Side],
    found: Sequence[tuple[Sequence[Part], Tensor]],
    read: Callable[[Tensor, Indices, Indices], Expr],
) -> Expr:
    """The sum of a pixel, selected from its phase; 0 if no window element reaches it.

    Args:
        pixel: Index in the image.
        sides: The dimensions.
        found: The sums of each combination of parts.
        read: Reads a sum, given the sums of a part, the phase index along dimensions
            with several phases, and the line along each dimension.
    """
    firsts, there = zip(
        *(side.first(p % side.stride) for side, p in zip(sides, pixel, strict=True)),
        strict=True,
    )
    needed = [t for side, t in zip(sides, there, strict=True) if side.common > 1]
    lines = tuple(p // side.stride for side, p in zip(sides, pixel, strict=True))
    value: Expr | None = None
    complete = all(side.window >= side.step for side in sides)  # every phase has taps
    for parts, sums in reversed(found):
        pairs = list(zip(parts, firsts, strict=True))
        place = tuple(part.place(n) for part, n in pairs if part.phases > 1)
        own = read(sums, place, lines)
        has = folded(and_, (part.has(n) for part, n in pairs))
        if not complete and value is None:
            value = select(has, own, _zero(own))
        else:
            value = own if value is None else select(has, own, value)
    assert value is not None
    return select(folded(and_, needed), value, _zero(value)) if needed else value


def _zero(like: Expr) -> Expr:
    return as_expr(0.0).cast(like.dtype)
