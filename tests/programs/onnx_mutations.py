"""What may be wrong with an ONNX file: changes of a model, one at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from tensorlang_test_programs.expressions import Draw

Change = Callable[[Draw, Any], None]

NEWEST: Final = 25  # the opset that onnxruntime knows
INTEGERS: Final = (
    *(0, 1, 2, -1, 3, -2, 4, 5, 7, 16, 100, -100, 10**6, 10**9, 10**12),
    *(2**31 - 1, -(2**31), 2**63 - 1, -(2**63)),
)
FLOATS: Final = (0.0, 1.0, 0.5, -1.0, 2.0, 1e-5, 1e30, float("inf"), float("nan"))
NAMES: Final = (
    *("", "x", "y", "a b", "1", "é", "*/ int", 'q"q', "n\nn", "if", "N", "x" * 999),
    *("%", "{{ x }}", "../x", "\\", "batch", "training", "generator"),
)
WORDS: Final = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "tanh", "none", "edge")
TYPES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 21, 0, 99)
ODD: Final = ("Foo", "", "Det", "If", "Loop", "Constant", "CastLike", "Resize")
ATTRIBUTES: Final = (
    *("axis", "axes", "perm", "keepdims", "to", "pads", "strides", "dilations"),
    *("kernel_shape", "group", "auto_pad", "ceil_mode", "count_include_pad", "alpha"),
    *("beta", "transA", "transB", "value", "value_ints", "split", "starts", "ends"),
    *("allowzero", "noop_with_empty_axes", "training_mode", "mode", "shape", "min"),
    *("max", "ratio", "epsilon", "momentum", "spatial", "is_test", "broadcast"),
    *("upper", "select_last_index", "fmod", "num_outputs", "output_padding"),
    *("output_shape", "storage_order", "stash_type", "saturate", "consumed_inputs"),
)


def _blocks(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _blocks(attribute.g)


def _block(draw: Draw, model: Any) -> Any:
    return draw(st.sampled_from(list(_blocks(model.graph))))


def _one(draw: Draw, items: Any) -> Any:
    """One of some items; None where there are none."""
    found = list(items)
    return draw(st.sampled_from(found)) if found else None


def _node(draw: Draw, model: Any) -> Any:
    return _one(draw, _block(draw, model).node)


def _names(block: Any) -> list[str]:
    made = [each.name for each in (*block.input, *block.initializer)]
    return [*dict.fromkeys([*made, *(n for node in block.node for n in node.output)])]


def _integers(draw: Draw, *, most: int = 5) -> list[int]:
    return draw(st.lists(st.sampled_from(INTEGERS), max_size=most))


# ------------------------------------------------------------------------ operators


def kind(draw: Draw, model: Any) -> None:
    """Another operator."""
    from tensorlang.onnx.reading import READERS

    if node := _node(draw, model):
        kinds = sorted({name for _, name in READERS})
        node.op_type = draw(st.sampled_from(kinds) | st.sampled_from(ODD))


def domain(draw: Draw, model: Any) -> None:
    """Another operator set."""
    if node := _node(draw, model):
        sets = ("ai.onnx", "com.microsoft", "tensorlang", "ai.onnx.ml", "")
        node.domain = draw(st.sampled_from(sets))
        if draw(st.booleans()):
            model.opset_import.add(domain=node.domain, version=1)


def opset(draw: Draw, model: Any) -> None:
    """Another version of the operators."""
    entry = _one(draw, model.opset_import)
    if entry is None or draw(st.integers(0, 9)) == 9:
        names = st.sampled_from(("", "tensorlang", "ai.onnx", "com.microsoft"))
        entry = model.opset_import.add(domain=draw(names))
    entry.version = draw(st.integers(1, 28) | st.sampled_from((0, -1, 29, 100, 2**40)))


def ir_version(draw: Draw, model: Any) -> None:
    model.ir_version = draw(st.sampled_from((3, 4, 7, 8, 10, 13, 0, -1, 99)))


# ----------------------------------------------------------------------- attributes


def attribute(draw: Draw, model: Any) -> None:
    """Another value of an attribute, or one that comes or goes."""
    node = _node(draw, model)
    if node is None:
        return
    found, how = _one(draw, node.attribute), draw(st.integers(0, 5))
    if found is None or how == 0:
        found = node.attribute.add(name=draw(st.sampled_from(ATTRIBUTES)))
        schema = _schema(model, node)
        if schema is not None and schema.attributes and draw(st.booleans()):
            found.name = draw(st.sampled_from(sorted(schema.attributes)))
            found.type = int(schema.attributes[found.name].type.value)
        _filled(draw, found)
    elif how == 1:
        node.attribute.remove(found)
    elif how == 2:
        found.type = draw(st.integers(0, 14))
    elif how == 3:
        found.name = draw(st.sampled_from(ATTRIBUTES))
    elif found.type == AttributeProto.INTS and found.ints and draw(st.booleans()):
        at = draw(st.integers(0, len(found.ints) - 1))
        found.ints[at] = draw(st.sampled_from(INTEGERS))
    else:
        _filled(draw, found)


def _schema(model: Any, node: Any) -> Any:
    version = max((e.version for e in model.opset_import if not e.domain), default=1)
    try:
        return onnx.defs.get_schema(node.op_type, version, "")
    except Exception:
        return None


def _filled(draw: Draw, found: Any) -> None:
    """A value of an attribute's type, or of some."""
    if not found.type:
        found.type = draw(st.sampled_from((2, 7, 1, 3, 6, 4)))
    if found.type == AttributeProto.INT:
        found.i = draw(st.sampled_from(INTEGERS))
    elif found.type == AttributeProto.INTS:
        del found.ints[:]
        found.ints.extend(_integers(draw))
    elif found.type == AttributeProto.FLOAT:
        found.f = draw(st.sampled_from(FLOATS))
    elif found.type == AttributeProto.FLOATS:
        del found.floats[:]
        found.floats.extend(draw(st.lists(st.sampled_from(FLOATS), max_size=4)))
    elif found.type == AttributeProto.STRING:
        text = st.sampled_from(WORDS + NAMES).map(str.encode)
        found.s = draw(text | st.just(b"\xff\xfe"))
    elif found.type == AttributeProto.TENSOR:
        found.t.CopyFrom(_tensor(draw, ""))


