"""Programs: inputs, nodes and outputs; tracing of Python functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tensorlang import lazy
from tensorlang.errors import ArgumentError, GraphError
from tensorlang.graph.networks.leaves import CONSTANTS, Weight, constant
from tensorlang.graph.passes.linearity import check_keys
from tensorlang.graph.scopes import Scope, current, entered
from tensorlang.graph.specs import Extent, KeySpec, Spec, TensorSpec, shape_of
from tensorlang.graph.text.printing import text
from tensorlang.graph.values import (
    Key,
    Node,
    OpResult,
    Tensor,
    Value,
    value_of,
    values_in,
)
from tensorlang.notebooks import card

with lazy.modules(__name__):  # they stand on programs
    from tensorlang.graph.execution import running as execution
    from tensorlang.graph.passes import rewriting

if TYPE_CHECKING:
    from tensorlang.graph.execution.binding import Bound, Target
    from tensorlang.graph.execution.running import Input, Result
    from tensorlang.graph.forms import Function

Body: TypeAlias = Callable[..., OpResult]  # a Python function that is traced


class Graph:
    """A program: a function from inputs to outputs, with nodes in execution order.

    Construction checks that it has no cycles and uses no key twice on any path. Calling
    it on arrays runs it (`tensorlang.graph.execution.running`).

    Attributes:
        name: Its name.
        inputs: The values passed to each call.
        outputs: Its results.
        single: Whether a call returns one value instead of a tuple.
        nodes: Its nodes in order.
        free: Values captured from the enclosing program, and weights.
        effects: Nodes kept even if their results are unused: writes of references.
        function: The `Function` whose body it is, if any.
        bound: Bound programs by thread and sizes.
    """

    def __init__(
        self,
        inputs: Sequence[Value],
        outputs: Sequence[Value] | Value,
        *,
        name: str = "main",
        effects: Sequence[Node] = (),
        scope: Scope | None = None,
        single: bool | None = None,
    ) -> None:
        one = isinstance(outputs, Value)
        self.name = name
        self.inputs = tuple(inputs)
        several = (outputs,) if isinstance(outputs, Value) else outputs
        self.outputs: tuple[Value, ...] = tuple(several)
        self.single = one if single is None else single
        self.effects = tuple(effects)
        self.scope = scope
        self.function: Function | None = None
        self.nodes, self.free = _reached(self)
        self.bound: dict[Hashable, Bound] = {}
        check_keys(self)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights that it reads, in order of creation."""
        return tuple(value for value in self.free if isinstance(value, Weight))

    @property
    def stateful(self) -> bool:
        """Whether it, or a function it calls, reads or writes references."""
        return any(
            node.id in ("read", "write") or any(g.stateful for g in node.graphs)
            for node in self.nodes
        )

    def __call__(self, *arguments: Input, target: Target = None) -> Result:
        """Run it on arrays and keys; see `tensorlang.graph.execution.running.run`.

        With symbolic values, it is inlined into the program being traced.
        """
        if any(isinstance(argument, Value) for argument in arguments):
            return rewriting.inline_call(self, tuple(map(constant, arguments)))
        return execution.run(self, arguments, target)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return f"<graph {self.name}: {len(self.nodes)} nodes>"

    def _repr_html_(self) -> str:
        """What a notebook shows: inputs, outputs, counts of operators, the text."""
        counts = Counter(node.id for node in self.nodes)
        facts = {
            "inputs": ", ".join(f"{each.name}: {each.spec}" for each in self.inputs),
            "outputs": ", ".join(str(each.spec) for each in self.outputs),
            "operators": ", ".join(f"{n} x {op}" for op, n in counts.most_common()),
        }
        return card(f"graph {self.name}", facts, [("text", "python", str(self))])


