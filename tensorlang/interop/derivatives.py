"""Derivatives of calls as programs of further calls, to be run by another framework.

The rules are those of `tensorlang.graph`; higher derivatives are those of the calls. A
missing derivative raises an error when requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from tensorlang.errors import GraphError
from tensorlang.frozen import frozen
from tensorlang.graph.applying import apply
from tensorlang.graph.differentiation import autodiff
from tensorlang.graph.differentiation.gradients import is_float, or_zeros
from tensorlang.graph.forms import LET
from tensorlang.graph.networks.leaves import CONSTANTS
from tensorlang.graph.program import Graph
from tensorlang.graph.scopes import Scope, entered
from tensorlang.graph.specs import Spec
from tensorlang.graph.values import (
    ZEROS,
    Argument,
    Arguments,
    Value,
    map_values,
    value_of,
    values_in,
    zeros,
)
from tensorlang.interop.calls import Call, bound, hashable
from tensorlang.ops.operator import Operator

T = TypeVar("T")  # an array of the other framework


@frozen(eq=False)
class Step:
    """A call in a program."""

    op: Operator
    args: Arguments  # its arguments in parameter order, without arrays
    # for each array parameter, its position and its array number or numbers in the
    # program
    arrays: tuple[tuple[int, int | tuple[int, ...]], ...]
    count: int  # number of its results


@frozen(eq=False)
class Program:
    """Calls that compute a derivative.

    Arrays are numbered: inputs, then constants, then the results of each call.
    """

    inputs: int  # number of inputs
    fixed: tuple[Value, ...]  # constants, and values that are zeros
    steps: tuple[Step, ...]  # calls, in order
    # numbers of the results; None where a result depends on nothing
    outputs: tuple[int | None, ...]

    def run(
        self,
        given: Sequence[T],
        call: Callable[[Operator, list[Argument]], Sequence[T]],
        array: Callable[[Value], T],
    ) -> list[T | None]:
        """Run it on arrays of a framework.

        Args:
            given: The inputs.
            call: Calls an operator with arguments in parameter order.
            array: Creates an array for a constant, or zeros for any other value.
        """
        now = [*given, *map(array, self.fixed)]
        for step in self.steps:
            args = list(step.args)
            for at, numbers in step.arrays:
                if isinstance(numbers, int):
                    args[at] = now[numbers]
                else:
                    args[at] = [now[n] for n in numbers]
            made = call(step.op, args)
            assert len(made) == step.count, (step.op, len(made))
            now += made
        return [None if at is None else now[at] for at in self.outputs]


@lru_cache(maxsize=4096)
def backward(
    call: Call,
    specs: tuple[Spec, ...],
    there: tuple[bool, ...],
    wanted: tuple[int, ...],
) -> Program:
    """Gradients of a call's arrays from those of its results.

    Args:
        specs: Specs of its arrays.
        there: Which results have a gradient.
        wanted: Which arrays need a gradient.

    Returns:
        Maps the arrays and present gradients to the wanted gradients.

    Raises:
        GraphError: the operator has no gradient.
    """
    with entered(f"{call.op.id} backward") as scope:
        arrays, results = _applied(call, specs)
        dys = [
            value_of(y.spec) if t else None for y, t in zip(results, there, strict=True)
        ]
        asked = [arrays[at] for at in wanted]
        found = autodiff.backward(results, dys, asked)
    inputs = [*arrays, *(dy for dy in dys if dy is not None)]
    return _program(inputs, [found.get(value) for value in asked], scope)


@lru_cache(maxsize=4096)
def forward(call: Call, specs: tuple[Spec, ...], moving: tuple[int, ...]) -> Program:
    """Tangents of a call's results from those of its arrays.

    The gradient is linear in the result's gradient; its own gradient with respect to
    that is the tangent.

    Args:
        specs: Specs of its arrays.
        moving: Which arrays have a tangent.

    Returns:
        Maps the arrays and their tangents to the tangents of the results; None for
        non-float results.

    Raises:
        GraphError: the operator, or its gradient, has no gradient.
    """
    with entered(f"{call.op.id} forward") as scope:
        arrays, results = _applied(call, specs)
        seeds = [zeros(y.spec) if is_float(y) else None for y in results]
        asked = [arrays[at] for at in moving]
        found = autodiff.backward(results, seeds, asked)
        tangents = [value_of(value.spec) for value in asked]
        pairs = [
            (found[value], tangent)
            for value, tangent in zip(asked, tangents, strict=True)
            if value in found
        ]
        linear = [seed for seed in seeds if seed is not None]
        made = autodiff.backward([g for g, _ in pairs], [t for _, t in pairs], linear)
        outputs = [
            None if seed is None else or_zeros(made.get(seed), seed) for seed in seeds
        ]
    return _program([*arrays, *tangents], outputs, scope)


def _applied(
    call: Call, specs: Sequence[Spec]
) -> tuple[list[Value], tuple[Value, ...]]:
    arrays = [value_of(spec) for spec in specs]
    args, kwargs = call.arguments(arrays)
    made = apply(call.op, tuple(args), kwargs)
    return arrays, made if isinstance(made, tuple) else (made,)


def _program(
    inputs: Sequence[Value], outputs: Sequence[Value | None], scope: Scope
) -> Program:
    made = [value for value in outputs if value is not None]
    graph = Graph(inputs, made, name=scope.name, scope=scope, single=False)
    zero = [node.results[0] for node in graph.nodes if node.op is ZEROS]
    held = [*made, *(value for node in graph.nodes for value in node.inputs)]
    fixed = dict.fromkeys((*zero, *(v for v in held if isinstance(v, CONSTANTS))))
    numbers = {value: at for at, value in enumerate((*inputs, *fixed))}
    steps = []
    for node in graph.nodes:
        if node.op is LET:
            numbers[node.results[0]] = numbers[node.args[0]]
        elif isinstance(node.op, Operator):
            args = bound(node.op, node.args, node.kwargs)
            arrays = [(at, a) for at, a in enumerate(args) if [*values_in(a)]]
            places = tuple(
                (at, hashable(map_values(a, numbers.get))) for at, a in arrays
            )
            steps.append(Step(node.op, tuple(args), places, len(node.results)))
            count = len(inputs) + len(fixed) + sum(step.count for step in steps[:-1])
            numbers.update((v, count + n) for n, v in enumerate(node.results))
        elif node.op is not ZEROS:
            raise GraphError(f"{node.id} ({node.place}) is not an operator")
    results = tuple(None if value is None else numbers[value] for value in outputs)
    return Program(len(inputs), tuple(fixed), tuple(steps), results)
