"""Export of programs: a graph, or a network with its weights, as one function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tensorlang import ir
from tensorlang.errors import ArgumentError, GraphError
from tensorlang.export.files import Exported, written
from tensorlang.export.kernels import Kernels
from tensorlang.export.library import Array, Library, Program, c_name, library_name
from tensorlang.export.machines import Machine, machines
from tensorlang.export.placement import BATCH, Constants, Placement, linear
from tensorlang.export.steps import bound, laid_out
from tensorlang.graph.execution.loops import Storage
from tensorlang.graph.networks.context import memory
from tensorlang.graph.specs import Extent, KeySpec, names_in
from tensorlang.graph.values import Value
from tensorlang.ir.dtypes import as_dtype
from tensorlang.ops.random.impls import impl

_MOST: Final = 16  # programs that cover all batches
_LARGEST: Final = 1 << 31  # batch

if TYPE_CHECKING:
    from tensorlang.graph.networks.network import Network
    from tensorlang.graph.program import Graph


def export_network(
    network: Network,
    folder: str | Path,
    *,
    batch: int | Sequence[int] = (),
    name: str = "network",
    on: Sequence[Machine] = (),
) -> Exported:
    """Export the inference of a network to a folder, with its present weights.

    Args:
        network: The network.
        folder: Where to write.
        batch: The largest batch, for all from 1 on; or several, for what their kernels
            serve. Left out where inputs have no size named `batch`.
        name: Begins the names of files and functions.
        on: The machines; by default this one.

    Raises:
        ArgumentError: a batch is missing, or the name is no identifier.
        GraphError: the program has loops or conditions, or looks at data.
        CodegenError: a machine cannot express a kernel, or the C compiler fails.
    """
    program, places = network.program, network.use.places
    exporter = _Exporter(name, program, memory(network, program, places))
    count = len(network.specs), len(program.outputs) - len(places)
    return exporter.export(count, batch, on, Path(folder))


def export_graph(
    graph: Graph,
    folder: str | Path,
    *,
    batch: int | Sequence[int] = (),
    name: str = "program",
    on: Sequence[Machine] = (),
) -> Exported:
    """Export a program to a folder; its keys are arrays of words.

    Arguments and errors are those of `export_network`.
    """
    exporter = _Exporter(name, graph, {})
    count = len(graph.inputs), len(graph.outputs)
    return exporter.export(count, batch, on, Path(folder))


class _Exporter:
    """Exports a program with weights."""

    def __init__(
        self, name: str, program: Graph, known: Mapping[Value, Storage]
    ) -> None:
        self.name, self.program, self.known = library_name(name), program, known
        self.kernels = Kernels(name)
        self.constants = Constants(f"{name}_constants")
        self.arrays: tuple[Array, ...] = ()

    def export(
        self,
        count: tuple[int, int],
        batch: int | Sequence[int],
        on: Sequence[Machine],
        folder: Path,
    ) -> Exported:
        """Export the program, with its first inputs and outputs as arguments."""
        inputs = self.program.inputs[: count[0]]
        outputs = self.program.outputs[: count[1]]
        sizes = [batch] if isinstance(batch, int) else sorted({*batch})
        _check(inputs, sizes)
        self.arrays = tuple(_arrays(inputs, outputs))
        several = self._all if isinstance(batch, int) else self._each
        programs = [
            program
            for machine in on or machines()
            for program in several(machine, sizes or [0])
        ]
        library = Library(
            self.name,
            f"{self.name}: {', '.join(str(value.spec) for value in inputs)}",
            {BATCH: sizes[-1]} if sizes else {},
            self.arrays,
            tuple(programs),
            constants=bytes(self.constants.data),
        )
        return written(library, tuple(self.kernels), folder)

    def _each(self, machine: Machine, sizes: Sequence[int]) -> list[Program]:
        return [self._program(machine, most)[1] for most in sizes]

    def _all(self, machine: Machine, sizes: Sequence[int]) -> list[Program]:
        """Programs for every batch from 1 on, those for small ones first."""
        found: list[Program] = []
        (most,) = sizes
        while most:
            if len(found) == _MOST:
                raise GraphError(
                    f"{self.name} has another program for nearly every batch below "
                    f"{most + 1}: give those to export, such as batch=[1, {sizes[0]}]"
                )
            least, program = self._program(machine, most)
            found.insert(0, program)
            most = least - 1
        return found

    def _program(self, machine: Machine, most: int) -> tuple[int, Program]:
        """The least batch of a program for a largest one, and the program."""
        on, sizes = machine.target, {BATCH: most}
        graph, known = laid_out(self.program, sizes, self.known, on)
        at, more = (
            bound(graph, {BATCH: n}, known, on) for n in (most, most + bool(most))
        )
        shared = machine, self.kernels, self.constants
        placement = Placement(self.arrays, (at, more), most, *shared)
        if not placement.serves(most + 1):  # its kernels are for this batch alone
            placement = Placement(self.arrays, (at, at), most, *shared)
        return placement.least, placement.program()


def _check(inputs: Sequence[Value], sizes: Sequence[int]) -> None:
    """Refuse batches that do not fit the inputs."""
    names = {name for value in inputs for name in names_in(value.spec.shape)}
    fits = all(1 <= size <= _LARGEST for size in sizes)
    if names - {BATCH} or bool(names) != bool(sizes) or not fits:
        shown = ", ".join(str(value.spec) for value in inputs)
        raise ArgumentError(
            f"the inputs are {shown}: an export takes the largest {BATCH}, such as "
            "batch=32, where there is one; all other sizes are numbers"
        )


def _arrays(inputs: Sequence[Value], outputs: Sequence[Value]) -> Iterator[Array]:
    """The arrays that the caller passes."""
    for value in inputs:
        yield _array(value, value.name, "in")
    for n, value in enumerate(outputs):
        yield _array(value, f"y{n}" if len(outputs) > 1 else "y", "out")


def _array(value: Value, name: str, role: str) -> Array:
    """An argument: a tensor's elements, or a key's words."""
    spec, shape = value.spec, tuple(map(_extent, value.spec.shape))
    if isinstance(spec, KeySpec):
        how = impl(spec.impl)
        words = (*shape, ir.as_expr(how.key_words))
        return Array(c_name(name), as_dtype(f"u{how.bits}"), role, words)
    return Array(c_name(name), as_dtype(spec.dtype), role, shape)


def _extent(extent: Extent) -> ir.Expr:
    if isinstance(extent, int):
        return ir.as_expr(extent)
    start = extent.at({BATCH: 0})
    return linear(extent.at({BATCH: 1}) - start, start)
