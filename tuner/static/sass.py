"""Cost of a GPU kernel's SASS: instructions weighted by loops and issue rates.

Machine code has no trip counts. As in static branch prediction, a loop is assumed to
run eight times (Wu and Larus, "Static branch frequency and program profile analysis",
MICRO 1994: its branch is taken 88 times of 100), so each enclosing loop multiplies an
instruction's weight by eight. Innermost loops around products of warpgroups, or bulk
copies, are counted for each of these, as the IR has their number.

An instruction costs the cycles that it occupies a scheduler, which has a quarter of a
multiprocessor: 32 lanes over a quarter of the results per cycle in the CUDA C++
Programming Guide's table "Throughput of native arithmetic instructions".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tensorlang.frozen import frozen

if TYPE_CHECKING:
    from tensorlang.machine.gpus import Gpu

_TURNS: Final = 8
_SCHEDULERS: Final = 4
_DEEPEST: Final = 4
_USUAL: Final = 64  # results per cycle of other instructions: integers
# instruction prefix -> results per cycle and multiprocessor
_RATES: Final = {
    "MUFU": 16, "D": 64, "F2F": 16, "F2I": 16, "I2F": 16, "I2FP": 64, "F2FP": 64,
    "SHFL": 32, "VOTE": 32, "POPC": 16, "FLO": 16, "BREV": 16, "S2R": 16,
    "LD": 32, "ST": 32, "ATOM": 32, "RED": 32, "BAR": 16, "H": 256, "MOV": 128,
}  # fmt: skip
_PRODUCT: Final = 16 * 8 * 16  # multiply-adds of HMMA.16816; others take as long
_DOUBLES: Final = 16.0  # cycles of DMMA
ANCHORS: Final = ("HGMMA", "UTMALDG")  # asynchronous: they only take an issue slot
_SECTION: Final = re.compile(r"\.text\.(\w+):$")
_LABEL: Final = re.compile(r"^(\.L_\w+):$")
_LINE: Final = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")
_TARGET: Final = re.compile(r"`\((\.L_\w+)\)")
_MEMORY: Final = re.compile(
    r"(?:LD|ST|LDG|STG|LDS|STS|LDSM|LDGSTS|ATOM|ATOMG|ATOMS|RED|REDG)\."
)
_WIDTH: Final = re.compile(r"\.(?:U|S)?(8|16|64|128)\b")


@frozen
class Instructions:
    """A kernel's instructions, weighted by enclosing loops."""

    cycles: float  # cycles that a warp occupies its scheduler
    moved: float  # bytes that a thread moves to and from device and shared memory
    together: float  # loads of device memory in flight before one is waited for
    # for each of `ANCHORS`, the cycles of innermost loops around such instructions, per
    # instruction; these are not in `cycles`
    around: Mapping[str, float]


def kernels(sass: str, gpu: Gpu) -> dict[str, Instructions]:
    """The kernels in nvdisasm's text of a cubin, by name."""
    return {name: _weighed(lines, gpu) for name, lines in _sections(sass)}


def _sections(sass: str) -> Iterator[tuple[str, list[str]]]:
    """Each kernel's lines, without the subroutines that follow it."""
    name, lines, done = "", list[str](), False
    for raw in sass.splitlines():
        line = raw.strip()
        if found := _SECTION.match(line):
            if name:
                yield name, lines
            name, lines, done = found[1], [], False
        elif line.startswith("$__internal"):
            done = True
        elif name and not done:
            lines.append(line)
    if name:
        yield name, lines


def _weighed(lines: list[str], gpu: Gpu) -> Instructions:
    spans = list(_loops(lines))
    anchored = _anchored(lines, spans)
    cycles = moved = loads = groups = 0.0
    around = dict.fromkeys(ANCHORS, 0.0)
    in_group = False
    for number, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            in_group = in_group and not _LABEL.match(line)
            continue
        name, depth = found[1], sum(number in span for span in spans)
        weight = float(_TURNS ** min(depth, _DEEPEST))
        anchor, times = anchored.get(number, ("", 0))
        if anchor:
            around[anchor] += _cycles(name, gpu) / times
        else:
            cycles += weight * _cycles(name, gpu)
        if _MEMORY.match(f"{name}."):
            moved += weight * _width(name)
        if name.startswith("LDG"):
            loads += 1
            groups += not in_group
            in_group = True
        elif name.startswith(("BRA", "BAR", "STG", "EXIT")):
            in_group = False
    return Instructions(cycles, moved, loads / groups if groups else 1.0, around)


def _loops(lines: list[str]) -> Iterator[range]:
    """The lines of each loop: from a label up to a branch back to it."""
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        if found := _LABEL.match(line):
            labels[found[1]] = number
        target = _TARGET.search(line)
        own = _LINE.match(line)
        if target is None or own is None or not own[1].startswith("BRA"):
            continue
        begin = labels.get(target[1])
        if begin is not None and any(map(_LINE.match, lines[begin:number])):
            yield range(begin, number + 1)


def _anchored(lines: list[str], spans: list[range]) -> dict[int, tuple[str, int]]:
    """For each line of an innermost loop around anchors: which, and how many of all."""
    found: dict[str, list[range]] = {}
    for anchor in ANCHORS:
        having = [span for span in spans if any(_is(lines[n], anchor) for n in span)]
        found[anchor] = [
            span
            for span in having
            if not any(inner != span and _within(inner, span) for inner in having)
        ]
    made: dict[int, tuple[str, int]] = {}
    for anchor, chosen in found.items():
        times = sum(_is(lines[n], anchor) for span in chosen for n in span)
        made |= {n: (anchor, times) for span in chosen for n in span}
    return made


def _within(inner: range, outer: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _is(line: str, anchor: str) -> bool:
    found = _LINE.match(line)
    return found is not None and found[1].startswith(anchor)


def _cycles(name: str, gpu: Gpu) -> float:
    stem = name.partition(".")[0]
    if stem in ("HMMA", "IMMA"):
        return _SCHEDULERS * _PRODUCT / gpu.products
    if stem in ANCHORS:
        return 1.0
    if stem == "DMMA":
        return _DOUBLES
    if stem.startswith("F") and stem in ("FADD", "FMUL", "FFMA", "FMNMX", "FSEL"):
        return 128 / gpu.singles
    rates = (rate for start, rate in _RATES.items() if stem.startswith(start))
    return 128 / next(rates, _USUAL)


def _width(name: str) -> float:
    """Bytes that a thread moves per access."""
    if name.startswith("LDSM"):
        return 16.0
    found = _WIDTH.search(name)
    both = 2.0 if name.startswith("LDGSTS") else 1.0  # it loads and stores
    return both * (int(found[1]) / 8 if found else 4.0)