def _tensor(draw: Draw, name: str) -> Any:
    """A small constant."""
    dtype = draw(st.sampled_from(("int64", "float32", "int32", "bool", "float16")))
    shape = draw(st.lists(st.integers(0, 4), max_size=2))
    values = draw(st.lists(st.sampled_from(INTEGERS[:10]), min_size=1, max_size=4))
    array = np.resize(np.array(values, np.int64), shape).astype(dtype)
    return numpy_helper.from_array(array, name)


def _array(tensor: Any) -> Any:
    """A constant as an array; None where it is none."""
    try:
        return numpy_helper.to_array(tensor)
    except Exception:
        return None


def version(draw: Draw, model: Any) -> None:
    """Another opset, whose operators may take inputs as attributes, or the reverse."""
    known = _first_versions()
    kinds = [node.op_type for block in _blocks(model.graph) for node in block.node]
    oldest = max((known.get(kind, 1) for kind in kinds), default=1)
    restamp(model, draw(st.integers(min(oldest, NEWEST), NEWEST)))


@cache
def _first_versions() -> dict[str, int]:
    """The opsets that operators are there from."""
    made: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            made[schema.name] = min(schema.since_version, made.get(schema.name, 99))
    return made


def restamp(model: Any, opset: int) -> None:
    """Write the model in another opset; what its operators compute may change."""
    now = {name: [f.name for f in s.inputs] for name, s in _schemas(model)}
    entry = next((each for each in model.opset_import if not each.domain), None)
    if entry is not None:
        entry.version = opset
        found = dict(_schemas(model))
        for block in _blocks(model.graph):
            for node in block.node:
                if node.op_type in found:
                    _moved(model, node, now.get(node.op_type, []), found[node.op_type])


