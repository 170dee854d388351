"""The IR: one grammar for definitions, schedules and lowered code.

    function  = Function(name, params, scalars, body)
    param     = Param(buffer, role)                   role: in | out | inout
    buffer    = Buffer(name, dtype, shape, scope, layout)
                scope: global | shared | register | private
                layout: IndexMap(vars, results) | None
    stmt      = Seq(stmts)                            in order; scope of Let and Alloc
              | Let(var, value)                       scope: the rest of its Seq
              | Alloc(buffer)                         scope: the rest of its Seq
              | For(var, extent, kind, body, thread)  var runs over 0 .. extent-1
                kind: serial | parallel | vectorized | unrolled | bound
              | While(cond, body)
              | If(cond, then, orelse)
              | Store(buffer, indices, value, mask, hints)
              | Reduce(reducer, buffers, indices, values)
              | AtomicUpdate(op, buffer, indices, value)
              | Block(name, axes, where, init, body, scope)
              | Barrier(scope)
              | Evaluate(expr)
              | Role(cond, body, registers)           warp specialization
              | BarrierObject(name, count, size)      scope: the rest of its Seq
              | Arrive(name, index, copies) | Wait(name, index, phase)
    axis      = Axis(var, kind, extent, value)
                kind: spatial | reduction | ordered | opaque | disjoint
    reducer   = Reducer(name, left, right, identity, combine, commutative)
    expr      = Const(value, dtype) | Var(name, dtype)
              | Unary(op, a) | Binary(op, a, b, contract) | Compare(op, a, b)
              | Select(cond, a, b) | Cast(dtype, a) | Bitcast(dtype, a)
              | Load(buffer, indices, mask, hints) | Call(name, args, dtype)
              | Ramp(base, stride, lanes) | Splat(value, lanes)
              | Shuffle(vectors, lanes_taken) | Extract(vector, lane)
              | Insert(vector, lane, value) | LaneReduce(op, vector)

Semantics (the interpreter implements this text):

*A function is a host program.* Its outermost statements run one after the other, each
seeing all memory effects of those before it, whatever runs in parallel inside. An `in`
parameter is never written, and an `out` parameter is never read before it is written;
elements of an `inout` one may be updated if each is read only before it is written and
by the same iteration. `scalars` are integers or floats passed at each call; a scalar
that is a whole dimension in the shape of a parameter is bound from that shape.

*Loops start at 0.* An extent is evaluated once, on entry; if it is 0 or less, the loop
does not run. `parallel` iterations may run in any order or concurrently, `vectorized`
ones in lock-step, `bound` ones as index `thread` of an execution scope (`block.x`,
`thread.x`): in all three, no iteration may touch what another one writes, except that
lanes of a `vectorized` loop, or the threads of a block, may reduce one state with a
commutative reducer. `unrolled` is a serial loop, expanded.

*A block is one computation with its own axes.* Each iteration around it gives every
axis a value; the body sees only axes, never loop variables. A *spatial* value names the
output element computed; a *reduction* axis is reduced in any order through the reducer;
an *ordered* axis runs in increasing order (scans); an *opaque* one may touch any
element, and is neither reordered nor parallelized unless it is declared *disjoint*:
then no two iterations touch the same element, which the interpreter checks. An instance
is skipped if `where` is false, a condition on the loops around (one on an axis applies
to the axis's value). `init` runs before the first instance of the reduction axes for
each spatial point. If a body contains a `Reduce` and the block has no `init`, the state
starts from the reducer's identity; `Reduce(r, bs, is, vs)` replaces the state tuple by
`combine(state, vs)`. The state of a point with empty reduction axes is undefined:
whoever allows that initializes the state in a block of its own. `min` and `max` ignore
NaNs: a reduction that starts from a NaN and meets no number is NaN, or the identity. An
empty `init` says that the state was initialized elsewhere: by a block of its own, after
`decompose_reduction`. (A block without reduction axes runs `Reduce` as a plain update
of memory: this is how an accumulating write-back reads.)

*Arithmetic.* Integers wrap: a result is the exact one modulo 2 to the power of its
bits, in indices as in data. The minimum of a signed type is thus its own `neg` and
`abs`, and divided by -1 it is itself, with remainder 0. `div` is for floats; `floordiv`
and `floormod` are for integers and round towards minus infinity (division by zero is a
fault). A shift by the width or more, or by a negative amount, shifts all bits out:
`shl` gives 0, `shr` the sign, -1 or 0. `min`/`max` of floats return the other operand
for one NaN, and either of 0 and -0. The payload of a NaN result is unspecified, but
plain moves of floats keep all bits, and `neg` and `abs` all but the sign. Float
operations are strict, except that `contract` lets an addition be fused with the product
beside it, without the intermediate rounding; a float *reduction* may be re-associated
by a schedule. `Cast` to an integer truncates towards zero, wraps among integers, and
saturates from floats (NaN gives 0); `Cast` to a float rounds to nearest even. A
masked-off lane of a load is 0, and one of a store leaves memory unchanged.

*Roles* that follow each other in a sequence run concurrently: each is a program of the
warps of a block for which `cond` holds (in all threads of a warp or in none), and they
synchronize only at barrier objects. A *barrier object* counts phases, from 0: a phase
completes after `count` arrivals, which opens the next one. `Arrive` orders everything
its thread did, and observed, before the end of the open phase; with `copies`, which run
asynchronously to the thread, it arrives when these are done. `Wait` continues after the
end of phase number `phase`; the phase before the first one counts as complete. As the
hardware distinguishes phases by parity only, waiting for any phase but the open one and
the one before it is a fault; so is a wait that can no longer end. A block of a *scope*
other than `thread` is a collective: all threads of that scope reach it with the same
axes, and together they run its body once. What they write to registers is private to
each thread: a register buffer allocated outside the threads is distributed over them by
its layout, whose first result is the thread.

*Warp collectives* (`tensorlang.ir.collectives`) are expressions evaluated by the 32
lanes of a warp together: each lane passes its arguments and receives a result that
depends on all of them. A missing lane is a fault; so is a call outside of threads.

*Asynchronous copies.* A store hinted `async` only starts. `commit_copies` groups the
copies a thread has started, `wait_copies(n)` waits for all but its last `n` groups;
until then their elements may be neither read nor written. To other threads such a store
happens at the wait. Products of warpgroups are over at once, but in a loop with
`wait_products(n)`, which waits for all but the last `n` of them: until then a GPU reads
their operands, and their sums may not be accessed.

*Names.* Within a function every loop variable, axis, `Let` and buffer has a unique name
along every path from the root (siblings may share), every block a unique name. Trees
are immutable and compared by structure, names included.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from functools import lru_cache
from threading import Lock
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from tensorlang import lazy
from tensorlang.errors import DTypeError, IRError
from tensorlang.ir.dtypes import DType, as_dtype, boolean, f32, i64
from tensorlang.ir.node_class import node
from tensorlang.ir.numeric import narrow_to_odd

with lazy.modules(__name__):  # they stand on nodes
    from tensorlang.ir import visit
    from tensorlang.ir.text import printer


UNARY: Final = ("neg", "not", "abs")
ARITHMETIC: Final = ("add", "sub", "mul", "div", "floordiv", "floormod", "min", "max")
BITWISE: Final = ("and", "or", "xor", "shl", "shr")
COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
LANE_REDUCTIONS: Final = ("add", "mul", "min", "max", "and", "or", "xor")
LOOP_KINDS: Final = ("serial", "parallel", "vectorized", "unrolled", "bound")
AXIS_KINDS: Final = ("spatial", "reduction", "ordered", "opaque", "disjoint")
BUFFER_SCOPES: Final = ("global", "shared", "register", "private")
EXECUTION_SCOPES: Final = ("thread", "warp", "warpgroup", "block", "cluster")
HINTS: Final = ("aligned", "nontemporal", "prefetch", "async")
ROLES: Final = ("in", "out", "inout")

_BINARY: Final = frozenset(ARITHMETIC + BITWISE)
_DEFINED: Final = {
    "float": frozenset(("add", "sub", "mul", "div", "min", "max")),
    "bool": frozenset(("and", "or", "xor")),
    "int": _BINARY - {"div"},
    "uint": _BINARY - {"div"},
}

Scalar: TypeAlias = bool | int | float


def _same(what: str, a: DType, b: DType, name: str = "") -> None:
    if a is not b:
        of = f"{what} {name}" if name else what
        how = (
            f"; convert one, as by .cast({str(a.scalar)!r})"
            if a.lanes == b.lanes
            else ""
        )
        raise DTypeError(f"{of} needs operands of one type, got {a} and {b}{how}")


class Node:
    """Any node of the tree: immutable, equal by structure, hashable."""

    # cached properties
    __slots__ = ("_contents", "_free", "_hash", "_kinds", "_parts", "_structure")

    def __reduce__(self) -> tuple[type[Node], tuple[object, ...]]:
        given = (f for f in fields(self) if f.init)  # type: ignore[arg-type]
        return type(self), tuple(getattr(self, f.name) for f in given)

    def __repr__(self) -> str:
        return printer.show(self)


# ---------------------------------------------------------------- expressions


def _left(op: str) -> _Operator:
    """Python's operator for an operation, of the object on its left."""
    return lambda a, b: binary(op, a, b)


