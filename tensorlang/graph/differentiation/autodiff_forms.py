"""Backward passes of calls, branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang.graph.differentiation.autodiff import (
    FOR_GRAD,
    FORMS,
    WHILE_GRAD,
    backward,
    gradients,
)
from tensorlang.graph.differentiation.gradients import Gradients, is_float, or_zeros
from tensorlang.graph.forms import IF, LET, Function
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Body, Graph, trace
from tensorlang.graph.scopes import call_site
from tensorlang.graph.values import Key, Node, Value, make


class _Replay(Rewriter):
    """Recomputed nodes, whose draws repeat the original ones."""

    def node(self, node: Node) -> Sequence[Value]:
        made = self.copied(node)
        if made and made[0].node is not None:
            made[0].node.replay = True
        return made


def _recomputed(graph: Graph, given: Sequence[Value]) -> tuple[Value, ...]:
    """Recompute a program here from its inputs."""
    replay = _Replay()
    replay.now.update(zip(graph.inputs, given, strict=True))
    replay.nodes(graph)
    return tuple(replay[value] for value in graph.outputs)


def _let(
    node: Node, dys: tuple[Value | None, ...], _wanted: frozenset[Value]
) -> Gradients:
    return [(node.args[0], dys[0])]


def _nothing(
    _node: Node, _dys: tuple[Value | None, ...], _wanted: frozenset[Value]
) -> Gradients:
    return []


def _call(
    node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]
) -> Gradients:
    """Differentiate a call by its own rule, or by recomputing it."""
    (graph,) = node.graphs
    own: Function | None = graph.function
    if own is not None and own.gradient is not None:
        pairs = zip(dys, node.results, strict=True)
        made = own.gradient(*node.args, *(or_zeros(dy, v) for dy, v in pairs))
        several = made if isinstance(made, tuple) else (made,)
        return list(zip(node.args, several, strict=True))
    given = [detached(value) for value in node.args]
    outputs = _recomputed(graph, given)
    wrt = [v for v in given if is_float(v)] + [v for v in graph.free if v in wanted]
    found = backward(outputs, dys, wrt)
    both = [*zip(node.args, given, strict=True), *((v, v) for v in graph.free)]
    return [(value, found.get(inner)) for value, inner in both]


def detached(value: Value) -> Value:
    """A new identity for a value, at which gradients stop."""
    if isinstance(value, Key):
        return value
    return make(LET, (value,), {}, (value.spec,), where=call_site()).results[0]


def _if(
    node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]
) -> Gradients:
    """An `if` whose branches recompute the original branch and its gradients."""
    captured = dict.fromkeys(value for graph in node.graphs for value in graph.free)
    wrt = [value for value in captured if value in wanted]

    def back(graph: Graph) -> Callable[[], tuple[Value, ...]]:
        def branch() -> tuple[Value, ...]:
            found = backward(_recomputed(graph, ()), dys, wrt)
            return tuple(or_zeros(found.get(value), value) for value in wrt)

        return branch

    graphs = [trace(back(graph), (), name=graph.name) for graph in node.graphs]
    specs = [value.spec for value in wrt]
    made = make(IF, node.args, {}, specs, graphs=graphs, where=node.where)
    return list(zip(wrt, made.results, strict=True))


def _loop(
    node: Node, dys: tuple[Value | None, ...], wanted: frozenset[Value]
) -> Gradients:
    """A loop over the turns in reverse; the carry of each turn is saved.

    The node reruns the loop and saves the input of each turn. Then, from the last turn
    to the first, a program maps the turn's number and carry and the gradients of its
    results to the gradients of its carry and, to be summed, of the captured values.
    """
    *test, body = node.graphs
    counted = node.id == "for"
    carry = body.inputs[1:] if counted else body.inputs
    at = [n for n, value in enumerate(carry) if is_float(value)]
    free = [value for value in body.free if value in wanted]

    def turn(*given: Value) -> tuple[Value, ...]:
        inputs, back = given[: len(body.inputs)], given[len(body.inputs) :]
        outputs = _recomputed(body, inputs)
        own = inputs[1:] if counted else inputs
        wrt = [*(own[n] for n in at), *free]
        return tuple(gradients([outputs[n] for n in at], wrt, back))

    specs = [value.spec for value in body.inputs] + [carry[n].spec for n in at]
    step = trace(turn, specs, name="back")
    given = [or_zeros(dys[n], carry[n]) for n in at]
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


FORMS.update(
    {
        "let": _let,
        "zeros": _nothing,
        "element": _nothing,
        "call": _call,
        "if": _if,
        "for": _loop,
        "while": _loop,
    }
)


def checkpoint(function: Body) -> Function:
    """A function for which training saves only the arguments and recomputes the rest.

    Use it as a decorator or around a layer's application.
    """
    made = function if isinstance(function, Function) else Function(function)
    made.checkpoint = True
    return made
