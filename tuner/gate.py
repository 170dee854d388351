"""No candidate is timed before it is right.

Small ragged shapes are judged by the interpreter running the operator's reference
definition; the full shape by a plain loop nest of it, compiled apart, which has itself
agreed with the interpreter. Exact algorithms must match to the bit; the others are
compared with the definition in double precision. What is only read must stay as it was,
and all arrays lie between forbidden pages (`guarded`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang import targets
from tensorlang.errors import ScheduleError, TensorlangError, TuningError
from tensorlang.ir.interpreter import run
from tensorlang.ops.examples import arguments
from tensorlang.ops.tensors import TensorOperator
from tensorlang.runtime import build
from tensorlang.runtime.describing import signature_of
from tensorlang.schedules.generic import stage_names
from tensorlang.scheduling import Schedule
from tensorlang.tuner.guarded import EDGES, Array, Guarded
from tensorlang.tuner.ragged import batches, ragged
from tensorlang.tuner.tolerance import reassociation
from tensorlang.tuner.widen import widened

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.ops.operator import Operator
    from tensorlang.runtime import Kernel
    from tensorlang.workload import Workload

_MANY_BYTES: Final = 1 << 20


class Wrong(Exception):  # noqa: N818 - a verdict, not a failure
    """A candidate computed something else; the message says what."""


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments of one call, what it must give, and how far off it may be.

    `outputs` are positions of the written buffers; `exact` demands equal bits.
    """

    workload: Workload
    inputs: tuple[Array, ...]
    scalars: tuple[Any, ...]
    outputs: tuple[int, ...]
    expected: tuple[Array, ...]
    exact: bool


class Gate:
    """The checks for one workload; expected results are made at need and kept.

    Args:
        op: The operator, whose algorithm `direct` is the reference.
        workload: The full shape.
        tolerance: The relative error that is declared for what is checked; float
            reductions, whose order is free, may have that of `tolerance.py` in any
            case.

    Attributes:
        tolerance: The relative error that is allowed; 0 demands equal bits.
    """

    def __init__(self, op: Operator, workload: Workload, tolerance: float) -> None:
        free = reassociation(op.function(workload), op.sizes(workload))
        self._op, self._workload = op, workload
        self.tolerance = max(tolerance, free)
        self._held: list[Guarded] = []

    @cached_property
    def small(self) -> list[Case]:
        """Ragged shapes that the kernel takes.

        Where all sizes are told at the call, by the interpreter. A kernel whose sizes
        are fixed but for a batch is too large for that: by the plain loop nest.
        """
        if isinstance(self._op, TensorOperator):
            self._vouched_small()
            return [self.compiled(each) for each in self._batches(self._op)]
        return list(self._judged())

    def _batches(self, op: TensorOperator) -> Iterator[Workload]:
        """Sizes that the kernel is called with: of nothing, another one may be made."""
        names = op.names(self._workload)
        for workload in batches(self._workload, names):
            empty = any(0 in shape for shape in workload.shapes)
            if not empty or op.names(workload) == names:
                yield workload

    def _judged(self) -> Iterator[Case]:
        """Ragged shapes that the definition takes, by the interpreter."""
        for workload in ragged(self._workload):
            try:
                yield self._interpreted(workload)
            except TensorlangError:  # it is not defined for a shape so small
                continue

    def _vouched_small(self) -> None:
        """The plain loop nest is right on the first small shape that there can be."""
        for case in self._judged():
            self._vouched(case)
            return

    @cached_property
    def full(self) -> Case:
        """The workload itself, with what its plain loop nest gives."""
        if not isinstance(self._op, TensorOperator):
            for case in self.small[:1]:
                self._vouched(case)
        return self.compiled(self._workload)

    def _case(self, workload: Workload) -> tuple[Function, list[Array], list[Any]]:
        """The reference, wide unless it must match to the bit, and its arguments."""
        func = self._op.function(workload)
        wide = widened(func) if self.tolerance else None
        return wide or func, *arguments(self._op, workload, seed=1)

    def _interpreted(self, workload: Workload) -> Case:
        func, arrays, scalars = self._case(workload)
        results = _fitting(arrays, func)
        names = [scalar.name for scalar in signature_of(func).free]
        run(func, *results, **dict(zip(names, scalars, strict=True)))
        return self._finished(workload, func, arrays, scalars, results)

    def compiled(self, workload: Workload) -> Case:
        """A workload with what its plain loop nest gives, compiled for this CPU.

        In float64, unless the operator must match to the bit; all threads share it.
        """
        func, arrays, scalars = self._case(workload)
        results = _fitting(arrays, func)
        build(shared_out(func), targets.host()).launch(*results, *scalars)
        return self._finished(workload, func, arrays, scalars, results)

    def _vouched(self, known: Case) -> None:
        """The plain loop nest, compiled, is what the interpreter says."""
        plain = self.compiled(known.workload)
        try:
            for got, expected in zip(plain.expected, known.expected, strict=True):
                self._error("the reference", got, expected, exact=known.exact)
        except Wrong as verdict:
            raise TuningError(
                f"the plain loop nest of {known.workload} is not what the interpreter "
                f"makes of it, so nothing can be judged by it: {verdict}"
            ) from None

    def _finished(
        self,
        workload: Workload,
        func: Function,
        arrays: list[Array],
        scalars: list[Any],
        results: list[Array],
    ) -> Case:
        written = tuple(n for n, p in enumerate(func.params) if p.role != "in")
        expected = tuple(results[n] for n in written)
        exact = self.tolerance == 0
        return Case(workload, tuple(arrays), tuple(scalars), written, expected, exact)

    def check(self, kernel: Kernel, case: Case) -> float:
        """Run the kernel on a case; the largest error over what is allowed.

        Small cases run twice, with the forbidden page after and before each array.

        Raises:
            Wrong: an output differs, or something else was written.
            KernelError: the kernel reported a fault.
        """
        if any(array.nbytes > _MANY_BYTES for array in case.inputs):
            return self._run(kernel, case, self._memory(case))
        fresh = (
            [Guarded(array.shape, array.dtype, edge) for array in case.inputs]
            for edge in EDGES
        )
        return max(self._run(kernel, case, guarded) for guarded in fresh)

    def _memory(self, case: Case) -> list[Guarded]:
        """Memory for large arrays, kept from one candidate to the next."""
        wanted = [(array.shape, array.dtype) for array in case.inputs]
        if [(held.array.shape, held.array.dtype) for held in self._held] != wanted:
            self._held = [Guarded(*one) for one in wanted]
        return self._held

    def _run(self, kernel: Kernel, case: Case, guarded: Sequence[Guarded]) -> float:
        specs = kernel.signature.buffers
        for spec, holder, given in zip(specs, guarded, case.inputs, strict=True):
            if spec.role == "out":
                holder.poison()
            else:
                holder.array[...] = given
        kernel.launch(*(holder.array for holder in guarded), *case.scalars)
        self._untouched(kernel, case, guarded)
        worst = 0.0
        for number, expected in zip(case.outputs, case.expected, strict=True):
            got = guarded[number].array
            label = f"{specs[number].name} of {case.workload}"
            worst = max(worst, self._error(label, got, expected, exact=case.exact))
        return worst

    def _untouched(
        self, kernel: Kernel, case: Case, guarded: Sequence[Guarded]
    ) -> None:
        specs = kernel.signature.buffers
        for spec, holder, given in zip(specs, guarded, case.inputs, strict=True):
            if not holder.intact:
                side = "in front of" if holder.edge == "after" else "behind"
                raise Wrong(f"wrote outside of {spec.name}, {side} it")
            if spec.role == "in" and (_bits(holder.array) != _bits(given)).any():
                raise Wrong(f"wrote into {spec.name}, which is only read")

    def _error(self, label: str, got: Array, expected: Array, *, exact: bool) -> float:
        if not got.size:
            return 0.0
        if exact or got.dtype.kind in "iub":
            wrong = differing(got, expected.astype(got.dtype))
            if wrong.any():
                raise Wrong(_difference(label, got, expected, wrong))
            return 0.0
        error = relative_error(got, expected) / self.tolerance
        if error.max() > 1:
            raise Wrong(_difference(label, got, expected, error > 1))
        return float(error.max())


