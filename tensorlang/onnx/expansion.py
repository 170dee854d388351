"""Operators as the functions that ONNX, or the file, defines them by.

What has no reader is inlined: its body's nodes are read in place of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tensorlang.errors import GraphError
from tensorlang.graph.specs import Dim
from tensorlang.onnx.calls import Call, Held, Several, kind_of, type_of, value_named
from tensorlang.onnx.files import library

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TypeProto
    from onnx.defs import OpSchema

    from tensorlang.onnx.programs import Program

_DEEPEST: Final = 16  # nested functions


def is_function(model: ModelProto, node: NodeProto) -> bool:
    """Whether the file, or its version of ONNX, defines an operator by a body."""
    domain, kind = kind_of(node)
    if _own(model, domain, kind) is not None:
        return True
    opset = _opsets(model.opset_import).get("", 0)
    schema = None if domain else _schema(kind, opset)
    return schema is not None and bool(_versions(schema, opset))


def expanded(call: Call) -> tuple[Held, ...]:
    """A node's results by its operator's body; GraphError if none, or recursive."""
    program = call.program
    body = _own(program.model, call.domain, call.kind)
    schema = None if call.domain else _schema(call.kind, program.opsets.get("", 0))
    if body is None and schema is not None:
        body = _body(call, schema, program.opsets[""])
    if body is None:
        raise GraphError("this operator is not supported")
    given = dict(call.given)
    usual = {} if schema is None else schema.attributes
    for name, each in usual.items():
        if each.default_value.name:
            given.setdefault(name, each.default_value)
    for attribute in body.attribute_proto:
        given.setdefault(attribute.name, attribute)
    inputs = [*call.inputs, *[None] * (len(body.input) - len(call.inputs))]
    if len(inputs) > len(body.input):
        raise GraphError(f"{len(inputs)} inputs of {len(body.input)}")
    values = {"": None} | dict(zip(body.input, inputs, strict=True))
    with _inside(program, _opsets(body.opset_import)):
        program.nodes(_bound(body.node, given), values)
        asked = zip(body.output, call.outputs, strict=False)
        return tuple(value_named(values, name) if out else None for name, out in asked)


@contextmanager
def _inside(program: Program, opsets: Mapping[str, int]) -> Iterator[None]:
    """The operator sets of a body, while it is read."""
    around = program.opsets
    if program.depth >= _DEEPEST:
        raise GraphError("its functions are nested too deeply, or call themselves")
    program.opsets, program.depth = {**around, **opsets}, program.depth + 1
    try:
        yield
    finally:
        program.opsets, program.depth = around, program.depth - 1


def _opsets(imports: Iterable[object]) -> dict[str, int]:
    return {
        "" if each.domain == "ai.onnx" else each.domain: each.version  # type: ignore[attr-defined]
        for each in imports
    }


def _own(model: ModelProto, domain: str, kind: str) -> FunctionProto | None:
    """The file's own function of a name."""
    named = (f for f in model.functions if (f.domain, f.name) == (domain, kind))
    return next(named, None)


def _schema(kind: str, opset: int) -> OpSchema | None:
    defs = library().defs
    try:
        return defs.get_schema(kind, opset, "")
    except defs.SchemaError:
        return None


def _versions(schema: OpSchema, opset: int) -> list[int]:
    """The operator sets that it has a body for."""
    known = (
        *schema.function_opset_versions,
        *schema.context_dependent_function_opset_versions,
    )
    return sorted(version for version in known if version <= opset)


def _body(call: Call, schema: OpSchema, opset: int) -> FunctionProto | None:
    """The newest body that ONNX has for an operator, for these types of inputs."""
    onnx = library()
    for version in reversed(_versions(schema, opset)):
        if version in schema.function_opset_versions:
            data = schema.get_function_with_opset_version(version)
        else:
            types = [_type(value).SerializeToString() for value in call.inputs]
            data = schema.get_context_dependent_function_with_opset_version(
                version, call.node.SerializeToString(), types
            )
        if data:
            body: FunctionProto = onnx.FunctionProto.FromString(data)
            return body
    return None


def _type(value: Held) -> TypeProto:
    """The type of an input in ONNX's terms; an empty one for what is left out."""
    onnx = library()
    made: TypeProto = onnx.TypeProto()
    kind = type_of(value)
    if kind is not None and not isinstance(value, Several | None):
        name = kind.removeprefix("tensor(").removesuffix(")").upper()
        made.tensor_type.elem_type = onnx.TensorProto.DataType.Value(name)
        made.tensor_type.shape.Clear()
        for extent in value.shape:
            size = made.tensor_type.shape.dim.add()
            if isinstance(extent, Dim):
                size.dim_param = str(extent)
            else:
                size.dim_value = extent
    return made


def _bound(
    nodes: Iterable[NodeProto], given: Mapping[str, AttributeProto]
) -> Iterator[NodeProto]:
    """The nodes with the call's attributes in place of references to them."""
    for node in nodes:
        made = library().NodeProto.FromString(node.SerializeToString())
        del made.attribute[:]
        for attribute in node.attribute:
            name = attribute.ref_attr_name
            if name and name not in given:
                continue
            each = made.attribute.add()
            each.CopyFrom(given[name] if name else attribute)
            each.name = attribute.name
            if each.HasField("g"):
                inner = list(_bound(each.g.node, given))
                del each.g.node[:]
                each.g.node.extend(inner)
        yield made