def _right(op: str) -> _Operator:
    """The same of the object on its right."""
    return lambda b, a: binary(op, a, b)


def _comparison(op: str) -> _Operator:
    return lambda a, b: compare(op, a, b)


class Operand:
    """Builds expressions with Python's operators (`==` compares objects)."""

    __slots__ = ()

    def expression(self) -> Expr:
        """The expression that it stands for; IRError if there is none."""
        raise NotImplementedError

    def __tensorlang_op__(
        self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> object:
        """Apply an elementwise operator's formula to expressions."""
        return op.inlined(args, kwargs)

    __add__, __radd__ = _left("add"), _right("add")
    __sub__, __rsub__ = _left("sub"), _right("sub")
    __mul__, __rmul__ = _left("mul"), _right("mul")
    __truediv__, __rtruediv__ = _left("div"), _right("div")
    __floordiv__, __rfloordiv__ = _left("floordiv"), _right("floordiv")
    __mod__, __rmod__ = _left("floormod"), _right("floormod")
    __and__, __or__, __xor__ = _left("and"), _left("or"), _left("xor")
    __lshift__, __rshift__ = _left("shl"), _left("shr")
    __lt__, __le__ = _comparison("lt"), _comparison("le")
    __gt__, __ge__ = _comparison("gt"), _comparison("ge")

    def __neg__(self) -> Expr:
        return Unary("neg", as_expr(self))

    def __invert__(self) -> Expr:
        return Unary("not", as_expr(self))

    def equal(self, other: ExprLike) -> Expr:
        """The comparison `self == other` as an expression."""
        return compare("eq", self, other)

    def not_equal(self, other: ExprLike) -> Expr:
        """The comparison `self != other` as an expression."""
        return compare("ne", self, other)

    def cast(self, dtype: DType | str) -> Expr:
        """This value converted to `dtype`; unchanged if it has that type."""
        return cast(dtype, self)


class Expr(Node, Operand):
    """A value; Python's operators build larger ones (`==` compares trees)."""

    __slots__ = ()
    dtype: DType

    def expression(self) -> Expr:
        """The expression itself."""
        return self

    def __bool__(self) -> bool:
        raise IRError(
            "an expression has no truth value while the program is being built; "
            "use select(cond, a, b), & and |"
        )


ExprLike: TypeAlias = "Operand | bool | int | float"
_Operator: TypeAlias = Callable[[Operand, ExprLike], Expr]


@node
class Const(Expr):
    """A literal of a scalar type, rounded or wrapped to it; compared by bits."""

    value: Scalar
    dtype: DType

    def __post_init__(self) -> None:
        if self.dtype.lanes != 1:
            raise IRError(f"a constant is a scalar, not {self.dtype}")
        value = _canonical(self.value, self.dtype)
        if value is not self.value:
            object.__setattr__(self, "value", value)

    def _bits(self) -> bytes:
        return struct.pack("<d", self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const) or self.dtype is not other.dtype:
            return False
        if self.dtype.is_float:
            return self._bits() == other._bits()
        return self.value == other.value

    def __hash__(self) -> int:
        found: int | None = self._hash  # type: ignore[attr-defined]
        if found is None:
            bits = self._bits() if self.dtype.is_float else self.value
            found = hash(("Const", self.dtype, bits))
            object.__setattr__(self, "_hash", found)
        return found


def _canonical(value: Scalar, dtype: DType) -> Scalar:
    if dtype.is_bool:
        return bool(value)
    if dtype.is_integer:
        low, high = dtype.limits
        if type(value) is int and low <= value <= high:
            return value
        if isinstance(value, float) and not value.is_integer():
            raise DTypeError(f"{value!r} is not a value of {dtype}")
        whole = int(value)
        return whole if low <= whole <= high else (whole - low) % (high - low + 1) + low
    number = float(value)
    if math.isnan(number):
        return math.nan
    if dtype.name == "f64" or math.isinf(number):
        return number
    with np.errstate(over="ignore"):
        wide = np.asarray(number)
        once = narrow_to_odd(wide) if dtype.name == "bf16" else wide  # via f32
        return float(once.astype(dtype.numpy))


@node
class Var(Expr):
    """A named scalar: a loop variable, an axis, a `Let`, or a function's scalar.

    Instances are unique: passes look variables up more often than anything else.
    """

    name: str
    dtype: DType = i64

    def __new__(cls, name: str, dtype: DType = i64) -> Var:  # noqa: D102, PYI034
        found = _VARIABLES.get((name, dtype))
        if found is None:
            with _MAKING:
                found = _VARIABLES.get((name, dtype))
                if found is None:
                    found = object.__new__(cls)
                    object.__setattr__(found, "name", name)
                    object.__setattr__(found, "dtype", dtype)
                    object.__setattr__(found, "_free", frozenset((found,)))
                    _VARIABLES[name, dtype] = found
        return found


_VARIABLES: Final = WeakValueDictionary[tuple[str, DType], Var]()
_MAKING: Final = Lock()

if hasattr(os, "register_at_fork"):
    # a lock held by another thread would never be released in the child
    os.register_at_fork(
        before=_MAKING.acquire,
        after_in_parent=_MAKING.release,
        after_in_child=_MAKING.release,
    )


@node
class Unary(Expr):
    """`neg` and `abs` of a number, `not` of an integer's bits or of a bool."""

    op: str
    a: Expr

    def __post_init__(self) -> None:
        if self.op not in UNARY:
            raise IRError(f"{self.op!r} is not one of the unary operations {UNARY}")
        if self.op == "not" and self.a.dtype.is_float:
            raise DTypeError(f"'not' needs an integer or bool, got {self.a.dtype}")
        if self.op != "not" and self.a.dtype.is_bool:
            raise DTypeError(f"{self.op!r} needs a number, got {self.a.dtype}")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The operand's type."""
        return self.a.dtype


@node
class Binary(Expr):
    """Arithmetic or bitwise operation on operands of one type (see `ARITHMETIC`)."""

    op: str
    a: Expr
    b: Expr
    contract: bool = False
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.op not in _BINARY:
            raise IRError(f"{self.op!r} is not a binary operation")
        dtype = self.a.dtype
        if dtype is not self.b.dtype:
            _same(repr(self.op), dtype, self.b.dtype)
        if self.op not in _DEFINED[dtype.kind]:
            raise DTypeError(f"{self.op!r} is not defined on {dtype}")
        object.__setattr__(self, "dtype", dtype)


@node
class Compare(Expr):
    """`eq ne lt le gt ge` of two operands of one type; a bool (NaN is unordered)."""

    op: str
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise IRError(f"{self.op!r} is not one of the comparisons {COMPARISONS}")
        if self.a.dtype is not self.b.dtype:
            _same(repr(self.op), self.a.dtype, self.b.dtype)

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """A bool, with the operands' lanes."""
        return boolean.vector(self.a.dtype.lanes)


@node
class Select(Expr):
    """`a` where `cond` holds, else `b`; both may be evaluated, so neither may fault."""

    cond: Expr
    a: Expr
    b: Expr

    def __post_init__(self) -> None:
        _same("select", self.a.dtype, self.b.dtype)
        if not self.cond.dtype.is_bool:
            raise IRError(f"select needs a bool, got {self.cond.dtype}")
        if self.cond.dtype.lanes not in (1, self.a.dtype.lanes):
            raise IRError(
                f"select of {self.a.dtype} on {self.cond.dtype}: lanes differ"
            )

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The type of both branches."""
        return self.a.dtype


@node
class Cast(Expr):
    """`a` converted to `dtype` by value, lane by lane."""

    dtype: DType
    a: Expr

    def __post_init__(self) -> None:
        if self.dtype.lanes != self.a.dtype.lanes:
            raise IRError(f"a cast keeps the lanes: {self.a.dtype} to {self.dtype}")


@node
class Bitcast(Expr):
    """The bits of `a` reinterpreted as `dtype`, lane by lane, with the same width."""

    dtype: DType
    a: Expr

    def __post_init__(self) -> None:
        if not (
            self.dtype.bits == self.a.dtype.bits
            and self.dtype.lanes == self.a.dtype.lanes
            and not self.dtype.is_bool
            and not self.a.dtype.is_bool
        ):
            raise IRError(
                f"a bitcast keeps width and lanes: {self.a.dtype} to {self.dtype}"
            )


@node
class IndexMap(Node):
    """A one-to-one map of indices, such as `(n, k) -> (n // 32, k, n % 32)`."""

    vars: tuple[Var, ...]
    results: tuple[Expr, ...]


@node
class Buffer(Node):
    """A rectangular array in memory: name, element type, logical shape, scope.

    `layout` maps logical to physical indices; without one, memory is row-major.
    """

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    scope: str = "global"
    layout: IndexMap | None = None

    def __post_init__(self) -> None:
        shape = tuple(as_expr(extent) for extent in self.shape)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        if self.dtype.lanes != 1:
            raise IRError(f"a buffer holds scalars, not {self.dtype}")
        if self.scope not in BUFFER_SCOPES:
            raise IRError(f"{self.scope!r} is not in {BUFFER_SCOPES}")
        for extent in shape:
            if extent.dtype != i64:
                raise IRError(f"{self.name}: a dimension is i64: {extent.dtype}")

    @property
    def ndim(self) -> int:
        """The number of logical dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: object) -> Load:
        given = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(as_expr(index) for index in given))


