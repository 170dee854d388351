"""Checks of a model apart from its nodes: inputs, functions, tensorlang's note."""

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

Note: TypeAlias = Mapping[str, Any]  # decoded JSON


def note_of(model: ModelProto, name: str, arrays: Mapping[str, np.ndarray]) -> Note:
    """The note of our writer; empty for other files.

    Raises:
        GraphError: it is not JSON, or names values that the file lacks.
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
    """GraphError for names that are not UTF-8, which protobuf returns as bytes."""
    for text in _texts(model):
        if isinstance(text, bytes):
            raise GraphError(f"{name}: a name in it is not UTF-8: {text[:40]!r}")


def _texts(message: Message) -> Iterator[str | bytes]:
    """All strings of a message and its submessages; for tensors, only their names."""
    if message.DESCRIPTOR.name == "TensorProto":  # avoids copying its data
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
    """GraphError, with its name, for a function of our name with another body."""
    held = {f.name: f for f in model.functions if f.domain == DOMAIN}
    for own in functions(held.keys() & TEXTS.keys()):
        if own.name in held and _content(held[own.name]) != _content(own):
            raise GraphError(
                f"{name}: its function {own.name} is not one of tensorlang's"
            )


def _content(function: FunctionProto) -> list[str | bytes]:
    nodes = [node.SerializeToString(deterministic=True) for node in function.node]
    return [*function.input, *function.output, *function.attribute, *nodes]


def specs_of(inputs: Sequence[ValueInfoProto], name: str) -> tuple[TensorSpec, ...]:
    """The input specs; the first symbolic leading dimension is the batch.

    Raises:
        GraphError: an input is not a tensor, or has unknown rank.
        DTypeError: its dtype is not supported.
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
    """An identifier for a symbolic size, unique per name in the file.

    A name without a letter or digit, such as `?`, is none.
    """
    said = said if re.search(r"\w", said) else ""
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
