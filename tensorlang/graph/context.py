"""Contexts: one invocation of a network, with its batch, data, gradients and device.

Any number of them may work with one network at the same time, each in a thread of its
own; all of them see its weights change.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.errors import ShapeError
from tensorlang.graph.autodiff import gradients
from tensorlang.graph.binding import Bound, bind
from tensorlang.graph.leaves import Weight
from tensorlang.graph.loops import Storage
from tensorlang.graph.network import Network, Pure, optimized, pure
from tensorlang.graph.program import Graph
from tensorlang.graph.running import KEPT, checked, given_back, sizes_of
from tensorlang.graph.scopes import named, within
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import Value

if TYPE_CHECKING:
    from tensorlang.graph.references import Ref

Target = Any


class Context:
    """An invocation of a network for use.

    Attributes:
        network: The network; `swap` puts another in its place.
        sizes: The batch, and whatever else has a name.
        target: Where it computes.
        bound: Its program, with memory of its own.
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
        """
        self.sizes = dict(sizes or {}) | ({} if batch is None else {"batch": batch})
        self.target = target
        self.network = network
        self.bound = self._bound()

    def _bound(self) -> Bound:
        net = self.network
        known = memory(net, net.program, net.use.places)
        return bind(net.program, self.sizes, known, target=self.target)

    @property
    def workspace(self) -> int:
        """Bytes of what is computed on the way."""
        return self.bound.workspace

    def transform(self, *inputs: Any) -> Any:
        """What the network gives; states are read, and not changed.

        Raises:
            ArgumentError, ShapeError, DTypeError: an input does not fit.
        """
        graph = self.network.program
        return self.run(given_to(graph, inputs, len(self.network.specs)))

    def run(self, arrays: Sequence[Storage]) -> Any:
        """The same for arrays, and words of keys, that are known to fit in type."""
        graph = self.network.program
        place(self.bound.inputs[: len(arrays)], arrays, graph, self.sizes)
        self.bound()
        kept = len(graph.outputs) - len(self.network.use.places)
        made = tuple(map(given_back, graph.outputs[:kept], self.bound.outputs))
        return made[0] if kept == 1 else made

    __call__ = transform

    def swap(self, network: Network) -> None:
        """Put another network in place of this one; the next call uses it.

        Raises:
            ShapeError: it takes or gives something else.
        """
        if (network.specs, network.outputs) != (
            self.network.specs,
            self.network.outputs,
        ):
            raise ShapeError(f"{network!r} cannot take the place of {self.network!r}")
        self.network = network
        self.bound = self._bound()


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


def given_to(graph: Graph, inputs: Sequence[Any], count: int) -> list[Storage]:
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


def transform(network: Network, inputs: Sequence[Any], target: Target) -> Any:
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


# ------------------------------------------------------------------- training


class TrainingProgram:
    """Loss, outputs, next states and gradients of a network, as one program.

    Attributes:
        network: The network.
        truths: Specs of what the loss compares with.
        graph: From inputs, truths and states to the loss, the outputs, the states, and
            a gradient for each of `leaves`.
        leaves: The weights that training changes.
    """

    def __init__(
        self,
        network: Network,
        loss: Callable[..., Any],
        truths: Sequence[TensorSpec],
    ) -> None:
        """Write it.

        Args:
            network: The network.
            loss: From its outputs and the truths to a tensor of one element.
            truths: Specs of what the loss compares with.
        """
        self.network, self.truths = network, tuple(truths)
        count = len(network.specs)

        def whole(*given: Any) -> tuple[Any, ...]:
            made = network.apply(*given[:count])
            outputs = made if isinstance(made, tuple) else (made,)
            with named("loss"):
                return (loss(*outputs, *given[count:]), *outputs)

        made = pure(whole, (*network.specs, *truths), train=True)
        self.places = made.places
        self.leaves = tuple(v for v in made.graph.weights if v.trainable)
        self.graph = optimized(_with_gradients(made, self.leaves))


def _with_gradients(made: Pure, leaves: Sequence[Weight]) -> Graph:
    graph = made.graph
    with within(graph.scope):
        found = gradients(graph.outputs[0], leaves)
    outputs = (*graph.outputs, *found)
    return Graph(
        graph.inputs, outputs, name="training", scope=graph.scope, single=False
    )


class TrainingContext:
    """An invocation of a training program: batch, data, gradients, workspace, device.

    Attributes:
        program: The program.
        sizes: The batch, and whatever else has a name.
        bound: The program on memory.
        gradients: The gradient of each weight, by path, of the last run.
        weights: The weights that training changes, by path: the network's own.
    """

    def __init__(
        self,
        program: TrainingProgram,
        sizes: Mapping[str, int],
        *,
        target: Target = None,
    ) -> None:
        self.program, self.sizes = program, dict(sizes)
        network, graph = program.network, program.graph
        known = memory(network, graph, program.places)
        self.bound = bind(graph, sizes, known, target=target)
        paths = [leaf.path for leaf in program.leaves]
        outputs = self.bound.outputs
        first = len(outputs) - len(paths)
        self.gradients = dict(zip(paths, outputs[first:], strict=True))
        self.weights = {path: network.weights[path] for path in paths}
        count = len(program.places)
        states = zip(program.places, outputs[first - count : first], strict=True)
        self.bound.steps += [
            (np.copyto, (network.states[each.name], held)) for each, held in states
        ]
        self._shown = outputs[1 : first - count]

    @property
    def workspace(self) -> int:
        """Bytes of what is computed on the way."""
        return self.bound.workspace

    def run(self, *arrays: Any) -> float:
        """Forward and back on inputs and truths: the loss; gradients stand ready.

        Raises:
            ArgumentError, ShapeError, DTypeError: an array does not fit.
        """
        graph = self.program.graph
        count = len(graph.inputs) - len(self.program.places)
        given = given_to(graph, arrays, count)
        place(self.bound.inputs[:count], given, graph, self.sizes)
        self.bound()
        return float(self.bound.outputs[0].reshape(-1)[0])

    @property
    def outputs(self) -> tuple[Storage, ...]:
        """What the network gave in the last run: this context's memory, not a copy."""
        return tuple(self._shown)
