"""A network as one ONNX file: its program, its weights, and the states of training.

The file's program is that of training, where dropout and batch norms ask an input
`training`, which is false by default: a runtime that gives the images alone uses the
network, one that gives `training` and `generator` too gets training's own numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tensorlang.errors import GraphError, WeightError
from tensorlang.graph import Graph, KeySpec, Network, TensorSpec, Value, Weight
from tensorlang.graph.leaves import ConstantKey, ConstantTensor
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Node
from tensorlang.onnx.alike import alike
from tensorlang.onnx.files import library, written_whole
from tensorlang.onnx.functions import DOMAIN, OPSET, functions

LIMIT: Final = (1 << 31) - 1  # of a protobuf message, in bytes
TRAINING: Final = "training"
NOTE: Final = "tensorlang"  # the key of what our reader is told


class Writer:
    """Writes nodes of ONNX; `tensorlang.onnx.kinds` says which for each operator.

    Attributes:
        nodes: What is written, in order.
        initializers: Weights and constants by name.
        called: The functions of `tensorlang.onnx.functions` that are called.
    """

    def __init__(self) -> None:
        self.onnx = library()
        self.nodes: list[Any] = []
        self.initializers: dict[str, np.ndarray[Any, Any]] = {}
        self.called: set[str] = set()
        self.names: dict[Value, str] = {}

    def name(self, value: Any, like: Any = None) -> str:
        """What a value is called; a number becomes a constant of the type of `like`."""
        if isinstance(value, Weight):
            return value.path
        if isinstance(value, ConstantTensor):
            return self.constant(value.data)
        if isinstance(value, ConstantKey):
            return self.constant(np.asarray(value.data.words))
        if isinstance(value, Value):
            return self.names[value]
        return self.constant(np.asarray(value, like.spec.numpy))

    def constant(self, data: Any) -> str:
        """An array as an initializer."""
        name = f"constant_{len(self.initializers)}"
        self.initializers[name] = np.asarray(data)
        return name

    def whole(self, *numbers: int) -> str:
        """Whole numbers as an initializer, as shapes and axes are given."""
        return self.constant(np.array(numbers, np.int64))

    def emit(self, kind: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        """A node of ONNX: the name of what it gives, or of all of it."""
        outputs = [f"v{len(self.nodes)}_{n}" for n in range(results)]
        made = self.onnx.helper.make_node(kind, list(inputs), outputs, **attributes)
        self.nodes.append(made)
        return outputs[0] if results == 1 else outputs

    def call(self, name: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        """A call of one of our functions."""
        self.called.add(name)
        return self.emit(name, *inputs, results=results, domain=DOMAIN, **attributes)

    def program(self, graph: Graph) -> None:
        """All nodes of a program.

        Raises:
            GraphError: one of them is nothing that ONNX has.
        """
        from tensorlang.onnx.kinds import KINDS  # noqa: PLC0415 - it builds on this

        missing = {node.id for node in graph.nodes if node.id not in KINDS}
        if missing:
            raise GraphError(
                f"{graph.name} has {', '.join(sorted(missing))}, which we do not write "
                "as ONNX"
            )
        for node in graph.nodes:
            made = KINDS[node.id](self, node)
            several = made if isinstance(made, list) else [made]
            self.names.update(zip(node.results, several, strict=True))


def argument(node: Node, position: int, name: str, default: Any) -> Any:
    """An argument of a call, given by position, by name, or not at all."""
    if position < len(node.args):
        return node.args[position]
    return node.kwargs.get(name, default)


def model_of(network: Network, *, note: Mapping[str, Any] | None = None) -> Any:
    """A network as `onnx.ModelProto`.

    Raises:
        GraphError: an operator is nothing that ONNX has, a key is no Threefry2x32, or a
            layer does in training what one program cannot say.
        ArgumentError: onnx is not installed.
    """
    graph, places = network.train.graph, network.train.places
    count = len(network.outputs)
    alike(network.use.graph, graph, count)
    writer = Writer()
    writer.names = dict(zip(graph.inputs, _called(network), strict=True))
    writer.program(graph)
    outputs = [writer.emit("Identity", writer.name(value)) for value in graph.outputs]
    names = [f"y{n}" for n in range(count)]
    names += [f"{place.name}.after" for place in places]
    for node, name in zip(writer.nodes[-len(outputs) :], names, strict=True):
        node.output[0] = name
    return _proto(writer, network, names, note or {})


def _called(network: Network) -> list[str]:
    names = [f"x{n}" for n in range(len(network.specs))]
    return names + [place.name for place in network.train.places]


def _proto(
    writer: Writer, network: Network, outputs: Sequence[str], note: Mapping[str, Any]
) -> Any:
    helper, graph = writer.onnx.helper, network.train.graph
    states = {place.name: str(place.spec) for place in network.train.places}
    begun = network.weights | {name: network.states[name] for name in states}
    if TRAINING in {name for node in writer.nodes for name in node.input}:
        begun[TRAINING] = np.array(False)
    arrays = begun | writer.initializers
    made = helper.make_graph(
        writer.nodes,
        "network",
        [*map(_info, _called(network), graph.inputs), *_training(helper, begun)],
        list(map(_info, outputs, graph.outputs)),
        [writer.onnx.numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    sets = {"": OPSET} | ({DOMAIN: 1} if writer.called else {})
    model = helper.make_model(
        made,
        producer_name="tensorlang",
        ir_version=8,
        opset_imports=[helper.make_opsetid(*pair) for pair in sets.items()],
        functions=functions(writer.called),
    )
    fixed = [path for path, leaf in network.leaves.items() if not leaf.trainable]
    said = {"weights": list(network.weights), "fixed": fixed, "states": states}
    helper.set_model_props(model, {NOTE: json.dumps(said | dict(note))})
    return model


def _training(helper: Any, begun: Mapping[str, Any]) -> list[Any]:
    return [helper.make_tensor_value_info(TRAINING, 9, [])] if TRAINING in begun else []


def _info(name: str, value: Value) -> Any:
    """The type of an input or output; of a key, its words."""
    helper = library().helper
    spec = value.spec
    if isinstance(spec, KeySpec):
        if spec.impl != "threefry2x32":
            raise GraphError(f"{name} is {spec}; ONNX is written for threefry2x32 only")
        spec = TensorSpec((*spec.shape, 2), "uint32")
    kind = helper.np_dtype_to_tensor_dtype(spec.numpy)
    shape = [str(e) if isinstance(e, Dim) else e for e in spec.shape]
    return helper.make_tensor_value_info(name, kind, shape)


def save(
    network: Network,
    path: str | os.PathLike[str],
    *,
    note: Mapping[str, Any] | None = None,
) -> bytes:
    """Write a network as one ONNX file, with its weights; whole, or not at all.

    Args:
        network: The network.
        path: Where.
        note: What a reader of ours is told beside, as JSON has it.

    Returns:
        What stands in the file.

    Raises:
        GraphError: the network cannot be written as ONNX.
        WeightError: it has more than the 2 GB of one ONNX file.
    """
    size = sum(array.nbytes for array in network.weights.values())
    if size >= LIMIT:
        raise WeightError(f"{size} bytes of weights are more than one ONNX file holds")
    model = model_of(network, note=note)
    library().checker.check_model(model)
    data: bytes = model.SerializeToString()
    written_whole(path, data)
    return data


__all__ = ["Writer", "argument", "model_of", "save"]
