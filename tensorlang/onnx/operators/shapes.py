"""Shapes and reshaping."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.specs import Dim, Extent, TensorSpec, at_sizes
from tensorlang.graph.values import Node, Tensor, Value, zeros
from tensorlang.onnx.calls import Operand, dtype_in, dtype_of
from tensorlang.onnx.folding import checked_size, foldable, folded, tidy
from tensorlang.onnx.reading import Ints, Results, Sizes, reads
from tensorlang.onnx.writer import Writer, argument, writes
from tensorlang.ops import math, nn

_reshape, _transpose = foldable(nn.reshape), foldable(nn.transpose)


@reads("Shape", folds=True)
def shape(data: Operand, *, start: int = 0, end: int | None = None) -> Results:
    """The sizes of an array: integers and symbolic sizes."""
    return tidy(np.array(data.shape[start:end], object))


@reads("Size", folds=True)
def size(data: Operand) -> Results:
    """The number of elements."""
    return tidy(np.array(_product(data.shape), object))


def _product(shape: Sequence[Extent]) -> Extent:
    made: Extent = 1
    for extent in shape:
        made = made * extent
    return made


@reads("Flatten", folds=True)
def flatten(input: Operand, *, axis: int) -> Results:
    """Flatten to two dimensions, split at an axis."""
    if not -input.ndim <= axis <= input.ndim:
        raise ShapeError(f"axis {axis} of an array with {input.ndim} dimensions")
    axis += input.ndim if axis < 0 else 0
    if axis == 1 and isinstance(input, Value):
        return nn.batch_flatten(input)
    ends = input.shape[:axis], input.shape[axis:]
    return _reshape(input, tuple(map(_product, ends)))


@writes("nn.batch_flatten")
def write_flatten(writer: Writer, node: Node) -> str:
    """Flatten all dimensions after the batch."""
    return writer.emit("Flatten", writer.name(node.args[0]), axis=1)


@reads("Reshape", folds=True)
def reshape(data: Operand, shape: Sizes, *, allowzero: bool = False) -> Results:
    """Reshape: 0 copies a size unless `allowzero` is set, -1 is inferred."""
    if not allowzero and any(n == 0 for n in shape[data.ndim :]):
        raise ShapeError(f"shape {shape} copies sizes that {data.shape} lacks")
    if allowzero and 0 in shape and -1 in shape:
        raise ShapeError(f"shape {shape} does not determine -1")
    made = [
        data.shape[at] if n == 0 and not allowzero else n for at, n in enumerate(shape)
    ]
    if any(not isinstance(n, Dim) and n < -1 for n in made):
        raise ShapeError(f"shape {shape}: sizes are 0 or more, or -1")
    if not isinstance(data, Value):
        return folded(np.reshape, data, made)
    rest = _product(data.shape[1:])
    rows = len(made) == 2 and data.ndim > 1 and made[0] == data.shape[0]
    if rows and rest and made[1] in {-1, rest}:
        return nn.batch_flatten(data)
    return nn.reshape(data, tuple(_completed(made, data)))


def _completed(shape: list[Extent], x: Tensor) -> list[Extent]:
    """The shape with -1 replaced, if the other sizes determine it."""
    open_ = [n for n in x.shape if isinstance(n, Dim)]
    if shape.count(-1) != 1 or [n for n in shape if isinstance(n, Dim)] != open_:
        return shape
    has = prod(n for n in x.shape if isinstance(n, int))
    rest = prod(n for n in shape if isinstance(n, int) and n != -1)
    return [has // rest if n == -1 and rest else n for n in shape]


@writes("nn.reshape")
def write_reshape(writer: Writer, node: Node) -> str:
    """Reshape, with at most one symbolic size."""
    (x, *_), shape = node.args, node.results[0].shape
    open_ = [at for at, extent in enumerate(shape) if isinstance(extent, Dim)]
    if len(open_) > 1 and [shape[at] for at in open_] != [x.shape[at] for at in open_]:
        raise GraphError(
            f"{node.place}: ONNX reshapes to at most one symbolic size, not {shape}"
        )
    sign = 0 if len(open_) > 1 else -1
    numbers = [sign if isinstance(extent, Dim) else extent for extent in shape]
    return writer.emit("Reshape", writer.name(x), writer.whole(*numbers))


@reads("Squeeze", folds=True)
def squeeze(data: Operand, axes: Ints | None = None) -> Results:
    """Remove dimensions of one element: the given axes, or all."""
    if axes is None:
        if any(isinstance(n, Dim) for n in data.shape):
            raise ShapeError(f"which sizes of {data.shape} are 1 is open; give axes")
        axes = tuple(at for at, n in enumerate(data.shape) if n == 1)
    elif not axes:  # no axes in ONNX's reference, all in onnxruntime
        raise GraphError("its axes are empty; omit them to remove all sizes of 1")
    gone = _places(axes, data.ndim)
    if any(data.shape[at] != 1 for at in gone):
        raise ShapeError(f"axes {axes} of {data.shape} have other sizes than 1")
    shape = tuple(n for at, n in enumerate(data.shape) if at not in gone)
    return _reshape(data, shape)


@reads("Unsqueeze", folds=True)
def unsqueeze(data: Operand, axes: Ints) -> Results:
    """Insert dimensions of one element."""
    shape = list(data.shape)
    for axis in sorted(_places(axes, data.ndim + len(axes))):
        shape.insert(axis, 1)
    return _reshape(data, tuple(shape))


def _places(axes: Ints, rank: int) -> set[int]:
    """Non-negative axes; ShapeError if there is no such axis, or one is repeated."""
    made = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(made) != len(axes):
        raise ShapeError(f"axes {axes} are not distinct axes of {rank}")
    return made


@reads("Transpose", folds=True)
def transpose(data: Operand, *, perm: Ints | None = None) -> Results:
    """Permute the dimensions; reverse them by default."""
    return _transpose(data, perm)


@writes("nn.transpose")
def write_transpose(writer: Writer, node: Node) -> str:
    """Permute the dimensions."""
    x = node.args[0]
    axes = argument(node, 1, "axes", None) or tuple(range(x.ndim))[::-1]
    return writer.emit("Transpose", writer.name(x), perm=[a % x.ndim for a in axes])


@reads("Expand", folds=True)
def expand(input: Operand, shape: Sizes) -> Results:
    """Broadcast to a shape."""
    rank = max(input.ndim, len(shape))
    own, wanted = (
        (1,) * (rank - len(each)) + tuple(each) for each in (input.shape, shape)
    )
    made = tuple(b if a == 1 else a for a, b in zip(own, wanted, strict=True))
    for a, b in zip(made, wanted, strict=True):
        if b not in {a, 1} or (not isinstance(b, Dim) and b < 0):
            raise ShapeError(f"an array of {input.shape} does not broadcast to {shape}")
    return filled(made, input)


def filled(shape: Sequence[Extent], x: Operand) -> Operand:
    """An array broadcast to a shape; a symbolic value if the shape is symbolic."""
    spec = TensorSpec(tuple(shape), dtype_in(x).name)
    checked_size(spec.shape, spec.numpy.itemsize)
    if isinstance(x, Value):
        if spec.shape == x.shape:
            return x
    elif not any(isinstance(n, Dim) for n in spec.shape):
        return np.broadcast_to(x, at_sizes(spec.shape, {}))
    empty: Tensor = zeros(spec)
    if isinstance(x, np.ndarray) and not x.any():
        return empty
    # subtracting zero preserves negative zeros
    op = math.add if spec.dtype == "bool" else math.subtract
    made: Tensor = op(x, empty)
    return made


@reads("Tile", since=6, folds=True)
def tile(input: Operand, repeats: Ints) -> Results:
    """Repeat along each axis."""
    if len(repeats) != input.ndim or min(repeats, default=0) < 0:
        raise ShapeError(f"repeats {repeats} of {input.shape}")
    pairs = list(zip(repeats, input.shape, strict=True))
    held = _reshape(input, tuple(n for _, size in pairs for n in (1, size)))
    wide = filled([n for pair in pairs for n in pair], held)
    return _reshape(wide, tuple(size * by for by, size in pairs))


@reads("EyeLike", folds=True)
def eye_like(input: Operand, *, dtype: int | None = None, k: int = 0) -> Results:
    """Ones on a diagonal of a matrix of the same shape."""
    sizes = [n for n in input.shape if isinstance(n, int)]
    if len(sizes) != 2 or input.ndim != 2:
        raise ShapeError(f"it takes a matrix of known sizes, not {input.shape}")
    kind = dtype_in(input) if dtype is None else dtype_of(dtype, "the result")
    checked_size(sizes, kind.itemsize)
    rows, columns = sizes
    return np.eye(rows, columns, k, dtype=kind)
