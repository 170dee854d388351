"""Folds: operators that reduce each row to one value, and their gradients.

    @fold("math.logsumexp", Floats)
    def logsumexp(rows: Rows) -> Tensor:
        "The logarithm of the sum of exponentials."
        ...

`logsumexp(x, axis=None, keepdims=False)` reduces one axis, several, or all. The
definition takes the array as rows (`tensorlang.ir.definitions.rows`), and further
parameters. Its gradient is defined explicitly:

    @logsumexp.gradient  # in a single pass
    def logsumexp_grad(dy: Tensor, rows: Rows) -> Tensor: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from tensorlang import ir
from tensorlang.errors import OperatorError, ShapeError
from tensorlang.once import cached_property
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec import signature
from tensorlang.ops.spec.decorator_options import decorator
from tensorlang.ops.spec.signature import Arrays, Floats, Parameter, Spec, Static

_USUAL: Final = (512, 4096)
_AXES: Final = Static((int, tuple), (None,), "None, a whole number or a tuple of them")
_AXIS: Final = Static((int,), (None,), "None or a whole number")
_MEANINGS: Final = {
    "axis": "The axes to reduce: an integer, a tuple of integers, or None for all.",
    "keepdims": "Whether reduced axes are kept with size 1.",
}
_POSITION: Final = {
    "axis": "The axis along which to search; None for the flattened array."
}


def _static(name: str, kind: Static, default: object) -> Parameter:
    return Parameter(name, kind, default, keyword=False)


class Fold(Operator):
    """An operator that reduces each row to one value.

    Args:
        id: The canonical id.
        body: Maps rows, and further parameters, to one value per row.
        of: The accepted element types.
        empty: Whether the value of an empty row is defined.
        position: Whether the value is a position, along one axis or in the flattened
            array.
        options: As for `Operator`.
    """

    def __init__(
        self,
        id: str,
        body: Body,
        *,
        of: Arrays,
        empty: bool = True,
        position: bool = False,
        **options: Any,
    ) -> None:
        self._of, self._empty = of, empty
        self._axis = _AXIS if position else _AXES
        options.setdefault("shapes", (_USUAL,))
        options.setdefault("scheduled_as", "rows")
        options.setdefault("meanings", _MEANINGS | (_POSITION if position else {}))
        super().__init__(id, body, whole=True, usual={"axis": -1}, **options)

    @cached_property
    def more(self) -> tuple[Parameter, ...]:
        """The parameters other than the array, `axis` and `keepdims`."""
        return signature.spec(self.id, self.body).parameters[1:]

    @cached_property
    def spec(self) -> Spec:
        """The array, `axis`, further parameters, `keepdims`, and keywords."""
        x = Parameter("x", self._of, inspect.Parameter.empty, keyword=False)
        axis = _static("axis", self._axis, None)
        keepdims = _static("keepdims", signature.FLAG, default=False)
        more = sorted((*self.more, keepdims), key=lambda p: p.keyword)
        return Spec(self.id, (x, axis, *more), promotes=True)

    @property
    def definition(self) -> Body:
        """The definition on tensors."""
        return self._folded

    def _folded(
        self, *, x: ir.Tensor, axis: Any, keepdims: bool, **more: object
    ) -> ir.Tensor:
        rows = ir.rows.along(x, axis)
        if not self._empty and rows.is_empty:
            ir.require(
                any(extent == 0 for extent in rows.shape(keepdims=False)),
                f"an array of shape {x.shape} has nothing to choose from along axis "
                f"{axis}",
                ShapeError,
            )
        made = self.body(rows, **more)
        _check(made, "one value a row, as rows.fold", rows.of(rows.array.shape))
        return rows.folded(made, keepdims=keepdims)

    # ------------------------------------------------------------------- gradients

    def gradient(self, rule: Body) -> Operator:
        """Decorator: define the gradient.

        The rule takes the gradient of the result, then the definition's arguments, and
        returns the gradient of the array.
        """

        def gradient(dy: Floats, x: Floats, **given: Any) -> ir.Tensor:
            axis, keepdims = given.pop("axis"), given.pop("keepdims")
            rows = ir.rows.along(x, axis)
            made = rows.shape(keepdims=keepdims)
            ir.require(
                len(dy.shape) == len(made) and dy.shape == made,
                f"dy has shape {dy.shape}; folding axis {axis} of shape {x.shape} "
                f"gives {made}",
                ShapeError,
            )
            result: ir.Tensor = rule(dy, rows, **given)
            _check(result, "a value a place, as rows.each", rows.array.shape, x.shape)
            return rows.whole(result)

        gradient.__doc__ = rule.__doc__
        return Operator(
            f"{self.id}_grad",
            gradient,
            parameters_of=self,
            shapes=(_USUAL[:1], _USUAL),
            usual={"axis": -1},
            whole=True,
            aliases=tuple(f"{alias}_grad" for alias in self.aliases),
            scheduled_as=self.scheduled_as,
            gradient={"linear": False},
            module=self.module,
        )


def _check(made: object, says: str, *shapes: Sequence[Any]) -> None:
    """Refuse what is no tensor of one of these shapes; OperatorError if it is none."""
    wanted = [tuple(map(ir.as_expr, shape)) for shape in shapes]
    if not isinstance(made, ir.Tensor) or tuple(map(ir.as_expr, made.shape)) not in (
        wanted
    ):
        raise OperatorError(
            f"its definition returned {made!r:.80}; return {says} makes one"
        )


def fold(
    id: str, of: object, **options: object
) -> Callable[[Callable[..., ir.Tensor]], Fold]:
    """Decorator: make an operator from the reduction of each row to one value.

    Args:
        id: The canonical id, such as `my.range`.
        of: The element types: `Floats`, `Numbers` or `Anything`.
        options: As for `Fold`.

    Raises:
        OperatorError: the name is not an identifier, or another operator has it.
    """
    kind = signature.annotated(of)
    if not isinstance(kind, Arrays):
        raise OperatorError(f"{id}: a fold is of arrays such as Floats, not {of!r:.80}")
    return decorator(Fold, id, {**options, "of": kind})
