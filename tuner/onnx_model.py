"""The workloads of a network in an ONNX file: which of our operators, on which shapes.

Only shapes and attributes are read, never a weight: data outside of the file is not
even opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensorlang.errors import ArgumentError, ShapeError, TensorlangError
from tensorlang.ops import find
from tensorlang.tuner.onnx_kinds import FREE, KINDS, Found, Node, Shape

if TYPE_CHECKING:
    import onnx

INSTALL: Final = "pip install 'tensorlang[onnx]'"
_TYPES: Final = {1: "f32", 10: "f16", 11: "f64", 16: "bf16"}  # of onnx.TensorProto


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
        translate = KINDS.get(node.kind)
        if translate is None:
            others[node.kind] += node.kind not in FREE
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
    blocks = list(_blocks(_graph(path, batch)))
    shapes, types = _values(blocks)
    for node in (node for block in blocks for node in block.node):
        used = [name for name in node.input if name]
        missing = [name for name in (*used, *node.output) if name not in shapes]
        if missing and node.op_type in KINDS:
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


def _graph(path: Path, batch: int | None) -> onnx.GraphProto:
    """The graph with the shapes of all its values inferred."""
    try:
        import onnx  # noqa: PLC0415 - of the onnx extra
    except ImportError:
        raise ArgumentError(f"--model needs onnx: {INSTALL}") from None
    if not path.is_file():
        raise ArgumentError(f"--model {path}: there is no such file")
    try:
        model = onnx.load(str(path), load_external_data=False)
        if batch is not None:
            _fixed(model.graph, batch)
        return onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as problem:
        if isinstance(problem, TensorlangError):
            raise
        said = " ".join(str(problem).split())[:200]
        raise ArgumentError(f"--model {path} is no ONNX model: {said}") from problem


def _fixed(graph: onnx.GraphProto, batch: int) -> None:
    """Put the batch where an input's first dimension is open, and where its name is."""
    names = set()
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if len(dims) and not dims[0].HasField("dim_value"):
            names.add(dims[0].dim_param)
            dims[0].dim_value = batch
    for block in _blocks(graph):
        for value in (*block.input, *block.output, *block.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param and dim.dim_param in names:
                    dim.dim_value = batch


def _blocks(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph, and the branches and bodies in it: what is in a loop counts once."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _blocks(attribute.g)


def _values(
    blocks: Sequence[onnx.GraphProto],
) -> tuple[dict[str, Shape], dict[str, int]]:
    """Shape and element type of each value by name, where they are known."""
    shapes: dict[str, Shape] = {}
    types: dict[str, int] = {}
    for weight in (weight for block in blocks for weight in block.initializer):
        shapes[weight.name], types[weight.name] = tuple(weight.dims), weight.data_type
    told = ((*block.input, *block.output, *block.value_info) for block in blocks)
    for value in (value for values in told for value in values):
        tensor = value.type.tensor_type
        types[value.name] = tensor.elem_type
        dims = tensor.shape.dim
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            shapes[value.name] = tuple(d.dim_value for d in dims)
    return shapes, types


def _attribute(attribute: onnx.AttributeProto) -> object:
    if attribute.ints:
        return tuple(attribute.ints)
    if attribute.type == attribute.FLOAT:
        return attribute.f
    return attribute.s.decode() if attribute.s else attribute.i


__all__ = ["Found", "Node", "workloads"]
