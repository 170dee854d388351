"""Values of a program that has not run: tensors and keys, and the nodes that make them.

A value knows its spec and the node whose result it is; it has no data. Every operator
of `tensorlang.ops` takes such values by its usual name and gives such values back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.graph.scopes import Scope, current, outside, path
from tensorlang.graph.specs import Extent, KeySpec, Shape, Spec, TensorSpec
from tensorlang.ops import math, nn
from tensorlang.ops.operator import Operator

if TYPE_CHECKING:
    from tensorlang.graph.indexing import Index
    from tensorlang.graph.program import Graph

# an argument of an operator: a value, data, an attribute; or a nest of these
Argument: TypeAlias = Any
Arguments: TypeAlias = tuple[Argument, ...]
Named: TypeAlias = dict[str, Argument]
Made: TypeAlias = Any  # what an operator gives: a value, or several as it says
Binary: TypeAlias = "Callable[[Tensor, Operand], Tensor]"
Operand: TypeAlias = "Tensor | np.ndarray | float"
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
    args: Arguments
    kwargs: Named
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
        self, op: Operator, args: Arguments, kwargs: Mapping[str, Argument]
    ) -> Made:
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
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """The tensor with its dimensions in reverse order."""
        made: Tensor = nn.transpose(self)
        return made

    def reshape(self, *shape: Extent | Shape) -> Tensor:
        """The elements in another shape, one of whose extents may be -1."""
        made: Tensor = nn.reshape(self, shape[0] if len(shape) == 1 else shape)
        return made

    def __getitem__(self, index: Index) -> Tensor:
        from tensorlang.graph.indexing import indexed  # noqa: PLC0415 - it builds on this

        return indexed(self, index)

    def __iter__(self) -> Iterator[Tensor]:
        from tensorlang.graph.indexing import rows  # noqa: PLC0415 - it builds on this

        return rows(self)

    def __neg__(self) -> Tensor:
        made: Tensor = math.negative(self)
        return made

    def __abs__(self) -> Tensor:
        made: Tensor = math.abs(self)
        return made

    def __matmul__(self, other: Operand) -> Tensor:
        made: Tensor = math.matmul(self, other)
        return made

    # the table below makes these
    __add__: Binary
    __radd__: Binary
    __sub__: Binary
    __rsub__: Binary
    __mul__: Binary
    __rmul__: Binary
    __truediv__: Binary
    __rtruediv__: Binary
    __pow__: Binary
    __rpow__: Binary
    __lt__: Binary
    __le__: Binary
    __gt__: Binary
    __ge__: Binary


def _operation(op: Operator) -> tuple[Callable[..., Made], Callable[..., Made]]:
    def forward(self: Tensor, other: Operand) -> Made:
        return op(self, other)

    def backward(self: Tensor, other: Operand) -> Made:
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


def values_in(nest: object) -> Iterator[Value]:
    """The values in a nest of tuples and lists, in order."""
    if isinstance(nest, Value):
        yield nest
    elif isinstance(nest, (tuple, list)):
        for each in nest:
            yield from values_in(each)


def mapped(nest: Argument, change: Callable[[Value], object]) -> Argument:
    """The nest with another thing in place of each value."""
    if isinstance(nest, Value):
        return change(nest)
    if isinstance(nest, (tuple, list)):
        return type(nest)(mapped(each, change) for each in nest)
    return nest


def make(
    op: Operator | Form,
    args: Sequence[Argument],
    kwargs: Mapping[str, Argument],
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


def zeros(spec: Spec) -> Made:
    """A tensor of zeros."""
    return make(ZEROS, (), {}, (spec,), where=outside()).results[0]
