"""Layers of vectors: dense ones, embeddings, norms, dropout, and what only reshapes."""

from __future__ import annotations

import numpy as np

from tensorlang import graph
from tensorlang.errors import ShapeError
from tensorlang.graph.scopes import outside, path, training
from tensorlang.graph.specs import KeySpec
from tensorlang.graph.values import Made, Tensor
from tensorlang.layers.initializers import (
    GlorotUniform,
    Initializer,
    Normal,
    Ones,
    Zeros,
)
from tensorlang.layers.layer import Activation, Layer, activated, whole
from tensorlang.ops import nn

GENERATOR = "generator"


class Dense(Layer):
    """activation(x w^T + b) of the last dimension.

    Attributes:
        units: How many numbers come out.
    """

    def __init__(
        self,
        units: int,
        activation: Activation = None,
        *,
        bias: Initializer | None = Zeros(),  # noqa: B008 - a value
        weight: Initializer = GlorotUniform(),  # noqa: B008 - a value
    ) -> None:
        """Say how many, and how they begin; no bias where it is None."""
        super().__init__()
        self.units, self.activation = whole("units of Dense", units, 0), activation
        self.begin = weight, bias

    def apply(self, x: Tensor) -> Made:
        """Floats `[..., in]` to `[..., units]`."""
        weight, bias = self.begin
        if not x.ndim:
            raise ShapeError(
                f"layer {path()!r} ({outside()}): Dense takes floats of shape "
                f"[..., in], not {x.spec}"
            )
        w = self.weight("weight", (self.units, x.shape[-1]), weight, x.dtype)
        b = None if bias is None else self.weight("bias", (self.units,), bias, x.dtype)
        return activated(nn.dense(x, w, b), self.activation)

    def __repr__(self) -> str:
        return f"Dense({self.units})"


class Activate(Layer):
    """An activation as a layer of its own."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def apply(self, x: Tensor) -> Made:
        """The activation of each number."""
        return activated(x, self.activation)

    def __repr__(self) -> str:
        return f"Activate({self.activation!r})"


class Flatten(Layer):
    """All dimensions behind the batch as one."""

    def apply(self, x: Tensor) -> Made:
        """`[batch, ...]` to `[batch, n]`."""
        return nn.batch_flatten(x)


class Reshape(Layer):
    """Another shape of what stands behind the batch."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.shape = shape

    def apply(self, x: Tensor) -> Made:
        """`[batch, ...]` to `[batch, *shape]`."""
        return nn.reshape(x, (x.shape[0], *self.shape))


class Dropout(Layer):
    """In training, numbers that are dropped; each layer and step drops others.

    All layers of a network draw from one generator, whose key is threaded through them.

    Attributes:
        rate: The share that is dropped, 0 <= rate < 1.
    """

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.rate = rate

    def apply(self, x: Tensor) -> Made:
        """The same shape; out of training, the same numbers."""
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
    """Where the key lies that all layers of a network draw from, in their order."""
    return _GENERATOR


class LayerNorm(Layer):
    """The last dimension, of mean 0 and variance 1, then scaled and moved."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def apply(self, x: Tensor) -> Made:
        """The same shape."""
        w = self.weight("weight", x.shape[-1:], Ones(), x.dtype)
        b = self.weight("bias", x.shape[-1:], Zeros(), x.dtype)
        return nn.layer_norm(x, w, b, self.eps)


class RMSNorm(Layer):
    """The last dimension over the root of its mean square, then scaled."""

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def apply(self, x: Tensor) -> Made:
        """The same shape."""
        w = self.weight("weight", x.shape[-1:], Ones(), x.dtype)
        return nn.rms_norm(x, w, self.eps)


class BatchNorm(Layer):
    """Each channel of mean 0 and variance 1; in use, by the moments of training."""

    def __init__(self, eps: float = 1e-5, momentum: float = 0.1, axis: int = 1) -> None:
        super().__init__()
        self.eps, self.momentum, self.axis = eps, momentum, axis

    def apply(self, x: Tensor) -> Made:
        """The same shape."""
        if not -x.ndim <= self.axis < x.ndim:
            raise ShapeError(
                f"layer {path()!r} ({outside()}): BatchNorm has its channels in axis "
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
    """Rows of a table, by their numbers."""

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        weight: Initializer = Normal(0.0, 1.0),  # noqa: B008 - a value
        dtype: str = "float32",
    ) -> None:
        super().__init__()
        self.rows = whole("rows of Embedding", rows)
        self.width = whole("width of Embedding", width)
        self.begin, self.dtype = weight, dtype

    def apply(self, ids: Tensor) -> Made:
        """Whole numbers `[...]` to `[..., width]`."""
        table = self.weight("weight", (self.rows, self.width), self.begin, self.dtype)
        return nn.embedding(ids, table)

    def __repr__(self) -> str:
        return f"Embedding({self.rows}, {self.width})"