def _schemas(model: Any) -> list[tuple[str, Any]]:
    nodes = [node for block in _blocks(model.graph) for node in block.node]
    made = [(node.op_type, _schema(model, node)) for node in nodes]
    return [(name, schema) for name, schema in made if schema is not None]


def _moved(model: Any, node: Any, names: list[str], schema: Any) -> None:
    """Constant inputs become attributes, or the reverse, as a schema has them."""
    arrays = {each.name: each for each in model.graph.initializer}
    for formal, name in reversed(list(zip(names, node.input, strict=False))):
        array = _array(arrays[name]) if name in arrays else None
        if formal in schema.attributes and array is not None:
            value = (array.ravel() + 0).tolist()
            several = schema.attributes[formal].type.name.endswith("S")
            if value and array.dtype.kind in "iuf":
                made = value if several else value[0]
                node.attribute.append(helper.make_attribute(formal, made))
                del node.input[names.index(formal) :]
    for at, formal in enumerate(schema.inputs):
        held = [each for each in node.attribute if each.name == formal.name]
        if held and at == len(node.input):
            value = helper.get_attribute_value(held[0])
            if isinstance(value, (int, float, list)):
                name = f"{formal.name}_{len(model.graph.initializer)}"
                array = np.array(value).astype("f4" if formal.type_str == "T" else "i8")
                model.graph.initializer.append(numpy_helper.from_array(array, name))
                model.ir_version = max(model.ir_version, 4)
                node.input.append(name)
    for each in [each for each in node.attribute if each.name not in schema.attributes]:
        node.attribute.remove(each)


# ---------------------------------------------------------------------------- edges


def edge(draw: Draw, model: Any) -> None:
    """An input of a node that comes, goes, or is another value."""
    block = _block(draw, model)
    node = _one(draw, block.node)
    if node is None:
        return
    name = draw(st.sampled_from(_names(block) or [""]) | st.sampled_from(NAMES))
    how = draw(st.integers(0, 3))
    if how == 0 or not node.input:
        node.input.append(name)
    elif how == 1:
        del node.input[-1]
    else:
        node.input[draw(st.integers(0, len(node.input) - 1))] = name


def result(draw: Draw, model: Any) -> None:
    """An output of a node, or of the program, that comes, goes, or has another name."""
    block = _block(draw, model)
    node = _one(draw, block.node)
    name = draw(st.sampled_from(_names(block) or [""]) | st.sampled_from(NAMES))
    how = draw(st.integers(0, 4))
    if how == 0 and block.output:
        del block.output[-1]
    elif how == 1:
        block.output.add().name = name
    elif node is None:
        return
    elif how == 2 or not node.output:
        node.output.append(name)
    elif how == 3:
        del node.output[-1]
    else:
        node.output[draw(st.integers(0, len(node.output) - 1))] = name


def order(draw: Draw, model: Any) -> None:
    """Nodes in another order, doubled, or gone."""
    block = _block(draw, model)
    if not block.node:
        return
    nodes = list(block.node)
    at, to = (draw(st.integers(0, len(nodes) - 1)) for _ in range(2))
    how = draw(st.sampled_from(("drop", "double", "swap")))
    if how == "drop":
        del nodes[at]
    elif how == "double":
        nodes.insert(to, nodes[at])
    else:
        nodes[at], nodes[to] = nodes[to], nodes[at]
    made = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del block.node[:]
    block.node.extend(made)


def rename(draw: Draw, model: Any) -> None:
    """A value under another name, wherever it stands."""
    block = _block(draw, model)
    if not _names(block):
        return
    old = draw(st.sampled_from(_names(block)))
    new = draw(st.sampled_from(NAMES))
    for each in _blocks(model.graph):
        for value in (*each.input, *each.output, *each.initializer, *each.value_info):
            value.name = new if value.name == old else value.name
        for node in each.node:
            for names in (node.input, node.output):
                names[:] = [new if name == old else name for name in names]


