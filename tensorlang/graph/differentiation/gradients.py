"""Gradients of operators: by `<op>_grad`, or by a registered rule.

A rule is called with the site where an operator was applied. The default applies the
operator `<op>_grad` to the gradient of the result and to the arguments that both have
by name; its results belong to the float arguments, in order. `gradient_of` registers a
custom rule.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias, TypeVar

from tensorlang.errors import GraphError, OperatorError
from tensorlang.frozen import frozen
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import (
    REPLAYING,
    Argument,
    Named,
    Node,
    OpResult,
    Value,
    values_in,
    zeros,
)
from tensorlang.ops.derived_gradients import DerivedGradient
from tensorlang.ops.elementwise import Gradient
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import find

B = TypeVar("B", bound=Callable[..., OpResult])
_FLOATS: Final = ("f16", "bf16", "f32", "f64")


@frozen
class Site:
    """A node whose gradient is needed."""

    node: Node
    named: Mapping[str, Argument]  # its arguments by the operator's parameter names
    # gradient of each result, None where nothing depends on it
    dys: tuple[Value | None, ...]
    wanted: frozenset[Value]  # arguments whose gradients are needed

    @property
    def dy(self) -> Value:
        """The gradient of the first result."""
        first, *others = self.dys
        if first is None or any(dy is not None for dy in others):
            raise GraphError(
                f"{self.node.id} ({self.node.place}) only has a gradient of its first "
                "result, but that of another is needed"
            )
        return first

    def wants(self, name: str) -> bool:
        """Whether the gradient of an argument is needed."""
        return self.named.get(name) in self.wanted


# an argument used twice has two entries
Gradients: TypeAlias = list[tuple[Value, "Value | None"]]
Rule: TypeAlias = Callable[[Site], Gradients]
RULES: Final[dict[str, Rule]] = {}


def gradient_of(op: Operator) -> Callable[[B], B]:
    """Decorator that registers an operator's gradient rule.

    The rule is called with the gradients of the results, then with the operator's
    arguments; it returns a gradient or None for each array parameter, and may also
    return None for the other positional arguments.

    Raises:
        GraphError: in the backward pass, if it returns a different number.
    """

    def add(rule: B) -> B:
        def found(site: Site) -> Gradients:
            made = rule(*site.dys, *site.node.args, **site.node.kwargs)
            several = made if isinstance(made, tuple) else (made,)
            arrays = _arrays(op, site)
            for given in (list(arrays.values()), site.node.args):
                if len(several) == len(given):
                    pairs = zip(given, several, strict=True)
                    return [(arg, dx) for arg, dx in pairs if isinstance(arg, Value)]
            raise GraphError(
                f"the gradient rule of {op.id} returned {len(several)} gradients for "
                f"{len(arrays)} arrays ({', '.join(arrays)}); it returns one, or None, "
                "for each"
            )

        RULES[op.id] = found
        return rule

    return add


def _arrays(op: Operator, site: Site) -> Named:
    """The array arguments by name, including omitted ones."""
    return {name: site.named.get(name) for name in op.spec.arrays}


def rule(*ids: str) -> Callable[[Rule], Rule]:
    """Decorator that registers a rule for operators by id."""

    def add(found: Rule) -> Rule:
        RULES.update(dict.fromkeys(ids, found))
        return found

    return add


def is_float(value: Value) -> bool:
    """Whether it is a float tensor, which has a gradient."""
    return isinstance(value.spec, TensorSpec) and value.spec.dtype in _FLOATS


def or_zeros(gradient: Value | None, value: Value) -> Value:
    """The gradient, or zeros for None."""
    return zeros(value.spec) if gradient is None else gradient


def of_operator(site: Site) -> Gradients:
    """The gradients of an operator's arguments; GraphError if it has none."""
    return RULES.get(site.node.id, by_name)(site)


@cache
def _signature(op: Operator) -> inspect.Signature:
    return inspect.signature(op)


def arguments_of(node: Node) -> Named:
    """A node's arguments by name; empty if its operator does not name them."""
    assert isinstance(node.op, Operator)
    signature = _signature(node.op)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return {}
    bound = signature.bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return {k: v for k, v in bound.arguments.items() if k not in ("target", "out")}


