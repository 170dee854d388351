"""Layers of vectors: dense layers, embeddings, norms, dropout, reshaping."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from tensorlang import graph
from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph.scopes import call_site, path, training
from tensorlang.graph.specs import KeySpec
from tensorlang.graph.values import OpResult, Tensor
from tensorlang.layers.initializers import (
    GlorotUniform,
    Initializer,
    Normal,
    Ones,
    Zeros,
)
from tensorlang.layers.layer import Activation, Layer, activated, checked_integer
from tensorlang.ops import math, nn

GENERATOR = "generator"


class Dense(Layer):
    """activation(x w^T + b) along the last dimension.

    Attributes:
        units: The number of outputs.
    """

    def __init__(
        self,
        units: int,
        activation: Activation = None,
        *,
        bias: Initializer | None = Zeros(),  # noqa: B008 - immutable
        weight: Initializer = GlorotUniform(),  # noqa: B008 - immutable
    ) -> None:
        """Set the number of outputs and the initialisers; None means no bias."""
        super().__init__()
        self.units = checked_integer("units of Dense", units, 0)
        self.activation = activation
        self.begin = weight, bias

    def apply(self, x: Tensor) -> OpResult:
        """Map floats `[..., in]` to `[..., units]`."""
        weight, bias = self.begin
        if not x.ndim:
            raise ShapeError(
                f"layer {path()!r} ({call_site()}): Dense takes floats of shape "
                f"[..., in], not {x.spec}"
            )
        w = self.weight("weight", (self.units, x.shape[-1]), weight, x.dtype)
        b = None if bias is None else self.weight("bias", (self.units,), bias, x.dtype)
        return activated(nn.dense(x, w, b), self.activation)

    def __repr__(self) -> str:
        return f"Dense({self.units})"


class Activate(Layer):
    """An activation as a layer."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def apply(self, x: Tensor) -> OpResult:
        """Apply the activation elementwise."""
        return activated(x, self.activation)

    def __repr__(self) -> str:
        return f"Activate({self.activation!r})"


class Flatten(Layer):
    """Flatten all dimensions after the batch."""

    def apply(self, x: Tensor) -> OpResult:
        """Map `[batch, ...]` to `[batch, n]`."""
        return nn.batch_flatten(x)


class Reshape(Layer):
    """Reshape the dimensions after the batch."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def apply(self, x: Tensor) -> OpResult:
        """Map `[batch, ...]` to `[batch, *shape]`."""
        return nn.reshape(x, (x.shape[0], *self.shape))


class Dropout(Layer):
    """Dropout in training, with a new mask for each layer and step.

    All layers of a network draw from one generator, whose key is threaded through them.

    Attributes:
        rate: The probability of dropping an element, 0 <= rate < 1.
    """

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.rate = rate

    def apply(self, x: Tensor) -> OpResult:
        """Keep the shape; the identity outside of training."""
        if not training():
            return x
        place = generator()
        y, after = nn.dropout_train(x, graph.read(place), self.rate)
        graph.write(place, after)
        return y

    def __repr__(self) -> str:
        return f"Dropout({self.rate})"


_GENERATOR = graph.ref(KeySpec(), GENERATOR)


def generator() -> graph.Ref:
    """The reference to the key that all layers of a network draw from, in order."""
    return _GENERATOR


class LayerNorm(Layer):
    """Normalise the last dimension to mean 0 and variance 1, then scale and shift."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def apply(self, x: Tensor) -> OpResult:
        """Keep the shape."""
        w = self.weight("weight", x.shape[-1:], Ones(), x.dtype)
        b = self.weight("bias", x.shape[-1:], Zeros(), x.dtype)
        return nn.layer_norm(x, w, b, self.eps)


class RMSNorm(Layer):
    """Divide the last dimension by its root mean square, then scale."""

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def apply(self, x: Tensor) -> OpResult:
        """Keep the shape."""
        w = self.weight("weight", x.shape[-1:], Ones(), x.dtype)
        return nn.rms_norm(x, w, self.eps)


