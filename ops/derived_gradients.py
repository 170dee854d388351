"""Gradients of operators, derived from their definitions (`tensorlang.ir.adjoint`).

    @operator("nn.transpose", ..., gradient={})
    def transpose(x: Anything, axes: Sizes | None = None) -> Tensor: ...

The library derives gradients where a definition sets `gradient`, to the options of the
gradient operator. By default such an operator is linear in its arrays: the gradient
takes only their shapes, and the gradient of the gradient is the operator itself;
others set `linear` to False. Gradients of user-defined operators are derived on demand
and take the arrays themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, get_origin

from tensorlang import ir
from tensorlang.errors import DTypeError, OperatorError
from tensorlang.ops import signature
from tensorlang.ops.definition import Body, Definition
from tensorlang.ops.signature import (
    FLOATS,
    Arrays,
    Other,
    Parameter,
    Spec,
    Static,
)

if TYPE_CHECKING:
    from tensorlang.ir import Tensor
    from tensorlang.ops.operator import Shapes
    from tensorlang.workload import Workload

_UNREAD: Final = Static((bool, int, float), (None,), "a number", kind="float")
_LIKE: Final = Other("like")


class DerivedGradient(Definition):
    """The gradient of an operator, derived from its definition.

    Args:
        of: The operator.
        linear: Whether the operator is linear, so that only shapes matter.
        options: As for `Definition`.
    """

    def __init__(self, of: Definition, *, linear: bool, **options: Any) -> None:
        self.of, self.linear = of, linear
        names = [p.name for p in of.spec.parameters]
        options.setdefault("scheduled_as", of.scheduled_as)
        if not linear:
            options["gradient"] = {"linear": False}
        super().__init__(
            f"{of.id}_grad",
            _documented(of),
            usual=of.usual_attributes,
            whole=of.is_whole,
            aliases=tuple(f"{alias}_grad" for alias in of.aliases),
            meanings=dict.fromkeys(names, f"As for `{of.id}`."),
            view=self._seen_as if of.view else None,
            module=of.module,
            **options,
        )

    @cached_property
    def seed(self) -> Parameter:
        """The parameter for the gradient of the result, or of several results."""
        taken, name = {p.name for p in self.of.spec.parameters}, "dy"
        while name in taken:
            name = f"d{name}"
        kind = Arrays(several=True)
        if not (_gives_several(self.of) or self.linear):
            kind = Arrays("floats", FLOATS)
        elif not _gives_several(self.of):
            first = next(iter(self.of.spec.arrays.values()), Arrays())
            kind = Arrays(first.says, first.dtypes)
        return Parameter(name, kind, inspect.Parameter.empty, keyword=False)

    @cached_property
    def spec(self) -> Spec:
        """The gradient of the result, and the operator's parameters."""
        parameters = self.of.spec.parameters
        if self.linear:
            parameters = tuple(map(_of_shape, parameters))
        return Spec(self.id, (self.seed, *parameters))

    @property
    def usual_shapes(self) -> Shapes:
        """The default shapes: the operator's, after those of its results."""
        if self._shapes or not self.of.usual_shapes:
            return self._shapes
        return *self._usual_seeds, *self.of.usual_shapes

    @property
    def default(self) -> Workload:
        """The workload used if no shapes are given."""
        if not self.seed.several or self._shapes:
            return super().default
        given = self.of.default.named
        lists = [p.name for p in self.of.spec.parameters if p.several]
        counts: dict[str, Any] = {name: given[name] for name in lists}
        counts[self.seed.name] = len(self._usual_seeds)
        return self.workload(**counts)

    @property
    def _usual_seeds(self) -> Shapes:
        """The shapes of the results of the operator's default workload."""
        made: Any = self.of.shape()
        results: Shapes = made if _gives_several(self.of) else (made,)
        return results

    @property
    def definition(self) -> Body:
        """The definition on tensors."""
        return self._transposed

    def _transposed(self, **given: Any) -> Any:
        dy = given.pop(self.seed.name)
        inputs: dict[str, Any] = {}
        for name, kind in self.of.spec.arrays.items():
            value = given[name]
            if self.linear and kind.number:
                value = None
            elif self.linear:
                value = _placeholders(name, value, kind, dy)
            inputs[name] = value
        with ir.rows.unchunked():
            made = self.of.definition(**(given | inputs))
        results = made if isinstance(made, tuple) else (made,)
        seeds = dy if isinstance(dy, list) else [dy]
        self._check(results, seeds)
        wrt, names = _differentiable(inputs, floats=not self.linear)
        ir.require(
            wrt,
            "gradients are of floats; none of the arrays has float elements",
            DTypeError,
        )
        found = ir.adjoint(results, seeds, wrt, names, read=not self.linear)
        return found if len(found) > 1 else found[0]

    def _check(self, results: Sequence[Any], seeds: Sequence[Tensor]) -> None:
        if len(results) != len(seeds):
            raise OperatorError(
                f"{self.of.id} returned {len(results)} arrays, and there are "
                f"{len(seeds)} gradients; annotate what its definition returns, as in "
                "-> tuple[Tensor, ...]"
            )
        for made, seed in zip(results, seeds, strict=True):
            if not isinstance(made, ir.Tensor):
                raise OperatorError(
                    f"{self.of.id} returned an IR function, which has no derived "
                    "gradient"
                )
            _same(self.of.id, seed.shape, made.shape)

    def _seen_as(self, dy: Sequence[Any], x: Any, **attributes: Any) -> Any:
        """The shape of the view of `dy`, for an operator whose result is a view."""
        assert self.of.view is not None
        _same(self.of.id, dy, self.of.view(x, **attributes))
        return x


