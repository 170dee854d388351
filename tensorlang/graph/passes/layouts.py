"""Channels-last layouts for chains of convolutions, where they are predicted to pay.

A convolution with channels last computes a vector of channels for each pixel, whatever
the number of pixels; with channels first, a vector of pixels, which few pixels do not
fill. Convolutions, pooling, batch norms, joins, reductions and elementwise operators
that read each other's results change together; arrays are transposed where they enter
or leave, and a program's own transposes to or from channels last are left out there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from tensorlang.graph.differentiation.gradients import arguments_of
from tensorlang.graph.passes.minimum_cut import MinimumCut, Side
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.specs import Extent, TensorSpec, at_sizes
from tensorlang.graph.values import (
    Named,
    Node,
    Tensor,
    Value,
    make,
    map_values,
    values_in,
)
from tensorlang.ops import nn
from tensorlang.ops.elementwise import Elementwise
from tensorlang.ops.nn.convolution_layouts import Cycles, cycles, transposing
from tensorlang.targets import Target

# from the arguments of a node by name to those that are images; None if it must stay
Images: TypeAlias = Callable[[Named, AbstractSet[Value]], "list[str] | None"]
_FLOATS: Final = ("f32", "f64")
_LAST: Final = {3: "NWC", 4: "NHWC", 5: "NDHWC"}
_FIRST: Final = (None, "NCW", "NCHW", "NCDHW")


def _convolution(named: Named, constant: AbstractSet[Value]) -> list[str] | None:
    plain = named["layout"] in _FIRST
    return ["x", "addend"] if plain and named["w"] in constant else None


def _pooling(named: Named, _: AbstractSet[Value]) -> list[str] | None:
    return ["x"] if named["layout"] in _FIRST else None


def _along_axes(named: Named, _: AbstractSet[Value]) -> list[str] | None:
    """What keeps its dimensions, so that its axes change with the layout."""
    image = "arrays" if "arrays" in named else "x"
    return [image] if named.get("keepdims", True) else None


_POOLS: Final = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")
_RULES: Final[Mapping[str, Images]] = {
    **{f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"nn.{name}{rank}d": _pooling for name in _POOLS for rank in (1, 2, 3)},
    **{f"nn.global_{kind}_pool": _pooling for kind in ("max", "avg")},
    **dict.fromkeys(("nn.batch_norm", "nn.concatenate"), _along_axes),
    **{f"math.{name}": _along_axes for name in ("mean", "sum", "max", "min")},
}
_RANKS: Final = {
    f"nn.{name}{rank}d": rank for name in ("conv", *_POOLS) for rank in (1, 2, 3)
}


def channels_last(
    graph: Graph, constant: AbstractSet[Value], sizes: Mapping[str, int], target: Target
) -> ChannelsLast:
    """The rewriting of a program to channels last where that is predicted to be faster.

    Each node takes its cycles in one of both layouts, and each value that is read in
    the other one those of a transpose: the least sum is a minimum cut.

    Args:
        graph: The program, without calls.
        constant: The values that are constant: weights are only packed once if they
            are.
        sizes: The values of its named sizes.
        target: Where it runs; only CPUs have a model to predict with.
    """
    images = {
        node: found
        for node in graph.nodes
        if (found := _images(node, constant)) and not constant >= {*node.results}
    }
    convolutions = [node for node in images if _RULES.get(node.id) is _convolution]
    if target.model != "cpu" or not convolutions:
        return ChannelsLast(set())
    cut: MinimumCut[Node] = MinimumCut()
    costs = _Costs(sizes, target)
    for node in convolutions:
        first, last = costs.convolution(node)
        cut.add(Side.FIRST, node, last)
        cut.add(node, Side.OTHER, first)
    for maker, reader, value in _reads(graph, images):
        if maker is not reader and value not in constant:
            moved = costs.moved(value)
            cut.add(maker, reader, moved)
            cut.add(reader, maker, moved)
    return ChannelsLast(cut.beyond())


def _reads(
    graph: Graph, images: Mapping[Node, AbstractSet[Value]]
) -> Iterator[tuple[Node | Side, Node | Side, Value]]:
    """Who computes and reads each value: the first side is what stays as it is.

    The program's own transposes are on the other side, where they cost nothing.
    """

    def maker(value: Value) -> Node | Side:
        node = value.node
        if node is None or node not in images:
            back = node is not None and _is_transpose(node, back=True)
            return Side.OTHER if back else Side.FIRST
        return node

    for node in graph.nodes:
        rest = Side.OTHER if _is_transpose(node, back=False) else Side.FIRST
        for value in node.inputs:
            moves = value in images.get(node, ())
            yield maker(value), node if moves else rest, value
    for value in graph.outputs:
        yield maker(value), Side.FIRST, value


def _images(node: Node, constant: AbstractSet[Value]) -> set[Value]:
    """The images that a node reads; none if it has to stay as it is."""
    if len(node.results) != 1 or not 3 <= node.results[0].ndim <= 5:
        return set()
    if isinstance(node.op, Elementwise):
        return {*_operands(node).values()}
    rule = _RULES.get(node.id)
    named = arguments_of(node) if rule else {}
    spec = node.results[0].spec
    if rule is None or not isinstance(spec, TensorSpec) or spec.dtype not in _FLOATS:
        return set()
    if (rank := _RANKS.get(node.id)) and len(spec.shape) != rank + 2:
        return set()  # one image without a batch
    return {*values_in([named[name] for name in rule(named, constant) or ()])}


def _operands(node: Node) -> dict[str, Value]:
    """The operands of an elementwise operator that have the rank of the result."""
    values = {k: v for k, v in arguments_of(node).items() if isinstance(v, Value)}
    return {k: v for k, v in values.items() if v.ndim == node.results[0].ndim}


def _is_transpose(node: Node, *, back: bool) -> bool:
    """Whether a node moves channels last, or back."""
    rank = node.results[0].ndim if node.id == "nn.transpose" else 0
    axes = arguments_of(node)["axes"] if 3 <= rank <= 5 else None
    return axes is not None and [axis % rank for axis in axes] == [*_order(rank, back)]


def _order(rank: int, back: bool) -> tuple[int, ...]:
    """The axes of an image with channels first in one with channels last, or back."""
    return (0, rank - 1, *range(1, rank - 1)) if back else (0, *range(2, rank), 1)


def _axes(axes: object, rank: int) -> object:
    """Axes of an image with channels first as those of one with channels last."""
    order = _order(rank, back=False)
    if isinstance(axes, (tuple, list)):
        return tuple(order.index(axis % rank) for axis in axes)
    return order.index(axes % rank) if isinstance(axes, int) else axes


class _Costs:
    """Predicted cycles at sizes on a target."""

    def __init__(self, sizes: Mapping[str, int], target: Target) -> None:
        self._sizes, self._target = sizes, target

    def convolution(self, node: Node) -> Cycles:
        """Those of a convolution in both layouts."""
        named = arguments_of(node)
        shapes = [self._shape(named[k]) for k in "xwb" if isinstance(named[k], Value)]
        asked = {k: at_sizes(named[k], self._sizes) for k in _WINDOW}
        return cycles(node.id, asked, shapes, named["x"].spec.dtype, self._target)

    def moved(self, value: Value) -> float:
        """Those of a transpose."""
        if not isinstance(value.spec, TensorSpec) or is_line(value.shape):
            return 0.0
        size = math.prod(self._shape(value)) * value.spec.numpy.itemsize
        return transposing(size, value.spec.dtype, self._target)

    def _shape(self, value: Value) -> tuple[int, ...]:
        return at_sizes(value.shape, self._sizes)


_WINDOW: Final = ("stride", "padding", "dilation", "groups", "layout")


def is_line(shape: Iterable[Extent]) -> bool:
    """Whether an image has one pixel or one channel: both layouts are the same."""
    _, channels, *pixels = shape
    return channels == 1 or all(extent == 1 for extent in pixels)


class ChannelsLast(Rewriter):
    """Rewrites a program so that some nodes work with channels last.

    Args:
        nodes: These nodes.
    """

    def __init__(self, nodes: AbstractSet[Node]) -> None:
        super().__init__()
        self.chosen = nodes
        self._last: dict[Value, Value] = {}

    def __getitem__(self, value: Value) -> Value:
        """The new value of an old one, in the layout it had."""
        if value not in self.now and value in self._last:
            self.now[value] = _moved(self._last[value], value.shape, back=True)
        return super().__getitem__(value)

    def nodes(self, graph: Graph) -> None:
        """Rewrite the nodes of a program in order."""
        for node in graph.nodes:
            given = node.args[0] if node.id == "nn.transpose" else None
            if node in self.chosen:
                self._last[node.results[0]] = self._rewritten(node)
            elif given in self._last and _is_transpose(node, back=False):
                self.now[node.results[0]] = self._last[given]
            elif isinstance(given, Value) and _is_transpose(node, back=True):
                self._last[node.results[0]] = self[given]
            else:
                for value in node.inputs:  # those of nested programs are moved out here
                    self.now.setdefault(value, self[value])
                self.now.update(zip(node.results, self.node(node), strict=False))

    def _rewritten(self, node: Node) -> Value:
        (result,) = node.results
        named = arguments_of(node)
        whole = result.ndim
        rule = _RULES.get(node.id)
        fixed = {named["w"]} if rule is _convolution else set()
        images = _operands(node) if rule is None else rule(named, fixed)
        given = {
            name: map_values(value, self._seen)
            if name in (images or ())
            else self.given(value)
            for name, value in named.items()
        }
        if rule is None:  # operands are broadcast
            given |= {
                name: self._whole(value, whole)
                for name, value in named.items()
                if isinstance(value, Value) and 0 < value.ndim < whole
            }
        if rule in (_convolution, _pooling):
            given["layout"] = _LAST[whole]
        elif rule is _along_axes:
            given["axis"] = _axes(named["axis"], whole)
        assert isinstance(result.spec, TensorSpec)
        spec = TensorSpec(_permuted(result.shape), result.spec.dtype)
        made = make(
            node.op, *_called(node, given), [spec], where=node.where, path=node.path
        )
        return made.results[0]

    def _seen(self, value: Value) -> Value:
        """An image with channels last."""
        if value not in self._last:
            self.now[value] = self[value]
            self._last[value] = _moved(self.now[value], value.shape, back=False)
        return self._last[value]

    def _whole(self, value: Value, rank: int) -> Value:
        """An operand of fewer dimensions, as part of an image with channels last."""
        shape = (*(1,) * (rank - value.ndim), *value.shape)
        assert isinstance(value.spec, TensorSpec)
        spec = TensorSpec(shape, value.spec.dtype)
        made = make(nn.reshape, (self[value], shape), {}, [spec]).results[0]
        return _moved(made, shape, back=False)


def _called(node: Node, given: Named) -> tuple[tuple[object, ...], Named]:
    """Positional and keyword arguments: those that the node had by position are."""
    names = list(given)
    cut = len(node.args)
    return tuple(given[n] for n in names[:cut]), {n: given[n] for n in names[cut:]}


def _permuted(shape: Sequence[Extent]) -> tuple[Extent, ...]:
    batch, channels, *pixels = shape
    return (batch, *pixels, channels)


def _moved(value: Value, first: Sequence[Extent], *, back: bool) -> Value:
    """A value in the other layout: a view of one pixel or channel, or transposed.

    Args:
        first: Its shape with channels first.
        back: Whether it has channels last.
    """
    assert isinstance(value, Tensor)
    shape = tuple(first) if back else _permuted(first)
    spec, rank = TensorSpec(shape, value.spec.dtype), len(shape)
    if is_line(first):
        return make(nn.reshape, (value, shape), {}, [spec]).results[0]
    order = _order(rank, back)
    return make(nn.transpose, (value, order), {}, [spec]).results[0]