class GroupNorm(Layer):
    """Normalise groups of channels, axis 1, then scale and shift each channel."""

    def __init__(self, groups: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.groups, self.eps = checked_integer("groups of GroupNorm", groups, 1), eps

    def apply(self, x: Tensor) -> OpResult:
        """Keep the shape."""
        w = self.weight("weight", x.shape[1:2], Ones(), x.dtype)
        b = self.weight("bias", x.shape[1:2], Zeros(), x.dtype)
        return nn.group_norm(x, self.groups, w, b, self.eps)

    def __repr__(self) -> str:
        return f"GroupNorm({self.groups})"


class BatchNorm(Layer):
    """Normalise each channel to mean 0, variance 1; in inference by running moments."""

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, axis: int = 1) -> None:
        super().__init__()
        self.eps, self.momentum, self.axis = eps, momentum, axis

    def apply(self, x: Tensor) -> OpResult:
        """Keep the shape."""
        if not -x.ndim <= self.axis < x.ndim:
            raise ShapeError(
                f"layer {path()!r} ({call_site()}): BatchNorm has its channels in axis "
                f"{self.axis}, which {x.spec} has not"
            )
        channels = (x.shape[self.axis],)
        w = self.weight("weight", channels, Ones(), x.dtype)
        b = self.weight("bias", channels, Zeros(), x.dtype)
        mean = self.state("running_mean", np.zeros(channels, x.spec.numpy))
        var = self.state("running_var", np.ones(channels, x.spec.numpy))
        held = graph.read(mean), graph.read(var)
        if not training():
            return nn.batch_norm(x, *held, w, b, eps=self.eps, axis=self.axis)
        given = {"momentum": self.momentum, "eps": self.eps, "axis": self.axis}
        y, *after = nn.batch_norm_train(x, *held, w, b, **given)
        graph.write(mean, after[0])
        graph.write(var, after[1])
        return y


class Embedding(Layer):
    """Look up rows of a table by index."""

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        weight: Initializer = Normal(0.0, 1.0),  # noqa: B008 - immutable
        dtype: str = "float32",
    ) -> None:
        super().__init__()
        self.rows = checked_integer("rows of Embedding", rows)
        self.width = checked_integer("width of Embedding", width)
        self.begin, self.dtype = weight, dtype

    def apply(self, ids: Tensor) -> OpResult:
        """Map integers `[...]` to `[..., width]`."""
        table = self.weight("weight", (self.rows, self.width), self.begin, self.dtype)
        return nn.embedding(ids, table)

    def __repr__(self) -> str:
        return f"Embedding({self.rows}, {self.width})"


class EmbeddingBag(Embedding):
    """Look up rows of a table and combine those of each bag, as in PyTorch."""

    def __init__(
        self,
        rows: int,
        width: int,
        mode: Literal["mean", "sum", "max"] = "mean",
        *,
        weight: Initializer = Normal(0.0, 1.0),  # noqa: B008 - immutable
        dtype: str = "float32",
    ) -> None:
        """Set the size of the table, and how rows are combined.

        Raises:
            ArgumentError: unknown mode.
        """
        super().__init__(rows, width, weight=weight, dtype=dtype)
        if mode not in _COMBINED:
            raise ArgumentError(
                f"mode of EmbeddingBag is {', '.join(_COMBINED)}, not {mode!r}"
            )
        self.mode = mode

    def apply(self, ids: Tensor, factors: Tensor | None = None) -> OpResult:
        """Map bags of integers `[..., count]` to `[..., width]`.

        Args:
            ids: Row indices.
            factors: Factors of the rows, of the shape of `ids`; for bags of different
                sizes, 0 for the rest of a bag whose rows are summed.
        """
        rows = super().apply(ids)
        if factors is not None:
            rows = rows * factors[..., None]
        return _COMBINED[self.mode](rows, -2)


_COMBINED: Final = {"mean": math.mean, "sum": math.sum, "max": math.max}
