"""Branches and loops, in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Node, Value
from tensorlang.onnx.writer import Writer, typed

_BOOL = 9  # of onnx.TensorProto


def branch(writer: Writer, node: Node) -> Any:
    """An `If`, whose branches see what is around them."""
    blocks = [
        writer.block(graph.name, (), partial(writer.inside, graph, ()))
        for graph in node.graphs
    ]
    names = ("then_branch", "else_branch")
    return writer.emit(
        "If",
        _truth(writer, node.args[0]),
        results=len(node.results),
        **dict(zip(names, blocks, strict=True)),
    )


def counted(writer: Writer, node: Node) -> Any:
    """A `Loop` of a number of turns."""
    (body,), count = node.graphs, node.kwargs["count"]
    turns = (
        writer.constant(np.array(count, np.int64))
        if isinstance(count, int)
        else _count(writer, count)
    )

    def turn(test: str, carry: Sequence[str], number: str) -> list[str]:
        return [writer.emit("Identity", test), *writer.inside(body, [number, *carry])]

    yes = writer.constant(np.array(True))
    return _loop(writer, node, (turns, yes), turn)


def asking(writer: Writer, node: Node) -> Any:
    """A `Loop` that goes on while a condition of what it carries holds."""
    test, body = node.graphs

    def holds(carry: Sequence[str]) -> str:
        (name,) = writer.inside(test, carry)
        return _named_truth(writer, name, test.outputs[0])

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
        helper.make_tensor_value_info(number, 7, []),  # a number of 64 bits
        helper.make_tensor_value_info(test, _BOOL, []),
        *map(typed, carry, node.results),
    ]
    body = writer.block("body", inputs, lambda: turn(test, carry, number))
    start = [writer.name(value) for value in node.args[: len(carry)]]
    made = writer.emit("Loop", *head, *start, results=len(carry), body=body)
    names = made if isinstance(made, list) else [made]
    writer.told += map(typed, names, node.results)
    return made


def _truth(writer: Writer, value: Value) -> str:
    return _named_truth(writer, writer.name(value), value)


def _named_truth(writer: Writer, name: str, value: Value) -> str:
    """A number as the truth value without dimensions that ONNX asks for."""
    if value.spec.dtype != "bool":  # type: ignore[union-attr]
        name = writer.emit("Cast", name, to=_BOOL)
    return name if not value.ndim else writer.emit("Reshape", name, writer.whole())


def _count(writer: Writer, value: Value) -> str:
    name = writer.name(value)
    if value.spec.dtype != "i64":  # type: ignore[union-attr]
        name = writer.emit("Cast", name, to=7)
    return name if not value.ndim else writer.emit("Reshape", name, writer.whole())


def zeros(writer: Writer, node: Node) -> Any:
    """Zeros of a shape that is known; others have no name, and may not be used."""
    (result,) = node.results
    if any(isinstance(extent, Dim) for extent in result.shape):
        return ""
    shape: Any = result.shape
    return writer.constant(np.zeros(shape, result.spec.numpy))  # type: ignore[union-attr]
