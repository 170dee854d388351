"""Branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorlang import graph
from tensorlang.errors import GraphError
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Node, Value
from tensorlang.onnx.calls import Call
from tensorlang.onnx.reading import reads
from tensorlang.onnx.writer import Writer, typed, writes
from tensorlang.ops import math, nn

_BOOL, _INT64 = 9, 7  # of onnx.TensorProto


@reads("If", folds=True)
def branch(call: Call, cond: Any, *, then_branch: Any, else_branch: Any) -> Any:
    """An `If`; where the condition is known, the branch that is taken alone."""
    inside, around = call.program.inside, call.around
    call.program.settle()
    if not isinstance(cond, Value):
        return tuple(inside(then_branch if _one(cond) else else_branch, around))
    absent: list[list[bool]] = []

    def written(block: Any) -> Any:
        outputs = inside(block, around)
        absent.append([value is None for value in outputs])
        return _present(outputs, absent[0])

    made = graph.cond(cond, lambda: written(then_branch), lambda: written(else_branch))
    return _filled(absent[0], made)


def _present(values: Sequence[Any], absent: list[bool]) -> tuple[Any, ...]:
    """The values without those that are absent.

    Raises:
        GraphError: others are.
    """
    if [value is None for value in values] != absent:
        raise GraphError("its branches, or what it carries, differ in what is absent")
    return tuple(value for value in values if value is not None)


@reads("Loop", folds=True)
def loop(
    call: Call, count: Any = None, cond: Any = None, *start: Value, body: Any
) -> Any:
    """A `Loop` that stacks nothing of its turns: counted, or asking after each."""
    if (len(body.input), len(body.output)) != (len(start) + 2, len(start) + 1):
        raise GraphError(
            f"its body takes {len(body.input)} values and gives {len(body.output)}, "
            f"beside {len(start)} that are carried; stacking turns is not supported"
        )
    call.program.settle()
    absent = [value is None for value in start]
    carry = _present(start, absent)

    def turn(number: Any, test: Any, *held: Any) -> tuple[Any, tuple[Any, ...]]:
        given = (number, test, *_filled(absent, held))
        again, *after = call.program.inside(body, call.around, given)
        return again, _present(after, absent)

    if not _steady(body, cond):
        return _filled(absent, _asking(count, cond, turn, carry))
    if count is None:
        raise GraphError("it has neither a count nor a condition, and never ends")
    turns = count if isinstance(count, Value) else max(int(_one(count)), 0)

    def counted(number: Any, *held: Any) -> Any:
        return turn(number, np.array(True), *held)[1]

    return _filled(absent, graph.loop(turns, counted, *carry))


def _asking(count: Any, cond: Any, turn: Any, carry: tuple[Any, ...]) -> Any:
    """A loop that goes on while its condition holds, and no longer than it may."""

    def going(number: Any, test: Any, *_: Any) -> Any:
        if count is None:
            return test
        return math.logical_and(test, math.less(number, _one(count)))

    def step(number: Any, test: Any, *held: Any) -> Any:
        again, after = turn(number, test, *held)
        return (math.add(number, np.array(1)), _one(again), *after)

    first = np.array(True) if cond is None else cond
    begin = (np.array(0), _one(first), *carry)
    return graph.while_loop(going, step, *begin)[2:]


def _one(value: Any) -> Any:
    """A value of one element, without dimensions.

    Raises:
        GraphError, ShapeError: it has more.
    """
    if isinstance(value, Value):
        return nn.reshape(value, ()) if value.ndim else value
    if value.size != 1:
        raise GraphError(f"shape {value.shape}, where one element is needed")
    return value.reshape(())


def _steady(body: Any, cond: Any) -> bool:
    """Whether a loop's condition holds from the first to the last turn."""
    if isinstance(cond, Value) or not (cond is None or _one(cond)):
        return False
    made = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    for _ in body.node:
        if name in made and made[name].op_type in {"Identity", "Cast"}:
            (name,) = made[name].input[:1] or [""]
    return bool(name == body.input[1].name)


def _filled(absent: list[bool], values: Any) -> tuple[Any, ...]:
    """The values, with None where there was none."""
    left = iter(values)
    return tuple(None if gone else next(left) for gone in absent)


@writes("if")
def write_branch(writer: Writer, node: Node) -> Any:
    """An `If`, whose branches see what is around them."""
    blocks = [
        writer.block(graph.name, (), partial(writer.inside, graph, ()))
        for graph in node.graphs
    ]
    names = ("then_branch", "else_branch")
    return writer.emit(
        "If",
        _scalar(writer, writer.name(node.args[0]), node.args[0], _BOOL),
        results=len(node.results),
        **dict(zip(names, blocks, strict=True)),
    )


@writes("for")
def write_counted(writer: Writer, node: Node) -> Any:
    """A `Loop` of a number of turns."""
    (body,), count = node.graphs, node.kwargs["count"]
    turns = (
        writer.constant(np.array(count, np.int64))
        if isinstance(count, int)
        else _scalar(writer, writer.name(count), count, _INT64)
    )

    def turn(test: str, carry: Sequence[str], number: str) -> list[str]:
        return [writer.emit("Identity", test), *writer.inside(body, [number, *carry])]

    yes = writer.constant(np.array(True))
    return _loop(writer, node, (turns, yes), turn)


@writes("while")
def write_asking(writer: Writer, node: Node) -> Any:
    """A `Loop` that goes on while a condition of what it carries holds."""
    test, body = node.graphs

    def holds(carry: Sequence[str]) -> str:
        (name,) = writer.inside(test, carry)
        return _scalar(writer, name, test.outputs[0], _BOOL)

    def turn(_: str, carry: Sequence[str], __: str) -> list[str]:
        after = writer.inside(body, carry)
        return [holds(after), *after]

    first = holds([writer.name(value) for value in node.args])
    return _loop(writer, node, ("", first), turn)


def _loop(
    writer: Writer,
    node: Node,
    head: tuple[str, str],
    turn: Callable[[str, Sequence[str], str], list[str]],
) -> Any:
    """A `Loop` over the carry of a node."""
    fresh = [writer.fresh() for _ in range(2 + len(node.results))]
    number, test, *carry = fresh
    helper = writer.onnx.helper
    inputs = [
        helper.make_tensor_value_info(number, _INT64, []),
        helper.make_tensor_value_info(test, _BOOL, []),
        *map(typed, carry, node.results),
    ]
    body = writer.block("body", inputs, lambda: turn(test, carry, number))
    start = [writer.name(value) for value in node.args[: len(carry)]]
    made = writer.emit("Loop", *head, *start, results=len(carry), body=body)
    names = made if isinstance(made, list) else [made]
    writer.told += map(typed, names, node.results)
    return made


def _scalar(writer: Writer, name: str, value: Value, kind: int) -> str:
    """A number of a type, without dimensions, as ONNX asks for."""
    if writer.onnx.helper.np_dtype_to_tensor_dtype(value.spec.numpy) != kind:  # type: ignore[union-attr]
        name = writer.emit("Cast", name, to=kind)
    return name if not value.ndim else writer.emit("Reshape", name, writer.whole())


@writes("zeros")
def write_zeros(writer: Writer, node: Node) -> Any:
    """Zeros of a shape that is known; others have no name, and may not be used."""
    (result,) = node.results
    if any(isinstance(extent, Dim) for extent in result.shape):
        return ""
    shape: Any = result.shape
    return writer.constant(np.zeros(shape, result.spec.numpy))  # type: ignore[union-attr]
