"""Run programs on arrays: sizes from their shapes, memory planned once per shape."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.graph.execution.binding import Target, bind, pure
from tensorlang.graph.program import Graph
from tensorlang.graph.specs import Dim, KeySpec, Spec, TensorSpec
from tensorlang.graph.values import Value
from tensorlang.ops import random

Input: TypeAlias = Any  # any array that NumPy accepts, a number, or a key
Result: TypeAlias = Any  # an array or a key, or a tuple of them, as the program returns

KEPT: Final = 64  # combinations of sizes and threads with cached memory


def run(graph: Graph, arguments: Sequence[Input], target: Target = None) -> Result:
    """Run a program on arrays and keys.

    Args:
        graph: A program without references.
        arguments: An array or a key for each input; keys are consumed.
        target: Where to compute.

    Returns:
        A new array or key, or a tuple of them.

    Raises:
        ArgumentError, ShapeError, DTypeError: an argument does not fit its input.
    """
    pure(graph)
    if len(arguments) != len(graph.inputs):
        raise ArgumentError(
            f"{graph.name} takes {len(graph.inputs)} arguments "
            f"({', '.join(v.name for v in graph.inputs)}), got {len(arguments)}"
        )
    arrays = [
        input_array(graph.name, value, given)
        for value, given in zip(graph.inputs, arguments, strict=True)
    ]
    sizes = sizes_of(graph.name, graph.inputs, arrays)
    # per thread, because a bound program has memory of its own
    key = (threading.get_ident(), target, tuple(sorted(sizes.items())))
    bound = graph.bound.get(key)
    if bound is None:
        if len(graph.bound) >= KEPT:
            graph.bound.clear()
        bound = graph.bound[key] = bind(graph, sizes, target=target)
    for place, array in zip(bound.inputs, arrays, strict=True):
        np.copyto(place, array)
    bound()
    made = tuple(map(to_result, graph.outputs, bound.outputs))
    return made[0] if graph.single else made


def input_array(name: str, value: Value, given: Input) -> np.ndarray:
    """The memory of an argument that fits an input's type; keys are consumed.

    Raises:
        ArgumentError, DTypeError: it does not fit.
    """
    if isinstance(value.spec, KeySpec):
        if not isinstance(given, random.Key) or given.impl != value.spec.impl:
            raise ArgumentError(
                f"{name}: {value.name} is {value.spec}, not {given!r:.80}"
            )
        given.consume("given to a graph")
        return np.asarray(given.words)
    array = given if type(given) is np.ndarray else np.asarray(given)
    wanted = value.spec.numpy
    if array.dtype != wanted:
        if type(given) is np.ndarray or array.dtype.kind not in "iuf":
            raise DTypeError(
                f"{name}: {value.name} is {value.spec}, not {array.dtype}; cast it, as "
                f"with array.astype({wanted.name!r})"
            )
        array = array.astype(wanted)
    return array


def sizes_of(
    name: str, inputs: Sequence[Value], arrays: Sequence[np.ndarray]
) -> dict[str, int]:
    """The named sizes, from arrays' shapes; ShapeError if these do not match."""
    sizes: dict[str, int] = {}
    shapes = [
        array.shape[: len(value.shape)]
        if isinstance(value.spec, KeySpec)
        else array.shape
        for value, array in zip(inputs, arrays, strict=True)
    ]
    for value, shape in zip(inputs, shapes, strict=True):
        if len(shape) == len(value.shape):
            for extent, size in zip(value.shape, shape, strict=True):
                if isinstance(extent, Dim) and extent == _plain(extent):
                    sizes.setdefault(str(extent), size)
    for value, shape in zip(inputs, shapes, strict=True):
        if not _fits(value.spec, shape, sizes):
            known = ", ".join(f"{k} = {v}" for k, v in sizes.items())
            raise ShapeError(
                f"{name}: {value.name} is {value.spec}, not of shape {shape}"
                + (f", where {known}" if known else "")
            )
    return sizes


def _plain(extent: Dim) -> Dim:
    return Dim.named(str(extent)) if str(extent).isidentifier() else Dim(())


def _fits(spec: Spec, shape: tuple[int, ...], sizes: dict[str, int]) -> bool:
    try:
        return tuple(spec.at(sizes).shape) == shape
    except ShapeError:
        return False


def to_result(value: Value, held: np.ndarray) -> np.ndarray | random.Key:
    """A result that the caller may keep, from a program's memory."""
    if isinstance(value.spec, KeySpec):
        return random.Key(value.spec.impl, held.copy())
    return held.copy()


__all__ = ["TensorSpec", "input_array", "run", "sizes_of", "to_result"]
