"""The signature of an operator's call, and refusals of calls that do not match it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang import lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.spec.signature import Arrays, Domain, Parameter, Static

with lazy.modules(__name__):
    from tensorlang import targets

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator

_SHOWN: Final = {
    "scalar": "float",
    "share": "float",
    "key": "Key",
    "offset": "int",
    "child": "Any",
    "derived": "Any",
    "shape": "Sizes",
    "elements": "Sizes",
    "like": "Any",
    "dtype": "str",
}


def call_signature(
    parameters: Sequence[Parameter], shared: Sequence[str]
) -> inspect.Signature:
    """The signature of a call with these parameters and shared keywords."""
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    own = [
        inspect.Parameter(
            p.name, kinds[p.keyword], default=p.default, annotation=_shown(p)
        )
        for p in parameters
    ]
    rest = [
        inspect.Parameter(name, kinds[1], default=None, annotation="Any")
        for name in shared
    ]
    return inspect.Signature([*own, *rest])


def _shown(parameter: Parameter) -> str:
    """The annotation of a parameter in a call's signature."""
    kind = parameter.kind
    if isinstance(kind, Static) and kind.kind in _SHOWN:
        return f"{_SHOWN[kind.kind]} | None"
    if isinstance(kind, Static):
        return " | ".join(t.__name__ for t in kind.types) or "Any"
    if isinstance(kind, Domain):
        return f"{kind.type.__name__} | None" if kind.optional else kind.type.__name__
    if isinstance(kind, Arrays):
        array = "Operand" if kind.number else "Any"
        array = "Sequence[Any]" if kind.several else array
        return f"{array} | None" if kind.optional else array
    if kind.several:
        return "Sequence[Any]"
    if kind.counted:
        return "Any"
    return f"{_SHOWN[kind.kind]} | None" if kind.optional else _SHOWN[kind.kind]


def refuse(
    op: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], problem: TypeError
) -> None:
    """Raise a precise error if a call's arguments do not match its signature.

    Raises:
        ArgumentError: one is missing, given twice, unknown or too many.
        TargetError: the target cannot be part of a cache key.
    """
    target = kwargs.get("target")
    try:
        hash(target)
    except TypeError:
        targets.get(target)
    known = {p.name: p for p in op.parameters}
    unknown = kwargs.keys() - known.keys() - {*op.shared}
    if unknown:
        raise ArgumentError(
            f"{op.id} has no attribute {', '.join(sorted(unknown))}; it has "
            f"{', '.join(n for n in known if n not in op.spec.arrays) or 'none'}"
        ) from problem
    try:
        inspect.signature(op).bind(*args, **kwargs)
    except TypeError:
        places = [p.name for p in op.parameters if not p.keyword]
        placed = {*places[: len(args)]}
        twice = [n for n in places if n in placed and n in kwargs]
        if twice:
            raise ArgumentError(
                f"{op.id} has {', '.join(twice)} by position and by name; the order is "
                f"{', '.join(places)}"
            ) from problem
        given = placed | {*kwargs}
        missing = [n for n, p in known.items() if p.needed and n not in given]
        others = (placed | {*missing}) - {*op.spec.arrays}
        if missing and (others or op.spec.keys):
            said = (f"{n}=" if known[n].keyword else n for n in missing)
            raise ArgumentError(f"{op.id} needs {', '.join(said)}") from problem
        many = len(args) > len(places)
        taken = places if many else [*op.spec.arrays]
        of = "array" if {*taken} <= {*op.spec.arrays} else "argument"
        got = len(args) if many else len(given & {*taken})
        raise ArgumentError(
            f"{op.id} takes {len(taken)} {of}{'s' * (len(taken) != 1)} "
            f"({', '.join(taken)}), got {got}"
        ) from problem
