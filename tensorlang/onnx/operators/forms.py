"""Branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, overload

import numpy as np

from tensorlang import graph
from tensorlang.errors import GraphError, TensorlangError
from tensorlang.graph.values import Key, Tensor, Value
from tensorlang.onnx.calls import Call, Held, Operand, Several
from tensorlang.onnx.folding import foldable
from tensorlang.onnx.operators.scans import check_turns, joined
from tensorlang.onnx.reading import Block, Results, reads
from tensorlang.ops import math, nn

if TYPE_CHECKING:
    from onnx import GraphProto

T = TypeVar("T")
Carry: TypeAlias = tuple[Tensor | Key | np.ndarray, ...]
# maps number, condition and carry of a turn to the next condition and carry
Turn: TypeAlias = Callable[..., tuple[Held, Carry]]
_reshape = foldable(nn.reshape)


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

    try:
        made = graph.cond(
            cond, lambda: written(then_branch), lambda: written(else_branch)
        )
    except TensorlangError:
        call.program.evaluated(cond)  # asks for inputs that it depends on, if small
        raise
    return _filled(absent[0], made)


def _present(values: Sequence[Held], absent: list[bool]) -> Carry:
    """The values that are present."""
    if [value is None for value in values] != absent:
        raise GraphError("its branches, or what it carries, differ in what is absent")
    present = tuple(value for value in values if not isinstance(value, Several | None))
    if len(present) < len(values) - sum(absent):
        raise GraphError("it gives a sequence; supported is that of a known condition")
    return present


@reads("Loop", folds=True)
def loop(
    call: Call,
    count: Operand | None = None,
    cond: Operand | None = None,
    *start: Held,
    body: Block,
) -> Results:
    """A `Loop` with a trip count, a condition, or both.

    One that collects results of its turns is unrolled.
    """
    if len(body.input) != len(start) + 2 or len(body.output) <= len(start):
        raise GraphError(
            f"its body takes {len(body.input)} values and gives {len(body.output)}, "
            f"beside {len(start)} that are carried"
        )
    call.program.settle()
    if len(body.output) > len(start) + 1:
        return _collecting(call, count, cond, start, body)
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


def _collecting(
    call: Call,
    count: Operand | None,
    cond: Operand | None,
    carry: Sequence[Held],
    body: Block,
) -> Results:
    """A loop that collects results of its turns."""
    known = None if cond is None else call.known(cond, "cond")
    if count is None or not _steady(body, known):
        raise GraphError("it collects results of turns whose number depends on data")
    turns = max(int(_one(call.known(count, "count"))), 0)
    check_turns(turns)
    found: list[Sequence[Held]] = []
    for turn in range(turns):
        given = (np.array(turn), np.array(True), *carry)
        _, *made = call.program.inside(body, call.around, given)
        carry = made[: len(carry)]
        found.append(made[len(carry) :])
    collected = range(len(body.output) - 1 - len(carry))
    return (*carry, *(joined(row[n] for row in found) for n in collected))


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
    """A value of one element as a scalar; GraphError or ShapeError if it has more."""
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
