"""Convolutions of images whose channels come last: vectors of outputs.

Weights are laid out again with the outputs of the sums last, once a call; a sum is then
of single elements of the image times vectors of weights. Each channel for itself, both
are vectors. Transposed convolutions, and gradients of images, go by phases: see
`phased_convolution`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tensorlang.ir import reduce_axis
from tensorlang.ir import sum as total
from tensorlang.ops.assembling import NARROW, wide
from tensorlang.ops.nn import outer_products
from tensorlang.ops.nn.convolution_definitions import (
    Steps,
    bias_gradient,
    finished,
    window_names,
)
from tensorlang.ops.nn.images import SPATIAL, Layout, numbers, padded, staged
from tensorlang.ops.nn.phased_convolution import Part, Side, interleaved

if TYPE_CHECKING:
    from tensorlang.ir.frontend import ReduceAxis, Tensor
    from tensorlang.ir.nodes import Expr

Indices = tuple[Any, ...]


def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    layout: str,
    activation: str | None,
    tolerance: float = 0.0,
) -> Tensor:
    """As `convolution_definitions.conv`."""
    del tolerance  # of other algorithms
    frame, steps = Layout(layout), Steps(stride, dilation)
    window = numbers(w.shape[len(w.shape) - frame.rank :])
    sizes = numbers(frame.parts(x.shape)[2])
    low, high = padding[::2], padding[1::2]
    extents = [n + a + b for n, a, b in zip(sizes, low, high, strict=True)]
    image = _image(x, frame, low, extents)
    results = [
        (have - (k - 1) * apart - 1) // step + 1
        for have, k, apart, step in zip(extents, window, dilation, stride, strict=True)
    ]
    taps = _taps(window)

    def read(_: Indices, place: Indices) -> tuple[Indices, Indices]:
        tap = [axis.var for axis in taps]
        return steps.at(place, tap), tuple(tap)

    packed = _packed(w, frame.rank, back=False)
    sums = _sums(image, packed, frame, (), results, taps, read, "sums")
    return finished(sums, b, frame, activation, x.dtype)


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
    """As `convolution_definitions.conv_grad_data`."""
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
    """As `convolution_definitions.conv_transposed`."""
    frame = Layout(layout)
    window = numbers(w.shape[len(w.shape) - frame.rank :])
    sides = [
        Side(*each)
        for each in zip(window, stride, dilation, padding[::2], size, strict=True)
    ]
    before = [side.reach[1] for side in sides]
    image = _image(x, frame, before, [side.padded for side in sides])
    packed = _packed(w, frame.rank, back=True)
    found: list[tuple[Sequence[Part], Tensor]] = []
    for parts in itertools.product(*(side.parts for side in sides)):
        name = f"sums_{len(found)}" if found else "sums"
        found.append((parts, _phase(image, packed, frame, sides, parts, name)))
    if set(stride) == {1}:
        return finished(found[0][1], b, frame, activation, x.dtype)

    def placed(at: Indices) -> Expr:
        batch, own, pixel = frame.parts(at)

        def read(sums: Tensor, place: Indices, lines: Indices) -> Expr:
            value: Expr = sums[(*batch, *place, *lines, *own)]
            return value

        return interleaved(pixel, sides, found, read)

    own = (*packed.shape[: -frame.rank - 1][:-1], packed.shape[-1])
    shape = (x.shape[0], *size, *own)
    return finished(
        found[0][1], b, frame, activation, x.dtype, shape=shape, read=placed, name="y"
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
    """As `convolution_definitions.conv_grad`."""
    frame = Layout(layout)
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    size = numbers(frame.parts(x.shape)[2])
    dx = conv_grad_data(dy, w, layout=layout, size=size, **given)
    dw = _weights(dy, x, w, frame, layout=layout, **given)
    return (dx, dw, bias_gradient(dy, frame)) if bias else (dx, dw)


def conv_transposed_grad(
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
    """As `convolution_definitions.conv_transposed_grad`."""
    frame = Layout(layout)
    dx = conv(
        dy,
        w,
        stride=stride,
        padding=padding,
        dilation=dilation,
        layout=layout,
        activation=None,
    )
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    dw = _weights(x, dy, w, frame, layout=layout, **given)
    return (dx, dw, bias_gradient(dy, frame)) if bias else (dx, dw)


# --------------------------------------------------------------------- stages


def _weights(dy: Tensor, x: Tensor, w: Tensor, frame: Layout, **given: Any) -> Tensor:
    """The gradient of the weights."""
    cut = len(w.shape) - frame.rank
    window = numbers(w.shape[cut:])
    return outer_products.conv_grad_weight(
        dy, x, window=window, depthwise=cut == 1, **given
    )


def _taps(window: Sequence[int]) -> list[ReduceAxis]:
    names = window_names(len(window))
    return [reduce_axis(k, name) for k, name in zip(window, names, strict=True)]


def _image(
    x: Tensor, frame: Layout, low: Sequence[int], extents: Sequence[int]
) -> Tensor:
    """Padded images in the type that is computed in."""
    image = x
    if x.dtype.name in NARROW:
        names = frame.names(*(f"c{at}" for at in range(len(x.shape) - 1 - frame.rank)))
        image = staged(x.shape, names, lambda at: wide(x[at]), "wide")
    return padded(image, frame, low, extents, name="frame")


def _packed(w: Tensor, rank: int, *, back: bool) -> Tensor:
    """Weights whose last dimension is that of the sums: outputs, or `back` inputs.

    `(groups, inputs, *window, outputs)`, or of each channel for itself
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


def _sums(  # noqa: PLR0917 - what a sum is made of
    image: Tensor,
    packed: Tensor,
    frame: Layout,
    phases: Sequence[tuple[int, str]],
    results: Sequence[Any],
    taps: Sequence[ReduceAxis],
    read: Callable[..., tuple[Indices, Indices]],
    name: str,
) -> Tensor:
    """The sums of products of some windows.

    Args:
        image: The padded images.
        packed: The weights.
        frame: How images lie.
        phases: Extents and names of leading dimensions.
        results: How many windows there are along each dimension.
        taps: What is folded besides channels.
        read: From phases and a place: where in the image, and which weights.
        name: The name of the sums.
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


def _phase(  # noqa: PLR0917 - what a part is made of
    image: Tensor,
    packed: Tensor,
    frame: Layout,
    sides: Sequence[Side],
    parts: Sequence[Part],
    name: str,
) -> Tensor:
    """The sums of some phases."""
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
