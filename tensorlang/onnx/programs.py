"""ONNX files as functions of symbolic tensors, on the operators that we have.

Weights become weights of the network, called as in the file. A state of training that
our own files have (the generator's key, running moments) becomes a reference. Dropout
of a stranger's file gets its keys by splitting: one key is held, whose second half
draws a mask, and whose first is held from there on. The moments of its batch norms that
are in training become references, too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorlang import graph
from tensorlang.errors import ArgumentError, GraphError, TensorlangError
from tensorlang.graph.leaves import Weight
from tensorlang.graph.network import training
from tensorlang.graph.specs import KeySpec, TensorSpec
from tensorlang.onnx.calls import Call
from tensorlang.onnx.files import library, nodes_of, read
from tensorlang.onnx.functions import DOMAIN, TRAINING
from tensorlang.onnx.writing import NOTE
from tensorlang.ops import nn

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
        key: The key that the next dropout splits.
    """

    def __init__(
        self, model: Any, name: str, outside: Mapping[str, Any] | None = None
    ) -> None:
        """Read a model.

        Args:
            model: An `onnx.ModelProto`.
            name: What messages call it.
            outside: Arrays that stand outside of it, by name.

        Raises:
            GraphError: names the operators that we have not.
        """
        self.name, self.model = name, model
        self.note: Mapping[str, Any] = _note(model, name)
        to_array = library().numpy_helper.to_array
        self.arrays = {t.name: _array(to_array(t)) for t in model.graph.initializer}
        self.arrays |= outside or {}
        told = self.note.get("weights")
        self.weights = set(told if told is not None else _floats(self.arrays))
        self.states = self._states(self.note.get("states", {}))
        self.moments = {} if self.note else self._moments()
        self.weights -= self.moments.keys()
        self.inputs = [v for v in model.graph.input if v.name not in self.arrays]
        self.specs = tuple(map(_spec, self.inputs))
        self.key: Any = None
        self._made: dict[str, Weight] = {}
        self._check()

    def _check(self) -> None:
        from tensorlang.onnx.readers import has  # noqa: PLC0415 - it builds on this

        missing = {n.op_type for n in nodes_of(self.model.graph) if not has(n)}
        if missing:
            raise GraphError(
                f"{self.name} has operators that we have not: "
                + ", ".join(sorted(missing))
            )

    def _states(self, told: Mapping[str, str]) -> dict[str, graph.Ref]:
        return {
            name: graph.ref(
                KeySpec() if spec.startswith("key<") else self.arrays[name], name
            )
            for name, spec in told.items()
        }

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

    def __call__(self, *inputs: Any) -> Any:
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
        values: dict[str, Any] = {"": None}
        for name, array in self.arrays.items():
            values[name] = self._weight(name) if name in self.weights else array
        values.update((v.name, x) for v, x in zip(self.inputs, inputs, strict=True))
        values.update({name: graph.read(ref) for name, ref in self.moments.items()})
        values.update(self._opened())
        for node in self.model.graph.node:
            self._node(node, values)
        self._closed(values)
        whole = self.model.graph.output
        outs = whole[: len(whole) - len(self.states)]
        made = tuple(graph.constant(values[out.name]) for out in outs)
        return made[0] if len(made) == 1 else made

    def _opened(self) -> dict[str, Any]:
        """What the states hold at first; in use, keys are not drawn from."""
        self.key = None
        return {
            name: graph.read(place)
            if training() or isinstance(place.spec, TensorSpec)
            else None
            for name, place in self.states.items()
        }

    def _closed(self, values: Mapping[str, Any]) -> None:
        """Keep what the states hold in the end."""
        if training():
            for name, place in self.states.items():
                graph.write(place, values[f"{name}.after"])
            self.settle()

    def inside(
        self, block: Any, around: Mapping[str, Any], inputs: Sequence[Any] = ()
    ) -> list[Any]:
        """The outputs of a branch or a body, written into what is being written.

        Args:
            block: As ONNX has it.
            around: What has a name around it.
            inputs: For its own inputs.
        """
        values = dict(around)
        to_array = library().numpy_helper.to_array
        values.update((t.name, _array(to_array(t))) for t in block.initializer)
        values.update((v.name, x) for v, x in zip(block.input, inputs, strict=True))
        for node in block.node:
            self._node(node, values)
        self.settle()
        return [values[out.name] for out in block.output]

    def settle(self) -> None:
        """Keep the key that is held where a branch or a body begins and ends."""
        if self.key is not None:
            graph.write(_GENERATOR, self.key)
            self.key = None

    def dropped(self, x: Any, rate: float) -> Any:
        """Dropout by the second half of the key that is held; the first is held on."""
        held = graph.read(_GENERATOR) if self.key is None else self.key
        y, self.key = nn.dropout_train(x, held, rate)
        return y

    def _weight(self, name: str) -> Weight:
        if name not in self._made:
            array = self.arrays[name]
            spec = TensorSpec(array.shape, array.dtype.name)
            free = name not in self.note.get("fixed", ())
            self._made[name] = Weight(spec, name, _Begin(array), trainable=free)
        return self._made[name]

    def _node(self, node: Any, values: dict[str, Any]) -> None:
        from tensorlang.onnx.readers import applied  # noqa: PLC0415 - it builds on this

        call = Call(self, node, values)
        try:
            made = applied(call, node.domain)
        except TensorlangError as problem:
            if call.place in str(problem):
                raise
            raise type(problem)(f"{self.name}: {call.place}: {problem}") from problem
        several = made if isinstance(made, tuple) else (made,)
        values.update(zip(node.output, several, strict=False))

    def __repr__(self) -> str:
        return f"Program({self.name})"


class _Begin:
    """What a weight of a file begins as: itself."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __call__(self, *_: Any) -> np.ndarray[Any, Any]:
        return self.array


_GENERATOR = graph.ref(KeySpec(), GENERATOR)


def _note(model: Any, name: str) -> Mapping[str, Any]:
    for entry in model.metadata_props:
        if entry.key == NOTE:
            try:
                said = json.loads(entry.value)
            except ValueError as problem:
                raise GraphError(f"{name}: its note is no JSON: {problem}") from None
            return said if isinstance(said, dict) else {}
    return {}


def _array(array: Any) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any] = np.array(array, order="C")
    return made


def _floats(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
    """What of a stranger's constants is a weight: floats of more than one number."""
    return [n for n, a in arrays.items() if a.dtype.kind not in "iub" and a.ndim]


def _spec(value: Any) -> TensorSpec:
    """The spec of an input; its first open size is the batch."""
    tensor = value.type.tensor_type
    shape: list[Any] = []
    for at, dim in enumerate(tensor.shape.dim):
        name = dim.dim_param if dim.dim_param.isidentifier() else f"{value.name}_{at}"
        fixed = dim.HasField("dim_value")
        shape.append(dim.dim_value if fixed else "batch" if at == 0 else name)
    dtype = library().helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return TensorSpec(tuple(shape), dtype.name)


def load(path: str | os.PathLike[str]) -> Program:
    """The program in an ONNX file: ours, or a stranger's.

    Raises:
        ArgumentError: there is no such file, it is no ONNX, or onnx is missing.
        GraphError: names the operators that we have not.
        WeightError: data outside of the file is not in its folder.
    """
    model, outside = read(path)
    return Program(model, os.fspath(path), outside)


__all__ = ["DOMAIN", "TRAINING", "Call", "Program", "load"]
