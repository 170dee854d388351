"""Operators whose definition is a tensor expression: how their calls are prepared."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorlang.errors import ArgumentError, OperatorError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.operator import Define, Kernel, Launch, Operator
from tensorlang.workload import Workload, attributes_of

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.ops.declarations import Declarations

_RESERVED = ("out", "target")
_GIVEN = "__given"  # ends an input's name until all others are known


def operator_of(
    id: str,
    definition: Callable[..., Any],
    *,
    aliases: tuple[str, ...],
    family: str,
    tolerance: float,
    declared: Declarations,
) -> Operator:
    """The operator of a definition; see `tensorlang.ops.operator.operator`."""
    arrays, attributes = parameters(id, definition)
    ready: dict[Any, tuple[Kernel, tuple[Any, ...]]] = {}

    def front(
        *given: Any, out: Any = None, target: Any = None, **chosen: Any
    ) -> Launch:
        if len(given) != len(arrays):
            raise ArgumentError(
                f"{id} takes {len(arrays)} arrays ({', '.join(arrays)}), "
                f"got {len(given)}"
            )
        if any(type(a) is not np.ndarray for a in given):
            own(*given, *chosen.values())
            target = _target_of(id, given) if target is None else target
        unknown = set(chosen) - set(attributes)
        if unknown:
            raise ArgumentError(
                f"{id} has no attribute {', '.join(sorted(unknown))}; "
                f"it has {', '.join(attributes) or 'none'}"
            )
        key = (
            tuple([(a.shape, a.dtype) for a in given if hasattr(a, "dtype")]),
            tuple(chosen.items()),
            target,
        )
        found = ready.get(key)
        if found is None:
            found = ready[key] = _prepared(made, given, attributes | chosen, target)
        kernel, results = found
        outs, result = _outputs(id, results, out, given)
        return kernel, (*given, *outs), result

    front.__doc__ = definition.__doc__
    front.__module__ = definition.__module__
    made = Operator(
        id,
        define_with(id, definition),
        front,
        aliases=aliases,
        family=family,
        tolerance=tolerance,
        default=Workload(id, (), (), attributes_of(attributes)),
        declared=declared,
    )
    made.kernels = ready
    made.__signature__ = _signature(definition)
    return made


def _signature(definition: Callable[..., Any]) -> inspect.Signature:
    """How an operator of this definition is called."""
    found = inspect.signature(definition)
    return found.replace(
        parameters=[
            p if p.kind is p.KEYWORD_ONLY else p.replace(annotation="Any")
            for p in found.parameters.values()
        ]
    )


def _target_of(id: str, given: tuple[Any, ...]) -> str | None:
    from tensorlang.runtime.given_arrays import target_of  # noqa: PLC0415 - runtime

    return target_of(id, (array for array in given if hasattr(array, "dtype")))


def parameters(
    id: str, definition: Callable[..., Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of the arrays, and the attributes with their defaults."""
    arrays, attributes = [], {}
    for name, parameter in inspect.signature(definition).parameters.items():
        if name in _RESERVED:
            raise OperatorError(f"{id}: {name!r} is a name every operator has already")
        if parameter.kind is parameter.KEYWORD_ONLY:
            empty = parameter.default is parameter.empty
            attributes[name] = None if empty else parameter.default
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            arrays.append(name)
        else:
            raise OperatorError(f"{id}: a definition names its arrays: no *{name}")
    return tuple(arrays), attributes


def define_with(id: str, definition: Callable[..., Any]) -> Define:
    """From workload to IR by calling the definition on placeholders."""
    names, _ = parameters(id, definition)

    def define(workload: Workload) -> Any:
        from tensorlang.ir import (  # noqa: PLC0415 - only to build
            Function,
            frontend,
            function,
        )

        if len(workload.shapes) != len(names):
            raise ArgumentError(
                f"{id} takes {len(names)} arrays ({', '.join(names)}), "
                f"not {len(workload.shapes)}"
            )
        inputs = [
            frontend.placeholder(shape, dtype, f"{name}{_GIVEN}")
            for name, shape, dtype in zip(
                names, workload.shapes, workload.dtypes, strict=True
            )
        ]
        made = definition(*inputs, **workload.named)
        if isinstance(made, Function):
            return _nonnegative(id, _fitting(id, made, workload), workload)
        outputs = made if isinstance(made, tuple) else (made,)
        if not outputs or not all(_is_computed(output) for output in outputs):
            raise OperatorError(
                f"{id}: its definition returned {made!r}; return what compute(...) "
                "made, a tuple of that, or an IR function such as ir.parse(...) gives"
            )
        made = _with_names(function(id.replace(".", "_"), inputs, outputs), names)
        return _nonnegative(id, made, workload)

    return define


