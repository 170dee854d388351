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
from typing import Final

import numpy as np

from tensorlang.errors import DTypeError, IRError
from tensorlang.ir import mma
from tensorlang.ir.dtypes import DType, bf16, f16, f32, i64
from tensorlang.ir.natives import DTypes, Intrinsic
from tensorlang.ir.nodes import Call, Expr, ExprLike, Load, Node, as_expr
from tensorlang.ir.numeric import Array
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


def _from(source: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """The value of lane `source(own, given)`; one's own where there is no such lane."""

    def meaning(values: Array, given: Array) -> Array:
        own = np.arange(WARP)[None, :]
        lane = source(own, given)
        inside = (lane >= 0) & (lane < WARP)
        return np.take_along_axis(values, np.where(inside, lane, own), axis=1)

    return meaning


_HALVES: Final = ("f16", "bf16")


def _moved(name: str) -> Callable[[DTypes], DType]:
    def result(dtypes: DTypes) -> DType:
        (row,) = dtypes
        if row.name not in _HALVES or row.lanes != 8:
            raise DTypeError(f"{name} takes a row of 8 f16 or bf16, not {row}")
        return row

    return result


def _multiplied(name: str, element: DType, a: int, b: int) -> Callable[[DTypes], DType]:
    wanted = element.vector(a), element.vector(b), f32.vector(4)

    def result(dtypes: DTypes) -> DType:
        if dtypes != wanted:
            raise DTypeError(f"{name} takes {wanted}, got {dtypes}")
        return wanted[2]

    return result


_MMA: Final = (
    "a 16x{0} times b {0}x8 plus c 16x8, spread over the lanes; exact products"
)
_TABLE: Final = (
    Collective(
        "ldmatrix_x4",
        1,
        _moved("ldmatrix_x4"),
        lambda rows: mma.fragment(rows, turned=False),
        "four matrices 8x8 in shared memory, of which lane l loads row l % 8 of the "
        "one numbered l // 8: of each, the row l // 4 from column l % 4 * 2",
        feature="ldmatrix",
    ),
    Collective(
        "ldmatrix_x4_trans",
        1,
        _moved("ldmatrix_x4_trans"),
        lambda rows: mma.fragment(rows, turned=True),
        "as ldmatrix_x4, of the matrices transposed",
        feature="ldmatrix",
    ),
    Collective(
        "mma_m16n8k16_bf16",
        3,
        _multiplied("mma_m16n8k16_bf16", bf16, 8, 4),
        mma.mma16,
        _MMA.format(16),
        feature="mma",
    ),
    Collective(
        "mma_m16n8k16_f16",
        3,
        _multiplied("mma_m16n8k16_f16", f16, 8, 4),
        mma.mma16,
        _MMA.format(16),
        feature="mma",
    ),
    Collective(
        "mma_m16n8k8_tf32",
        3,
        _multiplied("mma_m16n8k8_tf32", f32, 4, 2),
        mma.mma8,
        _MMA.format(8) + " of a and b rounded to tf32",
        feature="mma",
    ),
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
    if entry.feature == "ldmatrix" and not isinstance(given[0], Load):
        raise IRError(f"{name} takes a load, such as {name}(x[i, ramp(k, 1, 8)])")
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
