"""State threading: turn stateful programs into pure ones.

A reference that a program reads or writes becomes an input (its initial content) and an
output (its final content). Called functions are rewritten along with their call sites;
both branches of an `if` return the state, unchanged where they do not write it; loops
carry it. References local to a function disappear.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.errors import GraphError
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.references import Ref
from tensorlang.graph.scopes import Scope, within
from tensorlang.graph.values import Node, Value, value_of


def refs_of(graph: Graph) -> tuple[Ref, ...]:
    """The non-local references that a program reads or writes, in order."""
    found: dict[Ref, None] = {}
    for node in graph.nodes:
        if node.id in ("read", "write"):
            found[node.kwargs["ref"]] = None
        for inner in node.graphs:
            found.update(dict.fromkeys(refs_of(inner)))
    return tuple(place for place in found if not _made_in(place, graph))


def _made_in(place: Ref, graph: Graph) -> bool:
    value = place.value
    return value is not None and (value.scope is graph.scope or value in graph.inputs)


def thread(graph: Graph) -> Graph:
    """The program without references, with an input and output for each of them.

    Raises:
        GraphError: a branch or function uses a reference local to another one.
    """
    return _Threading().program(graph, refs_of(graph))


class _Threading(Rewriter):
    """The pass, with the current content of each reference."""

    def __init__(self) -> None:
        super().__init__()
        self.holds: dict[Ref, Value] = {}
        self.functions: dict[int, Graph] = {}

    def program(self, graph: Graph, places: Sequence[Ref]) -> Graph:
        """A program that takes and returns the content of these references."""
        around, scope = self.holds, Scope(graph.name)
        with within(scope):
            inputs = [self.input(value) for value in graph.inputs]
            held = [_placeholder(place) for place in places]
            self.holds = dict(zip(places, held, strict=True))
            self.nodes(graph)
            outputs = [self[value] for value in graph.outputs]
            outputs += [self.holds[place] for place in places]
        self.holds = around
        single = graph.single and not places
        return self.finished(graph, [*inputs, *held], outputs, scope, single=single)

    def node(self, node: Node) -> Sequence[Value]:
        if node.id == "read":
            return (self._held(node.kwargs["ref"], node),)
        if node.id == "write":
            self.holds[node.kwargs["ref"]] = self[node.args[0]]
            return ()
        places = tuple(dict.fromkeys(p for g in node.graphs for p in refs_of(g)))
        if not places:
            return self.copied(node)
        return self._threaded(node, places)

    def _threaded(self, node: Node, places: tuple[Ref, ...]) -> Sequence[Value]:
        """A form whose programs use references: it takes and returns their content."""
        now = [self._held(place, node) for place in places]
        if node.id == "while":
            test, body = node.graphs
            graphs = [self._test(test, places), self.program(body, places)]
        elif node.id == "if":
            graphs = [self._branch(graph, places, now) for graph in node.graphs]
            now = []
        else:
            graphs = [self._function(graph, places) for graph in node.graphs]
        specs = [place.spec for place in places]
        results = self.copied(node, graphs, now, specs)
        kept = len(node.results)
        self.holds.update(zip(places, results[kept:], strict=True))
        return results[:kept]

    def _function(self, graph: Graph, places: tuple[Ref, ...]) -> Graph:
        """A function, rewritten once for all of its calls."""
        if id(graph) not in self.functions:
            self.functions[id(graph)] = self.program(graph, places)
        return self.functions[id(graph)]

    def _branch(
        self, graph: Graph, places: Sequence[Ref], now: Sequence[Value]
    ) -> Graph:
        """A branch: starts with the current content and returns the newest."""
        around, scope = self.holds, Scope(graph.name)
        with within(scope):
            self.holds = {**around, **dict(zip(places, now, strict=True))}
            self.nodes(graph)
            outputs = [self[value] for value in graph.outputs]
            outputs += [self.holds[place] for place in places]
        self.holds = around
        return self.finished(graph, [], outputs, scope, single=False)

    def _test(self, graph: Graph, places: tuple[Ref, ...]) -> Graph:
        """A loop condition: takes the state and may not change it."""
        if any(node.id == "write" for node in graph.nodes):
            raise GraphError(
                f"the condition of a while_loop writes {places[0].name}; write it in "
                "the body"
            )
        made = self.program(graph, places)
        return Graph(
            made.inputs, made.outputs[:1], name=made.name, scope=made.scope, single=True
        )

    def _held(self, place: Ref, node: Node) -> Value:
        if place not in self.holds:
            if place.value is None:
                raise GraphError(
                    f"{place.name} is used at {node.where} outside of its scope"
                )
            self.holds[place] = self[place.value]
        return self.holds[place]


def _placeholder(place: Ref) -> Value:
    made = value_of(place.spec)
    made.name = place.name
    return made
