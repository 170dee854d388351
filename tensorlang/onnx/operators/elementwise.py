"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.differentiation.gradients import is_float
from tensorlang.graph.specs import Dim, Extent
from tensorlang.graph.values import Node, Tensor, Value
from tensorlang.onnx.calls import Held, Operand, dtype_in, dtype_of
from tensorlang.onnx.folding import foldable, folded, tidy, to_value
from tensorlang.onnx.operators.formulas import activation_of
from tensorlang.onnx.reading import READERS, Read, Results, reads
from tensorlang.onnx.writer import Writer, argument, writes
from tensorlang.ops import math, nn, operators

_add, _subtract, _multiply = map(foldable, (math.add, math.subtract, math.multiply))
_less, _unequal = foldable(math.less), foldable(math.not_equal)


def _reader(op: Callable[..., object]) -> Read:
    def read(
        *operands: Operand, axis: int | None = None, broadcast: int = 0
    ) -> Results:
        """An operator on broadcast arrays; before version 7, aligned at an axis."""
        del broadcast
        return op(*(operands if axis is None else _aligned(axis, *operands)))

    return read


def _aligned(axis: int, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """Two arrays, the second aligned at an axis of the first."""
    at = axis % max(a.ndim, 1)
    there = a.shape[at : at + b.ndim]
    if len(there) < b.ndim or any(
        n not in {1, m} for m, n in zip(there, b.shape, strict=False)
    ):
        raise ShapeError(f"{b.shape} at axis {axis} of {a.shape}")
    more = (1,) * (a.ndim - at - b.ndim)
    return a, foldable(nn.reshape)(b, (*b.shape, *more)) if more else b


def _reduced(op: Callable[..., Operand]) -> Read:
    return lambda *operands: reduce(op, operands)


def _writer(kind: str) -> Callable[[Writer, Node], str]:
    """A node with the same operands; a scalar takes the type of an array operand."""

    def write(writer: Writer, node: Node) -> str:
        like = next(arg for arg in reversed(node.args) if hasattr(arg, "spec"))
        return writer.emit(kind, *(writer.name(arg, like) for arg in node.args))

    return write


# operators with a direct equivalent, by the name in their `onnx="Exp"`; those that are
# read differently have a reader below
for _same in (op for op in operators() if op.onnx):
    _folds = hasattr(np, _same.__name__)
    writes(_same.id)(_writer(_same.onnx))
    if ("", _same.onnx) not in READERS:
        reads(_same.onnx, folds=_folds)(_reader(foldable(_same) if _folds else _same))
writes("let")(_writer("Identity"))


def _rounding(kind: str) -> Callable[[Writer, Node], str]:
    """Floats are rounded; integers are whole already, and not taken by ONNX."""

    def write(writer: Writer, node: Node) -> str:
        x = node.args[0]
        return writer.emit(kind if is_float(x) else "Identity", writer.name(x))

    return write


for _kind in ("Floor", "Ceil", "Round"):
    writes(f"math.{_kind.lower()}")(_rounding(_kind))
for _kind, _op in {"Max": math.maximum, "Min": math.minimum, "Sum": math.add}.items():
    reads(_kind, folds=True)(_reduced(foldable(_op)))


@reads("Mul", folds=True)
def multiply(a: Operand, b: Operand) -> Results:
    """The product, or the activation that it is."""
    known = activation_of(a, b)
    return _multiply(a, b) if known is None else known


@reads("Sign", folds=True)
def sign(input: Operand) -> Results:
    """The sign; NaN for NaN, for which `math.sign` gives 0."""
    found = foldable(math.sign)(input)
    if not isinstance(input, Tensor) or input.spec.numpy.kind in "biu":
        return found
    return math.where(math.isnan(input), input, found)


@writes("math.sign")
def write_sign(writer: Writer, node: Node) -> str:
    """The sign; 0 for NaN."""
    x, kind = writer.name(node.args[0]), node.args[0].spec
    found = writer.emit("Sign", x)
    if kind.numpy.kind in "iu":
        return found
    zero = writer.constant(np.zeros((), kind.numpy))
    return writer.emit("Where", writer.emit("IsNaN", x), zero, found)


@reads("Mean")
def mean(*operands: Operand) -> Results:
    """The elementwise mean of several arrays."""
    return math.multiply(reduce(_add, operands), 1 / len(operands))


@reads("Identity", folds=True)
def identity(input: Held) -> Results:
    """The input."""
    return input


@reads("Div", folds=True)
def divide(a: Operand, b: Operand) -> Operand:
    """Division; truncating for integers."""
    if _has_sizes(a, b):
        return tidy(_each(_over, a, b))
    if _is_float(a):
        return foldable(math.divide)(a, b)
    b = _divisor(b)
    if isinstance(a, Value) or isinstance(b, Value):
        made: Tensor = math.trunc_divide(to_value(a), to_value(b))
        return made
    return folded(_truncated, a, b)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotients of integers, rounded toward zero."""
    quotient: np.ndarray = np.floor_divide(a, b)
    up = (quotient * b != a) & ((a < 0) != (b < 0))
    made: np.ndarray = quotient + up
    return made


@reads("BitShift", folds=True)
def shift(x: Operand, y: Operand, *, direction: str) -> Results:
    """Shift bits."""
    if direction not in {"LEFT", "RIGHT"}:
        raise GraphError(f"attribute direction={direction!r} is not supported")
    left = direction == "LEFT"
    return foldable(math.left_shift if left else math.right_shift)(x, y)


@reads("IsInf")
def infinite(x: Tensor, *, detect_negative: bool, detect_positive: bool) -> Results:
    """Whether numbers are infinite."""
    found = math.isinf(x)
    if not detect_negative:
        found = math.logical_and(found, math.greater(x, 0))
    return found if detect_positive else math.logical_and(found, math.less(x, 0))


@reads("Mod", folds=True)
def modulo(a: Operand, b: Operand, *, fmod: bool) -> Results:
    """Remainder with the sign of `b`, or of `a` if `fmod` is set."""
    if not _is_float(a):
        if fmod:
            return _subtract(a, _multiply(divide(a, b), b))
        return foldable(math.remainder)(a, _divisor(b))
    if not (isinstance(a, Value) or isinstance(b, Value)):
        return folded(np.fmod if fmod else np.remainder, a, b)
    x, y = to_value(a), to_value(b)
    if not fmod:
        return math.remainder(x, y)
    rest = math.remainder(math.abs(x), math.abs(y))
    return math.where(math.less(x, 0), math.negative(rest), rest)


def _divisor(b: Operand) -> Operand:
    if isinstance(b, np.ndarray) and not b.all():
        raise GraphError("integers are divided by the constant 0")
    return b


def _is_float(x: Operand) -> bool:
    return dtype_in(x).kind not in "iubO"


def _has_sizes(*operands: Operand) -> bool:
    return any(isinstance(x, np.ndarray) and x.dtype == object for x in operands)


def _each(op: Callable[[Extent, Extent], object], a: Operand, b: Operand) -> np.ndarray:
    """Apply an operator to each pair of sizes."""
    if isinstance(a, Value) or isinstance(b, Value):
        raise GraphError("a symbolic size is combined with data; export a fixed one")
    return np.asarray(np.frompyfunc(op, 2, 1)(a, b), object)


def _over(a: Extent, b: Extent) -> Extent:
    """Truncating division of sizes."""
    if isinstance(b, int) and b:
        if isinstance(a, int):
            return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        if all(count % b == 0 for _, count in a.terms):
            return Dim(tuple((names, count // b) for names, count in a.terms))
    raise ShapeError(f"{a} / {b} is not a whole number; export with fixed sizes")


@reads("Pow", folds=True)
def power(x: Operand, y: Operand) -> Results:
    """`x` to the power `y`, which may have another type."""
    kinds = dtype_in(x), dtype_in(y)
    if isinstance(y, Value) and kinds[0] != kinds[1]:
        wide = kinds[0] if _is_float(x) else kinds[1]
        if not _is_float(y) and not _is_float(x):
            wide = kinds[0]
        pair = (converted(each, wide) for each in (x, y))
        return converted(foldable(math.power)(*pair), kinds[0])
    if isinstance(y, np.ndarray) and not _has_sizes(x, y):
        exact = y.astype(dtype_in(x))
        y = exact if (exact.astype(y.dtype) == y).all() else y
    return foldable(math.power)(x, y)


@reads("Equal", folds=True)
def equal(a: Operand, b: Operand) -> Results:
    """Elementwise equality."""
    if _has_sizes(a, b):
        return _each(_same_size, a, b).astype(bool)
    return foldable(math.equal)(a, b)


def _same_size(a: Extent, b: Extent) -> bool:
    """Whether two sizes are equal, for all values of symbolic sizes."""
    rest = a - b
    if not isinstance(rest, Dim):
        return bool(rest == 0)
    counts = [count for _, count in rest.terms]
    if dict(rest.terms).get((), 0) and (min(counts) > 0 or max(counts) < 0):
        return False
    raise ShapeError(f"whether {a} is {b} depends on data; export with fixed sizes")


@reads("Where", folds=True)
def where(condition: Operand, x: Operand, y: Operand) -> Operand:
    """Elementwise selection by a condition."""
    operands = condition, x, y
    if not any(isinstance(each, Value) for each in operands):
        return folded(np.where, *operands)
    made: Tensor = math.where(*map(to_value, operands))
    return made


@reads("Clip", folds=True)
def clip(
    input: Operand, min: Operand | None = None, max: Operand | None = None
) -> Results:
    """Clamp to bounds."""
    x = to_value(input)
    bounds = [None if each is None else _bound(each, x) for each in (min, max)]
    return x if bounds == [None, None] else math.clip(x, *bounds)


def _bound(bound: Operand, x: Tensor) -> object:
    if isinstance(bound, Value):
        return nn.reshape(bound, ()) if bound.ndim else bound
    if bound.size != 1:
        raise GraphError(f"a bound of shape {bound.shape}, where one number is needed")
    with np.errstate(over="ignore"):
        return bound.astype(x.spec.numpy).reshape(()).item()


@writes("math.clip")
def write_clip(writer: Writer, node: Node) -> str:
    """Clamp to bounds."""
    x, names = node.args[0], ("low", "high")
    bounds = [argument(node, at, name, None) for at, name in enumerate(names, 1)]
    given = ["" if bound is None else writer.name(bound, x) for bound in bounds]
    return writer.emit("Clip", writer.name(x), *given)


@reads("Cast", since=6, folds=True)
def cast(
    input: Operand, *, to: int, saturate: int = 1, round_mode: str = "up"
) -> Results:
    """Convert the type. Saturation and rounding modes only apply to 8-bit floats."""
    del saturate, round_mode
    return converted(input, dtype_of(to, "the result"))


@reads("CastLike", folds=True)
def cast_like(
    input: Operand, target_type: Operand, *, saturate: int = 1, round_mode: str = "up"
) -> Results:
    """Convert to the type of another array."""
    del saturate, round_mode
    return converted(input, dtype_in(target_type))


def converted(input: Operand, dtype: np.dtype) -> Operand:
    """Convert the type.

    Raises:
        GraphError: a symbolic size becomes something else than an int64.
    """
    if _has_sizes(input):
        if dtype != np.int64:
            raise GraphError(
                f"the symbolic size {input} as {dtype}; export a fixed one"
            )
        return input
    if not isinstance(input, Value):
        return _cast(input, dtype)
    made: Tensor = input
    if dtype_in(input) != dtype:
        made = math.cast(input, dtype.name)
    return made


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert a constant as `math.cast` does: floats saturate, NaN becomes 0."""
    if x.dtype.kind in "iub" or dtype.kind not in "iu":
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    limits, wide = np.iinfo(dtype), np.nan_to_num(x.astype(float), posinf=np.inf)
    inside = (wide > limits.min - 1.0) & (wide < limits.max + 1.0)
    ends = np.where(wide < 0, limits.min, limits.max).astype(dtype)
    return np.where(inside, np.where(inside, wide, 0).astype(dtype), ends)


@writes("math.cast")
def write_cast(writer: Writer, node: Node) -> str:
    """Convert the type."""
    kind = node.results[0].spec.numpy  # type: ignore[union-attr]
    to = writer.onnx.helper.np_dtype_to_tensor_dtype(kind)
    return writer.emit("Cast", writer.name(node.args[0]), to=to)


def _negated(writer: Writer, node: Node) -> str:
    return writer.emit("Not", _writer("Equal")(writer, node))


def _square(writer: Writer, node: Node) -> str:
    name = writer.name(node.args[0])
    return writer.emit("Mul", name, name)


def _rsqrt(writer: Writer, node: Node) -> str:
    return writer.emit("Reciprocal", writer.emit("Sqrt", writer.name(node.args[0])))


writes("math.not_equal")(_negated)
writes("math.square")(_square)
writes("math.rsqrt")(_rsqrt)