def by_name(site: Site, takers: Sequence[str] = ()) -> Gradients:
    """The gradients computed by `<op>_grad`.

    Args:
        site: The node.
        takers: The arguments that its results belong to; by default the float ones, in
            order.

    Raises:
        GraphError: there is no such operator.
    """
    node = site.node
    if isinstance(node.op, DerivedGradient) and node.op.linear:
        return _transposed(site, node.op)
    try:
        gradient = find(f"{node.id}_grad")
    except OperatorError:
        raise GraphError(_without(node)) from None
    given = _seeds(site, gradient), _positional(site, gradient)
    try:
        made = gradient(*given[0], *given[1], **_by_keyword(site, gradient))
    except OperatorError as problem:
        if not isinstance(gradient, DerivedGradient):
            raise
        raise GraphError(f"{_without(node)}. None is derived: {problem}") from problem
    results = made if isinstance(made, tuple) else (made,)
    named = [site.named.get(name) for name in takers]
    args = values_in(named if takers else (node.args, tuple(node.kwargs.values())))
    return list(zip(filter(is_float, args), results, strict=False))


def _transposed(site: Site, gradient: DerivedGradient) -> Gradients:
    """Of the gradient of what is linear: the operator itself."""
    taken = [p.name for p in gradient.spec.parameters if p.is_shape]
    dys = _whole(site)
    several = any(kind.several for kind in gradient.of.spec.arrays.values())
    rest = {k: v for k, v in site.named.items() if k not in ("dy", *taken)}
    return [(site.named["dy"], gradient.of(dys if several else dys[0], **rest))]


def _whole(site: Site) -> list[Value]:
    """The gradients of all results."""
    pairs = zip(site.dys, site.node.results, strict=True)
    return [or_zeros(dy, value) for dy, value in pairs]


def _seeds(site: Site, gradient: Operator) -> Sequence[Argument]:
    """The result gradients that `<op>_grad` takes: all, or the first.

    Scalar operands and absent arrays have no result.
    """
    if isinstance(gradient, DerivedGradient) and gradient.is_listed:
        return [_whole(site)]
    named: Mapping[str, str] = {}
    if isinstance(gradient, DerivedGradient):
        named = gradient.results
    elif isinstance(gradient, Gradient) and len(gradient.seeds) > 1:
        named = gradient.seeds
    if not named:
        return [site.dy]
    dys = iter(site.dys)
    there = (values_in([site.named.get(like, ())]) for like in named.values())
    return [next(dys) if any(map(is_float, found)) else None for found in there]


def _without(node: Node) -> str:
    """The error message for an operator without a gradient."""
    if node.id.endswith("_grad"):
        return (
            f"{node.id} ({node.place}) is a gradient without a gradient: give it a "
            f"rule with graph.gradient_of, or compute {node.id.removesuffix('_grad')} "
            "by operators whose gradients have gradients"
        )
    return (
        f"{node.id} ({node.place}) has no gradient: no operator {node.id}_grad is "
        "defined; define one, or give it a rule with graph.gradient_of"
    )


def _names(site: Site, gradient: Operator) -> list[str]:
    """The operator's parameters that its gradient has too, in order."""
    if not site.named:
        return []
    return [name for name in _signature(gradient).parameters if name in site.named]


def _positional(site: Site, gradient: Operator) -> list[Argument]:
    if not site.named:
        return list(site.node.args)
    parameters = _signature(gradient).parameters
    ordinary = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        site.named[name]
        for name in _names(site, gradient)
        if parameters[name].kind is ordinary
    ]


def _by_keyword(site: Site, gradient: Operator) -> Named:
    if not site.named:
        return dict(site.node.kwargs)
    parameters = _signature(gradient).parameters
    only = inspect.Parameter.KEYWORD_ONLY
    return {
        name: site.named[name]
        for name in _names(site, gradient)
        if parameters[name].kind is only
    }


class replaying:  # noqa: N801 - used as `with replaying():`
    """Context in which nodes repeat draws on purpose: their key uses do not count."""

    def __enter__(self) -> None:
        self._token = REPLAYING.set(True)

    def __exit__(self, *_: object) -> None:
        REPLAYING.reset(self._token)
