"""Imports: none in functions without a reason, and no circles, lazy ones included."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = {"tensorlang": "tensorlang"} | {
    name: f"tensorlang.{name}"
    for name in ("ops", "results", "schedules", "templates", "tuner")
}

# what a class does by a method, and a module above it implements
UPWARD = {
    ("tensorlang.ir.nodes", "tensorlang.ir.text.printer"): "a node's repr is its text",
    ("tensorlang.ir.nodes", "tensorlang.ir.visit"): "a block's condition in its axes",
    ("tensorlang.graph.values", "tensorlang.graph.applying"): "operators on values",
    ("tensorlang.graph.values", "tensorlang.graph.indexing"): "x[i] of a tensor",
    (
        "tensorlang.graph.program",
        "tensorlang.graph.execution.running",
    ): "a program is called",
    (
        "tensorlang.graph.program",
        "tensorlang.graph.passes.rewriting",
    ): "called on symbols",
    ("tensorlang.ops.operator", "tensorlang.ops.derived_gradients"): (
        "an operator's gradient is an operator"
    ),
}
# imports in functions: what an ImportError there says is how to install the package
IN_FUNCTIONS = {
    "tensorlang.layers.saving": "safetensors is optional",
    "tensorlang.onnx.files": "onnx is optional",
    "tensorlang.runtime.cpu.llvm": "LLVM takes 170 MB, and is set up when it is loaded",
}
# modules that are found by name: commands, operators
BY_NAME = {
    "tensorlang.cli.app",
    "tensorlang.lazy",
    "tensorlang.ops.registry",
}
Graph = Mapping[str, Mapping[str, int]]


@cache
def modules() -> dict[str, Path]:
    """The files of the package, by the name of their module."""
    found = {}
    for folder, package in FOLDERS.items():
        for file in (ROOT / folder).rglob("*.py"):
            parts = (package, *file.relative_to(ROOT / folder).with_suffix("").parts)
            found[".".join(p for p in parts if p != "__init__")] = file
    return found


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imported(node: ast.AST) -> Iterator[str]:
    """The modules, of any package, that a statement imports."""
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(module=str(module)):
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield inner if inner in modules() else module


@cache
def nodes(file: Path) -> list[tuple[ast.AST, bool]]:
    """All nodes that run, with whether they are in a function."""
    found, waiting = [], [(tree(file), False)]
    while waiting:
        node, local = waiting.pop()
        found.append((node, local))
        inside = local or isinstance(node, (ast.FunctionDef, ast.Lambda))
        children = node.orelse if is_typing(node) else ast.iter_child_nodes(node)  # type: ignore[attr-defined]
        waiting += ((child, inside) for child in children)
    return found


@cache
def graph() -> Graph:
    """What each module imports at any time, with the line."""
    made: dict[str, dict[str, int]] = {}
    for name, file in modules().items():
        made[name] = {
            other: node.lineno  # type: ignore[attr-defined]
            for node, _ in nodes(file)
            for other in imported(node)
            if other in modules() and other != name
        }
    return made


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == number[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in number:
            visit(name)
    return found


def without(graph: Graph, edges: Mapping[tuple[str, str], str]) -> Graph:
    return {
        name: {o: line for o, line in others.items() if (name, o) not in edges}
        for name, others in graph.items()
    }


def test_modules_do_not_import_each_other_in_circles():
    assert circles(without(graph(), UPWARD)) == []


@pytest.mark.parametrize("edge", UPWARD, ids="->".join)
def test_each_exception_is_needed(edge):
    assert circles(without(graph(), {e: w for e, w in UPWARD.items() if e != edge}))


def test_circles_are_found():
    assert circles({"a": {"b": 1}, "b": {"c": 1}, "c": {"b": 2}, "d": {"a": 1}}) == [
        ["b", "c"]
    ]


def test_functions_import_nothing_without_a_reason():
    found = {
        name
        for name, file in modules().items()
        for node, local in nodes(file)
        if local and isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert found == IN_FUNCTIONS.keys()


def test_modules_are_imported_by_statements():
    found = {
        name
        for name, file in modules().items()
        for node, _ in nodes(file)
        if (isinstance(node, ast.Name) and node.id in ("import_module", "__import__"))
        or (
            isinstance(node, ast.Attribute)
            and node.attr in ("import_module", "imported")
        )
    }
    assert found == BY_NAME


def lazily(kind: str) -> Iterator[tuple[str, ast.stmt]]:
    """The modules that import lazily, with each of these imports."""
    for name, file in modules().items():
        for node in tree(file).body:
            match node:
                case ast.With([ast.withitem(call)], body):
                    if ast.unparse(call) == f"lazy.{kind}(__name__)":
                        yield from ((name, each) for each in body)


def test_lazy_imports_of_modules_are_of_modules():
    found = list(lazily("modules"))
    assert found
    for name, node in found:
        assert isinstance(node, (ast.Import, ast.ImportFrom)), name
        for alias in node.names:
            if isinstance(node, ast.Import):
                assert alias.asname or "." not in alias.name, (name, alias.name)
                continue
            full = f"{node.module}.{alias.name}"
            if full.startswith("tensorlang."):
                assert full in modules(), (name, full)
            elif importlib.util.find_spec(full.partition(".")[0]):  # an extra
                assert importlib.util.find_spec(full), (name, full)


def test_lazy_names_are_what_an_import_gives():
    found = list(lazily("names"))
    assert {name for name, _ in found} >= {"tensorlang", "tensorlang.ir"}
    for name, node in found:
        assert isinstance(node, ast.ImportFrom), name
        package = importlib.import_module(name)
        for alias in node.names:
            local, home = alias.asname or alias.name, node.module or ""
            full = f"{home}.{alias.name}"
            if full in modules():
                wanted = importlib.import_module(full)
            else:
                wanted = getattr(importlib.import_module(home), alias.name)
            assert getattr(package, local) is wanted, (name, local)
            assert local in dir(package), (name, local)
