"""Evaluate expressions, in all lanes at once."""

from __future__ import annotations

from itertools import count

import numpy as np

from tensorlang import lazy
from tensorlang.errors import InterpreterError
from tensorlang.ir import nodes as ir
from tensorlang.ir import semantics
from tensorlang.ir.by_class import by_class
from tensorlang.ir.collectives import COLLECTIVES
from tensorlang.ir.contraction import as_fma
from tensorlang.ir.dtypes import DType
from tensorlang.ir.interpreter.collective import evaluate_collective
from tensorlang.ir.interpreter.lanes import Array, Lanes
from tensorlang.ir.interpreter.memory import locate, read
from tensorlang.ir.interpreter.state import Machine, fault
from tensorlang.ir.intrinsics import INTRINSICS

with lazy.modules(__name__):  # few programs need them
    from tensorlang.ir import math as expansions


@by_class
def evaluate(node: ir.Expr, machine: Machine, lanes: Lanes) -> Array:
    """The value of `node`: length 1 if uniform across lanes, else one per lane.

    Raises:
        InterpreterError: a fault in an active lane.
    """
    del machine, lanes
    raise InterpreterError(f"{type(node).__name__} is not an expression")


@evaluate.register
def _(node: ir.Const, machine: Machine, _lanes: Lanes) -> Array:
    return machine.derived(node, _constant)


def _constant(node: ir.Const) -> Array:
    if node.dtype.is_float:
        return np.array([node.value]).astype(node.dtype.numpy)
    return np.array([node.value], node.dtype.numpy)


@evaluate.register
def _(node: ir.Var, _machine: Machine, lanes: Lanes) -> Array:
    return lanes.lookup(node.name)


@evaluate.register
def _(node: ir.Unary, machine: Machine, lanes: Lanes) -> Array:
    return semantics.unary(node.op, node.dtype, evaluate(node.a, machine, lanes))


@evaluate.register
def _(node: ir.Binary, machine: Machine, lanes: Lanes) -> Array:
    if node.dtype.is_float:
        fma = machine.derived(node, as_fma)
        if fma is not None:
            return evaluate(fma, machine, lanes)
    a, b = evaluate(node.a, machine, lanes), evaluate(node.b, machine, lanes)
    if node.op in ("floordiv", "floormod"):
        _refuse_zero(node, b, lanes)
    return semantics.binary(node.op, node.dtype, *_matched(a, b))


def _refuse_zero(node: ir.Binary, b: Array, lanes: Lanes) -> None:
    """Fault in lanes whose divisor is 0."""
    bad = b == 0
    if bad.any():
        at = tuple(np.argwhere(bad)[0])
        raise fault(lanes, int(at[0]), f"division by zero in {node!r}")


@evaluate.register
def _(node: ir.Compare, machine: Machine, lanes: Lanes) -> Array:
    a, b = evaluate(node.a, machine, lanes), evaluate(node.b, machine, lanes)
    return semantics.compare(node.op, *_matched(a, b))


@evaluate.register
def _(node: ir.Select, machine: Machine, lanes: Lanes) -> Array:
    parts = (evaluate(e, machine, lanes) for e in (node.cond, node.a, node.b))
    return np.where(*_matched(*parts))


@evaluate.register
def _(node: ir.Cast, machine: Machine, lanes: Lanes) -> Array:
    value = evaluate(node.a, machine, lanes)
    return semantics.cast(node.dtype, node.a.dtype, value)


@evaluate.register
def _(node: ir.Bitcast, machine: Machine, lanes: Lanes) -> Array:
    value = np.ascontiguousarray(evaluate(node.a, machine, lanes))
    return semantics.bitcast(node.dtype, value)


@evaluate.register
def _(node: ir.Load, machine: Machine, lanes: Lanes) -> Array:
    indices = [evaluate(index, machine, lanes) for index in node.indices]
    mask = None if node.mask is None else evaluate(node.mask, machine, lanes)
    memory = machine.memory(node.buffer)
    place = locate(machine, lanes, memory, indices, mask)
    return read(machine, lanes, place, plain=id(node) not in machine.updated)


