"""From the definition of a tensor operator to its IR function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.ir import boolean, f32, f64, frontend, function
from tensorlang.ir.dtypes import DType, as_dtype
from tensorlang.ir.elementwise import NARROW, stored, wide
from tensorlang.ir.nodes import Function, Var

if TYPE_CHECKING:
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

__all__ = ["INPUTS", "NARROW", "defined", "scalar_type", "stored", "wide"]
# the attribute that names the arrays, where some may be left out
INPUTS: Final = "inputs"


def defined(
    body: Callable[..., Any],
    workload: Workload,
    names: Names,
    scalars: Mapping[str, Any],
) -> Function:
    """The function of a workload: `body` called on placeholders.

    Inputs are called as the body's parameters, or as the attribute `inputs` says, where
    some parameters may be left out. Scalars, each with a usual value, are of
    `scalar_type`.
    """
    variables = {
        name: Var(name, scalar_type(usual, workload.dtypes))
        for name, usual in scalars.items()
    }
    given = dict(workload.named)
    by_name = str(given.pop(INPUTS, "")).split()
    called = by_name or _parameters(body, variables, len(workload.shapes))
    sizes: dict[str, Var] = {}
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
    if by_name:
        made = body(**dict(zip(by_name, inputs, strict=True)), **variables, **given)
    else:
        made = body(*inputs, **variables, **given)
    return function(
        workload.operator.replace(".", "_"),
        inputs,
        made if isinstance(made, tuple) else (made,),
        scalars=tuple(variables.values()),
    )


def _parameters(
    body: Callable[..., Any], scalars: Mapping[str, Var], count: int
) -> list[str]:
    """The names of a definition's arrays: its parameters, or x0, x1, ... of *arrays."""
    parameters = inspect.signature(body).parameters.values()
    called = [
        p.name
        for p in parameters
        if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in scalars
    ]
    return called if len(called) >= count else [f"x{n}" for n in range(count)]


def scalar_type(usual: Any, dtypes: tuple[str, ...]) -> DType:
    """The type of a scalar by a usual value of it and the arrays that it goes with.

    A whole number of NumPy has its own type, whatever the arrays.
    Whole numbers are of the last array's type where that is an integer, truth is bool,
    and all others are f64 beside f64 arrays, else f32.
    """
    if isinstance(usual, np.integer):
        return as_dtype(usual.dtype)
    if isinstance(usual, bool):
        return boolean
    if isinstance(usual, int) and dtypes and DType(dtypes[-1]).is_integer:
        return DType(dtypes[-1])
    return f64 if "f64" in dtypes else f32
