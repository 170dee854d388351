"""Collectives: expressions that the 32 lanes of a warp evaluate together.

    s: f32 = x[i] + shuffle_xor(x[i], 16)

Each lane passes its arguments and gets its own result, computed from the arguments of
all. Lanes are threads numbered modulo 32 (`thread.x` varies fastest). All lanes of a
warp must reach a collective together: it must not be in a branch of a `select` or below
a mask, and the interpreter faults if a lane is missing.

Only some targets have them, as listed in `Target.features`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tensorlang.errors import DTypeError, IRError
from tensorlang.frozen import frozen
from tensorlang.ir import mma
from tensorlang.ir.contents import contents
from tensorlang.ir.dtypes import DType, bf16, f16, f32, i64
from tensorlang.ir.natives import DTypes, Intrinsic
from tensorlang.ir.nodes import Call, Expr, ExprLike, Load, Node, as_expr
from tensorlang.ir.numeric import Array
from tensorlang.ir.visit import nodes_of

WARP: Final = 32
WARPGROUP: Final = 128  # threads that issue Hopper's `wgmma` together


@frozen
class Collective(Intrinsic):
    """A named function of the values of all lanes of its scope.

    `numpy` defines its semantics, on arrays of (groups, lanes of the scope) or, for
    vectors, (groups, lanes of the scope, lanes of the vector).
    """

    scope: str = "warp"  # scope whose lanes evaluate it together
    feature: str = "shuffle"  # target feature it requires


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
    """The value of lane `source(own, given)`; the lane's own value if out of range."""

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
    "a 16x{0} times b {0}x8 plus c 16x8, distributed over the lanes; exact products"
)
_TABLE: Final = (
    Collective(
        "ldmatrix_x4",
        1,
        _moved("ldmatrix_x4"),
        lambda rows: mma.fragment(rows, turned=False),
        "four 8x8 matrices in shared memory: lane l addresses row l % 8 of matrix "
        "l // 8, and receives two elements of each, row l // 4 from column l % 4 * 2",
        feature="ldmatrix",
    ),
    Collective(
        "ldmatrix_x4_trans",
        1,
        _moved("ldmatrix_x4_trans"),
        lambda rows: mma.fragment(rows, turned=True),
        "like ldmatrix_x4, with the matrices transposed",
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
        "a of the lane with this lane's number xor b",
    ),
    Collective(
        "shuffle_down",
        2,
        _shuffled("shuffle_down"),
        _from(np.add),
        "a of the lane b higher; the last b lanes get their own",
    ),
    Collective(
        "shuffle_index",
        2,
        _shuffled("shuffle_index"),
        _from(lambda _, given: given),
        "a of the lane with number b",
    ),
)
COLLECTIVES: Final = {entry.name: entry for entry in _TABLE}


def is_collective(node: Node) -> bool:
    """Whether a node is the call of a collective."""
    return isinstance(node, Call) and node.name in COLLECTIVES


def collectives_in(node: Node) -> Iterator[Collective]:
    """The collectives that are called somewhere in a tree."""
    if contents(node).calls.isdisjoint(COLLECTIVES):
        return
    for call in nodes_of(node, Call):
        if call.name in COLLECTIVES:
            yield COLLECTIVES[call.name]


def collective(name: str, *args: ExprLike) -> Call:
    """The call of a collective; Python numbers are i64.

    Raises:
        IRError: no such collective, or a wrong number of arguments.
        DTypeError: the arguments' types do not fit it.
    """
    if name not in COLLECTIVES:
        known = ", ".join(sorted(COLLECTIVES))
        raise IRError(f"{name!r} is not a collective; these are {known}")
    entry = COLLECTIVES[name]
    if len(args) != entry.arity:
        raise IRError(f"{name} takes {entry.arity} arguments, got {len(args)}")
    given: tuple[Expr, ...] = tuple(as_expr(arg) for arg in args)
    if entry.feature == "ldmatrix" and not isinstance(given[0], Load):
        raise IRError(f"{name} takes a load, such as {name}(x[i, ramp(k, 1, 8)])")
    return Call(name, given, entry.result(tuple(arg.dtype for arg in given)))


def shuffle_xor(value: ExprLike, mask: ExprLike) -> Call:
    """`value` of the lane whose number is this one's XOR `mask`."""
    return collective("shuffle_xor", value, mask)


def shuffle_down(value: ExprLike, delta: ExprLike) -> Call:
    """`value` of the lane `delta` higher; the last `delta` lanes get their own."""
    return collective("shuffle_down", value, delta)


def shuffle_index(value: ExprLike, lane: ExprLike) -> Call:
    """`value` of the lane with number `lane`."""
    return collective("shuffle_index", value, lane)
