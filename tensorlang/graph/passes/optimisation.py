"""Optimisation passes.

None of them changes what a program draws: nodes that use a key are never merged, and
nothing that depends on a key is constant-folded.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from tensorlang.graph.networks.leaves import ConstantTensor, constant
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.specs import KeySpec
from tensorlang.graph.values import Argument, Key, Node, Value, map_values, values_in
from tensorlang.ops.operator import Operator

_PURE_FORMS: Final = {"element", "zeros"}


def inline(graph: Graph) -> Graph:
    """Inline function calls.

    Checkpoints and functions with custom gradients remain calls.
    """
    return _Inline().graph(graph)


class WrittenOut(Rewriter):
    """A program with all calls inlined, as it is executed."""

    def node(self, node: Node) -> Sequence[Value]:
        """Inline a function at its call."""
        if node.id != "call" or self.kept(node.graphs[0]):
            return self.copied(node)
        (graph,) = node.graphs
        inner = type(self)()
        inner.now.update(self.now)
        inner.now.update(zip(graph.inputs, self.given(node.args), strict=True))
        inner.nodes(graph)
        return [inner[value] for value in graph.outputs]

    def kept(self, _: Graph) -> bool:
        """Whether calls of a function are kept."""
        return False


class _Inline(WrittenOut):
    def kept(self, graph: Graph) -> bool:
        own = graph.function
        return own is not None and (own.checkpoint or own.gradient is not None)


def without_dead(graph: Graph) -> Graph:
    """Dead code elimination, including unused results of branches."""
    return Rewriter().graph(graph)


def without_doubles(graph: Graph) -> Graph:
    """Common subexpression elimination.

    Draws are never equal: nodes that draw, split or replay a draw are left alone.
    """
    return _Doubles().graph(graph)


class _Doubles(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[Hashable, tuple[Value, ...]] = {}

    def graph(self, graph: Graph, **changes: bool | None) -> Graph:
        around = dict(self.seen)  # values inside are not available outside
        made = super().graph(graph, **changes)
        self.seen = around
        return made

    def node(self, node: Node) -> Sequence[Value]:
        if not _repeatable(node):
            return self.copied(node)
        key = (
            node.id,
            _identity(self.given(node.args)),
            tuple(
                (k, _identity(self.given(v))) for k, v in sorted(node.kwargs.items())
            ),
            tuple(value.spec for value in node.results) if node.id == "zeros" else (),
        )
        if key not in self.seen:
            self.seen[key] = tuple(self.copied(node))
        return self.seen[key]


def _repeatable(node: Node) -> bool:
    """Whether it is a pure, non-random function of its arguments."""
    if node.graphs or not isinstance(node.op, Operator):
        return node.id in _PURE_FORMS
    return not _random(node)


def _random(node: Node) -> bool:
    nest = (node.args, tuple(node.kwargs.values()))
    return any(isinstance(value.spec, KeySpec) for value in values_in(nest))


def _identity(nest: Argument) -> Hashable:
    """A hashable form of an argument, equal only for identical arguments."""
    if isinstance(nest, ConstantTensor) and nest.data.size <= 1:
        return ("constant", nest.spec, nest.data.tobytes())
    if isinstance(nest, Value):
        return ("value", id(nest))
    if isinstance(nest, (tuple, list)):
        return tuple(map(_identity, nest))
    return (type(nest).__name__, repr(nest))


def fold(graph: Graph) -> Graph:
    """Constant folding; keys are never folded.

    A choice whose condition is constant, and the same everywhere, is what it chooses.
    """
    return _Fold().graph(graph)


_LARGEST: Final = 1 << 20  # elements of the largest folded result


class _Fold(Rewriter):
    def node(self, node: Node) -> Sequence[Value]:
        args = self.given(node.args)
        kwargs = {name: self.given(value) for name, value in node.kwargs.items()}
        values = list(values_in((args, tuple(kwargs.values()))))
        known = values and all(isinstance(value, ConstantTensor) for value in values)
        chosen = _chosen(node, args) if node.id == "math.where" else None
        if chosen is not None:
            return [chosen]
        if not known or not _repeatable(node) or not _small(node):
            return self.copied(node)
        made = node.op(  # type: ignore[operator]
            *map_values(args, _data),
            **{k: map_values(v, _data) for k, v in kwargs.items()},
        )
        results = made if isinstance(made, tuple) else (made,)
        return [constant(np.asarray(each)) for each in results]


def _chosen(node: Node, args: Sequence[Argument]) -> Value | None:
    """The operand that a constant condition chooses everywhere, if it is the result."""
    test, *others = args or (None,)
    if not isinstance(test, ConstantTensor) or not test.data.size or len(others) < 2:
        return None
    if (same := test.data.all()) != test.data.any():
        return None
    found = others[0 if same else 1]
    alike = isinstance(found, Value) and found.spec == node.results[0].spec
    return found if alike else None


def _data(value: Value) -> np.ndarray:
    assert isinstance(value, ConstantTensor)
    return value.data


def _small(node: Node) -> bool:
    for value in node.results:
        known = [extent for extent in value.shape if isinstance(extent, int)]
        if isinstance(value, Key) or len(known) < value.ndim:
            return False
        if math.prod(known) > _LARGEST:
            return False
    return True
