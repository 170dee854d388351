"""The sizes of a convolution, and the canonical shapes of its arrays.

Groups get a dimension of their own. A 1x1 convolution is a matrix product: its pixels
become one dimension. A transposed convolution or a gradient is described by the forward
convolution it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.frozen import frozen
from tensorlang.ops.calls.tensors import Shape
from tensorlang.ops.nn.windows import (
    LAYOUTS,
    Windows,
    channels_first,
    several,
    windows,
    within,
)
from tensorlang.workload import Workload

Asked: TypeAlias = Mapping[str, Any]
ACTIVATIONS: Final = (
    *(None, "relu", "relu6", "gelu", "silu", "hard_swish", "sigmoid", "tanh"),
)


@frozen
class Problem:
    """The sizes of a convolution."""

    batch: int  # number of images
    groups: int  # number of independent channel groups
    inputs: int  # input channels per group
    outputs: int  # output channels per group
    image: Shape  # spatial extents of the images
    result: Shape  # spatial extents of the results
    windows: Windows
    first: bool  # whether channels come first

    @property
    def depthwise(self) -> bool:
        """Whether each group has one input and one output channel."""
        return self.groups > 1 and self.inputs == self.outputs == 1

    @property
    def layout(self) -> str:
        """The memory layout: `NCHW` and the like."""
        return LAYOUTS[len(self.image)][0 if self.first else 1]

    @property
    def window(self) -> Shape:
        """The window size along each dimension."""
        return self.windows.size

    @property
    def stride(self) -> Shape:
        """The stride of the window."""
        return self.windows.stride

    @property
    def dilation(self) -> Shape:
        """The spacing of window elements."""
        return self.windows.dilation

    @property
    def padding(self) -> Shape:
        """Zero padding: low, high, low, high, ..."""
        return self.windows.padding

    @property
    def pixels(self) -> bool:
        """Whether windows are single pixels, without padding."""
        return {*self.window} == {1} and not any(self.padding)

    @property
    def given_x(self) -> Shape:
        """The caller's shape of the images."""
        return self._joined((self.inputs * self.groups,), self.image)

    @property
    def given_y(self) -> Shape:
        """The caller's shape of the results."""
        return self._joined((self.outputs * self.groups,), self.result)

    @property
    def given_w(self) -> Shape:
        """The caller's shape of the weights."""
        return (self.groups * self.outputs, self.inputs, *self.window)

    @property
    def x(self) -> Shape:
        """The canonical shape of the images."""
        return self._joined(self._own(self.inputs), self.image)

    @property
    def y(self) -> Shape:
        """The canonical shape of the results."""
        return self._joined(self._own(self.outputs), self.result)

    @property
    def w(self) -> Shape:
        """The canonical shape of the weights."""
        if self.depthwise:
            return (self.groups, *self.window)
        own = (self.outputs, self.inputs, *self.window)
        return own if self.groups == 1 else (self.groups, *own)

    def bias(self, channels: int) -> Shape:
        """The canonical shape of a bias of this many channels per group."""
        return self._own(channels)

    def _own(self, channels: int) -> Shape:
        """The channel dimensions."""
        if self.depthwise:
            return (self.groups,)
        return (channels,) if self.groups == 1 else (self.groups, channels)

    def _joined(self, channels: Shape, spatial: Shape) -> Shape:
        behind = (*channels, *spatial) if self.first else (*spatial, *channels)
        return (self.batch, *behind)

    def flattened(self) -> Problem:
        """The same with one spatial dimension, if windows are single pixels.

        Not for depthwise convolutions with channels last, which would have no sums.
        """
        alone = self.depthwise and not self.first
        if len(self.image) < 2 or alone or not self.pixels or {*self.stride} != {1}:
            return self
        pixels = math.prod(self.image)
        if self.first:
            plain = Windows((1,), (1,), (1,), (0, 0))
            return replace(self, image=(pixels,), result=(pixels,), windows=plain)
        plain = Windows((), (), (), ())
        batch = self.batch * pixels
        return replace(self, batch=batch, image=(), result=(), windows=plain)


def problem(
    id: str, x: Shape, w: Shape, asked: Asked, *, transposed: bool = False
) -> Problem:
    """The convolution of images `x` with weights `w`.

    Args:
        id: The operator.
        x: Shape of the images; of the results, for a transposed convolution.
        w: Shape of the weights: outputs, channels per group, window.
        asked: The attributes.
        transposed: Whether error messages are for a transposed convolution.

    Raises:
        ShapeError, ArgumentError: shapes or attributes do not fit.
    """
    rank = len(w) - 2
    if len(x) != rank + 2 or rank not in LAYOUTS:
        raise ShapeError(f"{id}: images of shape {x} do not go with weights {w}")
    first, groups = _first(id, rank, asked), _groups(id, asked)
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


def _first(id: str, rank: int, asked: Asked) -> bool:
    return channels_first(id, asked.get("layout") or LAYOUTS[rank][0], rank)


def _groups(id: str, asked: Asked) -> int:
    return several(id, "groups", asked.get("groups", 1), 1)[0]


def activation_of(id: str, name: str | None) -> str | None:
    """Check the name of an activation; ArgumentError if it is unknown."""
    if name not in ACTIVATIONS:
        listed = ", ".join(map(repr, ACTIVATIONS))
        raise ArgumentError(f"{id}: activation is one of {listed}, not {name!r}")
    return name


def biased(id: str, found: Problem, b: Sequence[Shape], channels: int) -> None:
    """Check that a bias, if any, has one value per channel.

    Raises:
        ShapeError: it has another shape.
    """
    wanted = (found.groups * channels,)
    for shape in b:
        if shape != wanted:
            raise ShapeError(
                f"{id}: the bias has shape {shape}; {wanted[0]} channels need {wanted}"
            )


