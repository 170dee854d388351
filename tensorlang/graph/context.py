"""Contexts: one invocation of a network, with its batch, data, gradients and device.

Any number of them may work with one network at the same time, each in a thread of its
own; all of them see its weights change.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.graph.binding import Bound, Target, bind
from tensorlang.graph.loops import Storage
from tensorlang.graph.network import Network
from tensorlang.graph.program import Graph
from tensorlang.graph.running import KEPT, Given, Result, checked, given_back, sizes_of
from tensorlang.graph.values import Value

if TYPE_CHECKING:
    from tensorlang.graph.references import Ref


class Context:
    """An invocation of a network for use.

    Attributes:
        sizes: The batch, and whatever else has a name.
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
            network: Whose weights it shares.
            batch: The size called `batch`.
            sizes: Others that have names.
            target: Where to compute.

        Raises:
            ArgumentError: a size is no whole number.
        """
        self.sizes = dict(sizes or {}) | ({} if batch is None else {"batch": batch})
        wrong = {k: v for k, v in self.sizes.items() if not _counts(v)}
        if wrong:
            raise ArgumentError(f"sizes are whole numbers from 0 on, not {wrong}")
        self.target = target
        self._alone = threading.Lock()  # of the memory
        self._held = network, self._bound(network)  # changed at once, by `swap`

    def _bound(self, net: Network) -> Bound:
        known = memory(net, net.program, net.use.places)
        return bind(net.program, self.sizes, known, target=self.target)

    @property
    def network(self) -> Network:
        """The network; `swap` puts another in its place."""
        return self._held[0]

    @property
    def bound(self) -> Bound:
        """Its program, with memory of its own."""
        return self._held[1]

    @property
    def workspace(self) -> int:
        """Bytes of what is computed on the way."""
        return self.bound.workspace

    def transform(self, *inputs: Given) -> Result:
        """What the network gives; states are read, and not changed.

        Raises:
            ArgumentError, ShapeError, DTypeError: an input does not fit.
        """
        graph = self.network.program
        return self.run(given_to(graph, inputs, len(self.network.specs)))

    def run(self, arrays: Sequence[Storage]) -> Result:
        """The same for arrays, and words of keys, that are known to fit in type."""
        network, bound = self._held
        graph = network.program
        kept = len(graph.outputs) - len(network.use.places)
        with self._alone:
            place(bound.inputs[: len(arrays)], arrays, graph, self.sizes)
            bound()
            made = tuple(map(given_back, graph.outputs[:kept], bound.outputs))
        return made[0] if kept == 1 else made

    __call__ = transform

    def swap(self, network: Network) -> None:
        """Put another network in place of this one; the next call uses it.

        A call that runs in another thread at this moment ends with the old one.

        Raises:
            ShapeError: it takes or gives something else.
        """
        if (network.specs, network.outputs) != (
            self.network.specs,
            self.network.outputs,
        ):
            raise ShapeError(f"{network!r} cannot take the place of {self.network!r}")
        self._held = network, self._bound(network)


def _counts(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and int(value) >= 0


def memory(
    network: Network, graph: Graph, places: Sequence[Ref]
) -> dict[Value, Storage]:
    """The memory of a program's weights, and of its states: its last inputs."""
    known: dict[Value, Storage] = {
        leaf: network.weights[leaf.path] for leaf in network.leaves.values()
    }
    last = graph.inputs[len(graph.inputs) - len(places) :]
    known.update(
        (value, network.states[each.name])
        for value, each in zip(last, places, strict=True)
    )
    return known


def given_to(graph: Graph, inputs: Sequence[Given], count: int) -> list[Storage]:
    """The arrays for the first inputs of a program.

    Raises:
        ArgumentError, DTypeError: they do not fit.
    """
    if len(inputs) != count:
        raise ShapeError(f"{graph.name} takes {count} inputs, got {len(inputs)}")
    return [
        checked(graph.name, value, given)
        for value, given in zip(graph.inputs, inputs, strict=False)
    ]


def place(
    to: Sequence[Storage],
    arrays: Sequence[Storage],
    graph: Graph,
    sizes: Mapping[str, int],
) -> None:
    """Copy arrays into a context's memory.

    Raises:
        ShapeError: they are not of its sizes.
    """
    for held, array, value in zip(to, arrays, graph.inputs, strict=False):
        if held.shape != array.shape:
            raise ShapeError(
                f"{graph.name}: {value.name} is {value.spec} with {dict(sizes)}, not "
                f"of shape {array.shape}"
            )
        np.copyto(held, array)


def transform(network: Network, inputs: Sequence[Given], target: Target) -> Result:
    """See `Network.transform`."""
    arrays = given_to(network.program, inputs, len(network.specs))
    own = network.program.inputs[: len(arrays)]
    sizes = sizes_of(network.program.name, own, arrays)
    key = (threading.get_ident(), target, tuple(sorted(sizes.items())))
    context = network._contexts.get(key)  # noqa: SLF001 - which keeps them for this
    if context is None:
        if len(network._contexts) >= KEPT:  # noqa: SLF001 - the same
            network._contexts.clear()  # noqa: SLF001 - the same
        context = Context(network, sizes=sizes, target=target)
        network._contexts[key] = context  # noqa: SLF001 - the same
    return context.run(arrays)
