"""Gradients of convolutions of each channel for itself, channels first.

The images' gradient is such a convolution of `dy` again, by windows turned round. A
weight's gradient is a sum over all pixels of two lines' products: lane by lane of each
image first, then over the lanes, and last over the images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.ir import reduce_axis
from tensorlang.ir import sum as total
from tensorlang.ops.assembling import wide
from tensorlang.ops.nn import convolution_definitions as plain
from tensorlang.ops.nn.images import Layout, numbers, padded, staged

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor

Indices = tuple[Any, ...]
_LINE: Final = 64  # bytes of a vector register


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
    window = numbers(w.shape[1:])
    dw = conv_grad_weight(dy, x, layout=layout, window=window, depthwise=True, **given)
    return (dx, dw, plain.bias_gradient(dy, frame)) if bias else (dx, dw)


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
    """As `convolution_definitions.conv_grad_data`, where windows are a pixel apart."""
    frame = Layout(layout)
    reach = [
        (k - 1) * apart for k, apart in zip(numbers(w.shape[1:]), dilation, strict=True)
    ]
    low = [far - before for far, before in zip(reach, padding[::2], strict=True)]
    extents = [n + far for n, far in zip(size, reach, strict=True)]
    image = padded(dy, frame, low, extents)
    steps = plain.Steps(stride, dilation)
    sums = plain.products(image, w, frame, steps, name="sums", back=True)
    return plain.finished(sums, None, frame, None, dy.dtype, name="dx")


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
    """As `convolution_definitions.conv_grad_weight`, of channels each for itself."""
    assert depthwise
    frame, steps = Layout(layout), plain.Steps(stride, dilation)
    image = plain.framed(x, frame, padding, name="image")
    lanes = _LINE // (8 if x.dtype.name == "f64" else 4)
    columns = numbers(dy.shape[-1:])[0]
    whole, left = divmod(columns, lanes)
    found = []
    if whole:
        parts = _lanes(dy, image, steps, window, 0, (whole, lanes), "part")
        found.append(_added(parts, "each"))
    if left:
        parts = _lanes(dy, image, steps, window, columns - left, (1, left), "rest")
        found.append(_added(parts, "ends"))
    names = ("b", "g", *plain.window_names(frame.rank))
    both = found[0]
    if len(found) > 1:
        both = staged(both.shape, names, lambda at: found[0][at] + found[1][at], "both")
    batch = reduce_axis(dy.shape[0], "b")
    sums = staged(
        both.shape[1:], names[1:], lambda at: total(both[(batch.var, *at)], batch), "dw"
    )
    return plain.narrowed(sums, dy.dtype, names[1:])


def _lanes(  # noqa: PLR0917 - the two pieces of a line
    dy: Tensor,
    image: Tensor,
    steps: plain.Steps,
    window: tuple[int, ...],
    first: int,
    size: tuple[int, int],
    name: str,
) -> Tensor:
    """Each lane's products, of some vectors of every line from the first column on."""
    rank = len(window)
    vectors, lanes = size
    lines = [
        reduce_axis(n, of)
        for n, of in zip(dy.shape[2:-1], ("z", "i")[3 - rank :], strict=True)
    ]
    vector = reduce_axis(vectors, "s")

    def element(at: Indices) -> Any:
        own, tap, lane = at[:2], at[2:-1], at[-1]
        column = vector.var * lanes + lane + first
        place = [*(line.var for line in lines), column]
        seen = image[(*own, *steps.at(place, tap))]
        return total(wide(dy[(*own, *place)]) * wide(seen), (*lines, vector))

    shape = (*dy.shape[:2], *window, lanes)
    names = ("b", "g", *plain.window_names(rank), "l")
    made: Tensor = staged(shape, names, element, name)
    return made


def _added(parts: Tensor, name: str) -> Tensor:
    """The sum over lanes."""
    lane = reduce_axis(parts.shape[-1], "l")
    names = ("b", "g", *plain.window_names(len(parts.shape) - 3))
    made: Tensor = staged(
        parts.shape[:-1], names, lambda at: total(parts[(*at, lane.var)], lane), name
    )
    return made