def nested(draw: Draw, model: Any) -> None:
    """A node inside of branches."""
    block = _block(draw, model)
    if not block.node:
        return
    at = draw(st.integers(0, len(block.node) - 1))
    inner = plain = onnx.NodeProto.FromString(block.node[at].SerializeToString())
    outputs, test = list(plain.output), f"test_{len(block.initializer)}"
    condition = np.array(draw(st.booleans()))
    block.initializer.append(numpy_helper.from_array(condition, test))
    for level in range(draw(st.sampled_from((1, 1, 2, 5, 20, 28)))):
        branches = [
            _branch(each, f"{level}_{n}") for n, each in enumerate((inner, plain))
        ]
        names = dict(zip(("then_branch", "else_branch"), branches, strict=True))
        try:
            inner = helper.make_node("If", [test], outputs, **names)
        except DecodeError:  # it is nested as deep as a message may be
            break
    block.node[at].CopyFrom(inner)


def _branch(node: Any, name: str) -> Any:
    made = onnx.NodeProto.FromString(node.SerializeToString())
    made.output[:] = [f"{output}_{name}" for output in node.output]
    values = [onnx.ValueInfoProto(name=output) for output in made.output]
    return helper.make_graph([made], f"b{name}", [], values)


# ----------------------------------------------------------------- types and shapes


def element(draw: Draw, model: Any) -> None:
    """Another element type of an input, an output or a constant."""
    block = _block(draw, model)
    value = _one(draw, [*block.input, *block.output, *block.initializer])
    if isinstance(value, TensorProto):
        value.data_type = draw(st.sampled_from(TYPES))
    elif value is not None:
        value.type.tensor_type.elem_type = draw(st.sampled_from(TYPES))


def container(draw: Draw, model: Any) -> None:
    """An input that is no tensor."""
    value = _one(draw, _block(draw, model).input)
    if value is None:
        return
    tensor, kind = helper.make_tensor_type_proto(1, [2]), draw(st.integers(0, 4))
    made = (
        helper.make_sequence_type_proto(tensor),
        helper.make_optional_type_proto(tensor),
        helper.make_map_type_proto(7, tensor),
        helper.make_sparse_tensor_type_proto(1, [2]),
        onnx.TypeProto(),
    )
    value.type.CopyFrom(made[kind])


def shape(draw: Draw, model: Any) -> None:
    """Another shape of an input or a constant."""
    block = _block(draw, model)
    value = _one(draw, [*block.input, *block.initializer])
    if value is None:
        return
    if isinstance(value, TensorProto):
        value.dims[:] = _integers(draw, most=4)
        return
    dims, how = value.type.tensor_type.shape.dim, draw(st.integers(0, 5))
    if how == 0:
        value.type.tensor_type.ClearField("shape")
    elif how == 1 or not dims:
        dims.add().dim_value = draw(st.sampled_from(INTEGERS))
    elif how == 2:
        del dims[-1]
    elif how == 3:
        _one(draw, dims).dim_param = draw(st.sampled_from(NAMES))
    else:
        _one(draw, dims).dim_value = draw(st.sampled_from(INTEGERS))


def freeze(draw: Draw, model: Any) -> None:
    """An input as a constant."""
    value = _one(draw, model.graph.input)
    held = {each.name for each in model.graph.initializer}
    if value is not None and value.name not in held:
        made = _tensor(draw, value.name)
        kept = value.type.tensor_type.elem_type
        if draw(st.integers(0, 3)) and kept in {1, 6, 7, 9, 10}:
            dtype = helper.tensor_dtype_to_np_dtype(kept)
            array = numpy_helper.to_array(made).astype(dtype)
            made.CopyFrom(numpy_helper.from_array(array, value.name))
        model.graph.initializer.append(made)
        model.ir_version = max(model.ir_version, 4)
        model.graph.input.remove(value)


def thaw(draw: Draw, model: Any) -> None:
    """A constant as an input."""
    tensor = _one(draw, model.graph.initializer)
    if tensor is not None:
        known = {each.name for each in model.graph.input}
        if tensor.name not in known:
            dims = list(tensor.dims)
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, dims)
            model.graph.input.append(value)
        model.graph.initializer.remove(tensor)


