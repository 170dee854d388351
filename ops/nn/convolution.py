"""Convolutions in one, two and three dimensions, transposed ones, and gradients.

Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016. The
algorithms of each operator and the choice between them are in `convolution_choice`.
Gradients are written by hand: they have algorithms of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.nn.convolution_choice import ALGORITHMS, PREFERS, Row, of_weights
from tensorlang.ops.nn.convolution_problem import (
    RANKS,
    Problem,
    activation_of,
    convolution,
)
from tensorlang.ops.nn.epilogues import check_addend
from tensorlang.ops.nn.winograd import Tolerance
from tensorlang.ops.nn.winograd_packing import PackedWindows, convolve
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.definition import algorithm, operator
from tensorlang.ops.spec.signature import Batch, Floats, Ints, Numbers, Padding, Sizes

with lazy.modules(__name__):
    from tensorlang.ops.nn import weight_gradients

_RANKS: Final = (1, 2, 3)
_IMAGES: Final[dict[int, tuple[int, ...]]] = {1: (4096,), 2: (58, 58), 3: (16, 30, 30)}
_MEANINGS: Final = {
    "x": "Images `(batch, channels, *spatial)`, or channels last; see `layout`. One "
    "image may go without the batch.",
    "w": "Weights `(outputs, channels / groups, *window)`, in every layout.",
    "b": "Bias, one value per output channel, or None.",
    "stride": "Stride of the window: a number, or one per spatial dimension.",
    "padding": "Zero padding: a number, one per spatial dimension, or a pair (before, "
    'after) per dimension; `"valid"` for none; `"same"`, for stride 1, keeps the size.',
    "dilation": "Spacing of window elements: a number, or one per spatial dimension.",
    "groups": "Number of channel groups, each convolved separately; equal to the "
    "number of channels for a depthwise convolution.",
    "layout": "`NCW`, `NCHW` or `NCDHW` (default), or `NWC`, `NHWC` or `NDHWC`.",
    "activation": "Fused activation: None, `relu`, `relu6`, `gelu`, `silu`, "
    "`hard_swish`, `sigmoid` or `tanh`.",
}
_OF_GRADIENTS: Final = dict.fromkeys(_MEANINGS, "As in the forward call.") | {
    "dy": "The gradient of the result, before any activation.",
    "b": "Bias of the forward call, or None; its values are not read.",
    "activation": "Must be None; apply the activation's gradient to `dy` first.",
    "output_padding": "For transposed convolutions, as in the forward call.",
    "size": "Spatial extents of the images.",
    "window": "Spatial extents of the window.",
}


_OF_WEIGHTS: Final = {row.name: row for row in ALGORITHMS["_grad_weight"]}


def _operator(
    rank: int, suffix: str, by: Callable[[str, Row], Body], arrays: str, **options: Any
) -> Operator:
    """An operator with all its algorithms."""
    id, image = f"nn.conv{rank}d{suffix}", _IMAGES[rank]
    usual = {
        "x": (1, 64, *image),
        "w": (64, 64, *[3] * rank),
        "dy": (1, 64, *[n - 2 for n in image]),
    }
    first, *others = (row for row in ALGORITHMS[suffix] if rank in row.ranks)
    made = operator(
        id,
        shapes=tuple(usual[name] for name in arrays.split()),
        scheduled_as="conv",
        prefers=PREFERS[suffix],
        whole=True,
        **{"meanings": _OF_GRADIENTS if "grad" in suffix else _MEANINGS, **options},
    )(by(id, first))
    for row in others:
        more: dict[str, Any] = {"tolerance": row.tolerance, "finite": row.finite}
        more["faster"] = row.faster
        algorithm(made, row.name, serves=row.serves, **more)(by(id, row))
    return made


def _found(
    id: str, *arrays: ir.Tensor | None, images: int = 1, **asked: object
) -> Problem:
    """The convolution of these arrays; the first `images` keep an open batch."""
    shapes: list[tuple[Any, ...]] = []
    for at, array in enumerate(arrays):
        if array is not None:
            batch = int(at < images and array.ndim == RANKS[id] + 2)
            shapes.append((*array.shape[:batch], *map(int, array.shape[batch:])))
    return convolution(id, asked, *shapes)


def _as_given(shape: tuple[Any, ...], images: ir.Tensor) -> tuple[Any, ...]:
    """The shape of a result: without the batch, if the images have none."""
    return shape[len(shape) - images.ndim :]


def _seen(array: ir.Tensor | None, shape: tuple[int, ...]) -> ir.Tensor | None:
    return None if array is None else ir.reshaped(array, shape)


def _forward(id: str, row: Row) -> Body:
    def conv(  # noqa: PLR0917 - in PyTorch's order
        x: Batch[Numbers],
        w: Numbers,
        b: Numbers | None = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        tolerance: Tolerance = None,
        *,
        addend: Batch[Numbers] | None = None,
    ) -> ir.Tensor:
        """Convolution of images with weights (cross-correlation, as in PyTorch).

        Args:
            w: Weights `(outputs, channels / groups, *window)`, in every layout; or 3x3
                windows packed by `nn.prepack`.
            tolerance: Maximum error, relative to the result or to the mean result,
                whichever is larger; None for that of direct summation. For 3x3 windows
                with stride 1, 2**-14 or more allows Winograd's F(2, 3), 2**-12 or more
                F(4, 3); these spread infinities and NaNs over a whole tile.
            addend: Array of the result's shape, added before the activation, or None;
                as the shortcut of a residual network.

        Returns:
            Images with `outputs` channels and spatial extents
            `(n + before + after - dilation * (window - 1) - 1) // stride + 1`.
        """
        del tolerance  # read by `convolution_choice`
        asked = _asked(stride, padding, dilation, groups, layout)
        found = _found(id, x, w, b, **asked)
        shape = _as_given(found.given_y, x)
        check_addend(addend, shape)
        p, name = found.flattened(), activation_of(id, activation)
        bias = _seen(b, p.bias(p.outputs))
        more = {} if addend is None else {"addend": ir.reshaped(addend, p.y)}
        made = row.define()(_seen(x, p.x), _seen(w, p.w), bias, p, name, **more)
        return ir.reshaped(made, shape)

    return conv


def _transposed(id: str, row: Row) -> Body:
    def conv_transpose(  # noqa: PLR0917 - in PyTorch's order
        x: Batch[Numbers],
        w: Numbers,
        b: Numbers | None = None,
        stride: Ints = 1,
        padding: Padding = 0,
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
    ) -> ir.Tensor:
        """Transposed convolution: the gradient of a convolution for its images.

        Stride, padding, dilation and groups are those of the convolution that is
        transposed.

        Args:
            w: Weights `(channels, outputs / groups, *window)`, in every layout.
            output_padding: Extra size added at the end of each spatial dimension of
                the result.

        Returns:
            Images with `outputs` channels and spatial extents `(n - 1) * stride -
            before - after + dilation * (window - 1) + 1 + output_padding`.
        """
        asked = _asked(stride, padding, dilation, groups, layout)
        found = _found(id, x, w, b, **asked, output_padding=output_padding)
        p, name = found.flattened(), activation_of(id, activation)
        bias = _seen(b, p.bias(p.inputs))
        made = row.define()(_seen(x, p.y), _seen(w, p.w), bias, p, name)
        return ir.reshaped(made, _as_given(found.given_x, x))

    return conv_transpose


def _gradients(id: str, row: Row, *, transposed: bool = False) -> Body:
    def conv_grad(  # noqa: PLR0917 - in PyTorch's order
        dy: Batch[Floats],
        x: Batch[Floats],
        w: Floats,
        b: Floats | None = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        output_padding: Ints = 0,
    ) -> tuple[ir.Tensor, ...]:
        """The gradients for images, weights and, if there is one, bias.

        Returns:
            `(dx, dw)`, or `(dx, dw, db)`.
        """
        if activation is not None:
            raise ArgumentError(
                f"{id}: activation {activation!r} has a gradient of its own; apply "
                "that to dy, and leave activation out here"
            )
        asked = _asked(stride, padding, dilation, groups, layout)
        asked["output_padding"] = output_padding
        p = _found(id, dy, x, w, b, images=2, **asked).flattened()
        image, result = (p.y, p.x) if transposed else (p.x, p.y)
        given, images = ir.reshaped(dy, result), ir.reshaped(x, image)
        dx = row.define()(given, _seen(w, p.w), None, p)
        results, read = (images, given) if transposed else (given, images)
        name = row.name if row.direct else of_weights(p)
        dw = _OF_WEIGHTS[name].define()(results, read, p)
        made = ir.reshaped(dx, x.shape), ir.reshaped(dw, w.shape)
        if b is None:
            return made
        return *made, ir.reshaped(weight_gradients.bias_gradient(given, p), b.shape)

    return conv_grad


def _of_data(id: str, row: Row) -> Body:
    def conv_grad_data(  # noqa: PLR0917 - in PyTorch's order
        dy: Batch[Floats],
        w: Floats,
        size: Sizes,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
    ) -> ir.Tensor:
        """The gradient for the images only."""
        asked = _asked(stride, padding, dilation, groups, layout)
        found = _found(id, dy, w, **asked, size=size)
        p = found.flattened()
        made = row.define()(_seen(dy, p.y), _seen(w, p.w), None, p)
        return ir.reshaped(made, _as_given(found.given_x, dy))

    return conv_grad_data


def _of_weight(id: str, row: Row) -> Body:
    def conv_grad_weight(  # noqa: PLR0917 - in PyTorch's order
        dy: Batch[Floats],
        x: Batch[Floats],
        window: Sizes,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
    ) -> ir.Tensor:
        """The gradient for the weights only."""
        asked = _asked(stride, padding, dilation, groups, layout)
        found = _found(id, dy, x, images=2, **asked, window=window)
        p = found.flattened()
        made = row.define()(_seen(dy, p.y), _seen(x, p.x), p)
        return ir.reshaped(made, found.given_w)

    return conv_grad_weight


def _asked(
    stride: Ints, padding: Padding, dilation: Ints, groups: int, layout: str | None
) -> dict[str, Any]:
    """The window attributes by name."""
    return {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "layout": layout,
    }


def _convolution(rank: int) -> Operator:
    packed = {"w": (PackedWindows, convolve)} if rank == 2 else {}
    return _operator(rank, "", _forward, "x w", instead=packed)


def _data(rank: int) -> Operator:
    usual = {"size": _IMAGES[rank]}
    return _operator(rank, "_grad_data", _of_data, "dy w", usual=usual)


def _weight(rank: int) -> Operator:
    usual = {"window": (3,) * rank}
    return _operator(rank, "_grad_weight", _of_weight, "dy x", usual=usual)


def _transpose_grad(rank: int) -> Operator:
    by = partial(_gradients, transposed=True)
    return _operator(rank, "_transpose_grad", by, "x dy w")


conv1d, conv2d, conv3d = map(_convolution, _RANKS)
conv1d_grad, conv2d_grad, conv3d_grad = (
    _operator(rank, "_grad", _gradients, "dy x w") for rank in _RANKS
)
conv1d_grad_data, conv2d_grad_data, conv3d_grad_data = map(_data, _RANKS)
conv1d_grad_weight, conv2d_grad_weight, conv3d_grad_weight = map(_weight, _RANKS)
conv1d_transpose, conv2d_transpose, conv3d_transpose = (
    _operator(rank, "_transpose", _transposed, "dy w") for rank in _RANKS
)
conv1d_transpose_grad, conv2d_transpose_grad, conv3d_transpose_grad = map(
    _transpose_grad, _RANKS
)
