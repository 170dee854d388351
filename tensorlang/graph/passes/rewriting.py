"""Program rewriting: a copy in which some nodes are replaced.

class Doubled(Rewriter):
    def node(self, node):
        if node.id == "nn.relu":
            return [math.multiply(self[node.args[0]], 2.0)]
        return self.copied(node)
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.errors import ShapeError
from tensorlang.graph.program import Graph
from tensorlang.graph.scopes import Scope, within
from tensorlang.graph.specs import Spec
from tensorlang.graph.values import (
    Argument,
    Node,
    OpResult,
    Value,
    make,
    map_values,
    value_of,
)


class Rewriter:
    """A walk that copies a program; subclasses override what changes.

    Attributes:
        now: The new value of each old value.
    """

    def __init__(self) -> None:
        self.now: dict[Value, Value] = {}
        self._functions: dict[int, tuple[Graph, Graph]] = {}

    def __getitem__(self, value: Value) -> Value:
        """The new value of an old one."""
        return self.now.get(value, value)

    def given(self, nest: Argument) -> Argument:
        """A node's arguments with new values."""
        return map_values(nest, self.__getitem__)

    def node(self, node: Node) -> Sequence[Value]:
        """The new results of a node: those of a copy, unless overridden."""
        return self.copied(node)

    def copied(
        self,
        node: Node,
        graphs: Sequence[Graph] | None = None,
        more: Sequence[Value] = (),
        specs: Sequence[Spec] = (),
    ) -> tuple[Value, ...]:
        """The results of a copy of a node on its new arguments.

        Args:
            graphs: Its nested programs, rewritten; rewritten by this walk if omitted.
            more: Further arguments.
            specs: Specs of further results.
        """
        made = make(
            node.op,
            (*self.given(node.args), *more),
            {name: self.given(value) for name, value in node.kwargs.items()},
            [*(value.spec for value in node.results), *specs],
            graphs=self.programs(node) if graphs is None else graphs,
            where=node.where,
            path=node.path,
            replay=node.replay,
        )
        for old, new in zip(node.results, made.results, strict=False):
            new.name = old.name
        if made.scope is not None and _lasting(made):
            made.scope.effects.append(made)
        return made.results

    def programs(self, node: Node) -> list[Graph]:
        """The nested programs of a node, rewritten; each function only once."""
        if node.id != "call":
            return [self.graph(graph) for graph in node.graphs]
        for graph in node.graphs:
            if id(graph) not in self._functions:
                self._functions[id(graph)] = graph, self.graph(graph)
        return [self._functions[id(graph)][1] for graph in node.graphs]

    def graph(self, graph: Graph, **changes: bool | None) -> Graph:
        """Rewrite a program, which may capture values of the enclosing one."""
        scope = Scope(graph.name, None) if graph.scope else None
        with within(scope):
            inputs = [self.input(value) for value in graph.inputs]
            self.nodes(graph)
            outputs = [self[value] for value in graph.outputs]
        return self.finished(graph, inputs, outputs, scope, **changes)

    def finished(
        self,
        graph: Graph,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        scope: Scope | None,
        *,
        single: bool | None = None,
    ) -> Graph:
        """The new program with these inputs and outputs, named as the old one."""
        made = Graph(
            inputs,
            outputs,
            name=graph.name,
            effects=scope.effects if scope else (),
            scope=scope,
            single=graph.single if single is None else single,
        )
        made.function = graph.function
        return made

    def nodes(self, graph: Graph) -> None:
        """Rewrite the nodes of a program in order."""
        for node in graph.nodes:
            results = self.node(node)
            self.now.update(zip(node.results, results, strict=False))

    def input(self, value: Value) -> Value:
        """A new placeholder for an old one."""
        made = value_of(value.spec)
        made.name = value.name
        self.now[value] = made
        return made


def inline_call(graph: Graph, given: Sequence[Value]) -> OpResult:
    """Inline a program on symbolic values.

    Raises:
        ShapeError: the values do not match the specs of its inputs.
    """
    wanted, found = ([value.spec for value in each] for each in (graph.inputs, given))
    if wanted != found:
        raise ShapeError(
            f"{graph.name} takes {', '.join(map(str, wanted))}, not "
            f"{', '.join(map(str, found))}"
        )
    writer = Rewriter()
    writer.now.update(zip(graph.inputs, given, strict=True))
    writer.nodes(graph)
    outputs = tuple(writer[value] for value in graph.outputs)
    return outputs[0] if graph.single else outputs


def _lasting(node: Node) -> bool:
    stateful = any(graph.stateful for graph in node.graphs)
    return stateful or node.id in ("read", "write")
