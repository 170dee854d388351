"""Initialisation and assignment of a network's weights and states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensorlang.errors import GraphError, WeightError
from tensorlang.graph.networks.leaves import Weight
from tensorlang.graph.program import Graph
from tensorlang.graph.references import Ref
from tensorlang.graph.specs import TensorSpec, at_sizes
from tensorlang.ops import random

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def fill(
    held: Mapping[str, np.ndarray], given: Mapping[str, ArrayLike], what: str
) -> None:
    """Copy arrays onto others of the same names, shapes and dtypes: all or none.

    Raises:
        WeightError: names what is missing, unused or has the wrong shape or dtype.
    """
    if not isinstance(given, Mapping):
        raise WeightError(
            f"{what}s are given as a dictionary of arrays by path, not {given!r:.60}"
        )
    arrays = {path: np.asarray(value) for path, value in given.items()}
    wrong = [f"{what} {path!r} is missing" for path in held if path not in arrays]
    wrong += [f"{what} {path!r} is not used" for path in arrays if path not in held]
    for path, array in arrays.items():
        own = held.get(path)
        if own is not None and (own.shape, own.dtype) != (array.shape, array.dtype):
            wrong.append(
                f"{what} {path!r} is {own.dtype}{list(own.shape)}, not "
                f"{array.dtype}{list(array.shape)}"
            )
    if wrong:
        raise WeightError("; ".join(wrong))
    for path, array in arrays.items():
        np.copyto(held[path], array)


def empty(leaf: Weight) -> np.ndarray:
    """Zeros for a weight whose values will be assigned."""
    return np.zeros(at_sizes(leaf.shape, {}), leaf.spec.numpy)


def initial_state(place: Ref, key: random.Key) -> np.ndarray:
    """The initial content of a state: a key, zeros, or the given data."""
    if place.initial is None and isinstance(place.spec, TensorSpec):
        return np.zeros(at_sizes(place.spec.shape, {}), place.spec.numpy)
    data = key if place.initial is None else place.initial
    held = data.words if isinstance(data, random.Key) else data
    return np.array(held, order="C")


def initial_weight(leaf: Weight, key: random.Key) -> np.ndarray:
    """The initial value of a weight.

    Raises:
        WeightError: it has no initialiser, or the result does not fit its spec.
    """
    if leaf.initial is None:
        raise WeightError(
            f"weight {leaf.path!r} has no initialiser; give the network its weights"
        )
    made = np.array(
        leaf.initial(key, at_sizes(leaf.shape, {}), leaf.spec.numpy), order="C"
    )
    if (made.shape, made.dtype) != (leaf.shape, leaf.spec.numpy):
        raise WeightError(
            f"weight {leaf.path!r} is {leaf.spec}, and its initialiser makes "
            f"{made.dtype}{list(made.shape)}"
        )
    return made


def by_path(graphs: Sequence[Graph]) -> dict[str, Weight]:
    """All weights of programs, in order of use; GraphError if two share a path."""
    found: dict[str, Weight] = {}
    for graph in graphs:
        for leaf in _weights_in(graph):
            if found.setdefault(leaf.path, leaf) is not leaf:
                raise GraphError(
                    f"two weights are named {leaf.path!r}; give their layers distinct "
                    "names, with layers.Sequential or as attributes"
                )
    return found


def _weights_in(graph: Graph) -> dict[Weight, None]:
    found: dict[Weight, None] = {}
    for node in graph.nodes:
        for inner in node.graphs:  # in order of use
            found.update(_weights_in(inner))
        found.update((v, None) for v in node.inputs if isinstance(v, Weight))
    found.update(dict.fromkeys(graph.weights))
    return found
