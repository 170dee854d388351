"""Random keys are single-use, which is checked on every path before a program runs.

An operator that takes a key consumes it, and so does `random.split`; `random.fold_in`
marks it folded (it may be folded again with other numbers, but not drawn from);
`*_grad` replays a key without consuming it. Branches are independent; a loop body runs
repeatedly, so it may not use a key from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tensorlang.errors import KeyReuseError
from tensorlang.frozen import frozen
from tensorlang.graph.values import Key, Node, Value, values_in

if TYPE_CHECKING:
    from tensorlang.graph.program import Graph

_FOLD: Final = "random.fold_in"
_VERBS: Final = {"random.split": "split", _FOLD: "folded"}
# forms that pass keys on; of the others, the uses inside count
_MOVES: Final = {"element", "let", "read", "call", "if", "for", "while"}


@frozen
class Use:
    """A use of a key: how, where and, for folding, with which number."""

    verb: str
    where: str
    data: object = None


@dataclass(slots=True)
class _Uses:
    """The uses of keys on one path so far, by key identity."""

    held: dict[tuple[Value, int | None], list[Use]] = field(default_factory=dict)

    def copy(self) -> _Uses:
        return _Uses({key: list(uses) for key, uses in self.held.items()})

    def add(self, key: Value, use: Use) -> None:
        """Record a use; KeyReuseError if a key, its batch or element was used."""
        base, at = _identity(key)
        for (other, part), uses in self.held.items():
            if other is base and (at is None or part is None or part == at):
                for earlier in uses:
                    _refuse(key, earlier, use)
        self.held.setdefault((base, at), []).append(use)


def _identity(key: Value) -> tuple[Value, int | None]:
    """The batch that a key belongs to, and its index there."""
    node = key.node
    if node is not None and node.id == "element":
        return node.args[0], node.args[1]
    return key, None


def _refuse(key: Value, earlier: Use, use: Use) -> None:
    folds = earlier.verb == use.verb == "folded"
    if folds and not (isinstance(use.data, int) and use.data == earlier.data):
        return
    name = f"the key {key.name!r}" if key.name else "a key"
    raise KeyReuseError(
        f"{name} is {use.verb} at {use.where}, but it was {earlier.verb} at "
        f"{earlier.where}; a key is used once: split it first, with "
        "left, right = random.split(key)"
    )


def check_keys(graph: Graph) -> None:
    """Reject a program in which a key is used twice on any path.

    Raises:
        KeyReuseError: names both uses by layer, file and line.
    """
    _walk(graph, _Uses())


def _walk(graph: Graph, uses: _Uses) -> None:
    for node in graph.nodes:
        if node.replay or node.id.endswith("_grad"):
            continue
        if node.graphs:
            _inside(node, uses)
        elif node.id not in _MOVES:
            data = node.args[1] if node.id == _FOLD and len(node.args) > 1 else None
            verb = _VERBS.get(
                node.id, "written" if node.id == "write" else "drawn from"
            )
            for value in values_in((node.args, tuple(node.kwargs.values()))):
                if isinstance(value, Key):
                    uses.add(value, Use(verb, node.place, data))


def _inside(node: Node, uses: _Uses) -> None:
    """The uses in a node's programs; for branches, on each path."""
    if node.id in ("for", "while"):
        _loop(node)
    if node.id == "if":
        paths = [uses.copy() for _ in node.graphs]
        for graph, path in zip(node.graphs, paths, strict=True):
            _walk(graph, path)
        for path in paths:
            for key, found in path.held.items():
                seen = uses.held.setdefault(key, [])
                seen += [use for use in found if use not in seen]
    else:
        verb = {"call": "given to a function", "for": "given to a loop"}
        for value in values_in(node.args):
            if isinstance(value, Key):
                uses.add(value, Use(verb.get(node.id, "given to a loop"), node.place))
        if node.id == "call":
            for graph in node.graphs:
                _walk_free(graph, uses)


def _walk_free(graph: Graph, uses: _Uses) -> None:
    """The uses of captured keys in a function."""
    own = _Uses()
    _walk(graph, own)
    free = set(graph.free)
    for (key, at), found in own.held.items():
        if key in free:
            for use in found:
                uses.add(key if at is None else key[at], use)  # type: ignore[index]


def _loop(node: Node) -> None:
    """Reject a loop body that uses a key from outside."""
    for graph in node.graphs:
        own = _Uses()
        _walk(graph, own)
        free = set(graph.free)
        for (key, _), found in own.held.items():
            if key in free:
                name = f"the key {key.name!r}" if key.name else "a key"
                raise KeyReuseError(
                    f"{name} from outside of the loop at {node.place} is "
                    f"{found[0].verb} at {found[0].where}, again in each iteration; "
                    "carry it through the loop, and split it there"
                )
