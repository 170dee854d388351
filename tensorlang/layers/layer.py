"""Layers: hyper-parameters first, inputs later, weights once a shape is known.

    head = Sequential(Flatten(), Dense(128, activation="relu"), Dense(10))
    y = head(x)                              # x: a symbolic tensor of any shape

A custom layer is a function of its inputs; layers in its attributes, or in lists and
dictionaries there, are registered under their names:

    class Residual(Layer):
        def __init__(self, width):
            super().__init__()
            self.inner = Dense(width, activation="relu")

        def apply(self, x):
            return self.inner(x) + x
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self, TypeAlias

import numpy as np

from tensorlang import graph
from tensorlang.errors import ArgumentError, GraphError, ShapeError, TensorlangError
from tensorlang.graph.networks.leaves import Data, Weight
from tensorlang.graph.program import Body
from tensorlang.graph.scopes import call_site, named, path
from tensorlang.graph.specs import Dim, Extent, Spec, TensorSpec
from tensorlang.graph.values import OpResult, Tensor
from tensorlang.layers.initializers import Initializer
from tensorlang.layers.input_checks import checked
from tensorlang.layers.summary import recorded
from tensorlang.ops import math, nn

Activation: TypeAlias = str | Callable[[Tensor], Tensor] | None

_ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "relu": nn.relu,
    "gelu": nn.gelu,
    "silu": nn.silu,
    "hard_swish": nn.hard_swish,
    "sigmoid": nn.sigmoid,
    "tanh": nn.tanh,
    "softplus": nn.softplus,
    "leaky_relu": nn.leaky_relu,
    "softmax": nn.softmax,
    "log_softmax": nn.log_softmax,
    "sin": math.sin,
}


class Layer:
    """A layer; subclasses define `apply`.

    Applying a layer several times shares its weights.

    Attributes:
        name: Its name in the enclosing layer.
    """

    name: str = ""

    _weights: dict[str, Weight]
    _refs: dict[str, graph.Ref]

    def __new__(cls, *_: object, **__: object) -> Self:
        """Create a layer without weights, even if a subclass skips `__init__`."""
        made = super().__new__(cls)
        made._weights, made._refs = {}, {}
        return made

    def apply(self, *inputs: Any) -> OpResult:  # each layer has its own parameters
        """Compute the outputs from symbolic inputs.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no apply(self, x)")

    def __call__(self, *inputs: Tensor) -> OpResult:
        """Apply it to symbolic tensors; the first call creates its weights.

        Raises:
            ShapeError: the input does not fit; names the layer and both shapes.
            ArgumentError: a wrong number of inputs, or only arrays outside of a
                program.
        """
        with named(self.name), recorded(self) as row, located(), checked(self, inputs):
            made = self.apply(*inputs)
            if row is not None:
                row.weights = list(self._weights.values())
                several = made if isinstance(made, tuple) else (made,)
                row.shapes = ", ".join(str(value.spec) for value in several)
            return made

    def __setattr__(self, name: str, value: object) -> None:
        for label, layer in _layers(name, value):
            if not layer.name:
                object.__setattr__(layer, "name", label)
        object.__setattr__(self, name, value)

    @property
    def children(self) -> tuple[Layer, ...]:
        """The layers that it contains, in order."""
        found = [layer for k, v in vars(self).items() for _, layer in _layers(k, v)]
        return tuple(dict.fromkeys(found))

    def weight(
        self,
        name: str,
        shape: Sequence[Extent],
        initial: Initializer,
        dtype: str = "float32",
        *,
        trainable: bool = True,
    ) -> Weight:
        """A weight of this layer, created on first use.

        Args:
            name: Its name in the layer.
            shape: Its shape, of integers.
            initial: Its initialiser.
            trainable: Whether training updates it.

        Raises:
            ArgumentError: the initialiser is none.
            ShapeError: the shape changed, or is symbolic.
        """
        if not callable(initial):
            raise ArgumentError(
                f"layer {path()!r} ({call_site()}): the {name} of "
                f"{type(self).__name__} is begun by an initialiser such as "
                f"layers.initializers.Zeros(), or left out by None, not {initial!r:.80}"
            )
        if any(isinstance(extent, Dim) for extent in shape):
            raise ShapeError(
                f"layer {path()!r} ({call_site()}): {type(self).__name__} needs a "
                f"{name} of shape {tuple(shape)}; give the input these sizes as numbers"
            )
        spec = TensorSpec(tuple(shape), dtype)
        made = self._weights.get(name)
        if made is None:
            whole = ".".join(filter(None, (path(), name)))
            made = self._weights[name] = Weight(
                spec, whole, initial, trainable=trainable
            )
        if made.spec != spec:
            raise ShapeError(
                f"layer {path()!r} ({call_site()}): {type(self).__name__} has a {name} "
                f"of {made.spec}, made for its first input; here it would be {spec}"
            )
        return made

    def state(self, name: str, initial: Data | Spec) -> graph.Ref:
        """State that training updates besides weights, accessed as a reference."""
        if name not in self._refs:
            whole = ".".join(filter(None, (path(), name)))
            self._refs[name] = graph.ref(initial, whole)
        return self._refs[name]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@contextmanager
