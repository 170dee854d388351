"""Export of an operator: one kernel for each machine and range of sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tensorlang.errors import ArgumentError
from tensorlang.export.c_expressions import c_text, plain
from tensorlang.export.files import Exported, written
from tensorlang.export.kernels import Kernel, Kernels
from tensorlang.export.library import (
    Launch,
    Library,
    Program,
    Scalar,
    c_name,
    library_name,
    total_bytes,
)
from tensorlang.export.machines import Machine, machines
from tensorlang.export.sizes import Interface, guards, interface, symbols
from tensorlang.ir.dtypes import DType
from tensorlang.ir.visit import substitute
from tensorlang.ops.kernels import building, workloads
from tensorlang.runtime.calling import bits, scalar

if TYPE_CHECKING:
    from tensorlang import ir
    from tensorlang.ops import Operator
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
    fixed = _fixed(op, given[0], values or {})
    exporter = _Exporter(op, face, kernels, fixed)
    programs = [
        exporter.program(workload, machine)
        for machine in on or machines()
        for workload in given
    ]
    library = Library(
        called,
        op.described(given[0]) if len(given) == 1 else op.id,
        face.sizes,
        face.arrays,
        tuple(programs),
        tuple(kernels),
        scalars=tuple(exporter.scalars(given[0])),
        aliases=next(iter(kernels)).signature.aliases,
    )
    return written(library, Path(folder))


def numbers(op: Operator) -> tuple[str, ...]:
    """The parameters that a kernel takes as numbers, which an export may fix."""
    kinds = ("derived", "scalar", "share")
    return tuple(p.name for p in op.spec.parameters if any(map(p.is_a, kinds)))


def _fixed(
    op: Operator, workload: Workload, values: Mapping[str, object]
) -> dict[str, object]:
    """The kernel's scalars that are fixed: values, and what follows from them."""
    known = numbers(op)
    if unknown := ", ".join(values.keys() - {*known}):
        raise ArgumentError(
            f"{op.id} has no number {unknown}; it has {', '.join(known) or 'none'}"
        )
    derived = [p.name for p in op.spec.parameters if p.is_a("derived")]
    missing = ", ".join(name for name in derived if name not in values)
    if missing:
        raise ArgumentError(
            f"{op.id} is exported for a fixed {missing}: give its value"
        )
    made = workloads.derived(op, workload, values) if derived else {}
    if derived and not made:
        raise ArgumentError(f"{op.id} has another kernel for these numbers: {values}")
    return {n: v for n, v in values.items() if n not in derived} | made


@dataclass(frozen=True, slots=True)
class _Exporter:
    """What the programs of an operator share."""

    op: Operator
    face: Interface
    kernels: Kernels
    fixed: Mapping[str, object]

    def program(self, workload: Workload, machine: Machine) -> Program:
        """The launch of a workload's kernel on a machine."""
        op, places = self.op, self.face.places
        algorithm, schedule = building.best(op, workload, machine.target)
        kernel = self.kernels.kernel(schedule.function, machine)
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
        return Program(machine, tuple(map(plain, dict.fromkeys(needed))), (launch,))

    def _slots(self, kernel: Kernel, sizes: Mapping[str, ir.Expr]) -> Iterator[str]:
        """The slots of scalars: sizes, fixed numbers, and the caller's."""
        for spec in kernel.signature.scalars:
            if spec.name in sizes:
                yield f"(uint64_t){c_text(sizes[spec.name])}"
            elif spec.name in self.fixed:
                value = scalar(self.op.id, spec, self.fixed[spec.name])
                yield f"UINT64_C({bits(spec, value):#x})"
            else:
                yield f"bits_of_{spec.dtype}({c_name(spec.name)})"

    def scalars(self, workload: Workload) -> Iterator[Scalar]:
        """The numbers that the caller passes."""
        usual, sizes = self.op.scalars(workload), self.op.traced(workload).sizes
        for spec in next(iter(self.kernels)).signature.scalars:
            if spec.name not in sizes and spec.name not in self.fixed:
                example = float(usual.get(spec.name) or 0)
                yield Scalar(c_name(spec.name), DType(spec.dtype), example)
