"""Contexts: one invocation of a network, with its batch, data, gradients and device.

Several contexts may use one network concurrently, each in its own thread; all see
updates of its weights.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph.execution.binding import Bound, Target, bind
from tensorlang.graph.execution.loops import Storage
from tensorlang.graph.execution.running import Input, Result, input_array, to_result
from tensorlang.graph.program import Graph
from tensorlang.graph.values import Value

if TYPE_CHECKING:
    from tensorlang.graph.networks.network import Network
    from tensorlang.graph.references import Ref


class Context:
    """An inference invocation of a network.

    Attributes:
        sizes: The batch and other named sizes.
        target: Where it computes.
    """

    def __init__(
        self,
        network: Network,
        batch: int | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        target: Target = None,
    ) -> None:
        """Bind the network's program for a batch.

        Args:
            network: The network, whose weights are shared.
            batch: The size named `batch`.
            sizes: Other named sizes.
            target: Where to compute.

        Raises:
            ArgumentError: a size is not an integer.
        """
        self.sizes = dict(sizes or {}) | ({} if batch is None else {"batch": batch})
        wrong = {k: v for k, v in self.sizes.items() if not _counts(v)}
        if wrong:
            raise ArgumentError(f"sizes are non-negative integers, not {wrong}")
        self.target = target
        self._alone = threading.Lock()  # guards the memory
        self._held = network, self._bound(network)  # replaced atomically by `swap`

    def _bound(self, net: Network) -> Bound:
        known = memory(net, net.program, net.use.places)
        self._edition = net.edition.number
        kept = net.edition.kept
        return bind(net.program, self.sizes, known, target=self.target, store=kept)

    @property
    def network(self) -> Network:
        """The network; `swap` replaces it."""
        return self._held[0]

    @property
    def bound(self) -> Bound:
        """Its program, bound to memory of its own."""
        return self._held[1]

    @property
    def workspace(self) -> int:
        """Bytes of intermediate values."""
        return self.bound.workspace

    @property
    def kept(self) -> int:
        """Bytes kept between runs: what depends on frozen weights alone, as packed."""
        return self.bound.kept

    def transform(self, *inputs: Input) -> Result:
        """Run the network; states are read but not changed.

        Raises:
            ArgumentError, ShapeError, DTypeError: an input does not fit.
        """
        graph = self.network.program
        return self.run(input_arrays(graph, inputs, len(self.network.specs)))

    def run(self, arrays: Sequence[Storage]) -> Result:
        """`transform` for arrays and key words whose types are already checked."""
        network, bound = self._held
        graph = network.program
        kept = len(graph.outputs) - len(network.use.places)
        with self._alone:
            copy_inputs(bound.inputs[: len(arrays)], arrays, graph, self.sizes)
            if self._edition != network.edition.number:
                self._edition = network.edition.number
                bound.refresh()
            bound()
            made = tuple(map(to_result, graph.outputs[:kept], bound.outputs))
        return made[0] if kept == 1 else made

    __call__ = transform

    def swap(self, network: Network) -> None:
        """Replace the network; the next call uses the new one.

        A call running in another thread finishes with the old one.

        Raises:
            ShapeError: its inputs or outputs differ.
        """
        if (network.specs, network.outputs) != (
            self.network.specs,
            self.network.outputs,
        ):
            raise ShapeError(f"{network!r} cannot replace {self.network!r}")
        self._held = network, self._bound(network)


def _counts(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and int(value) >= 0


def memory(
    network: Network, graph: Graph, places: Sequence[Ref]
) -> dict[Value, Storage]:
    """The memory of a program's weights and of its states, the last inputs."""
    known: dict[Value, Storage] = {
        leaf: network.weights[leaf.path] for leaf in network.leaves.values()
    }
    last = graph.inputs[len(graph.inputs) - len(places) :]
    known.update(
        (value, network.states[each.name])
        for value, each in zip(last, places, strict=True)
    )
    return known


def input_arrays(graph: Graph, inputs: Sequence[Input], count: int) -> list[Storage]:
    """The arrays for the first inputs of a program.

    Raises:
        ArgumentError, DTypeError: they do not fit.
    """
    if len(inputs) != count:
        raise ShapeError(f"{graph.name} takes {count} inputs, got {len(inputs)}")
    return [
        input_array(graph.name, value, given)
        for value, given in zip(graph.inputs, inputs, strict=False)
    ]


def copy_inputs(
    to: Sequence[Storage],
    arrays: Sequence[Storage],
    graph: Graph,
    sizes: Mapping[str, int],
) -> None:
    """Copy arrays into a context's memory.

    Raises:
        ShapeError: they do not match its sizes.
    """
    for held, array, value in zip(to, arrays, graph.inputs, strict=False):
        if held.shape != array.shape:
            raise ShapeError(
                f"{graph.name}: {value.name} is {value.spec} with {dict(sizes)}, not "
                f"of shape {array.shape}"
            )
        np.copyto(held, array)