@node
class Load(Expr):
    """The element at `indices`; a vector where an index is one (0 where masked)."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    mask: Expr | None = None
    hints: tuple[str, ...] = ()
    dtype: DType = field(init=False, compare=False)

    def __post_init__(self) -> None:
        _check_access(self.buffer, self.indices, self.mask, self.hints)
        lanes = max((index.dtype.lanes for index in self.indices), default=1)
        object.__setattr__(self, "dtype", self.buffer.dtype.vector(lanes))


def _check_access(
    buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None, hints: tuple[str, ...]
) -> None:
    if len(indices) != buffer.ndim:
        raise IRError(
            f"{buffer.name} has {buffer.ndim} dimensions, indexed with {len(indices)}"
        )
    for index in indices:
        if index.dtype.scalar != i64:
            raise IRError(f"{buffer.name}: an index is i64, not {index.dtype}")
    if mask is not None and not mask.dtype.is_bool:
        raise IRError(f"{buffer.name}: a mask is a bool")
    if hints and not set(hints) <= set(HINTS):
        raise IRError(f"{buffer.name}: hints are {HINTS}, not {hints}")


@node
class Call(Expr):
    """A named function of `tensorlang.ir.intrinsics`, applied lane by lane.

    Those of `tensorlang.ir.collectives` apply to all lanes of a warp together.
    """

    name: str
    args: tuple[Expr, ...]
    dtype: DType


@node
class Ramp(Expr):
    """The vector `base, base + stride, base + 2*stride, ...`."""

    base: Expr
    stride: Expr
    lanes: int

    def __post_init__(self) -> None:
        _same("ramp", self.base.dtype, self.stride.dtype)
        if self.base.dtype.lanes != 1:
            raise IRError("a ramp starts from a scalar")
        if not self.base.dtype.is_integer:
            raise IRError("a ramp counts in integers")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The base's type with `lanes` lanes."""
        return self.base.dtype.vector(self.lanes)


