"""Classes of nodes: frozen dataclasses with slots and a cached structural hash.

A kernel is thousands of nodes, built and hashed by every pass: `__init__` and
`__hash__` are generated from the fields, as `dataclasses` does it, but write slots
without going through `object.__setattr__`, and hash in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Final, TypeVar, dataclass_transform

from tensorlang.frozen import IMMUTABLE, constructor, equality, generated

_T = TypeVar("_T")
_UNKNOWN: Final = {"_free": "None", "_hash": "None"}  # slots of every node, at first


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node(cls: type[_T]) -> type[_T]:
    """A frozen dataclass with slots whose structural hash is computed once.

    A class with its own `__new__` has unique instances, compared by identity.
    """
    own = {name for name, value in vars(cls).items() if value is not None}
    unique = "__new__" in own
    made = dataclass(init=False, repr=False, eq=False, slots=True, weakref_slot=unique)(
        cls
    )
    methods = dict(IMMUTABLE)
    if not unique:
        methods |= {"__init__": constructor(made, _UNKNOWN), "__eq__": equality(made)}
        methods["__hash__"] = _hash(made)
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


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
