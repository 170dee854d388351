"""Image layers: convolutions and pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph.scopes import call_site, path
from tensorlang.graph.specs import Extent
from tensorlang.graph.values import OpResult, Tensor
from tensorlang.layers.initializers import GlorotUniform, Initializer, Zeros
from tensorlang.layers.layer import Activation, Layer, activated, checked_integer
from tensorlang.ops import nn

Sizes: TypeAlias = int | tuple[int, ...]  # for all dimensions, or one per dimension
Padding: TypeAlias = str | int | tuple[int | tuple[int, int], ...]
Operation: TypeAlias = Callable[..., OpResult]


class _Convolution(Layer):
    """A convolution with `rank` spatial dimensions."""

    rank: ClassVar[int]
    op: ClassVar[Operation]

    def __init__(
        self,
        filters: int,
        size: int | tuple[int, ...],
        activation: Activation = None,
        *,
        stride: Sizes = 1,
        padding: Padding = "valid",
        dilation: Sizes = 1,
        groups: int = 1,
        layout: str | None = None,
        bias: Initializer | None = Zeros(),  # noqa: B008 - immutable
        weight: Initializer = GlorotUniform(),  # noqa: B008 - immutable
    ) -> None:
        """Set number and size of the filters, and the initialisers."""
        super().__init__()
        name = type(self).__name__
        self.filters = checked_integer(f"filters of {name}", filters)
        self.activation = activation
        sizes = (size,) * self.rank if isinstance(size, int) else tuple(size)
        self.size = tuple(checked_integer(f"size of {name}", each) for each in sizes)
        if len(self.size) != self.rank:
            raise ArgumentError(f"{name} has a size of {self.rank} numbers, not {size}")
        self.groups = groups
        self.given: dict[str, object] = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "layout": layout,
        }
        self.begin = weight, bias

    def apply(self, x: Tensor) -> OpResult:
        """Map `(batch, channels, *spatial)` to `(batch, filters, *spatial)`."""
        weight, bias = self.begin
        if x.ndim != self.rank + 2:
            raise ShapeError(
                f"layer {path()!r} ({call_site()}): {self!r} takes images of "
                f"{self.rank + 2} dimensions, with batch and channels, not {x.spec}"
            )
        last = str(self.given["layout"] or "NC").index("C") != 1
        shape = self._of_weight(x.shape[-1 if last else 1])
        w = self.weight("weight", shape, weight, x.dtype)
        b = None
        if bias is not None:
            b = self.weight("bias", (self.filters,), bias, x.dtype)
        return activated(type(self).op(x, w, b, **self.given), self.activation)

    def _of_weight(self, channels: Extent) -> tuple[Extent, ...]:
        if isinstance(channels, int):  # `weight` rejects a symbolic size
            channels //= self.groups
        return (self.filters, channels, *self.size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.filters}, {self.size})"


class Conv1D(_Convolution):
    """Convolution over sequences `(batch, channels, length)`."""

    rank = 1
    op = nn.conv1d


class Conv2D(_Convolution):
    """Convolution over images `(batch, channels, height, width)`."""

    rank = 2
    op = nn.conv2d


class Conv3D(_Convolution):
    """Convolution over volumes `(batch, channels, depth, height, width)`."""

    rank = 3
    op = nn.conv3d


class _TransposedConvolution(_Convolution):
    """A transposed convolution, as in PyTorch."""

    def __init__(
        self,
        filters: int,
        size: int | tuple[int, ...],
        activation: Activation = None,
        *,
        output_padding: Sizes = 0,
        **given: Any,
    ) -> None:
        """Set number and size of the filters; other options are those of a convolution.

        Args:
            filters: The number of output channels.
            size: The window.
            activation: Applied to the result.
            output_padding: Extra size at the end of each spatial dimension.
            given: As for a convolution: those of the convolution that is transposed.
        """
        super().__init__(filters, size, activation, **given)
        self.given["output_padding"] = output_padding

    def _of_weight(self, channels: Extent) -> tuple[Extent, ...]:
        return (channels, self.filters // self.groups, *self.size)


class Conv1DTranspose(_TransposedConvolution):
    """Transposed convolution over sequences; see `nn.conv1d_transpose`."""

    rank = 1
    op = nn.conv1d_transpose


class Conv2DTranspose(_TransposedConvolution):
    """Transposed convolution over images; see `nn.conv2d_transpose`."""

    rank = 2
    op = nn.conv2d_transpose


class Conv3DTranspose(_TransposedConvolution):
    """Transposed convolution over volumes; see `nn.conv3d_transpose`."""

    rank = 3
    op = nn.conv3d_transpose


class _Pool(Layer):
    """Pooling of windows in each channel."""

    op: ClassVar[Operation]

    def __init__(
        self, size: Sizes, stride: Sizes | None = None, **given: object
    ) -> None:
        """Set the windows; other options are those of the operator."""
        super().__init__()
        self.size, self.stride, self.given = size, stride, given

    def apply(self, x: Tensor) -> OpResult:
        """Pool the spatial dimensions."""
        return type(self).op(x, self.size, self.stride, **self.given)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size})"


class AvgPool2D(_Pool):
    """Average pooling of images."""

    op = nn.avg_pool2d


class MaxPool2D(_Pool):
    """Max pooling of images."""

    op = nn.max_pool2d


class AvgPool1D(_Pool):
    """Average pooling of sequences."""

    op = nn.avg_pool1d


class MaxPool1D(_Pool):
    """Max pooling of sequences."""

    op = nn.max_pool1d


class GlobalAvgPool(Layer):
    """The average of each channel."""

    def apply(self, x: Tensor) -> OpResult:
        """Map `(batch, channels, *spatial)` to `(batch, channels, 1, ...)`."""
        return nn.global_avg_pool(x)
