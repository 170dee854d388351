"""Convolutions of one, two and three dimensions, transposed ones, and gradients.

Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError
from tensorlang.ops.nn import convolution_choice as choice
from tensorlang.ops.nn import convolution_plans as plans
from tensorlang.ops.nn import winograd
from tensorlang.ops.nn.windows import LAYOUTS, hashable
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS
from tensorlang.ops.nn.winograd_packing import PackedWindows, convolve
from tensorlang.ops.tensors import (
    Names,
    Shape,
    TensorOperator,
    call,
    tensor_algorithm,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Ints, Padding, Sizes
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.nn.convolution_definitions"
_WINOGRAD: Final = "tensorlang.ops.nn.winograd_definitions"
_NONFUSED: Final = "tensorlang.ops.nn.winograd_nonfused"
_FLAT: Final = "tensorlang.ops.nn.flat_convolution"
_OUTER: Final = "tensorlang.ops.nn.outer_products"
_LAST: Final = "tensorlang.ops.nn.last_convolution"
_PHASED: Final = "tensorlang.ops.nn.phased_convolution"
_SINGLE: Final = "tensorlang.ops.nn.depthwise_gradients"
_IMAGES: Final[dict[int, tuple[int, ...]]] = {1: (4096,), 2: (58, 58), 3: (16, 30, 30)}


def _names(workload: Workload, images: int = 1) -> Names:
    """The batch of the images is symbolic."""
    return tuple(
        ("n" if at < images else None, *[None] * (len(shape) - 1))
        for at, shape in enumerate(workload.shapes)
    )


def _default(rank: int, *which: str) -> tuple[Shape, ...]:
    image = _IMAGES[rank]
    shapes = {
        "x": (1, 64, *image),
        "w": (64, 64, *[3] * rank),
        "dy": (1, 64, *[n - 2 for n in image]),
    }
    return tuple(shapes[name] for name in which)


_PREFERS: Final[dict[str, Callable[[Workload], str]]] = {}


def _operator(
    rank: int,
    suffix: str,
    plan: Callable[..., Any],
    arrays: tuple[str, ...],
    images: int = 1,
    **attributes: Any,
) -> Callable[[Callable[..., Launch]], TensorOperator]:
    """The decorator of one operator: of its rank, with a plan and default arrays."""
    id = f"nn.conv{rank}d{suffix}"
    define = {
        "": "conv",
        "_transpose": "conv_transposed",
        "_grad": "conv_grad",
        "_grad_data": "conv_grad_data",
        "_grad_weight": "conv_grad_weight",
        "_transpose_grad": "conv_transposed_grad",
    }[suffix]
    return tensor_operator(
        id,
        f"{_HERE}:{define}",
        plan=partial(plan, id, rank),
        names=partial(_names, images=images),
        shapes=_default(rank, *arrays),
        attributes=attributes,
        aliases=(id.removeprefix("nn."),),
        scheduled_as="conv",
        prefers=_PREFERS.get(suffix),
    )


def _given(rank: int, **attributes: Any) -> dict[str, Any]:
    """Attributes as a key, the layout's default filled in."""
    if attributes["layout"] is None:
        attributes["layout"] = LAYOUTS[rank][0]
    return {name: hashable(value) for name, value in attributes.items()}


def _tolerated(id: str, tolerance: Any) -> None:
    """Check a tolerance."""
    number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    if tolerance is not None and not (number and tolerance >= 0):
        raise ArgumentError(
            f"{id}: tolerance is None or a relative error from 0, not {tolerance!r}"
        )


