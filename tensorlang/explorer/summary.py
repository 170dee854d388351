"""A kernel in short: what became of its loops, its copies of arrays, and its limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tensorlang.explorer.choices import Comparison, reasons, settings
from tensorlang.explorer.loop_table import Loop
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import reads, writes
from tensorlang.ir.text.printer import show
from tensorlang.ir.visit import holds, nodes_of
from tensorlang.machine.limits import Limits
from tensorlang.scheduling.analysis.tree import block_of, enclosing_loops, paths_to

if TYPE_CHECKING:
    from tensorlang.explorer.search import Search
    from tensorlang.scheduling.knobs import Knobs

_BECAME: Final = {
    "vectorized": "vectors",
    "parallel": "threads",
    "bound": "threads",
    "unrolled": "unrolled",
}

_NOT_SEARCHED: Final = "none on this machine: tlang tune compares other knobs"
_USUAL: Final = "usual values: no model or rule of this schedule compares others"


def summary(
    function: ir.Function,
    lowered: ir.Function,
    rows: Sequence[Loop],
    limits: Limits,
    knobs: Knobs,
    *,
    compared: Sequence[Comparison] = (),
    search: Search | None = None,
    shown: Mapping[str, str] = {},
) -> dict[str, str]:
    """What a scheduled function does, by topic; topics without an answer are absent.

    Args:
        lowered: What it was lowered to, which decides where temporaries are.
        rows: Its loops for the sizes of the call; left out are those that never run,
            and those of one iteration.
        compared: What cost models compared for them.
        search: The search that found it, if it is known.
        shown: Names as the page shows them, of those that differ. Equal entries of
            several loops are one.
    """
    found: dict[str, list[str]] = {topic: [] for topic in _BECAME.values()}
    for loop in rows:
        kind, _, thread = loop.kind.partition(" ")
        if kind in _BECAME and loop.total != 0 and not _once(loop):
            index = f" \N{RIGHTWARDS ARROW} {thread}" if thread else ""
            name = shown.get(loop.name, loop.name)
            found[_BECAME[kind]].append(f"{name} ({loop.trips_text}){index}")
    found["copies"] = list(_copies(function, lowered, rows, shown))
    if knobs.values:
        why = [*(each.said for each in compared), *reasons(knobs)]
        found["knobs"] = [settings(knobs.values)]
        found["why"] = ["; ".join(why) or _USUAL]
    found["search"] = ["; ".join(search.reasons) if search else _NOT_SEARCHED]
    found["limit"] = [limits.said]
    return {n: ", ".join(dict.fromkeys(said)) for n, said in found.items() if said}


def _once(loop: Loop) -> bool:
    """Whether a loop has one iteration, and no thread's index."""
    return loop.trips == (1, 1) and " " not in loop.kind


def _copies(
    function: ir.Function,
    lowered: ir.Function,
    rows: Sequence[Loop],
    shown: Mapping[str, str],
) -> Iterator[str]:
    """The temporaries that hold a part of one parameter, with their loops."""
    known = {loop.name: loop for loop in rows}
    places = {
        alloc.buffer: [known[loop.var.name] for loop in enclosing_loops(path)]
        for path in paths_to(function, ir.Alloc)
        if isinstance(alloc := path[-1], ir.Alloc)
    }
    kept = {alloc.buffer.name: alloc.buffer for alloc in nodes_of(lowered, ir.Alloc)}
    for path in paths_to(function, ir.Block):
        block = block_of(path)
        copied, made = reads(block.body), writes(block.body)
        if len(copied) != 1 or holds(block.body, ir.Reduce) or not made <= {*places}:
            continue
        (source,) = copied
        for buffer in made if source in function.buffers else ():
            around = places[buffer]
            if any(loop.total == 0 for loop in around):
                continue
            held = _held(buffer, kept.get(buffer.name, buffer))
            often = [loop.name for loop in around if not _once(loop)]
            where = f" in each {shown.get(often[-1], often[-1])}" if often else " once"
            name = shown.get(buffer.name, buffer.name)
            yield f"{source.name} \N{RIGHTWARDS ARROW} {name} ({held}){where}"


def _held(buffer: ir.Buffer, kept: ir.Buffer) -> str:
    """Where a temporary is: as scheduled, unless each thread was given a part."""
    own = kept.scope != buffer.scope
    shown = kept if own else buffer
    shape = ", ".join(map(show, shown.shape))
    order = " a thread" if own else ", in another order" if buffer.layout else ""
    return f"{shown.scope} {shown.dtype}[{shape}]{order}"
