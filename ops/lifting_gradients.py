"""From gradients of scalar expressions to those of tensors that were broadcast.

Where an operand was broadcast, its gradient is summed. Sums that lie along rows are
made in two steps, of parts of the rows and of these parts: there is enough to do for
all threads, and no sum gets too long for its type.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang.ir import compute, i64, reduce_axis
from tensorlang.ir import sum as fold
from tensorlang.ir.nodes import Binary, Const, Select, as_expr
from tensorlang.ops.assembling import stored
from tensorlang.ops.lifting import Operands, operand_names

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr

# from an index of the broadcast shape to the gradient of each operand there
_Terms: TypeAlias = "Callable[[Sequence[Any]], dict[str, Expr]]"
_ROWS: Final = 256  # of a part


def lifted_gradient(body: Callable[..., Any]) -> Callable[..., Any]:
    """A function on tensors from `dy` and operands to the operands' gradients.

    `body` gives a tuple of scalar expressions, one an operand behind `dy`, None where
    there is no gradient.
    """
    names = operand_names(body)

    @wraps(body)
    def tensors(*arrays: Tensor, numbers: Sequence[int] = (), **given: Any) -> Any:
        at_hand = Operands(names, arrays, numbers, given)

        def terms(index: Sequence[Any]) -> dict[str, Expr]:
            made = body(*at_hand.values(index), **at_hand.attributes)
            return {
                name: value
                for name, value in zip(names[1:], made, strict=True)
                if name in at_hand.arrays and value is not None
            }

        wanted = list(terms([Const(0, i64)] * at_hand.rank))
        made = _whole(at_hand, terms, wanted)
        made |= {
            name: _summed(at_hand, terms, name) for name in wanted if name not in made
        }
        results = tuple(made[name] for name in wanted)
        return results if len(results) > 1 else results[0]

    return tensors


def _whole(of: Operands, terms: _Terms, wanted: Sequence[str]) -> dict[str, Tensor]:
    """The gradients of operands that are not broadcast, in one pass."""
    names = [name for name in wanted if not of.broadcast(name)]

    def element(*i: Any) -> Any:
        made = terms(i)
        return tuple(stored(made[name], of.dtype) for name in names)

    if not names:
        return {}
    made = compute(of.shape, element, tuple(f"d{name}" for name in names))
    return dict(zip(names, made if len(names) > 1 else (made,), strict=True))


def _summed(of: Operands, terms: _Terms, name: str) -> Tensor:
    """The gradient of a broadcast operand; 0 where there is nothing to sum."""
    folded = of.broadcast(name)
    along_rows = folded[-1] != of.rank - 1
    total = _by_parts(of, terms, name) if along_rows else _at_once(of, terms, name)
    empty = functools.reduce(operator.or_, (of.shape[at].equal(0) for at in folded))

    def rounded(*i: Any) -> Expr:
        value = total[i]
        return stored(Select(empty, as_expr(0.0, value.dtype), value), of.dtype)

    made: Tensor = compute(total.shape, rounded, f"d{name}")
    return made


def _at_once(of: Operands, terms: _Terms, name: str) -> Tensor:
    """The sums over all that an operand was broadcast along."""
    axes = {at: reduce_axis(of.shape[at], f"r{at}") for at in of.broadcast(name)}
    kept = [at for at in range(of.rank) if at not in axes]

    def element(*i: Any) -> Any:
        place = dict(zip(kept, i, strict=True)) | {at: x.var for at, x in axes.items()}
        value = terms([place[at] for at in range(of.rank)])[name]
        return fold(value, list(axes.values()))

    made: Tensor = compute([of.shape[at] for at in kept], element, f"sum_{name}")
    return made


def _by_parts(of: Operands, terms: _Terms, name: str) -> Tensor:
    """The same, of some rows and then of these parts.

    The last part reads the last row again where there is none, and adds 0.
    """
    first, *others = of.broadcast(name)
    rows = of.shape[first]
    parts = (rows + (_ROWS - 1)) // _ROWS
    row = reduce_axis(Binary("min", rows, as_expr(_ROWS)), "row")
    axes = {at: reduce_axis(of.shape[at], f"r{at}") for at in others}
    kept = [at for at in range(of.rank) if at != first and at not in axes]
    shape = [of.shape[at] for at in kept]

    def partial(*i: Any) -> Any:
        at_row = i[0] * _ROWS + row.var
        place = dict(zip(kept, i[1:], strict=True)) | {
            at: x.var for at, x in axes.items()
        }
        place[first] = Binary("min", at_row, rows - 1)
        value = terms([place[at] for at in range(of.rank)])[name]
        inside = Select(at_row < rows, value, as_expr(0.0, value.dtype))
        return fold(inside, [row, *axes.values()])

    sums = compute([parts, *shape], partial, f"sum_{name}")
    part = reduce_axis(parts, "part")
    made: Tensor = compute(
        shape, lambda *i: fold(sums[part.var, *i], part), f"all_{name}"
    )
    return made
