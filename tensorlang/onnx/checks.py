"""What a file says beside its nodes: its inputs, its functions, its note for us."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph.specs import TensorSpec, shape_of
from tensorlang.onnx.calls import dtype_of
from tensorlang.onnx.folding import checked_size
from tensorlang.onnx.functions import DOMAIN, NOTE, TEXTS, functions

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from onnx import FunctionProto, ModelProto, ValueInfoProto

Note: TypeAlias = Mapping[str, Any]  # JSON, of names and texts where we read it


def noted(model: ModelProto, name: str, arrays: Mapping[str, np.ndarray]) -> Note:
    """What our writer said beside; empty of a stranger's file.

    Raises:
        GraphError: it is no JSON, or names what the file has not.
    """
    for entry in model.metadata_props:
        if entry.key == NOTE:
            try:
                said = json.loads(entry.value)
                weights, states = said.get("weights", []), said.get("states", {})
                named = {*weights, *said.get("fixed", []), *states}
                if named <= arrays.keys() and all(
                    isinstance(each, str) for each in states.values()
                ):
                    return dict(said)
            except (ValueError, TypeError, AttributeError, RecursionError):
                pass
            raise GraphError(f"{name}: its note for tensorlang is damaged; remove it")
    return {}


def check_texts(model: ModelProto, name: str) -> None:
    """Refuse names that are no text: protobuf gives their bytes.

    Raises:
        GraphError: one is not UTF-8.
    """
    for text in _texts(model):
        if isinstance(text, bytes):
            raise GraphError(f"{name}: a name in it is not UTF-8: {text[:40]!r}")


def _texts(message: Message) -> Iterator[str | bytes]:
    """All texts of a message and what it holds; of tensors, what they are called."""
    if message.DESCRIPTOR.name == "TensorProto":  # whose data would be copied
        yield message.name
        for each in message.external_data:
            yield from _texts(each)
        return
    for field, value in message.ListFields():
        one = isinstance(value, (str, bytes)) or hasattr(value, "ListFields")
        held = [value] if one else value
        if field.type == field.TYPE_STRING:
            yield from held
        elif field.type == field.TYPE_MESSAGE:
            for each in held:
                yield from _texts(each)


def check_functions(model: ModelProto, name: str) -> None:
    """Refuse functions that are called like ours and compute something else.

    Raises:
        GraphError: names one of them.
    """
    held = {f.name: f for f in model.functions if f.domain == DOMAIN}
    for own in functions(held.keys() & TEXTS.keys()):
        if own.name in held and _content(held[own.name]) != _content(own):
            raise GraphError(f"{name}: its function {own.name} is none of tensorlang's")


def _content(function: FunctionProto) -> list[str | bytes]:
    nodes = [node.SerializeToString(deterministic=True) for node in function.node]
    return [*function.input, *function.output, *function.attribute, *nodes]


def specs_of(inputs: Sequence[ValueInfoProto], name: str) -> tuple[TensorSpec, ...]:
    """The specs of a program's inputs; the first open size that leads is the batch.

    Raises:
        GraphError: an input is no tensor, or its number of dimensions is not said.
        DTypeError: it has elements of another type than ours.
    """
    called: dict[str, str] = {}
    return tuple(
        _spec(value, f"{name}: input {value.name!r}", called) for value in inputs
    )


def _spec(value: ValueInfoProto, what: str, called: dict[str, str]) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise GraphError(f"{what} is {kind or 'of no type'}; supported are tensors")
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise GraphError(f"{what} has no shape; export the model with one")
    dtype = dtype_of(tensor.elem_type, what)
    shape = [
        dim.dim_value
        if dim.HasField("dim_value") and dim.dim_value >= 0
        else _named(dim.dim_param, at, value.name, called)
        for at, dim in enumerate(tensor.shape.dim)
    ]
    checked_size(shape, dtype.itemsize, what)
    return TensorSpec(shape_of(shape), dtype.name)


def _named(said: str, at: int, of: str, called: dict[str, str]) -> str:
    """The name of an open size: the same for the same, an identifier for any."""
    if not at and (not said or "batch" not in called.values()):
        return called.setdefault(said, "batch")
    said = said or f"{of}_{at}"
    if said not in called:
        own = re.sub(r"\W", "_", said)
        own = own if own.isidentifier() else f"size_{own}"
        while own in called.values():
            own += "_"
        called[said] = own
    return called[said]