@evaluate.register
def _(node: ir.Call, machine: Machine, lanes: Lanes) -> Array:
    if node.name == "prefetch":  # accesses no memory, so any address is valid
        return np.ones(1, np.bool_)
    if node.name not in INTRINSICS:
        raise InterpreterError(f"{node.name!r} is not an intrinsic")
    if INTRINSICS[node.name].expands:
        return _expanded(node, machine, lanes)
    if node.name in COLLECTIVES:
        given = [evaluate(arg, machine, lanes) for arg in node.args]
        return evaluate_collective(node, lanes, given)
    args = _matched(*(evaluate(arg, machine, lanes) for arg in node.args))
    if node.name == "check" and not args[0].all():
        at = tuple(np.argwhere(~args[0])[0])
        code = np.broadcast_to(args[1], args[0].shape)[at]
        raise fault(lanes, int(at[0]), f"check failed with code {code}: {node!r}")
    return semantics.call(node.name, *args)


def _expanded(node: ir.Call, machine: Machine, lanes: Lanes) -> Array:
    """A mathematical function by its expansion, in that order of operations."""
    lets, result = machine.derived(node, _expand)
    for let in lets:
        lanes.bind(let.var.name, evaluate(let.value, machine, lanes))
    return evaluate(result, machine, lanes)


def _expand(node: ir.Call) -> tuple[tuple[ir.Let, ...], ir.Expr]:
    numbers = count()

    def variable(name: str, dtype: DType) -> ir.Var:
        return ir.Var(f"@{id(node)}.{name}.{next(numbers)}", dtype)

    return expansions.expand(node, variable)


@evaluate.register
def _(node: ir.Ramp, machine: Machine, lanes: Lanes) -> Array:
    base, stride = (evaluate(e, machine, lanes) for e in (node.base, node.stride))
    if node.lanes == 1:
        return base
    steps = np.arange(node.lanes).astype(node.dtype.numpy)
    return base[:, None] + stride[:, None] * steps


@evaluate.register
def _(node: ir.Splat, machine: Machine, lanes: Lanes) -> Array:
    value = evaluate(node.value, machine, lanes)
    return value if node.lanes == 1 else np.repeat(value[:, None], node.lanes, axis=1)


@evaluate.register
def _(node: ir.Shuffle, machine: Machine, lanes: Lanes) -> Array:
    vectors = [_vector(e, machine, lanes) for e in node.vectors]
    count = max(vector.shape[0] for vector in vectors)
    every = [np.broadcast_to(v, (count, v.shape[1])) for v in vectors]
    taken = np.concatenate(every, axis=1)[:, list(node.lanes_taken)]
    return taken[:, 0] if len(node.lanes_taken) == 1 else taken


@evaluate.register
def _(node: ir.Extract, machine: Machine, lanes: Lanes) -> Array:
    return _vector(node.vector, machine, lanes)[:, node.lane]


@evaluate.register
def _(node: ir.Insert, machine: Machine, lanes: Lanes) -> Array:
    vector = _vector(node.vector, machine, lanes)
    value = evaluate(node.value, machine, lanes)
    count = max(vector.shape[0], value.shape[0])
    made = np.broadcast_to(vector, (count, vector.shape[1])).copy()
    made[:, node.lane] = value
    return made[:, 0] if node.dtype.lanes == 1 else made


@evaluate.register
def _(node: ir.LaneReduce, machine: Machine, lanes: Lanes) -> Array:
    vector = _vector(node.vector, machine, lanes)
    while vector.shape[1] > 1:  # an odd last lane is kept for the next round
        half = vector.shape[1] // 2
        low, high = vector[:, :half], vector[:, half : 2 * half]
        folded = semantics.binary(node.op, node.dtype, low, high)
        vector = np.concatenate([folded, vector[:, 2 * half :]], axis=1)
    return vector[:, 0]


def _vector(node: ir.Expr, machine: Machine, lanes: Lanes) -> Array:
    value = evaluate(node, machine, lanes)
    return value[:, None] if node.dtype.lanes == 1 else value


def _matched(*values: Array) -> list[Array]:
    """Make values broadcast: next to a vector, scalars get a second dimension."""
    if max([value.ndim for value in values]) == min([value.ndim for value in values]):
        return list(values)
    return [v if v.ndim > 1 else v[:, None] for v in values]
