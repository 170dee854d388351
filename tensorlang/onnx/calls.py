"""A node of an ONNX file with its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tensorlang.errors import DTypeError, GraphError, TensorlangError
from tensorlang.graph.networks.leaves import Weight
from tensorlang.graph.values import Key, Tensor
from tensorlang.ir.dtypes import as_dtype
from tensorlang.onnx.files import library

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

    from tensorlang.onnx.programs import Program

Operand: TypeAlias = Tensor | np.ndarray  # a symbolic value or a constant


class Several(tuple[Operand, ...]):
    """A sequence of arrays, as the value of a name."""

    __slots__ = ()


Held: TypeAlias = Tensor | Key | np.ndarray | Several | None  # the value of a name
# an attribute: a number, string, numbers, an array, or a graph
Attribute: TypeAlias = "int | float | str | tuple[float, ...] | np.ndarray | GraphProto"
# values by name; or the error that explains a missing one
Around: TypeAlias = Mapping[str, Held | TensorlangError]


class Call:
    """A node of a file with its inputs.

    Attributes:
        kind: The operator's name in ONNX.
        domain: Its operator set; empty for ONNX's own.
        inputs: Symbolic values; arrays if constant; None if omitted.
        names: Names of the inputs.
        outputs: Names of the results.
        given: The attributes set by the node, as ONNX has them.
        version: The operator's version in the file's opset.
        program: The program that contains it.
        node: The node itself.
        around: All values visible to the node, by name.

    Raises:
        GraphError: an input has no value.
    """

    def __init__(self, program: Program, node: NodeProto, around: Around) -> None:
        self.program, self.around, self.version = program, around, 1
        self.node = node
        self.domain, self.kind = kind_of(node)
        self.names, self.outputs = tuple(node.input), tuple(node.output)
        self.inputs = [value_named(around, name) for name in self.names]
        self.given = {each.name: each for each in node.attribute}

    def known(self, value: Held, what: str, *, small: bool = True) -> np.ndarray:
        """A value that must be constant, such as a shape.

        Args:
            what: Its name in messages.
            small: Whether of the inputs that it may depend on only small ones are
                asked for.

        Raises:
            GraphError: it depends on data.
        """
        if isinstance(value, Weight):
            value = self.program.arrays[value.path]
        if isinstance(value, Tensor):
            value = self.program.evaluated(value, small=small)
        if not isinstance(value, np.ndarray):
            raise GraphError(f"its input {what!r} depends on data; make it constant")
        return value


def kind_of(node: NodeProto) -> tuple[str, str]:
    """Operator set and name of a node's operator."""
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def value_named(around: Around, name: str) -> Held:
    """The value of a name; None for the empty name; GraphError if it is undefined."""
    if name not in around:
        raise GraphError(f"no node, input or initializer gives {name!r}")
    value = around[name]
    if isinstance(value, TensorlangError):
        raise value
    return value


def attribute_of(attribute: AttributeProto) -> Attribute:
    """An attribute's value: a number, string, tuple of numbers, array or graph.

    Raises:
        GraphError: it has no value.
    """
    if attribute.type == attribute.TENSOR:
        return array_of(attribute.t, f"attribute {attribute.name}")
    try:
        value = library().helper.get_attribute_value(attribute)
        if attribute.type == attribute.FLOAT:
            return as_decimal(value)
        if isinstance(value, bytes):
            return value.decode()
    except ValueError as problem:
        raise GraphError(f"attribute {attribute.name}: {problem}") from None
    if attribute.type in {attribute.INTS, attribute.FLOATS}:
        return tuple(
            value if attribute.type == attribute.INTS else map(as_decimal, value)
        )
    return value


def as_decimal(value: float) -> float:
    """The decimal meant by a 32-bit float of the file: 1e-05, not 9.99e-06."""
    return float(str(np.float32(value)))


def array_of(tensor: TensorProto, what: str) -> np.ndarray:
    """A tensor of a file as an array.

    Raises:
        DTypeError: its dtype is not supported.
        GraphError: its data does not fit its shape.
    """
    dtype = dtype_of(tensor.data_type, what)
    if any(n < 0 for n in tensor.dims):
        raise GraphError(f"{what} has shape {list(tensor.dims)}; sizes are 0 or more")
    try:
        held: np.ndarray = library().numpy_helper.to_array(tensor)
        made = held.astype(dtype, order="C", copy=not held.flags.c_contiguous)
    except (ValueError, TypeError, OverflowError) as problem:
        raise GraphError(f"{what} is not a tensor: {problem}") from None
    return made


def dtype_of(kind: int, what: str) -> np.dtype:
    """The NumPy dtype of an ONNX element type; DTypeError if not supported."""
    onnx = library()
    try:
        return as_dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).numpy
    except (KeyError, DTypeError):
        names = onnx.TensorProto.DataType
        said = names.Name(kind).lower() if kind in names.values() else kind
        raise DTypeError(
            f"{what} has elements of type {said}; supported are floats of 16, 32 and "
            "64 bits, bfloat16, integers of 8 to 64 bits, and bool"
        ) from None


def type_of(value: Held) -> str | None:
    """ONNX's name of a value's type; None for keys, sequences and omitted values."""
    if value is None or isinstance(value, Key | Several):
        return None
    dtype = dtype_in(value)
    return _type(np.dtype(np.int64) if dtype.kind == "O" else dtype)


def dtype_in(x: Operand) -> np.dtype:
    """The NumPy dtype of a constant or value."""
    return x.spec.numpy if isinstance(x, Tensor) else x.dtype


def dtype_named(kind: str) -> np.dtype:
    """The NumPy dtype of an ONNX tensor type name."""
    said = kind.removeprefix("tensor(").removesuffix(")").upper()
    return dtype_of(library().TensorProto.DataType.Value(said), kind)


@cache
def _type(dtype: np.dtype) -> str:
    onnx = library()
    kind = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return f"tensor({onnx.TensorProto.DataType.Name(kind).lower()})"
