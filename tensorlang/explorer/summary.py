"""A kernel in short: what became of its loops, its copies of arrays, and its limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tensorlang.explorer.limits import Limits
from tensorlang.explorer.links import TAIL
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import loops, reads, writes
from tensorlang.ir.text.printer import show
from tensorlang.ir.visit import holds
from tensorlang.scheduling.analysis.tree import (
    block_of,
    constant,
    enclosing_loops,
    paths_to,
)

if TYPE_CHECKING:
    from tensorlang.explorer.search import Search

_BECAME: Final = {
    "vectorized": "vectors",
    "parallel": "threads",
    "bound": "threads",
    "unrolled": "unrolled",
}

_NOT_SEARCHED: Final = "none on this machine: tlang tune compares other knobs"


def summary(
    function: ir.Function,
    limits: Limits,
    knobs: Mapping[str, object],
    search: Search | None = None,
) -> dict[str, str]:
    """What a scheduled function does, by topic; topics without an answer are absent.

    Loops over what `partition` splits off are left out, and those of one iteration.
    """
    found: dict[str, list[str]] = {topic: [] for topic in _BECAME.values()}
    for loop in loops(function.body):
        alone = constant(loop.extent) == 1 and not loop.thread
        if loop.kind in _BECAME and TAIL not in loop.var.name and not alone:
            index = f" \N{RIGHTWARDS ARROW} {loop.thread}" if loop.thread else ""
            said = f"{loop.var.name} ({show(loop.extent)}){index}"
            found[_BECAME[loop.kind]].append(said)
    found["copies"] = list(_copies(function))
    found["knobs"] = [f"{name}={value!r}" for name, value in knobs.items()]
    found["search"] = ["; ".join(search.reasons) if search else _NOT_SEARCHED]
    found["limit"] = list(_limit(limits))
    return {n: ", ".join(dict.fromkeys(said)) for n, said in found.items() if said}


def _copies(function: ir.Function) -> Iterator[str]:
    """The temporaries that hold a part of one parameter, with their loops."""
    places = {
        alloc.buffer: [loop.var.name for loop in enclosing_loops(path)]
        for path in paths_to(function, ir.Alloc)
        if isinstance(alloc := path[-1], ir.Alloc)
    }
    for path in paths_to(function, ir.Block):
        block = block_of(path)
        copied, made = reads(block.body), writes(block.body)
        if len(copied) != 1 or holds(block.body, ir.Reduce) or not made <= {*places}:
            continue
        (source,) = copied
        for buffer in made if source in function.buffers else ():
            order = ", in another order" if buffer.layout else ""
            shape = ", ".join(map(show, buffer.shape))
            where = f" in each {places[buffer][-1]}" if places[buffer] else " once"
            yield (
                f"{source.name} \N{RIGHTWARDS ARROW} {buffer.name} "
                f"({buffer.scope} {buffer.dtype}[{shape}]{order}){where}"
            )


def _limit(limits: Limits) -> Iterator[str]:
    if limits.tightest:
        least = limits.tightest.seconds * 1e6
        yield f"{limits.tightest.name}: {least:,.1f} µs a call at the measured rate"
    else:
        yield limits.missing
    if limits.reached:
        yield f"{limits.reached:.0%} of it reached"
    if limits.work:
        yield f"{limits.work.intensity:.3g} operations per byte"
