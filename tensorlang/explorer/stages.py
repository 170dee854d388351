"""The stages of a kernel, from definition to machine code, with linked lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tensorlang.codegen.short_names import as_shown
from tensorlang.codegen.shown_schedule import simplified_schedule
from tensorlang.explorer import links, machine_code
from tensorlang.explorer.lines import Line, lines_of
from tensorlang.explorer.links import Tags
from tensorlang.explorer.sources import Source, source_of
from tensorlang.frozen import frozen
from tensorlang.notebooks import LANGUAGES

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function
    from tensorlang.runtime.cuda.kernel import CudaKernel
    from tensorlang.runtime.kernel import Kernel
    from tensorlang.scheduling.schedule import Schedule


@frozen
class Stage:
    """A text, and for each of its lines what it is linked by."""

    name: str  # a short name, used in links
    title: str  # a heading
    language: str  # name of the lexer that highlights it
    lines: Sequence[str]  # text
    tags: Sequence[Tags]  # tags of each line; see `links`
    # for each line the statements of the lowered IR that it is from
    statements: Sequence[tuple[int, ...]] = ()
    # for each line of machine code the source line, from 1; 0 for none
    sources: Sequence[int] = ()


def stages_of(definition: Function, schedule: Schedule, kernel: Kernel) -> list[Stage]:
    """The stages of a kernel that was built from a schedule of a definition."""
    made = links.scheduled(definition, schedule.trace)
    source = source_of(kernel.lowered, kernel.target, kernel.artifact.knobs)
    before = lines_of(definition)
    after = _as_shown(simplified_schedule(made.function))
    lowered = _as_shown(source.function)
    tags = links.of_lowered(lowered, made)
    by_statement = _by_statement(lowered, tags)
    texts = source.text.splitlines()
    found = [
        _ir("definition", "Definition", before, links.of_definition(before, made)),
        _ir("scheduled", "Scheduled", after, links.of_scheduled(after)),
        _ir("lowered", "Lowered", lowered, tags, numbered=True),
        Stage(
            "source",
            _TITLES[kernel.target.kind],
            LANGUAGES[kernel.target.kind],
            texts,
            [_joined(by_statement, numbers) for numbers in source.statements],
            source.statements,
            range(1, len(texts) + 1),
        ),
    ]
    return [*found, *_machine_code(kernel, source, found[-1])]


def _as_shown(function: Function) -> list[Line]:
    """The lines of a function as it is shown, with its own statements."""
    own = {line.number: line for line in lines_of(function)}
    shown = lines_of(as_shown(function))
    return [replace(own[line.number], text=line.text) for line in shown]


_TITLES: Final = {"llvm": "LLVM IR", "opencl": "OpenCL C", "cuda": "CUDA C++"}


def _ir(
    name: str,
    title: str,
    lines: Sequence[Line],
    tags: Sequence[Tags],
    *,
    numbered: bool = False,
) -> Stage:
    statements = [(line.number,) if line.path else () for line in lines]
    texts = [line.text for line in lines]
    return Stage(name, title, "python", texts, tags, statements if numbered else ())


def _by_statement(lines: Sequence[Line], tags: Sequence[Tags]) -> Mapping[int, Tags]:
    return {line.number: own for line, own in zip(lines, tags, strict=True)}


def _joined(by_statement: Mapping[int, Tags], numbers: Iterable[int]) -> Tags:
    """The tags of several statements."""
    all_tags = [by_statement[number] for number in numbers]
    return Tags(
        frozenset().union(*(tags.own for tags in all_tags)),
        frozenset().union(*(tags.around for tags in all_tags)),
    )


def _machine_code(kernel: Kernel, source: Source, above: Stage) -> list[Stage]:
    """The stages below a source, as far as the target shows them."""
    return [
        Stage(
            name,
            title,
            "gas",
            text.splitlines(),
            [above.tags[line - 1] if line else Tags() for line in places],
            [source.statements[line - 1] if line else () for line in places],
            places,
        )
        for name, title, text, places in _LISTINGS[kernel.target.kind](kernel)
    ]


_Listing = tuple[str, str, str, Sequence[int]]


def _assembly(kernel: Kernel) -> list[_Listing]:
    places = machine_code.of_assembly(kernel.asm, kernel.source)
    return [("asm", "Assembly", kernel.asm, places)]


def _nvidia(kernel: CudaKernel) -> list[_Listing]:
    source, arch = kernel.source, kernel.target.arch
    return [
        ("ptx", "PTX", kernel.ptx, machine_code.of_ptx(kernel.ptx, source, arch)),
        ("sass", "SASS", kernel.asm, machine_code.of_sass(kernel.asm, source, arch)),
    ]


# OpenCL's binaries are opaque
_LISTINGS: Final[Mapping[str, Callable[[Any], list[_Listing]]]] = {
    "llvm": _assembly,
    "opencl": lambda _kernel: [],
    "cuda": _nvidia,
}
