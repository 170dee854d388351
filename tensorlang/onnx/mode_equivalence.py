"""Check that training and inference programs differ only in dropout and norms."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Final

from tensorlang.errors import GraphError
from tensorlang.graph import Graph, Value
from tensorlang.graph.networks.leaves import ConstantTensor
from tensorlang.graph.specs import KeySpec
from tensorlang.graph.values import Node

_NORM: Final = "nn.batch_norm_train"


def check_equivalent(use: Graph, train: Graph, outputs: int) -> None:
    """GraphError if programs differ in more than operators' training mode."""
    seen: dict[Hashable, int] = {}
    found = [
        [_Numbered(graph, outputs, seen).number(v) for v in graph.outputs[:outputs]]
        for graph in (use, train)
    ]
    if found[0] != found[1]:
        raise GraphError(
            "training differs from inference in more than dropout and batch norms, "
            "which one ONNX file cannot hold; compile it with layers that do the same "
            "in both"
        )


class _Numbered:
    """Value numbering: equal computations have equal numbers."""

    def __init__(self, graph: Graph, outputs: int, seen: dict[Hashable, int]) -> None:
        count = len(graph.inputs) - (len(graph.outputs) - outputs)
        self.seen, self.known, self.depth = seen, {}, 0
        for n, value in enumerate(graph.inputs):
            self.known[value] = self._of(("input", n if n < count else value.name))
        self._in_order(graph)

    known: dict[Value, int]

    def _in_order(self, graph: Graph) -> None:
        """Number each node after its dependencies, without deep recursion."""
        for node in graph.nodes:
            for value in node.results:
                self.number(value)

    def number(self, value: Value) -> int:
        """The number of a value's computation."""
        if value not in self.known:
            self.known[value] = self._found(value)
        return self.known[value]

    def _found(self, value: Value) -> int:
        node = value.node
        if node is None:
            data = isinstance(value, ConstantTensor) and value.data.tobytes()
            return self._of((value.spec, data or id(value)))
        if node.id == "nn.dropout_train":
            return self.number(node.args[value.index])
        if node.id == _NORM:
            return self._norm(value, node)
        if node.id in _FORMS:
            return self._of((node.id, value.index, *_FORMS[node.id](self, value, node)))
        return self._of((node.id, value.index, *self._arguments(node, node.kwargs)))

    def _norm(self, value: Value, node: Node) -> int:
        if value.index:
            return self.number(node.args[value.index])
        given = {k: v for k, v in node.kwargs.items() if k != "momentum"}
        return self._of(("nn.batch_norm", 0, *self._arguments(node, given)))

    def _arguments(self, node: Node, named: Mapping[str, object]) -> list[Hashable]:
        given = [*node.args, *(each for pair in sorted(named.items()) for each in pair)]
        return [self._argument(each) for each in given]

    def branch(self, value: Value, node: Node) -> list[Hashable]:
        """What an `if` depends on: its condition and the result of each branch."""
        for graph in node.graphs:
            self._in_order(graph)
        held = [graph.outputs[value.index] for graph in node.graphs]
        return [self._argument(each) for each in (node.args[0], *held)]

    def loop(self, _: Value, node: Node) -> list[Hashable]:
        """What a loop depends on, except for the keys that training carries."""
        *tests, body = node.graphs
        ahead = len(body.inputs) - len(node.args)  # the turn's number
        kept = [
            n for n, each in enumerate(node.args) if not isinstance(each.spec, KeySpec)
        ]
        self.depth += 1
        for graph, first in [(test, 0) for test in tests] + [(body, ahead)]:
            for n, each in enumerate(graph.inputs):
                at = kept.index(n - first) if n - first in kept else n - first
                self.known[each] = self._of(("carry", self.depth, at))
            self._in_order(graph)
        turn = [body.outputs[n] for n in kept] + [test.outputs[0] for test in tests]
        found = [self._argument(each) for each in (*turn, node.kwargs.get("count"))]
        self.depth -= 1
        return found + [self._argument(node.args[n]) for n in kept]

    def _argument(self, given: object) -> Hashable:
        if isinstance(given, Value):
            return ("value", self.number(given))
        if isinstance(given, (tuple, list)):
            return tuple(map(self._argument, given))
        return repr(given)

    def _of(self, what: Hashable) -> int:
        return self.seen.setdefault(what, len(self.seen))


_FORMS: Final[dict[str, Callable[[_Numbered, Value, Node], list[Hashable]]]] = {
    "if": _Numbered.branch,
    "for": _Numbered.loop,
    "while": _Numbered.loop,
}
