"""From the arrays of a convolution to canonical shapes.

Groups get a dimension of their own. A convolution by single pixels is a product of
matrices: all pixels become one dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.nn.windows import (
    LAYOUTS,
    Windows,
    channels_first,
    several,
    windows,
    within,
)
from tensorlang.ops.tensors import Plan, Shape, of_one_type

ACTIVATIONS: Final = (None, "relu", "gelu", "silu", "sigmoid", "tanh")


@dataclass(frozen=True, slots=True)
class Problem:
    """A convolution: its sizes as numbers.

    Attributes:
        batch: Images.
        groups: Groups of channels that know nothing of each other.
        inputs: Channels of the image in each group.
        outputs: Channels of the result in each group.
        image: Extents of the image.
        result: Extents of the result.
        windows: The windows.
        first: Whether channels stand before the image.
    """

    batch: int
    groups: int
    inputs: int
    outputs: int
    image: Shape
    result: Shape
    windows: Windows
    first: bool

    @property
    def depthwise(self) -> bool:
        """Whether each channel has one output of its own."""
        return self.groups > 1 and self.inputs == self.outputs == 1

    def shown(self, channels: int, spatial: Shape) -> Shape:
        """An array of images as a caller sees it."""
        channels *= self.groups
        if self.first:
            return (self.batch, channels, *spatial)
        return (self.batch, *spatial, channels)

    def images(self, channels: int, spatial: Shape) -> Shape:
        """An array of images in canonical shape."""
        own = (channels,) if self.groups == 1 else (self.groups, channels)
        own = (self.groups,) if self.depthwise else own
        if self.first:
            return (self.batch, *own, *spatial)
        return (self.batch, *spatial, *own)

    @property
    def weights(self) -> Shape:
        """The canonical shape of the weights."""
        if self.depthwise:
            return (self.groups, *self.windows.size)
        own = (self.outputs, self.inputs, *self.windows.size)
        return own if self.groups == 1 else (self.groups, *own)

    def bias(self, channels: int) -> Shape:
        """The canonical shape of one number for each of a group's channels."""
        if self.groups == 1 or self.depthwise:
            return (self.groups * channels,)
        return (self.groups, channels)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the workload."""
        names = LAYOUTS[len(self.image)]
        return {
            "stride": self.windows.stride,
            "padding": self.windows.padding,
            "dilation": self.windows.dilation,
            "layout": names[0] if self.first else names[1],
        }

    def flattened(self) -> Problem:
        """The same with one dimension of pixels, where windows are single pixels."""
        w = self.windows
        if len(self.image) < 2 or set(w.size + w.stride) - {1} or any(w.padding):
            return self
        pixels = math.prod(self.image)
        if self.first:
            plain = Windows((1,), (1,), (1,), (0, 0))
            return replace(self, image=(pixels,), result=(pixels,), windows=plain)
        plain = Windows((), (), (), ())
        batch = self.batch * pixels
        return replace(self, batch=batch, image=(), result=(), windows=plain)


def problem(
    id: str, x: Shape, w: Shape, asked: Mapping[str, Any], *, transposed: bool = False
) -> Problem:
    """The convolution of images `x` with weights `w`; see `Problem`.

    Args:
        id: The operator.
        x: The shape of the images; of a transposed convolution, of its results.
        w: The shape of the weights: outputs, channels of a group, window.
        asked: The attributes.
        transposed: Whether this describes a transposed convolution, for errors.

    Raises:
        ShapeError, ArgumentError: they do not fit.
    """
    rank = len(w) - 2
    if len(x) != rank + 2 or rank not in LAYOUTS:
        raise ShapeError(f"{id}: images of shape {x} do not go with weights {w}")
    first = channels_first(id, asked.get("layout", LAYOUTS[rank][0]), rank)
    (groups,) = several(id, "groups", asked.get("groups", 1), 1)
    channels, image = (x[1], x[2:]) if first else (x[-1], x[1:-1])
    made, inputs, *size = w
    if min((channels, made, inputs, *size, *image), default=1) < 1:
        raise ShapeError(f"{id}: {x} and {w}: only the batch may be empty")
    if made % groups or inputs * groups != channels:
        words = "results" if transposed else "images"
        raise ShapeError(
            f"{id}: weights of shape {w} in {groups} group(s) do not go with {words} "
            f"of {channels} channels; they have shape (outputs, {channels} / groups, "
            "*window), outputs a multiple of groups"
        )
    slid = windows(id, size, asked)
    result = slid.outputs(id, image)
    outputs, slid = made // groups, within(slid, image)
    return Problem(x[0], groups, inputs, outputs, image, result, slid, first)


def activation(id: str, asked: Mapping[str, Any]) -> str | None:
    """The activation of a call.

    Raises:
        ArgumentError: there is none of that name.
    """
    name = asked.get("activation")
    if name not in ACTIVATIONS:
        listed = ", ".join(map(repr, ACTIVATIONS))
        raise ArgumentError(f"{id}: activation is one of {listed}, not {name!r}")
    return None if name is None else str(name)


def biased(id: str, found: Problem, b: Sequence[Shape], channels: int) -> None:
    """Check that a bias, where there is one, has a number a channel.

    Raises:
        ShapeError: it has not.
    """
    wanted = (found.groups * channels,)
    for shape in b:
        if shape != wanted:
            raise ShapeError(
                f"{id}: the bias has shape {shape}; {wanted[0]} channels need {wanted}"
            )


def forward(
    id: str, rank: int, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: Any
) -> Plan:
    """The plan of `conv(x, w[, b])`."""
    of_one_type(id, dtypes)
    x, w, *b = shapes
    _ranks(id, rank, x, w)
    found = problem(id, x, w, asked)
    biased(id, found, b, found.outputs)
    shown = found.shown(found.outputs, found.result)
    flat = found.flattened()
    canonical = (flat.images(flat.inputs, flat.image), flat.weights)
    given = flat.attributes | {"activation": activation(id, asked)}
    bias = [flat.bias(flat.outputs) for _ in b]
    return Plan((*canonical, *bias), dtypes, (shown,), given)


def backward(
    id: str, rank: int, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: Any
) -> Plan:
    """The plan of `conv_grad(dy, x, w[, b])`."""
    of_one_type(id, dtypes)
    dy, x, w = shapes[:3]
    _ranks(id, rank, x, w)
    found = problem(id, x, w, asked)
    results = found.shown(found.outputs, found.result)
    _same_shape(id, dy, results)
    flat = found.flattened()
    bias = bool(asked.get("bias"))
    made = (x, w, (w[0],)) if bias else (x, w)
    images = (
        flat.images(flat.outputs, flat.result),
        flat.images(flat.inputs, flat.image),
    )
    given = flat.attributes | {"bias": bias}
    return Plan((*images, flat.weights), dtypes, made, given)


def of_data(
    id: str, rank: int, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: Any
) -> Plan:
    """The plan of `conv_grad_data(dy, w)`, whose images have the given size."""
    of_one_type(id, dtypes)
    dy, w = shapes
    _ranks(id, rank, dy, w)
    size = several(id, "size", asked.get("size"), rank)
    (groups,) = several(id, "groups", asked.get("groups", 1), 1)
    first = channels_first(id, asked.get("layout", LAYOUTS[rank][0]), rank)
    channels = w[1] * groups
    x = (dy[0], channels, *size) if first else (dy[0], *size, channels)
    found = problem(id, x, w, asked)
    _same_shape(id, dy, found.shown(found.outputs, found.result))
    flat = found.flattened()
    given = flat.attributes | {"size": flat.image}
    image = flat.images(flat.outputs, flat.result)
    return Plan((image, flat.weights), dtypes, (x,), given)


def of_weight(
    id: str, rank: int, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: Any
) -> Plan:
    """The plan of `conv_grad_weight(dy, x)`, whose windows have the given size."""
    of_one_type(id, dtypes)
    dy, x = shapes
    _ranks(id, rank, dy, x)
    window = several(id, "window", asked.get("window"), rank)
    (groups,) = several(id, "groups", asked.get("groups", 1), 1)
    first = channels_first(id, asked.get("layout", LAYOUTS[rank][0]), rank)
    at = 1 if first else -1
    w = (dy[at], x[at] // groups, *window)
    found = problem(id, x, w, asked)
    _same_shape(id, dy, found.shown(found.outputs, found.result))
    flat = found.flattened()
    given = flat.attributes | {
        "window": flat.windows.size,
        "depthwise": flat.depthwise,
    }
    images = (
        flat.images(flat.outputs, flat.result),
        flat.images(flat.inputs, flat.image),
    )
    return Plan(images, dtypes, (w,), given)


def _ranks(id: str, rank: int, x: Shape, w: Shape) -> None:
    if len(x) != rank + 2 or len(w) != rank + 2:
        raise ShapeError(
            f"{id} takes images and weights of {rank + 2} dimensions, not {x} and {w}"
        )


def _same_shape(id: str, dy: Shape, wanted: Shape) -> None:
    if dy != wanted:
        raise ShapeError(f"{id}: dy has shape {dy}; the result of these has {wanted}")


def transposed(
    id: str, rank: int, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: Any
) -> Plan:
    """The plan of `conv_transpose(x, w[, b])`: the gradient of a convolution."""
    of_one_type(id, dtypes)
    x, w, *b = shapes
    _ranks(id, rank, x, w)
    found, shown = _enlarging(id, rank, x, w, asked)
    biased(id, found, b, found.inputs)
    flat = found.flattened()
    given = flat.attributes | {
        "size": flat.image,
        "activation": activation(id, asked),
    }
    image = flat.images(flat.outputs, flat.result)
    canonical = (image, flat.weights, *[flat.bias(flat.inputs) for _ in b])
    return Plan(canonical, dtypes, (shown,), given)


def transposed_backward(
    id: str, rank: int, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: Any
) -> Plan:
    """The plan of `conv_transpose_grad(dy, x, w[, b])`."""
    of_one_type(id, dtypes)
    dy, x, w = shapes[:3]
    _ranks(id, rank, x, w)
    found, shown = _enlarging(id, rank, x, w, asked)
    _same_shape(id, dy, shown)
    flat = found.flattened()
    bias = bool(asked.get("bias"))
    made = (x, w, (found.inputs * found.groups,)) if bias else (x, w)
    images = (
        flat.images(flat.inputs, flat.image),
        flat.images(flat.outputs, flat.result),
    )
    given = flat.attributes | {"bias": bias}
    return Plan((*images, flat.weights), dtypes, made, given)


def _enlarging(
    id: str, rank: int, x: Shape, w: Shape, asked: Mapping[str, Any]
) -> tuple[Problem, Shape]:
    """The convolution that a transposed one is the gradient of, and its image."""
    first = channels_first(id, asked.get("layout", LAYOUTS[rank][0]), rank)
    (groups,) = several(id, "groups", asked.get("groups", 1), 1)
    slid = windows(id, w[2:], asked)
    more = several(id, "output_padding", asked.get("output_padding", 0), rank, least=0)
    if any(
        n >= max(step)
        for n, *step in zip(more, slid.stride, slid.dilation, strict=True)
    ):
        raise ArgumentError(
            f"{id}: output_padding {more} reaches stride {slid.stride} and dilation "
            f"{slid.dilation}; it has to stay below one of them"
        )
    spatial = x[2:] if first else x[1:-1]
    size = tuple(
        (n - 1) * step - low - high + reach + extra
        for n, step, low, high, reach, extra in zip(
            spatial,
            slid.stride,
            slid.padding[::2],
            slid.padding[1::2],
            slid.reach,
            more,
            strict=True,
        )
    )
    if min(size, default=1) < 1:
        raise ShapeError(f"{id}: images of {x} and weights {w} give no image: {size}")
    channels = w[1] * groups
    shown = (x[0], channels, *size) if first else (x[0], *size, channels)
    given = dict(asked) | {"padding": slid.padding}
    found = problem(id, shown, w, given, transposed=True)
    found = _without_last(found, spatial, more)
    _enlarged(id, x, found)
    return found, shown


def _without_last(found: Problem, spatial: Shape, more: Shape) -> Problem:
    """The same with the windows of `spatial` alone.

    Where the output padding is a stride or more, windows would fit behind the last one:
    that many strides are taken from the padding behind, which may come below 0.
    """
    slid = found.windows
    cut = [n // step * step for n, step in zip(more, slid.stride, strict=True)]
    behind = [high - n for high, n in zip(slid.padding[1::2], cut, strict=True)]
    pairs = zip(slid.padding[::2], behind, strict=True)
    padding = tuple(n for pair in pairs for n in pair)
    return replace(found, result=spatial, windows=replace(slid, padding=padding))


def _enlarged(id: str, x: Shape, found: Problem) -> None:
    wanted = found.shown(found.outputs, found.result)
    if x != wanted:
        raise ShapeError(
            f"{id}: images of shape {x} do not go with these weights: {wanted} would"
        )
