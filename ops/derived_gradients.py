"""Gradients of operators, derived from definitions by `tensorlang.ir.gradients`.

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
from typing import Any, Final, get_origin

from tensorlang import ir
from tensorlang.errors import ArgumentError, DTypeError, OperatorError
from tensorlang.once import cached_property
from tensorlang.ops.elementwise import seed_name
from tensorlang.ops.operator import Body, Operator, Shapes
from tensorlang.ops.spec import signature
from tensorlang.ops.spec.signature import FLOATS, Arrays, Other, Parameter, Spec, Static
from tensorlang.workload import Workload

_UNREAD: Final = Static((bool, int, float), (None,), "a number", kind="float")
_LIKE: Final = Other("like")
_FLOATS: Final = Arrays("floats", FLOATS)


class DerivedGradient(Operator):
    """The gradient of an operator, derived from its definition.

    Args:
        linear: Whether the operator is linear, so that only shapes matter.
        results: For an operator of several results, their names, each with the array
            that it goes with: without that array, there is no such result. Any of
            their gradients may then be None. Without names, there is a list of them.
        options: As for `Operator`.
    """

    def __init__(
        self,
        of: Operator,
        *,
        linear: bool,
        results: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.of, self.linear = of, linear
        self.results = _results(of) if results is None else results
        options.setdefault("scheduled_as", of.scheduled_as)
        if not linear:
            options["gradient"] = {"linear": False}
        super().__init__(
            f"{of.id}_grad",
            _documented(of),
            usual=of.usual_attributes,
            whole=of.is_whole,
            aliases=tuple(f"{alias}_grad" for alias in of.aliases),
            view=self._seen_as if of.view else None,
            module=of.module,
            **options,
        )

    @cached_property
    def seeds(self) -> tuple[Parameter, ...]:
        """The parameters for the gradients of the results; a single list if unnamed."""
        taken = {p.name for p in self.of.spec.parameters}
        arrays = self.of.spec.arrays
        first = next(iter(arrays.values()), Arrays())
        kinds = {
            name: replace(_floats(arrays[of]), optional=True)
            for name, of in self.results.items()
        }
        if not kinds and gives_several(self.of):
            kinds = {"y": Arrays(several=True)}
        elif not kinds:
            alike = self.linear or (first.dtypes and {*first.dtypes} <= {*FLOATS})
            kinds = {"y": Arrays(first.says, first.dtypes) if alike else _FLOATS}
        return tuple(
            Parameter(
                seed_name(name, taken), kind, inspect.Parameter.empty, keyword=False
            )
            for name, kind in kinds.items()
        )

    @property
    def is_listed(self) -> bool:
        """Whether the gradients of several results are one list."""
        return self.seeds[0].several

    @cached_property
    def spec(self) -> Spec:
        """The gradients of the results, and the operator's parameters."""
        parameters = self.of.spec.parameters
        if self.linear:
            parameters = tuple(map(_of_shape, parameters))
        return Spec(self.id, (*self.seeds, *parameters))

    @property
    def usual_shapes(self) -> Shapes:
        """The default shapes: the operator's, after those of its results."""
        if self._shapes or not self.of.usual_shapes:
            return self._shapes
        return *self._usual_seeds, *self.of.usual_shapes

    @property
    def default(self) -> Workload:
        """The workload used if no shapes are given."""
        if not self.is_listed or self._shapes:
            return super().default
        given = self.of.default.named
        lists = [p.name for p in self.of.spec.parameters if p.several]
        counts: dict[str, Any] = {name: given[name] for name in lists}
        counts[self.seeds[0].name] = len(self._usual_seeds)
        return self.workload(**counts)

    @property
    def _usual_seeds(self) -> Shapes:
        """The shapes of the results of the operator's default workload."""
        made: Any = self.of.shape()
        several = self.results or self.is_listed
        return made if several else (made,)

    @property
    def stated(self) -> None:
        """All sizes: the operator checks those of its arrays."""

    @property
    def definition(self) -> Body:
        """The definition on tensors."""
        return self._transposed

    def _transposed(self, **given: Any) -> Any:
        dys = [given.pop(seed.name) for seed in self.seeds]
        dys = dys[0] if self.is_listed else dys
        inputs: dict[str, Any] = {}
        for name, kind in self.of.spec.arrays.items():
            value = given[name]
            if self.linear and kind.number:
                value = None
            elif self.linear:
                value = _placeholders(name, value, kind, dys[0])
            inputs[name] = value
        with ir.rows.unchunked():
            made = self.of.definition(**(given | inputs))
        results = made if isinstance(made, tuple) else (made,)
        pairs = self._pairs(results, dys, inputs)
        wrt, names = _differentiable(inputs, floats=not self.linear)
        ir.require(
            wrt,
            "gradients are of floats; none of the arrays has float elements",
            DTypeError,
        )
        found = ir.adjoint(
            [made for made, _ in pairs],
            [dy for _, dy in pairs],
            wrt,
            names,
            read=not self.linear,
        )
        return found if len(found) > 1 else found[0]

    def _pairs(
        self,
        results: Sequence[Any],
        dys: Sequence[ir.Tensor | None],
        inputs: Mapping[str, Any],
    ) -> list[tuple[ir.Tensor, ir.Tensor]]:
        """The results whose gradients are given, and these."""
        named = list(zip(dys, self.results.values(), strict=False))
        for dy, of in named:
            ir.require(
                dy is None or _is_float(inputs[of]),
                f"a gradient is given of a result that there is only with {of}",
                ArgumentError,
            )
        if named:
            dys = [dy for dy, of in named if _is_float(inputs[of])]
        if len(results) != len(dys):
            raise OperatorError(
                f"{self.of.id} returned {len(results)} arrays, and there are "
                f"{len(dys)} gradients; annotate what its definition returns, as in "
                "-> tuple[Tensor, ...]"
            )
        if not all(isinstance(made, ir.Tensor) for made in results):
            raise OperatorError(
                f"{self.of.id} returned an IR function, which has no derived gradient"
            )
        pairs = zip(results, dys, strict=True)
        given = [(made, dy) for made, dy in pairs if dy is not None]
        for made, dy in given:
            _same(self.of.id, dy.shape, made.shape, dy.buffer.name)
            ir.require(
                dy.dtype == made.dtype or not made.dtype.is_float,
                f"{dy.buffer.name} is {dy.dtype}; an array of {made.dtype} is needed, "
                f"as {self.of.id} gives",
                DTypeError,
            )
        return given

    def _seen_as(self, dy: Sequence[object], x: object, **attributes: object) -> Any:
        """The shape of the view of `dy`, for an operator whose result is a view."""
        assert self.of.view is not None
        _same(self.of.id, dy, self.of.view(x, **attributes))
        return x


