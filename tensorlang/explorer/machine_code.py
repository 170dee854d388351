"""Which source line each line of assembly, PTX or SASS comes from.

The compilers are asked for line information, which must not change what they emit: if
it does, no line is linked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.runtime.cpu import llvm
from tensorlang.runtime.cuda import toolchain

_ROUTINE: Final = re.compile(r"^(define .*) \{$")
_UNIT: Final = "language: DW_LANG_C, emissionKind: DebugDirectivesOnly"
_FIRST: Final = 1_000_000  # metadata numbers far from the module's own


@frozen
class _Form:
    """How a listing is written: locations, of which the last one counts, and code."""

    location: re.Pattern[str]
    instruction: re.Pattern[str]
    comment: str


_ASSEMBLY: Final = _Form(
    re.compile(r"^\s*\.loc\s+\d+\s+(\d+)"), re.compile(r"\s+[a-z]"), "#"
)
_PTX: Final = _Form(
    re.compile(r"(?:^\s*\.loc|inlined_at)\s+\d+\s+(\d+)"),
    re.compile(r"\s+[@a-z]"),
    "//",
)
_SASS: Final = _Form(
    re.compile(r"//## File \"[^\"]*\", line (\d+)"),
    re.compile(r"\s+/\*[0-9a-f]{4,}\*/"),
    "//",
)

_FORMS: Final = {"asm": _ASSEMBLY, "ptx": _PTX, "sass": _SASS}  # by stage
_OPERATION: Final = re.compile(r"(?:/\*\w+\*/\s*)?(?:@\S+\s+)?([^\s;]+)")


def mix(stage: str, lines: Sequence[str]) -> list[tuple[str, int]]:
    """How often each operation stands in machine code, the most frequent first.

    Empty for stages that are not machine code.
    """
    if stage not in _FORMS:
        return []
    texts = (text for _, text, _ in _instructions(lines, _FORMS[stage]))
    return Counter(
        found[1] for text in texts if (found := _OPERATION.match(text))
    ).most_common()


def located(source: str) -> str:
    """LLVM IR whose instructions have their lines as locations."""
    numbers = count(_FIRST)
    unit, file, flag = (f"!{next(numbers)}" for _ in range(3))
    lines, notes, scope = [], _heads(unit, file, flag), ""
    for number, line in enumerate(source.splitlines(), 1):
        if found := _ROUTINE.match(line):
            scope = f"!{next(numbers)}"
            lines.append(f"{found[1]} !dbg {scope} {{")
            notes.append(
                f'{scope} = distinct !DISubprogram(name: "f", file: {file}, '
                f"unit: {unit}, spFlags: DISPFlagDefinition)"
            )
        elif scope and line.startswith("  "):
            place = f"!{next(numbers)}"
            lines.append(f"{line}, !dbg {place}")
            notes.append(f"{place} = !DILocation(line: {number}, scope: {scope})")
        else:
            scope = "" if line == "}" else scope
            lines.append(line)
    return "\n".join([*lines, *notes]) + "\n"


def _heads(unit: str, file: str, flag: str) -> list[str]:
    return [
        f"!llvm.dbg.cu = !{{{unit}}}",
        f"!llvm.module.flags = !{{{flag}}}",
        f'{flag} = !{{i32 2, !"Debug Info Version", i32 3}}',
        f'{file} = !DIFile(filename: "kernel.ll", directory: "")',
        f"{unit} = distinct !DICompileUnit({_UNIT}, file: {file})",
    ]


def of_assembly(assembly: str, source: str) -> list[int]:
    """The source line (from 1; 0 for none) of each line of a CPU kernel's assembly."""
    return _lines(assembly, llvm.assembly(located(source)), _ASSEMBLY)


def of_ptx(ptx: str, source: str, arch: str) -> list[int]:
    """The source line of each line of PTX; of inlined functions, that of the call."""
    return _lines(ptx, toolchain.ptx_of(source, arch, lines=True), _PTX)


def of_sass(sass: str, source: str, arch: str) -> list[int]:
    """The source line of each line of SASS; of inlined functions, that of the call."""
    ptx = toolchain.ptx_of(source, arch, lines=True)
    cubin, _ = toolchain.whole_cubin_of(ptx, arch, lines=True)
    return _lines(sass, toolchain.sass_of(cubin, lines=True), _SASS)


def _lines(plain: str, traced: str, form: _Form) -> list[int]:
    """The source line of each line of a listing, by one with line information."""
    listing = plain.splitlines()
    found = [0] * len(listing)
    own, others = (
        list(_instructions(text, form)) for text in (listing, traced.splitlines())
    )
    if [text for _, text, _ in own] == [text for _, text, _ in others]:
        for (at, _, _), (_, _, line) in zip(own, others, strict=True):
            found[at] = line
    return found


def _instructions(lines: Sequence[str], form: _Form) -> Iterator[tuple[int, str, int]]:
    """The instructions of a listing: where, the text, and the line they are from."""
    line = 0
    for at, text in enumerate(lines):
        if places := form.location.findall(text):
            line = int(places[-1])
        elif form.instruction.match(text):
            yield at, text.partition(form.comment)[0].strip(), line
