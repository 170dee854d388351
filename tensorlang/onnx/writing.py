"""A network as one ONNX file: program, weights and training state.

The file has the training program, in which dropout and batch norms depend on an input
`training`, false by default. Given only the data inputs, a runtime does inference;
given `training` and `generator` as well, it reproduces training's numbers.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph import Graph, Network
from tensorlang.graph.passes.optimisation import WrittenOut
from tensorlang.graph.recurrent import step_by_step
from tensorlang.onnx.checks import Note
from tensorlang.onnx.files import library
from tensorlang.onnx.functions import DOMAIN, NOTE, OPSET, TRAINING, functions
from tensorlang.onnx.mode_equivalence import check_equivalent
from tensorlang.onnx.writer import Writer, all_nodes, typed

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto, ValueInfoProto

Outside: TypeAlias = tuple[str, int, int]


def check_network(network: object) -> None:
    """GraphError for what is no network, such as a graph or a layer."""
    if not isinstance(network, Network):
        raise GraphError(
            f"a graph.Network is written as ONNX, not a {type(network).__name__}; a "
            "layers.Model is saved by model.save(path)"
        )


def model_of(
    network: Network,
    *,
    note: Note | None = None,
    outside: Mapping[str, Outside] | None = None,
) -> ModelProto:
    """A network as `onnx.ModelProto`.

    Args:
        network: The network.
        note: JSON-compatible metadata for our reader.
        outside: Weights with external data: file name, offset and length in bytes.

    Raises:
        GraphError: it is no network, ONNX has no equivalent of an operator, a key is
            not Threefry2x32, or training and inference differ too much for one program.
        ArgumentError: onnx is not installed.
    """
    check_network(network)
    places, count = network.train.places, len(network.outputs)
    use, graph = (_written_out(each.graph) for each in (network.use, network.train))
    check_equivalent(use, graph, count)
    writer = Writer()
    writer.names = dict(zip(graph.inputs, _called(network), strict=True))
    writer.program(graph)
    outputs = [writer.emit("Identity", writer.name(value)) for value in graph.outputs]
    names = [f"y{n}" for n in range(count)]
    names += [f"{place.name}.after" for place in places]
    for node, name in zip(writer.nodes[-len(outputs) :], names, strict=True):
        node.output[0] = name
    made = _proto(writer, network, graph, names, outside or {})
    _add_note(made, network, note or {})
    return made


def _written_out(graph: Graph) -> Graph:
    """Inline all calls; checkpoints only concern training."""
    for node in all_nodes(graph):
        own = node.graphs[0].function if node.id == "call" else None
        if own is not None and own.gradient is not None:
            raise GraphError(
                f"{own.name} ({node.place})has a custom gradient, which an ONNX "
                "file cannot hold"
            )
    return step_by_step(WrittenOut().graph(graph))


def _called(network: Network) -> list[str]:
    names = [f"x{n}" for n in range(len(network.specs))]
    return names + [place.name for place in network.train.places]


def _proto(
    writer: Writer,
    network: Network,
    graph: Graph,
    outputs: Sequence[str],
    outside: Mapping[str, Outside],
) -> ModelProto:
    helper = writer.onnx.helper
    states = {place.name: str(place.spec) for place in network.train.places}
    begun = network.weights | {name: network.states[name] for name in states}
    if writer.called & {"dropout_train", "batch_norm_train"}:
        begun[TRAINING] = np.array(False)
    arrays = begun | writer.initializers
    made = helper.make_graph(
        writer.nodes,
        "network",
        [*map(typed, _called(network), graph.inputs), *_training(writer, begun)],
        list(map(typed, outputs, graph.outputs)),
        [_tensor(writer, name, a, outside.get(name)) for name, a in arrays.items()],
        value_info=writer.told,
    )
    sets = {"": OPSET} | ({DOMAIN: 1} if writer.called else {})
    return helper.make_model(
        made,
        producer_name="tensorlang",
        ir_version=8,
        opset_imports=[helper.make_opsetid(*pair) for pair in sets.items()],
        functions=functions(writer.called),
    )


def _add_note(model: ModelProto, network: Network, note: Note) -> None:
    """Add the metadata for our reader."""
    states = {place.name: str(place.spec) for place in network.train.places}
    fixed = [path for path, leaf in network.leaves.items() if not leaf.trainable]
    said = {"weights": list(network.weights), "fixed": fixed, "states": states}
    library().helper.set_model_props(model, {NOTE: json.dumps(said | dict(note))})


def _tensor(
    writer: Writer, name: str, array: np.ndarray, outside: Outside | None
) -> TensorProto:
    if outside is None:
        return writer.onnx.numpy_helper.from_array(array, name)
    kind = writer.onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    made = writer.onnx.TensorProto(name=name, data_type=kind, dims=array.shape)
    made.data_location = writer.onnx.TensorProto.EXTERNAL
    for key, value in zip(("location", "offset", "length"), outside, strict=True):
        made.external_data.add(key=key, value=str(value))
    return made


def _training(writer: Writer, begun: Container[str]) -> list[ValueInfoProto]:
    make = writer.onnx.helper.make_tensor_value_info
    return [make(TRAINING, 9, [])] if TRAINING in begun else []


__all__ = ["TRAINING", "model_of"]
