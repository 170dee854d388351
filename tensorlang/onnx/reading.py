"""Readers: ONNX nodes expressed by tensorlang operators.

@reads("ReduceSum", folds=True)
def reduce_sum(data, axes: Ints | None = None, *, keepdims, noop_with_empty_axes=0):
    ...

A reader's positional parameters are the inputs, its keyword parameters the supported
attributes; nodes that set other attributes are rejected. What is an attribute in one
version of an operator and an input in another is one parameter, filled from either.
Omitted attributes have the default of the version in the file's opset. Inputs that must
be constant are annotated as `Ints`, `Reals`, `Sizes` or `Number`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, get_type_hints

import numpy as np

from tensorlang.errors import DTypeError, GraphError
from tensorlang.frozen import frozen
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Key
from tensorlang.onnx.calls import (
    Attribute,
    Call,
    Held,
    Operand,
    Several,
    attribute_of,
    dtype_named,
    type_of,
)
from tensorlang.onnx.expansion import expanded, is_function
from tensorlang.onnx.files import library
from tensorlang.onnx.folding import to_value

if TYPE_CHECKING:
    from onnx import AttributeProto
    from onnx.defs import OpSchema

Ints: TypeAlias = tuple[int, ...]
Reals: TypeAlias = tuple[float, ...]
Sizes: TypeAlias = tuple[int | Dim, ...]
Number: TypeAlias = int | float
Block: TypeAlias = Any  # an onnx.GraphProto; annotations are evaluated without onnx
Results: TypeAlias = object  # a value, an array, a key, None; or a tuple of these
Read: TypeAlias = Callable[..., Any]  # maps inputs and attributes to `Results`
R = TypeVar("R", bound=Read)

NEWEST: Final = 28  # the newest supported opset
READERS: Final[dict[tuple[str, str], Reader]] = {}
_CONSTANT: Final = (Ints, Reals, Sizes, Number)
# annotations of inputs that may be random keys
_KEYS: Final = (Key, Held, Operand | Key | None)
_SEQUENCES: Final = (Several, Operand | Several)  # and of those that may be sequences


@frozen
class Reader:
    """The reader of an operator."""

    read: Read  # maps a node's inputs and attributes to its results
    since: int  # oldest supported version of the operator
    folds: bool  # whether it also accepts arrays if all inputs are constant
    takes_call: bool  # whether `read` takes the node as its first argument
    inputs: Mapping[str, inspect.Parameter]  # parameters that are inputs
    attributes: Mapping[str, inspect.Parameter]  # parameters that are attributes
    # annotations of flags and of inputs that must be constant
    hints: Mapping[str, object]


def reads(
    kind: str, *, since: int = 1, folds: bool = False, domain: str = ""
) -> Callable[[R], R]:
    """Decorator that registers the reader of an ONNX operator.

    Args:
        kind: The operator's name.
        since: The oldest version that the reader supports.
        folds: Whether the reader also computes on constants.
        domain: The operator set.
    """

    def register(read: R) -> R:
        inputs = dict(inspect.signature(read).parameters)
        takes_call = inputs.pop("call", None) is not None
        named = [
            name for name, each in inputs.items() if each.kind is each.KEYWORD_ONLY
        ]
        attributes = {name: inputs.pop(name) for name in named}
        hints = {
            name: known
            for name, hint in get_type_hints(read).items()
            for known in (*_CONSTANT, *_KEYS, *_SEQUENCES, bool)
            if hint in {known, known | None}
        }
        READERS[domain, kind] = Reader(
            read, since, folds, takes_call, inputs, attributes, hints
        )
        return read

    return register


def applied(call: Call) -> tuple[Held, ...]:
    """The results of a node: values, or arrays if everything is constant.

    Raises:
        GraphError: the operator, its version or an argument is not supported.
        DTypeError: the operator does not support the type of an input or result.
    """
    reader = READERS.get((call.domain, call.kind))
    if reader is None:
        return expanded(call)
    schema = None if call.domain else schema_of(call, reader)
    types = {} if schema is None else _type_variables(call, schema)
    usual = (
        {}
        if schema is None
        else {
            name: each.default_value
            for name, each in schema.attributes.items()
            if each.default_value.name
        }
    )
    given = {name: attribute_of(each) for name, each in (usual | call.given).items()}
    _refuse_unread(call, reader, usual)
    inputs = list(_inputs(call, reader, given))
    if not reader.folds:
        inputs = [to_value(each) for each in inputs]
    own = (call,) if reader.takes_call else ()
    made = reader.read(*own, *inputs, **_attributes(reader, given))
    one = isinstance(made, Several) or not isinstance(made, tuple)
    several = (made,) if one else made
    if any(call.outputs[len(several) :]) and is_function(call.program.model, call.node):
        return expanded(call)
    return several if schema is None else tuple(_results(schema, several, types))


def schema_of(call: Call, reader: Reader) -> OpSchema:
    """ONNX's schema of the operator, in the version of the file's opset.

    Raises:
        GraphError: there is none, or the reader does not support that version.
    """
    opset, defs = call.program.opsets.get("", 0), library().defs
    if opset > NEWEST:
        raise GraphError(
            f"opset {opset} is newer than {NEWEST}, the newest supported here; "
            "convert the file"
        )
    try:
        schema = defs.get_schema(call.kind, opset, "")
    except defs.SchemaError:
        raise GraphError(f"opset {opset} has no such operator") from None
    version = call.version = schema.since_version
    if schema.deprecated or not reader.since <= version <= NEWEST:
        raise GraphError(
            f"version {version} of the operator, used by opset {opset}, is not "
            f"supported; convert the file to an opset from {reader.since} to {NEWEST}"
        )
    return schema


def _type_variables(call: Call, schema: OpSchema) -> dict[str, str]:
    """Resolve the operator's type variables.

    `onnx.checker` has already checked arity and attributes.
    """
    version = f"version {call.version} of the operator"
    allowed = {
        each.type_param_str: each.allowed_type_strs for each in schema.type_constraints
    }
    found: dict[str, str] = {}
    for at, value in enumerate(call.inputs):
        formal = schema.inputs[min(at, len(schema.inputs) - 1)]
        kind, variable = type_of(value), formal.type_str
        if kind is None:
            continue
        first = found.setdefault(variable, kind) if formal.is_homogeneous else kind
        wanted = allowed.get(variable, [variable])
        if kind not in wanted or kind != first:
            said = first if kind != first else ", ".join(sorted(wanted))
            raise DTypeError(f"input {formal.name} is {kind}; {version} takes {said}")
    return found


def _refuse_unread(
    call: Call, reader: Reader, usual: Mapping[str, AttributeProto]
) -> None:
    """Reject attributes, inputs and results that the reader does not support."""
    for name, attribute in call.given.items():
        if name in reader.attributes or name in reader.inputs:
            continue
        value = attribute_of(attribute)
        if name not in usual or attribute_of(usual[name]) != value:
            raise GraphError(f"attribute {name}={value!r:.80} is not supported")
    takes = list(reader.inputs.values())
    if takes and takes[-1].kind is inspect.Parameter.VAR_POSITIONAL:
        return
    for at, name in enumerate(call.names[len(takes) :], len(takes) + 1):
        if name:
            raise GraphError(f"its input {name!r}, number {at}, is not supported")


def _inputs(
    call: Call, reader: Reader, given: Mapping[str, Attribute]
) -> Iterator[object]:
    """The positional arguments.

    Raises:
        GraphError: one is missing, is a random key, or must be constant but depends on
            data.
    """
    for at, (name, parameter) in enumerate(reader.inputs.items()):
        several = parameter.kind is parameter.VAR_POSITIONAL
        hint = reader.hints.get(name)
        for value in (
            call.inputs[at:] if several else call.inputs[at : at + 1] or [None]
        ):
            if value is None and name in given:
                value = np.asarray(given[name])  # noqa: PLW2901 - an attribute
            if hint in _CONSTANT and value is not None:
                yield _constant(call.known(value, name), name, hint)
            elif isinstance(value, Key) > (hint in _KEYS) or (
                hint is Key and not isinstance(value, Key | None)
            ):
                what = "a random key" if isinstance(value, Key) else "no random key"
                raise GraphError(f"its input {name!r} is {what}")
            elif isinstance(value, Several) > (hint in (*_SEQUENCES, Held)) or (
                hint is Several and not isinstance(value, Several | None)
            ):
                what = "a sequence" if isinstance(value, Several) else "no sequence"
                raise GraphError(f"its input {name!r} is {what}")
            elif value is None and hint not in _KEYS and not several:
                if parameter.default is parameter.empty:
                    raise GraphError(f"its input {name!r} is missing")
                yield parameter.default
            else:
                yield value


def _constant(array: np.ndarray, name: str, hint: object) -> Number | Sizes | Reals:
    """A constant in the form of its annotation."""
    if array.ndim > 1 or (hint is Number and array.size != 1):
        raise GraphError(f"its input {name!r} has shape {array.shape}")
    items = array.reshape(-1).tolist()
    named = next((n for n in items if isinstance(n, Dim)), None)
    if named is not None and hint is not Sizes:
        raise GraphError(
            f"its input {name!r} is the symbolic size {named}; export a fixed"
        )
    return items[0] if hint is Number else tuple(items)


def _attributes(reader: Reader, given: Mapping[str, Attribute]) -> dict[str, object]:
    """The keyword arguments; GraphError if one is missing."""
    made = {}
    for name, parameter in reader.attributes.items():
        made[name] = given.get(name, parameter.default)
        if made[name] is parameter.empty:
            raise GraphError(f"its attribute {name} is missing")
        if reader.hints.get(name) is bool:
            if made[name] not in {0, 1}:
                raise GraphError(f"attribute {name}={made[name]} is neither 0 nor 1")
            made[name] = bool(made[name])
    return made


def _results(
    schema: OpSchema, values: Sequence[Held], types: Mapping[str, str]
) -> Iterator[Held]:
    """The results, checked against the types of ONNX's schema."""
    for at, value in enumerate(values):
        variable = schema.outputs[min(at, len(schema.outputs) - 1)].type_str
        wanted = types.get(variable, variable if "(" in variable else "")
        kind = type_of(value)
        if not (kind and wanted) or kind == wanted:
            yield value
        elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
            yield value.astype(dtype_named(wanted))
        else:
            raise DTypeError(f"computed here as {kind}; in ONNX it is {wanted}")
