"""Networks, separate from their invocations: structure and weights.

A `Network` holds an inference and a training program for a symbolic batch, and the
weights by path. A `Context` (`tensorlang.graph.networks.context`) is one invocation,
with batch, data, workspace and device.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.frozen import frozen
from tensorlang.graph.execution.running import KEPT, sizes_of
from tensorlang.graph.networks.context import Context, input_arrays
from tensorlang.graph.networks.weights import (
    by_path,
    empty,
    fill,
    initial_state,
    initial_weight,
)
from tensorlang.graph.passes.approximation import checked, tolerant
from tensorlang.graph.passes.attention import fuse_attention
from tensorlang.graph.passes.autocast import autocasted, narrow
from tensorlang.graph.passes.fusion import fuse
from tensorlang.graph.passes.optimisation import fold, inline, without_doubles
from tensorlang.graph.passes.threading import refs_of, thread
from tensorlang.graph.program import Body, Graph, trace
from tensorlang.graph.references import Ref
from tensorlang.graph.scopes import mode, training
from tensorlang.graph.specs import KeySpec, Spec, TensorSpec
from tensorlang.notebooks import card
from tensorlang.ops import random

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tensorlang.graph.execution.binding import Target
    from tensorlang.graph.execution.running import Input, Result


@frozen
class Pure:
    """A program whose references became inputs and outputs."""

    graph: Graph  # program; states follow its inputs and outputs
    places: tuple[Ref, ...]  # references that became states


def pure(apply: Body, specs: Sequence[Spec], *, train: bool) -> Pure:
    """Trace a function, thread its state and inline its calls."""
    with mode(train):
        written = trace(apply, specs, name="network")
    return Pure(inline(thread(written)), refs_of(written))


def optimized(graph: Graph) -> Graph:
    """Apply all optimisation passes."""
    return fuse(fuse_attention(without_doubles(fold(graph))))


@dataclass(slots=True)
class Edition:
    """The values of weights that only `set_weights` changes."""

    number: int = 0  # counts the changes
    # what programs keep of frozen weights, by kernel and arrays
    kept: dict[Hashable, tuple[np.ndarray, ...]] = field(default_factory=dict)


class Network:
    """Structure and weights: no batch, data or device.

    Attributes:
        apply: Maps symbolic inputs to outputs when traced.
        specs: The specs of the inputs.
        autocast: The type that f32 products are computed in, if another.
        tolerance: Error allowed of each f32 product in inference, if any.
        use: The inference program.
        weights: Arrays by path, shared by all contexts.
        states: By path: other state that training updates, such as running moments and
            the words of the generator's key.
        edition: The values of its weights; shared by networks that share them.
    """

    def __init__(
        self,
        apply: Body,
        *specs: TensorSpec,
        key: random.Key | None = None,
        weights: Mapping[str, ArrayLike] | None = None,
        autocast: str | None = None,
        tolerance: float | None = None,
    ) -> None:
        """Trace the programs and initialise the weights.

        Args:
            apply: Maps symbolic inputs to outputs; its layers create their weights.
            specs: The specs of the inputs; the batch is a named size.
            key: Initialises weights and dropout; it is consumed.
            weights: The initial weights, if known.
            autocast: The type that f32 products are computed in; see
                `tensorlang.graph.passes.autocast`.
            tolerance: Error allowed of each f32 product in inference; see
                `tensorlang.graph.passes.approximation`.

        Raises:
            ArgumentError: the key is a batch of keys, `autocast` is no narrow float, or
                `tolerance` no relative error.
            GraphError: two weights have the same path.
            WeightError: the given weights do not match the network.
        """
        self.apply, self.specs = apply, specs
        self.autocast = None if autocast is None else narrow(autocast)
        self.use = pure(apply, specs, train=False)
        self.train = pure(apply, specs, train=True)
        self.tolerance = checked(tolerance)
        used = tolerant(autocasted(self.use.graph, self.autocast), self.tolerance)
        self.program = optimized(used)
        self.leaves = by_path((self.use.graph, self.train.graph))
        self.places = {
            place.name: place for place in (*self.use.places, *self.train.places)
        }
        self.weights: dict[str, np.ndarray] = {}
        self.states: dict[str, np.ndarray] = {}
        self.edition = Edition()
        self._contexts: dict[Hashable, Context] = {}
        if key is not None and (not isinstance(key, random.Key) or key.shape):
            raise ArgumentError(
                "a network is initialised with one key, such as random.key(0), not "
                f"{key!r:.80}"
            )
        made, drawn = random.split(random.key(0) if key is None else key)
        self._begin(made, drawn, known=weights is not None)
        if weights is not None:
            self.set_weights(weights)

    def _begin(self, key: random.Key, drawn: random.Key, *, known: bool) -> None:
        """Initialise weights and states."""
        keys = random.split(key, max(len(self.leaves), 1))
        for (path, leaf), own in zip(self.leaves.items(), keys, strict=False):
            self.weights[path] = empty(leaf) if known else initial_weight(leaf, own)
        places = random.split(drawn, max(len(self.places), 1))
        for (path, place), own in zip(self.places.items(), places, strict=False):
            self.states[path] = initial_state(place, own)

    # ------------------------------------------------------------- what it is

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """The specs of its outputs."""
        count = len(self.use.graph.outputs) - len(self.use.places)
        return tuple(value.spec for value in self.use.graph.outputs[:count])

    @property
    def parameters(self) -> int:
        """The number of trainable parameters."""
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

    def _repr_html_(self) -> str:
        """What a notebook shows: specs, the number of parameters, the graph's text."""
        facts = {
            "inputs": ", ".join(map(str, self.specs)),
            "outputs": ", ".join(map(str, self.outputs)),
            "trainable parameters": f"{self.parameters:,}",
        }
        return card("network", facts, [("graph", "python", str(self))])

    # ---------------------------------------------------------------- weights

    def get_weights(self) -> dict[str, np.ndarray]:
        """Copies of all weights, by path."""
        return {path: array.copy() for path, array in self.weights.items()}

    def set_weights(self, given: Mapping[str, ArrayLike]) -> None:
        """Copy all weights in, or none if anything does not fit.

        Raises:
            WeightError: names what is missing, unused or has the wrong shape or dtype.
        """
        self._fill(self.weights, given, "weight")

    def _fill(
        self, held: dict[str, np.ndarray], given: Mapping[str, ArrayLike], kind: str
    ) -> None:
        """Copy arrays in, also into frozen ones; what depends on these is then old."""
        frozen = [each for each in held.values() if not each.flags.writeable]
        for array in frozen:
            array.flags.writeable = True
        try:
            fill(held, given, kind)
        finally:
            for array in frozen:
                array.flags.writeable = False
            self.edition.number += 1

    def freeze(self) -> None:
        """Fix weights and states: only `set_weights` and `set_states` change them now.

        Their arrays become read-only, but for keys. What depends on them alone, such as
        weights in the order in which a kernel reads them or times the scale of a batch
        norm, is computed once and kept.
        """
        states = [
            array
            for path, array in self.states.items()
            if not isinstance(self.places[path].spec, KeySpec)
        ]
        for array in (*self.weights.values(), *states):
            array.flags.writeable = False
        self._contexts.clear()

    def get_states(self) -> dict[str, np.ndarray]:
        """Copies of all states, by path; for a key, its words."""
        return {path: array.copy() for path, array in self.states.items()}

    def set_states(self, given: Mapping[str, ArrayLike]) -> None:
        """Copy states in, as `set_weights` does.

        Raises:
            WeightError: names what is missing, unused or has the wrong shape or dtype.
        """
        self._fill(self.states, given, "state")

    # -------------------------------------------------------------------- use

    def transform(self, *inputs: Input, target: Target = None) -> Result:
        """Run inference on arrays of any batch size.

        A context is created and cached for each batch size and thread.

        Raises:
            ArgumentError, ShapeError, DTypeError: an input does not fit.
        """
        arrays = input_arrays(self.program, inputs, len(self.specs))
        own = self.program.inputs[: len(arrays)]
        sizes = sizes_of(self.program.name, own, arrays)
        key = (threading.get_ident(), target, tuple(sorted(sizes.items())))
        context = self._contexts.get(key)
        if context is None:
            if len(self._contexts) >= KEPT:
                self._contexts.clear()
            context = Context(self, sizes=sizes, target=target)
            self._contexts[key] = context
        return context.run(arrays)

    __call__ = transform


__all__ = ["Network", "Pure", "mode", "optimized", "pure", "training"]