# ---------------------------------------------------- the convolution of each operator


def _forward(
    id: str, rank: int, asked: Asked, x: Shape, w: Shape, *more: Shape
) -> Problem:
    _ranks(id, rank, x, w)
    found = problem(id, x, w, asked)
    biased(id, found, [each for each in more if len(each) == 1], found.outputs)
    return found


def _backward(  # noqa: PLR0917 - the operator's parameters
    id: str, rank: int, asked: Asked, dy: Shape, x: Shape, w: Shape, *b: Shape
) -> Problem:
    found = _forward(id, rank, asked, x, w, *b)
    _same_shape(id, dy, found.given_y)
    return found


def _of_data(id: str, rank: int, asked: Asked, dy: Shape, w: Shape) -> Problem:
    _ranks(id, rank, dy, w)
    size = several(id, "size", asked["size"], rank)
    channels = (w[1] * _groups(id, asked),)
    first = _first(id, rank, asked)
    x = (*dy[:1], *((*channels, *size) if first else (*size, *channels)))
    return _backward(id, rank, asked, dy, x, w)


def _of_weight(id: str, rank: int, asked: Asked, dy: Shape, x: Shape) -> Problem:
    _ranks(id, rank, dy, x)
    window = several(id, "window", asked["window"], rank)
    at = 1 if _first(id, rank, asked) else -1
    w = (dy[at], x[at] // _groups(id, asked), *window)
    return _backward(id, rank, asked, dy, x, w)


def _transposed(
    id: str, rank: int, asked: Asked, x: Shape, w: Shape, *b: Shape
) -> Problem:
    _ranks(id, rank, x, w)
    found = _enlarging(id, rank, x, w, asked)
    biased(id, found, b, found.inputs)
    return found


def _transposed_backward(  # noqa: PLR0917 - as above
    id: str, rank: int, asked: Asked, dy: Shape, x: Shape, w: Shape, *b: Shape
) -> Problem:
    found = _transposed(id, rank, asked, x, w, *b)
    _same_shape(id, dy, found.given_x)
    return found


def _ranks(id: str, rank: int, x: Shape, w: Shape) -> None:
    if len(x) != rank + 2 or len(w) != rank + 2:
        raise ShapeError(
            f"{id} takes images and weights of {rank + 2} dimensions, not {x} and {w}"
        )


def _same_shape(id: str, dy: Shape, wanted: Shape) -> None:
    if dy != wanted:
        raise ShapeError(f"{id}: dy has shape {dy}; the result of these has {wanted}")


def _in_a_batch(
    rank: int, images: int, kind: Callable[..., Problem], asked: Asked, *shapes: Shape
) -> Problem:
    """The convolution of these shapes; one image is a batch of one."""
    first = shapes[:images]
    if {*map(len, first)} == {rank + 1}:
        first = tuple((1, *shape) for shape in first)
    return kind(asked, *first, *shapes[images:])


_SUFFIXES: Final[Mapping[str, Callable[..., Problem]]] = {
    "": _forward,
    "_grad": _backward,
    "_grad_data": _of_data,
    "_grad_weight": _of_weight,
    "_transpose": _transposed,
    "_transpose_grad": _transposed_backward,
}
# how many of the first arrays are images; one image may go without a batch
_IMAGES: Final = {"_grad": 2, "_grad_weight": 2, "_transpose_grad": 2}
RANKS: Final = {
    f"nn.conv{rank}d{suffix}": rank for suffix in _SUFFIXES for rank in (1, 2, 3)
}
_KINDS: Final[Mapping[str, Callable[..., Problem]]] = {
    id: partial(_in_a_batch, rank, _IMAGES.get(suffix, 1), partial(kind, id, rank))
    for suffix, kind in _SUFFIXES.items()
    for id, rank in RANKS.items()
    if id.endswith(f"d{suffix}")
}


def convolution(id: str, asked: Asked, *shapes: Shape) -> Problem:
    """The convolution of a call of an operator with arrays of these shapes.

    Raises:
        ShapeError, ArgumentError: shapes or attributes do not fit.
    """
    return _KINDS[id](asked, *shapes)


@lru_cache(maxsize=256)
def of(workload: Workload) -> Problem:
    """The convolution of a workload, flattened where possible.

    Raises:
        ShapeError, ArgumentError: its shapes do not fit.
    """
    found = convolution(workload.operator, workload.named, *workload.shapes)
    return found.flattened()


def _enlarging(id: str, rank: int, x: Shape, w: Shape, asked: Asked) -> Problem:
    """The convolution whose data gradient is this transposed convolution."""
    first = _first(id, rank, asked)
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
    channels = w[1] * _groups(id, asked)
    shown = (x[0], channels, *size) if first else (x[0], *size, channels)
    given = dict(asked) | {"padding": slid.padding}
    found = problem(id, shown, w, given, transposed=True)
    found = _without_last(found, spatial, more)
    if x != found.given_y:
        raise ShapeError(
            f"{id}: images of shape {x} do not go with these weights: "
            f"{found.given_y} would"
        )
    return found


def _without_last(found: Problem, spatial: Shape, more: Shape) -> Problem:
    """The same with only the windows of `spatial`.

    With an output padding of a stride or more, further windows would fit after the last
    one: as many strides are subtracted from the high padding, which may get negative.
    """
    slid = found.windows
    cut = [n // step * step for n, step in zip(more, slid.stride, strict=True)]
    behind = [high - n for high, n in zip(slid.padding[1::2], cut, strict=True)]
    pairs = zip(slid.padding[::2], behind, strict=True)
    padding = tuple(n for pair in pairs for n in pair)
    return replace(found, result=spatial, windows=replace(slid, padding=padding))
