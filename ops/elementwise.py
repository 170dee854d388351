"""Elementwise operators: a definition of one element, and all that follows from it.

    @elementwise("nn.silu")
    def silu(x: Float) -> Float:
        "x times its sigmoid."
        return x * ir.sigmoid(x)

`silu(x)` broadcasts its operands, which may be Python numbers where there are several.
`nn.silu_grad` is derived (`tensorlang.ir.derivatives`), and so is its gradient, which
is elementwise again: it sums where an operand was broadcast. Where the derivative is
not what is meant, as at a tie of `maximum`, a definition of its own stands beside it:

    @relu.gradient  # at 0 it is 0, as in PyTorch
    def relu_grad(dy: Float, x: Float) -> Float: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from tensorlang import ir
from tensorlang.ops import signature
from tensorlang.ops.definition import Body, Definition, checked_name
from tensorlang.ops.signature import FLOATS, Arrays, Parameter, Spec

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator, Shapes

_LONG: Final = 1 << 24
_NONE: Final[Mapping[str, str]] = {}


class Elementwise(Definition):
    """An elementwise operator.

    Args:
        id: Its canonical id.
        element: From operands by position, and attributes, to an element or several.
        options: As for `Definition`.

    Attributes:
        outputs: The results, each with the operand whose shape it has, if not of all.
        seeds: The operands that are gradients of results, with those as well.
    """

    seeds: Mapping[str, str] = _NONE

    def __init__(self, id: str, element: Body, **options: Any) -> None:
        self.element = element
        self._rule: Body | None = None
        super().__init__(id, element, whole=True, **options)

    @cached_property
    def spec(self) -> Spec:
        """Its operands, which may be numbers where there are several, and the rest."""
        found = signature.spec(self.id, self.element)
        if len(found.arrays) < 2:
            return found
        return Spec(self.id, tuple(map(_or_number, found.parameters)))

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The results, each with the operand whose shape it has, if not of all."""
        count = len(self._returns)
        names = ["y"] if count == 1 else [f"y{n}" for n in range(count)]
        return dict.fromkeys(names, "")

    @cached_property
    def _returns(self) -> tuple[Any, ...]:
        """What the definition says that it returns, one a result."""
        said = inspect.signature(self.element).return_annotation
        found = signature.evaluated(said, self.element)
        return get_args(found) if get_origin(found) is tuple else (found,)

    @cached_property
    def definition(self) -> Body:
        """The definition on tensors."""
        return ir.elementwise_tensors(
            self.element, tuple(self.spec.arrays), self.outputs, self.seeds
        )

    @property
    def usual_shapes(self) -> Shapes:
        """The shapes that stand for it: long arrays, all alike."""
        return self._shapes or ((_LONG,),) * len(self.spec.arrays)

    # ------------------------------------------------------------------- gradients

    @property
    def differentiable(self) -> bool:
        """Whether it takes floats and gives some."""
        floats = any(set(FLOATS) <= {*k.dtypes} for k in self.spec.arrays.values())
        kinds = (said for said in self._returns if isinstance(said, Arrays))
        return floats and all("f32" in kind.dtypes for kind in kinds)

    @cached_property
    def grad(self) -> Gradient | None:
        """The operator of its gradient; None where it has none."""
        return Gradient(self, self._rule) if self.differentiable else None

    def gradient(self, rule: Body) -> Gradient:
        """Give it a gradient by hand: a decorator.

        The rule is elementwise as well: it is called with the gradient of each result,
        then as the operator's definition, and returns one of each operand of floats.
        """
        self.grad = made = Gradient(self, rule)
        return made

    def derived(self) -> Operator | None:
        """The operator that follows from this one."""
        return self.grad


def _or_number(parameter: Parameter) -> Parameter:
    kind = parameter.kind
    if not isinstance(kind, Arrays) or kind.dtypes == ("bool",):
        return parameter
    return replace(parameter, kind=replace(kind, number=True))


class Gradient(Elementwise):
    """The gradient of an elementwise operator: derived, or by a rule.

    Args:
        of: The operator.
        rule: Its gradient's definition, where there is one by hand.
    """

    def __init__(self, of: Elementwise, rule: Body | None) -> None:
        self.of = of
        names = [p.name for p in of.spec.parameters]
        super().__init__(
            f"{of.id}_grad",
            rule or _derived(of),
            aliases=tuple(f"{alias}_grad" for alias in of.aliases),
            scheduled_as="broadcast_grad",
            meanings=dict.fromkeys(names, f"As for `{of.id}`."),
            missing=of.missing,
            module=of.module,
        )

    @cached_property
    def seeds(self) -> Mapping[str, str]:  # type: ignore[override]
        """The gradients of the results, as these are called."""
        taken = {p.name for p in self.of.spec.parameters}
        named = self.of.outputs.items()
        return {_fresh(f"d{name}", taken): like for name, like in named}

    @cached_property
    def spec(self) -> Spec:
        """The gradients of the results, and what the operator takes, of floats."""
        kind = Arrays("floats", FLOATS, optional=len(self.seeds) > 1, number=True)
        none = inspect.Parameter.empty
        seeds = [Parameter(name, kind, none, keyword=False) for name in self.seeds]
        rest = map(_of_floats, self.of.spec.parameters)
        return Spec(self.id, (*seeds, *rest))

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """A gradient of each operand of floats, in its shape."""
        floats = (n for n, k in self.of.spec.arrays.items() if "f32" in k.dtypes)
        return {f"d{name}": name for name in floats}

    @property
    def differentiable(self) -> bool:
        """It is, as what it is the gradient of."""
        return True

    def derived(self) -> Operator | None:
        """None: gradients of gradients are made when they are asked for."""
        return None


def _fresh(name: str, taken: set[str]) -> str:
    """A name for the gradient of a result: of third gradients one may be taken."""
    while name in taken:
        name = f"d{name}"
    taken.add(name)
    return name


def _of_floats(parameter: Parameter) -> Parameter:
    kind = parameter.kind
    if not isinstance(kind, Arrays) or "f32" not in kind.dtypes:
        return parameter
    floats = replace(kind, says="floats", dtypes=FLOATS)
    return replace(parameter, kind=floats)


def _derived(of: Elementwise) -> Body:
    """The definition of a gradient, by differentiating that of the operator."""
    count = len(of.outputs)
    floats = ["f32" in kind.dtypes for kind in of.spec.arrays.values()]

    def element(*given: Any, **attributes: Any) -> Any:
        seeds, operands = given[:count], given[count:]
        return ir.derivative(of.element, seeds, operands, floats, attributes)

    named = [name for name, there in zip(of.spec.arrays, floats, strict=True) if there]
    listed = " and ".join(f"`{name}`" for name in named)
    element.__doc__ = f"The gradient of `{of.id}` for {listed}."
    if len(of.spec.arrays) > 1:
        element.__doc__ += """

        Each has the shape of its operand: what was broadcast is summed over. Of a
        number there is none.
        """
    return element


def elementwise(
    id: str, *, aliases: tuple[str, ...] | None = None, **options: Any
) -> Callable[[Body], Elementwise]:
    """Make an elementwise operator of the definition of one element: a decorator.

    Args:
        id: Its canonical id, such as `my.swish`.
        aliases: Other names for it; by default the last part of its id.
        options: As for `Elementwise`.

    Raises:
        OperatorError: the name is not an identifier, or another operator has it.
    """
    checked_name(id)
    names = (id.rpartition(".")[2],) if aliases is None else aliases

    def make(element: Body) -> Elementwise:
        return Elementwise(id, element, aliases=names, **options)

    return make
