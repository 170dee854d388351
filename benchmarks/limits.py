"""What nothing can be faster than: a kernel that only writes, launched as ours are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tensorlang import build, targets
from tensorlang.ir import Const, compute, function, size, u32
from tensorlang.schedules.streaming import Stream, stream
from tensorlang.scheduling import Schedule

_STREAM: Final = Stream(lanes=64, chunk=64, nontemporal=True)


def nontemporal_fill(count: int) -> Callable[[], object]:
    """A call that writes `count` words past the caches, with all threads allowed."""
    n = size("n")
    seven = compute((n,), lambda *_: Const(7, u32), "filled")
    s = Schedule(function("fill", [], [seven]), target=targets.host())
    stream(s, s.loops("filled")[0], _STREAM)
    s.hint("filled", "filled", "nontemporal")
    kernel = build(s)
    out = np.empty(count, np.uint32)
    return lambda: kernel.launch(out)
