"""ONNX files as functions of symbolic tensors.

Weights become weights of the network, with the names in the file. Training state in
files of ours (the generator's key, running moments) becomes references. For dropout in
other files, a key is held in a reference; each dropout splits it, draws its mask from
the second half and keeps the first. Running moments of their training-mode batch norms
become references too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensorlang import graph
from tensorlang.errors import ArgumentError, GraphError, TensorlangError
from tensorlang.graph.networks.leaves import ConstantTensor, Weight
from tensorlang.graph.scopes import training
from tensorlang.graph.specs import KeySpec, TensorSpec
from tensorlang.graph.values import Key, Tensor, Value
from tensorlang.onnx import operators as _operators  # noqa: F401 - registers readers
from tensorlang.onnx.calls import (
    Around,
    Call,
    Held,
    Several,
    array_of,
    dtype_in,
    kind_of,
    value_named,
)
from tensorlang.onnx.checks import check_functions, check_texts, note_of, specs_of
from tensorlang.onnx.expansion import is_function
from tensorlang.onnx.external_data import read
from tensorlang.onnx.files import nodes_of
from tensorlang.onnx.folding import (
    LARGEST,
    checked_bytes,
    checked_size,
    limited,
    to_value,
)
from tensorlang.onnx.functions import DOMAIN, TRAINING
from tensorlang.onnx.reading import READERS, applied
from tensorlang.ops import nn, random

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

GENERATOR = "generator"
_FEW = ((), *((n,) for n in range(9)))  # shapes of floats that may be scales


class Program:
    """The program of an ONNX file, called on symbolic tensors like a layer.

    Attributes:
        name: The file's name.
        specs: Specs of the inputs.
        arrays: Weights, constants and initial states, by name.
        weights: The names of weights among these.
        states: Names of inputs that are training state, and their references.
        moments: The running moments of other files' batch norms, and their references.
        note: The metadata of our writer; empty for other files.
        opsets: The versions of its operator sets, by domain.
        key: The key that the next dropout splits.
        depth: The number of functions that are being inlined.
        fixed: Known values of inputs.
        asked: Names of inputs whose values the last call needed.
        refused: The innermost node that did not fit in the last call, if one did not:
            its operator and its results.
    """

    def __init__(
        self,
        model: ModelProto,
        name: str,
        outside: Mapping[str, np.ndarray] | None = None,
        *,
        largest: int = LARGEST,
    ) -> None:
        """Read a model.

        Args:
            model: An `onnx.ModelProto`.
            name: Its name in messages.
            outside: External data, by name.
            largest: Maximum bytes of a tensor whose shape comes from the file.

        Raises:
            GraphError: names the unsupported operators.
            DTypeError: a dtype is not supported.
        """
        self.name, self.model, self.largest = name, model, largest
        check_texts(model, name)
        graph = model.graph
        self.opsets = {
            "" if each.domain == "ai.onnx" else each.domain: each.version
            for each in model.opset_import
        }
        self._check()
        self.arrays = dict(outside or {}) | {
            each.name: array_of(each, f"{name}: initializer {each.name!r}")
            for each in graph.initializer
        }
        self.note = note_of(model, name, self.arrays)
        self.weights = set(self.note.get("weights", _floats(self.arrays)))
        self.states = self._states(self.note.get("states", {}))
        self.moments = {} if self.note else self._moments()
        self.weights -= self.moments.keys()
        self.inputs = [each for each in graph.input if each.name not in self.arrays]
        with limited(largest):
            self.specs = specs_of(self.inputs, name)
        self.key: Key | None = None
        self.depth = 0
        self.fixed: Mapping[str, np.ndarray] = {}
        self.asked: set[str] = set()
        self.refused: tuple[str, ...] = ()
        self._given: dict[Value, str] = {}
        self._made: dict[str, Weight] = {}
        self._computed = 0  # bytes of folded constants

    def _check(self) -> None:
        """Reject a model before reading its nodes."""
        model = self.model
        kinds = {
            kind_of(node)
            for node in nodes_of(model.graph)
            if kind_of(node) not in READERS and not is_function(model, node)
        }
        if kinds:
            listed = ", ".join(sorted(".".join(filter(None, each)) for each in kinds))
            raise GraphError(f"{self.name} has unsupported operators: {listed}")
        if len(self.opsets) < len(model.opset_import):
            raise GraphError(f"{self.name} imports an operator set in two versions")
        if model.graph.sparse_initializer:
            raise GraphError(f"{self.name}: sparse weights are not supported")
        if not model.graph.output:
            raise GraphError(f"{self.name} has no outputs")
        check_functions(model, self.name)

    def _states(self, told: Mapping[str, str]) -> dict[str, graph.Ref]:
        """The training state of the file."""
        made = {}
        for name, spec in told.items():
            held = self.arrays[name]
            key = spec.startswith("key<")
            if key and (held.dtype, held.shape) != (np.dtype(np.uint32), (2,)):
                raise GraphError(
                    f"{self.name}: the state {name!r} is {held.dtype}"
                    f"{list(held.shape)}; a key has two words, uint32[2]"
                )
            made[name] = graph.ref(random.wrap_key_data(held) if key else held, name)
        return made

    def _moments(self) -> dict[str, graph.Ref]:
        """The running moments of training-mode batch norms."""
        return {
            name: graph.ref(self.arrays[name], name)
            for node in self.model.graph.node
            if node.op_type == "BatchNormalization"
            and any(a.name == "training_mode" and a.i for a in node.attribute)
            for name in node.input[3:5]
            if name in self.arrays
        }

    def __call__(self, *inputs: Held) -> Value | tuple[Value, ...]:
        """Apply it in the program being traced.

        Raises:
            ArgumentError: a wrong number of inputs.
            GraphError, ShapeError, DTypeError: names the node that does not fit.
        """
        if len(inputs) != len(self.specs):
            raise ArgumentError(
                f"{self.name} takes {len(self.specs)} inputs "
                f"({', '.join(v.name for v in self.inputs)}), got {len(inputs)}"
            )
        self._computed, self.asked, self.refused = 0, set(), ()
        values: dict[str, Held | TensorlangError] = {"": None}
        for name, array in self.arrays.items():
            values[name] = self._weight(name) if name in self.weights else array
        named = [each.name for each in self.inputs]
        values |= dict(zip(named, inputs, strict=True)) | dict(self.fixed)
        self._given = {
            x: name
            for name, x in zip(named, inputs, strict=True)
            if isinstance(x, Tensor)
        }
        values.update({name: graph.read(ref) for name, ref in self.moments.items()})
        values.update(self._opened())
        with limited(self.largest):
            self.nodes(self.model.graph.node, values)
        self._closed(values)
        whole = self.model.graph.output
        outs = whole[: len(whole) - len(self.states)]
        made = tuple(self._output(out.name, values) for out in outs)
        return made[0] if len(made) == 1 else made

    def evaluated(self, value: Tensor, *, small: bool = True) -> np.ndarray | Tensor:
        """The array of a value that only depends on constants.

        If it depends on inputs, these are asked for; only if they are small, as shapes
        and axes are, unless `small` is false.
        """
        own = graph.Graph((), value, name="constant")
        made = graph.fold(own).outputs[0] if not own.stateful else value
        if isinstance(made, ConstantTensor):
            return made.data
        if all(x in self._given and (_is_small(x) or not small) for x in own.free):
            self.asked |= {self._given[x] for x in own.free}
        return value

    def _output(self, name: str, values: Around) -> Value:
        """A result of the program."""
        try:
            value = value_named(values, name)
            if value is None:
                raise GraphError("it is left out")
            if isinstance(value, Several):
                raise GraphError("it is a sequence; supported are tensors")
            return to_value(value)
        except (TensorlangError, TypeError) as problem:
            said = f"{self.name}: its output {name!r}: {problem}"
            raise GraphError(said) from problem

    def _opened(self) -> dict[str, Held]:
        """The content of the states at the start; no key in inference."""
        self.key = None
        return {
            name: graph.read(place)
            if training() or isinstance(place.spec, TensorSpec)
            else None
            for name, place in self.states.items()
        }

    def _closed(self, values: Around) -> None:
        """Write the final content of the states."""
        if training():
            for name, place in self.states.items():
                graph.write(place, self._output(f"{name}.after", values))
            self.settle()

    def inside(
        self, block: GraphProto, around: Around, inputs: Sequence[Held] = ()
    ) -> list[Held]:
        """The outputs of a nested graph, inlined into the program being traced.

        Args:
            block: The ONNX graph.
            around: The enclosing values by name.
            inputs: The values of its own inputs.
        """
        if len(block.input) != len(inputs):
            raise GraphError(
                f"{block.name} takes {len(block.input)} inputs, not {len(inputs)}"
            )
        values = dict(around)
        values.update(
            (each.name, array_of(each, f"initializer {each.name!r}"))
            for each in block.initializer
        )
        values.update((v.name, x) for v, x in zip(block.input, inputs, strict=True))
        self.nodes(block.node, values)
        self.settle()
        return [value_named(values, out.name) for out in block.output]

    def settle(self) -> None:
        """Write the key to its reference before and after nested graphs."""
        if self.key is not None:
            graph.write(_GENERATOR, self.key)
            self.key = None

    def dropped(self, x: Tensor, rate: float) -> Tensor:
        """Dropout with the second half of the held key; the first half is held."""
        held = graph.read(_GENERATOR) if self.key is None else self.key
        made: tuple[Tensor, Key] = nn.dropout_train(x, held, rate)
        self.key = made[1]
        return made[0]

    def _weight(self, name: str) -> Weight:
        if name not in self._made:
            array = self.arrays[name]
            spec = TensorSpec(array.shape, array.dtype.name)
            free = name not in self.note.get("fixed", ())
            self._made[name] = Weight(spec, name, _Begin(array), trainable=free)
        return self._made[name]

    def nodes(
        self, nodes: Iterable[NodeProto], values: dict[str, Held | TensorlangError]
    ) -> None:
        """Read the nodes of a graph or a function.

        Raises:
            TensorlangError: names the node that does not fit.
        """
        for node in nodes:
            try:
                made = applied(Call(self, node, values))
                for each in made:
                    if not isinstance(each, Key | Several | None):
                        checked_size(each.shape, dtype_in(each).itemsize)
                    self._computed += each.nbytes if isinstance(each, np.ndarray) else 0
                checked_bytes(self._computed, "all that its constants give")
            except TensorlangError as problem:
                if str(problem).startswith(f"{self.name}: "):
                    raise  # raised by a nested node
                self.refused = (node.op_type, *node.output)
                place = f"{node.op_type} {node.name!r}" if node.name else node.op_type
                said = f"{self.name}: {place}: {problem}"
                raise type(problem)(said) from problem
            for at, name in enumerate(node.output):
                if name:
                    missing = GraphError(f"{node.op_type} does not give {name!r} here")
                    values[name] = made[at] if at < len(made) else missing

    def __repr__(self) -> str:
        return f"Program({self.name})"


class _Begin:
    """Initialiser of a weight with its value in the file."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __call__(self, *_: object) -> np.ndarray:
        return self.array