def _gives_several(of: Definition) -> bool:
    """Whether an operator is declared to return several results."""
    if isinstance(of, DerivedGradient):
        kinds = of.of.spec.arrays.values()
        return len(kinds) > 1 or any(kind.several for kind in kinds)
    said = inspect.signature(of.body).return_annotation
    found = signature.evaluated(said, of.body)
    return get_origin(found) is tuple or "tuple[" in str(said)


def _same(id: str, dy: Sequence[Any], made: Sequence[Any]) -> None:
    ir.require(
        tuple(dy) == tuple(made),
        "dy has shape {dy}; an array of shape {made} is needed, as {id} gives",
        dy=tuple(dy),
        id=id,
        made=tuple(made),
    )


def _of_shape(parameter: Parameter) -> Parameter:
    """The parameter of a linear operator as its gradient takes it."""
    kind = parameter.kind
    if not isinstance(kind, Arrays):
        return parameter
    if kind.number:
        return replace(parameter, kind=_UNREAD)
    return replace(parameter, kind=replace(_LIKE, several=kind.several))


def _placeholders(name: str, shape: Any, kind: Arrays, dy: Any) -> Any:
    """Placeholders for arrays of which only the shape is given."""
    dtype = (dy[0] if isinstance(dy, list) else dy).dtype
    if kind.several:
        return [
            ir.placeholder(each, dtype, f"{name}{n}") for n, each in enumerate(shape)
        ]
    return ir.placeholder(shape, dtype, name)


def _differentiable(
    inputs: Mapping[str, Any], *, floats: bool
) -> tuple[list[Tensor], list[str]]:
    """The arrays to differentiate with respect to, and names for their gradients."""
    wrt: list[Tensor] = []
    names: list[str] = []
    for name, value in inputs.items():
        several = value if isinstance(value, list) else [value]
        for n, each in enumerate(several):
            if isinstance(each, ir.Tensor) and (each.dtype.is_float or not floats):
                wrt.append(each)
                names.append(f"d{name}{n if isinstance(value, list) else ''}")
    return wrt, names


def may_derive(of: Definition) -> bool:
    """Whether to derive a gradient: a pure function of float arrays, without keys."""
    kinds = of.spec.arrays.values()
    floats = any(not k.dtypes or {*FLOATS} & {*k.dtypes} for k in kinds)
    others = any(p.is_a("key") for p in of.spec.parameters)
    if _gives_several(of) and any(k.optional or k.number for k in kinds):
        return False  # a list of gradients does not go with arrays that may be absent
    return floats and not others and not any(k.inplace or k.packed for k in kinds)


def _documented(of: Definition) -> Body:
    def gradient() -> None: ...

    gradient.__doc__ = f"The gradient of `{of.id}`: derived from its definition."
    gradient.__module__ = of.module
    return gradient
