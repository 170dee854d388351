"""Reverse-mode differentiation: programs that compute gradients of programs.

Gradients are nodes like all others, written into the program that is being written.
What stands inside of a branch, a loop or a call is computed again on the way back; so a
call of `graph.checkpoint(f)` keeps nothing of `f` but its arguments. Training writes
other calls out first (`graph.inline`), and keeps what they computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph import gradient_rules as _rules  # noqa: F401 - they register
from tensorlang.graph import second_rules as _second  # noqa: F401 - the same
from tensorlang.graph.forms import IF, Function
from tensorlang.graph.gradients import Found, Site, arguments_of, is_float, of_operator
from tensorlang.graph.leaves import constant
from tensorlang.graph.program import Graph, trace
from tensorlang.graph.rewriting import Rewriter
from tensorlang.graph.scopes import named, outside
from tensorlang.graph.specs import TensorSpec
from tensorlang.graph.values import Form, Key, Node, Value, make
from tensorlang.ops import math

_WITHOUT: Final = {
    "for_grad": "the gradient of the loop at {} has no gradient itself; where one is "
    "needed, write the turns out in Python",
    "while_grad": "the gradient of the while_loop at {} has no gradient itself; where "
    "one is needed, write a number of turns out in Python",
}
ZEROS: Final = Form("zeros")
FOR_GRAD: Final = Form("for_grad")
WHILE_GRAD: Final = Form("while_grad")


def gradients(
    of: Value | Sequence[Value],
    wrt: Sequence[Value],
    seeds: Sequence[Value | None] | None = None,
) -> list[Any]:
    """The gradients of a value with respect to others.

    Args:
        of: A tensor of one element; with `seeds`, one or several of any shape.
        wrt: Tensors that it was computed from, weights among them.
        seeds: The gradient of each of `of`.

    Returns:
        A tensor for each of `wrt`: zeros where nothing depends on it.

    Raises:
        GraphError: something on the way has no gradient.
    """
    results = (of,) if isinstance(of, Value) else tuple(of)
    if seeds is None:
        seeds = [_one(value) for value in results]
    found = backward(results, seeds, wrt)
    return [_or_zeros(found.get(value), value) for value in wrt]


def _one(value: Value) -> Value:
    if any(extent != 1 for extent in value.shape) or not is_float(value):
        raise GraphError(
            f"{outside()}: the gradient of one number is meant, not of {value.spec}; "
            "sum it, or give seeds"
        )
    assert isinstance(value.spec, TensorSpec)
    return constant(np.ones(value.spec.at({}).shape, value.spec.numpy))


def zeros(spec: Any) -> Any:
    """A tensor of zeros."""
    return make(ZEROS, (), {}, (spec,), where=outside()).results[0]


def _or_zeros(gradient: Value | None, value: Value) -> Value:
    made: Value = zeros(value.spec) if gradient is None else gradient
    return made


def backward(
    results: Sequence[Value], seeds: Sequence[Value | None], wrt: Sequence[Value]
) -> dict[Value, Value]:
    """The gradient of each value that lies between."""
    sums: dict[Value, Value] = {}
    for value, seed in zip(results, seeds, strict=True):
        if seed is not None:
            _add(sums, value, seed)
    nodes, needed = _between(results, set(wrt))
    for node in reversed(nodes):
        dys = tuple(sums.get(value) for value in node.results)
        if all(dy is None for dy in dys):
            continue
        wanted = frozenset(v for v in node.inputs if v in needed and is_float(v))
        with named(f"{node.path}'" if node.path else ""):
            for value, gradient in _of_node(node, dys, wanted):
                if gradient is not None and value in wanted:
                    _add(sums, value, gradient)
    return sums


def _between(
    results: Iterable[Value], wrt: set[Value]
) -> tuple[list[Node], set[Value]]:
    """The nodes that lead from some values to others, and the values on the way."""
    nodes = _ancestors(results, wrt)
    needed = set(wrt)
    kept = []
    for node in nodes:
        if needed.intersection(node.inputs) and any(map(is_float, node.results)):
            needed.update(node.results)
            kept.append(node)
    return kept, needed


def _ancestors(results: Iterable[Value], stop: set[Value]) -> list[Node]:
    found: dict[int, Node] = {}
    waiting = list(results)
    while waiting:
        value = waiting.pop()
        node = value.node
        if node is not None and value not in stop and node.serial not in found:
            found[node.serial] = node
            waiting += node.inputs
    return [found[serial] for serial in sorted(found)]


def _add(sums: dict[Value, Value], value: Value, gradient: Value) -> None:
    held = sums.get(value)
    sums[value] = gradient if held is None else math.add(held, gradient)


def _of_node(
    node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]
) -> Found:
    form = FORMS.get(node.id)
    if form is not None:
        return form(node, dys, wanted)
    if isinstance(node.op, Form):
        said = _WITHOUT.get(node.id, f"{node.id} ({{}}) has no gradient")
        raise GraphError(said.format(node.place))
    return of_operator(Site(node, arguments_of(node), dys, wanted))


# ------------------------------------------------------------------ the forms


class _Replay(Rewriter):
    """Nodes computed again: their draws repeat those of the first time."""

    def copied(self, node: Node, *args: Any, **kwargs: Any) -> tuple[Value, ...]:
        made = super().copied(node, *args, **kwargs)
        if made and made[0].node is not None:
            made[0].node.replay = True
        return made


def _again(graph: Graph, given: Sequence[Value]) -> tuple[Value, ...]:
    """The outputs of a program, computed here again from its inputs."""
    replay = _Replay()
    replay.now.update(zip(graph.inputs, given, strict=True))
    replay.nodes(graph)
    return tuple(replay[value] for value in graph.outputs)


def _let(node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]) -> Found:
    del wanted
    return [(node.args[0], dys[0])]


def _nothing(
    node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]
) -> Found:
    del node, dys, wanted
    return []


def _call(node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]) -> Found:
    """A call: by its own rule, or by computing it again."""
    (graph,) = node.graphs
    own: Function | None = graph.function
    if own is not None and own.gradient is not None:
        pairs = zip(dys, node.results, strict=True)
        made = own.gradient(*node.args, *(_or_zeros(dy, v) for dy, v in pairs))
        several = made if isinstance(made, tuple) else (made,)
        return list(zip(node.args, several, strict=True))
    given = [apart(value) for value in node.args]
    outputs = _again(graph, given)
    asked = [v for v in given if is_float(v)] + [v for v in graph.free if v in wanted]
    found = backward(outputs, dys, asked)
    both = [*zip(node.args, given, strict=True), *((v, v) for v in graph.free)]
    return [(value, found.get(inner)) for value, inner in both]


def apart(value: Value) -> Value:
    """The value under another identity: gradients stop there."""
    from tensorlang.graph.forms import LET  # noqa: PLC0415 - beside its only use

    if isinstance(value, Key):
        return value
    return make(LET, (value,), {}, (value.spec,), where=outside()).results[0]


def _if(node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]) -> Found:
    """An `if` of gradients: in each branch, that branch again and its gradients."""
    around = dict.fromkeys(value for graph in node.graphs for value in graph.free)
    asked = [value for value in around if value in wanted]

    def back(graph: Graph) -> Callable[[], Any]:
        def branch() -> Any:
            found = backward(_again(graph, ()), dys, asked)
            return tuple(_or_zeros(found.get(value), value) for value in asked)

        return branch

    graphs = [trace(back(graph), (), name=graph.name) for graph in node.graphs]
    specs = [value.spec for value in asked]
    made = make(IF, node.args, {}, specs, graphs=graphs, where=node.where)
    return list(zip(asked, made.results, strict=True))


def _loop(node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]) -> Found:
    """A loop of gradients, from the last turn to the first; carries are kept.

    Its node runs the loop again and keeps what each turn was given; then a program, for
    each turn from the last, takes the turn's number and carry and the gradients of what
    it gave, and gives those of the carry and, to be summed, of what is around it.
    """
    *test, body = node.graphs
    counted = node.id == "for"
    carry = body.inputs[1:] if counted else body.inputs
    at = [n for n, value in enumerate(carry) if is_float(value)]
    free = [value for value in body.free if value in wanted]

    def turn(*given: Value) -> tuple[Any, ...]:
        inputs, back = given[: len(body.inputs)], given[len(body.inputs) :]
        outputs = _again(body, inputs)
        own = inputs[1:] if counted else inputs
        asked = [*(own[n] for n in at), *free]
        return tuple(gradients([outputs[n] for n in at], asked, back))

    specs = [value.spec for value in body.inputs] + [carry[n].spec for n in at]
    step = trace(turn, specs, name="back")
    given = [_or_zeros(dys[n], carry[n]) for n in at]
    made = make(
        FOR_GRAD if counted else WHILE_GRAD,
        (*node.args, *given),
        dict(node.kwargs),
        [*(carry[n].spec for n in at), *(value.spec for value in free)],
        graphs=[*test, body, step],
        where=node.where,
        replay=True,
    )
    return list(zip([*(node.args[n] for n in at), *free], made.results, strict=True))


FORMS: Final[dict[str, Callable[..., Found]]] = {
    "let": _let,
    "zeros": _nothing,
    "element": _nothing,
    "call": _call,
    "if": _if,
    "for": _loop,
    "while": _loop,
}


def checkpoint(function: Callable[..., Any]) -> Function:
    """A function of which training keeps the arguments, and computes the rest again.

    Usable as a decorator, or around a layer's application.
    """
    made = function if isinstance(function, Function) else Function(function)
    made.checkpoint = True
    return made
