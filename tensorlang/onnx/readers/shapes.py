"""What moves elements and computes nothing: of ONNX as ours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from tensorlang.graph.autodiff import zeros
from tensorlang.graph.specs import Dim, TensorSpec
from tensorlang.graph.values import Key, Value
from tensorlang.onnx.calls import Call
from tensorlang.ops import math, nn

_FARTHEST: Final = (1 << 31) - 1


def flatten(call: Call) -> Any:
    """The dimensions before an axis as one, and those behind it."""
    x, axis = call.inputs[0], call.given.get("axis", 1)
    if axis == 1:
        return nn.batch_flatten(x)
    first: Any = 1
    for extent in x.shape[:axis]:
        first = first * extent
    return nn.reshape(x, (first, -1))


def reshape(call: Call) -> Any:
    """Another shape."""
    x = call.inputs[0]
    wanted = list(call.known(1, "the shape"))
    keep = not call.given.get("allowzero", 0)
    shape = [
        x.shape[at] if keep and not isinstance(n, Dim) and n == 0 else n
        for at, n in enumerate(wanted)
    ]
    tail = x.shape[1:]
    plain = all(not isinstance(n, Dim) for n in tail)
    if plain and len(shape) == 2 and _is(shape[0], x.shape[0]) and x.ndim > 1:
        count = int(np.prod([int(n) for n in tail]))
        if shape[1] in {-1, count}:
            return nn.batch_flatten(x)
    return nn.reshape(x, tuple(_completed(shape, x)))


def _is(a: Any, b: Any) -> bool:
    return bool(a == b)


def _completed(shape: list[Any], x: Any) -> list[Any]:
    """The shape with its -1 as a number or a name, where the others say it."""
    plain = [n if isinstance(n, Dim) else int(n) for n in shape]
    open_ = [n for n in x.shape if isinstance(n, Dim)]
    held = [n for n in plain if isinstance(n, Dim)]
    if -1 not in plain or held != open_:
        return plain
    has_ = int(np.prod([n for n in x.shape if not isinstance(n, Dim)], dtype=int))
    rest = int(
        np.prod([n for n in plain if not isinstance(n, Dim) and n != -1], dtype=int)
    )
    return [has_ // max(rest, 1) if n == -1 else n for n in plain]


def moved(call: Call) -> Any:
    """Squeeze and Unsqueeze: a dimension of one element comes or goes."""
    x = call.inputs[0]
    given = call.given.get("axes")
    axes = [int(a) for a in (call.known(1, "axes") if given is None else given)]
    shape = list(x.shape)
    if call.kind == "Squeeze":
        gone = {a % x.ndim for a in axes}
        return nn.reshape(x, tuple(n for at, n in enumerate(shape) if at not in gone))
    for axis in sorted(a % (x.ndim + len(axes)) for a in axes):
        shape.insert(axis, 1)
    return nn.reshape(x, tuple(shape))


def transpose(call: Call) -> Any:
    """The dimensions in another order."""
    return nn.transpose(call.inputs[0], tuple(call.given["perm"]))


def _gather(call: Call) -> Any:
    table, ids = call.inputs[:2]
    if isinstance(ids, np.ndarray) and not ids.ndim:
        return _taken(call, table, int(ids))
    if call.given.get("axis", 0) != 0 or not isinstance(ids, Value) or table.ndim != 2:
        raise call.refuse("we gather rows of a table alone")
    return nn.embedding(ids, table)


def _taken(call: Call, x: Any, index: int) -> Any:
    """One place of an axis, which goes."""
    return _along(x, call.given.get("axis", 0), index)


def _along(x: Any, axis: int, index: Any) -> Any:
    """The tensor indexed along one axis."""
    return x[(*[slice(None)] * (axis % x.ndim), index)]


def element(call: Call) -> Any:
    """An element of keys, or rows of a table."""
    x = call.inputs[0]
    if isinstance(x, Key):
        return x[int(call.known(1, "the index"))]
    return _gather(call)


def concat(call: Call) -> Any:
    """Arrays behind each other."""
    return nn.concatenate(call.inputs, call.given["axis"])


def pad(call: Call) -> Any:
    """A constant around an array."""
    x, ends = call.inputs[0], [int(n) for n in call.known(1, "the padding")]
    value, axes = call.known(2, "the constant"), call.known(3, "the axes")
    if call.given.get("mode", "constant") != "constant" or min(ends) < 0:
        raise call.refuse("we pad with constants, and take nothing away")
    around: list[tuple[int, int]] = [(0, 0)] * x.ndim
    over = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
    half = len(ends) // 2
    for axis, low, high in zip(over, ends[:half], ends[half:], strict=True):
        around[axis] = low, high
    return nn.pad(x, tuple(around), None if value is None else value.item())


def split(call: Call) -> Any:
    """Parts of an axis, whose extents are said or all alike."""
    x, given = call.inputs[0], call.known(1, "the extents")
    axis = call.given.get("axis", 0) % x.ndim
    whole = _extent(call, x, axis)
    count = call.given.get("num_outputs", len(call.outputs))
    each = -(-whole // count)
    ends = [min(each * n, whole) for n in range(count + 1)]
    sizes = [b - a for a, b in pairwise(ends)]
    return nn.split(x, sizes if given is None else [int(n) for n in given], axis)


def slices(call: Call) -> Any:
    """Some places of some axes."""
    x = call.inputs[0]
    starts, ends = (call.known(at, "a bound") for at in (1, 2))
    axes, steps = call.known(3, "the axes"), call.known(4, "the steps")
    over = range(len(starts)) if axes is None else [int(axis) for axis in axes]
    by = [1] * len(starts) if steps is None else [int(step) for step in steps]
    cut = [slice(None)] * x.ndim
    for axis, low, high, step in zip(over, starts, ends, by, strict=True):
        first, last = (-1, 1) if step > 0 else (1, -1)
        cut[axis] = slice(_bound(low, first), _bound(high, last), step)
    return x[tuple(cut)]


def _bound(number: Any, side: int) -> Any:
    """A bound; None where it lies beyond all that an array has on this side."""
    if isinstance(number, Dim):
        return number
    return None if int(number) * side >= _FARTHEST else int(number)


def _extent(call: Call, x: Any, axis: int) -> int:
    extent = x.shape[axis]
    if isinstance(extent, Dim):
        raise call.refuse(f"the size {extent} is to be a number for that")
    return int(extent)


def expand(call: Call) -> Any:
    """The array repeated where it has one element."""
    x, wanted = call.inputs[0], list(call.known(1, "the shape"))
    shape: Sequence[Any] = [n if isinstance(n, Dim) else int(n) for n in wanted]
    ahead = [1] * (len(shape) - x.ndim)
    own = [*ahead, *x.shape]
    own = [*[1] * (len(own) - len(shape)), *own]
    made = tuple(b if _is(a, 1) else a for a, b in zip(own, shape, strict=True))
    if made == tuple(x.shape):
        return x
    return math.add(x, zeros(TensorSpec(made, x.dtype)))
