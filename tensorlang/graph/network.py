"""Networks apart from their invocations: structure and weights here, data elsewhere.

A `Network` holds a program for use and one for training, for one unit of data and any
batch, and the weights by path. A `Context` (`tensorlang.graph.context`) is one
invocation: it has the batch, the data, the workspace and the device.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.graph.fusion import fuse
from tensorlang.graph.passes import fold, inline, without_doubles
from tensorlang.graph.program import Body, Graph, trace
from tensorlang.graph.references import Ref
from tensorlang.graph.scopes import mode, training
from tensorlang.graph.specs import Spec, TensorSpec
from tensorlang.graph.threading import refs_of, thread
from tensorlang.graph.weights import begun, begun_state, by_path, empty, fill
from tensorlang.ops import random

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tensorlang.graph.binding import Target
    from tensorlang.graph.context import Context
    from tensorlang.graph.running import Given, Result


@dataclass(frozen=True, slots=True)
class Pure:
    """A program without references, and those that it had.

    Attributes:
        graph: The program: behind its inputs and outputs stand those of the states.
        places: The references that became these.
    """

    graph: Graph
    places: tuple[Ref, ...]


def pure(apply: Body, specs: Sequence[Spec], *, train: bool) -> Pure:
    """The program that a function writes, with its state threaded and calls inlined."""
    with mode(train):
        written = trace(apply, specs, name="network")
    return Pure(inline(thread(written)), refs_of(written))


def optimized(graph: Graph) -> Graph:
    """The program after all passes."""
    return fuse(without_doubles(fold(graph)))


class Network:
    """Structure and weights: no batch, no data, no device.

    Attributes:
        apply: Writes the program: from symbolic inputs to outputs.
        specs: Of the inputs.
        use: The program that is used.
        weights: By path: arrays that all contexts share.
        states: By path: what training carries on beside weights, such as running
            moments, and the words of the generator's key.
    """

    def __init__(
        self,
        apply: Body,
        *specs: TensorSpec,
        key: random.Key | None = None,
        weights: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Write the programs, and make the weights.

        Args:
            apply: From symbolic inputs to outputs; layers make their weights in it.
            specs: Of the inputs; the batch is a name.
            key: What weights begin as, and what dropout draws from: consumed.
            weights: The weights, where they are known.

        Raises:
            ArgumentError: the key is not one key.
            GraphError: two weights have one path.
            WeightError: the weights that are given are not those of the network.
        """
        self.apply, self.specs = apply, specs
        self.use = pure(apply, specs, train=False)
        self.train = pure(apply, specs, train=True)
        self.program = optimized(self.use.graph)
        self.leaves = by_path((self.use.graph, self.train.graph))
        self.places = {
            place.name: place for place in (*self.use.places, *self.train.places)
        }
        self.weights: dict[str, np.ndarray] = {}
        self.states: dict[str, np.ndarray] = {}
        self._contexts: dict[Hashable, Context] = {}
        if key is not None and (not isinstance(key, random.Key) or key.shape):
            raise ArgumentError(
                f"a network begins with one key, such as random.key(0), not {key!r:.80}"
            )
        made, drawn = random.split(random.key(0) if key is None else key)
        self._begin(made, drawn, known=weights is not None)
        if weights is not None:
            self.set_weights(weights)

    def _begin(self, key: random.Key, drawn: random.Key, *, known: bool) -> None:
        """The first weights and states."""
        keys = random.split(key, max(len(self.leaves), 1))
        for (path, leaf), own in zip(self.leaves.items(), keys, strict=False):
            self.weights[path] = empty(leaf) if known else begun(leaf, own)
        places = random.split(drawn, max(len(self.places), 1))
        for (path, place), own in zip(self.places.items(), places, strict=False):
            self.states[path] = begun_state(place, own)

    # ------------------------------------------------------------- what it is

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """The specs of its outputs."""
        count = len(self.use.graph.outputs) - len(self.use.places)
        return tuple(value.spec for value in self.use.graph.outputs[:count])

    @property
    def parameters(self) -> int:
        """How many numbers training changes."""
        return sum(
            array.size
            for path, array in self.weights.items()
            if self.leaves[path].trainable
        )

    def __str__(self) -> str:
        return str(self.use.graph)

    def __repr__(self) -> str:
        given = ", ".join(map(str, self.specs))
        return f"<network {given} -> {', '.join(map(str, self.outputs))}>"

    # ---------------------------------------------------------------- weights

    def get_weights(self) -> dict[str, np.ndarray]:
        """Copies of all weights, by path."""
        return {path: array.copy() for path, array in self.weights.items()}

    def set_weights(self, given: Mapping[str, ArrayLike]) -> None:
        """Copy weights in: all of them, or none where something does not fit.

        Raises:
            WeightError: names what is missing, unused, or wrongly sized.
        """
        fill(self.weights, given, "weight")

    def get_states(self) -> dict[str, np.ndarray]:
        """Copies of all states, by path; of a key, its words."""
        return {path: array.copy() for path, array in self.states.items()}

    def set_states(self, given: Mapping[str, ArrayLike]) -> None:
        """Copy states in, as `set_weights` does.

        Raises:
            WeightError: names what is missing, unused, or wrongly sized.
        """
        fill(self.states, given, "state")

    # -------------------------------------------------------------------- use

    def transform(self, *inputs: Given, target: Target = None) -> Result:
        """What the network gives for arrays of any batch.

        A context is made for each batch and thread, and kept.

        Raises:
            ArgumentError, ShapeError, DTypeError: an input does not fit.
        """
        from tensorlang.graph.context import transform  # noqa: PLC0415 - runtime

        return transform(self, inputs, target)

    __call__ = transform


__all__ = ["Network", "Pure", "mode", "optimized", "pure", "training"]
