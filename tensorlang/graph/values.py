"""Values of a program that has not run: tensors and keys, and the nodes that make them.

A value knows its spec and the node whose result it is; it has no data. Every operator
of `tensorlang.ops` takes such values by its usual name and gives such values back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tensorlang.graph.scopes import Scope, current, outside, path
from tensorlang.graph.specs import KeySpec, Shape, Spec, TensorSpec
from tensorlang.ops import math, nn
from tensorlang.ops.operator import Operator

if TYPE_CHECKING:
    from tensorlang.graph.program import Graph

_SERIAL: Final = itertools.count()
REPLAYING: Final[ContextVar[bool]] = ContextVar("replaying", default=False)


@dataclass(frozen=True, slots=True)
class Form:
    """What a node is that is no operator: a form of the language.

    Attributes:
        id: Its name in the text of a program.
    """

    id: str


@dataclass(slots=True, eq=False)
class Node:
    """One operation of a program: an operator or a form, and what it is applied to.

    Attributes:
        op: The operator, or the form.
        args: Positional arguments, in which values stand for arrays and keys.
        kwargs: The arguments by name.
        results: What it makes.
        graphs: The programs inside of it: branches, a body, a function.
        where: File and line of the call.
        path: The layer that called, such as `3.attention`; empty outside of layers.
        replay: Whether it repeats a draw on purpose: its keys are no uses.
        serial: Its place in the order of all nodes.
        scope: The program that is being written.
    """

    op: Operator | Form
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Value, ...] = ()
    graphs: tuple[Graph, ...] = ()
    where: str = ""
    path: str = ""
    replay: bool = False
    serial: int = field(default_factory=lambda: next(_SERIAL))
    scope: Scope | None = field(default_factory=current)

    @property
    def id(self) -> str:
        """The id of the operator, or the name of the form."""
        return self.op.id

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values that it needs, with those that its programs take from outside."""
        own = (*values_in(self.args), *values_in(tuple(self.kwargs.values())))
        free = (value for graph in self.graphs for value in graph.free)
        return tuple(dict.fromkeys((*own, *free)))

    @property
    def place(self) -> str:
        """Where a message says that it stands: the layer, if any, and file and line."""
        return f"layer {self.path!r} ({self.where})" if self.path else self.where


class Value:
    """A tensor or a key of a program: a spec, and the node that makes it.

    Attributes:
        spec: Its shape and type.
        node: The node whose result it is; None for what comes from outside.
        index: Which result of the node.
        name: What it is called in text; empty where it has no name of its own.
        scope: The program that it belongs to.
    """

    __slots__ = ("__weakref__", "index", "name", "node", "scope", "spec")

    def __init__(
        self, spec: Spec, node: Node | None = None, index: int = 0, name: str = ""
    ) -> None:
        self.spec = spec
        self.node = node
        self.index = index
        self.name = name
        self.scope = current() if node is None else node.scope

    @property
    def shape(self) -> Shape:
        """Its extents: whole numbers, or sizes that have names."""
        return self.spec.shape

    @property
    def ndim(self) -> int:
        """The number of its dimensions."""
        return len(self.spec.shape)

    def __tensorlang_op__(
        self, op: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        from tensorlang.graph.applying import apply  # noqa: PLC0415 - it builds on this

        return apply(op, args, kwargs)

    def __bool__(self) -> bool:
        raise TypeError(
            "a symbolic value is neither true nor false while a graph is built; "
            "write graph.cond(value, then, otherwise)"
        )

    def __repr__(self) -> str:
        made = f" = {self.node.id}(...)" if self.node else ""
        return f"<{type(self).__name__} {self.name or '_'}: {self.spec}{made}>"


class Tensor(Value):
    """A symbolic tensor: shape and type, no data."""

    __slots__ = ()
    spec: TensorSpec
    __array_ufunc__ = None  # NumPy leaves arithmetic with arrays to the methods below

    @property
    def dtype(self) -> str:
        """Our name of the element type, such as `f32`."""
        return self.spec.dtype

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """The tensor with its dimensions in reverse order."""
        return nn.transpose(self)

    def reshape(self, *shape: Any) -> Any:
        """The elements in another shape, one of whose extents may be -1."""
        return nn.reshape(self, shape[0] if len(shape) == 1 else shape)

    def __getitem__(self, index: Any) -> Any:
        from tensorlang.graph.indexing import indexed  # noqa: PLC0415 - it builds on this

        return indexed(self, index)

    def __iter__(self) -> Iterator[Any]:
        from tensorlang.graph.indexing import rows  # noqa: PLC0415 - it builds on this

        return rows(self)

    def __neg__(self) -> Any:
        return math.negative(self)

    def __abs__(self) -> Any:
        return math.abs(self)

    def __matmul__(self, other: Any) -> Any:
        return math.matmul(self, other)


def _operation(op: Operator) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Tensor, other: Any) -> Any:
        return op(self, other)

    def backward(self: Tensor, other: Any) -> Any:
        return op(other, self)

    return forward, backward


