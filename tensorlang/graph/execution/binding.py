"""Bind a program to memory: a list of kernels with all of their arguments.

Binding runs each operator's call path (checks, shapes, kernel lookup) once; a run then
only calls the kernels in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang import targets
from tensorlang.errors import GraphError
from tensorlang.graph.execution.binding_forms import FORMS, storage
from tensorlang.graph.execution.constant_values import constants_of, read_only
from tensorlang.graph.execution.loops import Storage
from tensorlang.graph.execution.memory import Lifetime, placed
from tensorlang.graph.networks.leaves import ConstantKey, ConstantTensor, Weight
from tensorlang.graph.passes.approximation import transformed_windows
from tensorlang.graph.passes.layouts import channels_last
from tensorlang.graph.passes.norm_folding import fold_norms
from tensorlang.graph.passes.optimisation import WrittenOut
from tensorlang.graph.passes.rewriting import Rewriter
from tensorlang.graph.program import Graph
from tensorlang.graph.specs import KeySpec, TensorSpec, at_sizes
from tensorlang.graph.values import (
    Argument,
    Arguments,
    Key,
    Named,
    Node,
    Value,
    map_values,
    values_in,
)
from tensorlang.ops import random
from tensorlang.ops.elementwise import Elementwise
from tensorlang.ops.kernels import ahead, kept
from tensorlang.ops.kernels.first_miss import at_first_miss
from tensorlang.ops.nn.winograd_packing import WEIGHTS
from tensorlang.ops.operator import Operator
from tensorlang.runtime.arrays import buffers

Step: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]
Where: TypeAlias = targets.Target | str | ahead.Noting | None
Target: TypeAlias = Where | Mapping[str, Where]  # or a mapping from layer to device

_VIEWS: Final = {"let", "element"}
_SMALL: Final = 64  # bytes of the largest literal that is told by its contents


@dataclass(slots=True, eq=False)
class Bound:
    """A program that is ready to run any number of times."""

    inputs: tuple[Storage, ...]  # memory to be filled with the inputs before a run
    outputs: tuple[Storage, ...] = ()  # memory of the outputs after a run
    # kernels with their arguments, in order
    steps: list[Step] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)  # node of each step
    # kernels that depend on constants alone, run when it is bound
    once: list[Step] = field(default_factory=list)
    kept: int = 0  # bytes of what they compute
    workspace: int = 0  # bytes of intermediate values, including those inside loops
    # objects kept alive as long as this one
    held: list[object] = field(default_factory=list)

    def __call__(self) -> None:
        """Run once on the current inputs."""
        for launch, arguments in self.steps:
            launch(*arguments)

    def refresh(self) -> None:
        """Compute again what depends on constants alone, after these changed."""
        for launch, arguments in self.once:
            launch(*arguments)


def bind(
    graph: Graph,
    sizes: Mapping[str, int],
    known: Mapping[Value, Storage] | None = None,
    *,
    target: Target = None,
    store: dict[Hashable, kept.Arrays] | None = None,
) -> Bound:
    """Bind a program to memory.

    What depends only on constants, and on known arrays that are read-only, is computed
    now, once: operators, and stages of operators, such as packing.

    Args:
        graph: A program without references.
        sizes: The values of its named sizes.
        known: Memory of inputs, weights and other outside values.
        target: Where to compute; or a target per layer, by the first part of its path
            (`"loss"` for the loss), with `""` for the rest.
        store: What is kept of read-only arrays, shared by the programs that use them.

    Raises:
        GraphError: it has references, or reads a weight whose memory is unknown.
    """
    program, held = planned(graph, sizes, known or {}, target)
    with at_first_miss(lambda: _build_ahead(program, sizes, held, target)):
        made = Binder(program, sizes, dict(held), target, store=store).bound()
    made.refresh()
    return made


def planned(
    graph: Graph,
    sizes: Mapping[str, int],
    known: Mapping[Value, Storage],
    target: Target,
) -> tuple[Graph, dict[Value, Storage]]:
    """A program as it is bound, and outside values; GraphError with references."""
    pure(graph)
    written = WrittenOut()  # inlined, so that calls share the planned memory
    program = written.graph(graph)
    held = {written[value]: array for value, array in known.items()}
    program, again = laid_out(program, sizes, read_only(held), target)
    return program, {again(value): array for value, array in held.items()}


def laid_out(
    program: Graph, sizes: Mapping[str, int], fixed: AbstractSet[Value], target: Target
) -> tuple[Graph, Callable[[Value], Value]]:
    """A program as a target runs it best, and the new value of an old one.

    Batch norms are folded into the weights before them, windows of approximate
    convolutions transformed, and layouts chosen.

    Args:
        program: A program without calls.
        sizes: The values of its named sizes.
        fixed: The values from outside that are constant.
        target: Where it runs.
    """
    program, now = fold_norms(program, constants_of(program, fixed))
    if isinstance(target, (Mapping, ahead.Noting)):
        return program, lambda value: now.get(value, value)
    where, changes = targets.get(target), list[Rewriter]()
    fixed = {now.get(value, value) for value in fixed}
    for choose in (transformed_windows, channels_last):
        change = choose(program, constants_of(program, fixed), sizes, where)
        if change.chosen:
            program = change.graph(program)
            fixed = {change[value] for value in fixed}
            changes.append(change)
    return program, lambda old: reduce(
        lambda value, change: change[value], changes, now.get(old, old)
    )


def _build_ahead(
    program: Graph,
    sizes: Mapping[str, int],
    known: Mapping[Value, Storage],
    target: Target,
) -> None:
    """Build the kernels of a program in parallel."""
    several = target if isinstance(target, Mapping) else {"": target}
    noting = {name: ahead.noting(each) for name, each in several.items()}
    Binder(
        program,
        sizes,
        dict(known),
        noting if isinstance(target, Mapping) else noting[""],
    ).bound()
    ahead.build(each for one in noting.values() for each in one.taken())


def _writes_once(node: Node) -> bool:
    """Whether an operator writes each element of its results once."""
    return isinstance(node.op, Elementwise) or node.id == WEIGHTS


def _in_place(arguments: tuple[object, ...], known: Sequence[Storage]) -> bool:
    """Whether a launch works on the program's memory directly, without copies.

    An operator that makes copies has to be called anew at each run.
    """
    arrays = [a for a in arguments if isinstance(a, np.ndarray) and a.size]
    return bool(arrays) and all(
        any(np.may_share_memory(array, held) for held in known) for array in arrays
    )


def pure(graph: Graph) -> None:
    """Reject a program that has references, by a GraphError."""
    if graph.stateful:
        raise GraphError(
            f"{graph.name} reads and writes references; make it pure with "
            "graph.thread(program), and pass its state"
        )


class Binder:
    """Binds one program; nested programs have their own binders."""

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        known: dict[Value, Storage],
        target: Target,
        *,
        constant: AbstractSet[Value] = frozenset(),
        store: dict[Hashable, kept.Arrays] | None = None,
    ) -> None:
        self.graph, self.sizes, self.target = graph, sizes, target
        self.at, self.store = known, {} if store is None else store
        self.constant = constants_of(graph, read_only(known) | constant)
        for value in graph.inputs:
            self.at.setdefault(value, storage(value.spec.at(sizes)))
        inputs = tuple(self.at[value] for value in graph.inputs)
        self.made = Bound(inputs)

    def bound(self) -> Bound:
        """Bind the program."""
        self._allocate()
        for node in self.graph.nodes:
            before = len(self.made.steps)
            FORMS.get(node.id, Binder.operator)(self, node)
            if node.results and self.constant.issuperset(node.results):
                self.made.once += self.made.steps[before:]
                del self.made.steps[before:]
            self.made.nodes += [node] * (len(self.made.steps) - len(self.made.nodes))
        self.made.outputs = tuple(self.storage(v) for v in self.graph.outputs)
        return self.made

    def storage(self, value: Value) -> Storage:
        """The memory of a value; GraphError if it is outside and unknown."""
        if value in self.at:
            return self.at[value]
        if isinstance(value, ConstantTensor):
            return value.data
        if isinstance(value, ConstantKey):
            return np.asarray(value.data.words)
        wanted = "add it to them"
        if isinstance(value, Weight):
            wanted = "run it in a Context of a Network, which has the weights"
        raise GraphError(
            f"{self.graph.name} needs {value.name or value.spec}, which is not one of "
            f"its inputs; {wanted}"
        )

    # --------------------------------------------------------------- memory

    def _allocate(self) -> None:
        """Take constants that programs share, and one block for the other tensors."""
        shared: set[Value] = set()
        for node in self.graph.nodes:
            if self._may_share(node, shared):
                self._share(node)
                shared |= {*node.results}
        owners, lives = self._lifetimes()
        offsets, size = placed(lives)
        block = buffers.empty((size,), np.dtype(np.uint8))
        self.made.workspace += size
        self.made.held.append(block)
        for value, life, offset in zip(owners, lives, offsets, strict=True):
            spec = value.spec.at(self.sizes)
            assert isinstance(spec, TensorSpec)
            part = block[offset : offset + life.size].view(spec.numpy)
            self.at[value] = part.reshape(at_sizes(spec.shape, {}))

    def _may_share(self, node: Node, shared: AbstractSet[Value]) -> bool:
        """Whether programs with the same weights share what a node computes of them.

        Each program computes it again, perhaps while another one runs: that changes
        nothing where every element is written once. Sums may be kept in their results.
        """
        constant = bool(node.results) and self.constant.issuperset(node.results)
        if not constant or not (_is_view(node) or _writes_once(node)):
            return False
        return all(value.node is None or value in shared for value in node.inputs)

    def _share(self, node: Node) -> None:
        """Take what a node computes of constants from the store, or put it there."""
        owned = [] if _is_view(node) else self._owned(node)
        for number, value in enumerate(owned):
            spec = value.spec.at(self.sizes)
            assert isinstance(spec, TensorSpec)
            key = repr(_target_of(node, self.target)), self._identity(node), number
            if key not in self.store:
                array = buffers.empty(at_sizes(spec.shape, {}), spec.numpy)
                self.store.setdefault(key, (array,))
            (self.at[value],) = self.store[key]
            self.made.kept += self.at[value].nbytes

    def _identity(self, given: Node | Value) -> Hashable:
        """What is equal for equal constants of programs with the same weights.

        Arrays are told by their place: as long as two programs live, so do theirs.
        Small literals, of which each program has its own, are told by their contents.
        """
        if isinstance(given, Value) and (given in self.at or given.node is None):
            array = self.storage(given)
            literal = isinstance(given, ConstantTensor) and array.nbytes <= _SMALL
            place = array.tobytes() if literal else array.ctypes.data
            return place, array.shape, array.dtype.str
        node = given.node if isinstance(given, Value) else given
        assert node is not None
        nest = node.args, tuple(sorted(node.kwargs.items()))
        return node.id, repr(at_sizes(map_values(nest, self._identity), self.sizes))

    def _owned(self, node: Node) -> list[Value]:
        """The results of a node that need memory of their own."""
        return [
            v for v in node.results if not isinstance(v, Key) and node.id != "zeros"
        ]

    def _lifetimes(self) -> tuple[list[Value], list[Lifetime]]:
        roots: dict[Value, Value] = {}
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for number, node in enumerate(self.graph.nodes):
            for value in node.inputs:
                last[roots.get(value, value)] = number
            if _is_view(node):
                (of, *_) = values_in(node.args)
                roots |= dict.fromkeys(node.results, roots.get(of, of))
            else:
                own = [v for v in self._owned(node) if v not in self.at]
                first |= dict.fromkeys(own, number)
                last |= dict.fromkeys(own, number)
        for value in (*self.graph.outputs, *self.constant):
            last[roots.get(value, value)] = len(self.graph.nodes)
        first.update((value, 0) for value in first if value in self.constant)
        owners = list(first)
        return owners, [
            Lifetime(_bytes(value.spec.at(self.sizes)), first[value], last[value])
            for value in owners
        ]

    # ---------------------------------------------------------------- nodes

    def operator(self, node: Node) -> None:
        """Prepare an operator's launch."""
        assert isinstance(node.op, Operator)
        args: Arguments = at_sizes(map_values(node.args, self._argument), self.sizes)
        kwargs: Named = {
            name: at_sizes(map_values(value, self._argument), self.sizes)
            for name, value in node.kwargs.items()
        }
        kwargs["target"] = _target_of(node, self.target)
        outs = [self.at.get(value) for value in node.results]
        tensors = [out for out in outs if out is not None]
        if tensors and not node.id.startswith("random.split"):
            kwargs["out"] = tensors[0] if len(tensors) == 1 else tuple(tensors)
        divided = self._may_divide(node)
        asked = kwargs | ({"target": kept.ASKING} if divided else {})
        launch, arguments, result = node.op.prepare(*args, **asked)
        made = result if isinstance(result, tuple) else (result,)
        known = [self.storage(v) for v in node.inputs]
        known += [r.words if isinstance(r, random.Key) else r for r in made]
        if not _is_view(node):
            if not _in_place(arguments, known):
                self._dispatched(node, node.op, args, kwargs)
                return
            if divided:
                launch, arguments = self._divided(launch, arguments, node)
            self.made.steps.append((launch, arguments))
        for value, each in zip(node.results, made, strict=True):
            self.at[value] = each.words if isinstance(each, random.Key) else each
        self.made.held.append((args, kwargs, made))

    def _may_divide(self, node: Node) -> bool:
        """Whether stages of an operator may depend on constants alone."""
        some = not self.constant.isdisjoint(node.inputs)
        if not some or self.constant.issuperset(node.results) or _is_view(node):
            return False
        where = _target_of(node, self.target)
        chosen = where.target if isinstance(where, ahead.Noting) else targets.get(where)
        return kept.may_keep(node.op, chosen)

    def _divided(
        self, launch: Callable[..., object], arguments: tuple[Any, ...], node: Node
    ) -> Step:
        """A launch without the stages that depend on constants alone."""
        asked, where = kept.asked(launch), _target_of(node, self.target)
        fixed = self.constant.intersection(node.inputs)
        held = [self.storage(value) for value in fixed]
        positions = [
            at
            for at, array in enumerate(arguments)
            if isinstance(array, np.ndarray) and _in_place((array,), held)
        ]
        if isinstance(where, ahead.Noting):
            return where.divided(asked, positions, arguments)
        shared = all(value.node is None for value in fixed)
        store = self.store if shared else {}
        found = kept.kept(asked, targets.get(where), arguments, positions, store)
        if found.once:
            self.made.once.append(found.once)
        self.made.kept += sum(array.nbytes for array in found.arrays)
        return found.each

    def _argument(self, value: Value) -> Storage | random.Key:
        """The operator argument for a value: its memory, as an array or a fresh key."""
        held = self.storage(value)
        if isinstance(value.spec, KeySpec):
            return random.Key(value.spec.impl, held)
        return held

    def _dispatched(
        self, node: Node, op: Operator, args: Arguments, kwargs: Named
    ) -> None:
        """An operator that inspects or copies data: called in full at each run."""
        for result in node.results:
            if isinstance(result, Key):
                self.at[result] = storage(result.spec.at(self.sizes))
        held = [self.at[result] for result in node.results]

        def run() -> None:
            fresh = [_fresh(arg) for arg in args]
            made = op(*fresh, **{name: _fresh(v) for name, v in kwargs.items()})
            several = made if isinstance(made, tuple) else (made,)
            for place, each in zip(held, several, strict=True):
                if isinstance(each, random.Key):
                    np.copyto(place, each.words)

        self.made.steps.append((run, ()))

    def inside(self, graph: Graph, given: Sequence[Storage]) -> Bound:
        """Bind a nested program to memory of this one."""
        known = {v: self.storage(v) for v in graph.free}
        known.update(zip(graph.inputs, given, strict=True))
        bound = Binder(
            graph,
            self.sizes,
            known,
            self.target,
            constant=self.constant.intersection(graph.free),
            store=self.store,
        ).bound()
        self.made.workspace += bound.workspace
        self.made.once += bound.once
        self.made.kept += bound.kept
        self.made.held.append(bound)
        return bound

    def results(self, node: Node) -> list[Storage]:
        """Memory for the results of a form; keys are not in the memory plan."""
        for value in node.results:
            if value not in self.at:
                self.at[value] = storage(value.spec.at(self.sizes))
        return [self.at[value] for value in node.results]


def _is_view(node: Node) -> bool:
    """Whether the result shares the memory of the first argument."""
    if isinstance(node.op, Operator):
        return node.op.view is not None
    return node.id in _VIEWS


def _target_of(node: Node, target: Target) -> Where:
    """The target of a node; gradients run where their operator does."""
    if not isinstance(target, Mapping):
        return target
    return target.get(node.path.partition(".")[0].rstrip("'"), target.get(""))


def _fresh(argument: Argument) -> Argument:
    return argument.clone() if isinstance(argument, random.Key) else argument


def _bytes(spec: TensorSpec | KeySpec) -> int:
    assert isinstance(spec, TensorSpec)
    return math.prod(at_sizes(spec.shape, {})) * spec.numpy.itemsize
