"""Classes of nodes: frozen dataclasses with slots and a cached structural hash.

A kernel is thousands of nodes, built and hashed by every pass: `__init__` and
`__hash__` are generated from the fields, as `dataclasses` does it, but write slots
without going through `object.__setattr__`, and hash in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypeVar, dataclass_transform

_T = TypeVar("_T")
_UNKNOWN: Final = ("_free", "_hash")  # slots of every node that are None at first


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node(cls: type[_T]) -> type[_T]:
    """A frozen dataclass with slots whose structural hash is computed once.

    A class with its own `__new__` has unique instances, compared by identity.
    """
    if "__new__" in vars(cls):
        return dataclass(
            frozen=True, slots=True, weakref_slot=True, repr=False, init=False, eq=False
        )(cls)
    own_hash = "__hash__" in vars(cls)
    made = dataclass(frozen=True, slots=True, repr=False, init=False)(cls)
    made.__init__ = _constructor(made)  # type: ignore[method-assign]
    if not own_hash:
        made.__hash__ = _hash(made)  # type: ignore[method-assign]
    return made


def generated(
    kind: type, name: str, lines: list[str], given: dict[str, Any]
) -> Callable[..., Any]:
    """The function `name` of a class from its source text and the names it uses."""
    text = "\n    ".join(lines)
    exec(compile(text, f"<{name} of {kind.__name__}>", "exec"), given)  # noqa: S102
    made: Callable[..., Any] = given[name]
    return made


def _constructor(kind: type) -> Callable[..., None]:
    given = [f for f in fields(kind) if f.init]
    defaults = {f.name: f.default for f in given if f.default is not MISSING}
    values = {f.name: f.name for f in given} | dict.fromkeys(_UNKNOWN, "None")
    params = [
        f"{f.name}=default_{f.name}" if f.name in defaults else f.name for f in given
    ]
    lines = [f"def __init__(self, {', '.join(params)}):"]
    lines += [f"set_{name}(self, {value})" for name, value in values.items()]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    names = {f"set_{name}": getattr(kind, name).__set__ for name in values}
    names |= {f"default_{name}": value for name, value in defaults.items()}
    return generated(kind, "__init__", lines, names)


def _hash(kind: type) -> Callable[..., int]:
    compared = [f"self.{f.name}" for f in fields(kind) if f.compare]
    lines = [
        "def __hash__(self):",
        "value = self._hash",
        "if value is None:",
        f"    value = hash(({kind.__name__!r}, {', '.join(compared)}))",
        "    set_hash(self, value)",
        "return value",
    ]
    names = {"set_hash": kind._hash.__set__}  # type: ignore[attr-defined]  # noqa: SLF001
    return generated(kind, "__hash__", lines, names)
