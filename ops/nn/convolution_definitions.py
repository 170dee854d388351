"""Direct convolutions and their gradients as loop nests.

Images are `(n, groups, channels, *spatial)`, or `(n, *spatial, groups, channels)`;
weights `(groups, outputs, channels, *window)`. A single group has no dimension. In
depthwise convolutions, groups are the only channel dimension: `(n, groups, *spatial)`
and `(groups, *window)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorlang.ir import reduce_axis
from tensorlang.ir import sum as total
from tensorlang.ir.elementwise import stored, wide
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.images import Layout, numbers, padded, staged

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import ReduceAxis, Tensor
    from tensorlang.ir.nodes import Expr
    from tensorlang.ops.nn.convolution_problem import Problem

Indices = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of windows on a padded image.

    Attributes:
        stride: Step from window to window.
        dilation: Step within a window.
    """

    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, p: Problem) -> Steps:
        """The steps of a convolution."""
        return cls(p.stride, p.dilation)

    def at(self, output: Sequence[Expr], tap: Sequence[Expr]) -> Indices:
        """The image index of an element (`tap`) of a window."""
        return tuple(
            o * step + k * apart
            for o, step, k, apart in zip(
                output, self.stride, tap, self.dilation, strict=True
            )
        )


def conv(
    x: Tensor, w: Tensor, b: Tensor | None, p: Problem, activation: str | None = None
) -> Tensor:
    """Convolution: the sum over channels and window of image times weight."""
    image, frame = framed(x, p), Layout(p.layout)
    sums = products(image, w, frame, Steps.of(p), name="sums")
    return finished(sums, b, frame, activation, x.dtype)


def conv_transposed(
    x: Tensor, w: Tensor, b: Tensor | None, p: Problem, activation: str | None = None
) -> Tensor:
    """The transposed convolution, to images of the problem's size.

    A convolution of the images dilated by the stride with flipped windows, whose
    inputs and outputs are exchanged.
    """
    return finished(_spread(x, w, p), b, Layout(p.layout), activation, x.dtype)


def conv_grad_data(dy: Tensor, w: Tensor, p: Problem) -> Tensor:
    """The gradient for the images: the transposed convolution of `dy`."""
    sums = _spread(dy, w, p)
    return finished(sums, None, Layout(p.layout), None, dy.dtype, name="dx")


def conv_grad_weight(dy: Tensor, x: Tensor, p: Problem) -> Tensor:
    """The gradient for the weights: images times `dy`, summed over batch and pixels."""
    return _weights(dy, framed(x, p), p)


def conv_grad(dy: Tensor, x: Tensor, w: Tensor, p: Problem) -> tuple[Tensor, Tensor]:
    """The gradients for images and weights."""
    return conv_grad_data(dy, w, p), conv_grad_weight(dy, x, p)


def conv_transposed_grad(
    dy: Tensor, x: Tensor, w: Tensor, p: Problem
) -> tuple[Tensor, Tensor]:
    """The gradients of a transposed convolution for images and weights."""
    image, frame = framed(dy, p), Layout(p.layout)
    sums = products(image, w, frame, Steps.of(p), name="sums")
    dx = finished(sums, None, frame, None, dy.dtype, name="dx")
    return dx, _weights(x, image, p)


# --------------------------------------------------------------------- stages


def framed(x: Tensor, p: Problem, name: str = "padded") -> Tensor:
    """The zero-padded images."""
    low, high = p.padding[::2], p.padding[1::2]
    extents = [n + a + b for n, a, b in zip(p.image, low, high, strict=True)]
    return padded(x, Layout(p.layout), low, extents, name=name)


def _axes(of: Sequence[Any], *names: str) -> tuple[ReduceAxis, ...]:
    return tuple(reduce_axis(n, name) for n, name in zip(of, names, strict=True))


def window_names(rank: int) -> tuple[str, ...]:
    """Loop names over a window."""
    return ("kz", "ky", "kx")[3 - rank :]


def products(
    image: Tensor,
    w: Tensor,
    frame: Layout,
    steps: Steps,
    *,
    name: str,
    back: bool = False,
) -> Tensor:
    """The sums of products, in the accumulation type.

    Args:
        image: The padded images.
        w: The weights.
        frame: Layout of the images.
        steps: Stride and dilation of the windows.
        name: Name of the sums.
        back: Whether windows are flipped.
    """
    rank = frame.rank
    leading, window = w.shape[: len(w.shape) - rank], w.shape[len(w.shape) - rank :]
    taps = _axes(window, *window_names(rank))
    folded = _axes(
        leading[-1:] if len(leading) > 1 else (), *("c",)[: len(leading) - 1]
    )
    n, _, extents = frame.parts(image.shape)
    outputs = tuple(
        (have - (k - 1) * apart - 1) // step + 1
        for have, k, apart, step in zip(
            numbers(extents), numbers(window), steps.dilation, steps.stride, strict=True
        )
    )
    made = leading[:-1] if len(leading) > 1 else leading

    def element(indices: Indices) -> Any:
        batch, own, at = frame.parts(indices)
        tap = [k.var for k in taps]
        inner = tuple(c.var for c in folded)
        channel = (*own[:-1], *inner) if folded else own
        place = frame.joined(batch, channel, steps.at(at, tap))
        last = zip(numbers(window), tap, strict=True)
        read = [n - 1 - k for n, k in last] if back else tap
        weight = w[(*own, *inner, *read)]
        return total(wide(image[place]) * wide(weight), (*folded, *taps))

    names = frame.names(*(("g", "o") if len(made) == 2 else ("o",)))
    shape = frame.joined(n, made, outputs)
    sums: Tensor = staged(shape, names, element, name)
    return sums


