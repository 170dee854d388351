"""Gradients of single operators: by `<op>_grad`, and the few that need more.

A rule is asked where an operator was applied. Unless it says otherwise, the operator
called `<op>_grad` is applied to the result's gradient and to those arguments that it
names as the operator does; its results belong to the arguments that are floats, in
order. A rule of one's own is given with `gradient_of`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias, TypeVar

from tensorlang.errors import GraphError, OperatorError
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import (
    REPLAYING,
    Argument,
    Made,
    Named,
    Node,
    Value,
    values_in,
    zeros,
)
from tensorlang.ops.definition import Definition
from tensorlang.ops.elementwise import Gradient
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import find

B = TypeVar("B", bound=Callable[..., Made])
_FLOATS: Final = ("f16", "bf16", "f32", "f64")


@dataclass(frozen=True, slots=True)
class Site:
    """Where an operator was applied, and what its gradient is asked for.

    Attributes:
        node: The node.
        named: Its arguments by the operator's own names.
        dys: The gradient of each result, None where nothing depends on it.
        wanted: The arguments whose gradients are needed.
    """

    node: Node
    named: Mapping[str, Argument]
    dys: tuple[Value | None, ...]
    wanted: frozenset[Value]

    @property
    def dy(self) -> Value:
        """The gradient of the first result."""
        first, *others = self.dys
        if first is None or any(dy is not None for dy in others):
            raise GraphError(
                f"{self.node.id} ({self.node.place}) has a gradient of its first "
                "result only, and that of another is asked for"
            )
        return first

    def wants(self, name: str) -> bool:
        """Whether the gradient of an argument is needed."""
        return self.named.get(name) in self.wanted


# an argument that appears twice has two gradients
Found: TypeAlias = list[tuple[Value, "Value | None"]]
Rule: TypeAlias = Callable[[Site], Found]
RULES: Final[dict[str, Rule]] = {}


def gradient_of(op: Operator) -> Callable[[B], B]:
    """Give an operator a gradient of one's own: a decorator.

    The rule is called with the gradients of the results, then as the operator was; it
    returns a gradient, or None, for each array that the operator takes. It may return
    None for its other positional arguments too.

    Raises:
        GraphError: in the backward pass, if it returns fewer or more.
    """

    def add(rule: B) -> B:
        def found(site: Site) -> Found:
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
    """The arguments that are arrays, with those that are left out, by name."""
    if isinstance(op, Definition):
        return {name: site.named.get(name) for name in op.spec.arrays}
    return {name: arg for name, arg in site.named.items() if isinstance(arg, Value)}


def rule(*ids: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of operators: a decorator."""

    def add(found: Rule) -> Rule:
        RULES.update(dict.fromkeys(ids, found))
        return found

    return add


def is_float(value: Value) -> bool:
    """Whether it is a tensor of floats: what has a gradient."""
    return isinstance(value.spec, TensorSpec) and value.spec.dtype in _FLOATS


def or_zeros(gradient: Value | None, value: Value) -> Value:
    """A gradient, which is zeros where there is none."""
    made: Value = zeros(value.spec) if gradient is None else gradient
    return made


def of_operator(site: Site) -> Found:
    """The gradients of an operator's arguments.

    Raises:
        GraphError: it has none.
    """
    return RULES.get(site.node.id, by_name)(site)


@cache
def _signature(op: Operator) -> inspect.Signature:
    return inspect.signature(op)


def arguments_of(node: Node) -> Named:
    """A node's arguments by name; empty where its operator does not name them."""
    assert isinstance(node.op, Operator)
    signature = _signature(node.op)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return {}
    bound = signature.bind(*node.args, **node.kwargs)
    bound.apply_defaults()
    return {k: v for k, v in bound.arguments.items() if k not in ("target", "out")}


def by_name(site: Site, takers: Sequence[str] = ()) -> Found:
    """The gradients by `<op>_grad`.

    Args:
        site: Where.
        takers: The arguments that its results belong to; those that are floats, in
            order, where it is not said.

    Raises:
        GraphError: there is no such operator.
    """
    node = site.node
    try:
        gradient = find(f"{node.id}_grad")
    except OperatorError:
        raise GraphError(_without(node)) from None
    made = gradient(
        *_seeds(site, gradient),
        *_positional(site, gradient),
        **_by_keyword(site, gradient),
    )
    results = made if isinstance(made, tuple) else (made,)
    named = [site.named.get(name) for name in takers]
    given = values_in(named if takers else (node.args, tuple(node.kwargs.values())))
    return list(zip(filter(is_float, given), results, strict=False))


def _seeds(site: Site, gradient: Operator) -> list[Value | None]:
    """The gradients of the results, as the gradient takes them: of all, or the first.

    Of an operand that is a number there is no result.
    """
    if not isinstance(gradient, Gradient) or len(gradient.seeds) == 1:
        return [site.dy]
    dys = iter(site.dys)
    there = (values_in([site.named.get(like, ())]) for like in gradient.seeds.values())
    return [next(dys) if any(True for _ in found) else None for found in there]


def _without(node: Node) -> str:
    """What is said of an operator that has no gradient."""
    if node.id.endswith("_grad"):
        return (
            f"{node.id} ({node.place}) is a gradient that has none itself: give it a "
            f"rule with graph.gradient_of, or compute {node.id.removesuffix('_grad')} "
            "by operators whose gradients have gradients"
        )
    return (
        f"{node.id} ({node.place}) has no gradient: no operator {node.id}_grad is "
        "defined; define one, or give it a rule with graph.gradient_of"
    )


def _names(site: Site, gradient: Operator) -> list[str]:
    """The arguments of the operator that its gradient takes too, by name, in order."""
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
    """What is written inside repeats draws on purpose: its keys are no uses."""

    def __enter__(self) -> None:
        self._token = REPLAYING.set(True)

    def __exit__(self, *_: object) -> None:
        REPLAYING.reset(self._token)
