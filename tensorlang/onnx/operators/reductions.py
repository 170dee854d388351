"""Axis reductions."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph.values import Node, Tensor
from tensorlang.onnx.calls import Operand, dtype_in
from tensorlang.onnx.folding import folded, to_value
from tensorlang.onnx.operators.data_movement import axis_of
from tensorlang.onnx.operators.gathering import known_shape
from tensorlang.onnx.reading import Ints, Read, Results, reads
from tensorlang.onnx.writer import Write, Writer, argument, writes
from tensorlang.ops import Operator, math

_REDUCTIONS: Final = {
    "ReduceSum": math.sum,
    "ReduceMean": math.mean,
    "ReduceMax": math.max,
    "ReduceMin": math.min,
    "ReduceProd": math.prod,
    "ReduceLogSumExp": math.logsumexp,
}
_OF_BOOL: Final[dict[Operator, Operator]] = {math.max: math.any, math.min: math.all}
# elementwise operators before and after the sum
_COMPOSED: Final[dict[str, tuple[Operator | None, Operator | None]]] = {
    "ReduceL1": (math.abs, None),
    "ReduceL2": (math.square, math.sqrt),
    "ReduceLogSum": (None, math.log),
    "ReduceSumSquare": (math.square, None),
}


def _reader(
    op: Operator, before: Operator | None = None, after: Operator | None = None
) -> Read:
    def read(
        data: Operand,
        axes: Ints | None = None,
        *,
        keepdims: bool,
        noop_with_empty_axes: bool = False,
    ) -> Results:
        x = data if before is None else before(to_value(data))
        if axes or not noop_with_empty_axes:
            x = _reduced(op, x, axes or None, keepdims)
        return x if after is None else after(x)

    return read


def _reduced(op: Operator, x: Operand, axes: Ints | None, keepdims: bool) -> Operand:
    """A reduction; for constant integers, NumPy's if it exists."""
    known = getattr(np, op.__name__, None)
    if known and isinstance(x, np.ndarray) and x.dtype.kind in "iuO":
        return folded(known, x, axis=axes, keepdims=keepdims)
    if dtype_in(x).kind == "b":
        op = _OF_BOOL.get(op, op)
    made: Tensor = op(to_value(x), axes, keepdims)
    return made


def _writer(kind: str) -> Write:
    def write(writer: Writer, node: Node) -> str:
        axis = argument(node, 1, "axis", None)
        keep = int(argument(node, 2, "keepdims", False))
        axes = (axis,) if isinstance(axis, int) else axis
        given = [] if axes is None else [writer.whole(*axes)]
        return writer.emit(kind, writer.name(node.args[0]), *given, keepdims=keep)

    return write


def _position(op: Operator) -> Read:
    def read(
        data: Tensor, *, axis: int, keepdims: bool, select_last_index: bool = False
    ) -> Results:
        if not select_last_index:
            return op(data, axis, keepdims)
        at = axis_of(axis, data.ndim)
        back = data[(*[slice(None)] * at, slice(None, None, -1))]
        last = known_shape(data)[at] - 1
        return math.subtract(last, op(back, axis, keepdims))

    return read


def _write_position(kind: str) -> Write:
    def write(writer: Writer, node: Node) -> str:
        axis = argument(node, 1, "axis", None)
        if axis is None:
            raise GraphError(f"{node.place}: {kind} of ONNX is along one axis")
        keep = int(argument(node, 2, "keepdims", False))
        return writer.emit(kind, writer.name(node.args[0]), axis=axis, keepdims=keep)

    return write


for _kind, _op in _REDUCTIONS.items():
    reads(_kind, folds=True)(_reader(_op))
    writes(_op.id)(_writer(_kind))
for _kind, _around in _COMPOSED.items():
    reads(_kind, folds=True)(_reader(math.sum, *_around))
for _kind, _op in {"ArgMax": math.argmax, "ArgMin": math.argmin}.items():
    reads(_kind)(_position(_op))
    writes(_op.id)(_write_position(_kind))
