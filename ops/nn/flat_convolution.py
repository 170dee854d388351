"""Convolution over flattened images: vectors run across the ends of lines.

The padded image is one row with a pitch of `pitch` elements per line, and so are the
sums, junk between the lines included: the sum at `q` reads the image at `q` plus a
fixed offset per window element. With a stride, the image is first split into phases by
`pixel % stride`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import as_expr, reduce_axis, select
from tensorlang.ir import sum as total
from tensorlang.ir.elementwise import NARROW, wide
from tensorlang.ir.nodes import binary
from tensorlang.ops.nn import outer_products
from tensorlang.ops.nn.convolution_definitions import finished, narrowed
from tensorlang.ops.nn.images import SPATIAL, Layout, numbers, staged

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr
    from tensorlang.ops.nn.convolution_problem import Problem

Indices = tuple[Any, ...]
_LINE: Final = 64  # bytes of a vector register
_SLACK: Final = 64  # elements past the end a register tile may read
_TAPS: Final = ("kz", "ky", "kx")


@dataclass(frozen=True, slots=True)
class Flat:
    """Sizes of a flattened image.

    Attributes:
        size: Extents of the image.
        low: Padding before it.
        stride: Step from window to window.
        dilation: Step within a window.
        results: Extents of the result.
        extents: Extents of each phase of the padded image.
        pixels: Whether windows are single pixels, so that the image needs no copy.
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
        """Elements of the row of sums, up to the end of the last line."""
        return self.results[0] * self.pitch[0]

    def offset(self, tap: Sequence[Any]) -> Any:
        """The offset of a window element in the row."""
        places = [
            k * apart // step * pitch
            for k, apart, step, pitch in zip(
                tap, self.dilation, self.stride, self.pitch, strict=True
            )
        ]
        return sum(places[1:], places[0])

    def phases(self, tap: Sequence[Any]) -> Indices:
        """The phase of the image that holds a window element."""
        return tuple(
            k * apart % step
            for k, apart, step in zip(tap, self.dilation, self.stride, strict=True)
        )


def conv(
    x: Tensor, w: Tensor, b: Tensor | None, p: Problem, activation: str | None = None
) -> Tensor:
    """As `convolution_definitions.conv`, with channels first."""
    frame, flat = Layout(p.layout), _flat(p)
    sums = _sums(x, widened(w), flat, frame)
    return _results(sums, b, flat, frame, activation, x.dtype)


def _results(  # noqa: PLR0917 - operands of an epilogue
    sums: Tensor,
    b: Tensor | None,
    flat: Flat,
    frame: Layout,
    activation: str | None,
    dtype: DType,
) -> Tensor:
    """The results: the sums without the junk between lines, finished."""
    if flat.pixels and b is None and activation is None and dtype == sums.dtype:
        return sums

    def read(at: Indices) -> Expr:
        batch, own, place = frame.parts(at)
        steps = [p * pitch for p, pitch in zip(place, flat.pitch, strict=True)]
        value: Expr = sums[(*batch, *own, sum(steps[1:], steps[0]))]
        return value

    shape = (*sums.shape[:-1], *flat.results)
    return finished(sums, b, frame, activation, dtype, read=read, shape=shape)


def conv_grad_data(dy: Tensor, w: Tensor, p: Problem) -> Tensor:
    """As `convolution_definitions.conv_grad_data`, for stride 1.

    The convolution of `dy`, padded by the windows' reach, with flipped windows.
    """
    reach = [n - 1 for n in p.windows.reach]
    around = [far - low for far, low in zip(reach, p.padding[::2], strict=True)]
    sides = zip(p.image, reach, p.result, around, strict=True)
    behind = [n + far - have - before for n, far, have, before in sides]
    padding = tuple(n for pair in zip(around, behind, strict=True) for n in pair)
    windows = replace(p.windows, padding=padding)
    flat = _flat(replace(p, image=p.result, result=p.image, windows=windows))
    frame = Layout(p.layout)
    sums = _sums(dy, widened(w), flat, frame, back=True)
    return _results(sums, None, flat, frame, None, dy.dtype)


def conv_grad(dy: Tensor, x: Tensor, w: Tensor, p: Problem) -> tuple[Tensor, Tensor]:
    """As `convolution_definitions.conv_grad`, for stride 1."""
    return conv_grad_data(dy, w, p), _weights(dy, x, p)


def conv_transposed_grad(
    dy: Tensor, x: Tensor, w: Tensor, p: Problem
) -> tuple[Tensor, Tensor]:
    """As `convolution_definitions.conv_transposed_grad`: a convolution of `dy`."""
    return conv(dy, w, None, p), _weights(x, dy, p)


def _weights(dy: Tensor, x: Tensor, p: Problem) -> Tensor:
    """The gradient for the weights: by whole rows for 1x1 windows, else by pixels.

    Whole rows would multiply elements of the image by the zeros between results, which
    is wrong for infinities and NaNs; with 1x1 windows there are none.
    """
    by = conv_grad_weight if p.pixels else outer_products.conv_grad_weight
    return by(dy, x, p)


def conv_grad_weight(dy: Tensor, x: Tensor, p: Problem) -> Tensor:
    """As `convolution_definitions.conv_grad_weight`, for non-depthwise convolutions.

    `dy` is laid out like the flattened image, so a weight's gradient is a dot product
    of two rows: per lane first, then across lanes.
    """
    assert not p.depthwise
    frame, flat, window = Layout(p.layout), _flat(p), p.window
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
    """Dot products of rows: sums per lane, then across lanes."""
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


def _flat(p: Problem) -> Flat:
    sides = zip(p.image, p.padding[::2], p.padding[1::2], strict=True)
    padded = [n + low + high for n, low, high in sides]
    extents = [
        max(-(-have // step), n)
        for have, step, n in zip(padded, p.stride, p.result, strict=True)
    ]
    pixels = len(p.image) == 1 and p.pixels and set(p.stride) == {1}
    low = p.padding[::2]
    return Flat(p.image, low, p.stride, p.dilation, p.result, tuple(extents), pixels)


def widened(w: Tensor) -> Tensor:
    """Weights in the accumulation type."""
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
    """The padded image, split into phases and flattened.

    Args:
        x: The images.
        flat: Sizes of the flattened image.
        frame: Layout of the images.
        window: Window size; windows reach past the end of the last line.
        name: Name of the copy.
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
    """The sums of products, including junk between lines.

    Args:
        x: The images.
        w: The weights.
        flat: Sizes of the flattened image.
        frame: Layout of the images.
        back: Whether to go from outputs to inputs, with flipped windows.
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
