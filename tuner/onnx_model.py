"""The workloads of a network in an ONNX file: which of our operators, on which shapes.

Only shapes and attributes are read, never a weight: data outside of the file is not
even opened.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from tensorlang.errors import ArgumentError, ShapeError, TensorlangError
from tensorlang.ops import find

Shape: TypeAlias = tuple[int, ...]
INSTALL: Final = "pip install 'tensorlang[onnx]'"
_TYPES: Final = {1: "f32", 10: "f16", 11: "f64", 16: "bf16"}  # of onnx.TensorProto


@dataclass(frozen=True, slots=True)
class Found:
    """A workload of a network, as `tensorlang.tune` takes it.

    Attributes:
        op: The operator's id.
        shapes: Of its arrays.
        dtype: Of its arrays.
        attributes: As pairs.
    """

    op: str
    shapes: tuple[Shape, ...]
    dtype: str
    attributes: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        sizes = ", ".join("x".join(map(str, shape)) for shape in self.shapes)
        named = "".join(f", {name}={value}" for name, value in self.attributes)
        return f"{self.op}({self.dtype} {sizes}{named})"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the graph with what is known of it."""

    kind: str
    shapes: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dtype: str
    attributes: Mapping[str, Any]


def workloads(path: Path, batch: int | None) -> tuple[Counter[Found], Counter[str]]:
    """How often each workload stands in a network, and the kinds of nodes we have not.

    Args:
        path: The ONNX file.
        batch: The size of inputs' first dimensions that the file leaves open.

    Raises:
        ArgumentError: there is no such file, it is no ONNX, or onnx is missing.
        ShapeError: a shape is not known.
    """
    found: Counter[Found] = Counter()
    others: Counter[str] = Counter()
    for node in _nodes(path, batch):
        translate = _KINDS.get(node.kind)
        if translate is None:
            others[node.kind] += node.kind not in _FREE
            continue
        made = translate(node)
        _checked(made, node)
        found[made] += 1
    return found, +others


def _checked(made: Found, node: Node) -> None:
    """Refuse what the operator does not take, naming the node's kind."""
    try:
        find(made.op).workload(*made.shapes, dtypes=made.dtype, **dict(made.attributes))
    except TensorlangError as problem:
        raise ShapeError(f"{node.kind} on {node.shapes}: {problem}") from problem


def _nodes(path: Path, batch: int | None) -> Iterator[Node]:
    graph = _graph(path, batch)
    shapes, types = _values(graph)
    for node in graph.node:
        used = [name for name in node.input if name]
        missing = [name for name in (*used, *node.output) if name not in shapes]
        if missing and node.op_type in _KINDS:
            raise ShapeError(
                f"{path}: the shape of {missing[0]!r} at a {node.op_type} is not "
                "known; give --batch, or export the model with fixed sizes"
            )
        dtype = types.get(used[0] if used else "", 0)
        yield Node(
            node.op_type,
            tuple(shapes.get(name, ()) for name in used),
            tuple(shapes.get(name, ()) for name in node.output),
            _TYPES.get(dtype, "f32"),
            {a.name: _attribute(a) for a in node.attribute},
        )


def _graph(path: Path, batch: int | None) -> Any:
    """The graph with the shapes of all its values inferred."""
    try:
        import onnx  # noqa: PLC0415 - of the onnx extra
    except ImportError:
        raise ArgumentError(f"--model needs onnx: {INSTALL}") from None
    if not path.is_file():
        raise ArgumentError(f"--model {path}: there is no such file")
    try:
        model = onnx.load(str(path), load_external_data=False)
        for value in model.graph.input:
            _fixed(value, batch)
        return onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as problem:
        if isinstance(problem, TensorlangError):
            raise
        said = " ".join(str(problem).split())[:200]
        raise ArgumentError(f"--model {path} is no ONNX model: {said}") from problem


def _fixed(value: Any, batch: int | None) -> None:
    """Put the batch where an input's first dimension is open."""
    dims = value.type.tensor_type.shape.dim
    if len(dims) and not dims[0].HasField("dim_value") and batch is not None:
        dims[0].dim_value = batch