def _results(of: Operator) -> Mapping[str, str]:
    """The names of the results of a gradient: those of its arrays, unless listed."""
    arrays = of.of.spec.arrays if isinstance(of, DerivedGradient) else {}
    if len(arrays) == 1 or any(kind.several for kind in arrays.values()):
        return {}
    floats = (name for name, kind in arrays.items() if _may_be_float(kind))
    return {f"d{name}": name for name in floats}


def _may_be_float(kind: Arrays) -> bool:
    return not kind.dtypes or not {*FLOATS}.isdisjoint(kind.dtypes)


def _floats(kind: Arrays) -> Arrays:
    """The kind of a gradient of arrays of a kind."""
    return Arrays(kind.says, FLOATS) if kind.dtypes else _FLOATS


def _is_float(value: object) -> bool:
    return isinstance(value, ir.Tensor) and value.dtype.is_float


def gives_several(of: Operator) -> bool:
    """Whether an operator is declared to return several results."""
    if isinstance(of, DerivedGradient):
        return any(kind.several for kind in of.of.spec.arrays.values())
    said = inspect.signature(of.body).return_annotation
    found = signature.evaluated(said, of.body)
    return get_origin(found) is tuple or "tuple[" in str(said)


def _same(
    id: str, dy: Sequence[object], made: Sequence[object], name: str = "dy"
) -> None:
    ir.require(
        tuple(dy) == tuple(made),
        f"{name} has shape {tuple(dy)}; an array of shape {tuple(made)} is needed, as "
        f"{id} gives",
    )


def _of_shape(parameter: Parameter) -> Parameter:
    """The parameter of a linear operator as its gradient takes it."""
    kind = parameter.kind
    if not isinstance(kind, Arrays):
        return parameter
    if kind.number:
        return replace(parameter, kind=_UNREAD)
    return replace(parameter, kind=replace(_LIKE, several=kind.several))


def _placeholders(name: str, shape: Any, kind: Arrays, dy: ir.Tensor) -> object:
    """Placeholders for arrays of which only the shape is given."""
    if kind.several:
        return [
            ir.placeholder(each, dy.dtype, f"{name}{n}") for n, each in enumerate(shape)
        ]
    return ir.placeholder(shape, dy.dtype, name)


def _differentiable(
    inputs: Mapping[str, object], *, floats: bool
) -> tuple[list[ir.Tensor], list[str]]:
    """The arrays to differentiate with respect to, and names for their gradients."""
    wrt: list[ir.Tensor] = []
    names: list[str] = []
    for name, value in inputs.items():
        several = value if isinstance(value, list) else [value]
        for n, each in enumerate(several):
            if isinstance(each, ir.Tensor) and (each.dtype.is_float or not floats):
                wrt.append(each)
                names.append(f"d{name}{n if isinstance(value, list) else ''}")
    return wrt, names


def may_derive(of: Operator) -> bool:
    """Whether to derive a gradient: a pure function of float arrays, without keys."""
    kinds = of.spec.arrays.values()
    floats = any(map(_may_be_float, kinds))
    others = any(p.is_a("key") for p in of.spec.parameters)
    if gives_several(of) and any(k.optional or k.number for k in kinds):
        return False  # a list of gradients does not go with arrays that may be absent
    return floats and not others and not any(k.inplace or k.packed for k in kinds)


def _documented(of: Operator) -> Body:
    def gradient() -> None: ...

    gradient.__doc__ = f"The gradient of `{of.id}`: derived from its definition."
    gradient.__module__ = of.module
    return gradient
