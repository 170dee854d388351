"""Weights transformed once for many convolutions, and the convolution by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang import ir
from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops import lazy
from tensorlang.ops.definition import operator
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn import convolution_plans as plans
from tensorlang.ops.nn.winograd import NAMES
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, blocks, transformed
from tensorlang.ops.nn.winograd_matrices import F4, TRANSFORMS, WINDOW
from tensorlang.ops.signature import Batch, Padding, Singles
from tensorlang.ops.tensors import Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorlang.ir import Tensor
    from tensorlang.ops.nn import winograd_definitions, winograd_weights
    from tensorlang.ops.operator import Launch
else:
    winograd_definitions = lazy.module("tensorlang.ops.nn.winograd_definitions")
    winograd_weights = lazy.module("tensorlang.ops.nn.winograd_weights")

CONVOLUTION: Final = "nn.conv2d"
_SIDES: Final = {t.points**2: m for m, t in TRANSFORMS.items()}


@dataclass(frozen=True, slots=True, eq=False)
class PackedWindows:
    """Windows of 3 by 3, transformed by an algorithm of `nn.conv2d`.

    Attributes:
        operator: The id of the operator that they are for.
        algorithm: `winograd23` or `winograd43`.
        array: `[strip of 32 outputs, point, input, output of the strip]`, inputs past
            the last one 0; read-only.
        shape: The logical shape, `(outputs, inputs, 3, 3)`.
    """

    operator: str
    algorithm: str
    array: NDArray[Any]
    shape: tuple[int, int, int, int]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.array.dtype

    def unpack(self) -> NDArray[Any]:
        """The windows, `[outputs, inputs, 3, 3]`: as they were but for rounding."""
        outputs, inputs, *_ = self.shape
        strips, points, depth, _ = self.array.shape
        t = TRANSFORMS[_SIDES[points]]
        grid = self.array.reshape(strips, t.points, t.points, depth, STRIP)
        back = np.linalg.pinv(np.array(t.weight))
        windows = np.einsum("yp,spqco,xq->socyx", back, grid, back)
        whole = windows.reshape(strips * STRIP, depth, WINDOW, WINDOW)
        plain: NDArray[Any] = whole[:outputs, :inputs].astype(self.dtype)
        return plain


def pack(w: Any, tolerance: float | None) -> PackedWindows:
    """Windows transformed by the fastest algorithm that a tolerance allows.

    Args:
        w: `[outputs, inputs, 3, 3]`, f32.
        tolerance: The error that is allowed, as for `nn.conv2d`.

    Raises:
        ArgumentError: no algorithm is as exact as that.
        ShapeError, DTypeError: the windows are others.
    """
    from tensorlang.runtime import buffers  # noqa: PLC0415 - loads the runtime
    from tensorlang.runtime.arrays import view  # noqa: PLC0415 - the same

    allowed = [m for m, t in TRANSFORMS.items() if t.tolerance <= (tolerance or 0)]
    if not allowed:
        least = min(t.tolerance for t in TRANSFORMS.values())
        raise ArgumentError(
            f"nn.prepack: weights of nn.conv2d are packed for Winograd's algorithms, "
            f"which need a tolerance from {least:g}, not {tolerance!r}"
        )
    array, m = view(w, "nn.prepack: w"), max(allowed)
    shape = _windows(array.shape)
    made = buffers.empty(transformed(*shape[:2], TRANSFORMS[m]), array.dtype)
    conv2d_winograd_weight(array, m, out=made)
    return PackedWindows(CONVOLUTION, NAMES[m], read_only(made), shape)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, row-major and not empty, that NumPy never lets be written."""
    octets = array.reshape(-1).view(np.uint8).data.toreadonly()
    return np.frombuffer(octets, np.uint8).view(array.dtype).reshape(array.shape)


def convolve(  # noqa: PLR0917 - as `call`
    x: Any, w: PackedWindows, b: Any, given: dict[str, Any], target: Any, out: Any
) -> Launch:
    """The launch of `nn.conv2d` by packed weights; `given` are its attributes.

    Raises:
        ArgumentError: they ask for what the weights were not packed for.
    """
    if w.operator != CONVOLUTION:
        raise ArgumentError(f"nn.conv2d: this weight was packed for {w.operator}")
    for name in ("stride", "dilation", "groups"):
        if given[name] not in (1, (1, 1)):
            raise ArgumentError(
                f"nn.conv2d: weights are packed for {name} 1, not {given[name]!r}; "
                "pass w.unpack()"
            )
    least = TRANSFORMS[_SIDES[w.array.shape[1]]].tolerance
    if given["tolerance"] is not None and given["tolerance"] < least:
        raise ArgumentError(
            f"nn.conv2d: weights packed for {w.algorithm} need a tolerance from "
            f"{least:g}, not {given['tolerance']!r}"
        )
    if given["layout"] != "NCHW":
        raise ArgumentError(
            f"nn.conv2d: weights are packed for NCHW, not {given['layout']!r}"
        )
    _of_channels(x, w)
    kept = {name: given[name] for name in ("padding", "activation")}
    return conv2d_winograd.prepare(
        x, w.array, b, w.shape[0], **kept, target=target, out=out
    )