def _values(graph: Any) -> tuple[dict[str, Shape], dict[str, int]]:
    """Shape and element type of each value by name, where they are known."""
    shapes: dict[str, Shape] = {}
    types: dict[str, int] = {}
    for weight in graph.initializer:
        shapes[weight.name], types[weight.name] = tuple(weight.dims), weight.data_type
    for value in (*graph.input, *graph.output, *graph.value_info):
        tensor = value.type.tensor_type
        types[value.name] = tensor.elem_type
        dims = tensor.shape.dim
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes[value.name] = tuple(d.dim_value for d in dims)
    return shapes, types


def _attribute(attribute: Any) -> Any:
    if attribute.ints:
        return tuple(attribute.ints)
    if attribute.type == attribute.FLOAT:
        return attribute.f
    return attribute.s.decode() if attribute.s else attribute.i


# ------------------------------------------------------------- node by node


def _gemm(node: Node) -> Found:
    a, b = node.shapes[:2]
    if node.attributes.get("transA"):
        a = a[::-1]
    given = "oi" if node.attributes.get("transB") else "io"
    return Found("nn.dense", (a, b), node.dtype, (("layout", given),))


def _matmul(node: Node) -> Found:
    a, b = node.shapes
    if len(b) == 2:
        rows = (math.prod(a[:-1]), a[-1])
        return Found("nn.dense", (rows, b), node.dtype, (("layout", "io"),))
    return Found("math.matmul", (a, b), node.dtype)


def _conv(node: Node) -> Found:
    x, w = node.shapes[:2]
    rank, given = len(x) - 2, node.attributes
    pads = given.get("pads", (0,) * 2 * rank)
    padding: Any = tuple(pads[:rank])
    if tuple(pads[rank:]) != padding or given.get("auto_pad", "NOTSET") != "NOTSET":
        padding = "same" if "SAME" in str(given.get("auto_pad")) else padding
    named = {
        "stride": given.get("strides", (1,) * rank),
        "padding": padding,
        "dilation": given.get("dilations", (1,) * rank),
        "groups": given.get("group", 1),
    }
    return Found(f"nn.conv{rank}d", (x, w), node.dtype, tuple(named.items()))


def _pool(name: str) -> Callable[[Node], Found]:
    def translate(node: Node) -> Found:
        x, given = node.shapes[0], node.attributes
        rank = len(x) - 2
        named = {
            "kernel": given["kernel_shape"],
            "stride": given.get("strides", (1,) * rank),
            "padding": tuple(given.get("pads", (0,) * rank)[:rank]),
        }
        return Found(f"nn.{name}{rank}d", (x,), node.dtype, tuple(named.items()))

    return translate


def _same(op: str, **attributes: Any) -> Callable[[Node], Found]:
    """An operator of the node's first array alone."""

    def translate(node: Node) -> Found:
        return Found(op, node.shapes[:1], node.dtype, tuple(attributes.items()))

    return translate


def _along(op: str) -> Callable[[Node], Found]:
    def translate(node: Node) -> Found:
        axis = node.attributes.get("axis", -1)
        return Found(op, node.shapes[:1], node.dtype, (("axis", axis),))

    return translate


def _norm(node: Node) -> Found:
    return Found("nn.layer_norm", node.shapes[:3], node.dtype)


_KINDS: Final[dict[str, Callable[[Node], Found]]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Conv": _conv,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "Softmax": _along("nn.softmax"),
    "LogSoftmax": _along("nn.log_softmax"),
    "LayerNormalization": _norm,
    "Relu": _same("nn.relu"),
    "Gelu": _same("nn.gelu"),
    "Sigmoid": _same("nn.sigmoid"),
    "Tanh": _same("nn.tanh"),
    "Erf": _same("math.erf"),
}
# what costs nothing, or is folded into others
_FREE: Final = frozenset(
    ("Constant", "Identity", "Flatten", "Reshape", "Shape", "Unsqueeze", "Squeeze")
)
