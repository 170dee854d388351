"""The forms of the language: functions, branches, loops and names.

@graph.function
def scaled(x, s):
    return math.multiply(x, s)

y = graph.cond(flag, lambda: scaled(x, s), lambda: x)
total = graph.loop(10, lambda i, sum: math.add(sum, x), start)
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final, TypeVar

import numpy as np

from tensorlang.errors import ArgumentError, GraphError, ShapeError
from tensorlang.graph.networks.leaves import Data, constant
from tensorlang.graph.program import Body, Graph, trace
from tensorlang.graph.scopes import call_site, current, path, training
from tensorlang.graph.specs import Spec, TensorSpec
from tensorlang.graph.values import Form, Named, OpResult, Value, make

B = TypeVar("B", bound=Body)

CALL: Final = Form("call")
IF: Final = Form("if")
FOR: Final = Form("for")
WHILE: Final = Form("while")
LET: Final = Form("let")

_COUNTER: Final = TensorSpec((), "int64")
_CALLING: ContextVar[tuple[Function, ...]] = ContextVar("calling", default=())


class Function:
    """A function of a program, traced once per combination of argument specs.

    Attributes:
        name: Its name in text and messages.
        body: The Python function that is traced.
        checkpoint: Whether its calls are kept under differentiation: nothing inside is
            saved; it is recomputed.
        gradient: Its own gradient rule, if any: from the arguments, results and result
            gradients to the argument gradients.
    """

    def __init__(self, body: Body) -> None:
        self.name = getattr(body, "__name__", type(body).__name__)
        self.body = body
        self.checkpoint = False
        self.gradient: Body | None = None
        self._graphs: dict[tuple[bool, tuple[Spec, ...]], Graph] = {}
        self.__doc__ = body.__doc__

    def __call__(self, *args: Data) -> OpResult:
        """Call it in the program being traced.

        Raises:
            GraphError: it calls itself.
        """
        values = tuple(map(constant, args))
        graph = self.graph(*(value.spec for value in values))
        return _applied(CALL, values, {}, graph.outputs, [graph], single=graph.single)

    def graph(self, *specs: Spec) -> Graph:
        """Its program for arguments of these specs.

        Raises:
            GraphError: it calls itself.
        """
        asked = (training(), specs)  # layers trace differently in training
        if asked in self._graphs:
            return self._graphs[asked]
        calling = _CALLING.get()
        if self in calling:
            chain = " calls ".join(f.name for f in (*calling, self))
            raise GraphError(
                f"{chain}: a graph has no recursion, as calls are inlined before it "
                "runs; write a loop with graph.loop or graph.while_loop"
            )
        code = getattr(self.body, "__code__", None)  # a layer has no `__code__`
        names = code.co_varnames[: code.co_argcount] if code else ()
        token = _CALLING.set((*calling, self))
        try:
            made = trace(self.body, specs, name=self.name, names=names)
        finally:
            _CALLING.reset(token)
        made.function = self
        if not any(value.node for value in made.free):  # independent of the caller
            self._graphs[asked] = made
        return made

    def with_gradient(self, rule: B) -> B:
        """Decorator that sets its gradient rule.

        The rule is called with the arguments, then the gradients of the results; it
        returns a gradient or None for each argument.
        """
        self.gradient = rule
        return rule


def function(body: Body) -> Function:
    """Decorator that makes a Python function a function of a program."""
    return Function(body)


def cond(condition: Data, then: Body, otherwise: Body, *operands: Data) -> OpResult:
    """The result of `then` where the condition is not 0, else of `otherwise`.

    Args:
        condition: A tensor of one element.
        then: A function of the operands; it may capture outside values.
        otherwise: The same.
        operands: The arguments of the branches.

    Raises:
        ArgumentError: a branch is not callable.
        ShapeError: the condition has several elements, or the branches differ in specs.
    """
    for branch in (then, otherwise):
        if not callable(branch):
            raise ArgumentError(
                f"{call_site()}: a branch of graph.cond is a function, such as "
                f"lambda: x, not {branch!r:.60}; math.where chooses between tensors"
            )
    test, values = constant(condition), tuple(map(constant, operands))
    _single("the condition of an if", test.spec)
    graphs = [
        trace(lambda branch=branch: branch(*values), (), name=name)
        for name, branch in (("then", then), ("else", otherwise))
    ]
    kinds = [tuple(value.spec for value in graph.outputs) for graph in graphs]
    if kinds[0] != kinds[1]:
        raise ShapeError(
            f"{call_site()}: the branches of an if must return the same specs, not "
            f"{_listed(kinds[0])} in one and {_listed(kinds[1])} in the other"
        )
    return _applied(IF, (test,), {}, graphs[0].outputs, graphs, single=graphs[0].single)


def loop(count: Data, body: Body, *carry: Data) -> OpResult:
    """Run a body `count` times on the turn's number and the previous carry.

    Args:
        count: The trip count: a number, or an integer tensor of one element.
        body: Maps `(i, *carry)` to the next carry, of the same specs.
        carry: The initial carry.

    Returns:
        The final carry; the initial one if there are no turns.

    Raises:
        ArgumentError: the count is not a non-negative integer.
        ShapeError: the carry changes its specs, or the count has several elements.
    """
    turns = _turns(count)
    start = tuple(map(constant, carry))
    specs = tuple(value.spec for value in start)
    graph = trace(body, (_COUNTER, *specs), names=("i",), name="body")
    _check_carry("loop", specs, graph)
    return _applied(FOR, start, {"count": turns}, start, [graph], single=graph.single)


def while_loop(condition: Body, body: Body, *carry: Data) -> OpResult:
    """Run a body as long as a condition on the carry is not 0.

    Args:
        condition: Maps the carry to a tensor of one element.
        body: Maps the carry to the next one, of the same specs.
        carry: The initial carry.

    Raises:
        ShapeError: the carry changes its specs, or the condition has several elements.
    """
    start = tuple(map(constant, carry))
    specs = tuple(value.spec for value in start)
    test = trace(condition, specs, name="while")
    _single("the condition of graph.while_loop", *(v.spec for v in test.outputs))
    graph = trace(body, specs, name="body")
    _check_carry("while_loop", specs, graph)
    return _applied(WHILE, start, {}, start, [test, graph], single=graph.single)


def _single(what: str, *specs: Spec) -> None:
    """Reject anything but one tensor of one element."""
    one = len(specs) == 1 and isinstance(specs[0], TensorSpec)
    if not one or any(extent != 1 for extent in specs[0].shape):
        shown = ", ".join(map(str, specs))
        raise ShapeError(f"{call_site()}: {what} has one element, not {shown}")


def _turns(count: Data) -> int | Value:
    """The trip count of a loop: a number, or an integer tensor of one element."""
    if isinstance(count, (int, np.integer)) and not isinstance(count, bool):
        if count >= 0:
            return int(count)
        shown: Spec | int = int(count)
    else:
        turns = constant(count)
        _single("the count of graph.loop", turns.spec)
        if isinstance(turns.spec, TensorSpec) and turns.spec.numpy.kind in "iu":
            return turns
        shown = turns.spec
    raise ArgumentError(
        f"{call_site()}: the count of graph.loop is a non-negative integer, not {shown}"
    )


def _check_carry(name: str, specs: tuple[Spec, ...], graph: Graph) -> None:
    given = tuple(value.spec for value in graph.outputs)
    if given != specs:
        raise ShapeError(
            f"{call_site()}: the body of graph.{name} takes {_listed(specs)} and must "
            f"return the same, not {_listed(given)}"
        )


def _listed(specs: Sequence[Spec]) -> str:
    return f"({', '.join(map(str, specs))})"


def let(name: str, value: Data) -> OpResult:
    """Name a value in the program's text."""
    made = _applied(LET, (constant(value),), {}, (constant(value),), [], single=True)
    made.name = name
    return made


def _applied(
    form: Form,
    args: tuple[Value, ...],
    kwargs: Named,
    like: Sequence[Value],
    graphs: Sequence[Graph],
    *,
    single: bool,
) -> OpResult:
    """The results of a form, with the specs of other values."""
    specs = [value.spec for value in like]
    node = make(
        form, args, kwargs, specs, graphs=graphs, where=call_site(), path=path()
    )
    scope = current()
    if any(graph.stateful for graph in graphs):
        if scope is None:
            raise GraphError(
                f"{call_site()}: {form.id} of what reads and writes references outside "
                "of a function: order matters there; write it in a graph.function"
            )
        scope.effects.append(node)
    return node.results[0] if single else node.results
