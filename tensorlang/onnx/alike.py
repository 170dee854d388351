"""Whether a network's program of training is that of use, but for dropout and norms."""

from __future__ import annotations

from typing import Any, Final

from tensorlang.errors import GraphError
from tensorlang.graph import Graph, Value
from tensorlang.graph.leaves import ConstantTensor
from tensorlang.graph.values import Node

_NORM: Final = "nn.batch_norm_train"


def alike(use: Graph, train: Graph, outputs: int) -> None:
    """Refuse programs that differ in more than what asks whether it is trained.

    Raises:
        GraphError: they do.
    """
    seen: dict[Any, int] = {}
    found = [
        [_Numbered(graph, outputs, seen).number(v) for v in graph.outputs[:outputs]]
        for graph in (use, train)
    ]
    if found[0] != found[1]:
        raise GraphError(
            "the network does other things in training than dropout and batch norms, "
            "which one ONNX file cannot hold; compile it with layers that do the same "
            "in both"
        )


class _Numbered:
    """Numbers for values, where the same computation has the same number."""

    def __init__(self, graph: Graph, outputs: int, seen: dict[Any, int]) -> None:
        count = len(graph.inputs) - (len(graph.outputs) - outputs)
        self.seen, self.known = seen, {}
        for n, value in enumerate(graph.inputs):
            self.known[value] = self._of(("input", n if n < count else value.name))

    known: dict[Value, int]

    def number(self, value: Value) -> int:
        """The number of what a program computes as this value."""
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
        return self._of((node.id, value.index, *self._arguments(node, node.kwargs)))

    def _norm(self, value: Value, node: Node) -> int:
        if value.index:
            return self.number(node.args[value.index])
        given = {k: v for k, v in node.kwargs.items() if k != "momentum"}
        return self._of(("nn.batch_norm", 0, *self._arguments(node, given)))

    def _arguments(self, node: Node, named: dict[str, Any]) -> list[Any]:
        given = [*node.args, *(each for pair in sorted(named.items()) for each in pair)]
        return [self._argument(each) for each in given] + [id(g) for g in node.graphs]

    def _argument(self, given: Any) -> Any:
        if isinstance(given, Value):
            return ("value", self.number(given))
        if isinstance(given, (tuple, list)):
            return tuple(map(self._argument, given))
        return repr(given)

    def _of(self, what: Any) -> int:
        return self.seen.setdefault(what, len(self.seen))
