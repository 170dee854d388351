"""`Schedule`: a function under transformation by primitives, with its trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from tensorlang import lazy
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.frozen import frozen
from tensorlang.ir.nodes import Function
from tensorlang.ir.text.printer import show
from tensorlang.notebooks import card
from tensorlang.scheduling.analysis.tree import enclosing_loops, find_block, find_buffer
from tensorlang.scheduling.primitives import PRIMITIVES
from tensorlang.scheduling.steps.layout import Layout, index_map
from tensorlang.scheduling.trace import Step, Trace
from tensorlang.targets import Target

with lazy.modules(__name__):  # a schedule uses a few primitives
    from tensorlang.scheduling.steps import (
        annotate,
        atomic,
        by_target,
        cache,
        cache_write,
        compute_at,
        dims,
        fuse_axes,
        inline,
        layout,
        loops,
        memory,
        merge,
        number,
        pad,
        partition,
        pipeline,
        reduction,
        reindex,
        reverse_compute_at,
        rfactor,
        share,
        storage,
        tensorize,
    )

# which are methods with more than the step
PRIMITIVES.declare("transform_layout", lambda: layout.transform_layout)
PRIMITIVES.declare("number_loops", lambda: number.number_loops)

P = ParamSpec("P")
R = TypeVar("R")


class _Method(Generic[P, R]):
    """A primitive as a method: of a schedule, it returns the names created alone."""

    def __init__(self, primitive: Callable[[], Callable[..., object]]) -> None:
        self._primitive = primitive

    def __set_name__(self, owner: type, name: str) -> None:
        def method(schedule: Schedule, *args: object, **options: object) -> object:
            return schedule.apply(name, *args, **options)

        method.__name__ = name
        self._method = method
        PRIMITIVES.declare(name, self._primitive)

    @overload
    def __get__(self, schedule: None, owner: type) -> Callable[..., object]: ...
    @overload
    def __get__(self, schedule: Schedule, owner: type) -> Callable[P, R]: ...
    def __get__(self, schedule: Schedule | None, owner: type) -> Callable[..., Any]:
        if schedule is None:
            return wraps(self._primitive())(self._method)
        return MethodType(self._method, schedule)


@overload
def _method(
    primitive: Callable[[], Callable[Concatenate[Function, P], tuple[Function, R]]],
) -> _Method[P, R]: ...
@overload
def _method(
    primitive: Callable[[], Callable[Concatenate[Function, P], Function]],
) -> _Method[P, None]: ...
def _method(primitive: Callable[[], Callable[..., object]]) -> object:
    """The method for a primitive, whose module is imported on first use."""
    return _Method(primitive)


@frozen
class Declined:
    """A step, or a function of several, that was attempted and failed."""

    after: int  # number of steps before it
    way: str  # attempt, as a call
    reason: str  # why it does not apply

    def __str__(self) -> str:
        return f"{self.way}: {self.reason}"


class Schedule:
    """A function being scheduled: each method applies the primitive of its name.

    An illegal step raises `ScheduleError` and changes nothing. Methods return the names
    created by their primitive, and have its docstring: `help(Schedule.split)` shows
    the loops before and after.

    Attributes:
        function: The current function.
        target: The target it is scheduled for, if known.
        trace: The steps so far.
        declined: Attempts that failed, and why.
        knobs: The knob values that determined the steps, if any.
    """

    def __init__(self, func: Function, target: Target | None = None) -> None:
        """Start without steps."""
        self.function = func
        self.target = target
        self.trace = Trace()
        self.declined: list[Declined] = []
        self.knobs: Mapping[str, object] = {}

    def apply(self, name: str, *args: object, **options: object) -> Any:
        """Apply a primitive by name; returns the names it created.

        Raises:
            ScheduleError: the step is not legal, or there is no such primitive.
        """
        step = Step.of(name, args, options)
        self.function, made = step.apply(self.function)
        self.trace = self.trace.then(step)
        return made

    def attempt(self, way: Callable[..., object], *args: object) -> bool:
        """Try a step, or a function of several; returns whether it succeeded.

        On failure all its steps are rolled back, and `declined` records the reason.

        Raises:
            ArgumentError: a knob has no such value.
        """
        function, trace = self.function, self.trace
        try:
            way(*args)
        except ArgumentError:
            raise
        except TensorlangError as problem:
            self.function, self.trace = function, trace
            self.declined.append(Declined(len(trace), _called(way, args), str(problem)))
            return False
        return True

    def _repr_html_(self) -> str:
        """What a notebook shows: the knobs, the steps, and the IR after them."""
        listings = [
            ("steps", "python", self.annotated_trace()),
            ("scheduled IR", "python", show(self.function)),
        ]
        target = {"target": self.target} if self.target else {}
        facts = {**target, "steps": len(self.trace), **self.knobs}
        return card(f"schedule of {self.function.name}", facts, listings)

    def annotated_trace(self) -> str:
        """The trace, with comments for attempts that were declined."""
        lines: dict[int, list[str]] = {n: [] for n in range(len(self.trace) + 1)}
        for each in self.declined:
            lines[min(each.after, len(self.trace))].append(f"# declined {each}")
        for n, step in enumerate(self.trace):
            lines[n].append(str(step))
        return "\n".join(line for each in lines.values() for line in each)

    def replay(self, trace: Trace) -> None:
        """Apply all steps of a trace, which may stem from another function."""
        for step in trace.steps:
            self.apply(step.name, *step.args, **step.options)

    def loops(self, block: str) -> tuple[str, ...]:
        """The names of the loops around a block, outermost first."""
        around = enclosing_loops(find_block(self.function, block))
        return tuple(loop.var.name for loop in around)

    def transform_layout(self, buffer: str, layout: Layout) -> None:
        """Map a temporary's indices to memory."""
        shape = find_buffer(self.function, buffer).shape
        self.apply("transform_layout", buffer, index_map(layout, len(shape)))

    def number_loops(self) -> None:
        """Give loops the shortest names that tell them apart, unless they have them."""
        function, trace = self.function, self.trace
        self.apply("number_loops")
        if self.function is function:
            self.trace = trace

    # loops
    split = _method(lambda: loops.split)
    fuse = _method(lambda: loops.fuse)
    reorder = _method(lambda: loops.reorder)
    partition = _method(lambda: partition.partition)
    specialize = _method(lambda: partition.specialize)
    merge = _method(lambda: merge.merge)
    # annotations
    parallel = _method(lambda: annotate.parallel)
    bind = _method(lambda: annotate.bind)
    vectorize = _method(lambda: annotate.vectorize)
    unroll = _method(lambda: annotate.unroll)
    set_scope = _method(lambda: memory.set_scope)
    hint = _method(lambda: memory.hint)
    share = _method(lambda: share.share)
    store_at = _method(lambda: storage.store_at)
    store_in = _method(lambda: storage.store_in)
    # blocks
    cache_read = _method(lambda: cache.cache_read)
    cache_write = _method(lambda: cache_write.cache_write)
    inline = _method(lambda: inline.inline)
    compute_at = _method(lambda: compute_at.compute_at)
    reverse_compute_at = _method(lambda: reverse_compute_at.reverse_compute_at)
    fuse_axes = _method(lambda: fuse_axes.fuse_axes)
    fuse_dims = _method(lambda: dims.fuse_dims)
    permute_dims = _method(lambda: dims.permute_dims)
    reindex = _method(lambda: reindex.reindex)
    pad = _method(lambda: pad.pad)
    decompose_reduction = _method(lambda: reduction.decompose_reduction)
    atomic = _method(lambda: atomic.atomic)
    by_target = _method(lambda: by_target.by_target)
    rfactor = _method(lambda: rfactor.rfactor)
    pipeline = _method(lambda: pipeline.pipeline)
    double_buffer = _method(lambda: pipeline.double_buffer)
    tensorize = _method(lambda: tensorize.tensorize)


def _called(
    way: Callable[..., object], args: Sequence[object], **options: object
) -> str:
    """An attempt as a call on the schedule, or as a function name."""
    if isinstance(way, partial):
        return _called(way.func, (*way.args, *args), **way.keywords)
    if isinstance(getattr(way, "__self__", None), Schedule):
        return str(Step(way.__name__, tuple(args), options))
    module = way.__module__.removeprefix("tensorlang.schedules.")
    return f"{module}.{way.__name__.lstrip('_')}"
