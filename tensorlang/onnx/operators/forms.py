"""Branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, overload

import numpy as np

from tensorlang import graph
from tensorlang.errors import GraphError
from tensorlang.graph.specs import Extent
from tensorlang.graph.values import Key, Node, Tensor, Value
from tensorlang.onnx.calls import Call, Held, Operand
from tensorlang.onnx.folding import foldable
from tensorlang.onnx.reading import Block, Results, reads
from tensorlang.onnx.writer import Writer, typed, writes
from tensorlang.ops import math, nn

if TYPE_CHECKING:
    from onnx import GraphProto

T = TypeVar("T")
Carry: TypeAlias = tuple[Tensor | Key | np.ndarray, ...]
# maps number, condition and carry of a turn to the next condition and carry
Turn: TypeAlias = Callable[..., tuple[Held, Carry]]
_reshape = foldable(nn.reshape)
_BOOL, _INT64 = 9, 7  # enum values of onnx.TensorProto


@reads("If", folds=True)
def branch(
    call: Call, cond: Operand, *, then_branch: Block, else_branch: Block
) -> Results:
    """An `If`; with a constant condition, only the branch taken."""
    inside, around = call.program.inside, call.around
    call.program.settle()
    if not isinstance(cond, Value):
        return tuple(inside(then_branch if _one(cond) else else_branch, around))
    absent: list[list[bool]] = []

    def written(block: GraphProto) -> Carry:
        outputs = inside(block, around)
        absent.append([value is None for value in outputs])
        return _present(outputs, absent[0])

    made = graph.cond(cond, lambda: written(then_branch), lambda: written(else_branch))
    return _filled(absent[0], made)


def _present(values: Sequence[Held], absent: list[bool]) -> Carry:
    """The values that are present.

    Raises:
        GraphError: the presence differs between branches or turns.
    """
    if [value is None for value in values] != absent:
        raise GraphError("its branches, or what it carries, differ in what is absent")
    return tuple(value for value in values if value is not None)


@reads("Loop", folds=True)
def loop(
    call: Call,
    count: Operand | None = None,
    cond: Operand | None = None,
    *start: Held,
    body: Block,
) -> Results:
    """A `Loop` without scan outputs: with a trip count, a condition, or both."""
    if (len(body.input), len(body.output)) != (len(start) + 2, len(start) + 1):
        raise GraphError(
            f"its body takes {len(body.input)} values and gives {len(body.output)}, "
            f"beside {len(start)} that are carried; scan outputs are not supported"
        )
    call.program.settle()
    absent = [value is None for value in start]
    carry = _present(start, absent)

    def turn(number: Operand, test: Operand, *held: Held) -> tuple[Held, Carry]:
        given = (number, test, *_filled(absent, held))
        again, *after = call.program.inside(body, call.around, given)
        return again, _present(after, absent)

    if not _steady(body, cond):
        return _filled(absent, _asking(count, cond, turn, carry))
    if count is None:
        raise GraphError(
            "it has neither a count nor a condition and does not terminate"
        )
    turns = count if isinstance(count, Value) else max(int(_one(count)), 0)

    def counted(number: Tensor, *held: Held) -> Carry:
        return turn(number, np.array(True), *held)[1]

    return _filled(absent, graph.loop(turns, counted, *carry))


def _asking(
    count: Operand | None, cond: Operand | None, turn: Turn, carry: Carry
) -> Sequence[Value]:
    """A loop with a condition and an optional maximum trip count."""

    def going(number: Tensor, test: Tensor, *_: Value) -> Results:
        if count is None:
            return test
        return math.logical_and(test, math.less(number, _one(count)))

    def step(number: Tensor, test: Tensor, *held: Held) -> Carry:
        again, after = turn(number, test, *held)
        return (math.add(number, np.array(1)), _one(again), *after)

    first = np.array(True) if cond is None else cond
    begin = (np.array(0), _one(first), *carry)
    made: Sequence[Value] = graph.while_loop(going, step, *begin)
    return made[2:]


@overload
def _one(value: np.ndarray) -> np.ndarray: ...
@overload
def _one(value: Held) -> Operand: ...
def _one(value: Held) -> Operand:
    """A value of one element as a scalar.

    Raises:
        GraphError, ShapeError: it has more elements.
    """
    if isinstance(value, Tensor):
        return _reshape(value, ()) if value.ndim else value
    if not isinstance(value, np.ndarray):
        raise GraphError(f"{value!r}, where one element is needed")
    if value.size != 1:
        raise GraphError(f"shape {value.shape}, where one element is needed")
    return value.reshape(())


def _steady(body: GraphProto, cond: Operand | None) -> bool:
    """Whether a loop's condition is always true."""
    if isinstance(cond, Value) or not (cond is None or _one(cond)):
        return False
    made = {name: node for node in body.node for name in node.output}
    name = body.output[0].name
    for _ in body.node:
        if name in made and made[name].op_type in {"Identity", "Cast"}:
            (name,) = made[name].input[:1] or [""]
    return bool(name == body.input[1].name)


def _filled(absent: list[bool], values: Iterable[T]) -> tuple[T | None, ...]:
    """Reinsert None for absent values."""
    left = iter(values)
    return tuple(None if gone else next(left) for gone in absent)


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
