"""Export of an operator: one kernel for each machine and range of sizes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from tensorlang.errors import ArgumentError
from tensorlang.export.c_expressions import c_text, plain
from tensorlang.export.files import Exported, written
from tensorlang.export.kernels import Kernels
from tensorlang.export.library import (
    Code,
    Launch,
    Library,
    Place,
    Program,
    Scalar,
    c_name,
    library_name,
    total_bytes,
)
from tensorlang.export.machines import Machine, machines
from tensorlang.export.sizes import Interface, declared, guards, interface, symbols
from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import DType
from tensorlang.ir.visit import substitute
from tensorlang.ops.kernels import building, workloads
from tensorlang.runtime.calling import bits, scalar

if TYPE_CHECKING:
    from tensorlang import ir
    from tensorlang.ops import Operator
    from tensorlang.runtime.signature import Signature
    from tensorlang.workload import Workload


def export_operator(
    op: Operator,
    given: Sequence[Workload],
    folder: str | Path,
    *,
    name: str = "",
    values: Mapping[str, object] | None = None,
    on: Sequence[Machine] = (),
) -> Exported:
    """Export an operator to a folder.

    Sizes that the kernel of a workload takes at run time are arguments of the function.

    Args:
        op: The operator.
        given: The workloads it is called with; of those that serve a call's sizes, the
            first one's kernel runs.
        folder: Where to write.
        name: Begins the names of files and functions; by default the operator's.
        values: The numbers that are fixed, such as `{"rate": 0.5}` of dropout.
        on: The machines; by default this one.

    Raises:
        ArgumentError: the name is no identifier, or a value is out of its domain or
            missing.
        ShapeError: the ranks of workloads differ.
        CodegenError: a machine cannot express the kernel, or the C compiler fails.
    """
    called = library_name(name or op.id.replace(".", "_"))
    face, kernels = interface(op, given), Kernels(called)
    fixed = fixed_numbers(op, given[0], values or {})
    exporter = Exporter(op, face, kernels.kernel, fixed)
    programs = exporter.programs(given, on or machines())
    signature = next(iter(kernels)).signature
    library = exporter.library(called, given, programs, signature)
    return written(library, tuple(kernels), Path(folder))


def numbers(op: Operator) -> tuple[str, ...]:
    """The parameters that a kernel takes as numbers, which an export may fix."""
    kinds = ("derived", "scalar", "share")
    return tuple(p.name for p in op.spec.parameters if any(map(p.is_a, kinds)))


def fixed_numbers(
    op: Operator, workload: Workload, values: Mapping[str, object]
) -> dict[str, object]:
    """The kernel's scalars that are fixed: values, and what follows from them."""
    known = numbers(op)
    if unknown := ", ".join(values.keys() - {*known}):
        raise ArgumentError(
            f"{op.id} has no number {unknown}; it has {', '.join(known) or 'none'}"
        )
    derived = [p.name for p in op.spec.parameters if p.is_a("derived")]
    if missing := [name for name in derived if name not in values]:
        raise ArgumentError(
            f"{op.id} is exported for a fixed {' and '.join(missing)}: give its value, "
            f"as by --attr {missing[0]}=0.5"
        )
    made = workloads.derived(op, workload, values) if derived else {}
    if derived and not made:
        raise ArgumentError(f"{op.id} has another kernel for these numbers: {values}")
    return {n: v for n, v in values.items() if n not in derived} | made


def formulas(op: Operator) -> tuple[str, ...]:
    """The source of the function that computes an operator's numbers, with helpers."""
    if op.host is None:
        return ()
    beside = vars(inspect.getmodule(op.host))
    used = (beside.get(name) for name in op.host.__code__.co_names)
    functions = [f for f in used if inspect.isfunction(f)]
    helpers = [f for f in functions if f.__module__ == op.host.__module__]
    try:
        texts = [*map(inspect.getsource, helpers), inspect.getsource(op.host)]
    except OSError:  # installed without sources
        return ()
    return tuple(line for text in texts for line in (*text.splitlines(), ""))[:-1]


M = TypeVar("M", bound=Place)


@frozen
class Exporter(Generic[M]):
    """What the programs of an operator share."""

    op: Operator
    face: Interface  # its arrays and sizes
    # kernel of a scheduled function, for a machine
    compiled: Callable[[ir.Function, M], Code]
    fixed: Mapping[str, object]  # scalars with fixed values

    def programs(
        self, given: Sequence[Workload], on: Sequence[M]
    ) -> tuple[Program, ...]:
        """The program of each workload, on each machine."""
        return tuple(self._program(each, machine) for machine in on for each in given)

    def library(
        self,
        name: str,
        given: Sequence[Workload],
        programs: tuple[Program, ...],
        signature: Signature,
    ) -> Library:
        """The library of these programs, of whose kernels this is the signature."""
        return Library(
            name,
            self.op.described(given[0]) if len(given) == 1 else self.op.id,
            self.face.sizes,
            self.face.arrays,
            programs,
            scalars=tuple(self._scalars(given[0], signature)),
            aliases=signature.aliases,
            formulas=formulas(self.op),
        )

    def _program(self, workload: Workload, machine: M) -> Program:
        op, places = self.op, self.face.places
        algorithm, schedule = building.best(op, workload, machine.target)
        kernel = self.compiled(schedule.function, machine)
        op.function(workload, algorithm)  # its trace is known then
        trace = op.traced(workload)
        both = (trace, op.traced(workload, algorithm))
        needed = (guard for each in both for guard in guards(each, workload, places))
        values = symbols(trace, workload, places)
        sizes = {n: substitute(extent, values) for n, extent in trace.sizes.items()}
        slots = (
            *(f"address({array.name})" for array in self.face.arrays),
            *self._slots(kernel, sizes),
        )
        size = total_bytes(self.face.arrays)
        launch = Launch(kernel, op.described(workload), slots, size)
        conditions = [*map(plain, needed), *declared(op, workload, places)]
        return Program(machine, tuple(dict.fromkeys(conditions)), (launch,))

    def _slots(self, kernel: Code, sizes: Mapping[str, ir.Expr]) -> Iterator[str]:
        """The slots of scalars: sizes, fixed numbers, and the caller's."""
        for spec in kernel.signature.scalars:
            if spec.name in sizes:
                yield f"(uint64_t){c_text(sizes[spec.name])}"
            elif spec.name in self.fixed:
                value = scalar(self.op.id, spec, self.fixed[spec.name])
                yield f"UINT64_C({bits(spec, value):#x})"
            else:
                yield f"bits_of_{spec.dtype}({c_name(spec.name)})"

    def _scalars(self, workload: Workload, signature: Signature) -> Iterator[Scalar]:
        """The numbers that the caller passes."""
        usual, sizes = self.op.scalars(workload), self.op.traced(workload).sizes
        for spec in signature.scalars:
            if spec.name not in sizes and spec.name not in self.fixed:
                example = float(usual.get(spec.name) or 0)
                yield Scalar(c_name(spec.name), DType(spec.dtype), example)