def numbers(draw: Draw, model: Any) -> None:
    """Other data of a constant: other numbers, more bytes, or fewer."""
    tensor = _one(draw, _block(draw, model).initializer)
    if tensor is None:
        return
    array, how = _array(tensor), draw(st.integers(0, 4))
    if how == 0 or array is None or array.dtype.kind not in "iufb":
        tensor.raw_data = draw(st.binary(max_size=12))
    elif how == 1:
        tensor.ClearField("raw_data")
        tensor.int64_data.extend(_integers(draw))
    else:
        flat = array.reshape(-1).copy()
        values = INTEGERS if array.dtype.kind in "iu" else FLOATS
        with np.errstate(all="ignore"):
            for _ in range(min(len(flat), 3)):
                at = draw(st.integers(0, len(flat) - 1))
                flat[at] = np.array(draw(st.sampled_from(values))).astype(flat.dtype)
        made = numpy_helper.from_array(flat.reshape(array.shape), tensor.name)
        tensor.CopyFrom(made)


def outside(draw: Draw, model: Any) -> None:
    """A constant whose data stands in another file."""
    tensor = _one(draw, _block(draw, model).initializer)
    if tensor is None:
        return
    places = ("m.onnx", "../x", "/etc/passwd", "x.data", "", "a/../../x", ".", "\0")
    said = {"location": draw(st.sampled_from(places))}
    for key in ("offset", "length"):
        if draw(st.booleans()):
            said[key] = str(draw(st.sampled_from((*INTEGERS, "x", "1e3", ""))))
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in said.items():
        tensor.external_data.add(key=key, value=value)


def sparse(draw: Draw, model: Any) -> None:
    """A constant that is sparse, in segments, of text, or given twice."""
    block = _block(draw, model)
    tensor, how = _one(draw, block.initializer), draw(st.integers(0, 4))
    if tensor is None:
        return
    if how == 0:
        indices = numpy_helper.from_array(np.array(_integers(draw), np.int64))
        made = block.sparse_initializer.add(dims=tensor.dims, indices=indices)
        made.values.CopyFrom(tensor)
        block.initializer.remove(tensor)
    elif how == 1:
        tensor.segment.begin, tensor.segment.end = 0, draw(st.sampled_from(INTEGERS))
    elif how == 2:
        text = np.array(["a", "é"], object)
        tensor.CopyFrom(numpy_helper.from_array(text, tensor.name))
    elif how == 3:
        block.initializer.append(tensor)
    else:
        tensor.ClearField("raw_data")


def overridden(draw: Draw, model: Any) -> None:
    """A function of the file, which may be called like an operator."""
    node = _node(draw, model)
    if node is not None:
        made = model.functions.add(name=node.op_type, domain=node.domain)
        if draw(st.booleans()):
            node.op_type, node.domain = draw(st.sampled_from(NAMES)), "own"
            made.name, made.domain = node.op_type, node.domain
            model.opset_import.add(domain="own", version=1)
        made.opset_import.extend(model.opset_import)
        made.input.extend(dict.fromkeys(filter(None, node.input)))
        made.output.extend(filter(None, node.output))
        for name in made.output:
            made.node.add(op_type="Neg", input=made.input[:1], output=[name])


def note(draw: Draw, model: Any) -> None:
    """What our writer would say beside, but something else."""
    words = st.sampled_from(["weights", "fixed", "states", "trained", "x", "y"])
    said = st.recursive(
        words | st.integers() | st.none() | st.booleans(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)
        ),
        max_leaves=6,
    )
    text = draw(said.map(json.dumps) | st.sampled_from(("", "{", "[" * 9000)))
    helper.set_model_props(model, {"tensorlang": text})


def function(draw: Draw, model: Any) -> None:
    """Something else inside of a function."""
    found = _one(draw, model.functions)
    node = None if found is None else _one(draw, found.node)
    if node is not None:
        node.op_type = draw(st.sampled_from(("Add", "Mul", "Sub", "Relu", "Foo")))


CHANGES: Final[tuple[Change, ...]] = (
    *(attribute, kind, opset, edge, shape, element, freeze, numbers),
    *(version, kind, opset, edge, shape, version, thaw, result, order),
    *(rename, nested, domain, ir_version, container, outside, note, function),
    *(sparse, overridden),
)