@node
class Splat(Expr):
    """The vector with `value` in every lane."""

    value: Expr
    lanes: int

    def __post_init__(self) -> None:
        if self.value.dtype.lanes != 1:
            raise IRError("only a scalar is splat over lanes")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The value's type with `lanes` lanes."""
        return self.value.dtype.vector(self.lanes)


@node
class Shuffle(Expr):
    """Lanes selected by number from the concatenated `vectors`."""

    vectors: tuple[Expr, ...]
    lanes_taken: tuple[int, ...]

    def __post_init__(self) -> None:
        if not (self.vectors and self.lanes_taken):
            raise IRError("a shuffle needs vectors and lanes")
        for vector in self.vectors[1:]:
            _same("shuffle", self.vectors[0].dtype.scalar, vector.dtype.scalar)
        total = sum(vector.dtype.lanes for vector in self.vectors)
        if not all(0 <= lane < total for lane in self.lanes_taken):
            raise IRError(f"a shuffle of {total} lanes cannot take {self.lanes_taken}")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The element type with as many lanes as were taken."""
        return self.vectors[0].dtype.scalar.vector(len(self.lanes_taken))


@node
class Extract(Expr):
    """Lane number `lane` of a vector, as a scalar."""

    vector: Expr
    lane: int

    def __post_init__(self) -> None:
        if not 0 <= self.lane < self.vector.dtype.lanes:
            raise IRError(f"{self.vector.dtype} has no lane {self.lane}")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The vector's element type."""
        return self.vector.dtype.scalar


