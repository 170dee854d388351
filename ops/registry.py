"""Operators by name: canonical ids, aliases, families, and users' modules."""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakSet

from tensorlang import lazy
from tensorlang.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorlang.ops.operator import Operator

LIBRARY: Final = (
    "tensorlang.ops.random",
    "tensorlang.ops.nn",
    "tensorlang.ops.math",
    "tensorlang.ops.optim",
)

_BY_ID: Final[dict[str, Operator]] = {}
_BY_ALIAS: Final[dict[str, Operator]] = {}
_REGISTERED: Final[WeakSet[Operator]] = WeakSet()


def register(op: Operator) -> None:
    """Register an operator under its id and aliases.

    Raises:
        OperatorError: another operator has one of these names.
    """
    for name in (op.id, *op.aliases):
        held = _BY_ID.get(name) or _BY_ALIAS.get(name)
        if held is not None and held.module != op.module:
            raise OperatorError(
                f"two operators are called {name!r}: one of {held.module} and one of "
                f"{op.module}; give one of them another name"
            )
    _REGISTERED.add(op)
    _BY_ID[op.id] = op
    _BY_ALIAS.update(dict.fromkeys(op.aliases, op))


def operators() -> tuple[Operator, ...]:
    """All operators, the library's and users', sorted by id."""
    _load()
    for op in tuple(_BY_ID.values()):
        op.derived()
    return tuple(_BY_ID[name] for name in sorted(_BY_ID))


def attribute(package: str, name: str) -> Operator:
    """An attribute of a package that is created on demand: a derived gradient.

    Raises:
        AttributeError: there is no such operator.
    """
    held = _held(f"{package.rpartition('.')[2]}.{name}")
    if held is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    setattr(sys.modules[package], name, held)
    return held


def find(name: str) -> Operator:
    """The operator of an id or alias; `module:attribute` imports a user's.

    Raises:
        OperatorError: there is none; the message suggests similar names.
    """
    if not isinstance(name, str):
        raise OperatorError(
            f"an operator, or the name of one, is needed, not {name!r:.80}"
        )
    if ":" in name:
        return _imported(name)
    _load()
    held = _held(name)
    if held is None:
        tails = {held.rpartition(".")[2]: held for held in _BY_ID}
        known = (*_BY_ID, *_BY_ALIAS, *_families(), *tails)
        close = get_close_matches(name, known, n=3)
        near = dict.fromkeys(n if n in _BY_ALIAS else tails.get(n, n) for n in close)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise OperatorError(
            f"no operator is called {name!r}{hint} (tlang ops lists them; an operator "
            "of your own is module:name)"
        )
    return held


def _held(name: str) -> Operator | None:
    """The operator of an id or alias, or None; gradients are derived on demand."""
    held = _BY_ID.get(name) or _BY_ALIAS.get(name)
    if held is None and name.endswith("_grad"):
        of = _held(name.removesuffix("_grad"))
        return getattr(of, "grad", None)
    return held


def forward(op: Operator) -> Operator | None:
    """The operator that a gradient is of, or None."""
    id = op.id.removesuffix("_grad")
    return _BY_ID.get(id) if id != op.id else None


def select(name: str) -> tuple[Operator, ...]:
    """The operators of a name: a single one, or the members of a family in order.

    Raises:
        OperatorError: there is neither an operator nor a family of that name.
    """
    _load()
    members = tuple(op for op in _BY_ID.values() if op.family == name)
    return members if members and name not in _BY_ID else (find(name),)


def _families() -> Iterator[str]:
    return iter({op.family for op in _BY_ID.values() if op.family})


def _load() -> None:
    for module in LIBRARY:
        lazy.imported(module)


def _imported(name: str) -> Operator:
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise OperatorError(f"{name!r} is not of the form module:name")
    try:
        held = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise OperatorError(f"{name!r} cannot be imported: {problem}") from problem
    if all(held is not op for op in _REGISTERED):
        raise OperatorError(
            f"{name!r} is a {type(held).__name__}, not an operator; decorate its "
            "definition with tensorlang.ops.operator"
        )
    return cast("Operator", held)
