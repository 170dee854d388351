"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph.values import Node
from tensorlang.onnx.folding import folded, lifted
from tensorlang.onnx.reading import Ints, reads
from tensorlang.onnx.writer import Write, Writer, argument, writes
from tensorlang.ops import math

_REDUCTIONS: Final = {
    "ReduceSum": math.sum,
    "ReduceMean": math.mean,
    "ReduceMax": math.max,
    "ReduceMin": math.min,
    "ReduceProd": math.prod,
    "ReduceLogSumExp": math.logsumexp,
}
# what is done before the sum, and after it
_COMPOSED: Final[dict[str, tuple[Any, Any]]] = {
    "ReduceL1": (math.abs, None),
    "ReduceL2": (math.square, math.sqrt),
    "ReduceLogSum": (None, math.log),
    "ReduceSumSquare": (math.square, None),
}


def _reader(op: Any, before: Any = None, after: Any = None) -> Callable[..., Any]:
    def read(
        data: Any,
        axes: Ints | None = None,
        *,
        keepdims: bool,
        noop_with_empty_axes: bool = False,
    ) -> Any:
        x = data if before is None else before(lifted(data))
        if axes or not noop_with_empty_axes:
            x = _reduced(op, x, axes or None, keepdims)
        return x if after is None else after(x)

    return read


def _reduced(op: Any, x: Any, axes: Ints | None, keepdims: bool) -> Any:
    """A reduction; of constant integers, by NumPy where it has that."""
    known = getattr(np, op.__name__, None)
    if known and isinstance(x, np.ndarray) and x.dtype.kind in "iuO":
        return folded(known, x, axis=axes, keepdims=keepdims)
    return op(lifted(x), axes, keepdims)


def _writer(kind: str) -> Write:
    def write(writer: Writer, node: Node) -> Any:
        axis = argument(node, 1, "axis", None)
        keep = int(argument(node, 2, "keepdims", False))
        axes = (axis,) if isinstance(axis, int) else axis
        given = [] if axes is None else [writer.whole(*axes)]
        return writer.emit(kind, writer.name(node.args[0]), *given, keepdims=keep)

    return write


def _position(op: Any) -> Callable[..., Any]:
    def read(data: Any, *, axis: int, keepdims: bool) -> Any:
        return op(data, axis, keepdims)

    return read


def _write_position(kind: str) -> Write:
    def write(writer: Writer, node: Node) -> Any:
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