@node
class Insert(Expr):
    """`vector` with lane number `lane` replaced by the scalar `value`."""

    vector: Expr
    lane: int
    value: Expr

    def __post_init__(self) -> None:
        _same("insert", self.vector.dtype.scalar, self.value.dtype)
        if not 0 <= self.lane < self.vector.dtype.lanes:
            raise IRError(f"{self.vector.dtype} has no lane {self.lane}")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The vector's type."""
        return self.vector.dtype


@node
class LaneReduce(Expr):
    """All lanes of a vector reduced by `op`, in halves: lane i with lane i + n/2."""

    op: str
    vector: Expr

    def __post_init__(self) -> None:
        if self.op not in LANE_REDUCTIONS:
            raise IRError(f"{self.op!r} is not in {LANE_REDUCTIONS}")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The vector's element type."""
        return self.vector.dtype.scalar


def as_expr(value: ExprLike, dtype: DType | None = None) -> Expr:
    """`value` itself, or a Python number as a constant: i64, f32 or bool by default.

    Raises:
        DTypeError: it is no number, or an integer out of range for the type.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, np.bool_)):
        return Const(bool(value), dtype or boolean)
    if isinstance(value, (int, np.integer)):
        return _checked(int(value), dtype or i64)
    if isinstance(value, (float, np.floating)):
        return Const(float(value), dtype or f32)
    if isinstance(value, Operand):
        return value.expression()
    raise DTypeError(f"{value!r} is neither an expression nor a number")


def _checked(value: int, dtype: DType) -> Const:
    if dtype.is_integer:
        low, high = dtype.limits
        below = -(high // 2) - 1 if low == 0 else low  # -1 has all bits set
        if not below <= value <= high:
            raise DTypeError(f"{value} is not a value of {dtype}: {low} .. {high}")
    elif abs(value) >> 1024:  # beyond all floats
        raise DTypeError(f"an integer beyond 2**1024 is not a value of {dtype}")
    return whole(value, dtype)


@lru_cache(maxsize=1 << 12)
def whole(value: int, dtype: DType) -> Const:
    """An integer as a constant, wrapped to its type; equal ones share a node."""
    return Const(value, dtype)


def _pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """Both operands; a Python number takes the other one's type and lanes."""
    a, b = _opened(a), _opened(b)
    if isinstance(a, Expr) and isinstance(b, Expr):
        if a.dtype.lanes != b.dtype.lanes and 1 in (a.dtype.lanes, b.dtype.lanes):
            lanes = max(a.dtype.lanes, b.dtype.lanes)
            a, b = splat(a, lanes), splat(b, lanes)
        return a, b
    known = a if isinstance(a, Expr) else b
    if not isinstance(known, Expr):
        raise DTypeError(f"neither {a!r} nor {b!r} is an expression")
    kind, lanes = known.dtype.scalar, known.dtype.lanes
    return splat(as_expr(a, kind), lanes), splat(as_expr(b, kind), lanes)


