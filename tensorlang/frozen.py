"""`@frozen`: immutable dataclasses with slots, made at less than half the usual cost.

`@dataclass(frozen=True, slots=True)` compiles six functions for each class, which was a
quarter of the time of a first call. Here one is compiled, the constructor; `__eq__` and
`__hash__` are compiled once for each number of fields, and get their names. Classes are
dataclasses otherwise: `fields`, `replace`, `asdict`, `match`, pickling and
`__post_init__` work. `InitVar` does not, and neither do subclasses by `@dataclass`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")
_EQUAL: Final = """def __eq__(self, other):
    if other.__class__ is self.__class__:
        return ({self}) == ({other})
    return NotImplemented
"""
_HASH: Final = "def __hash__(self): return hash(({self}))"


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_ABSENT: Final = _Factory()  # an argument that takes a new default


@overload
def frozen(cls: type[_T], /) -> type[_T]: ...
@overload
def frozen(*, eq: bool = True) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type | None = None, /, *, eq: bool = True) -> Any:
    """Make a class an immutable dataclass with slots.

    Args:
        cls: The class.
        eq: Whether instances are compared and hashed by their fields, not by identity.
    """
    if cls is None:
        return lambda it: _made(it, eq=eq)
    return _made(cls, eq=eq)


def _made(cls: type[_T], *, eq: bool) -> type[_T]:
    own = {name for name, value in vars(cls).items() if value is not None}
    made = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    methods = {**IMMUTABLE, "__init__": constructor(made)}
    if "__repr__" not in own:
        shown = tuple(f.name for f in fields(made) if f.repr)  # type: ignore[arg-type]
        methods["__repr__"] = _repr(shown)
    if eq:
        methods |= {"__eq__": equality(made), "__hash__": _hashing(made)}
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def generated(
    kind: type, name: str, lines: Sequence[str], given: dict[str, Any]
) -> Callable[..., Any]:
    """The function `name` of a class from its source text and the names it uses.

    Its other names are those of the class's module.
    """
    text = "\n        ".join(
        (f"def __make({', '.join(given)}):\n    {lines[0]}", *lines[1:])
    )
    text += f"\n    return {name}"
    module = sys.modules.get(kind.__module__)
    known = {} if module is None else vars(module)
    held: dict[str, Any] = {}
    exec(compile(text, f"<{name} of {kind.__name__}>", "exec"), known, held)  # noqa: S102
    return _owned(kind, held["__make"](**given))


def _owned(kind: type, made: Callable[..., Any]) -> Callable[..., Any]:
    made.__module__ = kind.__module__
    made.__qualname__ = f"{kind.__qualname__}.{made.__name__}"
    return made


def constructor(
    kind: type, more: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """`__init__` of a dataclass with slots, which writes them without `__setattr__`.

    Args:
        kind: The class.
        more: Further slots, and the text of their first values.
    """
    params: dict[bool, list[str]] = {False: [], True: []}  # by whether by name only
    values: dict[str, str] = {}
    names: dict[str, Any] = {"__absent": _ABSENT}
    for each in fields(kind):
        names |= _default(each)
        values |= _value(each)
        if each.init:
            params[bool(each.kw_only)].append(_param(each))
    values |= more or {}
    marked = ["*", *params[True]] if params[True] else []
    me = "__self" if "self" in values else "self"
    lines = [f"def __init__({', '.join([me, *params[False], *marked])}):"]
    lines += [f"__set_{name}({me}, {value})" for name, value in values.items()]
    lines.append(f"{me}.__post_init__()" if hasattr(kind, "__post_init__") else "pass")
    names |= {f"__set_{name}": getattr(kind, name).__set__ for name in values}
    made = generated(kind, "__init__", lines, names)
    given = {each.name: each.type for each in fields(kind) if each.init}
    made.__annotations__ = {**given, "return": None}
    return made


def _default(each: Field[Any]) -> dict[str, Any]:
    if each.default is not MISSING:
        return {f"__default_{each.name}": each.default}
    if each.default_factory is not MISSING:
        return {f"__new_{each.name}": each.default_factory}
    return {}


def _value(each: Field[Any]) -> dict[str, str]:
    """The field's first value, if it has one: an argument or the default."""
    name = each.name
    if each.default_factory is not MISSING:
        new = f"__new_{name}()"
        return {name: f"{new} if {name} is __absent else {name}" if each.init else new}
    if each.init:
        return {name: name}
    return {} if each.default is MISSING else {name: f"__default_{name}"}


def _param(each: Field[Any]) -> str:
    if each.default_factory is not MISSING:
        return f"{each.name}=__absent"
    if each.default is not MISSING:
        return f"{each.name}=__default_{each.name}"
    return each.name


def equality(kind: type) -> Callable[..., Any]:
    """`__eq__` of instances of a class that are equal if their compared fields are."""
    return _of_fields(kind, _EQUAL, [f.name for f in fields(kind) if f.compare])


def _hashing(kind: type) -> Callable[..., Any]:
    hashed = {f.name: f.compare if f.hash is None else f.hash for f in fields(kind)}
    return _of_fields(kind, _HASH, [name for name, used in hashed.items() if used])


def _of_fields(kind: type, text: str, names: Sequence[str]) -> Callable[..., Any]:
    """A method of a class from its text, where `{self}` are values of these fields."""
    code, given = _compiled(text, len(names)), {f"_{n}": x for n, x in enumerate(names)}
    named = code.replace(co_names=tuple(given.get(x, x) for x in code.co_names))
    return _owned(kind, FunctionType(named, globals()))


@cache
def _compiled(text: str, count: int) -> CodeType:
    """The code of a method of so many fields, `_0` and on."""
    values = {
        each: "".join(f"{each}._{n}, " for n in range(count))
        for each in ("self", "other")
    }
    outer = compile(text.format(**values), "<fields>", "exec")
    return next(each for each in outer.co_consts if isinstance(each, CodeType))


def _repr(names: Sequence[str]) -> Callable[[object], str]:
    def __repr__(self: object) -> str:  # noqa: N807
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def refuse_to_assign(self: object, name: str, value: object) -> None:
    """`__setattr__` of immutable instances."""
    del self, value
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def refuse_to_delete(self: object, name: str) -> None:
    """`__delattr__` of immutable instances."""
    del self
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: Sequence[object]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


# methods of immutable instances
IMMUTABLE: Final[Mapping[str, Callable[..., Any]]] = {
    "__setattr__": refuse_to_assign,
    "__delattr__": refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
