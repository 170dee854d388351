"""Elementwise operators, defined by the expression of one element.

    @elementwise("nn.silu")
    def silu(x: Float) -> Float:
        "x times its sigmoid."
        return x * ir.sigmoid(x)

Operands are broadcast; with several, each may be a Python number. `nn.silu_grad` is
derived (`tensorlang.ir.gradients.derivatives`), and so is its own gradient: both are
elementwise, with sums over broadcast dimensions. Where another derivative is wanted, as
for ties of `maximum`, the gradient is defined explicitly:

    @relu.gradient  # 0 at 0, as in PyTorch
    def relu_grad(dy: Float, x: Float) -> Float: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from tensorlang import ir
from tensorlang.once import cached_property
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec import signature
from tensorlang.ops.spec.decorator_options import decorator
from tensorlang.ops.spec.signature import FLOATS, Arrays, Parameter, Spec, Static

if TYPE_CHECKING:
    from tensorlang.ops.operator import Shapes

_LONG: Final = 1 << 24
_NONE: Final[Mapping[str, str]] = {}


class Elementwise(Operator):
    """An elementwise operator.

    Args:
        id: The canonical id.
        element: Maps operands, by position, and attributes to one or several elements.
        options: As for `Operator`.

    Attributes:
        outputs: The results, each with the operand whose shape it has, or an empty
            string for the broadcast shape.
        seeds: The operands that are gradients of results, likewise.
    """

    seeds: Mapping[str, str] = _NONE

    def __init__(self, id: str, element: Body, **options: Any) -> None:
        self.element = element
        super().__init__(id, element, whole=True, **options)

    @cached_property
    def spec(self) -> Spec:
        """The spec; if there are several operands, each may be a number."""
        found = signature.spec(self.id, self.element).parameters
        several = sum(isinstance(p.kind, Arrays) for p in found) > 1
        made = tuple(map(_or_number, found)) if several else found
        return Spec(self.id, made, promotes=True)

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The results, each with the operand whose shape it has, if not broadcast."""
        count = len(self._returns)
        names = ["y"] if count == 1 else [f"y{n}" for n in range(count)]
        return dict.fromkeys(names, "")

    @cached_property
    def _returns(self) -> tuple[object, ...]:
        """The definition's return annotation, one entry per result."""
        said = inspect.signature(self.element).return_annotation
        found = signature.evaluated(said, self.element)
        several = get_args(found) if get_origin(found) is tuple else (found,)
        return tuple(map(signature.annotated, several))

    @cached_property
    def definition(self) -> Body:
        """The definition on tensors."""
        return ir.elementwise_tensors(
            self.element, tuple(self.spec.arrays), self.outputs, self.seeds
        )

    @property
    def usual_shapes(self) -> Shapes:
        """The shapes of the default workload: long arrays of equal length."""
        return self._shapes or ((_LONG,),) * len(self.spec.arrays)

    def inlined(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object:
        """The expression for elements inside a definition: `nn.silu(x[i])`.

        f16 and bf16 are computed in f32 and rounded once, as for arrays.
        """
        if any(isinstance(arg, ir.Tensor) for arg in (*args, *kwargs.values())):
            return super().inlined(args, kwargs)
        given = inspect.signature(self).bind(*args, **kwargs)
        given.apply_defaults()
        held = {p.name: given.arguments[p.name] for p in self.spec.parameters}
        for p in self.spec.parameters:
            if isinstance(p.kind, Static):
                held[p.name] = p.kind.fitted(self.id, p.name, held[p.name])
        operands = [_element(held.pop(name)) for name in self.spec.arrays]
        made = self.element(*map(_widened, operands), **held)
        kinds = {each.dtype for each in operands if isinstance(each, ir.Expr)}
        if len(kind := kinds - {ir.boolean}) != 1:
            return made
        several = made if isinstance(made, tuple) else (made,)
        stored = tuple(ir.stored(ir.as_expr(each), *kind) for each in several)
        return stored if isinstance(made, tuple) else stored[0]

    # ------------------------------------------------------------------- gradients

    @property
    def differentiable(self) -> bool:
        """Whether operands and results are floats."""
        floats = any(set(FLOATS) <= {*k.dtypes} for k in self.spec.arrays.values())
        kinds = (said for said in self._returns if isinstance(said, Arrays))
        return floats and all("f32" in kind.dtypes for kind in kinds)

    @cached_property
    def grad(self) -> Gradient | None:
        """The gradient operator, or None."""
        return Gradient(self, None) if self.differentiable else None

    def gradient(self, rule: Body) -> Gradient:
        """Decorator: define the gradient explicitly.

        The rule is elementwise too. It is called with the gradient of each result, then
        with the arguments of the definition, and returns the gradient of each float
        operand.
        """
        self.grad = made = Gradient(self, rule)
        return made

    def derived(self) -> Operator | None:
        """The gradient operator, or None."""
        return self.grad


def _element(value: Any) -> object:
    """An operand of an expression; numbers take the type of the other operand."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return ir.as_expr(value)


def _widened(operand: object) -> object:
    return ir.wide(operand) if isinstance(operand, ir.Expr) else operand


def _or_number(parameter: Parameter) -> Parameter:
    kind = parameter.kind
    if not isinstance(kind, Arrays) or kind.dtypes == ("bool",):
        return parameter
    return replace(parameter, kind=replace(kind, number=True))


class Gradient(Elementwise):
    """The gradient of an elementwise operator: derived, or defined by a rule.

    Args:
        of: The operator.
        rule: The explicit definition of the gradient, or None to derive it.
    """

    def __init__(self, of: Elementwise, rule: Body | None) -> None:
        self.of = of
        super().__init__(
            f"{of.id}_grad",
            rule or _derived(of),
            aliases=tuple(f"{alias}_grad" for alias in of.aliases),
            scheduled_as="broadcast_grad",
            missing=of.missing,
            module=of.module,
        )

    @cached_property
    def seeds(self) -> Mapping[str, str]:  # type: ignore[override]
        """The gradients of the results, named after them."""
        taken = {p.name for p in self.of.spec.parameters}
        named = self.of.outputs.items()
        return {seed_name(name, taken): like for name, like in named}

    @cached_property
    def spec(self) -> Spec:
        """The gradients of the results, then the operator's parameters as floats."""
        kind = Arrays("floats", FLOATS, optional=len(self.seeds) > 1, number=True)
        none = inspect.Parameter.empty
        seeds = [Parameter(name, kind, none, keyword=False) for name in self.seeds]
        rest = map(_of_floats, self.of.spec.parameters)
        return Spec(self.id, (*seeds, *rest), promotes=True)

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The gradient of each float operand, in its shape."""
        floats = (n for n, k in self.of.spec.arrays.items() if "f32" in k.dtypes)
        return {f"d{name}": name for name in floats}

    @property
    def differentiable(self) -> bool:
        """True, as for the operator that it is the gradient of."""
        return True

    def derived(self) -> Operator | None:
        """None: gradients of gradients are created on demand."""
        return None


def seed_name(of: str, taken: set[str]) -> str:
    """An unused name for a result's gradient: those of higher order may clash."""
    name = f"d{of}"
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
    """The definition of a gradient, by differentiation of the operator's."""
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


def elementwise(id: str, **options: object) -> Callable[[Body], Elementwise]:
    """Decorator: make an elementwise operator from the definition of one element.

    Args:
        id: The canonical id, such as `my.swish`.
        options: As for `Elementwise`.

    Raises:
        OperatorError: the name is not an identifier, or is taken.
    """
    return decorator(Elementwise, id, options)
