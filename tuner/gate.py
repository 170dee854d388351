"""No candidate is timed before it is right.

Small ragged shapes are judged by the interpreter running the operator's reference
definition; the full shape by a plain loop nest of it, compiled apart and in double
precision where the definition allows. Exact algorithms must match to the bit. All
arrays lie between a canary and a forbidden page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.ir.interpreter import run
from tensorlang.ops.examples import arguments
from tensorlang.runtime import build
from tensorlang.tuner.guarded import Array, Guarded
from tensorlang.tuner.widen import widened

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.ops.operator import Operator
    from tensorlang.runtime import Kernel
    from tensorlang.workload import Workload

_RAGGED: Final = (5, 13, 37, 3, 7, 2, 11)
_LONG: Final = 2053  # past a vector, short of a chunk
_SMALLEST_LONG: Final = 1 << 14
_STRICT_ULPS: Final = 0.0


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


def ragged(workload: Workload) -> Iterator[Workload]:
    """Small shapes like the workload's: odd, of one element, and empty."""
    longest = max((d for shape in workload.shapes for d in shape), default=0)
    for number in (0, 1, 2) if longest > 1 else (0,):
        extents: dict[int, int] = {}
        for shape in workload.shapes:
            for extent in shape:
                small = _RAGGED[len(extents) % len(_RAGGED)]
                long = _LONG if extent >= _SMALLEST_LONG else small
                chosen = (long, 1, 0)[number] if extent == longest else small
                extents.setdefault(extent, min(chosen, extent))
        yield workload.with_shapes(
            *(tuple(extents[extent] for extent in shape) for shape in workload.shapes)
        )


class Gate:
    """The checks for one workload; expected results are made at need and kept."""

    def __init__(self, op: Operator, workload: Workload, tolerance: float) -> None:
        self._op, self._workload, self._tolerance = op, workload, tolerance

    @cached_property
    def small(self) -> list[Case]:
        """Ragged shapes, with what the interpreter makes of them."""
        return [self._interpreted(small) for small in ragged(self._workload)]

    @cached_property
    def full(self) -> Case:
        """The workload itself, with what its plain loop nest gives."""
        return self._compiled(self._workload)

    def _case(self, workload: Workload) -> tuple[Function, list[Array], list[Any]]:
        return self._op.function(workload), *arguments(self._op, workload, seed=1)

    def _interpreted(self, workload: Workload) -> Case:
        func, arrays, scalars = self._case(workload)
        results = [array.copy() for array in arrays]
        names = [scalar.name for scalar in _free(func)]
        run(func, *results, **dict(zip(names, scalars, strict=True)))
        return self._finished(workload, func, arrays, scalars, results)

    def _compiled(self, workload: Workload) -> Case:
        func, arrays, scalars = self._case(workload)
        wide = widened(func) if self._tolerance else None
        plain = build(wide or func)
        results = [
            array.astype(spec.numpy)
            for array, spec in zip(arrays, plain.signature.buffers, strict=True)
        ]
        plain.launch(*results, *scalars)
        return self._finished(workload, func, arrays, scalars, results)

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
        exact = self._tolerance == 0
        return Case(workload, tuple(arrays), tuple(scalars), written, expected, exact)

    def check(self, kernel: Kernel, case: Case) -> float:
        """Run the kernel on a case; the largest error over what is allowed.

        Raises:
            Wrong: an output differs, or something was written outside of it.
        """
        guarded = [Guarded(array.shape, array.dtype) for array in case.inputs]
        for number, (holder, given) in enumerate(
            zip(guarded, case.inputs, strict=True)
        ):
            holder.array[...] = given
            role = kernel.signature.buffers[number].role
            holder.poison() if role == "out" else None
        kernel.launch(*(holder.array for holder in guarded), *case.scalars)
        names = [spec.name for spec in kernel.signature.buffers]
        for name, holder in zip(names, guarded, strict=True):
            if not holder.intact:
                raise Wrong(f"wrote outside of {name}, in front of it")
        worst = 0.0
        for number, expected in zip(case.outputs, case.expected, strict=True):
            got, label = guarded[number].array, f"{names[number]} of {case.workload}"
            worst = max(worst, self._error(label, got, expected, exact=case.exact))
        return worst

    def _error(self, label: str, got: Array, expected: Array, *, exact: bool) -> float:
        if not got.size:
            return 0.0
        if exact or got.dtype.kind in "iub":
            wrong = _bits(got) != _bits(expected.astype(got.dtype))
            if wrong.any():
                raise Wrong(_difference(label, got, expected, wrong))
            return 0.0
        wide = expected.astype(np.float64)
        scale = np.maximum(np.abs(wide), float(np.abs(wide[np.isfinite(wide)]).mean()))
        with np.errstate(invalid="ignore"):
            error = np.abs(got.astype(np.float64) - wide) / (scale * self._tolerance)
        same = (got.astype(np.float64) == wide) | (np.isnan(wide) & np.isnan(got))
        error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
        if error.max() > 1:
            raise Wrong(_difference(label, got, expected, error > 1))
        return float(error.max())


def _free(func: Function) -> Any:
    from tensorlang.runtime.describing import signature_of  # noqa: PLC0415 - one use

    return signature_of(func).free


def _bits(array: Array) -> Array:
    """The array's bytes as integers, so that NaN equals itself and -0 is not 0."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _difference(label: str, got: Array, expected: Array, wrong: Array) -> str:
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {got.size} elements of {label} are wrong; the first, "
        f"at {list(first)}, is {got[first]!s} instead of {expected[first]!s}"
    )