def _opened(value: ExprLike) -> Expr | bool | int | float:
    return value.expression() if isinstance(value, Operand) else value


def ramp(first: Expr, lanes: int) -> Ramp:
    """The vector `first, first + 1, ...`."""
    return Ramp(first, Const(1, first.dtype), lanes)


def subvector(vector: Expr, first: int, count: int) -> Expr:
    """The lanes of a vector from `first` on; a scalar if it is one."""
    if count == 1:
        return Extract(vector, first)
    return Shuffle((vector,), tuple(range(first, first + count)))


def splat(value: Expr, lanes: int) -> Expr:
    """`value` broadcast to `lanes` lanes; unchanged if it has them."""
    return value if value.dtype.lanes == lanes else Splat(value, lanes)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`Binary(op, a, b)`; Python numbers and scalars adapt to the other side.

    An integer plus 0 or times 1, and a condition and True, are returned as they are.
    """
    a, b = _pair(a, b)
    neutral = _NEUTRAL.get((op, a.dtype.is_bool))
    if neutral is not None and a.dtype is b.dtype and not a.dtype.is_float:
        if isinstance(b, Const) and b.value == neutral:
            return a
        if op not in _ONE_SIDED and isinstance(a, Const) and a.value == neutral:
            return b
    return Binary(op, a, b)


# by operation, and whether of truth values: what leaves the other operand alone
_NEUTRAL: Final = {
    ("add", False): 0,
    ("sub", False): 0,
    ("mul", False): 1,
    ("floordiv", False): 1,
    ("and", True): True,
}
_ONE_SIDED: Final = frozenset({"sub", "floordiv"})  # where it stands on the right only


def unary(op: str, a: ExprLike) -> Expr:
    """`Unary(op, a)`: `neg`, `not` or `abs`."""
    return Unary(op, as_expr(a))


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`Compare(op, a, b)`; Python numbers and scalars adapt to the other side."""
    return Compare(op, *_pair(a, b))


