"""From the definition of a tensor operator to its IR function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tensorlang.ir import boolean, f32, f64, frontend, function
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Expr, Function, Var

if TYPE_CHECKING:
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

NARROW = ("f16", "bf16")


def defined(
    body: Callable[..., Any],
    workload: Workload,
    names: Names,
    scalars: Mapping[str, Any],
) -> Function:
    """The function of a workload: `body` called on placeholders.

    Inputs are called as the body's parameters. Scalars, each with a usual value, are of
    `scalar_type`.
    """
    import inspect  # noqa: PLC0415 - only to build

    variables = {
        name: Var(name, scalar_type(usual, workload.dtypes))
        for name, usual in scalars.items()
    }
    sizes: dict[str, Var] = {}
    parameters = inspect.signature(body).parameters.values()
    called = [
        p.name
        for p in parameters
        if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in variables
    ]
    if len(called) < len(workload.shapes):  # *arrays
        called = [f"x{n}" for n in range(len(workload.shapes))]
    inputs = [
        frontend.placeholder(
            [
                extent
                if symbol is None
                else sizes.setdefault(symbol, frontend.size(symbol))
                for extent, symbol in zip(shape, symbols, strict=True)
            ],
            dtype,
            name,
        )
        for name, shape, symbols, dtype in zip(
            called, workload.shapes, names, workload.dtypes, strict=False
        )
    ]
    made = body(*inputs, **variables, **workload.named)
    outputs = made if isinstance(made, tuple) else (made,)
    return function(
        workload.operator.replace(".", "_"),
        inputs,
        outputs,
        scalars=tuple(variables.values()),
    )


def scalar_type(usual: Any, dtypes: tuple[str, ...]) -> DType:
    """The type of a scalar by a usual value of it and the arrays that it goes with.

    Whole numbers are of the last array's type where that is an integer, truth is bool,
    and all others are f64 beside f64 arrays, else f32.
    """
    if isinstance(usual, bool):
        return boolean
    if isinstance(usual, int) and dtypes and DType(dtypes[-1]).is_integer:
        return DType(dtypes[-1])
    return f64 if "f64" in dtypes else f32


def wide(value: Expr) -> Expr:
    """The value in the type that is computed in: f32 for f16 and bf16."""
    return value.cast(f32) if value.dtype.name in NARROW else value


def stored(value: Expr, dtype: DType) -> Expr:
    """The value in the type of an array; truth stays truth."""
    return value if value.dtype == boolean else value.cast(dtype)
