"""The text of a program: a line a node, functions before what calls them.

graph main(x: f32[batch, 3], key: key<threefry2x32>) -> f32[batch, 2] {
  %0 = nn.dense(x, @w, activation="relu")  # f32[batch, 2]
  return %0
}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.graph.leaves import CONSTANTS, Weight
from tensorlang.graph.values import Node, Value

if TYPE_CHECKING:
    from tensorlang.graph.program import Graph


def text(graph: Graph) -> str:
    """The text of a program and of the functions that it calls."""
    names: dict[Value, str] = {}
    parts = [
        _function(f"function {inner.name}", inner, names) for inner in called(graph)
    ]
    return "\n\n".join([*parts, _function(f"graph {graph.name}", graph, names)])


def called(graph: Graph) -> list[Graph]:
    """The functions that a program calls, each after those that it calls itself."""
    found: dict[int, Graph] = {}

    def visit(program: Graph) -> None:
        for node in program.nodes:
            for inner in node.graphs:
                visit(inner)
                if node.id == "call":
                    found.setdefault(id(inner), inner)

    visit(graph)
    return list(found.values())


def _function(head: str, graph: Graph, names: dict[Value, str]) -> str:
    taken: set[str] = set()
    params = ", ".join(f"{_own(v, names, taken)}: {v.spec}" for v in graph.inputs)
    results = ", ".join(str(value.spec) for value in graph.outputs)
    shown = results if graph.single else f"({results})"
    lines = [f"{head}({params}) -> {shown} {{", *_body(graph, names, 1, taken), "}"]
    return "\n".join(lines)


def _own(value: Value, names: dict[Value, str], taken: set[str]) -> str:
    """A name for a value, other than those of its program."""
    base, tries = value.name or "x", 1
    name = base
    while name in taken:
        tries += 1
        name = f"{base}_{tries}"
    taken.add(name)
    names[value] = name
    return name


def _body(
    graph: Graph, names: dict[Value, str], depth: int, taken: set[str]
) -> list[str]:
    lines = []
    for node in graph.nodes:
        lines += _node(node, names, depth, taken)
    held = ", ".join(shown(value, names) for value in graph.outputs)
    lines.append(_indent(depth) + f"return {held if graph.single else f'({held})'}")
    return lines


def _node(
    node: Node, names: dict[Value, str], depth: int, taken: set[str]
) -> list[str]:
    for value in node.results:
        if value.name:
            _own(value, names, taken)
        else:
            names[value] = f"%{sum(n.startswith('%') for n in taken)}"
            taken.add(names[value])
    made = ", ".join(names[value] for value in node.results)
    said = f"  # {', '.join(str(value.spec) for value in node.results)}"
    head = f"{_indent(depth)}{made} = " if made else _indent(depth)
    inner = () if node.id == "call" else node.graphs
    line = f"{head}{_applied(node, names)}"
    if not inner:
        return [line + (said if made else "")]
    lines = [f"{line} {{{said}"]
    for n, graph in enumerate(inner):
        if n:
            lines.append(f"{_indent(depth)}}} {_BETWEEN.get(node.id, graph.name)} {{")
        params = ", ".join(f"{_own(v, names, taken)}: {v.spec}" for v in graph.inputs)
        if params:
            lines.append(f"{_indent(depth + 1)}take ({params})")
        lines += _body(graph, names, depth + 1, taken)
    return [*lines, f"{_indent(depth)}}}"]


_BETWEEN = {"if": "else", "while": "do"}


def _applied(node: Node, names: dict[Value, str]) -> str:
    named = dict(node.kwargs)
    head = node.id
    if node.id == "call":
        head = node.graphs[0].name
    elif node.id in ("read", "write"):
        head = f"{node.id} {named.pop('ref').name}"
    elif node.id == "element":
        return f"{shown(node.args[0], names)}[{node.args[1]}]"
    given = [shown(arg, names) for arg in node.args]
    given += [f"{name}={shown(value, names)}" for name, value in named.items()]
    mark = "replay " if node.replay else ""
    return f"{mark}{head}({', '.join(given)})"


def shown(value: Any, names: dict[Value, str]) -> str:
    """An argument in text."""
    if isinstance(value, Weight):
        return f"@{value.path}"
    if isinstance(value, CONSTANTS):
        return _data(value.data)
    if isinstance(value, Value):
        return names.get(value, value.name or "?")
    if isinstance(value, (tuple, list)):
        inner = ", ".join(shown(each, names) for each in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _data(data: Any) -> str:
    if isinstance(data, np.ndarray):
        kind = f"{data.dtype}{list(data.shape)}"
        return f"{data.reshape(-1)[0]}" if data.size == 1 else f"<{kind}>"
    return f"<{data.impl} key>"


def _indent(depth: int) -> str:
    return "  " * depth