def _of_channels(x: Any, w: PackedWindows) -> None:
    """Refuse images whose channels are others than the weights': both may fit strips.

    Raises:
        ShapeError: they are.
    """
    if type(x) is not np.ndarray:
        own(x)  # a graph's, whose sizes may have names
    shape = tuple(getattr(x, "shape", ()))
    if len(shape) == 4 and shape[1] != w.shape[1]:
        raise ShapeError(
            f"nn.conv2d: weights of shape {w.shape}, packed, need images of "
            f"{w.shape[1]} channels, not {shape[1]}: x has shape {shape}"
        )


def _windows(shape: Shape) -> tuple[int, int, int, int]:
    if len(shape) != 4 or shape[2:] != (WINDOW, WINDOW) or min(shape) < 1:
        raise ShapeError(
            f"nn.conv2d: weights of shape {shape} cannot be packed; windows of 3 by 3, "
            "(outputs, inputs, 3, 3), can"
        )
    return shape[0], shape[1], WINDOW, WINDOW


@operator(
    "nn.conv2d_winograd_weight",
    shapes=((64, 64, WINDOW, WINDOW),),
    scheduled_as="winograd",
    whole=True,
    tolerance=2.0**-18,
)
def conv2d_winograd_weight(w: Singles, m: int = 4) -> Tensor:
    """G w G^T: windows at the points of F(m, 3), for `conv2d_winograd`.

    Args:
        w: Windows `[outputs, inputs, 3, 3]`, f32.
        m: The side of a tile of results: 2 or 4.
        out: Where the result goes: `[ceil(outputs / 32), (m + 2)^2, inputs in whole
            vectors of 16 and one more, 32]`.
    """
    if m not in TRANSFORMS:
        raise ArgumentError(f"nn.conv2d_winograd_weight: m is 2 or 4, not {m!r}")
    _windows(tuple(map(int, w.shape)))
    return winograd_weights.of_side(w, m=m)


@operator(
    "nn.conv2d_winograd",
    shapes=((1, 64, 58, 58), (2, F4.points**2, 4 * LANES + 1, STRIP)),
    usual={"outputs": 64},
    scheduled_as="winograd",
    whole=True,
    tolerance=F4.tolerance,
)
def conv2d_winograd(  # noqa: PLR0917 - as `conv2d` has them
    x: Batch[Singles],
    weight: Singles,
    b: Singles | None = None,
    outputs: int = 0,
    padding: Padding = 0,
    activation: str | None = None,
) -> Tensor:
    """`nn.conv2d` by windows of 3 by 3 that are transformed (Winograd), f32.

    Args:
        x: Images `(batch, channels, height, width)`.
        weight: As `conv2d_winograd_weight` makes it.
        b: None, or a number to add for each output channel.
        outputs: How many output channels there are.
        padding: As for `nn.conv2d`.
        activation: As for `nn.conv2d`.
    """
    id, given = "nn.conv2d_winograd", tuple(map(int, weight.shape))
    inputs = int(x.shape[1]) if x.ndim == 4 else 0
    m = _SIDES.get(given[1], 0) if len(given) == 4 else 0
    ir.require(
        m and inputs and given == transformed(outputs, inputs, TRANSFORMS[m]),
        "weights of shape {given}, packed for {outputs} outputs, do not go with images "
        "of shape {x}",
        given=given,
        outputs=outputs,
        x=x.shape,
    )
    asked = {"padding": padding, "activation": activation}
    w = (outputs, inputs, WINDOW, WINDOW)
    n, size = x.shape[0], tuple(map(int, x.shape[2:]))
    found = plans.problem(id, (n, inputs, *size), w, asked)
    bias = () if b is None else (tuple(map(int, b.shape)),)
    plans.biased(id, found, bias, outputs)
    cut = blocks(m, inputs, outputs, size, found.windows.padding)
    activation = plans.activation(id, asked)
    return winograd_definitions.convolved(x, weight, b, cut, activation)
