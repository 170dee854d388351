"""The steps of a program that is bound for an export: workloads, not kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang import ir
from tensorlang.codegen import constant_stages
from tensorlang.errors import GraphError
from tensorlang.frozen import frozen
from tensorlang.graph.execution.binding import Binder, planned
from tensorlang.graph.execution.constant_values import constants_of, read_only
from tensorlang.ops.algorithms import DIRECT
from tensorlang.ops.kernels import building, kept
from tensorlang.ops.kernels.ahead import Noting
from tensorlang.ops.operator import Operator

if TYPE_CHECKING:
    from tensorlang.graph.execution.loops import Storage
    from tensorlang.graph.program import Graph
    from tensorlang.graph.values import Node, Value
    from tensorlang.targets import Target
    from tensorlang.workload import Workload


@frozen(eq=False)
class Called(kept.Asked):
    """The stand-in for a kernel of which a part depends on constants alone."""

    constants: tuple[int, ...] = ()  # positions of the constant arrays


class Taking(Noting):
    """A target whose steps tell what they compute, and with which arrays."""

    each_call = True

    def built(self, op: Operator, workload: Workload) -> Called:
        """The stand-in for the kernel of a workload."""
        return Called(op, workload)

    def divided(
        self, asked: kept.Asked, constants: Sequence[int], arguments: tuple[Any, ...]
    ) -> kept.Step:
        """The step of a kernel in two parts."""
        return Called(asked.op, asked.workload, tuple(constants)).launch, arguments


_taking = cache(Taking)  # operators remember what they are asked for


@frozen
class Step:
    """A kernel with its arguments: arrays, then numbers."""

    called: Called
    arguments: tuple[Any, ...]

    @property
    def op(self) -> Operator:
        """What it computes."""
        return self.called.op

    @property
    def workload(self) -> Workload:
        """The shapes and attributes that it computes it for."""
        return self.called.workload

    @property
    def arrays(self) -> list[np.ndarray]:
        """Its arrays."""
        return [each for each in self.arguments if isinstance(each, np.ndarray)]


@frozen
class Bound:
    """A program bound for an export."""

    steps: tuple[Step, ...]  # what is run at each call
    inputs: tuple[Storage, ...]  # arrays of the program's inputs
    outputs: tuple[Storage, ...]  # arrays of its outputs
    block: np.ndarray  # memory of what steps compute
    fixed: tuple[Storage, ...]  # parts of it that hold constants
    values: tuple[Storage, ...]  # array of each value, in the order of the program


def laid_out(
    graph: Graph, sizes: Mapping[str, int], known: Mapping[Value, Storage], on: Target
) -> tuple[Graph, dict[Value, Storage]]:
    """A program in the layouts that a target prefers, and its outside values."""
    return planned(graph, sizes, {v: _fixed(a) for v, a in known.items()}, on)


def bound(
    program: Graph, sizes: Mapping[str, int], known: Mapping[Value, Storage], on: Target
) -> Bound:
    """A program bound to memory, with its constants computed.

    Raises:
        GraphError: it has loops or conditions, or an operator that looks at data.
    """
    binder = Binder(program, sizes, dict(known), _taking(on))
    made = binder.bound()
    nodes = {id(step): node for step, node in zip(made.steps, made.nodes, strict=True)}
    for step in _steps(program, made.once, nodes):
        step.op.build(step.workload).launch(*step.arguments)
    constant = constants_of(program, read_only(known))
    block = made.held[0]
    assert isinstance(block, np.ndarray)
    return Bound(
        tuple(_steps(program, made.steps, nodes)),
        made.inputs,
        made.outputs,
        block,
        tuple(array for value, array in binder.at.items() if value in constant),
        tuple(binder.at.values()),
    )


def _fixed(array: Storage) -> Storage:
    """A view that is not written."""
    view = array.view()
    view.flags.writeable = False
    return view


def _steps(
    program: Graph, given: Sequence[kept.Step], nodes: Mapping[int, Node]
) -> list[Step]:
    made = []
    for step in given:
        launch, arguments = step
        called = getattr(launch, "__self__", None)
        if not isinstance(called, Called):
            node = nodes.get(id(step))
            which = repr(node.id) if node else "an operator"
            layer = f" in layer {node.path!r}" if node and node.path else ""
            raise GraphError(
                f"{program.name} has no export: {which}{layer} is not a kernel; loops, "
                "conditions and operators that look at the contents of arrays run "
                "from Python only"
            )
        made.append(Step(called, arguments))
    return made


@frozen
class Parts:
    """The scheduled functions of a step, and the algorithm."""

    algorithm: str  # its name
    # part that depends on constants alone; None if there is none
    constant: ir.Function | None
    rest: ir.Function


def parts(step: Step, on: Target) -> Parts:
    """The functions of a step on a target."""
    constants = step.called.constants
    algorithm, schedule = building.best(step.op, step.workload, on, constants)
    found = constant_stages.divided(schedule.function, constants)
    if found is None:
        return Parts(algorithm, None, schedule.function)
    return Parts(algorithm, found.constant, found.rest)


def serves(step: Step, algorithm: str, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether the kernel of a step computes arrays of other shapes, too."""
    step.op.function(step.workload, algorithm)  # its trace is known then
    traces = [step.op.traced(step.workload, name) for name in (DIRECT, algorithm)]
    ones = all(
        extent == 1
        for symbols, shape in zip(traces[0].symbols, shapes, strict=True)
        for symbol, extent in zip(symbols, shape, strict=True)
        if symbol is None
    )
    return ones and all(trace.serves(shapes) for trace in traces)
