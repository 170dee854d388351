"""Fuse epilogues into dense layers and convolutions.

    h = nn.relu(nn.dense(x, w, b))
    y = nn.dropout(h, 0.5, key=key) + x
    # becomes
    y = nn.dense(x, w, b, activation="relu", dropout=0.5, key=key, residual=x)

A node is fused if nothing else uses its input. The gradient of relu does not count: it
can use the result instead, which has the same sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tensorlang.graph.differentiation.gradients import arguments_of
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.scopes import named as layer
from tensorlang.graph.values import Named, Node, Value
from tensorlang.ops import nn, random

_VIEW: Final = "nn.reshape"
_CONVOLUTIONS: Final = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_ANCHORS: Final = ("nn.dense", *_CONVOLUTIONS)
_ACTIVATIONS: Final = ("relu", "gelu", "silu", "sigmoid", "tanh")
_NAMES: Final = {**{f"nn.{name}": name for name in _ACTIVATIONS}, "math.tanh": "tanh"}


@dataclass(slots=True, eq=False)
class Chain:
    """A matrix product or convolution and its epilogue."""

    head: Node  # node of the product
    named: Named  # its arguments by name
    more: Named = field(default_factory=dict)  # arguments added by fusion
    nodes: list[Node] = field(default_factory=list)  # all nodes that are fused
    value: Value | None = None  # current end of the chain
    # earlier ends, which gradients of relu may use
    seen: list[Value] = field(default_factory=list)
    threaded: Value | None = None  # next generator state of a dropout that threads it

    @property
    def viewed(self) -> bool:
        """Whether its result has other dimensions than the product."""
        return any(node.id == _VIEW for node in self.nodes)

    def has(self, *names: str) -> bool:
        """Whether one of these arguments is set."""
        return any(self.more.get(n, self.named.get(n)) is not None for n in names)


Users: TypeAlias = dict[Value, list[Node]]
# fuses a node into a chain if possible
Step: TypeAlias = Callable[[Chain, Node], bool]


def fuse(graph: Graph) -> Graph:
    """The program with epilogues fused."""
    return Fuse().graph(graph)


class Fuse(Rewriter):
    """The pass, with the new value of each old one."""

    def nodes(self, graph: Graph) -> None:
        """Rewrite the nodes of a program in order."""
        chains = chains_of(graph)
        last = {id(chain.nodes[-1]): chain for chain in chains}
        inner = {id(node) for chain in chains for node in chain.nodes}
        for node in graph.nodes:
            if id(node) in last:
                self._written(last[id(node)])
            elif id(node) not in inner:
                self.now.update(zip(node.results, self.node(node), strict=False))

    def _written(self, chain: Chain) -> None:
        head, more = chain.head, dict(chain.more)
        args = self.given(head.args)
        kwargs = {name: self.given(value) for name, value in head.kwargs.items()}
        state = more.pop("state", None)
        with layer(head.path):
            if state is not None:
                after, more["key"] = random.split(self.given(state))
                assert chain.threaded is not None
                self.now[chain.threaded] = after
            if "b" in more:
                kwargs["b"] = self[more.pop("b")]
            kwargs.update((name, self.given(value)) for name, value in more.items())
            made = head.op(*args, **kwargs)  # type: ignore[operator]
        made.node.where, made.node.path = head.where, head.path
        assert chain.value is not None
        for node, value in zip(chain.nodes, (*chain.seen, chain.value), strict=True):
            if node.id == _VIEW:
                made = nn.reshape(made, self.given(arguments_of(node)["shape"]))
            self.now[value] = made


def chains_of(graph: Graph) -> list[Chain]:
    """The products with an epilogue to fuse."""
    users = _users(graph)
    ends = set(graph.outputs)
    found: list[Chain] = []
    taken: set[int] = set()
    for node in graph.nodes:
        if node.id in _ANCHORS:
            chain = _chain(node, users, ends, taken)
            if len(chain.nodes) > 1:
                found.append(chain)
                taken |= {id(each) for each in chain.nodes}
    return found


def _users(graph: Graph) -> Users:
    users: Users = {}
    for node in graph.nodes:
        for value in node.inputs:
            users.setdefault(value, []).append(node)
    return users


def _chain(head: Node, users: Users, ends: set[Value], taken: set[int]) -> Chain:
    chain = Chain(head, arguments_of(head), nodes=[head], value=head.results[0])
    while True:
        value = chain.value
        assert value is not None
        follower = _only(chain, value, users.get(value, ()))
        if value in ends or follower is None or id(follower) in taken:
            break
        if not any(step(chain, follower) for step in _STEPS):
            break
        chain.nodes.append(follower)
        chain.seen.append(value)
        chain.value = follower.results[0]
    while chain.nodes[-1].id == _VIEW:  # nothing followed
        chain.nodes.pop()
        chain.value = chain.seen.pop()
    return chain


def _only(chain: Chain, value: Value, users: Sequence[Node]) -> Node | None:
    """The only user of a value, apart from gradients of relu that can be redirected."""
    others = [node for node in users if not _movable(node, value)]
    if len(others) != 1 or others[0].replay:
        return None
    moved = [node for node in users if node is not others[0]]
    relu = chain.more.get("activation") == "relu" or others[0].id == "nn.relu"
    if moved and (not relu or others[0].id == "math.add"):
        return None
    return others[0]


def _movable(node: Node, value: Value) -> bool:
    """Whether a node only depends on the sign of a value."""
    own = node.id == "nn.relu_grad" and node.args[0] is not value
    return own and node.args[1] is value


def _reshaped(chain: Chain, node: Node) -> bool:
    """Rows in other dimensions, before an activation."""
    if node.id != _VIEW or chain.head.id != "nn.dense":
        return False
    before, after = (each.shape for each in (node.inputs[0], node.results[0]))
    same = bool(after) and before[-1] == after[-1] and len(node.inputs) == 1
    return same and not chain.has("activation", "residual", "key")


def _activation(chain: Chain, node: Node) -> bool:
    name = _NAMES.get(node.id)
    if name is None and chain.head.id in _CONVOLUTIONS:
        name = _of_convolutions(node)
    if name is None or chain.has("activation", "residual", "key"):
        return False
    if node.id == "nn.gelu" and arguments_of(node)["approximate"] != "none":
        if chain.head.id != "nn.dense":
            return False
        name = "gelu_tanh"
    chain.more["activation"] = name
    return True


def _of_convolutions(node: Node) -> str | None:
    """The name of an activation that only convolutions have."""
    if node.id == "math.clip" and node.args[1:] == (0.0, 6.0):
        return "relu6"
    return "hard_swish" if node.id == "nn.hard_swish" else None


def _dropout(chain: Chain, node: Node) -> bool:
    if node.id not in ("nn.dropout", "nn.dropout_train"):
        return False
    named = arguments_of(node)
    fits = chain.head.id == "nn.dense" and named["stream"] == "jax"
    fits = fits and not chain.viewed
    if not fits or chain.has("key", "residual") or isinstance(named["rate"], Value):
        return False
    chain.more["dropout"] = float(named["rate"])
    if node.id == "nn.dropout":
        chain.more["key"] = named["key"]
    else:
        chain.more["state"] = named["state"]
        chain.threaded = node.results[1]
    return True


def _bias(chain: Chain, node: Node) -> bool:
    """An added vector, if the product has no bias."""
    if node.id != "math.add" or chain.head.id != "nn.dense" or len(chain.nodes) > 1:
        return False
    other = _other(chain, node)
    fits = other is not None and other.shape == chain.head.results[0].shape[-1:]
    if not fits or chain.has("b", "activation", "key", "residual"):
        return False
    assert other is not None
    if _after(other, chain.head) or other.ndim == chain.head.results[0].ndim:
        return False
    chain.more["b"] = other
    return True


def _residual(chain: Chain, node: Node) -> bool:
    """An added array: the last step of a dense layer, the first of a convolution."""
    last = chain.head.id == "nn.dense"
    name, taken = ("residual", ()) if last else ("addend", ("activation",))
    if node.id != "math.add" or chain.has(name, *taken):
        return False
    other = _other(chain, node)
    if other is None or not (
        other.spec == node.results[0].spec == chain.head.results[0].spec
    ):
        return False  # the product must not be broadcast
    chain.more[name] = other
    return True


def _other(chain: Chain, node: Node) -> Value | None:
    """The other operand of an addition."""
    left, right = node.args
    other = right if left is chain.value else left
    return other if isinstance(other, Value) and other is not chain.value else None


def _after(value: Value, node: Node) -> bool:
    return value.node is not None and value.node.serial > node.serial


_STEPS: Final[tuple[Step, ...]] = (_bias, _reshaped, _activation, _dropout, _residual)
