"""Fronts of elementwise operators that differ in their name and definition only.

    exp = unary("math.exp", f"{_HERE}:exp", "e to the power of each element.")

An operator made here is called as any other; its docstring is put together from the
sentence that says what it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.gradients import gradient
from tensorlang.ops.operands import ALL_ARRAYS, IN_ALL, SECOND_IS_NUMBER, mixed
from tensorlang.ops.tensors import FLOATS, TensorOperator, call

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Operand

INTEGERS: Final = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
REALS: Final = (*FLOATS, *INTEGERS)
ANY: Final = (*REALS, "bool")
_KINDS: Final = {
    FLOATS: "Floats",
    INTEGERS: "Integers",
    REALS: "Numbers",
    ANY: "Numbers or truths",
}

_UNARY: Final = """{says}

Args:
    x: {kind} of any shape.
    target: Where to compute.
    out: Where the result goes; may be `x`.

Raises:
    DTypeError, ShapeError, ArgumentError: an argument does not fit.
"""
_UNARY_GRAD: Final = """The gradient of `{of}` at `x`: {says}.

Args:
    dy: The gradient of the result.
    x: What `{of}` was applied to; floats of the same shape.
    target: Where to compute.
    out: Where the result goes; may be `dy` or `x`.

Raises:
    DTypeError, ShapeError, ArgumentError: an argument does not fit.
"""
_BINARY: Final = """{says}

Args:
    a: {kind} of any shape, or a Python number.
    b: The same of `a`'s type, in a shape that broadcasts with it.
    target: Where to compute.
    out: Where the result goes.

Raises:
    DTypeError, ShapeError, ArgumentError: an argument does not fit.
"""
_BINARY_GRAD: Final = """The gradients of `{of}`: {says}.

They have the shapes of `a` and `b`: what was broadcast is summed over. Where one of
these is a number, there is the other one's gradient only.

Args:
    dy: The gradient of the result, in its shape.
    a: The first operand of `{of}`; floats, or a Python number.
    b: The second operand.
    target: Where to compute.
    out: Where the results go: a tuple, or an array where there is one.

Raises:
    DTypeError, ShapeError, ArgumentError: an argument does not fit.
"""


def unary(
    id: str,
    define: str,
    says: str,
    allowed: tuple[str, ...] = FLOATS,
    *,
    short: bool = True,
) -> TensorOperator:
    """An operator of one array.

    Args:
        id: Its canonical id.
        define: `module:function` on scalar expressions.
        says: What it computes, as a sentence.
        allowed: The element types that it takes.
        short: Whether the last part of its id is an alias.
    """

    def front(x: Any, *, target: Any = None, out: Any = None) -> Launch:
        return call(made, (x,), {}, (), target, out)

    doc = _UNARY.format(says=says, kind=_KINDS[allowed])
    aliases = (_tail(id),) if short else ()
    made = elementwise(id, define, allowed=allowed, aliases=aliases)(
        _named(front, id, define, doc)
    )
    return made


def unary_grad(
    of: str, define: str, says: str, *, short: bool = True
) -> TensorOperator:
    """The gradient of an operator of one array, by the same name with `_grad`."""

    def front(dy: Any, x: Any, *, target: Any = None, out: Any = None) -> Launch:
        return call(made, (dy, x), {}, (), target, out)

    id, doc = f"{of}_grad", _UNARY_GRAD.format(of=of, says=says)
    aliases = (_tail(id),) if short else ()
    made = elementwise(id, define, operands=("dy", "x"), alike=True, aliases=aliases)(
        _named(front, id, define, doc)
    )
    return made


def binary(
    id: str, define: str, says: str, allowed: tuple[str, ...] = FLOATS
) -> TensorOperator:
    """An operator of two operands that broadcast; one of them may be a number."""

    def front(a: Operand, b: Operand, *, target: Any = None, out: Any = None) -> Launch:
        if type(a) is np.ndarray:
            if type(b) is np.ndarray:
                return call(made, (a, b), ALL_ARRAYS, (), target, out)
            if type(b) is float and -IN_ALL <= b <= IN_ALL and a.dtype.kind == "f":
                return call(made, (a,), SECOND_IS_NUMBER, (b,), target, out)
        return mixed(made, (a, b), target, out)

    doc = _BINARY.format(says=says, kind=_KINDS[allowed])
    made = elementwise(
        id, define, operands=("a", "b"), allowed=allowed, aliases=(_tail(id),)
    )(_named(front, id, define, doc))
    return made


def binary_grad(of: str, define: str, says: str) -> TensorOperator:
    """The gradients of an operator of two operands."""

    def front(
        dy: Any, a: Operand, b: Operand, *, target: Any = None, out: Any = None
    ) -> Launch:
        return mixed(made, (dy, a, b), target, out)

    id, doc = f"{of}_grad", _BINARY_GRAD.format(of=of, says=says)
    made = gradient(id, define, operands=("a", "b"), aliases=(_tail(id),))(
        _named(front, id, define, doc)
    )
    return made


def _tail(id: str) -> str:
    return id.rpartition(".")[2]


def _named(
    front: Callable[..., Launch], id: str, define: str, doc: str
) -> Callable[..., Launch]:
    """The front as if it were written out beside its definition."""
    front.__name__ = front.__qualname__ = _tail(id)
    front.__module__ = define.partition(":")[0]
    front.__doc__ = doc
    return front
