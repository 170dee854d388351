"""Reverse-mode differentiation: programs that compute gradients of programs.

Gradients are ordinary nodes added to the program being traced. The contents of
branches, loops and calls are recomputed in the backward pass, so `graph.checkpoint(f)`
saves only the arguments of `f`. Training inlines other calls first (`graph.inline`) and
saves their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from tensorlang.errors import ArgumentError, GraphError
from tensorlang.graph.differentiation.gradients import (
    Gradients,
    Site,
    arguments_of,
    is_float,
    of_operator,
    or_zeros,
)
from tensorlang.graph.networks.leaves import constant
from tensorlang.graph.scopes import call_site, named
from tensorlang.graph.specs import TensorSpec, at_sizes
from tensorlang.graph.values import Form, Node, Value
from tensorlang.ops import math

_WITHOUT: Final = {
    "for_grad": "the gradient of the loop at {} has no gradient itself; where one is "
    "needed, unroll the loop in Python",
    "while_grad": "the gradient of the while_loop at {} has no gradient itself; where "
    "one is needed, unroll a fixed number of iterations in Python",
}
FOR_GRAD: Final = Form("for_grad")
WHILE_GRAD: Final = Form("while_grad")
# the rules of forms, filled by `tensorlang.graph.differentiation.autodiff_forms`
FORMS: Final[dict[str, Callable[..., Gradients]]] = {}


def gradients(
    of: Value | Sequence[Value],
    wrt: Sequence[Value],
    seeds: Sequence[Value | None] | None = None,
) -> list[Value]:
    """The gradients of a value with respect to others.

    Args:
        of: A tensor of one element; with `seeds`, one or several of any shape.
        wrt: Tensors it depends on, which may be weights.
        seeds: The gradient of each of `of`.

    Returns:
        A tensor for each of `wrt`: zeros where nothing depends on it.

    Raises:
        GraphError: an operation on the path has no gradient.
        ArgumentError: `of` or `wrt` is something else.
    """
    results = _values("of", (of,) if isinstance(of, Value) else of)
    wrt = _values("wrt", wrt)
    if seeds is None:
        seeds = [_one(value) for value in results]
    found = backward(results, seeds, wrt)
    return [or_zeros(found.get(value), value) for value in wrt]


def _values(name: str, given: Iterable[Value]) -> tuple[Value, ...]:
    listed = isinstance(given, Iterable) and not isinstance(given, Value)
    found = tuple(given) if listed else ()
    if listed and all(isinstance(value, Value) for value in found):
        return found
    raise ArgumentError(
        f"{call_site()}: {name} is a list of values of the graph, such as [x], not "
        f"{given!r:.80}"
    )


def _one(value: Value) -> Value:
    if any(extent != 1 for extent in value.shape) or not is_float(value):
        raise GraphError(
            f"{call_site()}: only a single element has a gradient, not {value.spec}; "
            "sum it, or pass seeds"
        )
    assert isinstance(value.spec, TensorSpec)
    return constant(np.ones(at_sizes(value.shape, {}), value.spec.numpy))


def backward(
    results: Sequence[Value], seeds: Sequence[Value | None], wrt: Sequence[Value]
) -> dict[Value, Value]:
    """The gradient of each value between the results and `wrt`."""
    sums: dict[Value, Value] = {}
    for value, seed in zip(results, seeds, strict=True):
        if seed is not None:
            _add(sums, value, seed)
    nodes, needed = _between(results, set(wrt))
    for node in reversed(nodes):
        dys = tuple(sums.get(value) for value in node.results)
        wanted = frozenset(v for v in node.inputs if v in needed and is_float(v))
        if not wanted or all(dy is None for dy in dys):
            continue
        with named(f"{node.path}'" if node.path else ""):
            for value, gradient in _of_node(node, dys, wanted):
                if gradient is not None and value in wanted:
                    _add(sums, value, gradient)
    return sums


def _between(
    results: Iterable[Value], wrt: set[Value]
) -> tuple[list[Node], set[Value]]:
    """The nodes on paths from some values to others, and the values on these paths."""
    nodes = _ancestors(results, wrt)
    needed = set(wrt)
    kept = []
    for node in nodes:
        if needed.intersection(node.inputs) and any(map(is_float, node.results)):
            needed.update(node.results)
            kept.append(node)
    return kept, needed


def _ancestors(results: Iterable[Value], stop: set[Value]) -> list[Node]:
    found: dict[int, Node] = {}
    waiting = list(results)
    while waiting:
        value = waiting.pop()
        node = value.node
        if node is not None and value not in stop and node.serial not in found:
            found[node.serial] = node
            waiting += node.inputs
    return [found[serial] for serial in sorted(found)]


def _add(sums: dict[Value, Value], value: Value, gradient: Value) -> None:
    held = sums.get(value)
    sums[value] = gradient if held is None else math.add(held, gradient)


def _of_node(
    node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]
) -> Gradients:
    form = FORMS.get(node.id)
    if form is not None:
        return form(node, dys, wanted)
    if isinstance(node.op, Form):
        said = _WITHOUT.get(node.id, f"{node.id} ({{}}) has no gradient")
        raise GraphError(said.format(node.place))
    return of_operator(Site(node, arguments_of(node), dys, wanted))
