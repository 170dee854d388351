"""Operator calls as another framework sees them: arrays separate from attributes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, OperatorError
from tensorlang.frozen import frozen
from tensorlang.graph.applying import inferred
from tensorlang.graph.specs import Spec
from tensorlang.graph.values import Argument, Arguments, Named, value_of
from tensorlang.ops import random
from tensorlang.ops.operator import Operator
from tensorlang.ops.spec import signature
from tensorlang.ops.spec.signature import Arrays, Domain, Other, Static
from tensorlang.runtime.arrays.host_arrays import Foreign

INSTALL: Final = "pip install 'tensorlang[interop]'"
# the kind of a parameter that is no array and no attribute
_OTHERS: Final = {
    **dict.fromkeys(("shape", "elements"), "sizes"),
    **dict.fromkeys(("share", "derived"), "float"),
    "offset": "int",
    "child": "array",
}
ARRAYS: Final = ("array", "operand", "arrays", "key")
_IMPL: Final = "threefry2x32"
_LARGEST_WORD: Final = (1 << 32) - 1


@frozen(eq=False)
class Parameter:
    """A parameter of an operator."""

    name: str
    kind: str  # what it accepts: an array, a key, or a type of attribute
    default: Argument  # its default; `inspect.Parameter.empty` if required
    named: bool  # whether it is keyword-only

    @property
    def needed(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty


def checked(op: object) -> Operator:
    """The operator.

    Raises:
        OperatorError: it is something else.
    """
    if not isinstance(op, Operator):
        raise OperatorError(
            f"{op!r:.80} is no operator; decorate its definition with "
            "tensorlang.ops.operator"
        )
    return op


@cache
def parameters(op: Operator) -> tuple[Parameter, ...]:
    """The parameters of an operator except `out` and `target`, in order."""
    return tuple(
        Parameter(p.name, _kind(p), p.default, p.keyword) for p in op.parameters
    )


def _kind(parameter: signature.Parameter) -> str:
    """What a parameter accepts."""
    match parameter.kind:
        case Arrays(several=several, number=number):
            return "arrays" if several else "operand" if number else "array"
        case Static(kind=kind) if kind:
            return _OTHERS.get(kind, kind)
        case Static(types=types, choices=choices):
            kinds = [kind for kind in types if kind is not type(None)]
            plain = not choices or choices == (None,)
            if {tuple, int} <= {*kinds}:
                return "ints"
            named = len(kinds) == 1 and plain and kinds[0] is not tuple
            return kinds[0].__name__ if named else "other"
        case Domain(type=kind):
            return kind.__name__
        case Other("elements", counted=fit) if fit:
            return "array"
        case Other("scalar"):
            return "int" if type(parameter.default) is int else "float"
        case Other("like", several=several):
            return "arrays" if several else "array"
        case Other(kind):
            return _OTHERS.get(kind, kind)


def bound(
    op: Operator, args: Sequence[Argument], kwargs: Mapping[str, Argument]
) -> list[Argument]:
    """The arguments of a call in parameter order, with defaults.

    Raises:
        ArgumentError: they do not fit the operator.
    """
    try:
        found = inspect.signature(op).bind(*args, **kwargs)
    except TypeError as problem:
        *names, last = [p.name for p in op.parameters]
        listed = f"{', '.join(names)} and {last}" if names else last
        raise ArgumentError(f"{op.id} takes {listed}: {problem}") from None
    found.apply_defaults()
    return [found.arguments[p.name] for p in op.parameters]


@frozen(eq=False)
class Call:
    """An operator call without its arrays; see `apart`.

    Attributes:
        op: The operator.
        given: Its arguments in parameter order: `...` in place of an array, the number
            of arrays in place of several.
    """

    op: Operator
    given: Arguments

    def arguments(self, arrays: Sequence[Argument]) -> tuple[list[Argument], Named]:
        """The operator's arguments with these arrays."""
        args, kwargs, rest = [], {}, iter(arrays)
        for parameter, value in zip(parameters(self.op), self.given, strict=True):
            filled = next(rest) if value is ... else value
            if parameter.kind == "arrays":
                filled = [next(rest) for _ in range(value)]
            if parameter.named:
                kwargs[parameter.name] = filled
            else:
                args.append(filled)
        return args, kwargs

    def results(self, specs: Sequence[Spec]) -> tuple[Spec, ...]:
        """Shapes and dtypes of the results, by the operator's own rule.

        Raises:
            ShapeError, DTypeError, ArgumentError: as the operator would.
        """
        args, kwargs = self.arguments([value_of(spec) for spec in specs])
        return inferred(self.op, tuple(args), kwargs)[0]


@lru_cache(maxsize=4096)
def keys_of(call: Call) -> tuple[int, ...]:
    """Indices of the arrays that hold the words of keys."""
    found: list[str] = []
    for parameter, value in zip(parameters(call.op), call.given, strict=True):
        if parameter.kind == "arrays" or value is ...:
            found += [parameter.kind] * (1 if value is ... else value)
    return tuple(at for at, kind in enumerate(found) if kind == "key")


def split_call(op: Operator, values: Sequence[Argument]) -> tuple[Call, list[Foreign]]:
    """Separate arguments in parameter order into a call and its arrays.

    Scalar operands stay in the call.
    """
    arrays: list[Foreign] = []
    given: list[Argument] = []
    for parameter, value in zip(parameters(op), values, strict=True):
        if parameter.kind == "arrays":
            arrays += value
            given.append(len(value))
        elif parameter.kind in ARRAYS and not isinstance(value, _NUMBERS):
            arrays.append(value)
            given.append(...)
        else:
            given.append(value)
    try:
        return interned(op, *given), arrays
    except TypeError:  # sizes that PyTorch's compiler keeps symbolic
        return Call(op, tuple(given)), arrays


_NUMBERS: Final = (type(None), bool, int, float)


@lru_cache(maxsize=4096, typed=True)
def interned(op: Operator, *given: Argument) -> Call:
    """The unique call object of an operator with such arguments."""
    return Call(op, given)


def hashable(value: Argument) -> Argument:
    """A nest of lists as tuples."""
    return tuple(map(hashable, value)) if isinstance(value, (list, tuple)) else value


# ------------------------------------------------------------------------- random keys


def words_of(key: object) -> np.ndarray:
    """The words of a key, which is consumed.

    Raises:
        ArgumentError: not a key of `threefry2x32`.
        KeyReuseError: it was used before.
    """
    if not isinstance(key, random.Key) or key.impl != _IMPL:
        raise ArgumentError(f"a key of {_IMPL} is needed here, not {key!r:.80}")
    key.consume("drawn from")
    return random.key_data(key).astype(np.int64)


def key_of(words: Foreign) -> random.Key:
    """A fresh key of these words; the caller ensures single use.

    Raises:
        DTypeError: not 32-bit integers.
    """
    held = np.asarray(words)
    low = -(1 << 31) if held.dtype == np.int32 else 0
    whole = held.dtype.kind in "iu"
    if not whole or ((held < low) | (held > _LARGEST_WORD)).any():
        raise DTypeError(
            f"the words of a key are 32-bit integers, as from random.key_data, "
            f"not {held.dtype} {held.tolist()!r:.60}"
        )
    return random.wrap_key_data(held.astype(np.uint32), impl=_IMPL)
