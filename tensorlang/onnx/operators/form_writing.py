"""Writers of branches, loops and zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tensorlang.graph.specs import Extent
from tensorlang.graph.values import Node, Tensor, Value
from tensorlang.onnx.writer import Writer, typed, writes

_BOOL, _INT64 = 9, 7  # enum values of onnx.TensorProto


@writes("if")
def write_branch(writer: Writer, node: Node) -> list[str]:
    """An `If`, whose branches see the enclosing values."""
    blocks = [
        writer.block(graph.name, (), partial(writer.inside, graph, ()))
        for graph in node.graphs
    ]
    names = ("then_branch", "else_branch")
    return writer.emit_all(
        "If",
        _scalar(writer, writer.name(node.args[0]), node.args[0], _BOOL),
        results=len(node.results),
        **dict(zip(names, blocks, strict=True)),
    )


@writes("for")
def write_counted(writer: Writer, node: Node) -> list[str]:
    """A `Loop` with a trip count."""
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
def write_asking(writer: Writer, node: Node) -> list[str]:
    """A `Loop` with a condition on its carry."""
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
) -> list[str]:
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
    names = writer.emit_all("Loop", *head, *start, results=len(carry), body=body)
    writer.told += map(typed, names, node.results)
    return names


def _scalar(writer: Writer, name: str, value: Value, kind: int) -> str:
    """A scalar of a given type, as ONNX requires."""
    if writer.onnx.helper.np_dtype_to_tensor_dtype(value.spec.numpy) != kind:  # type: ignore[union-attr]
        name = writer.emit("Cast", name, to=kind)
    return name if not value.ndim else writer.emit("Reshape", name, writer.whole())


@writes("zeros")
def write_zeros(writer: Writer, node: Node) -> str:
    """Zeros; of symbolic sizes only if another value has these, else not written."""
    (result,) = node.results
    if not isinstance(result, Tensor):
        return ""
    known = [extent for extent in result.shape if isinstance(extent, int)]
    if len(known) == result.ndim:
        return writer.constant(np.zeros(known, result.spec.numpy))
    sizes = [_size(writer, extent) for extent in result.shape]
    if not all(sizes):
        return ""
    zero = writer.onnx.numpy_helper.from_array(np.zeros(1, result.spec.numpy))
    shape = writer.emit("Concat", *sizes, axis=0)
    return writer.emit("ConstantOfShape", shape, value=zero)


def _size(writer: Writer, extent: Extent) -> str:
    """A size as an array of one element, from the shape of any value that has it."""
    if isinstance(extent, int):
        return writer.whole(extent)
    for value, name in writer.names.items():
        if name and isinstance(value, Tensor) and extent in value.shape:
            at = value.shape.index(extent)
            return writer.emit("Shape", name, start=at, end=at + 1)
    return ""
