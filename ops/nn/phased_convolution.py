"""Transposed convolutions, and gradients of images, where windows lie apart.

Along a dimension whose windows are `s` pixels apart, pixel `u * s + t` is reached by
every `s / gcd(s, dilation)`-th element of windows only, from the same first one for all
`u`: pixels of one *phase* `t` are a convolution of `dy`, a pixel apart, by a part of
the weights. No zero that a spread-out `dy` would have is multiplied.

Phases whose parts of a window have equally many elements are computed together: there
are at most two such numbers along a dimension.
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
from tensorlang.ops.nn.images import Layout, numbers, staged

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr

Indices = tuple[Any, ...]
_TAPS: Final = ("kz", "ky", "kx")
_FIRST: Final = ("tz", "ty", "tx")


@dataclass(frozen=True, slots=True)
class Side:
    """One dimension.

    Attributes:
        window: Elements of a window.
        stride: Pixels from one window to the next.
        dilation: Pixels from one element of a window to the next.
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
        """Only pixels of every so many phases are reached at all."""
        return math.gcd(self.stride, self.dilation)

    @property
    def step(self) -> int:
        """From one element of a window to the next one of the same phase."""
        return self.stride // self.common

    @property
    def lines(self) -> int:
        """Pixels of a phase."""
        return -(-self.size // self.stride)

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the most that windows begin before a pixel, in strides."""
        last = (self.window - 1) * self.dilation - self.low
        return -self.low // self.stride, last // self.stride

    @property
    def padded(self) -> int:
        """Pixels of `dy` along it, with the padding that all phases need."""
        return self.lines + self.reach[1] - self.reach[0]

    @property
    def parts(self) -> tuple[Part, ...]:
        """Phases by how many elements of a window reach them."""
        whole, more = divmod(self.window, self.step)
        found = (Part(0, more, whole + 1), Part(more, self.step, whole))
        return tuple(p for p in found if p.taps and p.first < p.end)

    def first(self, phase: Expr) -> tuple[Expr, Expr]:
        """The first element of a window that reaches a phase; and whether one does."""
        shifted = phase + self.low % self.stride
        inverse = pow(self.dilation // self.common, -1, self.step)
        element = shifted // self.common * inverse % self.step
        return element, (shifted % self.common).equal(0)

    def line(self, first: Any, tap: Any) -> Any:
        """From a pixel's own line of the padded `dy` to a window element's.

        Args:
            first: The first element of a window that reaches the phase.
            tap: Which of those that do.
        """
        least, most = self.reach
        more = -least * self.stride - self.low  # so that nothing is negative
        before = (first * self.dilation + more) // self.stride + least
        return most - before - tap * (self.dilation // self.common)


@dataclass(frozen=True, slots=True)
class Part:
    """Phases whose first elements are `first` to `end`, with `taps` elements each."""

    first: int
    end: int
    taps: int

    @property
    def phases(self) -> int:
        """How many there are."""
        return self.end - self.first

    def place(self, element: Expr) -> Expr:
        """A phase's place among these, by its first element; of others any place."""
        most = binary("min", element - self.first, as_expr(self.phases - 1))
        return binary("max", most, as_expr(0))

    def has(self, element: Expr) -> Expr:
        """Whether the phase of a first element is one of these."""
        return (element >= self.first) & (element < self.end)


def conv_grad_data(
    dy: Tensor,
    w: Tensor,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    layout: str,
    size: tuple[int, ...],
) -> Tensor:
    """As `convolution_definitions.conv_grad_data`, of channels that come first."""
    return conv_transposed(
        dy,
        w,
        stride=stride,
        padding=padding,
        dilation=dilation,
        layout=layout,
        activation=None,
        size=size,
    )


def conv_grad(
    dy: Tensor,
    x: Tensor,
    w: Tensor,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    layout: str,
    bias: bool,
) -> tuple[Tensor, ...]:
    """As `convolution_definitions.conv_grad`, of channels that come first."""
    frame = Layout(layout)
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    size = numbers(frame.parts(x.shape)[2])
    dx = conv_grad_data(dy, w, layout=layout, size=size, **given)
    window = numbers(w.shape[len(w.shape) - frame.rank :])
    depthwise = len(w.shape) == frame.rank + 1
    by: ModuleType = outer_products
    if depthwise:
        by = depthwise_gradients if numbers(dy.shape[-1:])[0] > 1 else plain
    dw = by.conv_grad_weight(
        dy, x, layout=layout, window=window, depthwise=depthwise, **given
    )
    return (dx, dw, plain.bias_gradient(dy, frame)) if bias else (dx, dw)


def conv_transposed(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    layout: str,
    activation: str | None,
    size: tuple[int, ...],
) -> Tensor:
    """As `convolution_definitions.conv_transposed`, of channels that come first."""
    frame = Layout(layout)
    window = numbers(w.shape[len(w.shape) - frame.rank :])
    sides = [
        Side(*each)
        for each in zip(window, stride, dilation, padding[::2], size, strict=True)
    ]
    flat = _laid(sides, numbers(frame.parts(x.shape)[2]))
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
    shape = (x.shape[0], *own, *size)
    return plain.finished(
        found[0][1], b, frame, activation, x.dtype, shape=shape, read=placed, name="y"
    )


def _laid(sides: Sequence[Side], given: tuple[int, ...]) -> Flat:
    """`dy` in one row, padded by all that pixels before and behind reach."""
    ones = (1,) * len(sides)
    before = tuple(side.reach[1] for side in sides)
    lines = tuple(side.lines for side in sides)
    extents = tuple(side.padded for side in sides)
    return Flat(given, before, ones, ones, lines, extents, pixels=False)


def _sums(  # noqa: PLR0917 - what a part is made of
    image: Tensor,
    w: Tensor,
    sides: Sequence[Side],
    parts: Sequence[Part],
    flat: Flat,
    name: str,
) -> Tensor:
    """The sums of some phases, junk between the lines included."""
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
    """The sum of a pixel: 0 where no window's element reaches it.

    Args:
        pixel: Where it is in the image.
        sides: The dimensions.
        found: The sums, part by part.
        read: A sum, from those of a part, its place among the phases that there are
            several of, and its line along each dimension.
    """
    firsts, there = zip(
        *(side.first(p % side.stride) for side, p in zip(sides, pixel, strict=True)),
        strict=True,
    )
    needed = [t for side, t in zip(sides, there, strict=True) if side.common > 1]
    lines = tuple(p // side.stride for side, p in zip(sides, pixel, strict=True))
    value: Expr | None = None
    complete = all(side.window >= side.step for side in sides)  # no phase without taps
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