def _reached(graph: Graph) -> tuple[tuple[Node, ...], tuple[Value, ...]]:
    """The nodes that outputs and effects depend on, and the captured values.

    Raises:
        GraphError: a node depends on its own result.
    """
    given, nodes = set(graph.inputs), {}
    free: dict[Value, None] = {}
    waiting = [*graph.outputs, *(v for node in graph.effects for v in node.inputs)]
    nodes = {id(node): node for node in graph.effects}
    while waiting:
        value = waiting.pop()
        if value in given or isinstance(value, CONSTANTS):
            continue
        if _from_outside(value, graph.scope):
            free[value] = None
            continue
        node = value.node
        assert node is not None
        if id(node) not in nodes:
            nodes[id(node)] = node
            waiting += node.inputs
    ordered = sorted(nodes.values(), key=lambda node: node.serial)
    _check_order(graph.name, ordered)
    return tuple(ordered), tuple(sorted(free, key=_first))


def _from_outside(value: Value, scope: Scope | None) -> bool:
    """Whether a value is not computed in this program: a weight, or captured."""
    if value.node is None:
        return True
    return scope is not None and value.node.scope is not scope


def _first(value: Value) -> tuple[int, str]:
    if isinstance(value, Weight):
        return (1 << 60, value.path)
    return (value.node.serial if value.node else -1, value.name)


def _check_order(name: str, nodes: Iterable[Node]) -> None:
    done: set[int] = set()
    ordered = list(nodes)
    own = {id(node) for node in ordered}
    for node in ordered:
        for value in node.inputs:
            made = value.node
            if made is not None and id(made) in own and id(made) not in done:
                raise GraphError(
                    f"{name}: {node.id} ({node.place}) needs the result of "
                    f"{made.id} ({made.place}), which follows it or is itself: "
                    "a graph has no cycles; write a loop with graph.loop"
                )
        done.add(id(node))


# --------------------------------------------------------------- writing one


def input(
    spec: TensorSpec | KeySpec | Sequence[Extent | str], name: str = "x"
) -> OpResult:
    """A placeholder: a symbolic tensor or key that is passed when a program runs.

    Args:
        spec: Its spec; a bare shape means `float32`.
        name: Its name.
    """
    if not isinstance(spec, (TensorSpec, KeySpec)):
        spec = TensorSpec(shape_of(tuple(spec)))
    made = value_of(spec)
    made.name = name
    return made


def key(name: str = "key", impl: str = "threefry2x32") -> Key:
    """A placeholder for a random key that is passed when a program runs."""
    made = input(KeySpec((), impl), name)
    assert isinstance(made, Key)
    return made


def trace(
    function: Body,
    specs: Sequence[Spec | Value],
    *,
    name: str = "",
    names: Sequence[str] = (),
) -> Graph:
    """Trace a Python function by calling it on placeholders.

    Args:
        function: Takes a value for each spec; returns a value, or a tuple of values.
        specs: Specs of the inputs, or values to take the specs from.
        name: The program's name; the function's name by default.
        names: The names of the inputs.

    Raises:
        ArgumentError: it is no function, returns something other than values, or does
            not take a value for each spec.
    """
    if not callable(function):
        raise ArgumentError(f"a function is traced, not {function!r:.80}")
    if not isinstance(specs, Iterable):
        raise ArgumentError(
            f"specs is a list of specs of the inputs, not {specs!r:.80}"
        )
    called = name or getattr(function, "__name__", "main").replace("<lambda>", "main")
    with entered(called) as scope:
        inputs = []
        for n, spec in enumerate(specs):
            kind = spec.spec if isinstance(spec, Value) else spec
            inputs.append(input(kind, names[n] if n < len(names) else f"x{n}"))
        made = function(*inputs)
        single = not isinstance(made, (tuple, list))
        outputs = [_result(called, each) for each in ((made,) if single else made)]
    return Graph(
        inputs, outputs, name=called, effects=scope.effects, scope=scope, single=single
    )


def _result(name: str, value: OpResult) -> Value:
    try:
        made = constant(value)
        if made.spec.numpy.kind != "O" if isinstance(made.spec, TensorSpec) else True:
            return made
    except (TypeError, ValueError):
        pass
    raise ArgumentError(
        f"{name} returns {value!r:.60}; a program returns values, or a tuple of them"
    )


def specs_of(values: Iterable[Value]) -> tuple[Spec, ...]:
    """The specs of values."""
    return tuple(value.spec for value in values)


__all__ = [
    "Graph",
    "Tensor",
    "current",
    "input",
    "key",
    "specs_of",
    "trace",
    "values_in",
]
