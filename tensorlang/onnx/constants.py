"""Nodes of ONNX on what is known already: shapes that a file computes with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ShapeError
from tensorlang.graph.autodiff import zeros
from tensorlang.graph.specs import Dim, TensorSpec
from tensorlang.graph.values import Value
from tensorlang.ops import math

if TYPE_CHECKING:
    from tensorlang.onnx.calls import Call


def shape_of(call: Call) -> Any:
    """The shape of a value: whole numbers, and names where sizes are open."""
    shape = call.inputs[0].shape
    part = shape[call.given.get("start", 0) : call.given.get("end", len(shape))]
    return np.array(part, object)


def _constant(call: Call) -> Any:
    from tensorlang.onnx.files import library  # noqa: PLC0415 - of the onnx extra

    (kind, value), *_ = call.given.items()
    if kind == "value":
        return np.array(library().numpy_helper.to_array(value))
    dtype = {"i": np.int64, "f": np.float32}.get(kind.removeprefix("value_")[0])
    return np.array(value, dtype)


def _gather(call: Call) -> Any:
    x, ids = call.inputs
    return np.take(x, np.asarray(ids, np.int64), axis=call.given.get("axis", 0))


def _slice(call: Call) -> Any:
    x, starts, ends = call.inputs[:3]
    axes = range(x.ndim) if call.input(3) is None else call.input(3)
    steps = [1] * len(starts) if call.input(4) is None else call.input(4)
    cut = [slice(None)] * x.ndim
    for axis, *part in zip(axes, starts, ends, steps, strict=False):
        cut[int(axis)] = slice(*map(int, part))
    return x[tuple(cut)]


def _unsqueeze(call: Call) -> Any:
    return np.expand_dims(call.inputs[0], tuple(int(a) for a in call.inputs[1]))


def _squeeze(call: Call) -> Any:
    axes = call.input(1)
    return np.squeeze(call.inputs[0], None if axes is None else tuple(map(int, axes)))


def _cast(call: Call) -> Any:
    from tensorlang.onnx.files import library  # noqa: PLC0415 - of the onnx extra

    x = call.inputs[0]
    wanted = library().helper.tensor_dtype_to_np_dtype(call.given["to"])
    named = x.dtype == object and any(isinstance(n, Dim) for n in x.reshape(-1))
    return x if named else x.astype(wanted)


def _concat(call: Call) -> Any:
    return np.concatenate([np.atleast_1d(x) for x in call.inputs], call.given["axis"])


def _reshape(call: Call) -> Any:
    return np.reshape(call.inputs[0], [int(n) for n in call.inputs[1]])


def _filled(call: Call) -> Any:
    from tensorlang.onnx.files import library  # noqa: PLC0415 - of the onnx extra

    value = call.given.get("value")
    fill = [0.0] if value is None else library().numpy_helper.to_array(value)
    fill = np.asarray(fill, None if value is not None else np.float32)
    return _spread(fill.reshape(-1)[0], call.inputs[0])


def _expand(call: Call) -> Any:
    return _spread(*call.inputs)


def _spread(x: Any, shape: Any) -> Any:
    """An array in a shape; where sizes of that are open, a symbolic value."""
    extents: tuple[Any, ...] = tuple(n if isinstance(n, Dim) else int(n) for n in shape)
    if not any(isinstance(n, Dim) for n in extents):
        return np.broadcast_to(x, extents)
    made = zeros(TensorSpec(extents, x.dtype.name))
    return math.add(made, x) if np.any(x) else made


def _triangle(call: Call) -> Any:
    """What lies on one side of a diagonal, which may be above or below the main one."""
    at = call.input(1)
    side = np.triu if call.given.get("upper", 1) else np.tril
    return side(call.inputs[0], 0 if at is None else int(np.asarray(at).item()))


def _divide(call: Call) -> Any:
    return np.frompyfunc(_over, 2, 1)(*map(_objects, call.inputs))


def _over(a: Any, b: Any) -> Any:
    """A quotient of sizes, as ONNX divides: whole numbers towards 0."""
    if isinstance(a, Dim):
        if all(count % b == 0 for _, count in a.terms):
            return Dim(tuple((name, count // b) for name, count in a.terms))
        raise ShapeError(f"the size {a} is to be divided by {b}; give it as a number")
    return int(a / b) if isinstance(a, int) else a / b


def _objects(x: Any) -> Any:
    return np.asarray(x, object)


def _range(call: Call) -> Any:
    return np.arange(*(np.asarray(x).item() for x in call.inputs))


FOLDED: Final[dict[str, Callable[[Call], Any]]] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Gather": _gather,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Cast": _cast,
    "Concat": _concat,
    "Reshape": _reshape,
    "Identity": lambda call: call.inputs[0],
    "Add": lambda call: call.inputs[0] + call.inputs[1],
    "Sub": lambda call: call.inputs[0] - call.inputs[1],
    "Mul": lambda call: call.inputs[0] * call.inputs[1],
    "Div": _divide,
    "Mod": lambda call: np.mod(*call.inputs),
    "Range": _range,
    "Trilu": _triangle,
    "Equal": lambda call: call.inputs[0] == call.inputs[1],
    "Where": lambda call: np.where(*call.inputs),
    "Not": lambda call: np.logical_not(call.inputs[0]),
    "ReduceProd": lambda call: np.prod(
        call.inputs[0], keepdims=bool(call.given.get("keepdims", 1))
    ),
    "Expand": _expand,
}


def folded(call: Call) -> Any:
    """What a node of constants gives."""
    made = FOLDED[call.kind](call)
    return made if made is None or isinstance(made, Value) else np.asarray(made)
