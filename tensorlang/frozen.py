"""`@frozen`: immutable dataclasses with slots, made at a third of the usual cost.

`@dataclass(frozen=True, slots=True)` compiles six functions for each class, which was a
quarter of the time of a first call. Here one is compiled, the constructor; the others
are shared and read the fields through `operator.attrgetter`. Classes are dataclasses
otherwise: `fields`, `replace`, `asdict`, `match`, pickling and `__post_init__` work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")
_ABSENT: Final = object()  # an argument that takes a new default


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
        compared = [f.name for f in fields(made) if f.compare]  # type: ignore[arg-type]
        methods |= by_value(compared)
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def generated(
    kind: type, name: str, lines: Sequence[str], given: dict[str, Any]
) -> Callable[..., Any]:
    """The function `name` of a class from its source text and the names it uses."""
    text = "\n    ".join(lines)
    exec(compile(text, f"<{name} of {kind.__name__}>", "exec"), given)  # noqa: S102
    made: Callable[..., Any] = given[name]
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
    names: dict[str, Any] = {"absent": _ABSENT}
    for each in fields(kind):
        names |= _default(each)
        values |= _value(each)
        if each.init:
            params[bool(each.kw_only)].append(_param(each))
    values |= more or {}
    marked = ["*", *params[True]] if params[True] else []
    lines = [f"def __init__({', '.join(['self', *params[False], *marked])}):"]
    lines += [f"set_{name}(self, {value})" for name, value in values.items()]
    lines.append("self.__post_init__()" if hasattr(kind, "__post_init__") else "pass")
    names |= {f"set_{name}": getattr(kind, name).__set__ for name in values}
    made = generated(kind, "__init__", lines, names)
    given = {each.name: each.type for each in fields(kind) if each.init}
    made.__annotations__ = {**given, "return": None}
    return made


def _default(each: Field[Any]) -> dict[str, Any]:
    if each.default is not MISSING:
        return {f"default_{each.name}": each.default}
    if each.default_factory is not MISSING:
        return {f"new_{each.name}": each.default_factory}
    return {}


def _value(each: Field[Any]) -> dict[str, str]:
    """The field's first value, if it has one: an argument or the default."""
    name = each.name
    if each.default_factory is not MISSING:
        new = f"new_{name}()"
        return {name: f"{new} if {name} is absent else {name}" if each.init else new}
    if each.init:
        return {name: name}
    return {} if each.default is MISSING else {name: f"default_{name}"}


def _param(each: Field[Any]) -> str:
    if each.default_factory is not MISSING:
        return f"{each.name}=absent"
    if each.default is not MISSING:
        return f"{each.name}=default_{each.name}"
    return each.name


def by_value(names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """`__eq__` and `__hash__` of instances that are equal if these attributes are."""
    of = values_of(names)

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return of(self) == of(other)

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(of(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def values_of(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    """A function that returns the tuple of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        only = attrgetter(names[0])
        return lambda each: (only(each),)
    return lambda _: ()


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
