"""Branches and loops of ONNX as ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import graph
from tensorlang.graph.values import Value
from tensorlang.onnx.calls import Call
from tensorlang.ops import math, nn


def branch(call: Call) -> Any:
    """An `If`: of a condition that is known, the branch that is taken alone."""
    names = ("then_branch", "else_branch")
    blocks = [call.given[name] for name in names]
    (test,) = call.inputs
    call.program.settle()
    if not isinstance(test, Value):
        chosen = blocks[0] if bool(np.reshape(test, -1)[0]) else blocks[1]
        return tuple(call.program.inside(chosen, call.around))
    absent: list[list[bool]] = []

    def written(block: Any) -> Any:
        outputs = call.program.inside(block, call.around)
        absent.append([value is None for value in outputs])
        return tuple(value for value in outputs if value is not None)

    made = graph.cond(test, lambda: written(blocks[0]), lambda: written(blocks[1]))
    return _filled(absent[0], made)


def loop(call: Call) -> Any:
    """A `Loop` that scans nothing: a counted one, or one that asks after each turn."""
    body = call.given["body"]
    count, go, *start = call.inputs
    if len(body.output) - 1 != len(start):
        raise call.refuse("we have loops that stack nothing of their turns")
    call.program.settle()
    absent = [value is None for value in start]
    carry = [value for value in start if value is not None]

    def turn(number: Any, test: Any, *held: Any) -> tuple[Any, tuple[Any, ...]]:
        given = (number, test, *_filled(absent, held))
        again, *after = call.program.inside(body, call.around, given)
        return again, tuple(value for value in after if value is not None)

    if _steady(body, go):
        turns = count if isinstance(count, Value) else int(np.reshape(count, -1)[0])

        def counted(number: Any, *held: Any) -> Any:
            return turn(number, np.array(True), *held)[1]

        return _filled(absent, graph.loop(turns, counted, *carry))
    return _filled(absent, _asking(count, go, turn, carry))


def _asking(count: Any, go: Any, turn: Any, carry: list[Any]) -> Any:
    """A loop that goes on while its condition holds, and no longer than it may."""

    def going(number: Any, test: Any, *_: Any) -> Any:
        return test if count is None else math.logical_and(test, _less(number, count))

    def step(number: Any, test: Any, *held: Any) -> Any:
        again, after = turn(number, test, *held)
        return (math.add(number, np.array(1)), _one(again), *after)

    first = np.array(True) if go is None else go
    begin = (np.array(0), _one(first), *carry)
    return graph.while_loop(going, step, *begin)[2:]


def _less(number: Any, count: Any) -> Any:
    return math.less(number, _one(count))


def _one(value: Any) -> Any:
    """A value of one element, without dimensions."""
    if not isinstance(value, Value):
        return np.reshape(value, ())
    return nn.reshape(value, ()) if value.ndim else value


def _steady(body: Any, go: Any) -> bool:
    """Whether a loop's condition holds from the first to the last turn."""
    if not (go is None or (not isinstance(go, Value) and bool(np.reshape(go, -1)[0]))):
        return False
    made = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    while name in made and made[name].op_type in {"Identity", "Cast"}:
        name = made[name].input[0]
    return bool(name == body.input[1].name)


def _filled(absent: list[bool], values: Any) -> tuple[Any, ...]:
    """The values, with None where there was none."""
    left = iter(values)
    return tuple(None if gone else next(left) for gone in absent)