def located() -> Iterator[None]:
    """Context that adds the layer to errors."""
    try:
        yield
    except RecursionError:
        first = ".".join(path().split(".")[:3])
        raise GraphError(
            f"layer {first!r} ({call_site()}): layers are applied recursively without "
            "end; is one a part of itself?"
        ) from None
    except TensorlangError as problem:
        where = path()
        if not where or "layer '" in str(problem):
            raise
        raise type(problem)(f"layer {where!r} ({call_site()}): {problem}") from problem


def checked_integer(what: str, value: object, least: int = 1) -> int:
    """An integer hyper-parameter; ArgumentError if not an integer, or too small."""
    if isinstance(value, (int, np.integer)) and value >= least:
        return int(value)
    raise ArgumentError(f"{what} is an integer of at least {least}, not {value!r}")


def _layers(name: str, value: object) -> Iterator[tuple[str, Layer]]:
    """The layers in an attribute, with their names."""
    if isinstance(value, Layer):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for n, each in enumerate(value):
            if isinstance(each, Layer):
                yield f"{name}.{n}", each
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(each, Layer):
                yield f"{name}.{key}", each


class Sequential(Layer):
    """A sequence of layers or functions of one tensor.

    Attributes:
        layers: Its elements, named by number.
    """

    def __init__(self, *layers: Body) -> None:
        """Combine layers.

        Raises:
            ArgumentError: an element is not callable.
        """
        super().__init__()
        for n, layer in enumerate(layers):
            if isinstance(layer, type):
                called = layer.__name__
                raise ArgumentError(
                    f"Sequential: {called} at {n} is a class; write {called}(...)"
                )
            if not callable(layer):
                raise ArgumentError(f"Sequential: {layer!r} at {n} is not a layer")
            if isinstance(layer, Layer) and not layer.name:
                layer.name = str(n)
        self.layers = layers

    def apply(self, *inputs: Tensor) -> OpResult:
        """Apply each element to the result of the previous one."""
        value: OpResult = inputs
        for n, layer in enumerate(self.layers):
            given = value if isinstance(value, tuple) else (value,)
            if isinstance(layer, Layer):
                value = layer(*given)
            else:  # a function has no name of its own
                with named(str(n)), located():
                    value = layer(*given)
        return value

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(_shown, self.layers))})"


def _shown(layer: object) -> str:
    return repr(layer) if isinstance(layer, Layer) else str(getattr(layer, "id", layer))


def activated(x: Tensor, activation: Activation) -> Tensor:
    """Apply an activation, a name or function; ArgumentError if it is unknown."""
    if activation is None:
        return x
    if callable(activation):
        return activation(x)
    if activation not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ArgumentError(f"there is no activation {activation!r}; there is {known}")
    return _ACTIVATIONS[activation](x)
