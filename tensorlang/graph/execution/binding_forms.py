"""Binding of forms, the nodes of a program that are not operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.graph.execution.loops import Back, Loop, Storage, copies, is_set
from tensorlang.graph.specs import KeySpec, TensorSpec, at_sizes
from tensorlang.graph.values import Node
from tensorlang.ops.random.impls import impl
from tensorlang.runtime.arrays import buffers

if TYPE_CHECKING:
    from tensorlang.graph.execution.binding import Binder, Bound


def storage(spec: TensorSpec | KeySpec) -> Storage:
    """Fresh memory for a spec without named sizes: elements, or a key's words."""
    shape = at_sizes(spec.shape, {})
    if isinstance(spec, KeySpec):
        how = impl(spec.impl)
        return np.zeros((*shape, how.key_words), how.dtype)
    return buffers.empty(shape, spec.numpy)


def into(bound: Bound, results: Sequence[Storage]) -> Callable[[], None]:
    """Run a program, then copy its outputs to the results."""
    copy = copies(results, bound.outputs)

    def run() -> None:
        bound()
        copy()

    return run


def let(binder: Binder, node: Node) -> None:
    """An alias of the same memory."""
    binder.at[node.results[0]] = binder.storage(node.args[0])


def element(binder: Binder, node: Node) -> None:
    """One key of a batch."""
    binder.at[node.results[0]] = binder.storage(node.args[0])[node.args[1]]


def call(binder: Binder, node: Node) -> None:
    """A function call: the body bound inline to the memory of its arguments."""
    inner = binder.inside(node.graphs[0], [binder.storage(v) for v in node.args])
    binder.made.steps += inner.steps
    for value, out in zip(node.results, inner.outputs, strict=True):
        if value in binder.at:
            binder.made.steps.append((np.copyto, (binder.at[value], out)))
        else:
            binder.at[value] = out


def branch(binder: Binder, node: Node) -> None:
    """An `if`: runs one of two programs and copies its results."""
    results = binder.results(node)
    paths = [binder.inside(graph, ()) for graph in node.graphs]
    then, otherwise = (into(path, results) for path in paths)
    test = binder.storage(node.args[0])

    def run() -> None:
        (then if is_set(test) else otherwise)()

    binder.made.steps.append((run, ()))


def loop(binder: Binder, node: Node) -> None:
    """A loop: the results are the carry, which the body overwrites."""
    binder.made.steps.append((_loop(binder, node, binder.results(node)), ()))


def _loop(binder: Binder, node: Node, carry: Sequence[Storage]) -> Loop:
    """A loop, or the loop that its gradient reruns with a separate carry."""
    start = copies(carry, [binder.storage(v) for v in node.args[: len(carry)]])
    turn = np.zeros((), np.int64)
    if node.id.startswith("for"):
        body = binder.inside(node.graphs[0], [turn, *carry])
        given = node.kwargs["count"]
        count = np.int64(given) if isinstance(given, int) else binder.storage(given)
        return Loop(turn, carry, start, into(body, carry), lambda n: n < int(count))
    test, body = (binder.inside(graph, carry) for graph in node.graphs[:2])

    def going(_: int) -> bool:
        test()
        return is_set(test.outputs[0])

    return Loop(turn, carry, start, into(body, carry), going)


def loop_gradient(binder: Binder, node: Node) -> None:
    """The backward pass of a loop; see `tensorlang.graph.execution.loops.Back`."""
    counted = node.id == "for_grad"
    *_, body, step = node.graphs
    own = body.inputs[1:] if counted else body.inputs
    carry = [storage(value.spec.at(binder.sizes)) for value in own]
    given = [binder.storage(value) for value in node.args[len(carry) :]]
    loop = _loop(binder, node, carry)
    # the results are the gradients of the carry, which the step also reads, and the
    # sums
    results = binder.results(node)
    back, sums = results[: len(given)], results[len(given) :]
    inputs = [loop.turn, *carry] if counted else carry
    inner = binder.inside(step, [*inputs, *back])
    handed, around = inner.outputs[: len(given)], inner.outputs[len(given) :]
    begin, hand = copies(back, given), copies(back, handed)
    run = Back(loop, inner, begin, hand, around, sums)
    binder.made.steps.append((run, ()))


def zeros(binder: Binder, node: Node) -> None:
    """Zeros: memory that is never written."""
    (result,) = node.results
    spec = result.spec.at(binder.sizes)
    assert isinstance(spec, TensorSpec)
    binder.at[result] = np.zeros(at_sizes(spec.shape, {}), spec.numpy)


FORMS: Final[dict[str, Callable[[Binder, Node], None]]] = {
    "let": let,
    "element": element,
    "call": call,
    "if": branch,
    "for": loop,
    "while": loop,
    "for_grad": loop_gradient,
    "while_grad": loop_gradient,
    "zeros": zeros,
}
