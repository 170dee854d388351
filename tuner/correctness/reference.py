"""Reference results: from a compiled plain loop nest and the interpreter.

Computed in double precision and in the definition's own dtypes. The interpreter defines
the semantics on small shapes, where the loop nest must agree with it; full shapes and
most arrays use the loop nest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang import targets
from tensorlang.errors import KernelError, ScheduleError, TensorlangError, TuningError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks
from tensorlang.ir.cost import cost_at
from tensorlang.ir.domains import domains
from tensorlang.ir.interpreter import run
from tensorlang.ir.visit import walk
from tensorlang.ops.spec.examples import Fill, Taken
from tensorlang.runtime import build
from tensorlang.runtime.arrays.host_arrays import Array
from tensorlang.runtime.describing import signature_of
from tensorlang.schedules.generic import stage_names
from tensorlang.scheduling import Schedule
from tensorlang.tuner.correctness.expected import (
    OWN_ERRORS,
    Expected,
    has_outliers,
    within,
)
from tensorlang.tuner.correctness.special_values import SEED
from tensorlang.tuner.correctness.tolerance import (
    coarsest,
    most_terms,
    of_terms,
    reassociation,
    sums_ones,
)
from tensorlang.tuner.correctness.widen import widened

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.ops.operator import Operator
    from tensorlang.runtime import Kernel
    from tensorlang.workload import Workload

# final contents of the written buffers, in double precision and in their own dtypes
Results: TypeAlias = "tuple[list[Array] | None, list[Array] | None]"

_MOVES: Final = 2  # two large terms that cancel seldom move alike twice
_FUEL: Final = 200_000  # statement limit of the interpreter for a small shape


@frozen
class Run:
    """Arrays of one call and the expected results."""

    named: str  # a description of the arrays' contents
    inputs: tuple[Array, ...]  # an array per buffer; write-only ones are zero
    expected: tuple[Expected, ...]  # expected content of each written buffer


@frozen
class Case:
    """A workload with the arrays of several calls."""

    workload: Workload
    scalars: tuple[object, ...]  # scalar arguments of a call
    outputs: tuple[int, ...]  # positions of the written buffers
    runs: tuple[Run, ...]  # calls


class Reference:
    """The reference of one workload.

    Args:
        op: The operator, whose algorithm `direct` it is.
        tolerance: The permitted relative error; 0 requires equal bits. Float reductions
            get at least that of `tolerance.py`.
        declared: That of sums that are exact in any order.
        finite: Whether infinities and NaNs may propagate.
    """

    def __init__(
        self,
        op: Operator,
        workload: Workload,
        tolerance: float,
        *,
        declared: float,
        finite: bool,
    ) -> None:
        self._sizes = op.sizes(workload)
        self._finite = finite
        self._taken = Taken.of(op, workload)
        self.workload, self.func = workload, self._taken.func
        self.inputs = self._taken.inputs
        self._tolerance = max(tolerance, reassociation(self.func, self._sizes))
        self.epsilon = coarsest(self.func, self._sizes)
        self._exact = max(declared, self.epsilon / 2)
        self._sums_ones = sums_ones(self.func)
        self.terms = most_terms(self.func, self._sizes)
        self._wide = widened(self.func) if self._tolerance else None
        self._rounding = of_terms(self.func, self._sizes) / OWN_ERRORS
        self._zeros = any(map(_loses_the_sign_of_zero, walk(self.func.body)))

    @property
    def hides_terms(self) -> bool:
        """Whether a lost term is within the permitted error, unless terms are ones."""
        return self._sums_ones and self._tolerance * self.terms >= 1

    @cached_property
    def results(self) -> list[tuple[tuple[int, ...], np.dtype]]:
        """Shape and dtype of each written buffer."""
        known = self._taken.shapes
        written = (p.buffer for p in self.func.params if p.role != "in")
        return [(known[buffer.name], buffer.dtype.numpy) for buffer in written]

    @property
    def bytes(self) -> int:
        """Bytes of all buffers."""
        read = [(each.shape, each.dtype) for each in self.inputs]
        return sum(math.prod(s) * dtype.itemsize for s, dtype in read + self.results)

    @cached_property
    def work(self) -> int:
        """Operations and bytes; 0 if data-dependent."""
        try:
            return sum(cost_at(self.func, self._sizes))
        except TensorlangError:
            return 0

    @cached_property
    def may_fault(self) -> bool:
        """Whether some input values may fault."""
        return not domains(self.func, self._sizes).complete

    @cached_property
    def multiplies(self) -> bool:
        """Whether it reduces by products, whose overflow depends on the order."""
        reducers = (n.reducer for n in walk(self.func.body) if isinstance(n, ir.Reduce))
        parts = (part for r in reducers for c in r.combine for part in walk(c))
        return any(
            isinstance(part, ir.Binary) and part.op == "mul" and part.dtype.is_float
            for part in parts
        )

    @cached_property
    def pointwise(self) -> bool:
        """Whether no result depends on two elements of one array."""
        own = list(blocks(self.func.body))
        inside = {id(n) for block in own for n in walk(block)}
        return all(map(_is_pointwise, own)) and not any(
            isinstance(node, ir.Store | ir.Reduce | ir.While) and id(node) not in inside
            for node in walk(self.func.body)
        )

    @cached_property
    def _kernels(self) -> tuple[Kernel | None, Kernel]:
        host = targets.host()
        wide = build(parallelised(self._wide), host) if self._wide else None
        return wide, build(parallelised(self.func), host)

    def case(self, fills: Iterable[tuple[str, Fill]], *, narrow: bool = True) -> Case:
        """A case computed by the compiled loop nest.

        Args:
            fills: Contents of the arrays, with names.
            narrow: Whether to compute in the definition's own dtypes too, as needed
                where numbers may underflow or overflow.
        """
        runs = []
        for named, fill in fills:
            arrays, scalars = self._taken.arguments(fill)
            with suppress(KernelError):  # a check of the definition fails
                results = self.compiled(arrays, scalars, narrow=narrow)
                exact = self._is_exact(arrays, results)
                moved = [] if exact else self._moved(arrays, scalars, results[0])
                expected = self.expected(
                    results, self._spreads(arrays), moved, exact=exact
                )
                runs.append(Run(named, tuple(arrays), tuple(expected)))
        written = tuple(n for n, p in enumerate(self.func.params) if p.role != "in")
        return Case(self.workload, self._taken.scalars, written, tuple(runs))

    def compiled(
        self, arrays: Sequence[Array], scalars: Sequence[object], *, narrow: bool = True
    ) -> Results:
        """Results of the plain loop nest."""
        wide, own = self._kernels
        return (
            self._called(wide, self._wide, arrays, scalars),
            self._called(
                own if narrow or wide is None else None, self.func, arrays, scalars
            ),
        )

    def _moved(
        self,
        arrays: Sequence[Array],
        scalars: Sequence[object],
        wide: list[Array] | None,
    ) -> list[list[Array]]:
        """Results in double precision for inputs that rounding has moved.

        Where large terms cancel, they show how far the results of another order may be:
        each term moves by its share of the permitted error.
        Empty where no result is alone or much larger than the others.
        """
        if wide is None or self.pointwise or not any(map(has_outliers, wide)):
            return []
        found = []
        for seed in range(_MOVES):
            generator = np.random.default_rng((SEED, seed))
            with np.errstate(all="ignore"):
                moved = [
                    each
                    if each.dtype.kind in "iub"
                    else np.asarray(
                        each * (1 + self._rounding * generator.normal(size=each.shape))
                    )
                    for each in arrays
                ]
            found.append(self._called(self._kernels[0], self._wide, moved, scalars))
        return list(filter(None, found))

    def _called(
        self,
        kernel: Kernel | None,
        func: Function | None,
        arrays: Sequence[Array],
        scalars: Sequence[object],
    ) -> list[Array] | None:
        if kernel is None or func is None:
            return None
        held = _fitting(arrays, func)
        kernel.launch(*held, *scalars)
        return _written(func, held)

    def interpreted(
        self, arrays: Sequence[Array], scalars: Sequence[Any]
    ) -> tuple[list[Array] | None, list[Array] | None, int]:
        """Results of the interpreter, and the number of statements it executed.

        Raises:
            InterpreterError: the definition faults for these arrays.
        """
        found: list[list[Array] | None] = []
        steps = 0
        for func in (self._wide, self.func):
            if func is None:
                found.append(None)
                continue
            held = _fitting(arrays, func)
            names = [scalar.name for scalar in signature_of(func).free]
            named = dict(zip(names, scalars, strict=True))
            steps += run(func, *held, fuel=_FUEL, **named).steps
            found.append(_written(func, held))
        return found[0], found[1], steps

    def _spreads(self, arrays: Iterable[Array]) -> bool:
        """Whether there is an infinity or NaN that may propagate to other results."""
        floats = (array for array in arrays if array.dtype.kind not in "iub")
        return (self._finite or self.multiplies) and not all(
            np.isfinite(array).all() for array in floats
        )

    def expected(
        self,
        results: Sequence[list[Array] | None],
        spreads: bool,
        moved: Sequence[list[Array]] = (),
        *,
        exact: bool = False,
    ) -> Iterator[Expected]:
        """The expected outputs, from the reference's results.

        Args:
            results: Those in double precision, and in its own dtypes.
            spreads: Whether an infinity or NaN may propagate to other results.
            moved: Results for inputs that were moved by rounding errors.
            exact: Whether sums are exact in any order.
        """
        wide, narrow = results
        for number, (_, dtype) in enumerate(self.results):
            own = None if narrow is None else narrow[number]
            if wide is not None:
                yield within(
                    wide[number],
                    own,
                    dtype,
                    self._exact if exact else self._tolerance,
                    spreads=spreads,
                    moved=[each[number] for each in moved],
                )
            else:
                assert own is not None
                yield Expected(own, zeros=self._zeros)

    def _is_exact(self, arrays: Sequence[Array], results: Results) -> bool:
        """Whether nothing was rounded but the results in double precision."""
        wide, narrow = results
        if wide is None or narrow is None or not self._sums_ones:
            return False
        if not all(map(_is_of_ones, arrays)):
            return False
        with np.errstate(all="ignore"):
            return all(
                bool((exact.astype(own.dtype) == own).all())
                for exact, own in zip(wide, narrow, strict=True)
            )

    def defined(self, fills: Iterable[tuple[str, Fill]]) -> Iterator[str]:
        """The names of the fills for which the definition does not fault."""
        for named, fill in fills:
            with suppress(TensorlangError):
                self.interpreted(*self._taken.arguments(fill))
                yield named

    def vouch(self, fill: Fill) -> int:
        """Compare the compiled loop nest with the interpreter.

        Returns:
            The number of statements that the interpreter executed.

        Raises:
            TuningError: they differ.
            InterpreterError: the definition faults for these arrays.
        """
        arrays, scalars = self._taken.arguments(fill)
        *found, steps = self.interpreted(arrays, scalars)
        meant = list(self.expected(found, self._spreads(arrays)))
        for results in self.compiled(arrays, scalars):
            for wanted, got in zip(meant, results or (), strict=False):
                with np.errstate(all="ignore"):
                    wrong = wanted.wrong(got.astype(wanted.value.dtype))
                if wrong is not None:
                    at = tuple(map(int, np.argwhere(wrong)[0]))
                    raise TuningError(
                        f"the plain loop nest of {self.workload} is not what the "
                        "interpreter makes of it, so nothing can be judged by it: "
                        f"at {list(at)} {got[at]!s} instead of {wanted.value[at]!s}"
                    )
        return steps


def _is_of_ones(array: Array) -> bool:
    """Whether all floats are 0, 1 or -1, whose sums are exact unless they are large."""
    if array.dtype.kind in "iub":
        return True
    with np.errstate(all="ignore"):
        return bool((array * array == np.abs(array)).all())


def _is_pointwise(block: ir.Block) -> bool:
    if any(axis.kind not in ("spatial", "disjoint") for axis in block.axes):
        return False
    loads = {n for n in walk(block) if isinstance(n, ir.Load)}
    folds = (
        n for n in walk(block) if isinstance(n, ir.For | ir.Reduce | ir.AtomicUpdate)
    )
    return len({load.buffer for load in loads}) == len(loads) and not any(folds)


def _loses_the_sign_of_zero(node: ir.Node) -> bool:
    """Whether the sign of a zero result is unspecified: maximum and minimum.

    In a comparing reduction, the order decides which of two equal values is kept.
    """
    if isinstance(node, ir.Reduce):
        parts = (part for each in node.reducer.combine for part in walk(each))
        return any(
            isinstance(p, ir.Compare) or _loses_the_sign_of_zero(p) for p in parts
        )
    return (
        isinstance(node, ir.Binary)
        and node.op in ("min", "max")
        and node.dtype.is_float
    )


def parallelised(func: Function) -> Function:
    """A plain loop nest with its outermost loops parallelised where legal.

    The last spatial loop of a reduction is its innermost one, which is vectorized. Each
    result is computed in the same order as before. Otherwise a product of 4096-row
    matrices would take minutes, longer than a candidate may take.
    """
    s = Schedule(func, targets.host())
    kinds = {b.name: [axis.kind for axis in b.axes] for b in blocks(func.body)}
    for name in stage_names(s):
        loops = s.loops(name)
        spatial = kinds.get(name, []).count("spatial")
        sums = ["reduction"] * (len(loops) - spatial)
        with suppress(ScheduleError):
            s.parallel(loops[0])
            if spatial > 1 and sums and kinds[name][spatial:] == sums:
                s.reorder(*loops[spatial:], loops[spatial - 1])
    return s.function


def _fitting(arrays: Sequence[Array], func: Function) -> list[Array]:
    """Copies in the dtypes of the function's parameters."""
    types = [param.buffer.dtype.numpy for param in func.params]
    with np.errstate(invalid="ignore"):  # signalling NaNs are invalid
        return [a.astype(dtype) for a, dtype in zip(arrays, types, strict=True)]


def _written(func: Function, held: Sequence[Array]) -> list[Array]:
    pairs = zip(func.params, held, strict=True)
    return [array for param, array in pairs if param.role != "in"]
