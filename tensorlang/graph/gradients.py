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
from typing import Any, Final, TypeAlias

from tensorlang.errors import GraphError, OperatorError
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import REPLAYING, Node, Value, values_in
from tensorlang.ops import math, nn, random
from tensorlang.ops.operator import Operator
from tensorlang.ops.registry import find

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
    named: Mapping[str, Any]
    dys: tuple[Value | None, ...]
    wanted: frozenset[Value]

    @property
    def dy(self) -> Value:
        """The gradient of the first result."""
        (first, *_) = self.dys
        if first is None:
            raise GraphError(
                f"{self.node.id} ({self.node.place}) has a gradient of its first "
                "result only, and that is not asked for"
            )
        return first

    def wants(self, name: str) -> bool:
        """Whether the gradient of an argument is needed."""
        return self.named.get(name) in self.wanted


# an argument that appears twice has two gradients
Found: TypeAlias = list[tuple[Value, "Value | None"]]
Rule: TypeAlias = Callable[[Site], Found]
RULES: Final[dict[str, Rule]] = {}


def gradient_of(op: Operator) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give an operator a gradient of one's own: a decorator.

    The rule is called with the gradients of the results, then as the operator was; it
    returns a gradient, or None, for each positional argument.
    """

    def add(rule: Callable[..., Any]) -> Callable[..., Any]:
        def found(site: Site) -> Found:
            made = rule(*site.dys, *site.node.args, **site.node.kwargs)
            several = made if isinstance(made, tuple) else (made,)
            return [
                (arg, each)
                for arg, each in zip(site.node.args, several, strict=True)
                if isinstance(arg, Value)
            ]

        RULES[op.id] = found
        return rule

    return add


def rule(*ids: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of operators: a decorator."""

    def add(found: Rule) -> Rule:
        RULES.update(dict.fromkeys(ids, found))
        return found

    return add


def is_float(value: Value) -> bool:
    """Whether it is a tensor of floats: what has a gradient."""
    return isinstance(value.spec, TensorSpec) and value.spec.dtype in _FLOATS


def of_operator(site: Site) -> Found:
    """The gradients of an operator's arguments.

    Raises:
        GraphError: it has none.
    """
    return RULES.get(site.node.id, by_name)(site)


@cache
def _signature(op: Operator) -> inspect.Signature:
    return inspect.signature(op.__wrapped__)


def arguments_of(node: Node) -> dict[str, Any]:
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
        raise GraphError(
            f"{node.id} ({node.place}) has no gradient: no operator {node.id}_grad is "
            "defined; define one, or give it a rule with graph.gradient_of"
        ) from None
    made = gradient(
        site.dy, *_positional(site, gradient), **_by_keyword(site, gradient)
    )
    results = made if isinstance(made, tuple) else (made,)
    named = [site.named.get(name) for name in takers]
    given = values_in(named if takers else (node.args, tuple(node.kwargs.values())))
    return list(zip(filter(is_float, given), results, strict=False))


def _names(site: Site, gradient: Operator) -> list[str]:
    """The arguments of the operator that its gradient takes too, by name, in order."""
    if not site.named:
        return []
    return [name for name in _signature(gradient).parameters if name in site.named]


def _positional(site: Site, gradient: Operator) -> list[Any]:
    if not site.named:
        return list(site.node.args)
    parameters = _signature(gradient).parameters
    ordinary = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        site.named[name]
        for name in _names(site, gradient)
        if parameters[name].kind is ordinary
    ]


def _by_keyword(site: Site, gradient: Operator) -> dict[str, Any]:
    if not site.named:
        return dict(site.node.kwargs)
    parameters = _signature(gradient).parameters
    only = inspect.Parameter.KEYWORD_ONLY
    return {
        name: site.named[name]
        for name in _names(site, gradient)
        if parameters[name].kind is only
    }


# ------------------------------------------------------------- further rules


@rule("nn.batch_norm", "nn.batch_norm_train")
def _batch_norm(site: Site) -> Found:
    return by_name(site, ("x", "weight", "bias"))


@rule("math.add", "math.subtract")
def _added(site: Site) -> Found:
    """Of a sum: the result's own, summed where an operand was broadcast."""
    found: Found = []
    for n, name in enumerate(("a", "b")):
        operand = site.named[name]
        if isinstance(operand, Value) and operand in site.wanted:
            back = _unbroadcast(site.dy, operand)
            negative = n == 1 and site.node.id == "math.subtract"
            found.append((operand, math.negative(back) if negative else back))
    return found


