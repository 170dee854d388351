"""Weights transformed once for many convolutions, and the convolution by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import lazy
from tensorlang.ops.definition import operator
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn import convolution_plans as plans
from tensorlang.ops.nn.windows import hashable
from tensorlang.ops.nn.winograd import NAMES
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, transformed
from tensorlang.ops.nn.winograd_matrices import F4, TRANSFORMS, WINDOW
from tensorlang.ops.signature import Singles
from tensorlang.ops.tensors import Names, Plan, Shape, call, tensor_operator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensorlang.ir import Tensor
    from tensorlang.ops.nn import winograd_weights
    from tensorlang.ops.operator import Launch
    from tensorlang.workload import Workload
else:
    winograd_weights = lazy.module("tensorlang.ops.nn.winograd_weights")

CONVOLUTION: Final = "nn.conv2d"
_HERE: Final = "tensorlang.ops.nn.winograd_definitions"
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
    for name, usual in (("stride", 1), ("dilation", 1), ("groups", 1)):
        if set(np.ravel(given[name])) != {usual}:
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
    arrays = (x, w.array) if b is None else (x, w.array, b)
    kept = {name: given[name] for name in ("padding", "activation")}
    attributes = {"outputs": w.shape[0], **kept}
    return call(conv2d_winograd, arrays, attributes, (), target, out)


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


def _of_images(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], given: dict[str, Any]
) -> Plan:
    """The plan of the convolution that the weights were packed for."""
    id = "nn.conv2d_winograd"
    if set(dtypes) != {"f32"}:
        raise DTypeError(f"{id}: its arrays are f32, not {', '.join(dtypes)}")
    x, weight, *b = shapes
    outputs = given["outputs"]
    m = _SIDES.get(weight[1]) if len(weight) == 4 else None
    if len(x) != 4 or m is None or weight != transformed(outputs, x[1], TRANSFORMS[m]):
        raise ShapeError(
            f"{id}: weights of shape {weight}, packed for {outputs} outputs, do not go "
            f"with images of shape {x}"
        )
    asked = {"padding": given["padding"], "activation": given["activation"]}
    w = (outputs, x[1], WINDOW, WINDOW)
    plan = plans.forward(id, 2, (x, w, *b), dtypes, asked)
    kept = {name: plan.attributes[name] for name in asked}
    return Plan(shapes, dtypes, plan.results, {"outputs": outputs, **kept})


def _names(workload: Workload) -> Names:
    """The batch of the images is symbolic."""
    _, *others = workload.shapes
    return (("n", None, None, None), *[(None,) * len(shape) for shape in others])


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


@tensor_operator(
    "nn.conv2d_winograd",
    f"{_HERE}:packed",
    plan=_of_images,
    names=_names,
    shapes=((1, 64, 58, 58), (2, F4.points**2, 4 * LANES + 1, STRIP)),
    attributes={"outputs": 64, "padding": 0, "activation": None},
    allowed=("f32",),
    scheduled_as="winograd",
    tolerance=F4.tolerance,
)
def conv2d_winograd(  # noqa: PLR0917 - as `conv2d` has them
    x: Any,
    weight: Any,
    b: Any = None,
    outputs: int = 0,
    padding: Any = 0,
    activation: str | None = None,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """`nn.conv2d` by windows of 3 by 3 that are transformed (Winograd), f32.

    Args:
        x: Images `(batch, channels, height, width)`.
        weight: As `conv2d_winograd_weight` makes it.
        b: None, or a number to add for each output channel.
        outputs: How many output channels there are.
        padding: As for `nn.conv2d`.
        activation: As for `nn.conv2d`.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    attributes = {
        "outputs": outputs,
        "padding": hashable(padding),
        "activation": activation,
    }
    arrays = (x, weight) if b is None else (x, weight, b)
    return call(conv2d_winograd, arrays, attributes, (), target, out)
