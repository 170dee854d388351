"""Programs as text: one line per node, functions before their callers.

weight @0.weight: f32[2, 3]

graph main(x: f32[batch, 3], key: key<threefry2x32>) -> f32[batch, 2] {
  %0 = nn.dense(x, @0.weight, activation="relu")  # f32[batch, 2]
  return %0
}

`tensorlang.graph.parse` reads it back and documents what the text omits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tensorlang.graph.networks.leaves import CONSTANTS, Weight
from tensorlang.graph.specs import names_in
from tensorlang.graph.text.literals import (
    RESERVED,
    constant,
    literal,
    plain,
    quoted,
    unique,
)
from tensorlang.graph.values import Node, Value, values_in

if TYPE_CHECKING:
    from tensorlang.graph.program import Graph
    from tensorlang.graph.references import Ref

_BETWEEN: Final = {"if": ("else",), "while": ("do",), "for_grad": ("back",)}
_BETWEEN_BACK: Final = ("do", "back")


def text(graph: Graph) -> str:
    """The text of a program and of the functions it calls."""
    return _Text(graph).whole()


def called(graph: Graph) -> list[Graph]:
    """The functions called by a program, callees first."""
    found: dict[int, Graph] = {}

    def visit(program: Graph) -> None:
        for node in program.nodes:
            for inner in node.graphs:
                visit(inner)
                if node.id == "call":
                    found.setdefault(id(inner), inner)

    visit(graph)
    return list(found.values())


def programs(graph: Graph) -> Iterator[Graph]:
    """A program with its nested and called programs."""
    yield graph
    for node in graph.nodes:
        for inner in node.graphs:
            yield from programs(inner)


def _captures(graph: Graph) -> bool:
    """Whether a function captures values other than weights."""
    return any(not isinstance(value, Weight) for value in graph.free)


class _Text:
    """The names used in the text of a program."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[Value, str] = {}
        self.functions: dict[int, str] = {}
        self.refs: dict[Ref, str] = {}
        every = list(programs(graph))
        nodes = [node for each in every for node in each.nodes]
        self.sizes = _sizes(every, nodes)
        taken = set(RESERVED)
        for each in called(graph):
            self.functions[id(each)] = unique(each.name, taken)
        taken = set(RESERVED)
        for node in nodes:
            place = node.kwargs.get("ref") if node.id in ("read", "write") else None
            if place is not None and place not in self.refs:
                self.refs[place] = unique(place.name, taken)

    def whole(self) -> str:
        """The text: weights and references, functions, the program."""
        head = [_weight(leaf) for leaf in _weights(self.graph)]
        head += [
            f"ref {name}: {place.spec}"
            for place, name in self.refs.items()
            if place.value is None
        ]
        parts = ["\n".join(head)] if head else []
        apart = [inner for inner in called(self.graph) if not _captures(inner)]
        parts += ["\n".join(self.function(inner, 0, set())) for inner in apart]
        lines = self.program(f"graph {plain(self.graph.name)}", self.graph, 0, set())
        return "\n\n".join([*parts, "\n".join(lines)])

    def function(self, graph: Graph, depth: int, taken: set[str]) -> list[str]:
        own = graph.function
        kind = "checkpoint " if own is not None and own.checkpoint else ""
        kind = "custom " if own is not None and own.gradient is not None else kind
        head = f"{kind}function {self.functions[id(graph)]}"
        return self.program(head, graph, depth, taken)

    def program(
        self, head: str, graph: Graph, depth: int, around: set[str]
    ) -> list[str]:
        taken = around | self.sizes
        params = self.inputs(graph, taken)
        results = ", ".join(str(value.spec) for value in graph.outputs)
        shown = results if graph.single else f"({results})"
        first = f"{_indent(depth)}{head}({params}) -> {shown} {{"
        return [first, *self.body(graph, depth + 1, taken), _indent(depth) + "}"]

    def inputs(self, graph: Graph, taken: set[str]) -> str:
        return ", ".join(f"{self.own(v, taken)}: {v.spec}" for v in graph.inputs)

    def own(self, value: Value, taken: set[str]) -> str:
        """A name for a value, distinct from those of its program."""
        self.values[value] = unique(value.name or "x", taken)
        return self.values[value]

    def body(self, graph: Graph, depth: int, taken: set[str]) -> list[str]:
        lines: list[str] = []
        told: set[Ref] = set()
        for node in graph.nodes:
            for place in _local(node, graph):
                if place not in told:
                    told.add(place)
                    assert place.value is not None
                    held = self.shown(place.value)
                    lines.append(f"{_indent(depth)}ref {self.refs[place]} = {held}")
            lines += self.node(node, depth, taken)
        held = ", ".join(map(self.shown, graph.outputs))
        if not graph.single:
            held = f"({held},)" if len(graph.outputs) == 1 else f"({held})"
        lines.append(_indent(depth) + f"return {held}")
        return lines

    def node(self, node: Node, depth: int, taken: set[str]) -> list[str]:
        before: list[str] = []
        if node.id == "call" and _captures(node.graphs[0]):
            before = self.function(node.graphs[0], depth, set(taken))
        applied = self.applied(node)
        for value in node.results:
            if value.name:
                self.own(value, taken)
            else:
                self.values[value] = f"%{sum(n.startswith('%') for n in taken)}"
                taken.add(self.values[value])
        made = ", ".join(self.values[value] for value in node.results)
        said = f"  # {', '.join(str(value.spec) for value in node.results)}"
        line = f"{_indent(depth)}{f'{made} = ' if made else ''}{applied}"
        if node.id == "call" or not node.graphs:
            return [*before, line + (said if made else "")]
        return [f"{line} {{{said if made else ''}", *self.blocks(node, depth, taken)]

    def blocks(self, node: Node, depth: int, taken: set[str]) -> list[str]:
        """The programs nested in a node."""
        lines: list[str] = []
        for n, graph in enumerate(node.graphs):
            if n:
                word = _BETWEEN.get(node.id, _BETWEEN_BACK)[n - 1]
                lines.append(f"{_indent(depth)}}} {word} {{")
            params = self.inputs(graph, taken)
            if params:
                lines.append(f"{_indent(depth + 1)}take ({params})")
            lines += self.body(graph, depth + 1, taken)
        return [*lines, f"{_indent(depth)}}}"]

    def applied(self, node: Node) -> str:
        named = dict(node.kwargs)
        head = node.id
        if node.id == "call":
            head = self.functions[id(node.graphs[0])]
        elif node.id in ("read", "write"):
            head = f"{node.id} {self.refs[named.pop('ref')]}"
        elif node.id == "element":
            return f"{self.shown(node.args[0])}[{node.args[1]}]"
        elif node.id == "zeros":
            head = f"zeros {node.results[0].spec}"
        given = [self.shown(arg) for arg in node.args]
        given += [f"{name}={self.shown(value)}" for name, value in named.items()]
        return f"{'replay ' if node.replay else ''}{head}({', '.join(given)})"

    def shown(self, value: object) -> str:
        """An argument as text."""
        if isinstance(value, Weight):
            return f"@{quoted(value.path)}"
        if isinstance(value, CONSTANTS):
            return constant(value)
        if isinstance(value, Value):
            return self.values.get(value, f"<{json.dumps(value.name or '?')}>")
        if isinstance(value, (tuple, list)):
            inner = ", ".join(map(self.shown, value))
            if isinstance(value, list):
                return f"[{inner}]"
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return literal(value)


