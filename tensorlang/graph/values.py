"""Symbolic tensors and keys, and the nodes that compute them.

A value has a spec and the node that computes it, but no data. Every operator of
`tensorlang.ops` accepts symbolic values and then returns symbolic values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang import lazy
from tensorlang.frozen import frozen
from tensorlang.graph.scopes import Scope, call_site, current, path
from tensorlang.graph.specs import Extent, KeySpec, Shape, Spec, TensorSpec
from tensorlang.ops import math, nn
from tensorlang.ops.operator import Operator

with lazy.modules(__name__):  # they stand on values
    from tensorlang.graph import applying, indexing

if TYPE_CHECKING:
    from tensorlang.graph.indexing import Index
    from tensorlang.graph.program import Graph

# an operator's argument: a value, data, an attribute, or a nest of these
Argument: TypeAlias = Any
Arguments: TypeAlias = tuple[Argument, ...]
Named: TypeAlias = dict[str, Argument]
OpResult: TypeAlias = Any  # an operator's result: a value, or a tuple of values
Binary: TypeAlias = "Callable[[Tensor, Operand], Tensor]"
Operand: TypeAlias = "Tensor | np.ndarray | float"
_SERIAL: Final = itertools.count()
REPLAYING: Final[ContextVar[bool]] = ContextVar("replaying", default=False)


@frozen
class Form:
    """A kind of node that is not an operator."""

    id: str  # its name in the text of a program


@dataclass(slots=True, eq=False)
class Node:
    """One operation of a program: an operator or a form, with its arguments.

    Attributes:
        op: The operator or form.
        args: Positional arguments, with values in place of arrays and keys.
        kwargs: Keyword arguments.
        results: The values it computes.
        graphs: Nested programs: branches, a body, a function.
        where: File and line of the call.
        path: The calling layer, such as `3.attention`; empty outside of layers.
        replay: Whether it repeats a draw on purpose, which is not a use of its keys.
        serial: Its creation order among all nodes.
        scope: The program it was traced in.
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
        """The id of the operator or form."""
        return self.op.id

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The values it depends on, including those captured by nested programs."""
        own = (*values_in(self.args), *values_in(tuple(self.kwargs.values())))
        free = (value for graph in self.graphs for value in graph.free)
        return tuple(dict.fromkeys((*own, *free)))

    @property
    def place(self) -> str:
        """Its location for messages: the layer, if any, and file and line."""
        return f"layer {self.path!r} ({self.where})" if self.path else self.where


class Value:
    """A tensor or a key of a program.

    Attributes:
        spec: Its shape and dtype.
        node: The node that computes it; None for outside values.
        index: Its index among the node's results.
        name: Its name in text; empty if it has none.
        scope: The program it belongs to.
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
        """Its extents: integers or symbolic sizes."""
        return self.spec.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.spec.shape)

    def __tensorlang_op__(
        self, op: Operator, args: Arguments, kwargs: Mapping[str, Argument]
    ) -> OpResult:
        return applying.apply(op, args, kwargs)

    def __bool__(self) -> bool:
        raise TypeError(
            "a symbolic value has no truth value while a graph is built; "
            "write graph.cond(value, then, otherwise)"
        )

    def __repr__(self) -> str:
        made = f" = {self.node.id}(...)" if self.node else ""
        return f"<{type(self).__name__} {self.name or '_'}: {self.spec}{made}>"


class Tensor(Value):
    """A symbolic tensor: shape and dtype, no data."""

    __slots__ = ()
    spec: TensorSpec
    __array_ufunc__ = None  # makes NumPy defer to the methods below

    @property
    def dtype(self) -> str:
        """The canonical dtype name, such as `f32`."""
        return self.spec.dtype

    @property
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """The tensor with its dimensions reversed."""
        made: Tensor = nn.transpose(self)
        return made

    def reshape(self, *shape: Extent | Shape) -> Tensor:
        """The elements in another shape, in which one extent may be -1."""
        made: Tensor = nn.reshape(self, shape[0] if len(shape) == 1 else shape)
        return made

    def __getitem__(self, index: Index) -> Tensor:
        return indexing.indexed(self, index)

    def __iter__(self) -> Iterator[Tensor]:
        return indexing.rows(self)

    def __neg__(self) -> Tensor:
        made: Tensor = math.negative(self)
        return made

    def __abs__(self) -> Tensor:
        made: Tensor = math.abs(self)
        return made

    def __matmul__(self, other: Operand) -> Tensor:
        made: Tensor = math.matmul(self, other)
        return made

    # assigned from the table below
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


def _operation(op: Operator) -> tuple[Callable[..., OpResult], Callable[..., OpResult]]:
    def forward(self: Tensor, other: Operand) -> OpResult:
        return op(self, other)

    def backward(self: Tensor, other: Operand) -> OpResult:
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
    """A symbolic random key.

    A batch unpacks and can be indexed: `left, right = random.split(key)`. Indexing the
    same element twice gives the same key.
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
            node = Node(ELEMENT, (self, at), {}, where=call_site(), path=path())
            node.results = (Key(spec, node),)
            self._elements[at] = node.results[0]
        return self._elements[at]

    def __iter__(self) -> Iterator[Key]:
        return (self[at] for at in range(len(self)))


ELEMENT: Final = Form("element")
ZEROS: Final = Form("zeros")


def value_of(spec: Spec, node: Node | None = None, index: int = 0) -> Value:
    """A tensor or a key, depending on the spec."""
    return (Key if isinstance(spec, KeySpec) else Tensor)(spec, node, index)


def values_in(nest: object) -> Iterator[Value]:
    """The values in a nest of tuples and lists, in order."""
    if isinstance(nest, Value):
        yield nest
    elif isinstance(nest, (tuple, list)):
        for each in nest:
            yield from values_in(each)


def map_values(nest: Argument, change: Callable[[Value], object]) -> Argument:
    """The nest with each value replaced."""
    if isinstance(nest, Value):
        return change(nest)
    if isinstance(nest, (tuple, list)):
        return type(nest)(map_values(each, change) for each in nest)
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


def zeros(spec: Spec) -> OpResult:
    """A tensor of zeros."""
    return make(ZEROS, (), {}, (spec,), where=call_site()).results[0]