def _nonnegative(id: str, func: Function, workload: Workload) -> Function:
    """The function, if none of its arrays has a dimension below 0.

    Raises:
        ShapeError: one has, as the result of a stencil on too few elements.
    """
    from tensorlang.ir.nodes import Alloc  # noqa: PLC0415 - only to build
    from tensorlang.ir.simplify import known_size  # noqa: PLC0415 - only to build
    from tensorlang.ir.visit import walk  # noqa: PLC0415 - only to build

    made = (node.buffer for node in walk(func.body) if isinstance(node, Alloc))
    for buffer in (*func.buffers, *made):
        shape = tuple(known_size(extent, {}, 0) for extent in buffer.shape)
        if min(shape, default=0) < 0:
            given = ", ".join(map(str, workload.shapes))
            raise ShapeError(
                f"{id}: of arrays of shape {given} its {buffer.name} would have the "
                f"shape {shape}; give larger ones"
            )
    return func


def _is_computed(value: Any) -> bool:
    from tensorlang.ir.frontend import Tensor  # noqa: PLC0415 - only to build

    return isinstance(value, Tensor) and value.stage is not None


def _fitting(id: str, func: Function, workload: Workload) -> Function:
    """An IR function that a definition returned, which takes just these arrays.

    Raises:
        OperatorError: its inputs are others, stand after outputs, or it has scalars.
    """
    roles = [param.role for param in func.params]
    count = len(workload.shapes)
    results = len(roles) - count
    if func.scalars or results < 1 or roles != ["in"] * count + ["out"] * results:
        raise OperatorError(
            f"{id}: the function {func.name} must take {count} inputs, then its "
            "outputs, and no scalars; write sizes and attributes into its text"
        )
    for number, shape in enumerate(workload.shapes):
        held = func.params[number].buffer
        extents = tuple(getattr(extent, "value", None) for extent in held.shape)
        if extents != shape or str(held.dtype) != workload.dtypes[number]:
            raise OperatorError(
                f"{id}: {held.name} of the function {func.name} is {held}, but the "
                f"array is {workload.dtypes[number]}{list(shape)}"
            )
    return func


def _with_names(func: Function, names: tuple[str, ...]) -> Function:
    """The function with its inputs called as the definition calls them.

    Whatever else has such a name gives way: the result of `compute` is `y` by default.
    """
    from tensorlang.ir.nodes import Buffer, Function  # noqa: PLC0415 - only to build
    from tensorlang.ir.visit import fresh, replace_buffers, walk  # noqa: PLC0415

    taken = {node.name for node in walk(func) if hasattr(node, "name")} | set(names)
    called = {f"{name}{_GIVEN}": name for name in names}
    held = [node for node in walk(func) if isinstance(node, Buffer)]
    renamed = {
        buffer: replace(buffer, name=called.get(buffer.name) or fresh("out", taken))
        for buffer in dict.fromkeys(held)
        if buffer.name in called or buffer.name in names
    }
    params = tuple(
        replace(param, buffer=renamed.get(param.buffer, param.buffer))
        for param in func.params
    )
    body = replace_buffers(func.body, renamed)
    return Function(func.name, params, func.scalars, body)


def _prepared(
    op: Operator, given: tuple[Any, ...], attributes: dict[str, Any], target: Any
) -> tuple[Kernel, tuple[Any, ...]]:
    """The kernel, and shape and dtype of each result."""
    from tensorlang.ir.dtypes import as_dtype  # noqa: PLC0415 - only to build
    from tensorlang.ops.examples import shapes  # noqa: PLC0415 - only to build
    from tensorlang.runtime.given_arrays import seen  # noqa: PLC0415 - only to build

    arrays = [seen(array, f"{op.id}: argument {at}") for at, array in enumerate(given)]
    workload = Workload(
        op.id,
        tuple(array.shape for array in arrays),
        tuple(str(as_dtype(array.dtype)) for array in arrays),
        attributes_of(attributes),
    )
    func = op.function(workload)
    if func.scalars:
        names = ", ".join(scalar.name for scalar in func.scalars)
        raise OperatorError(
            f"{op.id}: nothing in its definition says what {names} is; take it as a "
            "keyword parameter, or fold over it where it is a reduction's axis"
        )
    known = shapes(func, op.sizes(workload))
    results = tuple(
        (known[param.buffer.name], param.buffer.dtype.numpy)
        for param in func.params
        if param.role == "out"
    )
    return op.build(workload, target), results


def _outputs(
    id: str, results: tuple[Any, ...], out: Any, given: tuple[Any, ...]
) -> tuple[list[Any], Any]:
    from tensorlang.ops.results import empty  # noqa: PLC0415 - only where it is needed

    if out is None:
        like = given[0] if given else None
        made = [empty(id, shape, dtype, like) for shape, dtype in results]
        arrays = [array for array, _ in made]
        shown = tuple(value for _, value in made)
        return arrays, shown if len(shown) > 1 else shown[0]
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    if len(outs) != len(results):
        raise ArgumentError(f"{id} has {len(results)} results, out= gives {len(outs)}")
    return outs, out
