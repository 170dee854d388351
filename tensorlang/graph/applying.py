"""Operators on symbolic values: a call creates a node whose results have specs.

Shapes are inferred by running the operator's own signature and definition on arrays
that have a shape but no memory (`tensorlang.ops.kernels.inference`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tensorlang import ir
from tensorlang.errors import ArgumentError, DTypeError, TensorlangError
from tensorlang.graph.networks.leaves import constant
from tensorlang.graph.scopes import call_site, path
from tensorlang.graph.specs import (
    KeySpec,
    Spec,
    TensorSpec,
    at_sizes,
    by_samples,
    least,
    names_in,
    sample,
)
from tensorlang.graph.values import (
    REPLAYING,
    Argument,
    Arguments,
    Named,
    OpResult,
    Tensor,
    Value,
    make,
    map_values,
    values_in,
)
from tensorlang.ops import math, random
from tensorlang.ops.calls.dispatch import Late
from tensorlang.ops.calls.tensors import MOST_ELEMENTS
from tensorlang.ops.kernels.inference import abstract, results
from tensorlang.ops.operator import Operator
from tensorlang.ops.random.impls import impl
from tensorlang.ops.spec.promotion import raised_by

# operators whose bounds select from dimensions and do not otherwise constrain them
_CUTTING: Final = ("nn.slice", "nn.slice_grad")
_NUMBERS: Final = (bool, int, float)


def apply(op: Operator, args: Arguments, kwargs: Mapping[str, Argument]) -> OpResult:
    """Apply an operator to symbolic values: a value, or a tuple of values.

    Raises:
        ShapeError, DTypeError, ArgumentError: as the operator would, with the layer or
        source line and the shapes involved.
    """
    given = {name: value for name, value in kwargs.items() if name != "target"}
    if given.pop("out", None) is not None or op.inplace:
        raise ArgumentError(
            f"{op.id} takes no out= on symbolic values; a graph's memory is "
            "planned when it runs"
        )
    args = tuple(_lifted(arg) for arg in args)
    given = {name: _lifted(value) for name, value in given.items()}
    if op.spec.promotes:
        args, given = _promoted(op, args, given)
    if (wanted := given.pop(op.spec.typed, None)) is not None:
        return _typed(op, args, given, ir.as_dtype(wanted).name)
    place, layer = call_site(), path()
    try:
        specs, single = inferred(op, args, given)
    except TensorlangError as problem:
        raise _explained(problem, op, args, given, place, layer) from problem
    args, given = _plain(op, args, given)
    node = make(op, args, given, specs, where=place, path=layer, replay=REPLAYING.get())
    return node.results[0] if single else node.results


def _plain(op: Operator, args: Arguments, kwargs: Named) -> tuple[Arguments, Named]:
    """The arguments, with Python's numbers in place of NumPy's as attributes."""

    def python(argument: Argument) -> Argument:
        if isinstance(argument, np.generic):
            return argument.item()
        if type(argument) in (tuple, list):
            return type(argument)(map(python, argument))
        return argument

    def plain(name: str, argument: Argument) -> Argument:
        return argument if name in op.spec.arrays else python(argument)

    names = [p.name for p in op.parameters]
    given = dict(zip(names, args, strict=False))
    found = tuple(plain(name, value) for name, value in given.items())
    return (
        (*found, *args[len(found) :]),
        {name: plain(name, value) for name, value in kwargs.items()},
    )


def _typed(op: Operator, args: Arguments, kwargs: Named, kind: str) -> OpResult:
    """A call that reads arrays in a type, and gives it, with casts as nodes."""
    for name, taken in op.spec.arrays.items():
        if taken.dtypes and kind not in taken.dtypes:
            listed = ", ".join(taken.dtypes)
            raise DTypeError(f"{op.id}: {name} takes {listed}, not {kind}")

    def cast(argument: Argument) -> Argument:
        same = not isinstance(argument, Tensor) or argument.dtype == kind
        return argument if same else math.cast(argument, kind)

    pairs = [(name, cast(value)) for name, value in kwargs.items()]
    return cast(op(*map(cast, args), **dict(pairs)))


def _promoted(
    op: Operator, args: Arguments, kwargs: Mapping[str, Argument]
) -> tuple[Arguments, Named]:
    """The arguments, with casts of tensors to the type that the operator reads.

    A kernel converts where it loads. A program does so in nodes, so that what is said
    of operators of one type, such as their gradients, holds.
    """
    names = [p.name for p in op.parameters]
    named = dict(zip(names, args, strict=False)) | dict(kwargs)
    held = [(name, each) for name in op.spec.arrays for each in _each(named.get(name))]
    numbers = [type(value) for _, value in held if isinstance(value, _NUMBERS)]
    arrays = [(name, value) for name, value in held if _is_array(value)]
    types = [ir.as_dtype(value.dtype).name for _, value in arrays]
    wanted = op.spec.promoted([name for name, _ in arrays], types, raised_by(numbers))
    casts = {
        pair: kind
        for pair, own, kind in zip(arrays, types, wanted, strict=True)
        if own != kind and isinstance(pair[1], Tensor)
    }

    def converted(name: str, argument: Argument) -> Argument:
        def cast(value: Value) -> Value:
            kind = casts.get((name, value))
            return value if kind is None else math.cast(value, kind)

        return map_values(argument, cast)

    if not casts:
        return args, dict(kwargs)
    pairs = zip(names, args, strict=False)
    return (
        tuple(converted(name, value) for name, value in pairs),
        {name: converted(name, value) for name, value in kwargs.items()},
    )


def _each(argument: Argument) -> Sequence[Argument]:
    return argument if isinstance(argument, (tuple, list)) else (argument,)


def _is_array(value: object) -> bool:
    """Whether it has an element type; a `np.float64` is a Python number."""
    return isinstance(value, (Tensor, np.generic)) and not isinstance(value, float)


def inferred(
    op: Operator, args: Arguments, kwargs: Mapping[str, Argument]
) -> tuple[tuple[Spec, ...], bool]:
    """Infer the specs of an operator's results, and whether it has a single result.

    Raises:
        ShapeError, DTypeError, ArgumentError: as the operator would.
    """
    nest = (*args, *kwargs.values())
    names = names_in(tuple(value.spec.shape for value in values_in(nest)))
    names |= names_in(nest)
    beyond = _beyond(op, args, kwargs) if names else 0
    single = True

    def ask(sizes: dict[str, int]) -> tuple[Spec, ...]:
        nonlocal single
        made = results(op, *without_data(args, kwargs, sizes))
        single = not isinstance(made, tuple)
        return tuple(map(_spec_of, (made,) if single else made))

    return by_samples(names, ask, beyond), single


def _beyond(op: Operator, args: Arguments, kwargs: Mapping[str, Argument]) -> int:
    """The size that every named size must exceed when an operator is sampled.

    Avoids negative sizes and, for slices, dimensions shorter than the bounds.
    """
    nest = (*args, *kwargs.values())
    needed = max(least(value.shape) for value in values_in(nest))
    return needed + (_reach(nest) if op.id in _CUTTING else 0)


def _reach(nest: object) -> int:
    """The combined reach of the bounds in a nest; huge bounds mean the end."""
    if isinstance(nest, (tuple, list)):
        return sum(map(_reach, nest))
    if isinstance(nest, int):
        return abs(nest) if abs(nest) <= MOST_ELEMENTS else 0
    return least(nest)


def _lifted(arg: Argument) -> Argument:
    """Turn arrays and keys in an argument into constants of the program."""
    if isinstance(arg, (np.ndarray, random.Key)):
        return constant(arg)
    if isinstance(arg, (tuple, list)) and any(True for _ in values_in(arg)):
        return type(arg)(map(_lifted, arg))
    return arg


def without_data(
    args: Arguments, kwargs: Mapping[str, Argument], sizes: Mapping[str, int]
) -> tuple[Arguments, Named]:
    """The arguments of a call at given sizes, with data-less arrays and keys."""

    def at(argument: Argument) -> Argument:
        return at_sizes(
            map_values(argument, lambda value: _stand_in(value, sizes)), sizes
        )

    return at(args), {name: at(argument) for name, argument in kwargs.items()}


def _stand_in(value: Value, sizes: Mapping[str, int]) -> np.ndarray | random.Key:
    """A data-less array or key of the value's spec."""
    spec = value.spec.at(sizes)
    shape = at_sizes(spec.shape, {})
    if isinstance(spec, KeySpec):
        how = impl(spec.impl)
        return random.Key(how.name, np.zeros((*shape, how.key_words), how.dtype))
    return abstract(shape, spec.numpy)


def _spec_of(result: Late | random.Key | np.ndarray) -> Spec:
    if isinstance(result, random.Key):
        return KeySpec(result.shape, result.impl)
    array = result.array if isinstance(result, Late) else result
    return TensorSpec(array.shape, array.dtype.name)


def _explained(  # noqa: PLR0917 - all are shown in the message
    problem: TensorlangError,
    op: Operator,
    args: Arguments,
    kwargs: Mapping[str, Argument],
    place: str,
    layer: str,
) -> TensorlangError:
    """The operator's error, with where it was applied and to what."""
    met = ", ".join(str(v.spec) for v in values_in((*args, *kwargs.values())))
    names = names_in(tuple(v.shape for v in values_in((*args, *kwargs.values()))))
    if names:  # the operator was run with sample sizes, which its message mentions
        asked = sample(names, _beyond(op, args, kwargs))
        met += f", with sample sizes {' and '.join(asked)}"
    where = f"layer {layer!r} ({place})" if layer else place
    try:
        return type(problem)(f"{where}: {op.id} of {met}: {problem}")
    except TypeError:
        return problem
