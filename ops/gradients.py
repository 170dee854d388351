"""Gradients of elementwise operators whose operands broadcast.

The gradient of an operand has its shape: where it was broadcast, what comes out of the
definition is summed. Gradients of the whole shape are computed in one pass, each sum is
a stage of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tensorlang.errors import ShapeError
from tensorlang.ops.elementwise import (
    NUMBERS,
    broadcast,
    check_types,
    collapse,
    dimension_names,
    static,
    usual_scalars,
    usual_types,
)
from tensorlang.ops.tensors import Plan, Shape, TensorOperator, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Front


def gradient(
    id: str,
    define: str,
    *,
    operands: tuple[str, ...],
    condition: int | None = None,
    attributes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[Front], TensorOperator]:
    """The gradients of an elementwise operator, for the gradient `dy` of its result.

    There is one for each operand that is an array of floats, in the operands' order.

    Args:
        id: Its canonical id.
        define: `module:function` from the scalar expressions `dy` and the operands, and
            the attributes, to a tuple: an expression an operand, None for a condition.
        operands: The names of the operator's operands, without `dy`.
        condition: Which operand is an array of bool.
        attributes: Static attributes with their defaults.
        options: As for `tensor_operator`.
    """
    at = None if condition is None else condition + 1  # behind dy
    given = ("dy", *operands)

    def plan(
        shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
    ) -> Plan:
        check_types(id, dtypes, at)
        result = broadcast(id, shapes[1:])
        if shapes[0] != result:
            raise ShapeError(
                f"{id}: dy has shape {shapes[0]}, what it is the gradient of {result}"
            )
        numbers = asked.get(NUMBERS, ())
        arrays = [n for n in range(len(given)) if n not in numbers]
        results = tuple(
            shape for n, shape in zip(arrays, shapes, strict=True) if n not in (0, at)
        )
        return Plan(collapse(shapes, result), dtypes, results, static(asked))

    return tensor_operator(
        id,
        define,
        plan=plan,
        names=dimension_names,
        shapes=((1 << 24,),) * len(given),
        dtypes=usual_types(given, at),
        attributes=attributes,
        scalars=usual_scalars(given, {}),
        lift=_lifted,
        scheduled_as="broadcast_grad",
        **options,
    )


def _lifted(body: Callable[..., Any]) -> Callable[..., Any]:
    from tensorlang.ops.lifting_gradients import (  # noqa: PLC0415 - only to build
        lifted_gradient,
    )

    return lifted_gradient(body)
