"""Winograd weights transformed ahead of time, and the convolution with them."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang import ir, lazy, runtime
from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.frozen import frozen
from tensorlang.ops.calls.dispatch import own
from tensorlang.ops.calls.tensors import Shape
from tensorlang.ops.nn.convolution_problem import activation_of, biased, problem
from tensorlang.ops.nn.epilogues import check_addend
from tensorlang.ops.nn.winograd import NAMES
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, blocks, packed_shape
from tensorlang.ops.nn.winograd_matrices import F4, TRANSFORMS, WINDOW
from tensorlang.ops.operator import Launch
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Batch, Padding, Singles

with lazy.modules(__name__):
    from tensorlang.ops.nn import winograd_fused, winograd_weights


CONVOLUTION: Final = "nn.conv2d"
WEIGHTS: Final = "nn.conv2d_winograd_weight"
_SIDES: Final = {t.points**2: m for m, t in TRANSFORMS.items()}


@frozen(eq=False)
class PackedWindows:
    """3x3 windows, transformed for a Winograd algorithm of `nn.conv2d`.

    Attributes:
        operator: Id of the operator they are packed for.
        algorithm: `winograd23` or `winograd43`.
        array: `[strip of 32 outputs, point, input, output within the strip]`, inputs
            zero-padded; read-only.
        shape: The logical shape, `(outputs, inputs, 3, 3)`.
    """

    operator: str
    algorithm: str
    array: np.ndarray
    shape: tuple[int, int, int, int]

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.array.dtype

    def unpack(self) -> np.ndarray:
        """The windows, `[outputs, inputs, 3, 3]`, up to rounding."""
        outputs, inputs, *_ = self.shape
        strips, points, depth, _ = self.array.shape
        t = TRANSFORMS[_SIDES[points]]
        grid = self.array.reshape(strips, t.points, t.points, depth, STRIP)
        back = np.linalg.pinv(np.array(t.weight))
        windows = np.einsum("yp,spqco,xq->socyx", back, grid, back)
        whole = windows.reshape(strips * STRIP, depth, WINDOW, WINDOW)
        plain: np.ndarray = whole[:outputs, :inputs].astype(self.dtype)
        return plain


def pack(w: object, tolerance: float | None) -> PackedWindows:
    """Transform windows for the fastest algorithm that a tolerance allows.

    Args:
        w: `[outputs, inputs, 3, 3]`, f32.
        tolerance: Error allowed, as for `nn.conv2d`.

    Raises:
        ArgumentError: no algorithm is within the tolerance.
        ShapeError, DTypeError: not 3x3 windows, or not f32.
    """
    allowed = [m for m, t in TRANSFORMS.items() if t.tolerance <= (tolerance or 0)]
    if not allowed:
        least = min(t.tolerance for t in TRANSFORMS.values())
        raise ArgumentError(
            f"nn.prepack: weights of nn.conv2d are packed for Winograd's algorithms, "
            f"which need a tolerance from {least:g}, not {tolerance!r}"
        )
    array, m = runtime.host_arrays.view(w, "nn.prepack: w"), max(allowed)
    shape = _windows(array.shape)
    made = runtime.buffers.empty(packed_shape(*shape[:2], TRANSFORMS[m]), array.dtype)
    conv2d_winograd_weight(array, m, out=made)
    return PackedWindows(CONVOLUTION, NAMES[m], read_only(made), shape)


def read_only(array: np.ndarray) -> np.ndarray:
    """A permanently read-only view of a nonempty C-contiguous array."""
    octets = array.reshape(-1).view(np.uint8).data.toreadonly()
    return np.frombuffer(octets, np.uint8).view(array.dtype).reshape(array.shape)


def convolve(  # noqa: PLR0917 - the operator's parameters
    x: object,
    w: PackedWindows,
    b: object,
    padding: object,
    layout: str | None,
    activation: str | None,
    tolerance: float | None,
    addend: object = None,
    **given: object,
) -> Launch:
    """The launch of `nn.conv2d` with packed weights, from the arguments of a call.

    Raises:
        ArgumentError: the weights were not packed for these arguments.
    """
    if w.operator != CONVOLUTION:
        raise ArgumentError(f"nn.conv2d: this weight was packed for {w.operator}")
    for name in ("stride", "dilation", "groups"):
        if (value := given.pop(name)) not in (1, (1, 1)):
            raise ArgumentError(
                f"nn.conv2d: weights are packed for {name} 1, not {value!r}; pass "
                "w.unpack()"
            )
    least = TRANSFORMS[_SIDES[w.array.shape[1]]].tolerance
    if tolerance is not None and tolerance < least:
        raise ArgumentError(
            f"nn.conv2d: weights packed for {w.algorithm} need a tolerance from "
            f"{least:g}; pass w.unpack()"
        )
    if layout not in (None, "NCHW"):
        raise ArgumentError(f"nn.conv2d: weights are packed for NCHW, not {layout!r}")
    _of_channels(x, w)
    how = {"padding": padding, "activation": activation, "addend": addend, **given}
    return conv2d_winograd.prepare(x, w.array, b, w.shape[0], **how)


def _of_channels(x: object, w: PackedWindows) -> None:
    """Check the channels of images; zero-padded weights would fit others, too."""
    if type(x) is not np.ndarray:
        own(x)  # a graph tensor, whose sizes may be symbolic
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
    WEIGHTS,
    aliases=(),
    shapes=((64, 64, WINDOW, WINDOW),),
    scheduled_as="winograd",
    whole=True,
    tolerance=2.0**-18,
)
def conv2d_winograd_weight(w: Singles, m: int = 4) -> ir.Tensor:
    """Winograd weight transform `G w G^T` of F(m, 3), for `nn.conv2d_winograd`.

    Args:
        w: Windows `[outputs, inputs, 3, 3]`, f32.
        m: Side of an output tile: 2 or 4.
        out: Output array, `[ceil(outputs / 32), (m + 2)^2, 16 * ceil(inputs / 16) + 1,
            32]`.
    """
    if m not in TRANSFORMS:
        raise ArgumentError(f"nn.conv2d_winograd_weight: m is 2 or 4, not {m!r}")
    _windows(tuple(map(int, w.shape)))
    return winograd_weights.of_side(w, m=m)


@operator(
    "nn.conv2d_winograd",
    aliases=(),
    shapes=((1, 64, 58, 58), (2, F4.points**2, 4 * LANES + 1, STRIP)),
    usual={"outputs": 64},
    scheduled_as="winograd",
    whole=True,
    tolerance=F4.tolerance,
)
def conv2d_winograd(  # noqa: PLR0917 - the order of `conv2d`
    x: Batch[Singles],
    weight: Singles,
    b: Singles | None = None,
    outputs: int = 0,
    padding: Padding = 0,
    activation: str | None = None,
    *,
    addend: Batch[Singles] | None = None,
) -> ir.Tensor:
    """Winograd convolution: `nn.conv2d` of f32 with transformed 3x3 windows.

    Args:
        x: Images `(batch, channels, height, width)`.
        weight: Result of `nn.conv2d_winograd_weight`.
        b: Bias, one value per output channel, or None.
        outputs: Number of output channels.
        padding: As for `nn.conv2d`.
        activation: As for `nn.conv2d`.
        addend: As for `nn.conv2d`.
    """
    id, given = "nn.conv2d_winograd", tuple(map(int, weight.shape))
    inputs = int(x.shape[1]) if x.ndim == 4 else 0
    m = _SIDES.get(given[1], 0) if len(given) == 4 else 0
    ir.require(
        m and inputs and given == packed_shape(outputs, inputs, TRANSFORMS[m]),
        f"weights of shape {given}, packed for {outputs} outputs, do not go with "
        f"images of shape {x.shape}",
    )
    n, size = x.shape[0], tuple(map(int, x.shape[2:]))
    w = (outputs, inputs, WINDOW, WINDOW)
    found = problem(id, (n, inputs, *size), w, {"padding": padding})
    biased(id, found, () if b is None else (tuple(map(int, b.shape)),), outputs)
    activation = activation_of(id, activation)
    cut = blocks(m, found)
    check_addend(addend, (n, outputs, *found.result))
    return winograd_fused.convolved(x, weight, b, cut, activation, addend=addend)
