"""`@frozen`: immutable dataclasses with slots, made at less than half the usual cost.

`@dataclass(frozen=True, slots=True)` compiles six functions for each class, which was a
quarter of the time of a first call. Here one is compiled, the constructor; `__eq__` and
`__hash__` are compiled once for each number of fields, and get their names. Classes are
dataclasses otherwise: `fields`, `replace`, `asdict`, `match`, pickling and
`__post_init__` work. `InitVar` does not, and neither do subclasses by `@dataclass`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from types import CellType, CodeType, FunctionType
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
    own = fields(kind)
    params = sorted((f for f in own if f.init), key=lambda f: bool(f.kw_only))
    order = [f.name for f in params]
    values = {f.name: _value(n, f, order) for n, f in enumerate(own)}
    values |= more or {}
    written = [name for name, value in values.items() if value]
    code = _constructing(
        tuple(bool(f.kw_only) for f in params),
        tuple(values[name] for name in written),
        hasattr(kind, "__post_init__"),
    )
    given: dict[str, Any] = {"absent": _ABSENT}
    given |= {f"set_{n}": getattr(kind, x).__set__ for n, x in enumerate(written)}
    given |= {f"default_{n}": f.default for n, f in enumerate(own)}
    given |= {f"new_{n}": f.default_factory for n, f in enumerate(own)}
    me = "__self" if "self" in order else "self"
    made = FunctionType(
        code.replace(co_varnames=(me, *order)),
        vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {},
        closure=tuple(CellType(given[name]) for name in code.co_freevars),
    )
    defaults = {f.name: _default(f) for f in params if _is_optional(f)}
    by_name = {f.name for f in params if f.kw_only}
    made.__defaults__ = tuple(defaults[x] for x in defaults if x not in by_name)
    made.__kwdefaults__ = {x: defaults[x] for x in defaults if x in by_name}
    made.__annotations__ = {f.name: f.type for f in own if f.init} | {"return": None}
    return _owned(kind, made)


def _is_optional(each: Field[Any]) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def _default(each: Field[Any]) -> object:
    """The default of a parameter; `_ABSENT` if it is made anew each time."""
    return _ABSENT if each.default is MISSING else each.default


def _value(number: int, each: Field[Any], order: Sequence[str]) -> str:
    """The text of the first value of a field; empty if it has none.

    Args:
        number: The position of the field.
        each: The field.
        order: The names of the parameters, which are `_0` and on in the text.
    """
    new = "" if each.default_factory is MISSING else f"new_{number}()"
    if not each.init:
        return new or ("" if each.default is MISSING else f"default_{number}")
    given = f"_{order.index(each.name)}"
    return f"{new} if {given} is absent else {given}" if new else given


@cache
def _constructing(
    by_name: tuple[bool, ...], values: tuple[str, ...], post: bool
) -> CodeType:
    """The code of constructors with these parameters, which write these values."""
    params = [f"_{n}" for n in range(len(by_name))]
    if True in by_name:
        params.insert(by_name.index(True), "*")
    lines = [f"set_{n}(me, {value})" for n, value in enumerate(values)]
    lines.append("me.__post_init__()" if post else "pass")
    free = {*re.findall(r"\b(?:absent|(?:set|new|default)_\d+)\b", "".join(lines))}
    head = f"def make({', '.join(sorted(free))}):"
    inner = f"    def __init__({', '.join(['me', *params])}):"
    text = "\n".join((head, inner, *(f"        {line}" for line in lines)))
    return _inner(_inner(compile(text, "<fields>", "exec")))


def _inner(code: CodeType) -> CodeType:
    """The code of the only function in a code."""
    return next(each for each in code.co_consts if isinstance(each, CodeType))


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
    return _inner(compile(text.format(**values), "<fields>", "exec"))


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
