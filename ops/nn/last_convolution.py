"""Convolutions with channels last, vectorised over outputs.

Weights are repacked once per call with the outputs last; sums then multiply broadcast
elements of the image by vectors of weights. In depthwise convolutions both are vectors.
Transposed convolutions and data gradients go by phases: see `phased_convolution`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tensorlang.ir import reduce_axis
from tensorlang.ir import sum as total
from tensorlang.ir.elementwise import NARROW, wide
from tensorlang.ops.nn import outer_products
from tensorlang.ops.nn.convolution_definitions import (
    Steps,
    finished,
    window_names,
)
from tensorlang.ops.nn.images import SPATIAL, Layout, padded, staged
from tensorlang.ops.nn.phased_convolution import Part, Side, interleaved, sides_of

if TYPE_CHECKING:
    from tensorlang.ir.frontend import ReduceAxis, Tensor
    from tensorlang.ir.nodes import Expr
    from tensorlang.ops.nn.convolution_problem import Problem

Indices = tuple[Any, ...]


def conv(
    x: Tensor, w: Tensor, b: Tensor | None, p: Problem, activation: str | None = None
) -> Tensor:
    """As `convolution_definitions.conv`."""
    frame, steps = Layout(p.layout), Steps.of(p)
    low, high = p.padding[::2], p.padding[1::2]
    extents = [n + a + b for n, a, b in zip(p.image, low, high, strict=True)]
    image = _image(x, frame, low, extents)
    taps = _taps(p.window)

    def read(_: Indices, place: Indices) -> tuple[Indices, Indices]:
        tap = [axis.var for axis in taps]
        return steps.at(place, tap), tuple(tap)

    packed = _packed(w, frame.rank, back=False)
    sums = _sums(image, packed, frame, (), p.result, taps, read, "sums")
    return finished(sums, b, frame, activation, x.dtype)


def conv_grad_data(dy: Tensor, w: Tensor, p: Problem) -> Tensor:
    """As `convolution_definitions.conv_grad_data`."""
    return conv_transposed(dy, w, None, p)


def conv_transposed(
    x: Tensor, w: Tensor, b: Tensor | None, p: Problem, activation: str | None = None
) -> Tensor:
    """As `convolution_definitions.conv_transposed`."""
    frame, sides = Layout(p.layout), sides_of(p)
    before = [side.reach[1] for side in sides]
    image = _image(x, frame, before, [side.padded for side in sides])
    packed = _packed(w, frame.rank, back=True)
    found: list[tuple[Sequence[Part], Tensor]] = []
    for parts in itertools.product(*(side.parts for side in sides)):
        name = f"sums_{len(found)}" if found else "sums"
        found.append((parts, _phase(image, packed, frame, sides, parts, name)))
    if set(p.stride) == {1}:
        return finished(found[0][1], b, frame, activation, x.dtype)

    def placed(at: Indices) -> Expr:
        batch, own, pixel = frame.parts(at)

        def read(sums: Tensor, place: Indices, lines: Indices) -> Expr:
            value: Expr = sums[(*batch, *place, *lines, *own)]
            return value

        return interleaved(pixel, sides, found, read)

    own = (*packed.shape[: -frame.rank - 1][:-1], packed.shape[-1])
    shape = (x.shape[0], *p.image, *own)
    return finished(
        found[0][1], b, frame, activation, x.dtype, shape=shape, read=placed, name="y"
    )


def conv_grad(dy: Tensor, x: Tensor, w: Tensor, p: Problem) -> tuple[Tensor, Tensor]:
    """As `convolution_definitions.conv_grad`."""
    return conv_grad_data(dy, w, p), outer_products.conv_grad_weight(dy, x, p)


def conv_transposed_grad(
    dy: Tensor, x: Tensor, w: Tensor, p: Problem
) -> tuple[Tensor, Tensor]:
    """As `convolution_definitions.conv_transposed_grad`."""
    return conv(dy, w, None, p), outer_products.conv_grad_weight(x, dy, p)


# --------------------------------------------------------------------- stages


def _taps(window: Sequence[int]) -> list[ReduceAxis]:
    names = window_names(len(window))
    return [reduce_axis(k, name) for k, name in zip(window, names, strict=True)]


def _image(
    x: Tensor, frame: Layout, low: Sequence[int], extents: Sequence[int]
) -> Tensor:
    """Padded images in the accumulation type."""
    image = x
    if x.dtype.name in NARROW:
        names = frame.names(*(f"c{at}" for at in range(len(x.shape) - 1 - frame.rank)))
        image = staged(x.shape, names, lambda at: wide(x[at]), "wide")
    return padded(image, frame, low, extents, name="frame")


def _packed(w: Tensor, rank: int, *, back: bool) -> Tensor:
    """Weights repacked with the sums' channels last: outputs, or inputs if `back`.

    `(groups, inputs, *window, outputs)`; for depthwise convolutions
    `(*window, groups)`.
    """
    cut = len(w.shape) - rank
    leading, window = w.shape[:cut], w.shape[cut:]
    if cut == 1:
        names = (*window_names(rank), "o")
        made: Tensor = staged(
            (*window, *leading), names, lambda at: wide(w[(at[-1], *at[:-1])]), "packed"
        )
        return made
    last, folded = (leading[-1], leading[-2]) if back else leading[-2:]

    def element(at: Indices) -> Expr:
        group, c, tap, o = at[: cut - 2], at[cut - 2], at[cut - 1 : -1], at[-1]
        own = (c, o) if back else (o, c)
        return wide(w[(*group, *own, *tap)])

    names = (*("g",)[3 - cut :], "c", *window_names(rank), "o")
    shape = (*leading[:-2], folded, *window, last)
    packed: Tensor = staged(shape, names, element, "packed")
    return packed


def _sums(  # noqa: PLR0917 - operands of a sum
    image: Tensor,
    packed: Tensor,
    frame: Layout,
    phases: Sequence[tuple[int, str]],
    results: Sequence[Any],
    taps: Sequence[ReduceAxis],
    read: Callable[..., tuple[Indices, Indices]],
    name: str,
) -> Tensor:
    """The sums of products over windows.

    Args:
        image: The padded images.
        packed: The repacked weights.
        frame: Layout of the images.
        phases: Extents and names of the phase dimensions.
        results: Number of windows along each dimension.
        taps: Reduction axes besides channels.
        read: Maps phases and a result's place to image and window indices.
        name: Name of the sums.
    """
    rank = frame.rank
    channels = packed.shape[: -rank - 1]
    inner = (reduce_axis(channels[-1], "c"),) if channels else ()

    def element(at: Indices) -> Any:
        cut = 1 + len(phases)
        place, own = at[cut : cut + rank], at[cut + rank :]
        pixel, tap = read(at[1:cut], place)
        c = tuple(axis.var for axis in inner)
        seen = (*own[:-1], *c) if c else own
        value = image[(at[0], *pixel, *seen)]
        return total(value * packed[(*own[:-1], *c, *tap, own[-1])], (*inner, *taps))

    shape = (image.shape[0], *(n for n, _ in phases), *results, *channels[:-1])
    groups = ("g",)[: len(channels) - 1] if channels else ()
    names = ("b", *(of for _, of in phases), *SPATIAL[3 - rank :], *groups, "o")
    sums: Tensor = staged((*shape, packed.shape[-1]), names, element, name)
    return sums


def _phase(  # noqa: PLR0917 - operands of a sum
    image: Tensor,
    packed: Tensor,
    frame: Layout,
    sides: Sequence[Side],
    parts: Sequence[Part],
    name: str,
) -> Tensor:
    """The sums of the phases of one combination of parts."""
    several = [n for n, part in enumerate(parts) if part.phases > 1]
    called = ("tz", "ty", "tx")[3 - frame.rank :]
    taps = _taps([part.taps for part in parts])

    def read(phases: Indices, place: Indices) -> tuple[Indices, Indices]:
        own = dict(zip(several, phases, strict=True))
        firsts = [own.get(n, 0) + part.first for n, part in enumerate(parts)]
        pixel, elements = [], []
        for side, first, tap, at in zip(sides, firsts, taps, place, strict=True):
            pixel.append(at + side.line(first, tap.var))
            elements.append(first + tap.var * side.step)
        return tuple(pixel), tuple(elements)

    phases = [(parts[n].phases, called[n]) for n in several]
    lines = [side.lines for side in sides]
    return _sums(image, packed, frame, phases, lines, taps, read, name)