def select(cond: ExprLike, a: ExprLike, b: ExprLike) -> Select:
    """`a` where `cond` holds, else `b`; a Python number takes the other's type.

    Both may be evaluated, so it does not guard memory accesses: clamp an index, as in
    `select(i > 0, x[max(i - 1, 0)], 0.0)`.

    Raises:
        DTypeError: the two have different types.
        IRError: `cond` is no bool.
    """
    a, b = _opened(a), _opened(b)
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        a = as_expr(a)
    return Select(as_expr(cond), *_pair(a, b))


def cast(dtype: DType | str, value: ExprLike) -> Expr:
    """`value` converted to `dtype`; unchanged if it has that type."""
    given, wanted = as_expr(value), as_dtype(dtype)
    return given if given.dtype == wanted else Cast(wanted, given)


def bitcast(dtype: DType | str, value: ExprLike) -> Bitcast:
    """The bits of `value` reinterpreted as `dtype`, lane by lane, same width."""
    return Bitcast(as_dtype(dtype), as_expr(value))


# ----------------------------------------------------------------- statements


class Stmt(Node):
    """An action; programs are trees of them."""

    __slots__ = ()


@node
class Seq(Stmt):
    """Statements in order; the scope of each `Let` and `Alloc` among them."""

    stmts: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        if Seq in map(type, self.stmts):
            raise IRError("a Seq holds no Seq: build it with seq(...)")


def seq(*stmts: Stmt | Iterable[Stmt]) -> Stmt:
    """The statements in order, flattened; a single one is returned as is."""
    flat: list[Stmt] = []
    for item in stmts:
        for stmt in (item,) if isinstance(item, Stmt) else item:
            if isinstance(stmt, Seq):
                flat += stmt.stmts
            else:
                flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


@node
class Let(Stmt):
    """Bind `var` to `value`, evaluated here, for the rest of the enclosing `Seq`."""

    var: Var
    value: Expr

    def __post_init__(self) -> None:
        _same("let", self.var.dtype, self.value.dtype, self.var.name)


@node
class Alloc(Stmt):
    """A temporary, initially undefined, in scope for the rest of its `Seq`."""

    buffer: Buffer


@node
class For(Stmt):
    """`body` for each value 0 .. extent-1 of `var`; `thread` only for kind `bound`."""

    var: Var
    extent: Expr
    kind: str
    body: Stmt
    thread: str = ""

    def __post_init__(self) -> None:
        if self.kind not in LOOP_KINDS:
            raise IRError(f"{self.kind!r} is not one of the loop kinds {LOOP_KINDS}")
        _same("the extent of loop", self.var.dtype, self.extent.dtype, self.var.name)
        if bool(self.thread) != (self.kind == "bound"):
            raise IRError(
                f"loop {self.var.name}: a bound loop, and no other, "
                "names its thread index"
            )


@node
class While(Stmt):
    """Repeat `body` as long as `cond` holds before it."""

    cond: Expr
    body: Stmt


@node
class If(Stmt):
    """`then` if `cond` holds, else `orelse`, if there is one."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Store(Stmt):
    """`buffer[indices] = value`; lanes with a false mask are left unchanged."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    hints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_access(self.buffer, self.indices, self.mask, self.hints)
        _same(
            f"a store to {self.buffer.name}", self.buffer.dtype, self.value.dtype.scalar
        )


@node
class Reducer(Node):
    """A monoid on tuples: `combine` of `left` and `right`, with its `identity`.

    `combine` has one expression per component, over the variables of both sides.
    """

    name: str
    left: tuple[Var, ...]
    right: tuple[Var, ...]
    identity: tuple[Expr, ...]
    combine: tuple[Expr, ...]
    commutative: bool = True

    def __post_init__(self) -> None:
        parts = (self.left, self.right, self.identity, self.combine)
        if not (self.left and len({len(part) for part in parts}) == 1):
            raise IRError(
                f"reducer {self.name}: left, right, identity, combine differ in length"
            )
        for component in zip(*parts, strict=True):
            for other in component[1:]:
                _same("reducer", component[0].dtype, other.dtype, self.name)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The types of the state's components."""
        return tuple(var.dtype for var in self.left)


