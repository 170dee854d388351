"""Convolutions and their gradients as loops.

Images are `(n, groups, channels, *spatial)`, or `(n, *spatial, groups, channels)`;
weights `(groups, outputs, channels, *window)`. A single group has no dimension of its
own. Where each group is one channel and one output (depthwise), groups are the only
channels: `(n, groups, *spatial)` and `(groups, *window)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorlang.ir import reduce_axis
from tensorlang.ir import sum as total
from tensorlang.ops.assembling import stored, wide
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.images import Layout, numbers, padded, staged

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import ReduceAxis, Tensor
    from tensorlang.ir.nodes import Expr

Indices = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """How windows lie on a padded image.

    Attributes:
        stride: The step from window to window.
        dilation: The step within a window.
    """

    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def at(self, output: Sequence[Expr], tap: Sequence[Expr]) -> Indices:
        """The place in the image of a window's element."""
        return tuple(
            o * step + k * apart
            for o, step, k, apart in zip(
                output, self.stride, tap, self.dilation, strict=True
            )
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
    """Each output: the sum over channels and window of image times weight."""
    del tolerance  # of other algorithms
    frame = Layout(layout)
    image = framed(x, frame, padding)
    sums = products(image, w, frame, Steps(stride, dilation), name="sums")
    return finished(sums, b, frame, activation, x.dtype)


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
    """The transposed convolution, to images of `size`.

    A convolution of images that are spread out by the stride, by weights whose
    windows are turned round and whose inputs and outputs are exchanged.
    """
    frame = Layout(layout)
    sums = _transposed(x, w, frame, stride, padding, dilation, size)
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
    """The gradient of the images: the transposed convolution of `dy`."""
    frame = Layout(layout)
    sums = _transposed(dy, w, frame, stride, padding, dilation, size)
    return finished(sums, None, frame, None, dy.dtype, name="dx")


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
    """The gradient of the weights: images times `dy`, over batch and outputs."""
    frame = Layout(layout)
    image, steps = framed(x, frame, padding), Steps(stride, dilation)
    return _weights(dy, image, frame, steps, window, depthwise=depthwise)


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
    """The gradients of a transposed convolution: images, weights and bias."""
    frame, steps = Layout(layout), Steps(stride, dilation)
    image = framed(dy, frame, padding)
    sums = products(image, w, frame, steps, name="sums")
    dx = finished(sums, None, frame, None, dy.dtype, name="dx")
    window = numbers(w.shape[len(w.shape) - frame.rank :])
    depthwise = len(w.shape) == frame.rank + 1
    dw = _weights(x, image, frame, steps, window, depthwise=depthwise)
    return (dx, dw, bias_gradient(dy, frame)) if bias else (dx, dw)


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
    """The gradients of images, weights and, where there is one, bias."""
    frame = Layout(layout)
    given = {"stride": stride, "padding": padding, "dilation": dilation}
    size = numbers(frame.parts(x.shape)[2])
    dx = conv_grad_data(dy, w, layout=layout, size=size, **given)
    window = numbers(w.shape[len(w.shape) - frame.rank :])
    depthwise = len(w.shape) == frame.rank + 1
    image, steps = framed(x, frame, padding), Steps(stride, dilation)
    dw = _weights(dy, image, frame, steps, window, depthwise=depthwise)
    return (dx, dw, bias_gradient(dy, frame)) if bias else (dx, dw)


# --------------------------------------------------------------------- stages


def framed(
    x: Tensor, frame: Layout, padding: tuple[int, ...], name: str = "padded"
) -> Tensor:
    """The image with its padding."""
    _, _, spatial = frame.parts(x.shape)
    low, high = padding[::2], padding[1::2]
    extents = [
        n + before + behind
        for n, before, behind in zip(numbers(spatial), low, high, strict=True)
    ]
    return padded(x, frame, low, extents, name=name)


def _axes(of: Sequence[Any], *names: str) -> tuple[ReduceAxis, ...]:
    return tuple(reduce_axis(n, name) for n, name in zip(of, names, strict=True))


def window_names(rank: int) -> tuple[str, ...]:
    """Names of the loops over a window."""
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
    """The sums of products, in the type that is computed in.

    Args:
        image: The padded images.
        w: The weights.
        frame: How images lie.
        steps: How windows lie on them.
        name: The name of the sums.
        back: Whether windows are turned round.
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


def _transposed(  # noqa: PLR0917 - as a workload has them
    x: Tensor,
    w: Tensor,
    frame: Layout,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    size: tuple[int, ...],
) -> Tensor:
    rank = frame.rank
    window = numbers(w.shape[len(w.shape) - rank :])
    reach = [(k - 1) * apart for k, apart in zip(window, dilation, strict=True)]
    low = [far - before for far, before in zip(reach, padding[::2], strict=True)]
    extents = [n + far for n, far in zip(size, reach, strict=True)]
    image = padded(x, frame, low, extents, spread=stride, name="spread")
    steps = Steps((1,) * rank, dilation)
    return products(image, turned(w, rank), frame, steps, name="sums")


def turned(w: Tensor, rank: int) -> Tensor:
    """Weights with inputs and outputs exchanged, and every window turned round."""
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


def _weights(
    dy: Tensor,
    image: Tensor,
    frame: Layout,
    steps: Steps,
    window: tuple[int, ...],
    *,
    depthwise: bool,
) -> Tensor:
    """The gradient of weights, of images that are padded."""
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
    sums: Tensor = staged((*made, *channel, *window), names, element, "dw")
    return narrowed(sums, dy.dtype, names)


def bias_gradient(dy: Tensor, frame: Layout) -> Tensor:
    """The sum of `dy` over batch and pixels."""
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
    """Bias and activation, rounded once to the type of the result.

    Args:
        sums: What has been added up.
        b: The bias.
        frame: How results lie.
        activation: The activation's name.
        dtype: The type of the result.
        name: The result's name.
        read: The sum of a result, if it is not in the same place.
        shape: The result's shape, if not that of the sums.
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
    """Sums in the type of the result; themselves where that is theirs."""
    if sums.dtype == dtype:
        return sums
    name = name or sums.buffer.name
    shown: Tensor = staged(
        sums.shape, names, lambda at: stored(sums[at], dtype), f"{name}_{dtype}"
    )
    return shown