def _unbroadcast(dy: Value, operand: Value) -> Any:
    """The gradient in the operand's shape."""
    if dy.shape == operand.shape:
        return dy
    ahead = dy.ndim - operand.ndim
    same = zip(dy.shape[ahead:], operand.shape, strict=True)
    kept = tuple(n for n, (a, b) in enumerate(same) if a != b)
    if ahead:
        dy = math.sum(dy, tuple(range(ahead)))
    return math.sum(dy, kept, keepdims=True) if kept else dy


@rule("nn.mse")
def _mse(site: Site) -> Found:
    found = by_name(site, ("prediction",))
    if site.wants("truth"):
        found.append((site.named["truth"], math.negative(found[0][1])))
    return found


@rule("nn.dropout_train")
def _dropout_train(site: Site) -> Found:
    """The mask of the forward call, from the state that it was given."""
    named = site.named
    with replaying():
        _, key = random.split(named["state"])
    made = nn.dropout_grad(site.dy, named["rate"], key=key, stream=named["stream"])
    return [(named["x"], made)]


@rule("nn.dense")
def _dense(site: Site) -> Found:
    named, dy = site.named, site.dy
    found: Found = []
    if named["residual"] is not None:
        found.append((named["residual"], dy))
    if named["key"] is not None:
        dy = nn.dropout_grad(dy, named["dropout"], key=named["key"])
    x, w, b, layout = (named[name] for name in ("x", "w", "b", "layout"))
    exact = named["residual"] is None

    def before() -> Any:
        return nn.dense(x, w, b, layout=layout)

    dy = _through_activation(site, dy, before, exact=exact)
    if x in site.wanted:
        made = nn.dense_grad(dy, x, w, layout=layout)
        return [*found, *_present((x, w, b), made)]
    rows = [nn.reshape(each, (-1, each.shape[-1])) for each in (dy, x)]
    if layout == "io":
        rows.reverse()
    dw = math.matmul(*rows, transpose_a=True) if w in site.wanted else None
    db = math.sum(dy, tuple(range(dy.ndim - 1))) if b in site.wanted else None
    return [*found, *_present((w, b), (dw, db))]


@rule("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _convolution(site: Site) -> Found:
    named, node = site.named, site.node
    rest = {
        name: named[name]
        for name in ("stride", "padding", "dilation", "groups", "layout")
    }
    x, w, b = (named[name] for name in ("x", "w", "b"))

    def before() -> Any:
        return node.op(x, w, b, **rest)  # type: ignore[operator]

    dy = _through_activation(site, site.dy, before, exact=True)
    if x in site.wanted:
        made = find(f"{node.id}_grad")(dy, x, w, b, **rest)
        return _present((x, w, b), made)
    weight = find(f"{node.id}_grad_weight")
    dw = weight(dy, x, w.shape[2:], **rest) if w in site.wanted else None
    db = _by_channel(dy, named["layout"]) if b in site.wanted else None
    return _present((w, b), (dw, db))


def _by_channel(dy: Value, layout: str | None) -> Any:
    """The sum of each channel: over its pixels, then over the batch."""
    if str(layout or "NCHW").endswith("C"):
        return math.sum(dy, tuple(range(dy.ndim - 1)))
    return math.sum(math.sum(nn.reshape(dy, (*dy.shape[:2], -1)), 2), 0)


def _present(values: Sequence[Any], made: Sequence[Any]) -> Found:
    """Those of the arguments that are there, with their gradients."""
    pairs = zip(values, made, strict=False)
    return [(value, each) for value, each in pairs if isinstance(value, Value)]


def _through_activation(
    site: Site, dy: Value, before: Callable[[], Any], *, exact: bool
) -> Any:
    """The gradient before a fused activation.

    relu's is read off the result, where that is the activation's own (what dropout
    took away has no gradient either); others are computed from what came in, again.
    """
    name = site.named["activation"]
    if name is None:
        return dy
    if name == "relu" and exact:
        return nn.relu_grad(dy, site.node.results[0])
    if name == "gelu_tanh":
        return nn.gelu_grad(dy, before(), "tanh")
    return find(f"nn.{name}_grad")(dy, before())


class replaying:  # noqa: N801 - used as `with replaying():`
    """What is written inside repeats draws on purpose: its keys are no uses."""

    def __enter__(self) -> None:
        self._token = REPLAYING.set(True)

    def __exit__(self, *_: object) -> None:
        REPLAYING.reset(self._token)
