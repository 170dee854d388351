"""Training a network: one program from data to gradients, and its invocations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tensorlang.errors import ArgumentError, GraphError, TargetError
from tensorlang.graph.differentiation.autodiff import gradients
from tensorlang.graph.execution.binding import Target, bind
from tensorlang.graph.execution.loops import Storage
from tensorlang.graph.execution.running import Input
from tensorlang.graph.networks.context import copy_inputs, input_arrays, memory
from tensorlang.graph.networks.leaves import Weight
from tensorlang.graph.networks.network import Network, Pure, optimized, pure
from tensorlang.graph.passes.autocast import autocasted
from tensorlang.graph.program import Body, Graph
from tensorlang.graph.recurrent import saving, step_by_step
from tensorlang.graph.scopes import named, within
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import OpResult, Value


class TrainingProgram:
    """Loss, outputs, next states and gradients of a network, as one program.

    Attributes:
        network: The network.
        truths: Specs of the targets that the loss compares with.
        graph: Maps inputs, targets and states to the loss, the outputs, the states, and
            a gradient for each of `leaves`.
        leaves: The trainable weights.
        parts: The names of the network's layers, and `loss`.
    """

    def __init__(
        self, network: Network, loss: Body, truths: Sequence[TensorSpec]
    ) -> None:
        """Trace the program.

        Args:
            loss: Maps its outputs and the targets to a tensor of one element.
            truths: Specs of the targets.

        Raises:
            GraphError: the loss depends on no weight.
        """
        self.network, self.truths = network, tuple(truths)
        count = len(network.specs)

        def whole(*given: Value) -> tuple[Value, ...]:
            made = network.apply(*given[:count])
            outputs = made if isinstance(made, tuple) else (made,)
            with named("loss"):
                return (_number(loss(*outputs, *given[count:])), *outputs)

        made = pure(whole, (*network.specs, *truths), train=True)
        steps = saving if network.autocast is None else step_by_step  # narrow products
        made = replace(made, graph=autocasted(steps(made.graph), network.autocast))
        self.places = made.places
        self.parts = {node.path.partition(".")[0] for node in made.graph.nodes}
        self.leaves = tuple(v for v in made.graph.weights if v.trainable)
        self.graph = optimized(_with_gradients(made, self.leaves))

    def without_outputs(self) -> Graph:
        """The same program without the network's outputs."""
        graph = self.graph
        kept = len(self.places) + len(self.leaves)
        outputs = (graph.outputs[0], *graph.outputs[len(graph.outputs) - kept :])
        return Graph(
            graph.inputs, outputs, name=graph.name, scope=graph.scope, single=False
        )


def _number(loss: OpResult) -> Value:
    if not isinstance(loss, Value):
        raise ArgumentError(f"the loss returns {loss!r:.60}; it must return one tensor")
    return loss


def _with_gradients(made: Pure, leaves: Sequence[Weight]) -> Graph:
    graph = made.graph
    with within(graph.scope):
        found = gradients(graph.outputs[0], leaves)
    if leaves and all(value.node and value.node.id == "zeros" for value in found):
        raise GraphError(
            f"the loss depends on none of the weights ({leaves[0].path}, ...): compute "
            "it from the network's outputs, by operators that have gradients"
        )
    outputs = (*graph.outputs, *found)
    return Graph(
        graph.inputs, outputs, name="training", scope=graph.scope, single=False
    )


def _check_target(target: Target, parts: set[str]) -> None:
    unknown = set(target) - parts - {""} if isinstance(target, Mapping) else set()
    if unknown:
        raise TargetError(
            f"a target is given for {', '.join(map(repr, sorted(unknown)))}, which is "
            f"not a layer; there is {', '.join(sorted(filter(None, parts)))}"
        )


class TrainingContext:
    """An invocation of a training program: batch, data, gradients, workspace, device.

    Attributes:
        program: The program.
        sizes: The batch and other named sizes.
        bound: The bound program.
        gradients: The gradient of each weight by path, from the last run.
        weights: The trainable weights by path, shared with the network.
    """

    def __init__(
        self,
        program: TrainingProgram,
        sizes: Mapping[str, int],
        *,
        target: Target = None,
        outputs: bool = True,
    ) -> None:
        """Bind a training program for a batch.

        Args:
            sizes: The batch and other named sizes.
            target: Where to compute.
            outputs: Whether the network's outputs are kept to the end of a run.

        Raises:
            TargetError: the target names an unknown layer.
        """
        _check_target(target, program.parts)
        self.program, self.sizes = program, dict(sizes)
        network, graph = program.network, program.graph
        known = memory(network, graph, program.places)
        chosen = graph if outputs else program.without_outputs()
        self.bound = bind(chosen, sizes, known, target=target)
        paths = [leaf.path for leaf in program.leaves]
        made = self.bound.outputs
        first = len(made) - len(paths)
        self.gradients = dict(zip(paths, made[first:], strict=True))
        self.weights = {path: network.weights[path] for path in paths}
        count = len(program.places)
        states = zip(program.places, made[first - count : first], strict=True)
        self.bound.steps += [
            (np.copyto, (network.states[each.name], held)) for each, held in states
        ]
        self._shown = made[1 : first - count]

    @property
    def workspace(self) -> int:
        """Bytes used by a step: activations, gradients, outputs.

        Excludes weights, optimizer state, the copies of inputs and targets, and
        temporary memory of kernels.
        """
        return self.bound.workspace

    def run(self, *arrays: Input) -> float:
        """Run forward and backward on inputs and targets, and return the loss.

        Raises:
            ArgumentError, ShapeError, DTypeError: an array does not fit.
        """
        graph = self.program.graph
        count = len(graph.inputs) - len(self.program.places)
        given = input_arrays(graph, arrays, count)
        copy_inputs(self.bound.inputs[:count], given, graph, self.sizes)
        self.bound()
        return float(self.bound.outputs[0].reshape(-1)[0])

    @property
    def outputs(self) -> tuple[Storage, ...]:
        """The network's outputs of the last run: this context's memory, not a copy.

        Empty if it was created without outputs.
        """
        return tuple(self._shown)
