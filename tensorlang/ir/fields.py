"""Child access and rebuilding, generated for each node class.

Every pass calls these for every node. Each class gets functions of its own, generated
from its annotations as `dataclasses` generates `__init__`:

    def rebuild(node, change):  # of Binary
        a, b = node.a, node.b
        new_a, new_b = change(a), change(b)
        if new_a is a and new_b is b: return node
        return Binary(node.op, new_a, new_b, node.contract)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from operator import is_
from typing import Any, Final, TypeAlias, TypeVar

from tensorlang.frozen import generated
from tensorlang.ir.nodes import Node, Seq, Stmt, seq

Change: TypeAlias = Callable[[Any], Any]
F = TypeVar("F")

_LEAVES: Final = ("str", "bool", "int", "DType", "Scalar", "tuple[str", "tuple[int")


class PerClass(dict[type, F]):
    """Values by node class, each made on first use."""

    def __init__(self, make: Callable[[type], F]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, kind: type) -> F:
        return self.setdefault(kind, self._make(kind))  # one value for all threads


def _below(kind: type) -> dict[str, str]:
    """The fields that may hold nodes, buffers included, with their annotations."""
    given = {f.name: str(f.type) for f in fields(kind) if f.init}
    return {
        name: text
        for name, text in given.items()
        if not (text in _LEAVES or text.startswith(_LEAVES[-2:]))
    }


def _changed(old: tuple[object, ...], change: Change) -> tuple[object, ...]:
    """A tuple with `change` applied to each item; itself where nothing changed."""
    new = tuple(map(change, old))
    return old if all(map(is_, old, new)) else new


def _rebuild(kind: type) -> Callable[[Any, Change], object]:
    return _changing(kind, _below(kind), "kind")


def _rebuild_statements(kind: type) -> Callable[[Any, Change], object]:
    """Rebuilding of the child statements alone, which flattens sequences."""
    return _changing(kind, _statement_fields(kind), "seq" if kind is Seq else "kind")


def _changing(
    kind: type, below: dict[str, str], make: str
) -> Callable[[Any, Change], object]:
    lines = ["def rebuild(node, change):"]
    for name, text in below.items():
        lines.append(f"{name} = node.{name}")
        if text.startswith("tuple["):
            lines.append(f"new_{name} = changed({name}, change)")
        elif "None" in text:
            lines.append(f"new_{name} = None if {name} is None else change({name})")
        else:
            lines.append(f"new_{name} = change({name})")
    same = " and ".join(f"new_{name} is {name}" for name in below)
    lines.append(f"if {same or True}: return node")
    given = [
        f"new_{f.name}" if f.name in below else f"node.{f.name}"
        for f in fields(kind)
        if f.init
    ]
    lines.append(f"return {make}({', '.join(given)})")
    known = {"kind": kind, "seq": seq, "changed": _changed}
    return generated(kind, "rebuild", lines, known)


def _children(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    parts = [_spread(name, text) for name, text in _below(kind).items()]
    return _tuple(kind, "children", parts)


def _statements(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    held = _statement_fields(kind)
    return _tuple(kind, "statements", [_spread(*item) for item in held.items()])


def _statement_fields(kind: type) -> dict[str, str]:
    return {name: text for name, text in _below(kind).items() if "Stmt" in text}


def _tuple(
    kind: type, name: str, parts: list[str]
) -> Callable[[Any], tuple[object, ...]]:
    lines = [f"def {name}(node):", f"return ({''.join(part + ', ' for part in parts)})"]
    return generated(kind, name, lines, {})


def _spread(name: str, text: str) -> str:
    """The nodes of a field as source text inside of a tuple display."""
    if text.startswith("tuple["):
        return f"*node.{name}"
    if "None" in text:
        return f"*(() if node.{name} is None else (node.{name},))"
    return f"node.{name}"


REBUILD: Final[PerClass[Callable[[Any, Change], Any]]] = PerClass(_rebuild)
REBUILD_STATEMENTS: Final[PerClass[Callable[[Any, Change], Any]]] = PerClass(
    _rebuild_statements
)
CHILDREN: Final[PerClass[Callable[[Any], tuple[Node, ...]]]] = PerClass(_children)
STATEMENTS: Final[PerClass[Callable[[Any], tuple[Stmt, ...]]]] = PerClass(_statements)