_GENERATOR = graph.ref(KeySpec(), GENERATOR)


def _is_small(value: Value) -> bool:
    """Whether an input may be a shape, axes or numbers for sizes."""
    whole = isinstance(value.spec, TensorSpec) and value.spec.numpy.kind in "iub"
    return value.ndim < 2 and (whole or value.shape in _FEW)


def _floats(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """The constants of other files that are weights: floats of several elements."""
    return [n for n, a in arrays.items() if a.dtype.kind not in "iub" and a.ndim]


def load(
    path: str | os.PathLike[str], *, largest: int | None = None, data: bool = True
) -> Program:
    """Load the program of any ONNX file.

    Args:
        path: The file.
        largest: Maximum bytes of a tensor whose shape comes from the file; default 2
            GiB.
        data: Whether to read external data; if not, zeros take its place, to inspect
            the program alone.

    Raises:
        ArgumentError: there is no such file, it is not ONNX, or onnx is missing.
        GraphError: names the unsupported operators.
        DTypeError: a dtype is not supported.
        WeightError: external data is not in the file's folder.
    """
    most = LARGEST if largest is None else largest
    if not isinstance(most, int) or most < 1:
        raise ArgumentError(
            f"largest={largest!r} is not a number of bytes; the default is 2**31"
        )
    model, outside = read(path, data=data)
    return Program(model, os.fspath(path), outside, largest=most)


__all__ = ["DOMAIN", "TRAINING", "Call", "Program", "load"]
