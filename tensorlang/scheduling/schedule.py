"""`Schedule`: a function under transformation by primitives, with its trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.frozen import frozen
from tensorlang.ir.nodes import Function
from tensorlang.ir.text.printer import show
from tensorlang.notebooks import card
from tensorlang.scheduling.analysis.tree import enclosing_loops, find_block, find_buffer
from tensorlang.scheduling.steps.layout import Layout, index_map
from tensorlang.scheduling.steps.loops import Factors
from tensorlang.scheduling.terms import Term
from tensorlang.scheduling.trace import Step, Trace, portable
from tensorlang.targets import Target


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
    created by their primitive; its docstring explains them and shows the loops before
    and after: `PRIMITIVES["split"].__doc__`.

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
        kept = {option: portable(value) for option, value in options.items()}
        step = Step(name, tuple(portable(arg) for arg in args), kept)
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

    # loops

    def split(self, loop: str, factors: Factors) -> tuple[str, ...]:
        """Split a loop into nested loops; one factor may be None."""
        made: tuple[str, ...] = self.apply("split", loop, factors)
        return made

    def fuse(self, outer: str, inner: str) -> str:
        """Fuse two perfectly nested loops."""
        made: str = self.apply("fuse", outer, inner)
        return made

    def reorder(self, *loops: str) -> None:
        """Reorder perfectly nested loops."""
        self.apply("reorder", *loops)

    def partition(self, loop: str, at: Term) -> tuple[str, str]:
        """Split a loop's range into a main part and a tail."""
        made: tuple[str, str] = self.apply("partition", loop, at)
        return made

    def merge(self, first: str, second: str) -> None:
        """Merge two consecutive loops."""
        self.apply("merge", first, second)

    def specialize(self, loop: str, condition: Term) -> str:
        """Duplicate a nest, specialized by a condition."""
        made: str = self.apply("specialize", loop, condition)
        return made

    # annotations

    def parallel(self, loop: str) -> None:
        """Distribute a loop's iterations over threads."""
        self.apply("parallel", loop)

    def bind(self, loop: str, thread: str) -> None:
        """Bind a loop to a block or thread index."""
        self.apply("bind", loop, thread)

    def vectorize(self, loop: str) -> None:
        """Run a loop's iterations as vector lanes."""
        self.apply("vectorize", loop)

    def unroll(self, loop: str) -> None:
        """Fully unroll a loop."""
        self.apply("unroll", loop)

    def set_scope(self, buffer: str, scope: str) -> None:
        """Place a temporary in another memory."""
        self.apply("set_scope", buffer, scope)

    def hint(self, block: str, buffer: str, *hints: str) -> None:
        """Add hints to a block's accesses of a buffer."""
        self.apply("hint", block, buffer, *hints)

    def share(self, buffer: str, other: str) -> None:
        """Replace a temporary by another one with the same contents."""
        self.apply("share", buffer, other)

    def store_at(self, buffer: str, loop: str) -> None:
        """Allocate a temporary per iteration of a loop."""
        self.apply("store_at", buffer, loop)

    def store_in(self, buffer: str, result: str) -> None:
        """Store a temporary in the memory of a result."""
        self.apply("store_in", buffer, result)

    # blocks

    def cache_read(
        self, block: str, buffer: str, scope: str, at: str | None = None
    ) -> tuple[str, str]:
        """Copy a block's operand into a new buffer, and read that."""
        made: tuple[str, str]
        made = self.apply("cache_read", block, buffer, scope, **_set_options(at=at))
        return made

    def cache_write(
        self,
        block: str,
        buffer: str,
        scope: str,
        at: str | None = None,
        *,
        accumulate: bool = False,
    ) -> tuple[str, str]:
        """Compute into a new buffer that is written back."""
        options = _set_options(at=at, accumulate=accumulate or None)
        made: tuple[str, str]
        made = self.apply("cache_write", block, buffer, scope, **options)
        return made

    def inline(self, block: str, *, reverse: bool = False) -> None:
        """Substitute a block's computation into its users."""
        self.apply("inline", block, **_set_options(reverse=reverse or None))

    def compute_at(self, block: str, loop: str) -> None:
        """Compute the part of a producer that a loop body needs right there."""
        self.apply("compute_at", block, loop)

    def reverse_compute_at(self, block: str, loop: str) -> None:
        """Consume right there what a loop body has produced."""
        self.apply("reverse_compute_at", block, loop)

    def fuse_axes(self, block: str, axes: Sequence[str]) -> str:
        """Fuse several axes of a block."""
        made: tuple[str] = self.apply("fuse_axes", block, axes)
        return made[0]

    def fuse_dims(self, buffer: str, dims: Sequence[int]) -> None:
        """Fuse several dimensions of a temporary."""
        self.apply("fuse_dims", buffer, dims)

    def permute_dims(self, buffer: str, order: Sequence[int]) -> None:
        """Permute the dimensions of a temporary."""
        self.apply("permute_dims", buffer, order)

    def reindex(self, block: str, buffer: str) -> tuple[str, str]:
        """Access a buffer through a copy indexed by the block's axes."""
        made: tuple[str, str] = self.apply("reindex", block, buffer)
        return made

    def transform_layout(self, buffer: str, layout: Layout) -> None:
        """Map a temporary's indices to memory."""
        shape = find_buffer(self.function, buffer).shape
        self.apply("transform_layout", buffer, index_map(layout, len(shape)))

    def pad(self, name: str, multiples: Sequence[int]) -> None:
        """Round a temporary's dimensions, or a block's axes, up to multiples."""
        self.apply("pad", name, multiples)

    def decompose_reduction(self, block: str, loop: str) -> str:
        """Initialize a reduction in a block of its own, before a loop."""
        made: str = self.apply("decompose_reduction", block, loop)
        return made

    def atomic(self, block: str) -> None:
        """Make a block's updates atomic, so that iterations may run concurrently."""
        self.apply("atomic", block)

    def by_target(self, block: str, groups: int, of: str | None = None) -> str:
        """Partition a block's indirect updates into groups with disjoint targets."""
        made: str = self.apply("by_target", block, groups, **_set_options(of=of))
        return made

    def rfactor(self, block: str, loop: str, axis: int = 0) -> tuple[str, str]:
        """Compute partial results per iteration of a loop first."""
        made: tuple[str, str]
        made = self.apply("rfactor", block, loop, **_set_options(axis=axis or None))
        return made

    def number_loops(self) -> None:
        """Give loops the shortest names that tell them apart, unless they have them."""
        function, trace = self.function, self.trace
        self.apply("number_loops")
        if self.function is function:
            self.trace = trace

    def pipeline(
        self,
        loop: str,
        stages: int,
        *,
        roles: bool = False,
        blocks: int | None = None,
        in_flight: int = 0,
    ) -> None:
        """Prefetch a loop's staged data some iterations ahead, asynchronously."""
        flight = in_flight or None
        options = _set_options(roles=roles or None, blocks=blocks, in_flight=flight)
        self.apply("pipeline", loop, stages, **options)

    def double_buffer(self, loop: str) -> None:
        """Prefetch a loop's staged data one iteration ahead."""
        self.apply("double_buffer", loop)

    def tensorize(self, target: str, intrinsic: str) -> None:
        """Replace a tile's loops by an intrinsic with the same semantics."""
        self.apply("tensorize", target, intrinsic)


def _set_options(**options: object) -> dict[str, object]:
    """The options that are set, for a short trace."""
    return {name: value for name, value in options.items() if value is not None}


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