def shared_out(func: Function) -> Function:
    """A plain loop nest whose outermost iterations threads share, where they may.

    What each of them computes, and in which order, stays as it was. A product of
    matrices of 4096 rows takes minutes otherwise, more than a candidate may take.
    """
    s = Schedule(func, targets.host())
    for name in stage_names(s):
        with suppress(ScheduleError):
            s.parallel(s.loops(name)[0])
    return s.function


def relative_error(got: Array, expected: Array) -> Array:
    """How far off each element is, over its size or, if larger, the mean size.

    The latter is what cancellation leaves: an element near 0 among large ones was made
    of large ones. Equal infinities and NaNs are no error.
    """
    found, wide = got.astype(np.float64), expected.astype(np.float64)
    sizes = np.abs(wide)
    finite = sizes[np.isfinite(sizes)]
    mean = float(finite.mean()) if finite.size else 0.0
    same = (found == wide) | (np.isnan(found) & np.isnan(wide))
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.abs(found - wide) / np.maximum(sizes, mean)
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


def _fitting(arrays: Sequence[Array], func: Function) -> list[Array]:
    """Copies in the types of the function's parameters."""
    types = [param.buffer.dtype.numpy for param in func.params]
    return [array.astype(dtype) for array, dtype in zip(arrays, types, strict=True)]


def differing(got: Array, expected: Array) -> Array:
    """Where the bits of arrays of one type differ: bool, of their shape.

    Which NaN an operation gives is each device's own (CUDA's is 0x7fffffff, x86's has
    its sign set), so one is as good as another.
    """
    wrong: Array = _bits(got) != _bits(expected)
    if got.dtype.kind not in "iub":
        wrong &= ~(np.isnan(got) & np.isnan(expected))
    return wrong


def _bits(array: Array) -> Array:
    """The array's bytes as integers, so that NaN equals itself and -0 is not 0."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _difference(label: str, got: Array, expected: Array, wrong: Array) -> str:
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {got.size} elements of {label} are wrong; the first, "
        f"at {list(first)}, is {got[first]!s} instead of {expected[first]!s}"
    )