for _name, _op in {
    "add": math.add,
    "sub": math.subtract,
    "mul": math.multiply,
    "truediv": math.divide,
    "pow": math.power,
}.items():
    _forward, _backward = _operation(_op)
    setattr(Tensor, f"__{_name}__", _forward)
    setattr(Tensor, f"__r{_name}__", _backward)
for _name, _op in {
    "lt": math.less,
    "le": math.less_equal,
    "gt": math.greater,
    "ge": math.greater_equal,
}.items():
    setattr(Tensor, f"__{_name}__", _operation(_op)[0])


class Key(Value):
    """A symbolic random key: a typed value that carries a generator's data.

    A batch unpacks and indexes: `left, right = random.split(key)`. An element that is
    taken twice is the same key.
    """

    __slots__ = ("_elements",)
    spec: KeySpec

    def __init__(
        self, spec: Spec, node: Node | None = None, index: int = 0, name: str = ""
    ) -> None:
        super().__init__(spec, node, index, name)
        self._elements: dict[int, Key] = {}

    def __len__(self) -> int:
        if not self.shape or not isinstance(self.shape[0], int):
            raise TypeError("a single key has no length; split it first")
        return self.shape[0]

    def __getitem__(self, index: int) -> Key:
        at = range(len(self))[index]
        if at not in self._elements:
            spec = KeySpec(self.spec.shape[1:], self.spec.impl)
            node = Node(ELEMENT, (self, at), {}, where=outside(), path=path())
            node.results = (Key(spec, node),)
            self._elements[at] = node.results[0]
        return self._elements[at]

    def __iter__(self) -> Iterator[Key]:
        return (self[at] for at in range(len(self)))


ELEMENT: Final = Form("element")
ZEROS: Final = Form("zeros")


def value_of(spec: Spec, node: Node | None = None, index: int = 0) -> Value:
    """A tensor or a key, as the spec says."""
    return (Key if isinstance(spec, KeySpec) else Tensor)(spec, node, index)


def values_in(nest: Any) -> Iterator[Value]:
    """The values in a nest of tuples and lists, in order."""
    if isinstance(nest, Value):
        yield nest
    elif isinstance(nest, (tuple, list)):
        for each in nest:
            yield from values_in(each)


def mapped(nest: Any, change: Callable[[Value], Any]) -> Any:
    """The nest with another thing in place of each value."""
    if isinstance(nest, Value):
        return change(nest)
    if isinstance(nest, (tuple, list)):
        return type(nest)(mapped(each, change) for each in nest)
    return nest


def make(
    op: Operator | Form,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    specs: Sequence[Spec],
    *,
    graphs: Sequence[Graph] = (),
    where: str = "",
    path: str = "",
    replay: bool = False,
) -> Node:
    """A node with results of these specs."""
    node = Node(
        op, tuple(args), dict(kwargs), graphs=tuple(graphs), where=where, path=path
    )
    node.replay = replay
    node.results = tuple(value_of(spec, node, n) for n, spec in enumerate(specs))
    return node


def zeros(spec: Spec) -> Any:
    """A tensor of zeros."""
    return make(ZEROS, (), {}, (spec,), where=outside()).results[0]