def _convolution(rank: int) -> TensorOperator:
    @_operator(rank, "", winograd.forward, ("x", "w"))
    def conv(  # noqa: PLR0917 - in PyTorch's order
        x: Any,
        w: Any,
        b: Any = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        tolerance: float | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """Convolution (cross-correlation, as in PyTorch) of images with weights.

        Args:
            x: Images `(batch, channels, *spatial)`, or with the channels last.
            w: Weights `(outputs, channels / groups, *window)`, in either layout; or
                windows of 3 by 3 that `prepack` has transformed.
            b: None, or a number to add for each output channel.
            stride: The step from window to window: a number, or one a dimension.
            padding: Zeros around the image: a number, one a dimension or a pair
                (before, behind) a dimension; `"valid"` (none), or `"same"` (as many
                results as pixels).
            dilation: The step from one element of a window to the next.
            groups: Groups of channels that are convolved each for itself; as many as
                there are channels for a depthwise convolution.
            layout: `NCW`, `NCHW`, `NCDHW`, or with the channels last `NWC`, ...
            activation: None, `relu`, `gelu`, `silu`, `sigmoid` or `tanh`, of the sum.
            tolerance: The error that is allowed, relative to a result or the mean one,
                whichever is larger; None: that of a plain sum. From 2**-14 on, windows
                of 3 by 3 a pixel apart may be computed by F(2, 3), from 2**-12 on by
                F(4, 3) (Winograd); there, what is not finite spreads to a whole tile.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        _tolerated(made.id, tolerance)
        given = _given(
            rank,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            layout=layout,
            activation=activation,
            tolerance=tolerance,
        )
        if type(w) is PackedWindows and rank == 2:
            return convolve(x, w, b, given, target, out)
        arrays = (x, w) if b is None else (x, w, b)
        return call(made, arrays, given, (), target, out)

    made = conv
    tensor_algorithm(made, "flat", f"{_FLAT}:conv", choice.flattened)
    tensor_algorithm(made, "last", f"{_LAST}:conv", choice.channels_last)
    tensor_algorithm(made, "depthwise", f"{_HERE}:conv", choice.depthwise)
    for m, name in winograd.NAMES.items() if rank == 2 else ():
        place, allowed = f"{_WINOGRAD}:f{m}3", TRANSFORMS[m].tolerance
        tensor_algorithm(made, name, place, winograd.serves(m), allowed, finite=True)
    for m, name in winograd.NONFUSED.items() if rank == 2 else ():
        place, allowed = f"{_NONFUSED}:f{m}3", TRANSFORMS[m].tolerance
        tensor_algorithm(
            made, name, place, winograd.serves_tiles(m), allowed, finite=True
        )
    return made


def _transposed(rank: int) -> TensorOperator:
    @_operator(rank, "_transpose", plans.transposed, ("dy", "w"))
    def conv_transpose(  # noqa: PLR0917 - in PyTorch's order
        x: Any,
        w: Any,
        b: Any = None,
        stride: Ints = 1,
        padding: Padding = 0,
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """Transposed convolution: the gradient of one by its images, as a layer.

        Args:
            x: Images `(batch, channels, *spatial)`, or with the channels last.
            w: Weights `(channels, outputs / groups, *window)`, in either layout.
            b: None, or a number to add for each output channel.
            stride: Of the convolution that this is the transpose of; as its padding,
                dilation and groups.
            padding: As for the convolution.
            output_padding: More results behind: which of several image sizes is meant.
            dilation: As for the convolution.
            groups: As for the convolution.
            layout: `NCHW` and the like, or with the channels last.
            activation: None, `relu`, `gelu`, `silu`, `sigmoid` or `tanh`, of the sum.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(
            rank,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            dilation=dilation,
            groups=groups,
            layout=layout,
            activation=activation,
        )
        arrays = (x, w) if b is None else (x, w, b)
        return call(made, arrays, given, (), target, out)

    made = conv_transpose
    tensor_algorithm(made, "phased", f"{_PHASED}:conv_transposed", choice.apart)
    tensor_algorithm(made, "last", f"{_LAST}:conv_transposed", choice.channels_last)
    return made


def _gradient(
    rank: int, suffix: str, plan: Callable[..., Any], arrays: tuple[str, ...]
) -> TensorOperator:
    @_operator(rank, suffix, plan, arrays, 2, bias=False)
    def conv_grad(  # noqa: PLR0917 - in PyTorch's order
        dy: Any,
        x: Any,
        w: Any,
        b: Any = None,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        output_padding: Ints = 0,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The gradients of images and weights, and of the bias where there is one.

        Args:
            dy: The gradient of the result, without an activation.
            x: Images, as they were given.
            w: Weights, as they were given.
            b: The bias as it was given; its numbers are not read.
            stride: As it was given; so padding, dilation, groups, layout.
            padding: As it was given.
            dilation: As it was given.
            groups: As it was given.
            layout: As it was given.
            activation: None; take an activation's own gradient first.
            output_padding: Of a transposed convolution, as it was given.
            target: Where to compute.
            out: Where the results go: a tuple.

        Returns:
            `(dx, dw)`, or `(dx, dw, db)`.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        if activation is not None:
            raise ArgumentError(
                f"{made.id}: activation {activation!r} has a gradient of its own; "
                "apply that to dy, and leave activation out here"
            )
        given = _given(
            rank,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            layout=layout,
            bias=b is not None,
            output_padding=output_padding,
        )
        return call(made, (dy, x, w), given, (), target, out)

    made = conv_grad
    if suffix == "_grad":
        tensor_algorithm(made, "flat", f"{_FLAT}:conv_grad", choice.unstrided)
        place = f"{_SINGLE}:conv_grad"
        tensor_algorithm(made, "depthwise", place, choice.unstrided_depthwise)
        tensor_algorithm(made, "phased", f"{_PHASED}:conv_grad", choice.apart)
        tensor_algorithm(made, "last", f"{_LAST}:conv_grad", choice.channels_last)
    else:
        place = f"{_FLAT}:conv_transposed_grad"
        tensor_algorithm(made, "flat", place, choice.mixing)
        place = f"{_LAST}:conv_transposed_grad"
        tensor_algorithm(made, "last", place, choice.channels_last)
    return made


def _gradient_of_data(rank: int) -> TensorOperator:
    size = _IMAGES[rank]

    @_operator(rank, "_grad_data", plans.of_data, ("dy", "w"), size=size)
    def conv_grad_data(  # noqa: PLR0917 - in PyTorch's order
        dy: Any,
        w: Any,
        size: Sizes,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The gradient of the images alone.

        Args:
            dy: The gradient of the result.
            w: Weights, as they were given.
            size: The extents of the images, without batch and channels.
            stride: As it was given; so padding, dilation, groups, layout.
            padding: As it was given.
            dilation: As it was given.
            groups: As it was given.
            layout: As it was given.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(
            rank,
            size=size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            layout=layout,
        )
        return call(made, (dy, w), given, (), target, out)

    made = conv_grad_data
    tensor_algorithm(made, "flat", f"{_FLAT}:conv_grad_data", choice.unstrided)
    place = f"{_SINGLE}:conv_grad_data"
    tensor_algorithm(made, "depthwise", place, choice.unstrided_depthwise)
    tensor_algorithm(made, "phased", f"{_PHASED}:conv_grad_data", choice.apart)
    tensor_algorithm(made, "last", f"{_LAST}:conv_grad_data", choice.channels_last)
    return made


def _gradient_of_weight(rank: int) -> TensorOperator:
    window = (3,) * rank

    @_operator(rank, "_grad_weight", plans.of_weight, ("dy", "x"), 2, window=window)
    def conv_grad_weight(  # noqa: PLR0917 - in PyTorch's order
        dy: Any,
        x: Any,
        window: Sizes,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The gradient of the weights alone.

        Args:
            dy: The gradient of the result.
            x: Images, as they were given.
            window: The extents of a window.
            stride: As it was given; so padding, dilation, groups, layout.
            padding: As it was given.
            dilation: As it was given.
            groups: As it was given.
            layout: As it was given.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given = _given(
            rank,
            window=window,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            layout=layout,
        )
        return call(made, (dy, x), given, (), target, out)

    made = conv_grad_weight
    tensor_algorithm(made, "flat", f"{_FLAT}:conv_grad_weight", choice.of_pixels)
    tensor_algorithm(made, "outer", f"{_OUTER}:conv_grad_weight", choice.outer)
    tensor_algorithm(made, "depthwise", f"{_SINGLE}:conv_grad_weight", choice.single)
    return made


_PREFERS.update(
    {
        "": choice.forward,
        "_grad": choice.data_gradient,
        "_grad_data": choice.data_gradient,
        "_transpose": choice.transposed,
        "_transpose_grad": choice.transposed_gradient,
        "_grad_weight": choice.weight_gradient,
    }
)
conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
conv1d_transpose, conv2d_transpose, conv3d_transpose = map(_transposed, (1, 2, 3))
conv1d_grad, conv2d_grad, conv3d_grad = (
    _gradient(rank, "_grad", plans.backward, ("dy", "x", "w")) for rank in (1, 2, 3)
)
conv1d_transpose_grad, conv2d_transpose_grad, conv3d_transpose_grad = (
    _gradient(rank, "_transpose_grad", plans.transposed_backward, ("x", "dy", "w"))
    for rank in (1, 2, 3)
)
conv1d_grad_data, conv2d_grad_data, conv3d_grad_data = map(_gradient_of_data, (1, 2, 3))
conv1d_grad_weight, conv2d_grad_weight, conv3d_grad_weight = map(
    _gradient_of_weight, (1, 2, 3)
)
