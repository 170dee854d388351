"""Collectives: expressions that the 32 lanes of a warp evaluate together.

    s: f32 = x[i] + shuffle_xor(x[i], 16)

Each lane gives its arguments and gets its own result, made of the arguments of all. A
lane is a thread by its number modulo 32 (`thread.x` counts fastest). All lanes of a
warp have to come there at once: so a collective never stands in a branch of a `select`
or below a mask, and the interpreter faults where a lane of the warp is missing.

Only some targets have them: `Target.features` names which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tensorlang.errors import DTypeError, IRError
from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.natives import DTypes, Intrinsic
from tensorlang.ir.nodes import Call, Expr, ExprLike, Node, as_expr
from tensorlang.ir.visit import walk

WARP: Final = 32


@dataclass(frozen=True, slots=True)
class Collective(Intrinsic):
    """A named function of the values of all lanes of its scope.

    `numpy` is the meaning, on arrays of (groups, lanes of the scope) or, for vectors,
    (groups, lanes of the scope, lanes of the vector).

    Attributes:
        scope: Whose lanes evaluate it together.
        feature: What a target has that has it.
    """

    scope: str = "warp"
    feature: str = "shuffle"


def _shuffled(name: str) -> Callable[[DTypes], DType]:
    def result(dtypes: DTypes) -> DType:
        value, lane = dtypes
        if value.lanes > 1 or value.is_bool:
            raise DTypeError(f"{name} moves one number of a lane, not {value}")
        if lane != i64:
            raise DTypeError(f"{name} takes its lane as i64, not {lane}")
        return value

    return result


def _from(source: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The value of lane `source(own, given)`; one's own where there is no such lane."""

    def meaning(values: Any, given: Any) -> Any:
        own = np.arange(WARP)[None, :]
        lane = source(own, given)
        inside = (lane >= 0) & (lane < WARP)
        return np.take_along_axis(values, np.where(inside, lane, own), axis=1)

    return meaning


_TABLE: Final = (
    Collective(
        "shuffle_xor",
        2,
        _shuffled("shuffle_xor"),
        _from(np.bitwise_xor),
        "a of the lane whose number is one's own xor b",
    ),
    Collective(
        "shuffle_down",
        2,
        _shuffled("shuffle_down"),
        _from(np.add),
        "a of the lane b further; of the last b lanes, their own",
    ),
    Collective(
        "shuffle_index",
        2,
        _shuffled("shuffle_index"),
        _from(lambda _, given: given),
        "a of the lane of number b",
    ),
)
COLLECTIVES: Final = {entry.name: entry for entry in _TABLE}


def is_collective(node: Node) -> bool:
    """Whether a node is the call of a collective."""
    return isinstance(node, Call) and node.name in COLLECTIVES


def collectives_in(node: Node) -> Iterator[Collective]:
    """The collectives that are called somewhere in a tree."""
    for part in walk(node):
        if isinstance(part, Call) and part.name in COLLECTIVES:
            yield COLLECTIVES[part.name]


def collective(name: str, *args: ExprLike) -> Call:
    """The call of a collective; Python numbers are i64.

    Raises:
        IRError: no such collective, or a wrong number of arguments.
        DTypeError: the arguments' types do not fit it.
    """
    if name not in COLLECTIVES:
        known = ", ".join(sorted(COLLECTIVES))
        raise IRError(f"{name!r} is no collective; there are {known}")
    entry = COLLECTIVES[name]
    if len(args) != entry.arity:
        raise IRError(f"{name} takes {entry.arity} arguments, got {len(args)}")
    given: tuple[Expr, ...] = tuple(as_expr(arg) for arg in args)
    return Call(name, given, entry.result(tuple(arg.dtype for arg in given)))


def shuffle_xor(value: ExprLike, mask: ExprLike) -> Call:
    """`value` of the lane whose number differs from one's own in the bits of `mask`."""
    return collective("shuffle_xor", value, mask)


def shuffle_down(value: ExprLike, delta: ExprLike) -> Call:
    """`value` of the lane `delta` further; the last `delta` lanes get their own."""
    return collective("shuffle_down", value, delta)


def shuffle_index(value: ExprLike, lane: ExprLike) -> Call:
    """`value` of the lane of number `lane`."""
    return collective("shuffle_index", value, lane)