def _spread(x: Tensor, w: Tensor, p: Problem) -> Tensor:
    """The sums of a transposed convolution."""
    frame, rank = Layout(p.layout), len(p.image)
    reach = [n - 1 for n in p.windows.reach]
    low = [far - before for far, before in zip(reach, p.padding[::2], strict=True)]
    extents = [n + far for n, far in zip(p.image, reach, strict=True)]
    image = padded(x, frame, low, extents, spread=p.stride, name="spread")
    steps = Steps((1,) * rank, p.dilation)
    return products(image, turned(w, rank), frame, steps, name="sums")


def turned(w: Tensor, rank: int) -> Tensor:
    """Weights with inputs and outputs exchanged and flipped windows."""
    cut = len(w.shape) - rank
    leading, window = w.shape[:cut], w.shape[cut:]
    named = {3: ("g", "o", "c"), 2: ("o", "c"), 1: ("g",)}[cut]

    def exchanged(of: Sequence[Any]) -> tuple[Any, ...]:
        return (*of[:-2], of[-1], of[-2]) if len(of) > 1 else tuple(of)

    def element(indices: Indices) -> Expr:
        own, tap = indices[:cut], indices[cut:]
        last = [n - 1 for n in numbers(window)]
        back = [end - k for k, end in zip(tap, last, strict=True)]
        return w[(*exchanged(own), *back)]

    shape = (*exchanged(leading), *window)
    names = (*named, *window_names(rank))
    made: Tensor = staged(shape, names, element, "turned")
    return made


def _weights(dy: Tensor, image: Tensor, p: Problem) -> Tensor:
    """The gradient for the weights, from padded images."""
    frame, steps, depthwise = Layout(p.layout), Steps.of(p), p.depthwise
    n, made, spatial = frame.parts(dy.shape)
    _, read, _ = frame.parts(image.shape)
    batch = _axes(n, "b")
    at = _axes(spatial, *("z", "i", "j")[3 - frame.rank :])
    channel = () if depthwise else read[-1:]

    def element(indices: Indices) -> Any:
        cut = len(indices) - frame.rank
        own, tap = indices[:cut], indices[cut:]
        outer, inner = (own, own) if depthwise else (own[:-1], (*own[:-2], own[-1]))
        places = [k.var for k in at]
        first = batch[0].var
        given = dy[frame.joined((first,), outer, places)]
        seen = image[frame.joined((first,), inner, steps.at(places, tap))]
        return total(wide(given) * wide(seen), (*batch, *at))

    named = ("g", "o", "c")[3 - len(made) - len(channel) :] if channel else ("g",)
    names = (*named, *window_names(frame.rank))
    sums: Tensor = staged((*made, *channel, *p.window), names, element, "dw")
    return narrowed(sums, dy.dtype, names)


def bias_gradient(dy: Tensor, p: Problem) -> Tensor:
    """The sum of `dy` over batch and pixels."""
    frame = Layout(p.layout)
    n, made, spatial = frame.parts(dy.shape)
    axes = (*_axes(n, "b"), *_axes(spatial, *("z", "i", "j")[3 - frame.rank :]))

    def element(own: Indices) -> Any:
        places = [axis.var for axis in axes]
        return total(wide(dy[frame.joined(places[:1], own, places[1:])]), axes)

    names = ("g", "o")[2 - len(made) :]
    sums: Tensor = staged(made, names, element, "db")
    return narrowed(sums, dy.dtype, names)


def finished(
    sums: Tensor,
    b: Tensor | None,
    frame: Layout,
    activation: str | None,
    dtype: DType,
    *,
    name: str = "y",
    read: Callable[[Indices], Expr] | None = None,
    shape: Sequence[Any] = (),
) -> Tensor:
    """Add bias, apply the activation and round once to the result dtype.

    Args:
        sums: The sums of products.
        b: The bias.
        frame: Layout of the results.
        activation: Name of the activation.
        dtype: Dtype of the result.
        name: Name of the result.
        read: Maps result indices to their sum, if not at the same indices.
        shape: Shape of the result, if not that of the sums.
    """
    shape = shape or sums.shape
    _, made, _ = frame.parts(shape)
    names = frame.names(*(("g", "o") if len(made) == 2 else ("o",)))
    if b is None and activation is None and read is None:
        return narrowed(sums, dtype, names, name)

    def element(indices: Indices) -> Expr:
        _, own, _ = frame.parts(indices)
        value = read(indices) if read else sums[indices]
        shifted = value if b is None else value + wide(b[own])
        return stored(activated(shifted, activation), dtype)

    result: Tensor = staged(shape, names, element, name)
    return result


def narrowed(
    sums: Tensor, dtype: DType, names: Sequence[str], name: str = ""
) -> Tensor:
    """Sums rounded to the result dtype; unchanged if they have it."""
    if sums.dtype == dtype:
        return sums
    name = name or sums.buffer.name
    shown: Tensor = staged(
        sums.shape, names, lambda at: stored(sums[at], dtype), f"{name}_{dtype}"
    )
    return shown
