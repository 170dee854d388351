"""Correctness checks of candidates, made before any timing.

Small ragged shapes and the full one, each with many arrays: random and with special
values (`special_values`). The results of the definition (`reference`) are computed once
for all candidates. Inputs must be unchanged, and all arrays lie between protected pages
(`guarded`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang.errors import ShapeError, TuningError
from tensorlang.ops.algorithms import DIRECT
from tensorlang.runtime.arrays.host_arrays import Array
from tensorlang.tuner.correctness.decisions import decisions
from tensorlang.tuner.correctness.expected import Expected, bits
from tensorlang.tuner.correctness.guarded import EDGES, Edge, Guarded
from tensorlang.tuner.correctness.ragged import KINDS, served_workloads, small_variants
from tensorlang.tuner.correctness.reference import Case, Reference, Run
from tensorlang.tuner.correctness.special_values import (
    MILD,
    RANDOM,
    Constants,
    Pool,
    few_ones,
    fills,
    large_fills,
)
from tensorlang.tuner.correctness.tolerance import reassociation

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.ops.operator import Operator
    from tensorlang.ops.spec.examples import Fill
    from tensorlang.runtime import Kernel
    from tensorlang.runtime.signature import BufferSpec
    from tensorlang.workload import Workload

_SOME_BYTES: Final = 1 << 18  # bytes; arrays of this size get a few special values each
_MANY_BYTES: Final = 4 << 20  # bytes; arrays of this size get them all at once
_VOUCHED: Final = 5  # one array in this many is also checked by the interpreter
_MOST_STEPS: Final = 2_000  # statements of the interpreter
_A_STEP: Final = 1 << 11  # operations and bytes that cost as much as one statement
_QUICK: Final = 4 << 20  # operations and bytes that take about a second
_FEASIBLE: Final = 256 << 20  # operations and bytes that take less than a minute
_SAFE: Final = (1e-4, 1e4)  # magnitudes whose products neither underflow nor overflow


class Wrong(Exception):  # noqa: N818 - a verdict, not a failure
    """A candidate computes a wrong result; the message describes it."""


class Gate:
    """The checks of one workload; expected results are computed lazily and cached.

    Args:
        op: The operator, whose algorithm `direct` is the reference.
        workload: The full shape.
        tolerance: The declared relative error; float reductions, whose order is
            unspecified, get at least that of `tolerance.py`.
        finite: Whether infinities and NaNs may propagate to other results.

    Attributes:
        tolerance: The permitted relative error at the full shape; 0 requires equal
            bits.
    """

    def __init__(
        self,
        op: Operator,
        workload: Workload,
        tolerance: float,
        *,
        finite: bool = False,
    ) -> None:
        free = reassociation(op.function(workload), op.sizes(workload))
        self._op, self._workload, self._finite = op, workload, finite
        self._declared, self.tolerance = tolerance, max(tolerance, free)
        self._references: dict[Workload, Reference] = {}
        self._held: dict[Hashable, list[Guarded]] = {}
        self._beyond: dict[Hashable, list[Case]] = {}

    @cached_property
    def small(self) -> list[Case]:
        """Small shapes that the kernel supports, with many arrays each.

        Raises:
            TuningError: the definition accepts none.
        """
        return [self._case(workload, self._pool()) for workload in self._shapes]

    @cached_property
    def nonempty(self) -> list[Case]:
        """The small shapes, or the full one if they are all empty."""
        empty = (0 in shape for c in self.small for shape in c.workload.shapes)
        return [self.full, *self.small] if all(empty) else self.small

    @cached_property
    def full(self) -> Case:
        """The workload itself."""
        return self.case(self._workload)

    def case(self, workload: Workload) -> Case:
        """A workload that the same kernel serves, with many arrays."""
        _ = self.odd  # validates the compiled reference
        return self._case(workload, self._pool())

    def compiled(self, workload: Workload) -> Case:
        """A workload with random values, computed by the plain loop nest."""
        return self._reference(workload).case([RANDOM])

    def beyond(self, func: Function) -> list[Case]:
        """Extra cases for a function with other decision values than the definition.

        One of a small shape, and one of the full one.
        """
        known = {
            _bits_of(value) for values in self._decisions.values() for value in values
        }
        own = {
            dtype: tuple(value for value in values if _bits_of(value) not in known)
            for dtype, values in decisions(func).items()
        }
        key = tuple((dtype, *map(_bits_of, v)) for dtype, v in own.items() if v)
        if not key:
            return []
        if key not in self._beyond:
            pool = self._pool(own)
            shapes = [*self._shapes[:1], self._workload]
            self._beyond = {key: [self._case(w, pool, narrow=True) for w in shapes]}
        return self._beyond[key]

    @cached_property
    def _decisions(self) -> Constants:
        return decisions(self._reference(self._workload).func)

    def _pool(self, own: Constants | None = None) -> Pool:
        constants = {
            dtype: (*(own or {}).get(dtype, ()), *self._decisions.get(dtype, ()))
            for dtype in {**(own or {}), **self._decisions}
        }
        if self._finite:
            return Pool(constants, _SAFE[0], MILD)
        if self._reference(self._workload).multiplies:
            return Pool(constants, *_SAFE)
        return Pool(constants)

    def _reference(self, workload: Workload) -> Reference:
        if workload not in self._references:
            self._references[workload] = Reference(
                self._op,
                workload,
                self.tolerance,
                declared=self._declared,
                finite=self._finite,
            )
        return self._references[workload]

    @cached_property
    def _shapes(self) -> list[Workload]:
        """The small workloads, after validating the compiled reference."""
        odd = self.odd
        others = (self._defined(kind) for kind in KINDS[1:])
        own = served_workloads(self._op, self._workload) if self._fixes_sizes else ()
        found = (odd, *filter(None, others), *filter(self._has_inputs, own))
        return list(dict.fromkeys(found))

    def _has_inputs(self, workload: Workload) -> bool:
        """Whether there are inputs of a workload: none index an empty array."""
        try:
            self._reference(workload)
        except ShapeError:
            return False
        return True

    @property
    def _fixes_sizes(self) -> bool:
        """Whether the kernel is specialised on sizes that small workloads may lack."""
        return any(None in called for called in self._op.names(self._workload))

    @cached_property
    def odd(self) -> Workload:
        """The first odd workload, used to validate the compiled reference.

        Raises:
            TuningError: the definition accepts none, or was compiled incorrectly.
        """
        problems: list[str] = []
        late: list[Workload] = []
        for workload in chain(small_variants(self._op, self._workload, "odd"), late):
            try:
                reference = self._reference(workload)
                if _QUICK < reference.work < _FEASIBLE and workload not in late:
                    late.append(workload)
                elif reference.work < _FEASIBLE:
                    self._vouch(reference)
                    return workload
            except TuningError:
                raise
            except Exception as problem:  # noqa: BLE001 - a definition may raise anything
                problems.append(f"{list(workload.shapes)}: {problem}")
        raise TuningError(
            f"{self._op.id} was not checked, as its definition accepts none "
            f"of {len(problems)}; declare valid sizes, as in "
            f"@operator(sizes='n >= 5'). {problems[0] if problems else ''}"
        )

    def _vouch(self, reference: Reference) -> None:
        """Compare it with the interpreter, on some of the arrays and at least one."""
        steps = 0
        for _, fill in self._fills(reference, self._pool())[::_VOUCHED]:
            if steps < _MOST_STEPS:
                steps += reference.vouch(fill) + reference.work // _A_STEP

    def _defined(self, kind: str) -> Workload | None:
        """The first workload of a kind that the definition accepts."""
        for workload in small_variants(self._op, self._workload, kind):
            try:
                reference = self._reference(workload)
                if list(reference.defined(self._fills(reference, self._pool())[:1])):
                    return workload
            except Exception:  # noqa: BLE001, S112 - a definition may raise anything
                continue
        return None

    def _fills(self, reference: Reference, pool: Pool) -> list[tuple[str, Fill]]:
        exact = self.tolerance == 0
        every = list(
            fills(pool, reference.inputs, pointwise=reference.pointwise, exact=exact)
        )
        if reference.hides_terms:
            every += few_ones(reference.terms, reference.epsilon)
        if reference.may_fault:
            fine = set(reference.defined(every))
            every = [one for one in every if one[0] in fine]
        return every

    def _case(self, workload: Workload, pool: Pool, *, narrow: bool = False) -> Case:
        reference = self._reference(workload)
        if any(0 in shape for shape in workload.shapes):
            return reference.case([RANDOM])
        if reference.bytes > _SOME_BYTES or reference.work > _QUICK:
            return self._large(reference, pool, narrow=narrow)
        return reference.case(self._fills(reference, pool))

    def _large(self, reference: Reference, pool: Pool, *, narrow: bool) -> Case:
        """Special values among random ones, in a single run if that takes long.

        In a single run, the reference in its own dtypes, which doubles the cost, is
        only computed if equal bits are required or with `narrow`; otherwise values are
        limited to avoid overflow, underflow and cancellation. Runs in which lost terms
        show come after it where they would not.
        """
        large = reference.bytes > _MANY_BYTES or reference.work > _FEASIBLE
        exact = self.tolerance == 0
        narrow |= exact or not large
        if large and not exact:
            pool = Pool(pool.constants if narrow else {}, _SAFE[0], MILD)
        chosen = [RANDOM]
        if not reference.may_fault:
            results = max((prod(shape) for shape, _ in reference.results), default=0)
            how = {"pointwise": reference.pointwise, "exact": exact, "large": large}
            chosen = list(large_fills(pool, reference.inputs, results, **how))
        case = reference.case(chosen, narrow=narrow)
        if all(_hidden(each) for run in case.runs[:1] for each in run.expected):
            more = reference.case([RANDOM], narrow=narrow).runs
            case = replace(case, runs=(*more, *case.runs))
        if reference.hides_terms and not reference.may_fault:
            more = reference.case(few_ones(reference.terms, reference.epsilon)).runs
            case = replace(case, runs=(*case.runs, *more))
        return case

    def check(self, kernel: Kernel, case: Case) -> float:
        """Run the kernel on a case; return its largest error over the permitted one.

        For small arrays the protected page alternates between both ends.

        Raises:
            Wrong: an output is wrong, or other memory was written.
            KernelError: the kernel reported a fault.
        """
        worst = 0.0
        for number, run in enumerate(case.runs):
            large = any(array.nbytes > _MANY_BYTES for array in run.inputs)
            edges = (
                EDGES[:1] if large else EDGES if not number else (EDGES[number % 2],)
            )
            for edge in edges:
                memory = self._memory(run, edge)
                worst = max(worst, self._run(kernel, case, run, memory))
        return worst

    def _memory(self, run: Run, edge: Edge) -> list[Guarded]:
        """Guarded arrays, reused between candidates."""
        key = (edge, *((array.shape, array.dtype) for array in run.inputs))
        if key not in self._held:
            self._held[key] = [Guarded(a.shape, a.dtype, edge) for a in run.inputs]
        return self._held[key]

    def _run(
        self, kernel: Kernel, case: Case, run: Run, guarded: Sequence[Guarded]
    ) -> float:
        specs = kernel.signature.buffers
        for spec, holder, given in zip(specs, guarded, run.inputs, strict=True):
            holder.arm()
            if spec.role == "out":
                holder.poison()
            else:
                holder.array[...] = given
        kernel.launch(*(holder.array for holder in guarded), *case.scalars)
        self._untouched(kernel, run, guarded)
        worst = 0.0
        for number, expected in zip(case.outputs, run.expected, strict=True):
            got = guarded[number].array
            if expected.wrong(got) is not None:
                raise Wrong(_difference(specs, number, case, run, got))
            worst = max(worst, expected.error(got))
        return worst

    def _untouched(self, kernel: Kernel, run: Run, guarded: Sequence[Guarded]) -> None:
        specs = kernel.signature.buffers
        for spec, holder, given in zip(specs, guarded, run.inputs, strict=True):
            if not holder.intact:
                side = "in front of" if holder.edge == "after" else "behind"
                raise Wrong(f"wrote outside of {spec.name}, {side} it")
            if spec.role == "in" and (bits(holder.array) != bits(given)).any():
                raise Wrong(f"wrote into {spec.name}, which is only read")


class Gates:
    """The checks of one workload, one set per declared accuracy of its algorithms."""

    def __init__(self, op: Operator, workload: Workload) -> None:
        self._op, self._workload = op, workload
        self._held: dict[tuple[float, bool], Gate] = {}

    def of(self, name: str) -> Gate:
        """The checks for an algorithm."""
        direct, algorithm = self._op.algorithms[DIRECT], self._op.algorithms[name]
        key = max(direct.tolerance, algorithm.tolerance), algorithm.finite
        if key not in self._held:
            self._held[key] = Gate(self._op, self._workload, key[0], finite=key[1])
        return self._held[key]


def _hidden(expected: Expected) -> bool:
    """Whether most of an output is infinite or NaN, which hides other errors."""
    value = expected.value
    floats = value.dtype.kind not in "iub" and value.size
    return bool(floats and np.mean(np.isfinite(value)) < 1 / 2)


def _bits_of(value: object) -> tuple[type, bytes]:
    """A value that is equal only to values of the same type and bits."""
    return type(value), np.asarray(value).tobytes()


def _difference(
    specs: Sequence[BufferSpec], number: int, case: Case, run: Run, got: Array
) -> str:
    """Describe the first error of an output, with its inputs."""
    expected = run.expected[case.outputs.index(number)]
    wrong = expected.wrong(got)
    assert wrong is not None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    given = ", ".join(
        f"{spec.name} is {array[first]!s}"
        for spec, array in zip(specs, run.inputs, strict=True)
        if spec.role != "out" and array.shape == got.shape
    )
    return (
        f"{int(wrong.sum())} of {got.size} elements of {specs[number].name} of "
        f"{case.workload} are wrong, given {run.named}; the first, at {list(first)}, "
        f"is {got[first]!s} instead of {expected.value[first]!s}"
        f"{', where ' if given else ''}{given}"
    )