def _local(node: Node, graph: Graph) -> Iterator[Ref]:
    """The references of a node that are initialised by a value of its program."""
    for each in [node, *(n for g in node.graphs for p in programs(g) for n in p.nodes)]:
        place = each.kwargs.get("ref") if each.id in ("read", "write") else None
        if place is not None and place.value is not None:
            value = place.value
            if value in graph.inputs or (value.node and value.node in graph.nodes):
                yield place


def _sizes(every: Sequence[Graph], nodes: Sequence[Node]) -> set[str]:
    """The names of sizes, which are reserved."""
    values = [value for graph in every for value in graph.inputs]
    values += [value for node in nodes for value in (*node.results, *node.inputs)]
    shapes = tuple(value.spec.shape for value in values)
    return names_in(shapes) | names_in(
        [(n.args, tuple(n.kwargs.values())) for n in nodes]
    )


def _weights(graph: Graph) -> list[Weight]:
    found: dict[Weight, None] = {}
    for each in programs(graph):
        used = [value for node in each.nodes for value in node.inputs]
        nest = (*used, *each.outputs, *each.free)
        found.update((v, None) for v in values_in(nest) if isinstance(v, Weight))
    return list(found)


def _weight(leaf: Weight) -> str:
    return f"weight @{quoted(leaf.path)}: {leaf.spec}" + " fixed" * (not leaf.trainable)


def _indent(depth: int) -> str:
    return "  " * depth
