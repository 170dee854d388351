"""Definitions for devices that bind their threads themselves; others only loop.

Sorts, long scans and embedding gradients are stable, or round alike on all devices,
because their definitions fix the distribution over threads (`ops.math.block_radix`,
`row_scans`, `nn.embedding_sorts`); the stages of a non-fused Winograd convolution are
scheduled by their kinds.
"""

from __future__ import annotations

from typing import Final

from tensorlang.schedules.simt.generic import generic
from tensorlang.schedules.simt.grid import THREADS
from tensorlang.scheduling import Knobs, Schedule, schedule

# family -> algorithms that exchange values by shuffles, or through shared memory
_BOUND: Final = {
    "embedding": ("sorted",),
    "scan": ("chunks", "narrow_chunks"),
    "sorting": ("blocks",),
}


def keep_bindings(s: Schedule, knobs: Knobs) -> None:
    """Keep all loops as they were bound by the definition."""
    del s, knobs


for _family, _names in _BOUND.items():
    for _name in (f"{name}{how}" for name in _names for how in ("", "_in_memory")):
        schedule(_family, algorithm=_name, model="simt")(keep_bindings)
for _name in ("winograd43_nonfused", "winograd23_nonfused"):
    schedule("conv", algorithm=_name, model="simt")(generic)


@schedule("sort", algorithm="blocks", model="simt")
def permutation(s: Schedule, knobs: Knobs) -> None:
    """Bind random words and the initial numbering to threads; rounds already are."""
    threads = knobs.choice("threads", THREADS, default=256)
    for loop in ("bits/i", "i"):
        outer, inner = s.split(loop, [None, threads])
        s.bind(outer, "block.x")
        s.bind(inner, "thread.x")
