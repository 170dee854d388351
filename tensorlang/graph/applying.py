"""Operators on symbolic values: a call makes a node, its results have specs.

Shapes come from the operator alone: its own front and definition are asked, with
arrays that have a shape and no memory (`tensorlang.ops.inference`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.graph.leaves import constant
from tensorlang.graph.scopes import outside, path
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
    Made,
    Value,
    make,
    mapped,
    values_in,
)
from tensorlang.ops import random
from tensorlang.ops.dispatch import Late
from tensorlang.ops.inference import abstract, results
from tensorlang.ops.inplace import InplaceOperator
from tensorlang.ops.operator import Operator
from tensorlang.ops.random.impls import impl
from tensorlang.ops.tensors import MOST_ELEMENTS

# what takes some places of dimensions, and asks of others nothing
_CUTTING: Final = ("nn.slice", "nn.slice_grad")


def apply(op: Operator, args: Arguments, kwargs: Mapping[str, Argument]) -> Made:
    """What an operator gives for symbolic values: a value, or a tuple of them.

    Raises:
        ShapeError, DTypeError, ArgumentError: as the operator would, with the layer or
            line, and the shapes that met there.
    """
    given = {name: value for name, value in kwargs.items() if name != "target"}
    if given.pop("out", None) is not None or isinstance(op, InplaceOperator):
        raise ArgumentError(
            f"{op.id} on symbolic values writes into no memory; a graph's memory is "
            "planned when it runs"
        )
    args = tuple(_lifted(arg) for arg in args)
    given = {name: _lifted(value) for name, value in given.items()}
    place, layer = outside(), path()
    try:
        specs, single = inferred(op, args, given)
    except TensorlangError as problem:
        raise _explained(problem, op, args, given, place, layer) from problem
    node = make(op, args, given, specs, where=place, path=layer, replay=REPLAYING.get())
    return node.results[0] if single else node.results


def inferred(
    op: Operator, args: Arguments, kwargs: Mapping[str, Argument]
) -> tuple[tuple[Spec, ...], bool]:
    """Specs of an operator's results, and whether it has just one.

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
        filled = at_sizes(mapped(args, lambda value: _stand_in(value, sizes)), sizes)
        named = {
            name: at_sizes(mapped(arg, lambda value: _stand_in(value, sizes)), sizes)
            for name, arg in kwargs.items()
        }
        made = results(op, filled, named)
        single = not isinstance(made, tuple)
        return tuple(map(_spec_of, (made,) if single else made))

    return by_samples(names, ask, beyond), single


def _beyond(op: Operator, args: Arguments, kwargs: Mapping[str, Argument]) -> int:
    """The size that all open ones are larger than, where an operator is asked.

    It is asked of no negative size; and a slice, of dimensions that reach further than
    its bounds.
    """
    nest = (*args, *kwargs.values())
    needed = max(least(value.shape) for value in values_in(nest))
    return needed + (_reach(nest) if op.id in _CUTTING else 0)


def _reach(nest: object) -> int:
    """How far the bounds in a nest reach together; beyond any array is its end."""
    if isinstance(nest, (tuple, list)):
        return sum(map(_reach, nest))
    if isinstance(nest, int):
        return abs(nest) if abs(nest) <= MOST_ELEMENTS else 0
    return least(nest)


def _lifted(arg: Argument) -> Argument:
    """Arrays and keys in an argument as constants of the program."""
    if isinstance(arg, (np.ndarray, random.Key)):
        return constant(arg)
    if isinstance(arg, (tuple, list)) and any(True for _ in values_in(arg)):
        return type(arg)(map(_lifted, arg))
    return arg


def _stand_in(value: Value, sizes: Mapping[str, int]) -> np.ndarray | random.Key:
    """An array or key of the value's spec, without data of its own."""
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


def _explained(  # noqa: PLR0917 - what there is to tell
    problem: TensorlangError,
    op: Operator,
    args: Arguments,
    kwargs: Mapping[str, Argument],
    place: str,
    layer: str,
) -> TensorlangError:
    """The operator's complaint, with where it was applied and to what."""
    met = ", ".join(str(v.spec) for v in values_in((*args, *kwargs.values())))
    names = names_in(tuple(v.shape for v in values_in((*args, *kwargs.values()))))
    if names:  # the operator was asked for numbers, of which it speaks
        asked = sample(names, _beyond(op, args, kwargs))
        met += f", as if {' and '.join(asked)}"
    where = f"layer {layer!r} ({place})" if layer else place
    try:
        return type(problem)(f"{where}: {op.id} of {met}: {problem}")
    except TypeError:
        return problem
