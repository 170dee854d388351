"""Writer of ONNX nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph import Graph, KeySpec, Tensor, TensorSpec, Value, Weight
from tensorlang.graph.networks.leaves import ConstantKey, ConstantTensor
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Node
from tensorlang.onnx.files import library
from tensorlang.onnx.functions import DOMAIN

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from onnx import GraphProto, NodeProto, ValueInfoProto


class Writer:
    """Emits ONNX nodes; `tensorlang.onnx.operators` has a function per operator."""

    def __init__(self) -> None:
        self.onnx = library()
        self.nodes: list[NodeProto] = []  # emitted nodes, in order
        # types of values that cannot be inferred, such as results of loops
        self.told: list[ValueInfoProto] = []
        self.initializers: dict[str, np.ndarray] = {}  # weights and constants by name
        # functions of `tensorlang.onnx.functions` that are called
        self.called: set[str] = set()
        self.names: dict[Value, str] = {}
        self._made = itertools.count()

    def name(self, value: Value | ArrayLike, like: Tensor | None = None) -> str:
        """The name of a value; a number becomes a constant of the type of `like`."""
        if isinstance(value, Weight):
            return value.path
        if isinstance(value, ConstantTensor):
            return self.constant(value.data)
        if isinstance(value, ConstantKey):
            return self.constant(np.asarray(value.data.words))
        if isinstance(value, Value):
            if not self.names[value]:
                raise GraphError(f"ONNX export needs zeros of known sizes: {value!r}")
            return self.names[value]
        dtype = None if like is None else like.spec.numpy
        return self.constant(np.asarray(value, dtype))

    def constant(self, data: np.ndarray) -> str:
        """Add an array as an initializer."""
        name = f"constant_{len(self.initializers)}"
        self.initializers[name] = data
        return name

    def whole(self, *numbers: int) -> str:
        """Add integers as an initializer, such as shapes and axes."""
        return self.constant(np.array(numbers, np.int64))

    def emit(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Emit a node with one result; return its name."""
        return self.emit_all(kind, *inputs, results=1, **attributes)[0]

    def emit_all(
        self, kind: str, *inputs: str, results: int, **attributes: object
    ) -> list[str]:
        """Emit a node; return the names of its results."""
        first = self.fresh()
        outputs = [first, *(f"{first}_{n}" for n in range(1, results))]
        made = self.onnx.helper.make_node(kind, list(inputs), outputs, **attributes)
        self.nodes.append(made)
        return outputs

    def fresh(self) -> str:
        """An unused name."""
        return f"v{next(self._made)}"

    def call(self, name: str, *inputs: str, **attributes: object) -> str:
        """Call one of our functions with one result."""
        return self.call_all(name, *inputs, results=1, **attributes)[0]

    def call_all(
        self, name: str, *inputs: str, results: int, **attributes: object
    ) -> list[str]:
        """Call one of our functions."""
        self.called.add(name)
        return self.emit_all(
            name, *inputs, results=results, domain=DOMAIN, **attributes
        )

    def program(self, graph: Graph) -> None:
        """Write a program's nodes; GraphError if ONNX has no equivalent of one."""
        missing = {node.id for node in all_nodes(graph) if node.id not in WRITERS}
        if missing:
            raise GraphError(
                f"{graph.name} has {', '.join(sorted(missing))}, which cannot be "
                "written as ONNX"
            )
        for node in graph.nodes:
            made = WRITERS[node.id](self, node)
            several = [made] if isinstance(made, str) else made
            self.names.update(zip(node.results, several, strict=True))

    def inside(self, graph: Graph, inputs: Sequence[str]) -> list[str]:
        """Write a nested program; return the names of its outputs."""
        self.names.update(zip(graph.inputs, inputs, strict=True))
        self.program(graph)
        return [self.name(value) for value in graph.outputs]

    def block(
        self,
        name: str,
        inputs: Sequence[ValueInfoProto],
        write: Callable[[], Sequence[str]],
    ) -> GraphProto:
        """Build a nested ONNX graph.

        Args:
            inputs: Names and types of its own inputs.
            write: Writes the nodes; returns the names of the outputs.
        """
        around = self.nodes, self.told
        self.nodes, self.told = [], []
        outputs = [self.emit("Identity", each) for each in write()]
        results = [self.onnx.ValueInfoProto(name=each) for each in outputs]
        made = self.onnx.helper.make_graph(
            self.nodes, name, list(inputs), results, value_info=self.told
        )
        self.nodes, self.told = around
        return made


# writes a node as one or several ONNX nodes; returns the names of the results
Write: TypeAlias = Callable[[Writer, Node], str | list[str]]
WRITERS: Final[dict[str, Write]] = {}


def writes(*ids: str) -> Callable[[Write], Write]:
    """Decorator that registers the writer of operators, by their ids."""

    def register(write: Write) -> Write:
        WRITERS.update(dict.fromkeys(ids, write))
        return write

    return register


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a program and of its nested programs."""
    for node in graph.nodes:
        yield node
        for inner in node.graphs:
            yield from all_nodes(inner)


def argument(node: Node, position: int, name: str, default: object) -> Any:
    """An argument given by position, by name, or by default."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def typed(name: str, value: Value) -> ValueInfoProto:
    """Name and type of an input or output; for a key, of its words."""
    helper = library().helper
    spec = value.spec
    if isinstance(spec, KeySpec):
        if spec.impl != "threefry2x32":
            raise GraphError(
                f"{name} is {spec}; ONNX export supports threefry2x32 only"
            )
        spec = TensorSpec((*spec.shape, 2), "uint32")
    kind = helper.np_dtype_to_tensor_dtype(spec.numpy)
    shape = [str(e) if isinstance(e, Dim) else e for e in spec.shape]
    return helper.make_tensor_value_info(name, kind, shape)
