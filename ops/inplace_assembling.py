"""From the definition of an in-place operator to its IR function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tensorlang.ir import compute, function, placeholder, size
from tensorlang.ir.nodes import Var
from tensorlang.ops.assembling import scalar_type, stored, wide

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, Function
    from tensorlang.workload import Workload


def defined(
    place: str, workload: Workload, read: Sequence[str], scalars: Mapping[str, float]
) -> Function:
    """The function of a workload, by the scalar function at `module:function`.

    Arrays that are only read come first, then those that are updated; all are [n].
    """
    module, _, title = place.partition(":")
    body = getattr(import_module(module), title)
    given: dict[str, Any] = dict(workload.named)
    names = str(given.pop("inputs")).split()
    n = size("n")
    arrays = {
        name: placeholder((n,), dtype, name)
        for name, dtype in zip(names, workload.dtypes, strict=True)
    }
    variables = {
        name: Var(name, scalar_type(usual, workload.dtypes))
        for name, usual in scalars.items()
    }
    updated = [array for name, array in arrays.items() if name not in read]

    def element(i: Expr) -> Any:
        held = {name: wide(array[i]) for name, array in arrays.items()}
        made = body(**held, **variables, **given)
        return tuple(
            stored(value, array.dtype)
            for value, array in zip(made, updated, strict=True)
        )

    called = tuple(f"next_{array.buffer.name}" for array in updated)
    new = compute((n,), element, called)
    return function(
        workload.operator.replace(".", "_"),
        [arrays[name] for name in names if name in read],
        [],
        inplace=list(zip(updated, new if len(updated) > 1 else (new,), strict=True)),
        scalars=tuple(variables.values()),
    )
