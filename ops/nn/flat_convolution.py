"""A convolution over flattened images: each output row goes on where the last ended.

The padded image lies in one row, `pitch` elements from line to line, and so do the
sums, junk between the lines included: then the sums at `q` need the image at `q`, a
fixed offset for each element of the window further, and vectors of them go on across
the ends of lines. With a stride, the image is dealt out by `pixel % stride` first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import as_expr, reduce_axis, select
from tensorlang.ir import sum as total
from tensorlang.ir.nodes import binary
from tensorlang.ops.assembling import NARROW, wide
from tensorlang.ops.nn import outer_products
from tensorlang.ops.nn.convolution_definitions import (
    bias_gradient,
    finished,
    narrowed,
    turned,
)
from tensorlang.ops.nn.images import SPATIAL, Layout, numbers, staged

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr

Indices = tuple[Any, ...]
_LINE: Final = 64  # bytes of a vector register
_SLACK: Final = 64  # elements past the end that a register tile may read
_FEW_WEIGHTS: Final = 1 << 18  # that may be read in an order not their own
_TAPS: Final = ("kz", "ky", "kx")


@dataclass(frozen=True, slots=True)
class Flat:
    """Sizes of a flattened image.

    Attributes:
        size: Extents of the image.
        low: Padding before it.
        stride: The step from window to window.
        dilation: The step within a window.
        results: Extents of the result.
        extents: Extents of each part of the padded image that is dealt out.
        pixels: Whether windows are single pixels, and the image needs no copy.
    """

    size: tuple[int, ...]
    low: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    results: tuple[int, ...]
    extents: tuple[int, ...]
    pixels: bool

    @property
    def pitch(self) -> tuple[int, ...]:
        """Elements from one line, or plane, to the next."""
        return tuple(math.prod(self.extents[at + 1 :]) for at in range(len(self.size)))

    @property
    def length(self) -> int:
        """Elements of all sums: up to the end of the last line."""
        return self.results[0] * self.pitch[0]

    def offset(self, tap: Sequence[Any]) -> Any:
        """How far on an element of the window is."""
        places = [
            k * apart // step * pitch
            for k, apart, step, pitch in zip(
                tap, self.dilation, self.stride, self.pitch, strict=True
            )
        ]
        return sum(places[1:], places[0])

    def phases(self, tap: Sequence[Any]) -> Indices:
        """The part of the image that an element of the window is in."""
        return tuple(
            k * apart % step
            for k, apart, step in zip(tap, self.dilation, self.stride, strict=True)
        )


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
    """As `convolution_definitions.conv`, of images whose channels come first."""
    del tolerance  # of other algorithms
    frame = Layout(layout)
    window = numbers(w.shape[len(w.shape) - frame.rank :])
    size = numbers(frame.parts(x.shape)[2])
    flat = _flat(size, window, stride, padding, dilation)
    sums = _sums(x, widened(w), flat, frame)
    return _results(sums, b, flat, frame, activation, x.dtype)


def _results(  # noqa: PLR0917 - what a layer ends in
    sums: Tensor,
    b: Tensor | None,
    flat: Flat,
    frame: Layout,
    activation: str | None,
    dtype: DType,
) -> Tensor:
    """The sums without what is between the lines."""
    if flat.pixels and b is None and activation is None and dtype == sums.dtype:
        return sums

    def read(at: Indices) -> Expr:
        batch, own, place = frame.parts(at)
        steps = [p * pitch for p, pitch in zip(place, flat.pitch, strict=True)]
        value: Expr = sums[(*batch, *own, sum(steps[1:], steps[0]))]
        return value

    shape = (*sums.shape[:-1], *flat.results)
    return finished(sums, b, frame, activation, dtype, read=read, shape=shape)


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
    """As `convolution_definitions.conv_grad_data`, where windows are a pixel apart.

    The convolution of `dy` with windows turned round, padded by what they reach over.
    """
    rank = len(stride)
    window = numbers(w.shape[len(w.shape) - rank :])
    around = [
        (k - 1) * apart - low
        for k, apart, low in zip(window, dilation, padding[::2], strict=True)
    ]
    given = numbers(Layout(layout).parts(dy.shape)[2])
    behind = [
        n + (k - 1) * apart - have - before
        for n, k, apart, have, before in zip(
            size, window, dilation, given, around, strict=True
        )
    ]
    padded = tuple(n for pair in zip(around, behind, strict=True) for n in pair)
    frame = Layout(layout)
    flat = _flat(given, window, stride, padded, dilation)
    back = math.prod(numbers(w.shape)) <= _FEW_WEIGHTS
    turned_weights = w if back else turned(w, rank)
    sums = _sums(dy, widened(turned_weights), flat, frame, back=back)
    return _results(sums, None, flat, frame, None, dy.dtype)


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
    """As `convolution_definitions.conv_grad`, where windows are a pixel apart."""
    frame = Layout(layout)
    size = numbers(frame.parts(x.shape)[2])
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    dx = conv_grad_data(dy, w, layout=layout, size=size, **given)
    dw = _weights(dy, x, w, layout=layout, **given)
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
    """As `convolution_definitions.conv_transposed_grad`: a convolution of `dy`."""
    frame = Layout(layout)
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    dx = conv(
        dy,
        w,
        stride=stride,
        padding=padding,
        dilation=dilation,
        layout=layout,
        activation=None,
    )
    dw = _weights(x, dy, w, layout=layout, **given)
    return (dx, dw, bias_gradient(dy, frame)) if bias else (dx, dw)


def _weights(dy: Tensor, x: Tensor, w: Tensor, *, layout: str, **given: Any) -> Tensor:
    """The gradient of weights: of single pixels by whole rows, else pixel by pixel.

    By whole rows, what stands between results would be multiplied by 0: wrong beside
    infinities. Windows of single pixels leave nothing there.
    """
    rank = Layout(layout).rank
    window = numbers(w.shape[len(w.shape) - rank :])
    pixels = set(window) == {1} and not any(given["padding"])
    by = conv_grad_weight if pixels else outer_products.conv_grad_weight
    return by(dy, x, layout=layout, window=window, depthwise=False, **given)


def conv_grad_weight(
    dy: Tensor,
    x: Tensor,
    *,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    layout: str,
    window: tuple[int, ...],
    depthwise: bool,
) -> Tensor:
    """As `convolution_definitions.conv_grad_weight`, of channels that are summed over.

    `dy` is laid out as the flattened image is, so a weight's gradient is a product of
    two rows: lane by lane first, and then over the lanes.
    """
    assert not depthwise
    frame = Layout(layout)
    size = numbers(frame.parts(x.shape)[2])
    flat = _flat(size, window, stride, padding, dilation)
    lanes = _LINE // (8 if x.dtype.name == "f64" else 4)
    plain = flat.pixels and flat.length % lanes == 0 and x.dtype.name not in NARROW
    image, spaced = x, dy
    if not plain:
        image = flat_image(x, flat, frame, window, "image")
        ones = (1,) * frame.rank
        none = (0,) * frame.rank
        results = Flat(
            flat.results, none, ones, ones, flat.results, flat.extents, flat.pixels
        )
        spaced = flat_image(dy, results, frame, ones, "spaced")
    return _over_lanes(spaced, image, flat, window, lanes, plain=plain, dtype=dy.dtype)


def _over_lanes(
    dy: Tensor,
    image: Tensor,
    flat: Flat,
    window: tuple[int, ...],
    lanes: int,
    *,
    plain: bool,
    dtype: DType,
) -> Tensor:
    """The products of rows, as sums of every `lanes`-th element and then of these."""
    rank = len(window)
    skipped = 0 if plain else rank
    made = dy.shape[1 : len(dy.shape) - 1 - skipped]
    read = image.shape[1 : len(image.shape) - 1 - skipped]
    batch = reduce_axis(dy.shape[0], "b")
    steps = reduce_axis(-(-flat.length // lanes), "s")
    lane = reduce_axis(lanes, "l")
    names = ("g", "o", "c")[2 - len(made) :] + _TAPS[3 - rank :]

    def rows(at: Indices) -> Any:
        own, tap, last = at[: len(made) + 1], at[len(made) + 1 : -1], at[-1]
        q = steps.var * lanes + last
        phases = () if plain else flat.phases(tap)
        first = () if plain else (0,) * rank
        given = dy[(batch.var, *own[:-1], *first, q)]
        channel = (*own[:-2], own[-1])
        seen = image[(batch.var, *channel, *phases, q + flat.offset(tap))]
        return total(given * seen, (batch, steps))

    shape = (*made, read[-1], *window)
    parts = staged((*shape, lanes), (*names, "l"), rows, "part")
    dw: Tensor = staged(shape, names, lambda at: total(parts[(*at, lane)], lane), "dw")
    return narrowed(dw, dtype, names)


def _flat(
    size: tuple[int, ...],
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Flat:
    low, high = padding[::2], padding[1::2]
    padded = [n + a + b for n, a, b in zip(size, low, high, strict=True)]
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
    results = [
        (have - far) // step + 1
        for have, far, step in zip(padded, reach, stride, strict=True)
    ]
    extents = [
        max(-(-have // step), n)
        for have, step, n in zip(padded, stride, results, strict=True)
    ]
    pixels = len(window) == 1 and set(window + stride) == {1} and not any(padding)
    return Flat(size, low, stride, dilation, tuple(results), tuple(extents), pixels)


def widened(w: Tensor) -> Tensor:
    """Weights in the type that is computed in."""
    if w.dtype.name not in NARROW:
        return w
    names = [f"k{at}" for at in range(len(w.shape))]
    made: Tensor = staged(w.shape, names, lambda at: wide(w[at]), "wide")
    return made


def flat_image(
    x: Tensor,
    flat: Flat,
    frame: Layout,
    window: tuple[int, ...],
    name: str = "flat",
) -> Tensor:
    """The padded image, dealt out and in one row.

    Args:
        x: The images.
        flat: How they are flattened.
        frame: How they lie.
        window: The extents of windows, which reach over the end of the last line.
        name: The name of the copy.
    """
    n, channels, _ = frame.parts(x.shape)
    reach = flat.offset([k - 1 for k in window])
    line = flat.extents[-1]
    row = -(-(flat.length + reach + _SLACK) // line) * line
    cut = 1 + len(channels)

    def element(at: Indices) -> Expr:
        outer, phases, q = at[:cut], at[cut:-1], at[-1]
        places, inside = [], as_expr(True)
        for d, (size, low) in enumerate(zip(flat.size, flat.low, strict=True)):
            line = q // flat.pitch[d] if flat.pitch[d] > 1 else q
            line = line % flat.extents[d] if d else line
            place = line * flat.stride[d] + phases[d] - low
            inside = inside & (place >= 0) & (place < size)
            most = binary("min", place, as_expr(size - 1))
            places.append(binary("max", most, as_expr(0)))
        value = wide(x[(*outer, *places)])
        return select(inside, value, as_expr(0.0).cast(value.dtype))

    names = ["b", *("g", "c")[2 - len(channels) :]]
    names += [f"r{name}" for name in SPATIAL[3 - frame.rank :]] + ["q"]
    made: Tensor = staged((*n, *channels, *flat.stride, row), names, element, name)
    return made


def _sums(
    x: Tensor, w: Tensor, flat: Flat, frame: Layout, *, back: bool = False
) -> Tensor:
    """The sums of products, junk between the lines included.

    Args:
        x: The images.
        w: The weights.
        flat: How images are flattened.
        frame: How images lie.
        back: From outputs to inputs, with windows turned round.
    """
    cut = len(w.shape) - frame.rank - 1
    leading, window = w.shape[: cut + 1], w.shape[cut + 1 :]
    copied = not flat.pixels or x.dtype.name in NARROW
    image = flat_image(x, flat, frame, numbers(window)) if copied else x
    c = reduce_axis(leading[-2 if back else -1], "c")
    names = _TAPS[3 - frame.rank :]
    taps = [reduce_axis(k, name) for k, name in zip(window, names, strict=True)]
    last = [k - 1 for k in numbers(window)]

    def element(at: Indices) -> Any:
        batch, own, q = at[0], at[1:-1], at[-1]
        tap = [k.var for k in taps]
        phases = flat.phases(tap) if copied else ()
        read = image[(batch, *own[:-1], c.var, *phases, q + flat.offset(tap))]
        weight = w[(*own, c.var, *tap)]
        if back:
            turned = [end - k for end, k in zip(last, tap, strict=True)]
            weight = w[(*own[:-1], c.var, own[-1], *turned)]
        return total(read * weight, (c, *taps))

    outputs = leading[-1 if back else -2]
    shape = (image.shape[0], *leading[:-2], outputs, flat.length)
    named = ("b", *("g", "o")[2 - cut :], "q")
    sums: Tensor = staged(shape, named, element, "sums")
    return sums
