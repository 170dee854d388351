"""Calls: match arrays and scalars with the parameters, and write results back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.frame_room import frame_room
from tensorlang.ir.contents import writes
from tensorlang.ir.interpreter.evaluate import evaluate
from tensorlang.ir.interpreter.execute import execute
from tensorlang.ir.interpreter.lanes import Array, Lanes
from tensorlang.ir.interpreter.memory import Memory
from tensorlang.ir.interpreter.state import ALL_CHECKS, FUEL, Machine, RunReport
from tensorlang.ir.nodes import Function, Param, Var

_WRITTEN_BACK: Final = ("out", "inout")


@frame_room
def run(
    func: Function,
    *arrays: Array,
    checks: frozenset[str] = ALL_CHECKS,
    fuel: int = FUEL,
    **scalars: float,
) -> RunReport:
    """Execute `func` on NumPy arrays; `out` and `inout` arrays are modified.

    Args:
        func: Any function, scheduled or not, lowered or not.
        arrays: One per parameter, with its dtype and (logical) shape; any strides.
        checks: The faults to detect: names from `ALL_CHECKS`.
        fuel: The maximal number of statements, so that every run ends.
        scalars: The function's scalars by name. A scalar that is a whole dimension of a
            parameter may be omitted.

    Returns:
        Statistics: steps, barriers, bank conflicts.

    Raises:
        InterpreterError: a fault; `out` arrays are then unchanged.
        ArgumentError: too many or too few arguments, or a read-only output.
        ShapeError: an array's shape is not the parameter's.
        DTypeError: an array's element type is not the parameter's.
    """
    _check_call(func, arrays, checks)
    changed = frozenset(buffer.name for buffer in writes(func.body))
    machine, lanes = Machine(checks, fuel, changed), Lanes.root()
    for name, value in _bound_scalars(func, arrays, scalars).items():
        lanes.bind(name, value)
    for param, array in zip(func.params, arrays, strict=True):
        machine.memories[param.buffer.name] = _memory(machine, lanes, param, array)
    execute(func.body, machine, lanes)
    for param, array in zip(func.params, arrays, strict=True):
        if param.role in _WRITTEN_BACK:
            array[...] = machine.memory(param.buffer).data.reshape(array.shape)
    return machine.report


def _check_call(
    func: Function, arrays: Sequence[Array], checks: frozenset[str]
) -> None:
    unknown = checks - ALL_CHECKS
    if unknown:
        raise ArgumentError(f"no checks {sorted(unknown)}; use {sorted(ALL_CHECKS)}")
    if len(arrays) != len(func.params):
        raise ArgumentError(
            f"{func.name} takes {len(func.params)} arrays, got {len(arrays)}"
        )
    for param, array in zip(func.params, arrays, strict=True):
        _check_array(func, param, array)


def _check_array(func: Function, param: Param, array: Array) -> None:
    buffer = param.buffer
    name = f"{func.name}: {buffer.name}"
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"{name} needs a NumPy array, not {type(array).__name__}")
    if array.dtype != buffer.dtype.numpy:
        raise DTypeError(f"{name} holds {buffer.dtype}, got an array of {array.dtype}")
    if array.ndim != buffer.ndim:
        raise ShapeError(
            f"{name} has {buffer.ndim} dimensions, got an array of shape {array.shape}"
        )
    if param.role in _WRITTEN_BACK and not array.flags.writeable:
        raise ArgumentError(f"{name} is written, but the array given is read-only")


def _bound_scalars(
    func: Function, arrays: Sequence[Array], given: Mapping[str, float]
) -> dict[str, Array]:
    """Every scalar's value, from the call or from the shapes."""
    values: dict[str, float] = dict(given)
    names = {var.name for var in func.scalars}
    for name in given:
        if name not in names:
            raise ArgumentError(f"{func.name} has no scalar {name}")
    for param, array in zip(func.params, arrays, strict=True):
        for extent, size in zip(param.buffer.shape, array.shape, strict=True):
            if isinstance(extent, Var) and extent in func.scalars:
                values.setdefault(extent.name, size)
    missing = [var.name for var in func.scalars if var.name not in values]
    if missing:
        raise ArgumentError(f"{func.name} needs the scalars {', '.join(missing)}")
    return {var.name: _converted(func, var, values[var.name]) for var in func.scalars}


def _converted(func: Function, var: Var, value: float) -> Array:
    if var.dtype.is_float:
        return np.array([value], np.float64).astype(var.dtype.numpy)
    low, high = var.dtype.limits
    if value != int(value) or not low <= value <= high:
        raise ArgumentError(f"{func.name}: {var.name} is {var.dtype}, got {value!r}")
    return np.array([int(value)]).astype(var.dtype.numpy)


def _memory(machine: Machine, lanes: Lanes, param: Param, array: Array) -> Memory:
    buffer = param.buffer
    extents = (evaluate(extent, machine, lanes) for extent in buffer.shape)
    shape = tuple(int(extent[0]) for extent in extents)
    if shape != array.shape:
        raise ShapeError(f"{buffer.name} has the shape {shape}, got {array.shape}")
    data = np.array(array, order="C", copy=True)
    return Memory(buffer, shape, param.role, lanes.frame, data=data)