@node
class Reduce(Stmt):
    """The state tuple `buffers[indices]` becomes `combine(state, values)`."""

    reducer: Reducer
    buffers: tuple[Buffer, ...]
    indices: tuple[Expr, ...]
    values: tuple[Expr, ...]

    def __post_init__(self) -> None:
        parts = (self.buffers, self.values)
        if any(len(part) != len(self.reducer.left) for part in parts):
            raise IRError(
                f"reducer {self.reducer.name} folds {len(self.reducer.left)} components"
            )
        for buffer, value, dtype in zip(*parts, self.reducer.dtypes, strict=True):
            _check_access(buffer, self.indices, None, ())
            _same("reducing into", buffer.dtype, dtype, buffer.name)
            _same("reducing into", dtype, value.dtype.scalar, buffer.name)


@node
class AtomicUpdate(Stmt):
    """`buffer[indices] = op(buffer[indices], value)`, atomically; `op` is binary."""

    op: str
    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        if self.op not in LANE_REDUCTIONS:
            raise IRError(f"{self.op!r} is not in {LANE_REDUCTIONS}")
        _check_access(self.buffer, self.indices, None, ())
        _same("an atomic update", self.buffer.dtype, self.value.dtype.scalar)


@node
class Axis(Node):
    """One axis of a block: its name, kind and extent, and its current value."""

    var: Var
    kind: str
    extent: Expr
    value: Expr

    def __post_init__(self) -> None:
        if self.kind not in AXIS_KINDS:
            raise IRError(f"{self.kind!r} is not one of the axis kinds {AXIS_KINDS}")
        _same("axis", self.var.dtype, self.value.dtype, self.var.name)


@node
class Block(Stmt):
    """One computation over its own axes, run by one execution `scope` at a time.

    Axes in `where` are replaced by their values.
    `line` is the source location, as `file:line`, for messages; not compared.
    """

    name: str
    axes: tuple[Axis, ...]
    body: Stmt
    where: Expr | None = None
    init: Stmt | None = None
    scope: str = "thread"
    line: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.scope not in EXECUTION_SCOPES:
            raise IRError(
                f"block {self.name}: {self.scope!r} is not in {EXECUTION_SCOPES}"
            )
        if self.where is not None:
            values = {axis.var: axis.value for axis in self.axes}
            object.__setattr__(self, "where", visit.substitute(self.where, values))


@node
class Role(Stmt):
    """`body`, run by the warps for which `cond` holds, concurrently to other roles.

    `registers` limits the registers per thread, out of the block's; 0 leaves the number
    unchanged.
    """

    cond: Expr
    body: Stmt
    registers: int = 0

    def __post_init__(self) -> None:
        if not (
            self.registers == 0
            or (24 <= self.registers <= 240 and self.registers % 8 == 0)
        ):
            raise IRError(
                f"a role has 24 to 240 registers, in eights, not {self.registers}"
            )


@node
class BarrierObject(Stmt):
    """`size` barrier objects of a block that count phases of `count` arrivals each."""

    name: str
    count: int
    size: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.count < 1 << 20 and 0 < self.size < 1 << 16):
            raise IRError(
                f"barrier object {self.name}: {self.count} arrivals, "
                f"{self.size} objects"
            )


@node
class Arrive(Stmt):
    """One arrival at a barrier object: now, or when the `copies` are done."""

    name: str
    index: Expr
    copies: Stmt | None = None

    def __post_init__(self) -> None:
        _same("the index of", self.index.dtype, i64, self.name)


@node
class Wait(Stmt):
    """Wait until phase number `phase` of a barrier object is complete."""

    name: str
    index: Expr
    phase: Expr

    def __post_init__(self) -> None:
        _same("the index of", self.index.dtype, i64, self.name)
        _same("the phase of", self.phase.dtype, i64, self.name)


@node
class Barrier(Stmt):
    """All threads of `scope` (`team` on a CPU, `block` on a GPU) wait for each other.

    Every effect before it is visible to all of them after it.
    """

    scope: str = "team"


@node
class Evaluate(Stmt):
    """Evaluate an expression for its effect, such as a prefetch."""

    expr: Expr


@node
class Param(Node):
    """A buffer passed by the caller, and how the function may access it."""

    buffer: Buffer
    role: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise IRError(f"{self.buffer.name}: {self.role!r} is not in {ROLES}")


@node
class Function(Node):
    """A kernel: buffers first, then scalars, then the host program over them."""

    name: str
    params: tuple[Param, ...]
    scalars: tuple[Var, ...]
    body: Stmt

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The parameters' buffers, in calling order."""
        return tuple(param.buffer for param in self.params)
