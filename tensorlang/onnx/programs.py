"""ONNX files as functions of symbolic tensors, on the operators that we have.

Weights become weights of the network, called as in the file. A state of training that
our own files have (the generator's key, running moments) becomes a reference. Dropout
of a stranger's file gets its keys by splitting: one key is held, whose second half
draws a mask, and whose first is held from there on. The moments of its batch norms that
are in training become references, too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensorlang import graph
from tensorlang.errors import ArgumentError, GraphError, TensorlangError
from tensorlang.graph.leaves import Weight
from tensorlang.graph.scopes import training
from tensorlang.graph.specs import KeySpec, TensorSpec
from tensorlang.graph.values import Key, Tensor, Value
from tensorlang.onnx import operators as _operators  # noqa: F401 - they register
from tensorlang.onnx.calls import Around, Call, Held, array_of, dtype_in, found, kind_of
from tensorlang.onnx.checks import check_functions, check_texts, noted, specs_of
from tensorlang.onnx.files import nodes_of
from tensorlang.onnx.folding import (
    LARGEST,
    checked_bytes,
    checked_size,
    lifted,
    limited,
)
from tensorlang.onnx.functions import DOMAIN, TRAINING
from tensorlang.onnx.outside import read
from tensorlang.onnx.reading import READERS, applied
from tensorlang.ops import nn, random

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

GENERATOR = "generator"


class Program:
    """What an ONNX file computes: called on symbolic tensors, as a layer is.

    Attributes:
        name: The file's.
        specs: Of the inputs.
        arrays: Weights, constants and first states, by name.
        weights: The names of those that are weights.
        states: The names of inputs that training carries on, with their references.
        moments: The running moments of a stranger's batch norms, with theirs.
        note: What our writer said beside; empty of a stranger.
        opsets: The versions of the operator sets that it is written in, by domain.
        key: The key that the next dropout splits.
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
            name: What messages call it.
            outside: Arrays that stand outside of it, by name.
            largest: Bytes that a tensor may have whose shape the file says.

        Raises:
            GraphError: names the operators that we have not.
            DTypeError: an element type is not supported.
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
        self.note = noted(model, name, self.arrays)
        self.weights = set(self.note.get("weights", _floats(self.arrays)))
        self.states = self._states(self.note.get("states", {}))
        self.moments = {} if self.note else self._moments()
        self.weights -= self.moments.keys()
        self.inputs = [each for each in graph.input if each.name not in self.arrays]
        with limited(largest):
            self.specs = specs_of(self.inputs, name)
        self.key: Key | None = None
        self._made: dict[str, Weight] = {}
        self._computed = 0  # bytes of what is computed of constants

    def _check(self) -> None:
        """Refuse what no node can be read for.

        Raises:
            GraphError: there are operators, sparse weights or own functions that are
                not supported, or no outputs.
        """
        model = self.model
        kinds = {kind_of(node) for node in nodes_of(model.graph)} - READERS.keys()
        if kinds:
            listed = ", ".join(sorted(".".join(filter(None, each)) for each in kinds))
            raise GraphError(f"{self.name} has operators that we have not: {listed}")
        if len(self.opsets) < len(model.opset_import):
            raise GraphError(f"{self.name} imports an operator set in two versions")
        if model.graph.sparse_initializer:
            raise GraphError(f"{self.name}: sparse weights are not supported")
        if not model.graph.output:
            raise GraphError(f"{self.name} has no outputs: there is nothing to compute")
        check_functions(model, self.name)

    def _states(self, told: Mapping[str, str]) -> dict[str, graph.Ref]:
        """What training carries on, from where the file stopped.

        Raises:
            GraphError: the words of a key are none.
        """
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
        """The arrays that batch norms in training keep their moments in."""
        return {
            name: graph.ref(self.arrays[name], name)
            for node in self.model.graph.node
            if node.op_type == "BatchNormalization"
            and any(a.name == "training_mode" and a.i for a in node.attribute)
            for name in node.input[3:5]
            if name in self.arrays
        }

    def __call__(self, *inputs: Held) -> Value | tuple[Value, ...]:
        """Write it into the program that is being written.

        Raises:
            ArgumentError: there are more or fewer inputs.
            GraphError, ShapeError, DTypeError: names the node that does not fit.
        """
        if len(inputs) != len(self.specs):
            raise ArgumentError(
                f"{self.name} takes {len(self.specs)} inputs "
                f"({', '.join(v.name for v in self.inputs)}), got {len(inputs)}"
            )
        self._computed = 0
        values: dict[str, Held | TensorlangError] = {"": None}
        for name, array in self.arrays.items():
            values[name] = self._weight(name) if name in self.weights else array
        values.update((v.name, x) for v, x in zip(self.inputs, inputs, strict=True))
        values.update({name: graph.read(ref) for name, ref in self.moments.items()})
        values.update(self._opened())
        with limited(self.largest):
            self._nodes(self.model.graph, values)
        self._closed(values)
        whole = self.model.graph.output
        outs = whole[: len(whole) - len(self.states)]
        made = tuple(self._output(out.name, values) for out in outs)
        return made[0] if len(made) == 1 else made

    def _output(self, name: str, values: Around) -> Value:
        """A result of the program.

        Raises:
            GraphError: there is none of that name, or it is known in no form.
        """
        try:
            value = found(values, name)
            if value is None:
                raise GraphError("it is left out")
            return lifted(value)
        except (TensorlangError, TypeError) as problem:
            said = f"{self.name}: its output {name!r}: {problem}"
            raise GraphError(said) from problem

    def _opened(self) -> dict[str, Held]:
        """What the states hold at first; in use, keys are not drawn from."""
        self.key = None
        return {
            name: graph.read(place)
            if training() or isinstance(place.spec, TensorSpec)
            else None
            for name, place in self.states.items()
        }

    def _closed(self, values: Around) -> None:
        """Keep what the states hold in the end."""
        if training():
            for name, place in self.states.items():
                graph.write(place, self._output(f"{name}.after", values))
            self.settle()

    def inside(
        self, block: GraphProto, around: Around, inputs: Sequence[Held] = ()
    ) -> list[Held]:
        """The outputs of a branch or a body, written into what is being written.

        Args:
            block: As ONNX has it.
            around: What has a name around it.
            inputs: For its own inputs.
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
        self._nodes(block, values)
        self.settle()
        return [found(values, out.name) for out in block.output]

    def settle(self) -> None:
        """Keep the key that is held where a branch or a body begins and ends."""
        if self.key is not None:
            graph.write(_GENERATOR, self.key)
            self.key = None

    def dropped(self, x: Tensor, rate: float) -> Tensor:
        """Dropout by the second half of the key that is held; the first is held on."""
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

    def _nodes(
        self, block: GraphProto, values: dict[str, Held | TensorlangError]
    ) -> None:
        """Write the nodes of a graph, a branch or a body.

        Raises:
            TensorlangError: names the node that does not fit.
        """
        for node in block.node:
            try:
                made = applied(Call(self, node, values))
                for each in made:
                    if not isinstance(each, Key | None):
                        checked_size(each.shape, dtype_in(each).itemsize)
                    self._computed += each.nbytes if isinstance(each, np.ndarray) else 0
                checked_bytes(self._computed, "all that its constants give")
            except TensorlangError as problem:
                if str(problem).startswith(f"{self.name}: "):
                    raise  # of a node inside
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
    """What a weight of a file begins as: itself."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __call__(self, *_: object) -> np.ndarray:
        return self.array


_GENERATOR = graph.ref(KeySpec(), GENERATOR)


def _floats(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """What of a stranger's constants is a weight: floats of more than one number."""
    return [n for n, a in arrays.items() if a.dtype.kind not in "iub" and a.ndim]


def load(path: str | os.PathLike[str], *, largest: int | None = None) -> Program:
    """The program in an ONNX file: ours, or a stranger's.

    Args:
        path: The file.
        largest: Bytes that a tensor may have whose shape the file says; 2 GiB.

    Raises:
        ArgumentError: there is no such file, it is no ONNX, or onnx is missing.
        GraphError: names the operators that we have not.
        DTypeError: an element type is not supported.
        WeightError: data outside of the file is not in its folder.
    """
    most = LARGEST if largest is None else largest
    if not isinstance(most, int) or most < 1:
        raise ArgumentError(
            f"largest={largest!r} is no number of bytes; 2**31 is usual"
        )
    model, outside = read(path)
    return Program(model, os.fspath(path), outside, largest=most)


__all__ = ["DOMAIN", "TRAINING", "Call", "Program", "load"]
