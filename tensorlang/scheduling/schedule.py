"""`Schedule`: a function on its way through primitives, with the trace of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorlang.ir.nodes import Function
from tensorlang.scheduling.layout import Layout, index_map
from tensorlang.scheduling.loops import Factors
from tensorlang.scheduling.terms import Term
from tensorlang.scheduling.trace import Step, Trace, portable
from tensorlang.scheduling.tree import enclosing_loops, find_block, find_buffer
from tensorlang.targets import Target


class Schedule:
    """A function being scheduled: each method applies the primitive of its name.

    A step that is not legal raises `ScheduleError` and changes nothing. Methods return
    the names that their primitive made, to go on with; what they mean, with the loops
    before and after, is told by the primitive: `PRIMITIVES["split"].__doc__`.

    Attributes:
        function: The function as it is now.
        target: What it is scheduled for, if that is known.
        trace: The steps so far.
        knobs: The values of the knobs that chose them, where there were any.
    """

    def __init__(self, func: Function, target: Target | None = None) -> None:
        """A schedule without steps."""
        self.function = func
        self.target = target
        self.trace = Trace()
        self.knobs: Mapping[str, object] = {}

    def apply(self, name: str, *args: object, **options: object) -> Any:
        """Apply a primitive by its name; returns the names that it made.

        Raises:
            ScheduleError: the step is not legal, or there is no such primitive.
        """
        kept = {option: portable(value) for option, value in options.items()}
        step = Step(name, tuple(portable(arg) for arg in args), kept)
        self.function, made = step.apply(self.function)
        self.trace = self.trace.then(step)
        return made

    def replay(self, trace: Trace) -> None:
        """Apply all steps of a trace, which may come from another function."""
        for step in trace.steps:
            self.apply(step.name, *step.args, **step.options)

    def loops(self, block: str) -> tuple[str, ...]:
        """The names of the loops around a block, outermost first."""
        around = enclosing_loops(find_block(self.function, block))
        return tuple(loop.var.name for loop in around)

    # loops

    def split(self, loop: str, factors: Factors) -> tuple[str, ...]:
        """Cut a loop into nested loops; one factor may be None."""
        made: tuple[str, ...] = self.apply("split", loop, factors)
        return made

    def fuse(self, outer: str, inner: str) -> str:
        """Join two perfectly nested loops."""
        made: str = self.apply("fuse", outer, inner)
        return made

    def reorder(self, *loops: str) -> None:
        """Put perfectly nested loops into this order."""
        self.apply("reorder", *loops)

    def partition(self, loop: str, at: Term) -> tuple[str, str]:
        """Cut a loop's range into a main part and a tail."""
        made: tuple[str, str] = self.apply("partition", loop, at)
        return made

    def merge(self, first: str, second: str) -> None:
        """Two neighbouring loops as one."""
        self.apply("merge", first, second)

    def specialize(self, loop: str, condition: Term) -> str:
        """Two copies of a nest behind a condition."""
        made: str = self.apply("specialize", loop, condition)
        return made

    # annotations

    def parallel(self, loop: str) -> None:
        """Share a loop's iterations out among threads."""
        self.apply("parallel", loop)

    def bind(self, loop: str, thread: str) -> None:
        """Let a loop be an index of an execution scope."""
        self.apply("bind", loop, thread)

    def vectorize(self, loop: str) -> None:
        """Run a loop's iterations as lanes."""
        self.apply("vectorize", loop)

    def unroll(self, loop: str) -> None:
        """Write a loop's iterations out."""
        self.apply("unroll", loop)

    def set_scope(self, buffer: str, scope: str) -> None:
        """Let a temporary live in another memory."""
        self.apply("set_scope", buffer, scope)

    def hint(self, block: str, buffer: str, *hints: str) -> None:
        """Add hints to a block's accesses of a buffer."""
        self.apply("hint", block, buffer, *hints)

    def share(self, buffer: str, other: str) -> None:
        """Read one temporary in place of another one that holds the same."""
        self.apply("share", buffer, other)

    def store_at(self, buffer: str, loop: str) -> None:
        """Let a temporary live in one iteration."""
        self.apply("store_at", buffer, loop)

    def store_in(self, buffer: str, result: str) -> None:
        """Let a temporary live in the memory of a result."""
        self.apply("store_in", buffer, result)

    # blocks

    def cache_read(
        self, block: str, buffer: str, scope: str, at: str | None = None
    ) -> tuple[str, str]:
        """Copy what a block reads into a new buffer, and read that."""
        made: tuple[str, str]
        made = self.apply("cache_read", block, buffer, scope, **_given(at=at))
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
        """Let a block compute into a new buffer that is written back."""
        options = _given(at=at, accumulate=accumulate or None)
        made: tuple[str, str]
        made = self.apply("cache_write", block, buffer, scope, **options)
        return made

    def inline(self, block: str, *, reverse: bool = False) -> None:
        """Put a block's computation into the blocks that use it."""
        self.apply("inline", block, **_given(reverse=reverse or None))

    def compute_at(self, block: str, loop: str) -> None:
        """Compute what a loop body needs of a producer right there."""
        self.apply("compute_at", block, loop)

    def reverse_compute_at(self, block: str, loop: str) -> None:
        """Consume what a loop body has produced right there."""
        self.apply("reverse_compute_at", block, loop)

    def fuse_axes(self, block: str, axes: Sequence[str]) -> str:
        """Let several axes of a block be one."""
        made: tuple[str] = self.apply("fuse_axes", block, axes)
        return made[0]

    def fuse_dims(self, buffer: str, dims: Sequence[int]) -> None:
        """Let several dimensions of a temporary be one."""
        self.apply("fuse_dims", buffer, dims)

    def permute_dims(self, buffer: str, order: Sequence[int]) -> None:
        """Put the dimensions of a temporary into another order."""
        self.apply("permute_dims", buffer, order)

    def reindex(self, block: str, buffer: str) -> tuple[str, str]:
        """Access a buffer through one that is indexed by the block's axes."""
        made: tuple[str, str] = self.apply("reindex", block, buffer)
        return made

    def transform_layout(self, buffer: str, layout: Layout) -> None:
        """Map a temporary's indices to places in memory."""
        shape = find_buffer(self.function, buffer).shape
        self.apply("transform_layout", buffer, index_map(layout, len(shape)))

    def pad(self, name: str, multiples: Sequence[int]) -> None:
        """Round a temporary's dimensions, or a block's axes, up to multiples."""
        self.apply("pad", name, multiples)

    def decompose_reduction(self, block: str, loop: str) -> str:
        """Set a reduction's state in a block of its own, before a loop."""
        made: str = self.apply("decompose_reduction", block, loop)
        return made

    def atomic(self, block: str) -> None:
        """Let a block fold into memory indivisibly, so that iterations may at once."""
        self.apply("atomic", block)

    def by_target(self, block: str, groups: int, of: str | None = None) -> str:
        """Groups that each go through a block for places of their own."""
        made: str = self.apply("by_target", block, groups, **_given(of=of))
        return made

    def rfactor(self, block: str, loop: str, axis: int = 0) -> tuple[str, str]:
        """Fold a loop's iterations into results of their own first."""
        made: tuple[str, str]
        made = self.apply("rfactor", block, loop, **_given(axis=axis or None))
        return made

    def pipeline(self, loop: str, stages: int) -> None:
        """Fetch what a loop stages some iterations ahead, asynchronously."""
        self.apply("pipeline", loop, stages)

    def double_buffer(self, loop: str) -> None:
        """Fetch what a loop stages one iteration ahead."""
        self.apply("double_buffer", loop)

    def tensorize(self, target: str, intrinsic: str) -> None:
        """Replace a tile's loops by an instruction of that meaning."""
        self.apply("tensorize", target, intrinsic)


def _given(**options: object) -> dict[str, object]:
    """The options that are not at their default, for a short trace."""
    return {name: value for name, value in options.items() if value is not None}
