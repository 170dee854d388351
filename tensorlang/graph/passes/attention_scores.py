"""Scores of attention that a program writes out, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from tensorlang.frozen import frozen
from tensorlang.graph.differentiation.gradients import arguments_of
from tensorlang.graph.networks.leaves import ConstantTensor
from tensorlang.graph.values import Argument, Node, Tensor, Value

_SCALES: Final = ("math.multiply", "math.divide")
_HIDING: Final = -(2.0**96)  # any score that is added to less is lost, in f32 and bf16


@frozen
class Scores:
    """A product of queries and keys, and what is done to it."""

    q: Tensor  # queries
    k: Tensor  # keys
    transposed: bool  # whether the keys are transposed
    scale: float = 1.0  # product of the known factors
    # other scalars, and the operators that apply them
    factors: tuple[tuple[str, Argument], ...] = ()
    # what is added; or which scores are kept, and what the others become
    masks: tuple[tuple[Tensor, float], ...] = ()


def scores_of(value: Value) -> Scores | None:
    """The product that scores are made of, and all that is done to it."""
    node = value.node
    rule = None if node is None else _RULES.get(node.id)
    return None if node is None or rule is None else rule(node)


def _product(node: Node) -> Scores | None:
    given = arguments_of(node)
    if given["transpose_a"] or not all(isinstance(given[n], Tensor) for n in "ab"):
        return None
    found = Scores(given["a"], given["b"], not given["transpose_b"])
    while (step := _step(found.q.node)) is not None:
        found = _with(replace(found, q=step[0]), *step[1:])
    while (step := _step(found.k.node)) is not None:
        found = _with(replace(found, k=step[0]), *step[1:])
    return found


def _scaled(node: Node) -> Scores | None:
    step = _step(node)
    found = None if step is None else scores_of(step[0])
    if step is None or found is None or found.masks:
        return None
    return _with(found, *step[1:])


def _added(node: Node) -> Scores | None:
    for scores, mask in (node.args, node.args[::-1]):
        found = scores_of(scores) if isinstance(scores, Value) else None
        if found is not None and isinstance(mask, Tensor):
            if scores.spec != node.results[0].spec or mask.spec.dtype == "bool":
                return None
            return replace(found, masks=(*found.masks, (mask, 0.0)))
    return None


def _chosen(node: Node) -> Scores | None:
    test, scores, other = node.args
    low = number_of(other)
    found = scores_of(scores) if isinstance(scores, Value) else None
    if found is None or low is None or not low < _HIDING:
        return None
    if scores.shape != node.results[0].shape or not isinstance(test, Tensor):
        return None
    return replace(found, masks=(*found.masks, (test, low)))


_RULES: Final[Mapping[str, Callable[[Node], Scores | None]]] = {
    "math.matmul": _product,
    "math.add": _added,
    "math.where": _chosen,
    **dict.fromkeys(_SCALES, _scaled),
}


def _step(node: Node | None) -> tuple[Tensor, str, Argument] | None:
    """A scaled value, and the operator and the scalar that scale it."""
    if node is None or node.id not in _SCALES:
        return None
    pairs = (node.args, node.args[::-1])[: 1 if node.id == "math.divide" else 2]
    for base, scalar in pairs:
        single = not isinstance(scalar, Value) or set(scalar.shape) <= {1}
        same = isinstance(base, Tensor) and base.spec == node.results[0].spec
        if single and same:
            return base, node.id, scalar
    return None


def _with(scores: Scores, name: str, scalar: Argument) -> Scores:
    """Scores that are scaled once more."""
    number = number_of(scalar)
    if number is None or (name == "math.divide" and not number):
        return replace(scores, factors=(*scores.factors, (name, scalar)))
    factor = number if name == "math.multiply" else 1 / number
    return replace(scores, scale=scores.scale * factor)


def number_of(value: Argument) -> float | None:
    """The value of a scalar that is known."""
    if isinstance(value, ConstantTensor):
        return float(value.data.reshape(-1)[0]) if value.data.size == 1 else None
    return float(value) if isinstance(value, (int, float, np.generic)) else None
