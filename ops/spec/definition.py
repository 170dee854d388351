"""The decorators that make operators, and algorithms of operators, from definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tensorlang.errors import OperatorError
from tensorlang.ops.algorithms import Algorithm, Faster
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.decorator_options import decorator
from tensorlang.workload import Workload


def operator(
    id: str,
    *,
    family: str = "",
    tolerance: float = 0.0,
    sizes: str = "",
    indices: Mapping[str, str | int] | None = None,
    samples: Callable[..., object] | None = None,
    **options: object,
) -> Callable[[Body], Operator]:
    """Decorator: make an operator from a definition in tensor-expression style.

    Args:
        id: The canonical id: identifiers joined by dots, such as `my.scaled_sum`.
        family: The family whose schedules apply; if empty, the generic schedules.
        tolerance: The allowed relative error of kernels against the interpreter.
        sizes: A condition that the sizes of every call must meet, such as
            `"h >= 5 and w >= 5"`: an expression of integers, sizes, attributes,
            `+ - * // %`, comparisons, `and`, `or`, `not`. Sizes are named as in the
            definition (`h, w = x.shape`), or by array and dimension (`x.0`). By
            default, conditions are derived from the definition's accesses.
        indices: For integer arrays, the exclusive upper bound of their elements, which
            start at 0: `{"ids": "table.0"}`. By default, derived from the accesses.
        samples: Prepares the inputs for checking and timing kernels that need special
            ones, such as sorted arrays. It is called like the definition, with arrays
            (random or of special values), and returns those to use, or None if it
            changed them in place.
        options: As for `Operator`.

    Raises:
        OperatorError: the name is not an identifier, or is taken by another operator,
            an option is unknown or of a wrong type, or a declaration names no size or
            array of the definition.
    """
    options |= {"family": family, "tolerance": tolerance, "sizes": sizes}
    options |= {"indices": indices, "samples": samples}
    return decorator(Operator, id, options)


def algorithm(
    op: Operator,
    name: str,
    *,
    serves: Callable[[Workload], bool] | None = None,
    tolerance: float = 0.0,
    feature: str = "",
    finite: bool = False,
    faster: Faster = lambda *_: False,
) -> Callable[[Body], Body]:
    """Decorator: add an algorithm to `op`, as a definition with the same parameters.

    Args:
        op: The operator.
        name: The name of the algorithm, unique within the operator.
        serves: A predicate on workloads that it can compute; all by default.
        tolerance: The allowed relative error against the reference.
        feature: The target feature that it is designed for.
        finite: Whether it requires finite inputs of moderate size: an infinity, a NaN
            or a very large number may corrupt results that do not depend on it in the
            reference, as in Winograd convolution.
        faster: Whether it is predicted to be faster than the operator's preference on a
            CPU that it suits; never by default. It is told the positions of constant
            arrays.

    Raises:
        OperatorError: the operator has an algorithm of that name.
    """
    if name in op.algorithms:
        raise OperatorError(f"{op.id} has an algorithm {name!r} already")

    def add(body: Body) -> Body:
        usable = serves or (lambda _: True)
        define = op.define(name, body)
        made = Algorithm(name, define, usable, tolerance, feature, finite, faster)
        op.algorithms[name] = made
        return body

    return add


def exchanging(op: Operator, name: str, body: Body, **options: Any) -> None:
    """Add an algorithm for devices to `op`, whose threads exchange values, in two ways.

    By shuffles, where there are any, and as `<name>_in_memory` through shared memory,
    with identical bits: the definition has a parameter `shuffles`.

    Args:
        name: The name of the algorithm.
        body: The definition.
        options: As for `algorithm`.
    """
    for suffix, feature in (("", "shuffle"), ("_in_memory", "")):
        own = partial(body, shuffles=bool(feature))
        algorithm(op, f"{name}{suffix}", feature=feature, **options)(own)
